"""Why did this request wait? Its timeline, and its waiting time divided among the reasons that held it, step by step.

Everything adds up, in whole microseconds: the phases to the time from arrival to end, the reasons to the waiting time,
the spans to the reasons. ``docs/why.md`` says it in words; the rule stands in ``docs/reasons.md``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from heapq import heappush, heappushpop
from pathlib import Path

import msgspec

from tokenyard.arguments import given_path, given_text, suggests_keywords
from tokenyard.errors import TraceError, near_names, shown
from tokenyard.explain.table import Printable, RowTable, table_from
from tokenyard.explain.why.timeline import timeline_readers
from tokenyard.explain.why.waits import OpenWait
from tokenyard.trace.facts import PreemptionMoment, RequestMoments, RequestTimeline, Wait, micros
from tokenyard.trace.held_back import Cause
from tokenyard.trace.reader import Partial
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


# ---------------------------------------------------------------------------------------------------------------------
# Which requests waited longest, and what all of them waited for: the waits of a whole trace, added up.

_LISTED = 10
_JOBS_REMEMBERED = 1000
"""Jobs that are compared with one that there is not."""


class LongWait(msgspec.Struct, frozen=True, kw_only=True):
    """One of the requests that waited longest."""

    request_id: str
    job_id: str | None
    waited_us: int
    queued_us: int
    preempted_us: int
    stalled_us: int
    num_preemptions: int
    reason: str
    """The reason for which it waited most."""
    place: Place
    share: float
    """Share of its waiting time that this reason had."""
    rank: int | None = None
    """The engine that served it, where there are several."""


class RankWaiting(msgspec.Struct, frozen=True, kw_only=True):
    """The requests of one engine of several, in microseconds."""

    rank: int
    requests: int
    requests_that_waited: int
    waited_us: int
    reasons: list[ReasonShare]
    """Most time first; they add up to ``waited_us``."""


class Waiting(Printable, msgspec.Struct, frozen=True, kw_only=True):
    """All requests of a trace together, in microseconds."""

    printer = "tokenyard.explain.render.why:print_waiting"

    why_version: int = WHY_VERSION
    requests: int
    requests_that_waited: int
    waited_us: int
    reasons: list[ReasonShare]
    """Most time first; they add up to ``waited_us``."""
    longest: list[LongWait]
    """The ten requests that waited longest."""
    reconstructed: bool
    ranks: list[RankWaiting] = []
    """The part of each engine, where there are several; the rest is of all of them."""
    partial: Partial | None = None
    """How the trace, or the first of several that does, shows that the run went on after it; None if none does."""

    def summary(self) -> str:
        waited = f"{self.requests_that_waited:,} of {self.requests:,} requests waited"
        return f"{waited}, {duration(self.waited_us / 1e6)} in all"

    def as_table(self) -> RowTable:
        """One row per reason: ``reason``, ``place``, ``seconds`` of all requests, ``share`` of the waiting time."""
        return table_from(
            "reasons",
            [
                {"reason": each.reason, "place": each.place.value, "seconds": each.us / 1e6, "share": each.share}
                for each in self.reasons
            ],
        )


class _Tally:
    """Adds up the waits of requests."""

    def __init__(self) -> None:
        self.spent: Counter[Cause] = Counter()
        self.requests = self.waited = 0

    def add(self, timeline: RequestTimeline) -> None:
        self.requests += 1
        self.waited += bool(timeline.waits)
        for wait in timeline.waits:
            for part in wait.parts:
                self.spent[Cause(part.reason, part.place)] += part.us

    def join(self, other: _Tally) -> None:
        self.spent.update(other.spent)
        self.requests += other.requests
        self.waited += other.waited

    @property
    def total_us(self) -> int:
        return sum(self.spent.values())

    def reasons(self) -> list[ReasonShare]:
        total = self.total_us
        return [
            ReasonShare(reason=cause.reason, place=cause.place, us=us, share=us / total)
            for cause, us in sorted(self.spent.items(), key=lambda item: (-item[1], item[0]))
        ]


@suggests_keywords()
def waiting(path: Path | str, job_id: str | None = None) -> Waiting:
    """Add up the waits of a trace, or of those of several engines; of one job's requests if ``job_id`` is given.

    Raises TraceError if there is no trace at ``path``, or no such job in it, ConfigError for what is no path or no id.
    """
    path = given_path("path", path)
    if job_id is not None:
        given_text("job_id", job_id, "give the id of a job, as a text")
    known: dict[str, None] = {}
    longest: list[tuple[int, int, RequestTimeline, int | None]] = []
    whole, ranks = _Tally(), list[RankWaiting]()
    reconstructed, order = False, 0
    partial: Partial | None = None
    for rank, trace in timeline_readers(path):
        tally = _Tally()
        for timeline in trace.timelines():
            if (timeline.arrived_us or 0) < micros(trace.warmup):
                continue
            if job_id is not None and timeline.job_id != job_id:
                if timeline.job_id is not None and len(known) < _JOBS_REMEMBERED:
                    known[timeline.job_id] = None
                continue
            tally.add(timeline)
            order -= 1
            if timeline.waits:
                entry = (timeline.waited_us, order, timeline, rank)
                heappush(longest, entry) if len(longest) < _LISTED else heappushpop(longest, entry)
        whole.join(tally)
        partial = partial or trace.partial
        reconstructed |= trace.reconstructed
        if rank is not None:
            ranks.append(_rank_waiting(rank, tally))
    if job_id is not None and not whole.requests:
        raise _no_job(path, job_id, known)
    longest.sort(key=lambda entry: entry[:2], reverse=True)
    return Waiting(
        requests=whole.requests,
        requests_that_waited=whole.waited,
        waited_us=whole.total_us,
        reasons=whole.reasons(),
        longest=[_long_wait(timeline, rank) for _, _, timeline, rank in longest],
        reconstructed=reconstructed,
        ranks=ranks,
        partial=partial,
    )


def _no_job(path: Path, job_id: str, known: Collection[str]) -> TraceError:
    """The error for a job that has no request in a trace, with those that are most like it."""
    near = near_names(job_id, known) or list(known)[:3]
    fix = f"give the id of a job that came{': ' if near else ''}{', '.join(near)}"
    return TraceError(f"{path}: no job {shown(job_id)}: {fix}", field="job_id", value=job_id, fix=fix)


def _rank_waiting(rank: int, tally: _Tally) -> RankWaiting:
    return RankWaiting(
        rank=rank,
        requests=tally.requests,
        requests_that_waited=tally.waited,
        waited_us=tally.total_us,
        reasons=tally.reasons(),
    )


def _long_wait(timeline: RequestTimeline, rank: int | None) -> LongWait:
    by_state = dict.fromkeys(WaitState, 0)
    spent: Counter[Cause] = Counter()
    for wait in timeline.waits:
        by_state[wait.state] += wait.us
        for part in wait.parts:
            spent[Cause(part.reason, part.place)] += part.us
    cause, most = max(spent.items(), key=lambda item: (item[1], item[0]))
    return LongWait(
        request_id=timeline.request_id,
        job_id=timeline.job_id,
        waited_us=timeline.waited_us,
        queued_us=by_state[WaitState.QUEUED],
        preempted_us=by_state[WaitState.PREEMPTED],
        stalled_us=by_state[WaitState.STALLED],
        num_preemptions=len(timeline.preemptions),
        reason=cause.reason,
        place=cause.place,
        share=most / timeline.waited_us,
        rank=rank,
    )
