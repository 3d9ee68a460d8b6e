"""Places of a trace at which the engine did not get on, although requests waited.

    standstill  no token was scheduled, and nothing was to come
    livelock    tokens were scheduled, but none was sampled: requests took each other's blocks in turns

The rule of a standstill is that of ``core/sched/deadlocks.py``, as far as records show. They do not record pins,
sessions and readers of blocks, so that a place counts only if it is long, or if the trace ends there.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import msgspec

from tokenyard.arguments import given_path, suggests_keywords
from tokenyard.explain.classifier import classify
from tokenyard.explain.table import Printable, RowTable, table_from
from tokenyard.explain.why.timeline import StepReader
from tokenyard.trace.facts import StepFacts
from tokenyard.trace.reader import find_ranks
from tokenyard.trace.schema import AdmissionOutcome, KVNumbers, PreemptionNumbers, Refusal
from tokenyard.trace.steps import Step, facts_of
from tokenyard.vocabulary import Reason, is_event, is_for_good

LONG = 100
"""Steps in a row: far more than any way out takes."""
OFTEN = 10
"""Times that one request is preempted in a livelock, at least: a long prompt that gives way now and then is none."""
_AT_THE_END = 2
"""Steps in a row with which a trace ends: the last thing that it says is that nothing moves."""


STANDSTILL, LIVELOCK = "standstill", "livelock"


class StuckPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Steps in a row in which no request got on."""

    kind: str = STANDSTILL
    """``standstill`` or ``livelock``."""
    rank: int | None = None
    """The engine, where there are several."""
    first_step: int
    last_step: int
    num_steps: int
    start_ts: float | None
    """Seconds, on the trace's clock."""
    end_ts: float | None
    ends_trace: bool
    """Whether the trace ends here."""
    request_id: str | None
    """The request at which the last of them stopped."""
    reason: str
    """The reason with which that request was refused; of a trace that records none, a bucket (``kv-exhausted``)."""
    needed_blocks: int | None = None
    free_blocks: int | None = None
    total_blocks: int | None = None
    wanted_tokens: int | None = None
    budget_left: int | None = None
    num_running: int | None
    num_waiting: int | None
    reasons: dict[str, int]
    """Reason -> requests that the last of them held back by it."""
    preempted: dict[str, int] = {}
    """In a livelock: request -> times that it was preempted in these steps."""
    explanation: str
    """What that means, and vLLM's issues of this kind."""


class Standstills(Printable, msgspec.Struct, frozen=True, kw_only=True):
    """Where an engine did not move although requests waited."""

    printer = "tokenyard.explain.render.why:print_stuck"

    num_steps: int
    """Steps of the trace, over all engines."""
    places: list[StuckPlace]

    def summary(self) -> str:
        return f"{len(self.places):,} in {self.num_steps:,} steps"

    def as_table(self) -> RowTable:
        """One row per place; ``reasons`` and ``preempted`` are JSON."""
        return table_from("places", [msgspec.to_builtins(each) for each in self.places])


class _Still(msgspec.Struct, frozen=True):
    """A step in which no request got on."""

    facts: StepFacts
    refusal: Refusal
    reasons: dict[str, int]


class _Run(NamedTuple):
    """Such steps in a row."""

    first: _Still
    last: _Still
    num_steps: int


@suggests_keywords()
def standstills(path: Path | str) -> Standstills:
    """Look through the trace, or those of several engines. Raises TraceError if there is none at ``path``."""
    places: list[StuckPlace] = []
    num_steps = 0
    for trace in find_ranks(given_path("path", path)):
        if trace.is_idle:
            continue
        found: list[StuckPlace] = []
        run: _Run | None = None
        turns = _Turns(trace.rank)
        reader = StepReader(trace.files, requests=False)
        for step in reader.steps():
            num_steps += 1
            found += turns.take(step)
            still = _bare_still(step) if reader.reconstructed else _still(step)
            if still is not None:
                run = _Run(still, still, 1) if run is None else _Run(run.first, still, run.num_steps + 1)
                continue
            if run is not None and run.num_steps >= LONG:
                found.append(_place(trace.rank, run, ends=False))
            run = None
        if run is not None and run.num_steps >= (LONG if reader.reconstructed else _AT_THE_END):
            found.append(_place(trace.rank, run, ends=True))
        found += turns.end()
        places += sorted(found, key=lambda place: place.first_step)
    return Standstills(num_steps=num_steps, places=places)


# ---------------------------------------------------------------------------------------------------------------------
# Requests that take each other's blocks in turns.
#
# Two requests of one priority and one time of arrival, each of which fits alone: whoever grows evicts the other, which
# is admitted again, grows and evicts the first, before either has got to its next token.


