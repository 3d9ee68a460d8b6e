"""What serves the load of a run that is overloaded: changes that are replayed together, until the queue drains.

    as many GPUs as now     what each report proposes at no cost, one change upon the other, while it helps; then KV and
                            weights in fewer bits; then all of it at once, and whatever of that is not needed leaves
    twice as many, ...      the same with so many in each engine, from the run's own settings on
    more replicas           as many as would serve it all alike, with what helped most before

GPUs are counted over all replicas, and the first that is enough is the answer, since those before it have fewer. So it
does not matter with how many replicas a run begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil
from typing import Any

import msgspec

from tokenyard.deploy.given import changed
from tokenyard.deploy.spec import ReplaySpec
from tokenyard.errors import TokenyardError
from tokenyard.explain.advice.rules import Cost, Relief
from tokenyard.explain.report.report import Report
from tokenyard.explain.report.trials import (
    LEAST_GAIN,
    Change,
    changes_for,
    effects_of,
    settings_of_last_resort,
)
from tokenyard.explain.steady import LoadState
from tokenyard.questions.scenario import Scenario, replay_spec, without_trace
from tokenyard.questions.trials import Ground, Replayer, ground_of, settings_of

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
