"""How many drafts of speculative decoding the model accepted, as the report tells it."""

from __future__ import annotations

import msgspec

from tokenyard.explain.render.units import percent
from tokenyard.trace.format.schema import TraceStart
from tokenyard.trace.format.step_facts import Drafts

__all__ = ["Speculation", "SpeculationCounter"]


class SpeculationCounter:
    """Adds up what steps verified."""

    def __init__(self) -> None:
        self._drafts = self._tokens = 0
        self._accepted: list[int] = []
        """By position."""

    def add(self, drafts: Drafts) -> None:
        """A step verified these."""
        self._drafts += drafts.num_drafts
        self._tokens += drafts.num_draft_tokens
        new, known = drafts.num_accepted_tokens_per_pos, self._accepted
        known += [0] * (len(new) - len(known))
        for position, count in enumerate(new):
            known[position] += count

    def join(self, other: SpeculationCounter) -> None:
        """The steps of another engine, too."""
        self.add(Drafts(other._drafts, other._tokens, other._accepted))

    def result(self, start: TraceStart | None) -> Speculation | None:
        """The counts so far; None if nothing was drafted, and nobody had said that something would be."""
        told = ((start.config if start is not None else None) or {}).get("speculation")
        if not self._drafts and not told:
            return None
        accepted = sum(self._accepted)
        return Speculation(
            num_drafts=self._drafts,
            num_draft_tokens=self._tokens,
            num_accepted_tokens=accepted,
            num_accepted_tokens_per_pos=self._accepted.copy(),
            acceptance_rate=_ratio(accepted, self._tokens),
            acceptance_rate_per_pos=[_ratio(count, self._drafts) for count in self._accepted],
        )


def _ratio(count: int, total: int) -> float | None:
    return count / total if total else None


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
