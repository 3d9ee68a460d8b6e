"""Where two traces part: step by step beside each other until their decisions differ.

A decision is who is admitted, resumed and preempted, and who gets how many tokens. The queues and the free blocks that
a step finds are no decision: where they differ earlier, that is told beside it, for it may be the cause.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from math import inf
from pathlib import Path
from typing import NamedTuple

import msgspec

from tokenyard.explain.compare.decided_step import DecidedStep, Fate, FateKind, decided_step, fate_of, seen_before
from tokenyard.trace.format.step_facts import StepFacts
from tokenyard.trace.read.facts_of_step import facts_of
from tokenyard.trace.read.ranks import RankTrace, find_ranks
from tokenyard.trace.read.reader import TraceReader
from tokenyard.trace.read.step_joiner import Step

__all__ = ["FirstDifference", "PartedRequest", "Parting", "StateDifference", "first_difference"]

_DECIDED_LISTS = (
    ("scheduled_new_req_ids", "requests admitted"),
    ("scheduled_resumed_req_ids", "requests resumed"),
    ("preempted_req_ids", "requests preempted"),
    ("scheduled_running_req_ids", "running requests scheduled"),
    ("num_scheduled_tokens", "tokens per request"),
)
_DECIDED_COUNTS = (
    ("num_new", "requests admitted"),
    ("num_resumed", "requests resumed"),
    ("num_preempted", "requests preempted"),
    ("token_sum", "tokens scheduled"),
)
_QUEUE_LISTS = (("running_req_ids", "running requests"), ("waiting_req_ids", "waiting requests"))
_QUEUE_COUNTS = (("num_running", "running requests"), ("num_waiting", "length of the queue"))
_BLOCK_COUNTS = (("free_blocks", "free blocks"),)
_IDS_SHOWN = 4


class StateDifference(msgspec.Struct, frozen=True, kw_only=True):
    """The first step that finds other queues, or other free blocks, in one trace than in the other."""

    step: int
    what: str
    """What differs first: ``running requests``, ``length of the queue``, ``free blocks`` ..."""
    detail: str
    equal_steps: int
    """Steps before it, in which it is the same."""
    rank: int | None = None
    """The engine whose step it is, where there are several."""


class PartedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request of which the two decide differently."""

    request_id: str
    a: Fate
    b: Fate


class FirstDifference(msgspec.Struct, frozen=True, kw_only=True):
    """The first step with different decisions. ``a`` or ``b`` is None if that trace has ended."""

    what: str
    """What differs first: ``requests admitted``, ``tokens per request``, ``one ends`` ..."""
    detail: str
    equal_steps: int
    """Steps before it, in which the two decide the same."""
    a: DecidedStep | None
    b: DecidedStep | None
    rank: int | None = None
    """The engine whose step it is, where there are several."""
    requests: list[PartedRequest] = []
    """Of whom they decide differently, the first four: what became of each in either trace, and why."""


class Parting(NamedTuple):
    """Where two traces part, and since when what they decide about differs."""

    decision: FirstDifference | None
    """None if every step decides the same."""
    states: list[StateDifference]
    """The first difference of the queues and the first of the free blocks, not after that of the decisions."""


class _Differing(NamedTuple):
    what: str
    detail: str
    ids: Sequence[str] = ()


def first_difference(a: Path | str, b: Path | str) -> Parting:
    """The first step in which the two decide differently, and what differed before. Of one engine, reading stops there.

    Times are not compared: the same decisions on a faster clock are the same decisions. Of several engines each is
    compared with the one of the same rank; the difference is the one that comes first on the clock of ``a``.
    """
    in_a, in_b = find_ranks(a), find_ranks(b)
    if [each.rank for each in in_a] != [each.rank for each in in_b]:
        detail = f"{_ranks(in_a)} in A, {_ranks(in_b)} in B"
        return Parting(FirstDifference(what="engines", detail=detail, equal_steps=0, a=None, b=None), [])
    pairs = [_in_pair(*pair) for pair in zip(in_a, in_b, strict=True)]
    return min(pairs, key=_moment_in_a)


def _ranks(traces: Sequence[RankTrace]) -> str:
    return "1" if len(traces) == 1 else f"{len(traces):,} ({', '.join(f'rank {each.rank}' for each in traces)})"


def _moment_in_a(parting: Parting) -> tuple[float, bool]:
    """Pairs that part come first, then those whose states differ."""
    difference = parting.decision
    if difference is None:
        return inf, not parting.states
    return (difference.a.ts if difference.a is not None and difference.a.ts is not None else inf), False


