"""Why did this request wait? Its timeline, and its waiting time divided among the reasons that held it, step by step.

Everything adds up, in whole microseconds: the phases to the time from arrival to end, the reasons to the waiting time,
the spans to the reasons. ``docs/why.md`` says it in words; the rule stands in ``docs/reasons.md``.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from tokenyard.arguments import given_path, given_text, suggests_keywords
from tokenyard.errors import TraceError, near_names
from tokenyard.explain.printable import Printable
from tokenyard.explain.table import RowTable, table_from
from tokenyard.explain.why.timeline import timeline_readers
from tokenyard.explain.why.waits import OpenWait
from tokenyard.trace.facts import PreemptionMoment, RequestMoments, RequestTimeline, Wait
from tokenyard.trace.files import Partial
from tokenyard.trace.held_back import Cause
from tokenyard.trace.schema import KVNumbers
from tokenyard.trace.steps import Step
from tokenyard.units import duration
from tokenyard.vocabulary import Place, Reason, WaitState

WHY_VERSION = 1
_IDS_REMEMBERED = 10_000
"""Ids among which a mistyped one is looked for."""


class Phases(msgspec.Struct, frozen=True, kw_only=True):
    """The time from arrival to end in pieces that do not overlap, in microseconds; they add up to it."""

    queued_us: int
    prefill_us: int
    decode_us: int
    preempted_us: int
    stalled_us: int


class ReasonShare(msgspec.Struct, frozen=True, kw_only=True):
    """What one cause had of the waiting time."""

    reason: str
    place: Place
    us: int
    share: float
    """Share of all its waiting time."""


class Span(msgspec.Struct, kw_only=True):
    """Steps in a row that kept it waiting for the same cause."""

    state: WaitState
    reason: str
    place: Place
    head: str | None
    """The request at the head of the queue that was refused, if it stood behind one."""
    first_step: int
    last_step: int
    steps: int
    """Recorded ones."""
    start_us: int
    end_us: int
    kv: KVNumbers | None = None
    """Numbers of the last refusal, for ``kv_*`` reasons."""
    smallest_need: int | None = None
    detail: str | None = None
    """The policy's own word, for ``policy_refused``."""

    @property
    def us(self) -> int:
        return self.end_us - self.start_us


class Why(Printable, RequestMoments, kw_only=True):
    """Why one request waited. Moments are microseconds on the clock of the trace, None where it did not come so far."""

    printer = "tokenyard.explain.render.why:print_why"

    why_version: int = WHY_VERSION
    """Raised when a field changes its meaning."""
    phases: Phases
    """Its time in pieces that do not overlap."""
    waited_us: int
    """Queued, preempted and stalled together."""
    reasons: list[ReasonShare]
    """Most time first; they add up to ``waited_us``."""
    spans: list[Span]
    """The spans in order of time."""
    preemptions: list[PreemptionMoment]
    """When it lost its blocks, in order of time."""
    reconstructed: bool
    """The trace records no arrivals and ends: moments are exact to a step."""
    rank: int | None = None
    """The engine that served it, where there are several; step numbers are those of this engine."""
    partial: Partial | None = None
    """How the trace shows that the run went on after it, for a request that does not end in the trace."""

    def summary(self) -> str:
        most = f", most for {self.reasons[0].reason}" if self.reasons else ""
        return f"{self.request_id} waited {duration(self.waited_us / 1e6)}{most}"

    def as_table(self) -> RowTable:
        """One row per span of steps that kept it waiting for one cause; moments in seconds."""
        return table_from("spans", [_row_of(span) for span in self.spans])


def _row_of(span: Span) -> dict[str, object]:
    return {
        "state": str(span.state.value),
        "reason": span.reason,
        "place": str(span.place.value),
        "head": span.head,
        "first_step": span.first_step,
        "last_step": span.last_step,
        "from_s": span.start_us / 1e6,
        "to_s": span.end_us / 1e6,
        "seconds": span.us / 1e6,
    }


