"""Hooks that call back into the engine, and calls that an interrupt breaks off: refused or closed, never half done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Thread
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.support.toy_engine import make_request

from tokenyard.core.config import CacheConfig, PauseState, SchedulerConfig
from tokenyard.core.engine import DoneStep, EngineCore
from tokenyard.core.sched.connector import KVConnector, Match
from tokenyard.core.sched.features.grammars import GrammarOutput
from tokenyard.core.sched.observer import SchedulerState, StepObserver
from tokenyard.core.sched.outputs import DraftTokens, ModelOutput
from tokenyard.core.sched.policy import Policy
from tokenyard.core.sched.queues import RequestQueue, WaitingQueues
from tokenyard.core.sched.scheduler import Scheduler
from tokenyard.core.sched.scheduler_output import SchedulerOutput
from tokenyard.errors import EngineDeadError, NestedCallError

Deed = Callable[[EngineCore], object]


class Site:
    """A core whose every hook can be told to do something, once or at every call."""

    def __init__(self, **settings: Any) -> None:
        self.deeds: dict[str, Deed] = {}
        self.raised: list[Exception] = []
        self.now = 0.0
        self.connector = Connector(self)
        scheduler = Scheduler(
            SchedulerConfig(max_num_seqs=2, max_model_len=64, **settings),
            CacheConfig(num_gpu_blocks=40, block_size=4),
            policy=TheirPolicy(self),
            observer=TheirObserver(self),
            kv_connector=self.connector,
            clock=self.clock,
        )
        self.core = EngineCore(scheduler, TheirExecutor(self))

    def clock(self) -> float:
        self.called("clock")
        return self.now

    def called(self, hook: str) -> None:
        """A hook was called."""
        deed = self.deeds.get(hook)
        if deed is None:
            return
        try:
            deed(self.core)
        except NestedCallError as error:
            self.raised.append(error)

    def add(self, name: str) -> None:
        self.core.add_request(make_request(name, 5, max_tokens=4, structured_output=TheirGrammar(self)))

    def run(self, steps: int = 50) -> dict[str, list[int]]:
        """What everybody was told."""
        told: dict[str, list[int]] = {}
        for _ in range(steps):
            if not self.core.has_work:
                break
            outputs = self.core.step()
            for news in outputs or ():
                told.setdefault(news.request_id, []).extend(news.new_token_ids)
            self.core.scheduler.check_invariants()
        return told


class TheirPolicy(Policy):
    def __init__(self, site: Site) -> None:
        self._site = site

    def next_queue(self, queues: WaitingQueues) -> RequestQueue:
        self._site.called("next_queue")
        return super().next_queue(queues)

    def request_arrived(self, now: float, request: Any) -> None:
        self._site.called("request_arrived")


class TheirObserver(StepObserver):
    def __init__(self, site: Site) -> None:
        self._site = site

    def step_started(self, ts: float, step: int, state: SchedulerState) -> None:
        self._site.called("step_started")

    def request_finished(self, ts: float, request: Any) -> None:
        self._site.called("request_finished")


class Connector(KVConnector):
    def __init__(self, site: Site) -> None:
        self._site = site

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> Match:
        return Match(0)

    def request_finished(self, *given: Any) -> Any:
        self._site.called("connector")
        return super().request_finished(*given)


class TheirGrammar:
    is_ready = True

    def __init__(self, site: Site) -> None:
        self._site = site

    def accept_tokens(self, tokens: Sequence[int]) -> bool:
        self._site.called("accept_tokens")
        return True

    def validate_tokens(self, tokens: Sequence[int]) -> list[int]:
        return list(tokens)

    def bitmask(self, drafts: Sequence[int]) -> npt.NDArray[np.int32]:
        self._site.called("bitmask")
        return np.full((1 + len(drafts), 1), -1, np.int32)


class TheirExecutor:
    def __init__(self, site: Site) -> None:
        self._site = site

    def execute_model(self, plan: SchedulerOutput) -> None:
        self._site.called("execute_model")

    def sample_tokens(self, plan: SchedulerOutput, grammar: GrammarOutput | None) -> Any:
        self._site.called("sample_tokens")
        chunks = plan.is_prefill_chunk
        rows = [[] if chunks is not None and chunks[row] else [7] for row in range(len(plan.req_ids))]
        return TheirFuture(self._site, ModelOutput.from_lists(rows))

    def take_draft_token_ids(self) -> DraftTokens | None:
        return None

    def shutdown(self) -> None:
        pass


class TheirFuture(DoneStep):
    def __init__(self, site: Site, output: ModelOutput) -> None:
        super().__init__(output)
        self._site = site

    def result(self) -> ModelOutput:
        self._site.called("result")
        return super().result()


IN_A_STEP = (
    *("clock", "next_queue", "step_started", "request_finished", "connector", "accept_tokens", "bitmask"),
    *("execute_model", "sample_tokens", "result"),
)
DEEDS: dict[str, Deed] = {
    "add_request": lambda core: core.add_request(make_request("new", 3)),
    "abort_requests": lambda core: core.abort_requests(["a", "b", "c"]),
    "step": lambda core: core.step(),
    "fill": lambda core: core.fill(),
    "take_in": lambda core: core.take_in(),
    "drain": lambda core: core.drain(),
    "pause": lambda core: core.pause(),
    "resume": lambda core: core.resume(),
    "reset_prefix_cache": lambda core: core.reset_prefix_cache(reset_running_requests=True),
    "shutdown": lambda core: core.shutdown(),
}


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("called", DEEDS)
@pytest.mark.parametrize("hook", IN_A_STEP)
def test_a_hook_cannot_call_back(hook: str, called: str, is_async: bool) -> None:
    plain, site = Site(async_scheduling=is_async), Site(async_scheduling=is_async)
    for each in (plain, site):
        for name in "abc":
            each.add(name)
    site.deeds[hook] = DEEDS[called]
    assert site.run() == plain.run() == {name: [7] * 4 for name in "abc"}
    assert site.raised
    for error in site.raised:
        assert isinstance(error, NestedCallError)
        assert error.method == called
        assert error.outer == "step"
        assert f"EngineCore.{called}() was called in a hook" in str(error)
        assert "submit_abort()" in str(error)
        assert error.hook is not None
        assert __file__ in error.hook
    assert not site.core.scheduler.requests


@pytest.mark.parametrize("outer", ["add_request", "abort_requests"])
def test_between_steps_too(outer: str) -> None:
    site = Site()
    hook = "request_arrived" if outer == "add_request" else "request_finished"
    site.deeds[hook] = lambda core: core.step()
    site.add("a")
    if outer == "abort_requests":
        site.core.abort_requests("a")
    (error,) = site.raised
    assert isinstance(error, NestedCallError)
    assert (error.method, error.outer) == ("step", outer)
    assert ("TheirPolicy" if outer == "add_request" else "TheirObserver") in str(error.hook)


@pytest.mark.parametrize(
    ("called", "deed"),
    [
        ("schedule", lambda it: it.schedule()),
        ("finish_requests", lambda it: it.finish_requests(None)),
        ("add_request", lambda it: it.add_request(make_request("x", 3))),
        ("set_pause_state", lambda it: it.set_pause_state(PauseState.PAUSED_ALL)),
        ("reset_prefix_cache", lambda it: it.reset_prefix_cache(reset_running_requests=True)),
        ("reset_encoder_cache", lambda it: it.reset_encoder_cache()),
        ("shutdown", lambda it: it.shutdown()),
    ],
)
def test_a_scheduler_alone_is_guarded_as_well(called: str, deed: Callable[[Scheduler], object]) -> None:
    site = Site()
    for name in "abc":
        site.add(name)
    site.deeds["next_queue"] = lambda core: deed(core.scheduler)
    plan = site.core.scheduler.schedule()
    assert plan.req_ids == ("a", "b")
    assert {(error.method, error.outer) for error in site.raised if isinstance(error, NestedCallError)} == {
        (called, "schedule")
    }
    site.core.scheduler.check_invariants()


def test_what_a_hook_submits_is_done_before_the_next_step() -> None:
    site = Site()
    for name in "ab":
        site.add(name)

    def instead(core: EngineCore) -> None:
        del site.deeds["step_started"]
        core.submit(make_request("late", 3, max_tokens=2))
        core.submit_abort("b")

    site.deeds["step_started"] = instead
    told = site.run()
    assert told["a"] == [7] * 4
    assert told["late"] == [7] * 2
    assert len(told.get("b", ())) <= 1


def test_a_policy_that_lets_the_error_through_closes_the_engine() -> None:
    class Careless(Policy):
        core: EngineCore

        def next_queue(self, queues: WaitingQueues) -> RequestQueue:
            self.core.abort_requests("a")
            return super().next_queue(queues)

    policy = Careless()
    scheduler = Scheduler(SchedulerConfig(), CacheConfig(num_gpu_blocks=10), policy=policy)
    policy.core = core = EngineCore(scheduler, TheirExecutor(Site()))
    core.add_request(make_request("a", 3, max_tokens=2))
    with pytest.raises(NestedCallError, match=r"in a hook, .*Careless\.next_queue .*step\(\) was under way"):
        core.step()
    with pytest.raises(EngineDeadError, match=r"NestedCallError: .*Careless\.next_queue"):
        core.step()
    assert list(scheduler.requests) == ["a"]


def test_a_second_thread_is_told_so() -> None:
    site = Site()
    site.add("a")
    said: list[Exception] = []

    def elsewhere(core: EngineCore) -> None:
        del site.deeds["execute_model"]

        def abort() -> None:
            try:
                core.abort_requests("a")
            except NestedCallError as error:
                said.append(error)

        thread = Thread(target=abort)
        thread.start()
        thread.join()

    site.deeds["execute_model"] = elsewhere
    assert site.run() == {"a": [7] * 4}
    (error,) = said
    assert "in another thread" in str(error)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("hook", [each for each in IN_A_STEP if each != "result"])
def test_an_interrupt_closes_the_engine(hook: str, kind: type[BaseException], is_async: bool) -> None:
    site = Site(async_scheduling=is_async)
    for name in "abc":
        site.add(name)

    def interrupt(core: EngineCore) -> None:
        site.deeds.clear()
        raise kind("now")

    site.deeds[hook] = interrupt
    with pytest.raises(kind):
        site.run()
    assert site.core.death is not None
    for each in ("step", "fill", "take_in", "drain", "add_request", "abort_requests", "pause", "reset_prefix_cache"):
        with pytest.raises(EngineDeadError, match=f"{kind.__name__}: now broke ") as dead:
            DEEDS[each](site.core)
        assert isinstance(dead.value.__cause__, kind)
    site.core.shutdown()


@pytest.mark.parametrize("is_async", [False, True])
def test_an_interrupt_while_it_waits_changes_nothing(is_async: bool) -> None:
    plain, site = Site(async_scheduling=is_async), Site(async_scheduling=is_async)
    for each in (plain, site):
        for name in "abc":
            each.add(name)

    def interrupt(core: EngineCore) -> None:
        site.deeds.clear()
        raise KeyboardInterrupt

    site.deeds["result"] = interrupt
    with pytest.raises(KeyboardInterrupt):
        site.run()
    assert site.core.death is None
    assert site.run() == plain.run()


def test_an_interrupted_drain_loses_no_output() -> None:
    site = Site(async_scheduling=True)
    site.core.add_request(make_request("a", 5))
    while site.core.num_in_flight < 2:
        site.core.fill()
    waited: list[str] = []

    def interrupt(core: EngineCore) -> None:
        waited.append("once")
        if len(waited) == 2:
            raise KeyboardInterrupt

    site.deeds["result"] = interrupt
    with pytest.raises(KeyboardInterrupt):
        site.core.drain()
    assert [outputs.step for outputs in site.core.drain()] == [0, 1]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("hook", ["next_queue", "step_started", "clock"])
def test_an_interrupt_closes_a_scheduler(hook: str, kind: type[BaseException]) -> None:
    site = Site()
    site.add("a")

    def interrupt(core: EngineCore) -> None:
        site.deeds.clear()
        raise kind

    site.deeds[hook] = interrupt
    scheduler = site.core.scheduler
    with pytest.raises(kind):
        scheduler.schedule()
    for call in (scheduler.schedule, lambda: scheduler.finish_requests(None)):
        with pytest.raises(EngineDeadError, match=rf"{kind.__name__} broke schedule\(\) off"):
            call()
    scheduler.shutdown()
