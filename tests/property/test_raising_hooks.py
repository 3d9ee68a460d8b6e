"""Every feature with every other, and hooks of the policy and the connector that raise at random.

The machine of ``test_features_machine``, with a host that calls once more: what holds without errors holds with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, ClassVar

import pytest
from hypothesis.stateful import initialize
from tests.property import test_features_machine
from tests.property.test_features_machine import SEEDS, FeaturesMachine
from tests.support.machines import Floor, machine_test

from tokenyard.core.request import Request
from tokenyard.core.sched.connector import KVConnector
from tokenyard.core.sched.outcomes import Reason
from tokenyard.core.sched.policy import Policy
from tokenyard.core.sched.scheduler import Scheduler

_HOW_OFTEN = 0.05

_NEVER = {"bind", "new_queue", "next_moment", "reset_cache", "shutdown", "take_events"}
"""Not called in a step, or not by this machine."""


class HookError(Exception):
    """What a hook raises."""


class PatientHost:
    """A scheduler whose calls are made once more when a hook has raised."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scheduler, name)

    def _until_done(self, call: Callable[..., Any], *given: Any) -> Any:
        for _ in range(100):
            try:
                return call(*given)
            except HookError:
                self._scheduler.check_invariants()
        raise AssertionError("a call raises for ever")

    def schedule(self) -> Any:
        return self._until_done(self._scheduler.schedule)

    def update_from_output(self, *given: Any) -> Any:
        return self._until_done(self._scheduler.update_from_output, *given)

    def add_request(self, request: Request) -> None:
        session = self._scheduler.requests.get(request.request_id)
        for _ in range(100):
            try:
                return self._scheduler.add_request(request)
            except HookError:
                self._scheduler.check_invariants()
                if session is not None:
                    return None  # it has taken the input, or ended
        raise AssertionError("a request is never added")

    def finish_requests(self, ids: Sequence[str]) -> list[Request]:
        requests = [self._scheduler.requests[name] for name in ids]
        try:
            return self._scheduler.finish_requests(ids)
        except HookError:
            self._scheduler.check_invariants()
            return requests


class RaisingMachine(FeaturesMachine):
    """Hooks raise before they have done anything."""

    num_raised: ClassVar[int] = 0

    @initialize(seed=SEEDS)
    def build(self, seed: int) -> None:
        super().build(seed)
        self.random = Random(seed)
        for owner, protocol in ((self.scheduler._policy_gate, Policy), (self.connector, KVConnector)):
            if owner is not None:
                for hook in vars(protocol):
                    if hook[0] != "_" and hook not in _NEVER and callable(getattr(owner, hook)):
                        setattr(owner, hook, self._sometimes(hook, getattr(owner, hook)))
        self.scheduler: Any = PatientHost(self.scheduler)

    def _sometimes(self, hook: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def raising(*given: Any) -> Any:
            if self.random.random() < _HOW_OFTEN:
                RaisingMachine.num_raised += 1
                raise HookError(hook)
            return call(*given)

        return raising

    def _somebody_will_get_on(self) -> None:
        outcomes = self.watcher.outcomes
        ended = outcomes.admission
        reasons = [each.reason for each in outcomes.skipped] + ([ended.reason] if ended is not None else [])
        if Reason.HOOK_FAILED not in reasons:
            super()._somebody_will_get_on()


def test_a_request_with_blocks_and_nothing_in_them_gives_them_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawn once in many thousand: its load brought nothing, and the connector raised when it was to be admitted."""
    monkeypatch.setattr(test_features_machine, "note", lambda _: None)
    machine = RaisingMachine()
    machine.build(seed=925)
    for seeds, steps in (([1], 0), ([11425], 2), ([1, 1], 0)):
        machine.add(seeds=seeds, steps=steps)
    machine.teardown()


class TestRaisingHooks(machine_test(RaisingMachine, Floor(accepted=1, steps=3), max_examples=150, step_count=40)):  # type: ignore[misc]
    def runTest(self) -> None:  # noqa: N802  # unittest's name
        before = RaisingMachine.num_raised
        super().runTest()
        assert RaisingMachine.num_raised - before > 20, "hooks hardly ever raised"