class JobNamedError(TraceError):
    """What should name one request names a job of several."""


@suggests_keywords()
def why(path: Path | str, request_id: str) -> Why:
    """Explain one request of a trace, or of those of several engines. Reading stops at its end.

    ``request_id`` may be the beginning of one id alone, as the id that a client of vLLM's server sees is, or a job of
    one request. Raises TraceError if there is no trace at ``path`` or no such request in it, JobNamedError if it is a
    job of several requests, ConfigError for an id that is no text.
    """
    source, request_id = given_path("path", path), named_request(request_id)
    watcher = _Spans(request_id)
    known: list[str] = []
    meant = _Meant(request_id)
    for rank, trace in timeline_readers(path, watcher=watcher):
        for timeline in trace.timelines():
            if timeline.request_id == request_id:
                spans = _matching(timeline, watcher.spans)
                partial = trace.partial if timeline.finished_us is None else None
                return why_of(timeline, spans, reconstructed=trace.reconstructed, rank=rank, partial=partial)
            meant.look_at(timeline)
            if len(known) < _IDS_REMEMBERED:
                known.append(timeline.request_id)
        source = trace.reader.files.source if rank is None else source
    if (only := meant.only()) is not None:
        return why(path, only)
    hint = _hint(request_id, known)
    fix = "give the id of a request that came" + hint
    problem = f"{source}: no request {_quoted(request_id)}{hint}"
    raise TraceError(problem, field="request_id", value=request_id, fix=fix)


def named_request(request_id: object) -> str:
    """The id of a request, as a user gave it. Raises ConfigError for what is none."""
    return given_text("request_id", request_id, "give the id of a request, as a text")


