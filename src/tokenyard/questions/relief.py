"""What serves the load of a run that is overloaded: changes that are replayed together, until the queue drains.

    as many GPUs as now     what each report proposes at no cost, one change upon the other, while it helps; then KV and
                            weights in fewer bits; then all of it at once, and whatever of that is not needed leaves
    twice as many, ...      the same with so many in each engine, from the run's own settings on
    more replicas           as many as would serve it all alike, with what helped most before

GPUs are counted over all replicas, and the first that is enough is the answer, since those before it have fewer. So it
does not matter with how many replicas a run begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import zip_longest
from math import ceil
from typing import Any

import msgspec

from tokenyard.deploy.given import changed
from tokenyard.deploy.header import load_of
from tokenyard.deploy.spec import ReplaySpec
from tokenyard.errors import TokenyardError
from tokenyard.explain.advice.rules import Advice, Cost, Relief, Trial
from tokenyard.explain.report.report import Report
from tokenyard.explain.report.trials import (
    LEAST_GAIN,
    Change,
    changes_for,
    cost_of,
    effects_of,
    gain_of,
    price_in_words,
    settings_of_last_resort,
    trial_of,
    worth_their_cost,
)
from tokenyard.explain.steady import LoadState
from tokenyard.questions.scenario import Scenario, replay_spec, without_trace
from tokenyard.steptime.calibrated import CalibratedLatency
from tokenyard.units import duration
from tokenyard.workload.load import busiest_part

# ---------------------------------------------------------------------------------------------------------------------
# What a report proposes, replayed on the same workload; what helps is kept.

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


# ---------------------------------------------------------------------------------------------------------------------

MOST_TOGETHER = 16
"""Replays of changes together."""
_AT_A_TIME = 3
"""Changes that are replayed upon the same others, those of what costs most time first."""
_MOST_GPUS = 8
"""GPUs of one engine: those of a machine."""
_ROUNDS = 3
"""Times that the number of replicas is estimated, each time from what the last number served."""


def with_relief(
    scenario: Scenario, setup: ReplaySpec, report: Report, replay: Replayer, *, most_steps: int | None = None
) -> Report:
    """Return the report with what serves its load, where it is overloaded; ``most_steps`` as for the trials."""
    if report.load is None or not report.load.is_overloaded:
        return report
    ground = ground_of(scenario, setup, report, replay, MOST_TOGETHER // 2, most_steps)
    return msgspec.structs.replace(report, relief=ReliefSearch(scenario, ground, replay).found())


class _Step(msgspec.Struct, frozen=True):
    """Changes together, and the replay with them."""

    changes: tuple[Change, ...]
    scenario: Scenario
    setup: ReplaySpec
    report: Report

    @property
    def is_enough(self) -> bool:
        """Whether the queue does not grow."""
        load = self.report.load
        return load is not None and load.state is LoadState.STEADY

    @property
    def served(self) -> int:
        """Users who get their answer: where clients give up, the others' times say only how long they stayed."""
        people = self.report.outcomes
        return self.report.requests_finished or 0 if people is None else people.served

    @property
    def serves_all(self) -> bool:
        """Whether each of them does."""
        people = self.report.outcomes
        return people is not None and people.all_served

    @property
    def mean(self) -> float:
        """Milliseconds of a request, queueing among them: what a growing queue shows in."""
        mean = self.report.e2e_ms.mean
        return float("inf") if mean is None else mean

    @property
    def rank(self) -> tuple[int, float]:
        """What is less is better."""
        return -self.served, self.mean

    def helps(self, other: _Step) -> bool:
        """Whether it is better than another one by more than a little, over everybody who came."""
        more = self.served - other.served
        if abs(more) > LEAST_GAIN * (self.report.requests or 0):
            return more > 0
        return self.mean <= (1 - LEAST_GAIN) * other.mean


