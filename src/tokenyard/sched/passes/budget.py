"""What is left to spend in one step."""

from __future__ import annotations

import msgspec

__all__ = ["StepBudget"]


class StepBudget(msgspec.Struct, eq=False):
    """Limits of one step, counted down while it is decided; none ever goes below zero."""

    max_tokens: int
    encoder: int = 0
    """Encoder embeddings left."""
    longest_prefill: int = 0
    """Most tokens of one request; 0 = no such limit."""
    slots_per_request: int = 0
    """Input slots that every scheduled request takes beside its tokens, for its drafter."""
    tokens: int = 0
    """Tokens left for the next request, shared by prefill and decode."""
    tokens_used: int = 0
    """Tokens granted."""
    has_run: bool = False
    """The running pass has granted tokens."""
    has_run_prefill: bool = False
    """It has granted some to a request in the middle of its prompt."""
    encoder_items: dict[str, list[int]] = {}
    """Request id -> items whose encoder runs in this step."""
    loras: set[str] = set()
    """LoRA adapters that take part in this step."""
    overdrawn: int = 0
    """Slots of the last request that exceed the budget: it may be used up to the last token."""

    def __post_init__(self) -> None:
        self.tokens = max(self.max_tokens - self.slots_per_request, 0)

    def spend(self, tokens: int, num_requests: int = 1) -> None:
        """Tokens are granted."""
        assert 0 <= tokens <= self.tokens, f"{tokens} tokens granted, {self.tokens} left"
        self.tokens_used += tokens
        self.tokens -= tokens + self.slots_per_request * num_requests
        if self.tokens < 0:
            self.overdrawn, self.tokens = -self.tokens, 0

    def refund(self, tokens: int) -> None:
        """A request's grant of this step is rolled back."""
        self.tokens_used -= tokens
        self.tokens += tokens + self.slots_per_request - self.overdrawn
        self.overdrawn = 0
        assert self.tokens <= self.max_tokens, "refunded more than was spent"
