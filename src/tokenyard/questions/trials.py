"""What a report proposes, replayed on the same workload; what helps is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import zip_longest
from typing import Any

import msgspec

from tokenyard.deploy.given import changed
from tokenyard.deploy.header import load_of
from tokenyard.deploy.spec import ReplaySpec
from tokenyard.errors import TokenyardError
from tokenyard.explain.advice.rules import Advice, Cost, Trial
from tokenyard.explain.report.report import Report
from tokenyard.explain.report.trials import (
    Change,
    changes_for,
    cost_of,
    gain_of,
    price_in_words,
    trial_of,
    worth_their_cost,
)
from tokenyard.questions.scenario import Scenario, replay_spec, without_trace
from tokenyard.steptime.calibrated import CalibratedLatency
from tokenyard.units import duration
from tokenyard.workload.stretches import busiest_part

Replayer = Callable[[ReplaySpec, Scenario, str], Report]
"""Replays a setup and makes its report; the text says what for."""


def with_trials(
    scenario: Scenario, setup: ReplaySpec, report: Report, replay: Replayer, *, most_steps: int | None = None
) -> Report:
    """The report, each advice with the trials that are worth their cost, the cheapest first.

    Advice that nothing came of is left out.

    ``most_steps`` bounds the steps of all trials: beyond it they are replays of the busiest part of the workload, and
    of as few trials as have room where it cannot be parted; advice whose changes were not reached stays as it is.
    """
    settings = settings_of(scenario, setup)
    changes = [changes_for(each, settings, report) for each in report.advice]
    wanted = list(dict.fromkeys(_in_turns(changes)))
    ground = ground_of(scenario, setup, report, replay, len(wanted), most_steps)
    known = {change: _tried(scenario, ground, change, replay) for change in wanted[: ground.most]}
    advice: list[Advice] = []
    for each, own in zip(report.advice, changes, strict=True):
        trials = [known[change] for change in own if change in known]
        shown = [other.trial for other in advice]
        advice += [_with_trial(each, trial) for trial in worth_their_cost(each.rule, trials) if trial not in shown]
        if own and not trials:
            advice.append(each)
    kept = [each.trial for each in advice]
    tried = [trial for trial in known.values() if trial not in kept and not _is_beaten(trial, advice)]
    words = ground.words if known else None
    return msgspec.structs.replace(report, advice=sorted(advice, key=_by_cost), tried=tried, tried_on=words)


def settings_of(scenario: Scenario, setup: ReplaySpec) -> dict[str, Any]:
    """What proposals look at."""
    settled, deployment = setup.settled, setup.deployment
    given = asdict(settled.hardware) | asdict(settled.scheduling) | asdict(scenario.transfer)
    of_header = ("weight_dtype", "kv_dtype", "kv_gib", "memory_num_gpu_blocks")
    return given | {name: getattr(deployment, name) for name in of_header}


def _with_trial(advice: Advice, trial: Trial) -> Advice:
    is_the_rules = trial.setting == advice.setting and trial.cost is Cost.SETTING
    price = advice.price if is_the_rules else price_in_words(trial.setting) or advice.price
    return msgspec.structs.replace(advice, setting=trial.setting, now=trial.now, price=price, trial=trial)


def _by_cost(advice: Advice) -> tuple[int, float]:
    """What costs nothing first, then memory, then GPUs, last a scheduler of ours; of the same cost what helps most."""
    if advice.trial is None:
        return cost_of(advice.setting).rank, 0.0
    return advice.trial.cost.rank, -gain_of(advice.rule, advice.trial)


def _is_beaten(trial: Trial, advice: Sequence[Advice]) -> bool:
    """Whether another value of its setting, or another setting of its cost, is shown."""
    return any(each.trial is not None and each.trial.cost is trial.cost for each in advice)


class Ground(msgspec.Struct, frozen=True):
    """What trials are compared on."""

    setup: ReplaySpec
    report: Report
    """The report of the run as it is, on the same requests as the trials."""
    words: str | None
    """Which requests those are; None: all."""
    most: int | None
    """Trials at most; None: all."""


def ground_of(
    scenario: Scenario, setup: ReplaySpec, report: Report, replay: Replayer, num_trials: int, most_steps: int | None
) -> Ground:
    """The whole workload if all trials on it have room, else a part, on which the run is replayed as it is as well."""
    steps = max(report.steps, 1)
    if most_steps is None or num_trials * steps <= most_steps:
        return Ground(setup, report, None, None)
    share = most_steps / ((num_trials + 1) * steps)
    count = max(1, int(share * len(setup.workload)))
    part = busiest_part(setup.workload, count) if count < len(setup.workload) else None
    if part is None:
        return Ground(setup, report, None, most_steps // steps)
    smaller = replace(setup, workload=part.workload)
    words = (
        f"{len(part.workload):,} of {len(setup.workload):,} requests, the busiest stretch "
        f"({duration(part.first)} to {duration(part.last)})"
    )
    return Ground(smaller, replay(smaller, scenario, f"the run on {words}"), words, None)


def _in_turns(changes: Sequence[Sequence[Change]]) -> Iterator[Change]:
    """The first change of each advice, then the second of each ..."""
    for round_of_changes in zip_longest(*changes):
        yield from (change for change in round_of_changes if change is not None)


def _tried(scenario: Scenario, ground: Ground, change: Change, replay: Replayer) -> Trial:
    setup, report = ground.setup, ground.report
    try:
        after_change = replay_spec(_with(scenario, change), setup.workload)
        if change.also and _kv_bytes(after_change) > _kv_bytes(setup):
            return trial_of(change, report, None, "its blocks take more memory than those of the run")
        after = replay(after_change, scenario, f"{change.setting} {change.then}")
    except TokenyardError as error:
        return trial_of(change, report, None, str(error))
    if after.requests_finished != report.requests_finished:
        return trial_of(change, report, None, "another number of requests is served")
    return _with_doubt(trial_of(change, report, after), after_change)


def _with_doubt(trial: Trial, setup: ReplaySpec) -> Trial:
    """The trial, with effects that are smaller than what modelled step times may be off by."""
    if not isinstance(setup.latency, CalibratedLatency):
        return trial
    known = setup.latency.known_error(load_of(setup.workload))
    effects = []
    for each in trial.effects:
        spread = known.spread_of(each.figure)
        is_within = spread is not None and spread[0] <= 1 + each.change <= spread[1]
        effects.append(msgspec.structs.replace(each, is_sure=not is_within))
    return msgspec.structs.replace(trial, effects=effects)


def _kv_bytes(setup: ReplaySpec) -> int:
    return setup.cache.num_gpu_blocks * (setup.start.bytes_per_block or 0)


def _with(scenario: Scenario, change: Change) -> Scenario:
    """The same run with one setting changed, and what changes with it, and without a trace."""
    other: Scenario = changed(without_trace(scenario), dict([(change.setting, change.then), *change.also]))
    return other
