"""Mistakes of those who write a policy, a connector, an observer or an executor: one error, in the name of theirs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np
import pytest
from tests.support.profiles import VLLM_0_33
from tests.support.toy_connector import ToyConnector
from tests.support.toy_engine import ToyEngine, make_request

from tokenyard.core.config import CacheConfig, GroupKind, KVCacheGroup, SchedulerConfig
from tokenyard.core.request import Request
from tokenyard.core.sched.connector import ConnectorContext, KVConnector, Match
from tokenyard.core.sched.observer import Observers, StepObserver
from tokenyard.core.sched.outputs import ModelOutput
from tokenyard.core.sched.policy import Policy, PolicyGate
from tokenyard.core.sched.policy_context import PolicyContext
from tokenyard.core.sched.queues import FCFSQueue, WaitingQueues
from tokenyard.core.sched.scheduler import Scheduler
from tokenyard.errors import ConfigError, ConnectorError, EngineDeadError, PolicyError
from tokenyard.policies.simple import KeyedPolicy


def wrong(base: type[Policy] = Policy, /, **methods: Callable[..., Any]) -> Policy:
    """A policy of class ``Mine`` with these methods."""
    policy: Policy = type("Mine", (base,), methods)()
    return policy


def crowded(policy: Policy) -> None:
    """Five requests that wait, run, grow until memory is short, and end."""
    scheduler = Scheduler(SchedulerConfig(max_num_seqs=3), CacheConfig(num_gpu_blocks=6, block_size=4), policy=policy)
    for name in "abcde":
        scheduler.add_request(make_request(name, 4, max_tokens=8, job_id=name))
    for step in range(60):
        if not scheduler.has_requests():
            break
        output = scheduler.schedule()
        scheduler.update_from_output(output, ModelOutput.from_lists([[7]] * len(output.req_ids)))
        scheduler.next_moment(step)


def test_a_policy_without_mistakes_gets_through() -> None:
    crowded(wrong())
    crowded(wrong(victim=lambda self, running: 0, next_queue=Policy.next_queue, next_moment=lambda self, now: now + 1))


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        ({"victim": lambda self, running: len(running)}, r"Mine\.victim returned \d: .* index of running, from 0 to"),
        ({"victim": lambda self, running: -1}, r"Mine\.victim returned -1: "),
        ({"victim": lambda self, running: running[0]}, r"Mine\.victim returned .*Request.*: "),
        (
            {"next_queue": lambda self, queues: None},
            r"Mine\.next_queue returned None: return queues\.waiting or",
        ),
        ({"next_queue": lambda self, queues: queues.skipped}, r"Mine\.next_queue returned .*: this one is empty"),
        ({"new_queue": lambda self: []}, r"Mine\.new_queue returned \[\]: .* lacks add, prepend, prepend_all, peek,"),
        (
            {"keeps_blocks": lambda self, now, request: "yes"},
            r"Mine\.keeps_blocks returned 'yes': return True or",
        ),
        ({"skips": lambda self, refusal: None}, r"Mine\.skips returned None: return True or False"),
        ({"free_for_running": lambda self, shortage, n: True}, r"free_for_running returned True: .* a pin was dropped"),
        ({"free_for_waiting": lambda self, refusal, n: True}, r"free_for_waiting returned True: .* a pin was dropped"),
        ({"next_moment": lambda self, now: now}, r"Mine\.next_moment returned .*: return a moment after now"),
        (
            {"step_begins": lambda self, now, queues: 1 / 0},
            r"step_begins raised ZeroDivisionError: .*mistakes\.py:\d+\)",
        ),
        ({"bind": lambda self, context: None}, r"Mine\.bind keeps its context .* call super\(\)\.bind\(context\)"),
    ],
)
def test_a_policys_mistake_is_said_in_its_name(methods: dict[str, Callable[..., Any]], message: str) -> None:
    with pytest.raises(PolicyError, match=message) as refusal:
        crowded(wrong(**methods))
    assert (refusal.value.policy, refusal.value.method) == ("Mine", next(iter(methods)))


@pytest.mark.parametrize("key", [None, 1.0, (float("nan"),), ("a",)])
def test_a_key_has_to_be_numbers(key: object) -> None:
    with pytest.raises(PolicyError, match=r"policy Mine\.key returned .*: return a tuple of numbers"):
        crowded(wrong(KeyedPolicy, key=lambda self, request: key))


def test_what_a_key_raises_is_said_in_the_policys_name() -> None:
    with pytest.raises(PolicyError, match=r"Mine\.key raised AttributeError: .*deadline"):
        crowded(wrong(KeyedPolicy, key=lambda self, request: request.deadline))


def test_only_a_policy_that_overrides_it_is_asked_in_every_step() -> None:
    assert not PolicyGate(wrong()).acts_each_step
    assert PolicyGate(wrong(step_begins=lambda self, now, queues: None)).acts_each_step


def test_what_is_no_policy_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"policy = .*: give an object of a class derived from tokenyard\.Policy"):
        Scheduler(SchedulerConfig(), CacheConfig(num_gpu_blocks=10_318), policy=FCFSQueue())  # type: ignore[arg-type]


@pytest.mark.parametrize("observer", [print, StepObserver, "a text", object()])
def test_what_is_no_observer_is_refused(observer: Any) -> None:
    yard = ToyEngine()
    for attach in (yard.scheduler.attach_observer, Observers):
        with pytest.raises(ConfigError, match=r"observer = .*: give an object of a class derived from .*StepObserver"):
            attach(observer)


def test_a_connector_serves_one_scheduler() -> None:
    connector = ToyConnector(Random(0))
    Scheduler(SchedulerConfig(), CacheConfig(num_gpu_blocks=10_318), kv_connector=connector)
    assert isinstance(connector.context, ConnectorContext)
    with pytest.raises(ConfigError, match=r"kv_connector = 'ToyConnector': it serves another scheduler already"):
        Scheduler(SchedulerConfig(), CacheConfig(num_gpu_blocks=10_318), kv_connector=connector)


class Forgetful(KVConnector):
    def bind(self, context: ConnectorContext) -> None:
        """Does not tell its base class."""


@pytest.mark.parametrize(
    ("connector", "message"),
    [
        (Forgetful(), r"'Forgetful': its bind must call super\(\)\.bind\(context\)"),
        ("OffloadingConnector", r"give an object of a class derived from tokenyard\.KVConnector"),
    ],
)
def test_a_connector_that_cannot_be_bound_is_refused(connector: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Scheduler(SchedulerConfig(), CacheConfig(num_gpu_blocks=10_318), kv_connector=connector)


class Liar(KVConnector):
    """Answers once what cannot be."""

    def __init__(self, hook: str, answer: object) -> None:
        self.hook, self.answer = hook, answer

    def get_num_new_matched_tokens(self, request: Request, num_computed_tokens: int) -> Match:
        answer: Match = self._answer("get_num_new_matched_tokens", Match(0))
        return answer

    def request_finished(self, request: Request, blocks: Any) -> Any:
        return self._answer("request_finished", (False, None))

    def _answer(self, hook: str, right: Any) -> Any:
        if hook != self.hook:
            return right
        self.hook = ""
        return self.answer


LIES: list[tuple[str, object]] = [
    *(("get_num_new_matched_tokens", answer) for answer in (None, 7, "7", (3, False), [3])),
    *(("get_num_new_matched_tokens", Match(answer)) for answer in (1.5, -16, "7", True, float("nan"), [1])),  # type: ignore[arg-type]
    ("get_num_new_matched_tokens", Match(4, None)),  # type: ignore[arg-type]
    *(("request_finished", answer) for answer in (None, True, (True,), (1, None), (False, "x"), [False, None])),
]


@pytest.mark.parametrize(("hook", "answer"), LIES, ids=repr)
def test_a_connectors_wrong_answer_is_one_error_in_its_name(hook: str, answer: object) -> None:
    yard = ToyEngine(kv_connector=Liar(hook, answer), profile=VLLM_0_33)
    for name in "ab":
        yard.scheduler.add_request(make_request(name, 10, max_tokens=2))
    with pytest.raises(ConnectorError, match=rf"connector Liar\.{hook} returned ") as caught:
        yard.steps(12)
    assert (caught.value.connector, caught.value.method) == ("Liar", hook)
    with pytest.raises(EngineDeadError, match=rf"ConnectorError: connector Liar\.{hook} returned "):
        yard.schedule()


def test_a_connector_may_count_with_numbers_of_numpy() -> None:
    four: Any = np.int64(4)
    yard = ToyEngine(kv_connector=Liar("get_num_new_matched_tokens", Match(four)), profile=VLLM_0_33)
    yard.scheduler.add_request(make_request("a", 10, max_tokens=2))
    assert yard.schedule().num_scheduled_tokens == {"a": 6}


def test_a_policy_is_bound_through_its_own_bind() -> None:
    seen: list[PolicyContext] = []

    class Curious(Policy):
        def bind(self, context: PolicyContext) -> None:
            super().bind(context)
            seen.append(context)

    Scheduler(SchedulerConfig(), CacheConfig(num_gpu_blocks=10_318), policy=Curious())
    assert len(seen) == 1


def test_a_policy_may_choose_a_method_when_it_is_bound() -> None:
    asked: list[Sequence[Request]] = []

    class Chooses(Policy):
        def bind(self, context: PolicyContext) -> None:
            super().bind(context)
            self.victim = self._first  # type: ignore[method-assign]

        def _first(self, running: Sequence[Request]) -> int:
            asked.append(running)
            return 0

    crowded(Chooses())
    assert asked


def test_a_queue_that_fails_while_it_is_chosen_is_reported_in_the_name_of_its_policy() -> None:
    class Lost(FCFSQueue):
        is_lost = False

        def __len__(self) -> int:
            if self.is_lost:
                raise RuntimeError("lost")
            return super().__len__()

    gate = PolicyGate(wrong(new_queue=lambda self: Lost()))
    gate.bind(ToyEngine().scheduler.policy.context)
    queues = WaitingQueues(gate.new_queue, 4)
    Lost.is_lost = True
    with pytest.raises(PolicyError, match=r"Mine\.next_queue raised RuntimeError: lost"):
        gate.next_queue(queues)


def _scheduler(**given: Any) -> Scheduler:
    return Scheduler(SchedulerConfig(), CacheConfig(num_gpu_blocks=10_318), **given)


def test_what_passes_over_a_second_bind_does_not_serve_with_the_first_scheduler_s_context() -> None:
    class Once(Policy):
        def bind(self, context: PolicyContext) -> None:
            if not self.is_bound:
                super().bind(context)

    class OnceConnector(KVConnector):
        def bind(self, context: ConnectorContext) -> None:
            if not self.is_bound:
                super().bind(context)

    policy, connector = Once(), OnceConnector()
    _scheduler(policy=policy, kv_connector=connector)
    with pytest.raises(PolicyError, match=r"Once\.bind keeps its context .*or an earlier one"):
        _scheduler(policy=policy)
    with pytest.raises(ConfigError, match=r"OnceConnector.*its bind must call super\(\)\.bind\(context\)"):
        _scheduler(kv_connector=connector)


WINDOWS = CacheConfig(num_gpu_blocks=9, groups=(KVCacheGroup(kind=GroupKind.SLIDING_WINDOW, window=8),))


@pytest.mark.parametrize(
    "wrong",
    [
        {"limits": [object()]},
        {"hooks": [object()]},
        {"observer": object()},
        {"policy": object()},
        {"kv_connector": object()},
        {"config": SchedulerConfig(enable_return_routed_experts=True), "cache_config": WINDOWS},
        {"policy": "bound"},
        {"kv_connector": "bound"},
    ],
    ids=" ".join,
)
def test_policy_and_connector_can_be_used_after_a_scheduler_that_was_refused(wrong: dict[str, Any]) -> None:
    policy, connector = Policy(), KVConnector()
    bound = {"policy": Policy(), "kv_connector": KVConnector()}
    _scheduler(**bound)
    wrong = {name: bound[name] if value == "bound" else value for name, value in wrong.items()}
    given = {"policy": policy, "kv_connector": connector, **wrong}
    with pytest.raises(ConfigError, match="experts" if "config" in wrong else next(iter(wrong))):
        Scheduler(**{"config": SchedulerConfig(), "cache_config": CacheConfig(num_gpu_blocks=9), **given})
    assert not policy.is_bound
    assert not connector.is_bound
    _scheduler(policy=policy, kv_connector=connector)


def test_a_bind_of_one_s_own_may_set_the_context() -> None:
    class Own(Policy):
        def __init__(self) -> None:
            self.context = None

        def bind(self, context: PolicyContext) -> None:
            self.context = context

    class OwnConnector(KVConnector):
        def bind(self, context: ConnectorContext) -> None:
            self.context = context

    policy, connector = Own(), OwnConnector()
    assert not policy.is_bound
    _scheduler(policy=policy, kv_connector=connector)
    assert policy.is_bound
    assert connector.is_bound


def test_a_token_for_a_prefill_chunk_is_refused_and_nothing_changes() -> None:
    yard = ToyEngine(max_num_batched_tokens=8, max_model_len=64)
    for name, num_tokens in (("short", 2), ("long", 20)):
        yard.scheduler.add_request(make_request(name, num_tokens, max_tokens=2))
    output = yard.scheduler.schedule()
    with pytest.raises(ValueError, match=r"row 1 holds 1 tokens for request 'long', but its prompt is not computed to"):
        yard.scheduler.update_from_output(output, ModelOutput.from_lists([[7], [7]]))
    outputs = yard.scheduler.update_from_output(output, ModelOutput.from_lists([[7], []]))
    assert [(news.request_id, news.new_token_ids) for news in outputs] == [("short", [7])]


def test_a_queue_that_is_handed_out_twice_or_full() -> None:
    same = FCFSQueue()
    full = FCFSQueue()
    full.add(make_request("a"))
    for queue in (same, full):
        with pytest.raises(PolicyError, match=r"Mine\.new_queue returned .*empty and new at every call"):
            crowded(wrong(new_queue=lambda self, queue=queue: queue))
