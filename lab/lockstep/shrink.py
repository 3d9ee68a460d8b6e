"""A scenario that differs, made small: requests and events are left out while both still part at the same call."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING

from lockstep.scenario import Outcome, run_plan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recorder.plan import Plan, Scenario

__all__ = ["shrunk"]


def shrunk(scenario: Scenario, outcome: Outcome, most_runs: int = 150) -> tuple[Plan, Outcome]:
    """The smallest plan found with the difference of ``outcome``, and how that one goes."""
    plan, runs, progress = scenario.plan(), 0, True
    while progress and runs < most_runs:
        progress = False
        for smaller in _smaller(plan):
            runs += 1
            again = run_plan(scenario, copy.deepcopy(smaller))
            if _alike(again, outcome):
                plan, outcome, progress = smaller, again, True
                break
            if runs >= most_runs:
                break
    return plan, outcome


def _alike(one: Outcome, other: Outcome) -> bool:
    if one.difference is None or other.difference is None:
        return False
    return one.difference.where.split("[")[0] == other.difference.where.split("[")[0]


def _smaller(plan: Plan) -> Iterator[Plan]:
    """Plans with less in them: half of the requests, then single ones; then fewer events; then shorter outputs."""
    size = max(len(plan.requests) // 2, 1)
    while True:
        for start in range(0, len(plan.requests), size):
            gone = {request.id for request in plan.requests[start : start + size]}
            if len(gone) < len(plan.requests):
                yield _without(plan, gone)
        if size == 1:
            break
        size //= 2
    for index in range(len(plan.events)):
        yield replace(plan, events=plan.events[:index] + plan.events[index + 1 :])
    for index, request in enumerate(plan.requests):
        if request.max_tokens > 1 and request.min_tokens == 0:
            requests = copy.deepcopy(plan.requests)
            requests[index].max_tokens //= 2
            yield replace(plan, requests=requests)


def _without(plan: Plan, gone: set[str]) -> Plan:
    """Without these requests, those that follow them, and what happens to them."""
    kept = []
    for request in plan.requests:
        if request.id in gone or (request.after is not None and request.after[0] in gone):
            gone.add(request.id)
        else:
            kept.append(request)
    return replace(plan, requests=kept, events=[event for event in plan.events if event.id not in gone])