def _in_pair(a: RankTrace, b: RankTrace) -> Parting:
    states: dict[str, StateDifference] = {}
    start_a, start_b = a.run_start, b.run_start
    for equal, (in_a, in_b) in enumerate(zip_longest(_steps(a), _steps(b))):
        facts = tuple(facts_of(step) for step in (in_a, in_b) if step is not None)
        if in_a is not None and in_b is not None and in_a.number == in_b.number:
            start_a = in_a.ts if start_a is None else start_a
            start_b = in_b.ts if start_b is None else start_b
            for kind, found in _state_differences(in_a, in_b, facts, states):
                states[kind] = StateDifference(
                    step=in_a.number, what=found.what, detail=found.detail, equal_steps=equal, rank=a.rank
                )
        differing = _decision_difference(in_a, in_b, facts)
        if differing is not None:
            decision = FirstDifference(
                what=differing.what,
                detail=differing.detail,
                equal_steps=equal,
                a=decided_step(in_a, start_a),
                b=decided_step(in_b, start_b),
                rank=a.rank,
                requests=_parted(differing.ids, (in_a, in_b), (a, b)),
            )
            return Parting(decision, list(states.values()))
    return Parting(None, list(states.values()))


def _steps(trace: RankTrace) -> Iterator[Step]:
    return iter(()) if trace.is_idle else TraceReader(trace.files, requests=False).steps()


# ---- what differs in a step


def _decision_difference(a: Step | None, b: Step | None, facts: Sequence[StepFacts]) -> _Differing | None:
    """How the same step of two traces decides differently, the most telling first."""
    if a is None or b is None:
        detail = f"{'B' if a is None else 'A'} goes on after the last step of {'A' if a is None else 'B'}"
        return _Differing("one ends", detail)
    if a.number != b.number:
        return _Differing("step number", f"{a.number:,} in A, {b.number:,} in B")
    return _lists_differ(a.decision, b.decision, _DECIDED_LISTS) or _counts_differ(facts, _DECIDED_COUNTS)


def _state_differences(
    a: Step, b: Step, facts: Sequence[StepFacts], known: Mapping[str, StateDifference]
) -> Iterator[tuple[str, _Differing]]:
    if "queues" not in known:
        found = _lists_differ(a.snapshot, b.snapshot, _QUEUE_LISTS) or _counts_differ(facts, _QUEUE_COUNTS)
        if found is not None:
            yield "queues", found
    if "blocks" not in known:
        found = _counts_differ(facts, _BLOCK_COUNTS)
        if found is not None:
            yield "blocks", found


def _lists_differ(a: object, b: object, fields: Sequence[tuple[str, str]]) -> _Differing | None:
    for field, what in fields:
        in_a, in_b = getattr(a, field, None), getattr(b, field, None)
        if in_a is not None and in_b is not None and in_a != in_b:
            return _ids(what, in_a, in_b)
    return None


def _counts_differ(facts: Sequence[StepFacts], fields: Sequence[tuple[str, str]]) -> _Differing | None:
    for field, what in fields:
        count_a, count_b = (getattr(each, field) for each in facts)
        if count_a != count_b and count_a is not None and count_b is not None:
            return _Differing(what, f"{count_a:,} in A, {count_b:,} in B")
    return None


def _ids(what: str, a: list[str] | dict[str, int], b: list[str] | dict[str, int]) -> _Differing:
    only_a, only_b = [each for each in a if each not in b], [each for each in b if each not in a]
    if isinstance(a, dict) and isinstance(b, dict) and not only_a and not only_b:
        changed = [each for each in a if a[each] != b[each]]
        first = changed[0]
        return _Differing(what, f"{first}: {a[first]:,} in A, {b[first]:,} in B", changed)
    parts = [f"only in {name}: {_listed(ids)}" for name, ids in (("A", only_a), ("B", only_b)) if ids]
    detail = "; ".join(parts) or "the same, in another order"
    return _Differing(what, detail, [*only_a, *only_b])


def _listed(ids: list[str]) -> str:
    more = f" and {len(ids) - _IDS_SHOWN:,} more" if len(ids) > _IDS_SHOWN else ""
    return ", ".join(ids[:_IDS_SHOWN]) + more


# ---- what became of the requests


def _parted(
    ids: Sequence[str], steps: tuple[Step | None, Step | None], traces: tuple[RankTrace, RankTrace]
) -> list[PartedRequest]:
    shown = ids[:_IDS_SHOWN]
    a, b = (_fates(shown, step, trace) for step, trace in zip(steps, traces, strict=True))
    return [PartedRequest(request_id=each, a=a[each], b=b[each]) for each in shown]


def _fates(ids: Sequence[str], step: Step | None, trace: RankTrace) -> dict[str, Fate]:
    if step is None:
        return dict.fromkeys(ids, Fate(kind=FateKind.UNKNOWN))
    fates = {each: fate for each in ids if (fate := fate_of(each, step)) is not None}
    missing = seen_before([each for each in ids if each not in fates], trace, step.number)
    return fates | {each: Fate(kind=kind) for each, kind in missing.items()}