class _Meant:
    """The requests that something which is no request's id may mean."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._of_job: list[str] = []
        self._begin_so: list[str] = []

    def look_at(self, timeline: RequestTimeline) -> None:
        for found, fits in (
            (self._of_job, timeline.job_id == self._text),
            (self._begin_so, timeline.request_id.startswith(self._text)),
        ):
            if fits and len(found) < _IDS_REMEMBERED:
                found.append(timeline.request_id)

    def only(self) -> str | None:
        """The one request; None if there is none."""
        text = _quoted(self._text)
        if len(self._of_job) > 1:
            raise JobNamedError(f"{text} is a job of {len(self._of_job):,} requests: {_some(self._of_job)}: name one")
        found = self._of_job or (self._begin_so if self._text else [])
        if len(found) > 1:
            raise TraceError(f"{len(found):,} ids begin with {text}: {_some(found)}: write more of one")
        return found[0] if found else None


def _some(ids: list[str]) -> str:
    return ", ".join(map(_quoted, ids[:3])) + (" ..." if len(ids) > 3 else "")


def _quoted(request_id: str) -> str:
    return repr(request_id if len(request_id) <= 80 else request_id[:77] + "...")


def _hint(request_id: str, known: list[str]) -> str:
    near = near_names(request_id, known, n=3, cutoff=0.5) or known[:3]
    return f"; it has {', '.join(map(_quoted, near))} ..." if near else ""


class _Spans:
    """Watches one request and keeps what its waiting time is made of."""

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self.spans: list[Span] = []
        self._step: Step | None = None

    def decided(self, step: Step, wait: OpenWait) -> None:
        self._step = step

    def passed(self, state: WaitState, cause: Cause, step: int, start_us: int, end_us: int) -> None:
        outcome = self._step.outcome if self._step is not None and cause.place is not Place.OUTSIDE else None
        head = outcome.req_id if outcome is not None and cause.place is Place.BEHIND else None
        last = self.spans[-1] if self.spans else None
        if (
            last is None
            or (last.state, last.reason, last.place, last.head) != (state, cause.reason, cause.place, head)
            or last.end_us != start_us
        ):
            last = Span(
                state=state,
                reason=cause.reason,
                place=cause.place,
                head=head,
                first_step=step,
                last_step=step,
                steps=1,
                start_us=start_us,
                end_us=end_us,
            )
            self.spans.append(last)
        last.steps += step != last.last_step
        last.last_step, last.end_us = step, end_us
        if outcome is not None and outcome.reason == cause.reason:
            last.kv, last.smallest_need, last.detail = outcome.kv, outcome.smallest_need, outcome.detail
        elif outcome is not None and cause.reason == Reason.POLICY_REFUSED:
            last.detail = next((each.detail for each in outcome.skipped or () if each.detail), None)


def _matching(timeline: RequestTimeline, spans: list[Span]) -> list[Span]:
    """The spans of each wait; where a damaged trace shows its end too late or its beginning never, one per part."""
    found: list[Span] = []
    for wait in timeline.waits:
        inside = [each for each in spans if each.start_us >= wait.start_us and each.end_us <= wait.end_us]
        inside = [each for each in inside if each.state is wait.state and each.us]
        told = {(each.reason, each.place): each.us for each in wait.parts}
        found += inside if _parts_of(inside) == told else _one_per_part(wait)
    return found


def _parts_of(spans: list[Span]) -> dict[tuple[str, Place], int]:
    """Cause -> time in these spans."""
    parts: dict[tuple[str, Place], int] = {}
    for span in spans:
        parts[span.reason, span.place] = parts.get((span.reason, span.place), 0) + span.us
    return parts


def _one_per_part(wait: Wait) -> list[Span]:
    step, start = wait.first_step or 0, wait.start_us
    spans: list[Span] = []
    for part in wait.parts:
        spans.append(
            Span(
                state=wait.state,
                reason=part.reason,
                place=part.place,
                head=None,
                first_step=step,
                last_step=step,
                steps=0,
                start_us=start,
                end_us=start + part.us,
            )
        )
        start += part.us
    return spans


def why_of(
    timeline: RequestTimeline, spans: list[Span], *, reconstructed: bool, rank: int | None, partial: Partial | None
) -> Why:
    """What is known of one request: its ``timeline``, and its waits step by step in ``spans``."""
    waited = timeline.waited_us
    spent: dict[Cause, int] = {}
    for wait in timeline.waits:
        for part in wait.parts:
            cause = Cause(part.reason, part.place)
            spent[cause] = spent.get(cause, 0) + part.us
    reasons = [
        ReasonShare(reason=cause.reason, place=cause.place, us=us, share=us / waited)
        for cause, us in sorted(spent.items(), key=lambda item: (-item[1], item[0]))
    ]
    return Why(
        **{name: getattr(timeline, name) for name in RequestMoments.__struct_fields__},
        phases=phases_of(timeline),
        waited_us=waited,
        reasons=reasons,
        spans=spans,
        preemptions=timeline.preemptions,
        reconstructed=reconstructed,
        rank=rank,
        partial=partial,
    )


def phases_of(timeline: RequestTimeline) -> Phases:
    """A timeline in phases. What a request waited for in the middle of its prefill or decode is taken out of them."""
    until = timeline.until_us
    scheduled = until if timeline.first_scheduled_us is None else timeline.first_scheduled_us
    token = until if timeline.first_token_us is None else timeline.first_token_us
    waited = dict.fromkeys(WaitState, 0)
    lost_prefill = lost_decode = 0
    for wait in timeline.waits:
        waited[wait.state] += wait.us
        if wait.state is not WaitState.QUEUED:
            before = max(min(wait.end_us, token) - wait.start_us, 0)
            lost_prefill += before
            lost_decode += wait.us - before
    return Phases(
        queued_us=waited[WaitState.QUEUED],
        prefill_us=max(token - scheduled, 0) - lost_prefill,
        decode_us=until - token - lost_decode,
        preempted_us=waited[WaitState.PREEMPTED],
        stalled_us=waited[WaitState.STALLED],
    )
