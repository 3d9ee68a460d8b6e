"""How many drafts of speculative decoding the model accepted, as the report tells it."""

from __future__ import annotations

import msgspec

from tokenyard.explain.units import percent

__all__ = ["Speculation"]


class Speculation(msgspec.Struct, frozen=True, kw_only=True):
    """Counts under vLLM's names, and their ratios; a ratio is None if nothing was drafted."""

    num_drafts: int
    """Proposals that were verified: one per request and step, of one draft token or several."""
    num_draft_tokens: int
    num_accepted_tokens: int
    num_accepted_tokens_per_pos: list[int]
    """How often the draft at each position was accepted."""
    acceptance_rate: float | None
    """Accepted tokens over draft tokens."""
    acceptance_rate_per_pos: list[float | None]
    """Accepted at each position over proposals, also those too short to have that position."""

    def __str__(self) -> str:
        if self.acceptance_rate is None:
            return "no drafts verified"
        positions = ", ".join(map(percent, self.acceptance_rate_per_pos))
        return (
            f"{self.num_accepted_tokens:,} of {self.num_draft_tokens:,} drafts accepted, "
            f"{percent(self.acceptance_rate)}; by position {positions}"
        )
