"""The plan: one object, which ``tokenyard plan --json`` prints; ``docs/plan.md`` explains it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from tokenyard.explain.report.slo import SLO
from tokenyard.sim.plan.floor import Floor
from tokenyard.sim.plan.goal import Goal, is_feasible, value_of
from tokenyard.sim.sweep.row import Row, Setting
from tokenyard.vocabulary.reasons import REASONS, Reason

__all__ = ["PLAN_VERSION", "LargestLoad", "Plan", "ServedApart", "few_requests", "limits_of", "next_best"]

PLAN_VERSION = 1
_FEWEST_BEYOND = 5
"""Requests beyond a percentile without which it is a matter of luck."""
_PERCENTS = {"p50": 50, "p90": 90, "p95": 95, "p99": 99}


class LargestLoad(msgspec.Struct, frozen=True, kw_only=True):
    """How much faster requests may arrive."""

    load: float | None
    """Times as fast; None if not even the least that was tried is within the bounds."""
    is_all: bool
    """Whatever was tried was borne; a greater one changes hardly anything, or was not tried."""
    row: Row | None
    """The recommended setting at that load."""
    beyond: Row | None
    """The same at the next greater load that was tried: a bound is missed."""


class ServedApart(msgspec.Struct, frozen=True, kw_only=True):
    """How the engines of a split are started; a proxy between both sides sends prompts to the first."""

    prefill_engines: int
    prefill: str
    """The line to start those that prefill."""
    decode_engines: int
    decode: str
    """The line to start those that decode."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to serve with, and what it rests on."""

    plan_version: int = PLAN_VERSION
    workload: str
    requests: int
    goal: str
    slo: list[str]
    space: dict[str, list[Setting]]
    size: int
    """Variants of the space."""
    replays: int
    """Replays that all of it took, those of the load included."""
    is_whole: bool
    """Every variant was tried: the recommended one is the best of the space."""
    method: str
    recommended: Row | None
    """None if no variant could be replayed."""
    holds: bool
    """Whether the recommended one is within every bound; else it is the one nearest to that."""
    value: float | None
    """Of the goal, that it reaches."""
    serve: str | None
    """The line to start vLLM with; None of a trace, which does not say how it was started, and of a split."""
    replicas: str | None = None
    """How many are started with that line, behind a balancer: ``4``, ``1..8``; None: one."""
    serve_apart: ServedApart | None = None
    """Of a split of prefill and decode, its two lines."""
    flags: list[str]
    """What the recommendation changes, as flags of ``vllm serve``."""
    notes: list[str] = []
    """What no flag of vLLM says."""
    next_best: Row | None = None
    next_best_value: float | None = None
    front: list[Row] = []
    """Variants within the bounds that no other beats both in the goal and in cost, cheapest first; where all cost the
    same, both in the goal and in distance from the bounds."""
    largest_load: LargestLoad | None = None
    """None where it was not looked for."""
    limits: str | None = None
    """What would be short next; None where a bound is missed already."""
    floors: list[Floor] = []
    """Of the bounds that are missed: what they would have to be."""
    uncertainty: list[str] = []
    """How far the figures may be off, in words."""
    unknown: list[str] = []
    """What the answer cannot know."""
    rows: list[Row] = []
    """Every variant that was tried."""


def next_best(rows: Sequence[Row], chosen: Row, goal: Goal) -> Row | None:
    """The feasible row that comes nearest to the chosen one in the goal."""
    others = [row for row in rows if row is not chosen and is_feasible(row) and value_of(row, goal) is not None]
    sign = 1.0 if goal.is_least else -1.0
    return min(others, key=lambda row: sign * (value_of(row, goal) or 0.0), default=None)


def limits_of(row: Row, beyond: Row | None) -> str:
    """What is short at the recommended setting, or would be with more load."""
    last = beyond if beyond is not None and beyond.is_measured else row
    parts = []
    if beyond is not None and beyond.tightest is not None:
        parts.append(f"with more load {beyond.tightest} is missed first")
    elif row.tightest is not None and row.tightness is not None:
        parts.append(f"{row.tightest} is nearest to its bound, at {row.tightness:.0%} of it")
    if last.held_by is None:
        parts.append(
            "no request is held back: the time goes into the steps themselves, so a faster GPU, or more of them"
        )
    else:
        meaning = REASONS[Reason(last.held_by)].meaning.rstrip(".") if last.held_by in REASONS else ""
        where = "" if last.held_at is None else f" on the {last.held_at} side"
        why = f" ({meaning[0].lower()}{meaning[1:]})" if meaning else ""
        parts.append(f"requests wait{where} for {last.held_by}{why}")
    return "; ".join(parts)


def few_requests(slos: Sequence[SLO], requests: int) -> Iterator[str]:
    """Percentiles that rest on a handful of requests."""
    for slo in slos:
        beyond = requests * (100 - _PERCENTS.get(slo.statistic or "", 50)) / 100
        if beyond < _FEWEST_BEYOND:
            slowest = f"the slowest {max(beyond, 1):.0f}"
            yield f"{slo.name} of {requests:,} requests rests on {slowest}: a longer workload would say more"
