"""Whoever raises in a hook takes nothing down: nothing is half done, nothing is lost, and every request ends.

Each hook of each protocol raises once, in a run in which all of them are called (docs/hooks.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest
from tests.support.toy_connector import ToyConnector
from tests.support.toy_engine import Watcher, make_request

from tokenyard.core.config import CacheConfig, PauseState, SchedulerConfig
from tokenyard.core.kv.allocation import KVShortage
from tokenyard.core.kv.block_pool import PoolListener
from tokenyard.core.profiles import VLLM_0_22
from tokenyard.core.request import Request, RequestStatus
from tokenyard.core.sched.admission_limits import limits_in_order
from tokenyard.core.sched.candidate import Limit, StepHook
from tokenyard.core.sched.connector import KVConnector
from tokenyard.core.sched.observer import ObserverWarning, SchedulerState, StepObserver
from tokenyard.core.sched.outcomes import Outcome, Reason, StepOutcomes
from tokenyard.core.sched.outputs import ConnectorOutput, ModelOutput
from tokenyard.core.sched.policy import Policy
from tokenyard.core.sched.queues import FCFSQueue, RequestQueue
from tokenyard.core.sched.scheduler import Scheduler
from tokenyard.core.sched.scheduler_output import SchedulerOutput
from tokenyard.errors import GrammarError, PolicyError


class BoomError(Exception):
    """What the hook raises."""


class Fuse:
    """Raises in place of one call, the first or a later one."""

    def __init__(self, after: int = 0) -> None:
        self.after = after
        self.has_blown = False

    def arm(self, owner: Any, hook: str, *, late: bool = False) -> None:
        """Have ``owner.hook`` raise; ``late``: when it has done its work."""
        real = getattr(owner, hook)

        def fused(*args: Any, **options: Any) -> Any:
            if not self.has_blown and self.after <= 0:
                self.has_blown = True
                if late:
                    real(*args, **options)
                raise BoomError(hook)
            self.after -= 1
            return real(*args, **options)

        setattr(owner, hook, fused)


class Queue(FCFSQueue):
    """With room for other methods."""


class Busy(Policy):
    """Keeps blocks of turns, and lets memory go when asked to."""

    reorders = True

    def __init__(self, arm: Callable[[RequestQueue], None] = lambda queue: None) -> None:
        self._arm = arm

    def new_queue(self) -> RequestQueue:
        queue = Queue()
        self._arm(queue)
        return queue

    def keeps_blocks(self, now: float, request: Request) -> bool:
        return True

    def free_for_waiting(self, refusal: Outcome, num_running: int) -> bool:
        return self._drop_one()

    def free_for_running(self, shortage: KVShortage, num_running: int) -> bool:
        return self._drop_one()

    def _drop_one(self) -> bool:
        for pinned in self.pins:
            assert pinned.job_id is not None
            return self.pins.unpin(pinned.job_id)
        return False


class Grammar:
    """Allows everything."""

    @property
    def is_ready(self) -> bool:
        return self.asked()

    def asked(self) -> bool:
        return True

    def accept_tokens(self, tokens: Sequence[int]) -> bool:
        return True

    def validate_tokens(self, tokens: Sequence[int]) -> list[int]:
        return list(tokens)


class Connector(ToyConnector):
    """Has blocks in CPU memory as well, as a property that asks."""

    def count_blocks(self) -> tuple[int, int]:
        return 1, 2

    @property
    def cpu_blocks(self) -> tuple[int, int]:
        return self.count_blocks()


class Gauger(StepObserver):
    """Reads what there is to read."""

    def step_decided(self, ts: float, output: SchedulerOutput, outcomes: StepOutcomes, state: SchedulerState) -> None:
        assert state.gauges().num_free_blocks == state.counts().num_free_blocks


class Yard:
    """Drives a scheduler through everything that can happen, and past one error.

    What clients are told of each request is kept: nothing of it may be lost.
    """

    def __init__(self, policy: Policy, *, connector: Connector | None = None, **settings: Any) -> None:
        self.connector = connector
        self.scheduler = Scheduler(
            SchedulerConfig(
                **{
                    "profile": VLLM_0_22,
                    "max_num_seqs": 4,
                    "max_num_batched_tokens": 24,
                    "max_model_len": 40,
                    **settings,
                }
            ),
            CacheConfig(num_gpu_blocks=15, block_size=4, enable_kv_cache_events=True),
            policy=policy,
            observer=Gauger(),
            kv_connector=connector,
            log_stats=True,
        )
        self.requests: dict[str, Request] = {}
        self.told: dict[str, list[int]] = {}
        self.random = Random(7)
        self.errors: list[str] = []

    def call(self, name: str, do: Callable[[], Any]) -> Any:
        """Once more if it raises, which it does once."""
        try:
            return do()
        except (BoomError, GrammarError, PolicyError):
            self.errors.append(name)
            return do()
        finally:
            self.scheduler.check_invariants()

    def add(self, number: int, **options: Any) -> None:
        name = f"r{number}"
        length = 5 + number * 5 % 13
        grammar = Grammar() if number % 3 == 0 else None
        options = {"job_id": f"j{number % 4}", "structured_output": grammar, **options}
        request = make_request(name, length, max_tokens=6, **options)
        self.call("add_request", lambda: self.scheduler.add_request(request))
        self.requests[name], self.told[name] = request, []

    def model(self, plan: SchedulerOutput) -> ModelOutput:
        chunks = plan.is_prefill_chunk
        rows = [[] if chunks is not None and chunks[i] else [50 + plan.step] for i in range(len(plan.req_ids))]
        report = self.report() if self.connector is not None else None
        return ModelOutput.from_lists(rows, report)

    def report(self) -> ConnectorOutput:
        """All loads and reads are complete, none fails."""
        assert self.connector is not None
        received, self.connector.loading = frozenset(self.connector.loading), {}
        sent, self.connector.sending = frozenset(self.connector.sending), set()
        return ConnectorOutput(finished_receiving=received, finished_sending=sent)

    def step(self) -> None:
        plan = self.call("schedule", self.scheduler.schedule)
        answer = self.model(plan)
        outputs = self.call("update_from_output", lambda: self.scheduler.update_from_output(plan, answer))
        for news in outputs:
            self.told[news.request_id] += news.new_token_ids
        self.call("take_kv_events", self.scheduler.take_kv_events)

    def run(self, *, pauses: bool = False) -> None:
        if pauses:
            self.scheduler.set_pause_state(PauseState.UNPAUSED)
        for number in range(12):
            self.add(number)
            if number % 2:
                self.step()
            if number == 9:
                aborted = self.call("finish", lambda: self.scheduler.finish_requests(["r8"], missing_ok=True))
                assert not aborted or aborted[0].request_id == "r8"
        for _ in range(400):
            if not self.scheduler.has_requests():
                break
            self.step()
        self.call(
            "reset",
            lambda: self.scheduler.reset_prefix_cache(reset_running_requests=True, reset_connector=True),
        )
        self.call("shutdown", self.scheduler.shutdown)

    def everybody_has_ended(self) -> None:
        """And has been told every token; no block is lost."""
        unfinished = [name for name, request in self.requests.items() if not request.status.is_finished]
        assert not unfinished
        assert {name: len(tokens) for name, tokens in self.told.items() if name != "r8"} == {
            name: request.num_output_tokens for name, request in self.requests.items() if name != "r8"
        }
        assert not self.scheduler.requests
        assert self.scheduler.num_free_blocks == self.scheduler.num_total_blocks - 1


def hooks_of(protocol: type, *, without: Sequence[str] = ()) -> list[str]:
    """Public methods, as its documentation lists them."""
    return [name for name, each in vars(protocol).items() if callable(each) and name[0] != "_" and name not in without]


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize("hook", hooks_of(Policy, without=["bind", "next_moment", "new_queue"]))
def test_a_policy_that_raises_once(hook: str, after: int, late: bool) -> None:
    fuse, policy = Fuse(after), Busy()
    fuse.arm(policy, hook, late=late)
    yard = Yard(policy)
    yard.run()
    assert fuse.has_blown, "the run calls every hook"
    assert len(yard.errors) == 1, "the error is raised, and once"
    yard.everybody_has_ended()


def test_every_hook_of_a_policy_is_known_here() -> None:
    assert hooks_of(Policy) == [
        *("bind", "new_queue", "next_queue", "victim", "request_arrived", "step_begins", "request_admitted"),
        *("keeps_blocks", "free_for_waiting", "free_for_running", "next_moment", "passes_over"),
    ], "a new hook needs a line in docs/hooks.md"


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("after", [0, 4])
@pytest.mark.parametrize("hook", ["add", "prepend", "prepend_all", "peek", "pop"])
def test_a_queue_that_raises_once(hook: str, after: int, late: bool) -> None:
    fuse = Fuse(after)
    yard = Yard(Busy(lambda queue: fuse.arm(queue, hook, late=late)), max_loras=1)
    for number in range(20, 26):
        yard.add(number, lora_name=f"adapter {number}")
    yard.run()
    assert fuse.has_blown
    assert len(yard.errors) == 1
    yard.everybody_has_ended()


def test_a_policy_that_makes_no_queue_in_the_middle_of_a_step() -> None:
    fuse, policy = Fuse(2), Busy()  # two are made with the scheduler
    fuse.arm(policy, "new_queue")
    yard = Yard(policy, max_loras=1)
    for number in range(20, 23):
        yard.add(number, lora_name=f"adapter {number}")
    yard.run()
    assert fuse.has_blown
    assert yard.errors == ["schedule"]
    yard.everybody_has_ended()


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("after", [0, 3])
@pytest.mark.parametrize("hook", [*hooks_of(KVConnector, without=["bind"]), "count_blocks"])
def test_a_connector_that_raises_once(hook: str, after: int, late: bool) -> None:
    if hook in ("reset_cache", "shutdown"):
        after = 0  # they are called once
    fuse, connector = Fuse(after), Connector(Random(3))
    fuse.arm(connector, hook, late=late)
    yard = Yard(Busy(), connector=connector)
    yard.run()
    assert fuse.has_blown
    assert len(yard.errors) == 1
    yard.everybody_has_ended()


def test_a_scheduler_is_not_made_when_its_parts_refuse_it() -> None:
    for policy, connector in ((Busy(), None), (Busy(), Connector(Random(3)))):
        Fuse().arm(connector or policy, "bind")
        with pytest.raises((BoomError, PolicyError)):
            Yard(policy, connector=connector)


@pytest.mark.parametrize("event", hooks_of(StepObserver, without=["steps_repeated"]))  # Busy is asked in every step
def test_an_observer_that_raises_is_left_out(event: str) -> None:
    fuse, yard = Fuse(), Yard(Busy(), connector=Connector(Random(3)))
    watcher = Watcher()
    fuse.arm(watcher, event)
    yard.scheduler.attach_observer(watcher)
    with pytest.warns(ObserverWarning, match=event):
        yard.run(pauses=True)
    assert fuse.has_blown
    assert not yard.errors
    yard.everybody_has_ended()


@pytest.mark.parametrize("after", [0, 3])
@pytest.mark.parametrize("hook", ["asked", "accept_tokens"])
def test_a_grammar_that_raises_once_ends_its_own_request(
    monkeypatch: pytest.MonkeyPatch, hook: str, after: int
) -> None:
    fuse = Fuse(after)
    real = getattr(Grammar, hook)

    def fused(self: Grammar, *args: Any) -> Any:
        if not fuse.has_blown and fuse.after <= 0:
            fuse.has_blown = True
            raise BoomError(hook)
        fuse.after -= 1
        return real(self, *args)

    monkeypatch.setattr(Grammar, hook, fused)
    yard = Yard(Busy())
    yard.run()
    assert fuse.has_blown
    assert len(yard.errors) == 1
    failed = [each for each in yard.requests.values() if each.status is RequestStatus.FINISHED_ERROR]
    assert len(failed) == 1
    assert failed[0].structured_output is not None
    yard.everybody_has_ended()


@pytest.mark.parametrize("hook", hooks_of(PoolListener))
@pytest.mark.parametrize("after", [0, 5])
def test_a_pool_listener_that_raises_once(hook: str, after: int) -> None:
    fuse, listener = Fuse(after if hook == "block_evicted" else 0), PoolListener()
    fuse.arm(listener, hook)
    yard = Yard(Busy())
    yard.scheduler.kv.pool.subscribe(listener)
    yard.run()
    if hook == "block_forgotten":
        for number in range(20, 23):
            yard.add(number)
        yard.step()
        yard.scheduler.kv.pool.forget(next(b for b, known in enumerate(yard.scheduler.kv.pool.hash_of) if known))
        yard.run()
    assert fuse.has_blown
    assert len(yard.errors) == 1
    yard.everybody_has_ended()


@pytest.mark.parametrize("after", [0, 1, 7])
@pytest.mark.parametrize("hook", ["extend", "append_n", "extra_keys", "_digest"])
def test_hashing_that_raises_once(monkeypatch: pytest.MonkeyPatch, hook: str, after: int) -> None:
    yard = Yard(Busy())
    fuse = Fuse(after)
    hasher = yard.scheduler.kv.hasher
    real = getattr(hasher, hook)

    def fused(*args: Any) -> Any:
        if not fuse.has_blown and fuse.after <= 0:
            fuse.has_blown = True
            raise BoomError(hook)
        fuse.after -= 1
        return real(*args)

    monkeypatch.setattr(type(hasher), hook, staticmethod(fused))
    for number in range(20, 23):
        yard.add(number, cache_salt="salt", lora_name="adapter")
    yard.run()
    if hook != "_digest":
        assert fuse.has_blown
        assert len(yard.errors) == 1
    yard.everybody_has_ended()


@pytest.mark.parametrize("after", [0, 2])
def test_any_limit_that_raises_once(after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[Limit] = []

    def noted(*parts: Any) -> list[Limit]:
        limits[:] = limits_in_order(*parts)
        return limits

    monkeypatch.setattr("tokenyard.core.sched.step.limits_in_order", noted)
    Yard(Busy(), connector=Connector(Random(3)))
    for which in range(len(limits)):
        for late in (False, True):
            yard = Yard(Busy(), connector=Connector(Random(3)))
            fuse = Fuse(after)
            fuse.arm(limits[which], "ask", late=late)
            yard.run()
            assert fuse.has_blown
            assert yard.errors == ["schedule"]
            yard.everybody_has_ended()


def test_features_are_ours_and_have_no_hook_that_is_not_tested() -> None:
    assert hooks_of(StepHook) == [
        *("check_request", "request_added", "request_admitted", "request_preempted", "request_aborted"),
        *("request_reset", "step_planned"),
    ]


def test_the_reason_of_a_step_that_ended_early_is_recorded() -> None:
    fuse, policy = Fuse(), Busy()
    fuse.arm(policy, "next_queue")
    yard = Yard(policy)
    watcher = Watcher()
    yard.scheduler.attach_observer(watcher)
    yard.add(1)
    with pytest.raises((BoomError, PolicyError)) as caught:
        yard.scheduler.schedule()
    assert caught.value.__notes__ == [
        "Tokenyard: raised in the choice of the request that is tried next",
        "Tokenyard: the step is decided all the same, and the next schedule() hands it out",
    ]
    admission = watcher.outcomes.admission
    assert admission is not None
    assert admission.reason is Reason.HOOK_FAILED
    assert yard.scheduler.schedule().step == 0, "the step that was decided, with nobody in it"
    assert yard.scheduler.has_requests()


def test_outputs_that_were_held_back_are_given_for_their_own_step_alone() -> None:
    fuse, policy = Fuse(), Busy()
    fuse.arm(policy, "keeps_blocks")
    yard = Yard(policy)
    yard.add(1)
    scheduler = yard.scheduler
    plan = scheduler.schedule()
    while True:
        answer = yard.model(plan)
        try:
            scheduler.update_from_output(plan, answer)
        except (BoomError, PolicyError):
            break
        plan = scheduler.schedule()
    last = scheduler.schedule()
    with pytest.raises(ValueError, match="give a ModelOutput"):
        scheduler.update_from_output(last, None)  # type: ignore[arg-type]
    outputs = scheduler.update_from_output(plan, answer)
    assert [news.new_token_ids for news in outputs] == [[50 + plan.step]]
    with pytest.raises(ValueError, match="taken in already"):
        scheduler.update_from_output(plan, answer)
    assert not len(scheduler.update_from_output(last, yard.model(last)))


def test_a_request_that_could_not_be_announced_is_not_there() -> None:
    for late in (False, True):
        fuse, policy = Fuse(), Busy()
        fuse.arm(policy, "request_arrived", late=late)
        yard = Yard(policy)
        request = make_request("a", 4)
        with pytest.raises((BoomError, PolicyError)):
            yard.scheduler.add_request(request)
        assert not yard.scheduler.has_requests()
        assert not list(yard.scheduler.waiting)
        yard.scheduler.add_request(request)
        assert list(yard.scheduler.requests) == ["a"]
