"""What a request went through: its moments, and the stretches of time in which it got no tokens, with their reasons.

Moments are whole microseconds, so that the parts of a wait add up to the wait exactly. These are the words in which the
explanation (``explain/why/wait_tracker.py``) speaks to whoever shows or exports a timeline.
"""

from __future__ import annotations

from math import floor
from typing import NamedTuple

import msgspec

from tokenyard.vocabulary.waits import Place, WaitState

__all__ = ["PreemptionMoment", "RequestMoments", "RequestTimeline", "Wait", "WaitPart", "micros"]


def micros(seconds: float) -> int:
    """Seconds on any clock as whole microseconds, halves upward (as ``Math.round`` does)."""
    return floor(seconds * 1e6 + 0.5)


class WaitPart(NamedTuple):
    """Time in a wait that has one reason."""

    reason: str
    place: Place
    us: int


class Wait(msgspec.Struct, kw_only=True, gc=False):
    """A stretch of time without tokens. ``parts`` add up to ``end_us - start_us``."""

    state: WaitState
    start_us: int
    end_us: int
    first_step: int | None = None
    """Step that it begins with; of a queued request the first one that could see it."""
    last_step: int | None = None
    """Step that ended it by scheduling it; None if it ended otherwise."""
    parts: list[WaitPart] = []
    """Most time first."""

    @property
    def us(self) -> int:
        return self.end_us - self.start_us


class PreemptionMoment(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A request lost its blocks."""

    step: int
    us: int
    for_request_id: str | None = None
    """Who needed them."""
    lost_tokens: int | None = None
    """Tokens it had computed."""


class RequestMoments(msgspec.Struct, kw_only=True, gc=False):
    """When what happened to a request, in microseconds on the trace's clock; None where it did not come so far."""

    request_id: str
    """Names the request."""
    job_id: str | None = None
    """The agent or session it belongs to; None: none."""
    arrived_us: int | None = None
    """When it was added."""
    first_scheduled_us: int | None = None
    """When a step first gave it tokens."""
    first_scheduled_step: int | None = None
    """Number of that step."""
    first_token_us: int | None = None
    """When its first token was there."""
    finished_us: int | None = None
    """When it ended."""
    until_us: int = 0
    """Its end, or the last moment of a trace that does not show it."""
    finish_reason: str | None = None
    """Why it ended; None: it has not."""
    num_prompt_tokens: int | None = None
    """Tokens of its prompt."""
    num_output_tokens: int | None = None
    """Tokens it was given."""
    local_hit_tokens: int | None = None
    """Prompt tokens found in the prefix cache at its first admission."""
    external_hit_tokens: int | None = None
    """Prompt tokens that a connector brought."""


class RequestTimeline(RequestMoments, kw_only=True, gc=False):
    """One request from its arrival to its end."""

    waits: list[Wait] = []
    """In order of time."""
    preemptions: list[PreemptionMoment] = []

    @property
    def waited_us(self) -> int:
        """All of its waits together."""
        return sum(wait.us for wait in self.waits)