class ReliefSearch:
    """Looks for changes that serve a load which ``ground`` does not."""

    def __init__(self, scenario: Scenario, ground: Ground, replay: Replayer) -> None:
        self._ground = ground
        self._replay = replay
        self._left = MOST_TOGETHER if ground.most is None else min(MOST_TOGETHER, ground.most)
        self._replays = 0
        self._tried: set[frozenset[tuple[str, Any]]] = set()
        self._begun = _Step((), without_trace(scenario), ground.setup, ground.report)
        self._best = self._best_alike = self._begun
        """The best of all, and of those with as many GPUs as now."""

    def found(self) -> Relief | None:
        """Return what serves the load, or comes nearest to it; None where the ground is not overloaded."""
        load = self._ground.report.load
        if load is None or not load.is_overloaded:
            return None
        nearest: _Step | None = None
        for step in filter(None, self._levels()):
            if step.is_enough:
                return self._relief(step, is_enough=True)
            if nearest is None and load.cancelled and step.serves_all:  # the fewest GPUs, too short to tell
                nearest = step
        return self._relief(nearest or self._best, is_enough=False)

    def _levels(self) -> Iterator[_Step | None]:
        """Each number of GPUs, the fewest first; of as many in one engine before those in several."""
        yield self._helped(self._begun, is_last=True)
        size, more = self._size, self._replicas(self._best_alike)
        while 2 * size <= _MOST_GPUS and self._left > 0:
            size *= 2
            gpus = size // self._size * self._engines
            if more is not None and more.then < gpus:
                yield from self._rounds(more)
                more = None
            change = Change(
                "tensor_parallel_size", None, size, f"--tensor-parallel-size {size}", is_vllm=True, cost=Cost.GPUS
            )
            step = self._with(self._begun, change)
            yield None if step is None else self._helped(step)
            if more is not None and more.then == gpus:
                yield from self._rounds(more)
                more = None
        if more is not None:
            yield from self._rounds(more)

    def _rounds(self, more: Change) -> Iterator[_Step | None]:
        """Replay so many replicas, with what helped most; then as many more as what these serve asks for."""
        for _ in range(_ROUNDS):
            step = self._with(self._best_alike, more)
            if step is None:
                return
            self._best = min(self._best, step, key=lambda each: each.rank)
            yield self._without_idle(self._begun, step) if step.is_enough else step
            following = self._replicas(step)
            if following is None or following.then <= more.then:
                return
            more = following

    def _helped(self, step: _Step, *, is_last: bool = False) -> _Step:
        """Return the step with what helps at no cost, one change upon the other, until the queue drains.

        ``is_last``: before more GPUs are taken, whatever else may help is tried, too.
        """
        begun = step
        while not step.is_enough:
            better = self._best_of(step, self._proposed(step))
            if better is None and is_last:
                better = self._best_of(step, self._last_resort(step))
            if better is None:
                break
            step = better
        if not step.is_enough and is_last:
            step = self._at_once(step)
        if step.is_enough:
            step = self._without_idle(begun, step)
        if all(each.cost is Cost.SETTING for each in step.changes):
            self._best_alike = step
        self._best = min(self._best, step, key=lambda each: each.rank)
        return step

    def _best_of(self, step: _Step, changes: Sequence[Change]) -> _Step | None:
        """Return the step with one of the changes: the first that is enough, or the best; None: none helps."""
        tried = [each for change in changes if (each := self._with(step, change)) is not None]
        enough = next((each for each in tried if each.is_enough), None)
        best = min(tried, key=lambda each: each.rank, default=None)
        return enough or (best if best is not None and best.helps(step) else None)

    def _at_once(self, step: _Step) -> _Step:
        """Return the step with all that was proposed together, if that is enough."""
        several = {each.setting: each for each in (*self._proposed(step), *self._last_resort(step))}
        found = self._with(step, *several.values()) if len(several) > 1 else None
        return found if found is not None and found.is_enough else step

    def _without_idle(self, begun: _Step, step: _Step) -> _Step:
        """Return a step that is enough without those changes since ``begun`` that it does not need."""
        since = [each for each in step.changes if each not in begun.changes]
        for change in since[:-1] if len(since) > 1 else ():
            fewer = self._with(self._begun, *(each for each in step.changes if each != change))
            if fewer is not None and fewer.is_enough:
                step = fewer
        return step

    def _last_resort(self, step: _Step) -> list[Change]:
        settings = settings_of(step.scenario, step.setup)
        return [each for each in settings_of_last_resort(settings) if each.then != each.now]

    def _proposed(self, step: _Step) -> list[Change]:
        """Changes of one setting each, that cost nothing, for what holds requests back now."""
        settings = settings_of(step.scenario, step.setup)
        proposed = [
            change
            for advice in step.report.advice
            for change in changes_for(advice, settings, step.report)
            if change.cost is Cost.SETTING and change.is_vllm
        ]
        seats = [each for each in proposed if each.setting == "max_num_seqs" and each.then > each.now]
        others = [each for each in proposed if each.setting != "max_num_seqs"]
        return list(dict.fromkeys([*self._usual_seats(step, seats), *seats[-1:], *others]))[:_AT_A_TIME]

    def _usual_seats(self, step: _Step, proposed: list[Change]) -> Iterator[Change]:
        """vLLM's own number of seats, where the run has fewer and more are proposed."""
        if proposed:
            usual = replay_spec(changed(step.scenario, {"max_num_seqs": None}), step.setup.workload)
            seats = usual.settled.scheduling.max_num_seqs
            if seats > proposed[-1].then:
                yield msgspec.structs.replace(proposed[-1], then=seats, flag=f"--max-num-seqs {seats}")

    @property
    def _size(self) -> int:
        """GPUs of an engine, as the run has them."""
        return self._begun.setup.settled.hardware.tensor_parallel_size

    @property
    def _engines(self) -> int:
        """Replicas of the run, at most."""
        replicas = self._begun.report.replicas
        return self._begun.scenario.parallel.replicas or (1 if replicas is None else replicas.max_held)

    def _replicas(self, step: _Step) -> Change | None:
        """Return so many replicas of a step that they would serve what arrives; None where that is not known."""
        load, parallel = step.report.load, step.scenario.parallel
        if step.is_enough or load is None or parallel.data_parallel_size > 1:
            return None
        now = parallel.replicas or (1 if step.report.replicas is None else step.report.replicas.mean_held)
        # What is served to clients that give up, or to none, says nothing of what would be without.
        excess = None if load.cancelled else load.excess
        number = max(ceil(now * (excess or 2)), int(now) + 1)
        flag = f"--replicas {number}"
        also = () if parallel.autoscale is None else (("autoscale", None),)
        return Change("replicas", parallel.replicas, number, flag, is_vllm=False, cost=Cost.GPUS, also=also)

    def _with(self, step: _Step, *more: Change) -> _Step | None:
        """Return the replay with further changes; None where it cannot be, was, or there are no replays left."""
        changed_now = {each.setting for each in more}
        changes = (*(each for each in step.changes if each.setting not in changed_now), *more)
        values = {name: value for each in changes for name, value in [(each.setting, each.then), *each.also]}
        if self._left <= 0 or frozenset(values.items()) in self._tried:
            return None
        self._tried.add(frozenset(values.items()))
        try:
            scenario: Scenario = changed(self._begun.scenario, values)
            setup = replay_spec(scenario, self._ground.setup.workload)
            self._left -= 1
            report = self._replay(setup, scenario, " ".join(each.flag for each in changes))
            self._replays += 1
        except TokenyardError:
            return None
        if report.requests_finished != self._ground.report.requests_finished:
            return None
        return _Step(changes, scenario, setup, report)

    def _relief(self, step: _Step, *, is_enough: bool) -> Relief:
        load = step.report.load
        return Relief(
            is_enough=is_enough,
            settings={name: value for each in step.changes for name, value in [(each.setting, each.then), *each.also]},
            flags=" ".join(each.flag for each in step.changes),
            gpus=step.report.num_gpus,
            gpus_now=self._ground.report.num_gpus,
            offered_requests_per_s=None if load is None else load.offered_requests_per_s,
            served_requests_per_s=None if load is None else load.served_requests_per_s,
            served=step.served,
            arrived=step.report.requests or 0,
            effects=effects_of(self._ground.report, step.report) if step.changes else [],
            replays=self._replays,
            tried_on=self._ground.words,
        )
