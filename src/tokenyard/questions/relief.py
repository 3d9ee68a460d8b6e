"""What serves the load of a run that is overloaded: changes that are replayed together, until the queue drains.

    as many GPUs as now     what each report proposes at no cost, one change upon the other, while it helps
    twice as many, ...      the same with so many in each engine, from the run's own settings on
    replicas                as many as would serve it all alike, with what helped most before

The first that is enough is the answer, since those before it have fewer GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import Any

import msgspec

from tokenyard.deploy.given import changed
from tokenyard.deploy.spec import ReplaySpec
from tokenyard.errors import TokenyardError
from tokenyard.explain.advice.rules import Cost, Relief
from tokenyard.explain.report.report import Report
from tokenyard.explain.report.trials import LEAST_GAIN, Change, changes_for, effects_of
from tokenyard.explain.steady import LoadState
from tokenyard.questions.scenario import Scenario, replay_spec, without_trace
from tokenyard.questions.trials import Ground, Replayer, ground_of, settings_of
from tokenyard.quick_named_tuple import NamedTuple

MOST_TOGETHER = 16
"""Replays of changes together."""
_AT_A_TIME = 3
"""Changes that are replayed upon the same others, those of what costs most time first."""
_MOST_GPUS = 8
"""GPUs of one engine: those of a machine."""


def with_relief(
    scenario: Scenario, setup: ReplaySpec, report: Report, replay: Replayer, *, most_steps: int | None = None
) -> Report:
    """Return the report with what serves its load, where it is overloaded; ``most_steps`` as for the trials."""
    if report.load is None or not report.load.is_overloaded:
        return report
    ground = ground_of(scenario, setup, report, replay, MOST_TOGETHER // 2, most_steps)
    return msgspec.structs.replace(report, relief=ReliefSearch(scenario, ground, replay).found())


class _Step(NamedTuple):
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
    def mean(self) -> float:
        """Milliseconds of a request, queueing among them: what a growing queue shows in."""
        mean = self.report.e2e_ms.mean
        return float("inf") if mean is None else mean


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
        enough = next((step for step in self._levels() if step is not None and step.is_enough), None)
        return self._relief(enough or self._best, is_enough=enough is not None)

    def _levels(self) -> Iterator[_Step | None]:
        """Each number of GPUs, the fewest first."""
        yield self._helped(self._begun)
        size = self._size
        replicas, number = self._replicas()
        while 2 * size <= _MOST_GPUS and self._left > 0:
            size *= 2
            more = Change(
                "tensor_parallel_size", None, size, f"--tensor-parallel-size {size}", is_vllm=True, cost=Cost.GPUS
            )
            step = self._with(self._begun, more)
            yield None if step is None else self._helped(step)
            if replicas is not None and number * self._size <= size:
                yield self._with(self._best_alike, replicas)
                replicas = None
        if replicas is not None:
            yield self._with(self._best_alike, replicas)

    def _helped(self, step: _Step) -> _Step:
        """Return the step with what helps at no cost, one change upon the other, until the queue drains."""
        while not step.is_enough and self._left > 0:
            tried = [self._with(step, change) for change in self._proposed(step)]
            best = min((each for each in tried if each is not None), key=lambda each: each.mean, default=None)
            enough = next((each for each in tried if each is not None and each.is_enough), None)
            if enough is not None:
                step = enough
            elif best is not None and best.mean <= (1 - LEAST_GAIN) * step.mean:
                step = best
            else:
                break
        if all(each.cost is Cost.SETTING for each in step.changes):
            self._best_alike = step
        self._best = min(self._best, step, key=lambda each: each.mean)
        return step

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
                yield proposed[-1]._replace(then=seats, flag=f"--max-num-seqs {seats}")

    @property
    def _size(self) -> int:
        """GPUs of an engine, as the run has them."""
        return self._begun.setup.settled.hardware.tensor_parallel_size

    def _replicas(self) -> tuple[Change | None, int]:
        """Return so many deployments like the best so far that they would serve what arrives, and their number."""
        load, parallel = self._best_alike.report.load, self._begun.scenario.parallel
        if load is None or load.excess is None or parallel.replicas is not None or parallel.data_parallel_size > 1:
            return None, 0
        number = max(ceil(load.excess), 2)
        return Change("replicas", None, f"{number}", f"--replicas {number}", is_vllm=False, cost=Cost.GPUS), number

    def _with(self, step: _Step, change: Change) -> _Step | None:
        """Return the replay with one change more; None where it cannot be, was, or there are no replays left."""
        changes = (*(each for each in step.changes if each.setting != change.setting), change)
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
        now = self._ground.report.header.num_gpus
        replicas = step.report.replicas
        gpus = step.report.header.num_gpus
        return Relief(
            is_enough=is_enough,
            settings={name: value for each in step.changes for name, value in [(each.setting, each.then), *each.also]},
            flags=" ".join(each.flag for each in step.changes),
            gpus=gpus if gpus is None or replicas is None else gpus * replicas.max_held,
            gpus_now=now,
            offered_requests_per_s=None if load is None else load.offered_requests_per_s,
            served_requests_per_s=None if load is None else load.served_requests_per_s,
            effects=effects_of(self._ground.report, step.report) if step.changes else [],
            replays=self._replays,
            tried_on=self._ground.words,
        )
