"""What is left to spend in one step."""

from __future__ import annotations

__all__ = ["StepBudget"]


class StepBudget:
    """Limits of one step, counted down while it is decided; none ever goes below zero."""

    __slots__ = (
        "_overdrawn",
        "encoder",
        "encoder_items",
        "has_run",
        "has_run_prefill",
        "longest_prefill",
        "loras",
        "max_tokens",
        "slots_per_request",
        "tokens",
        "tokens_used",
    )

    def __init__(
        self,
        max_tokens: int,
        encoder: int = 0,
        *,
        longest_prefill: int = 0,
        slots_per_request: int = 0,
    ) -> None:
        self.max_tokens = max_tokens
        self.slots_per_request = slots_per_request
        """Input slots that every scheduled request takes beside its tokens, for its drafter."""
        self.tokens = max(max_tokens - slots_per_request, 0)
        """Tokens left for the next request, shared by prefill and decode."""
        self._overdrawn = 0
        """Slots of the last request that exceed the budget: it may be used up to the last token."""
        self.tokens_used = 0
        """Tokens granted."""
        self.longest_prefill = longest_prefill
        """Most tokens of one request; 0 = no such limit."""
        self.has_run = self.has_run_prefill = False
        """The running pass has granted tokens; to a request in the middle of its prompt."""
        self.encoder = encoder
        """Encoder embeddings left."""
        self.encoder_items: dict[str, list[int]] = {}
        """Request id -> items whose encoder runs in this step."""
        self.loras: set[str] = set()
        """LoRA adapters that take part in this step."""

    def spend(self, tokens: int, num_requests: int = 1) -> None:
        """Tokens are granted."""
        assert 0 <= tokens <= self.tokens, f"{tokens} tokens granted, {self.tokens} left"
        self.tokens_used += tokens
        self.tokens -= tokens + self.slots_per_request * num_requests
        if self.tokens < 0:
            self._overdrawn, self.tokens = -self.tokens, 0

    def refund(self, tokens: int) -> None:
        """A request's grant of this step is rolled back."""
        self.tokens_used -= tokens
        self.tokens += tokens + self.slots_per_request - self._overdrawn
        self._overdrawn = 0
        assert self.tokens <= self.max_tokens, "refunded more than was spent"
