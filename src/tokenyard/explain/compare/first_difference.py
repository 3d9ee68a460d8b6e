"""The first step at which two traces part: step by step beside each other until something differs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from math import inf
from pathlib import Path

import msgspec

from tokenyard.trace.format.schema import AdmissionOutcome, StepDecision
from tokenyard.trace.read.facts_of_step import facts_of
from tokenyard.trace.read.ranks import RankTrace, find_ranks
from tokenyard.trace.read.reader import TraceReader
from tokenyard.trace.read.step_joiner import Step

__all__ = ["DecidedStep", "FirstDifference", "first_difference"]

_LISTS = (
    ("snapshot", "running_req_ids", "running requests"),
    ("snapshot", "waiting_req_ids", "waiting requests"),
    ("decision", "scheduled_new_req_ids", "requests admitted"),
    ("decision", "scheduled_resumed_req_ids", "requests resumed"),
    ("decision", "preempted_req_ids", "requests preempted"),
    ("decision", "scheduled_running_req_ids", "running requests scheduled"),
    ("decision", "num_scheduled_tokens", "tokens per request"),
)
_COUNTS = (
    ("num_running", "running requests"),
    ("num_waiting", "length of the queue"),
    ("num_new", "requests admitted"),
    ("num_resumed", "requests resumed"),
    ("num_preempted", "requests preempted"),
    ("token_sum", "tokens scheduled"),
    ("free_blocks", "free blocks"),
)
_IDS_SHOWN = 4


class DecidedStep(msgspec.Struct, frozen=True, kw_only=True):
    """What one of the traces did in that step."""

    step: int
    ts: float | None
    num_running: int | None
    num_waiting: int | None
    free_blocks: int | None
    tokens: int | None
    decision: StepDecision | None
    outcome: AdmissionOutcome | None


class FirstDifference(msgspec.Struct, frozen=True, kw_only=True):
    """Where two traces part. ``a`` or ``b`` is None if that trace has ended."""

    what: str
    """What differs first: ``requests admitted``, ``free blocks``, ``one ends`` ..."""
    detail: str
    equal_steps: int
    """Steps before it, in which nothing differs."""
    a: DecidedStep | None
    b: DecidedStep | None
    rank: int | None = None
    """The engine whose step it is, where there are several."""


def first_difference(a: Path | str, b: Path | str) -> FirstDifference | None:
    """The first step in which the two decide differently; None if they never do. Of one engine, reading stops there.

    Times are not compared: the same decisions on a faster clock are the same decisions. Of several engines each is
    compared with the one of the same rank; the difference is the one that comes first on the clock of ``a``.
    """
    in_a, in_b = find_ranks(a), find_ranks(b)
    if [each.rank for each in in_a] != [each.rank for each in in_b]:
        detail = f"{_ranks(in_a)} in A, {_ranks(in_b)} in B"
        return FirstDifference(what="engines", detail=detail, equal_steps=0, a=None, b=None)
    found = [each for pair in zip(in_a, in_b, strict=True) if (each := _in_pair(*pair)) is not None]
    return min(found, key=_moment_in_a, default=None)


def _ranks(traces: Sequence[RankTrace]) -> str:
    return "1" if len(traces) == 1 else f"{len(traces):,} ({', '.join(f'rank {each.rank}' for each in traces)})"


def _moment_in_a(difference: FirstDifference) -> float:
    return difference.a.ts if difference.a is not None and difference.a.ts is not None else inf


def _in_pair(a: RankTrace, b: RankTrace) -> FirstDifference | None:
    for equal, (in_a, in_b) in enumerate(zip_longest(_steps(a), _steps(b))):
        difference = _difference(in_a, in_b)
        if difference is not None:
            what, detail = difference
            sides = _decided(in_a), _decided(in_b)
            return FirstDifference(what=what, detail=detail, equal_steps=equal, a=sides[0], b=sides[1], rank=a.rank)
    return None


def _steps(trace: RankTrace) -> Iterator[Step]:
    return iter(()) if trace.is_idle else TraceReader(trace.files, requests=False).steps()


def _difference(a: Step | None, b: Step | None) -> tuple[str, str] | None:
    """What differs in the same step of two traces, the most telling first."""
    if a is None or b is None:
        return "one ends", f"{'B' if a is None else 'A'} goes on after the last step of {'A' if a is None else 'B'}"
    if a.number != b.number:
        return "step number", f"{a.number:,} in A, {b.number:,} in B"
    for record, field, what in _LISTS:
        in_a, in_b = (getattr(getattr(step, record), field, None) for step in (a, b))
        if in_a is not None and in_b is not None and in_a != in_b:
            return what, _ids(in_a, in_b)
    facts_a, facts_b = facts_of(a), facts_of(b)
    for field, what in _COUNTS:
        count_a, count_b = getattr(facts_a, field), getattr(facts_b, field)
        if count_a != count_b and count_a is not None and count_b is not None:
            return what, f"{count_a:,} in A, {count_b:,} in B"
    return None


def _ids(a: list[str] | dict[str, int], b: list[str] | dict[str, int]) -> str:
    only_a, only_b = [each for each in a if each not in b], [each for each in b if each not in a]
    if isinstance(a, dict) and isinstance(b, dict) and not only_a and not only_b:
        changed = next((each for each in a if a[each] != b[each]), None)
        if changed is not None:
            return f"{changed}: {a[changed]:,} in A, {b[changed]:,} in B"
    parts = [f"only in {name}: {_listed(ids)}" for name, ids in (("A", only_a), ("B", only_b)) if ids]
    return "; ".join(parts) or "the same, in another order"


def _listed(ids: list[str]) -> str:
    more = f" and {len(ids) - _IDS_SHOWN:,} more" if len(ids) > _IDS_SHOWN else ""
    return ", ".join(ids[:_IDS_SHOWN]) + more


def _decided(step: Step | None) -> DecidedStep | None:
    if step is None:
        return None
    facts = facts_of(step)
    return DecidedStep(
        step=step.number,
        ts=step.ts,
        num_running=facts.num_running,
        num_waiting=facts.num_waiting,
        free_blocks=facts.free_blocks,
        tokens=facts.token_sum,
        decision=step.decision,
        outcome=step.outcome,
    )
