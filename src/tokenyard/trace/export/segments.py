"""A timeline in segments: queued, prefill, decode, preempted, stalled, one after the other without overlap."""

from __future__ import annotations

from typing import NamedTuple

from tokenyard.trace.format.request_timeline import RequestTimeline, Wait
from tokenyard.vocabulary.waits import WaitState

__all__ = ["Segment", "numbers_of", "segments_of"]


class Segment(NamedTuple):
    """A piece of a request's timeline."""

    name: str
    start_us: int
    end_us: int
    wait: Wait | None = None
    """What it waited for, unless it ran."""
    resumes: bool = False
    """It runs again after a preemption."""


def segments_of(timeline: RequestTimeline) -> list[Segment]:
    """In order of time; they touch, and cover the timeline from arrival to end."""
    segments: list[Segment] = []
    cursor = timeline.arrived_us if timeline.arrived_us is not None else timeline.until_us
    resumes = False
    for wait in timeline.waits:
        segments += _running(timeline, cursor, wait.start_us, resumes=resumes)
        segments.append(Segment(wait.state.value, wait.start_us, wait.end_us, wait))
        resumes = wait.state is WaitState.PREEMPTED
        cursor = wait.end_us
    return segments + _running(timeline, cursor, timeline.until_us, resumes=resumes)


def _running(timeline: RequestTimeline, start: int, end: int, *, resumes: bool) -> list[Segment]:
    """From ``start`` to ``end`` it ran: until its first token prefill, from there decode."""
    if end <= start or timeline.first_scheduled_us is None:
        return []
    token = end if timeline.first_token_us is None else min(max(timeline.first_token_us, start), end)
    pieces = (("prefill", start, token), ("decode", token, end))
    found = [Segment(name, begin, until) for name, begin, until in pieces if until > begin]
    found[0] = found[0]._replace(resumes=resumes)
    return found


def numbers_of(timeline: RequestTimeline) -> dict[str, int | str]:
    """What is known of a request, under the names that every export uses."""
    known: dict[str, int | str | None] = {
        "request": timeline.request_id,
        "job": timeline.job_id,
        "prompt_tokens": timeline.num_prompt_tokens,
        "output_tokens": timeline.num_output_tokens,
        "local_hit_tokens": timeline.local_hit_tokens,
        "external_hit_tokens": timeline.external_hit_tokens,
        "preemptions": len(timeline.preemptions),
        "waited_us": timeline.waited_us,
        "finish_reason": timeline.finish_reason,
    }
    return {name: value for name, value in known.items() if value is not None}
