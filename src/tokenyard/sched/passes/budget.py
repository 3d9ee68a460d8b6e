"""What is left to spend in one step."""

from __future__ import annotations

__all__ = ["StepBudget"]


class StepBudget:
    """Limits of one step, counted down while it is decided; none ever goes below zero."""

    __slots__ = ("encoder", "encoder_items", "loras", "max_num_seqs", "max_tokens", "tokens")

    def __init__(self, max_tokens: int, max_num_seqs: int, encoder: int = 0) -> None:
        self.max_tokens = max_tokens
        self.tokens = max_tokens
        """Tokens left, shared by prefill and decode."""
        self.max_num_seqs = max_num_seqs
        self.encoder = encoder
        """Encoder embeddings left."""
        self.encoder_items: dict[str, list[int]] = {}
        """Request id -> items whose encoder runs in this step."""
        self.loras: set[str] = set()
        """LoRA adapters that take part in this step."""

    @property
    def tokens_used(self) -> int:
        return self.max_tokens - self.tokens

    def spend(self, tokens: int) -> None:
        """Tokens are granted."""
        assert 0 <= tokens <= self.tokens, f"{tokens} tokens granted, {self.tokens} left"
        self.tokens -= tokens

    def refund(self, tokens: int) -> None:
        """A grant of this step is rolled back."""
        self.tokens += tokens
        assert self.tokens <= self.max_tokens, "refunded more than was spent"