class _Turns:
    """Looks for steps in a row in which requests are preempted and no token is sampled."""

    def __init__(self, rank: int | None) -> None:
        self._rank = rank
        self._begin()

    def _begin(self) -> None:
        self._first: StepFacts | None = None
        self._last: StepFacts | None = None
        self._num_steps = 0
        self._preempted: Counter[str] = Counter()
        self._latest: PreemptionNumbers | None = None

    def take(self, step: Step) -> list[StuckPlace]:
        """The place that ends before this step, if one does."""
        completed = step.completed
        if completed is None or completed.num_sampled_tokens != 0 or step.finished:
            return self.end(ends_trace=False)
        self._last = facts_of(step)
        self._first = self._first or self._last
        self._num_steps += 1
        for each in (step.outcome and step.outcome.preemptions) or ():
            self._preempted[each.req_id] += 1
            self._latest = each
        return []

    def end(self, *, ends_trace: bool = True) -> list[StuckPlace]:
        """The place that ends here, if one does; look for another one from now on."""
        first, last, latest = self._first, self._last, self._latest
        num_steps, preempted = self._num_steps, self._preempted
        self._begin()
        if first is None or last is None or latest is None:
            return []
        if num_steps < LONG or max(preempted.values()) < OFTEN:
            return []
        kv = latest.kv or KVNumbers()
        place = StuckPlace(
            kind=LIVELOCK,
            rank=self._rank,
            first_step=first.step,
            last_step=last.step,
            num_steps=num_steps,
            start_ts=first.ts,
            end_ts=last.ts,
            ends_trace=ends_trace,
            request_id=latest.req_id,
            reason=Reason.KV_BLOCKS,
            needed_blocks=kv.needed,
            free_blocks=kv.free,
            total_blocks=last.total_blocks,
            num_running=last.num_running,
            num_waiting=last.num_waiting,
            reasons={},
            preempted=dict(preempted.most_common()),
            explanation=_TURNS,
        )
        return [place]


_TURNS = (
    "Each fits alone and they do not fit together: whoever grows takes the other's blocks before either samples a"
    " token. vLLM decides the same between requests of one priority and one time of arrival. Leave"
    " scheduler_reserve_full_isl on, give them different priorities, or raise num_gpu_blocks."
)


def _still(step: Step) -> _Still | None:
    facts, outcome = facts_of(step), step.outcome
    if outcome is None or facts.token_sum != 0 or outcome.preemptions:
        return None
    reasons = _reasons(outcome)
    others_wait = any(is_event(reason) for reason in reasons)
    ended = Refusal(
        reason=outcome.reason or "",
        req_id=outcome.req_id,
        wanted_tokens=outcome.wanted_tokens,
        budget_left=outcome.budget_left,
        kv=outcome.kv,
    )
    refusals = (*(outcome.not_scheduled or ()), ended, *(outcome.skipped or ()))
    for refusal in refusals:
        if refusal.reason and is_for_good(refusal.reason, others_wait=others_wait):
            return _Still(facts, refusal, dict(reasons))
    return None


def _bare_still(step: Step) -> _Still | None:
    """A step of a trace without reasons that schedules nothing although requests are there."""
    facts = facts_of(step)
    there = (facts.num_running or 0) + (facts.num_waiting or 0)
    if step.decision is None or facts.token_sum != 0 or not there:
        return None
    bucket = classify(facts).bucket.value
    refusal = Refusal(reason=bucket, kv=KVNumbers(needed=facts.min_need, free=facts.free_blocks))
    return _Still(facts, refusal, {})


def _reasons(outcome: AdmissionOutcome) -> Counter[str]:
    """How many requests each reason held back."""
    counts: Counter[str] = Counter(outcome.not_scheduled_counts or {})
    counts.update(outcome.skipped_counts or {})
    if outcome.reason is not None and outcome.reason != Reason.QUEUES_EMPTY and outcome.num_requests:
        counts[outcome.reason] += outcome.num_requests
    return counts


def _place(rank: int | None, run: _Run, *, ends: bool) -> StuckPlace:
    first, last, num_steps = run
    kv = last.refusal.kv or KVNumbers()
    return StuckPlace(
        rank=rank,
        first_step=first.facts.step,
        last_step=last.facts.step,
        num_steps=num_steps,
        start_ts=first.facts.ts,
        end_ts=last.facts.ts,
        ends_trace=ends,
        request_id=last.refusal.req_id,
        reason=last.refusal.reason,
        needed_blocks=kv.needed,
        free_blocks=kv.free if kv.free is not None else last.facts.free_blocks,
        total_blocks=last.facts.total_blocks,
        wanted_tokens=last.refusal.wanted_tokens,
        budget_left=last.refusal.budget_left,
        num_running=last.facts.num_running,
        num_waiting=last.facts.num_waiting,
        reasons=last.reasons,
        explanation=_explanation(last),
    )


def _explanation(still: _Still) -> str:
    """What keeps it, in one or two sentences."""
    facts, refusal = still.facts, still.refusal
    kv = refusal.kv
    if facts.outcome is None:
        pinned = facts.pinned_blocks or 0
        if facts.total_blocks and pinned >= facts.total_blocks / 2:
            return f"Pins hold {pinned:,} of {facts.total_blocks:,} blocks, and none is let go: nothing else can run."
        return "The trace records no reasons: requests are there, and no step schedules a token."
    if kv is not None and kv.needed is not None:
        total = facts.total_blocks
        if total is not None and kv.needed >= total:
            return (
                f"It needs {kv.needed:,} blocks and the pool has {total - 1:,}: it can never fit, and everybody behind"
                " it waits with it (vLLM's issue 39734). Raise num_gpu_blocks, or refuse such requests."
            )
        return (
            "No step computes anything, so the missing blocks are held by requests that wait themselves, or by some"
            " that have ended: none of them will let go (vLLM's issues 45388 and 45414)."
        )
    if refusal.reason == Reason.MAX_NUM_SEQS:
        return (
            "No step computes anything, so the places are held by requests that wait themselves (vLLM's issue 53130)."
        )
    if refusal.wanted_tokens is not None:
        return (
            f"It wants {refusal.wanted_tokens:,} tokens in one step and {refusal.budget_left or 0:,} are left of an"
            " empty one: no step will ever be larger. Raise max_num_batched_tokens or the limit that the reason names."
        )
    if refusal.reason == Reason.ENCODER_BUDGET:
        return "No step has room for its next image, audio clip or video, and no request gives any back."
    return "Nothing that is in flight or on its way can change that."
