"""A hook that raises is named, and closes the scheduler; a grammar ends its own request, an observer is left out.

Each hook of each protocol raises once, in a run in which all of them are called (docs/hooks.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from random import Random
from typing import Any

import pytest
from tests.support.profiles import VLLM_0_22
from tests.support.toy_connector import ToyConnector
from tests.support.toy_engine import Watcher, make_request

from tokenyard.core.config import CacheConfig, PauseState, SchedulerConfig
from tokenyard.core.engine import DoneStep, EngineCore
from tokenyard.core.kv.allocation import KVShortage
from tokenyard.core.kv.block_pool import PoolListener
from tokenyard.core.kv.hashing import BlockHasher, RequestHasher
from tokenyard.core.request import BlockHash, Request, RequestStatus
from tokenyard.core.sched.candidate import FeatureHook
from tokenyard.core.sched.connector import KVConnector
from tokenyard.core.sched.observer import ObserverWarning, SchedulerState, StepObserver
from tokenyard.core.sched.outcomes import Outcome, StepOutcomes
from tokenyard.core.sched.outputs import ConnectorOutput, ModelOutput
from tokenyard.core.sched.policy import Policy
from tokenyard.core.sched.queues import FCFSQueue, RequestQueue
from tokenyard.core.sched.scheduler import Scheduler
from tokenyard.core.sched.scheduler_output import SchedulerOutput
from tokenyard.errors import ConnectorError, EngineDeadError, GrammarError, PolicyError


class BoomError(Exception):
    """What the hook raises."""


class Fuse:
    """Raises in place of one call, the first or a later one."""

    def __init__(self, after: int = 0) -> None:
        self.after = after
        self.has_blown = False

    def arm(self, owner: Any, hook: str) -> None:
        """Have ``owner.hook`` raise."""
        real = getattr(owner, hook)

        @wraps(real)
        def fused(*args: Any, **options: Any) -> Any:
            if not self.has_blown and self.after <= 0:
                self.has_blown = True
                raise BoomError(hook)
            self.after -= 1
            return real(*args, **options)

        setattr(owner, hook, fused)


class Queue(FCFSQueue):
    """With room for other methods."""


class Hook(FeatureHook):
    """The same: a class of C has none."""


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
    """With room for other methods."""


class Gauger(StepObserver):
    """Reads what there is to read."""

    def step_decided(self, ts: float, output: SchedulerOutput, outcomes: StepOutcomes, state: SchedulerState) -> None:
        assert state.gauges().num_free_blocks == state.counts().num_free_blocks


class Yard:
    """Drives a scheduler through everything that can happen, up to the first error.

    What clients are told of each request is kept: nothing of it may be lost.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        connector: Connector | None = None,
        block_hasher: RequestHasher | None = None,
        **settings: Any,
    ) -> None:
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
            block_hasher=block_hasher,
            log_stats=True,
        )
        self.requests: dict[str, Request] = {}
        self.told: dict[str, list[int]] = {}
        self.random = Random(7)
        self.every_adapter_is_another = False
        self.errors: dict[str, GrammarError] = {}
        """What outputs said."""

    def call(self, do: Callable[[], Any]) -> Any:
        answer = do()
        self.scheduler.check_invariants()
        return answer

    def add(self, number: int, **options: Any) -> None:
        name = f"r{number}"
        length = 5 + number * 5 % 13
        grammar = Grammar() if number % 3 == 0 else None
        options = {"job_id": f"j{number % 4}", "structured_output": grammar, **options}
        if self.every_adapter_is_another:
            options["lora_name"] = f"adapter {number}"
        request = make_request(name, length, max_tokens=6, **options)
        self.call(lambda: self.scheduler.add_request(request))
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
        plan = self.call(self.scheduler.schedule)
        answer = self.model(plan)
        outputs = self.call(lambda: self.scheduler.update_from_output(plan, answer))
        self.errors |= outputs.errors
        for news in outputs:
            self.told[news.request_id] += news.new_token_ids
        self.call(self.scheduler.take_kv_events)

    def run(self, *, pauses: bool = False) -> None:
        if pauses:
            self.scheduler.set_pause_state(PauseState.UNPAUSED)
        for number in range(12):
            self.add(number)
            if number % 2:
                self.step()
            if number == 9:
                aborted = self.call(lambda: self.scheduler.finish_requests(["r8"], missing_ok=True))
                assert not aborted or aborted[0].request_id == "r8"
        for _ in range(400):
            if not self.scheduler.has_requests():
                break
            self.step()
        self.call(
            lambda: self.scheduler.reset_prefix_cache(reset_running_requests=True, reset_connector=True),
        )
        self.call(self.scheduler.shutdown)

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


def closes(yard: Yard, error: type[Exception], named: str = "BoomError|") -> None:
    """The run ends with the error that names who has raised, and the scheduler says so from then on."""
    with pytest.raises(error, match=named):
        yard.run()
    for call in (yard.scheduler.schedule, lambda: yard.scheduler.finish_requests(None), yard.scheduler.make_stats):
        with pytest.raises(EngineDeadError, match=rf"{error.__name__}: .* off in its middle") as dead:
            call()
        assert isinstance(dead.value.__cause__, error)
    yard.scheduler.shutdown()


@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize("hook", hooks_of(Policy, without=["next_moment", "new_queue"]))
def test_a_policy_that_raises_closes_the_scheduler(hook: str, after: int) -> None:
    fuse, policy = Fuse(after), Busy()
    fuse.arm(policy, hook)
    closes(Yard(policy), PolicyError, rf"policy Busy\.{hook} raised BoomError: ")
    assert fuse.has_blown, "the run calls every hook"


def test_every_hook_of_a_policy_is_known_here() -> None:
    assert hooks_of(Policy) == [
        *("new_queue", "next_queue", "victim", "request_arrived", "step_begins", "admits", "request_admitted"),
        *("request_finished", "keeps_blocks", "free_for_waiting", "free_for_running", "next_moment", "skips"),
        *("keeps_tokens", "evicts_first"),
    ], "a new hook needs a line in docs/policies.md"


@pytest.mark.parametrize("after", [0, 4])
@pytest.mark.parametrize("hook", ["add", "prepend", "prepend_all", "peek", "pop"])
def test_a_queue_that_raises_closes_the_scheduler(hook: str, after: int) -> None:
    fuse = Fuse(after)
    yard = Yard(Busy(lambda queue: fuse.arm(queue, hook)), max_loras=1)
    yard.every_adapter_is_another = True
    closes(yard, BoomError)
    assert fuse.has_blown


@pytest.mark.parametrize("after", [0, 3])
@pytest.mark.parametrize("hook", hooks_of(KVConnector, without=["bind", "reset_cache", "shutdown"]))
def test_a_connector_that_raises_closes_the_scheduler(hook: str, after: int) -> None:
    if hook == "request_preempted":
        after = min(after, 1)  # few are
    fuse, connector = Fuse(after), Connector(Random(3))
    fuse.arm(connector, hook)
    closes(Yard(Busy(), connector=connector), ConnectorError, rf"connector Connector\.{hook} raised BoomError: ")
    assert fuse.has_blown


@pytest.mark.parametrize("hook", ["reset_cache", "shutdown"])
def test_a_connector_that_raises_in_the_end(hook: str) -> None:
    fuse, connector = Fuse(), Connector(Random(3))
    fuse.arm(connector, hook)
    yard = Yard(Busy(), connector=connector)
    with pytest.raises(ConnectorError, match=rf"connector Connector\.{hook} raised BoomError: "):
        yard.run()
    with pytest.raises(EngineDeadError):
        yard.scheduler.schedule()


def test_a_scheduler_is_not_made_when_its_parts_refuse_it() -> None:
    for policy, connector, error in (
        (Busy(), None, PolicyError),
        (Busy(), Connector(Random(3)), ConnectorError),
    ):
        Fuse().arm(connector or policy, "bind")
        with pytest.raises(error, match=r"\.bind raised BoomError"):
            Yard(policy, connector=connector)


# Busy is asked in every step; a host alone tells of requests that were refused.
@pytest.mark.parametrize("event", hooks_of(StepObserver, without=["steps_repeated", "request_refused"]))
def test_an_observer_that_raises_is_left_out(event: str) -> None:
    fuse, yard = Fuse(), Yard(Busy(), connector=Connector(Random(3)))
    watcher = Watcher()
    fuse.arm(watcher, event)
    yard.scheduler.attach_observer(watcher)
    with pytest.warns(ObserverWarning, match=event):
        yard.run(pauses=True)
    assert fuse.has_blown
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
    (failed,) = [each for each in yard.requests.values() if each.status is RequestStatus.FINISHED_ERROR]
    assert failed.structured_output is not None
    (error,) = yard.errors.items()
    assert error[0] == failed.request_id
    assert isinstance(error[1].__cause__, BoomError)
    yard.everybody_has_ended()


@pytest.mark.parametrize("hook", hooks_of(PoolListener))
def test_a_pool_listener_that_raises_closes_the_scheduler(hook: str) -> None:
    class Listener(PoolListener):
        pass

    fuse, listener = Fuse(), Listener()
    fuse.arm(listener, hook)
    yard = Yard(Busy())
    yard.scheduler.kv.pool.subscribe(listener)
    if hook == "block_forgotten":  # only what a connector reports makes content invalid
        connector = Connector(Random(3))
        yard = Yard(Busy(), connector=connector)
        yard.scheduler.kv.pool.subscribe(listener)
        yard.report = lambda: ConnectorOutput(  # type: ignore[method-assign]
            invalid_block_ids=frozenset(b for b, known in enumerate(yard.scheduler.kv.pool.content) if known)
        )
    closes(yard, BoomError)
    assert fuse.has_blown


@pytest.mark.parametrize("after", [0, 7])
def test_a_hasher_that_raises_closes_the_scheduler(after: int) -> None:
    fuse = Fuse(after)

    class Fused(BlockHasher):
        def extend(self, request: Request) -> list[BlockHash]:
            fuse.after -= 1
            if fuse.after < 0:
                raise BoomError("extend")
            return super().extend(request)

    closes(Yard(Busy(), block_hasher=Fused(4)), BoomError)
    assert fuse.after < 0


def test_features_are_ours_and_have_no_hook_that_is_not_tested() -> None:
    assert hooks_of(FeatureHook) == [
        *("check_request", "request_added", "request_admitted", "request_preempted", "request_aborted"),
        *("request_reset", "step_planned"),
    ]


class Model:
    """Answers 7 for everybody."""

    def execute_model(self, plan: SchedulerOutput) -> None: ...

    def sample_tokens(self, plan: SchedulerOutput, grammar: object) -> DoneStep:
        return DoneStep(ModelOutput.from_lists([[7]] * len(plan.req_ids)))

    def take_draft_token_ids(self) -> None: ...

    def shutdown(self) -> None: ...


@pytest.mark.parametrize(
    ("moment", "told"),
    [("check_request", ["submit it again"]), ("request_added", ["the engine has ended, make another"])],
)
def test_a_feature_hook_that_raises_closes_the_core_unless_it_only_checks(moment: str, told: list[str]) -> None:
    hook = Hook()
    Fuse().arm(hook, moment)
    hooks = [type("Fused", (FeatureHook,), {moment: lambda self, *given: getattr(hook, moment)(*given)})()]
    core = EngineCore(Scheduler(SchedulerConfig(), CacheConfig(num_gpu_blocks=9), hooks=hooks), Model())
    core.submit(Request("a", [1, 2, 3]))
    with pytest.raises(BoomError):
        core.step()
    assert [str(each).rpartition(": ")[2] for each in core.take_refused()] == told
    core.submit(Request("b", [1, 2, 3]))
    if moment == "check_request":
        assert [news.request_id for news in core.step() or ()] == ["b"]
    else:
        with pytest.raises(EngineDeadError, match="BoomError"):
            core.step()


_READS = {
    *("check_invariants", "get_grammar_bitmask", "get_kv_connector", "get_num_unfinished_requests", "num_blocks_of"),
    *("get_request_counts", "has_finished_requests", "has_requests", "has_unfinished_requests", "next_moment"),
    "standstill",
}


def test_every_call_that_changes_the_scheduler_is_guarded() -> None:
    public = {name for name, each in vars(Scheduler).items() if name[0] != "_" and callable(each)}
    guarded = {name for name in public if hasattr(vars(Scheduler)[name], "__wrapped__")}
    assert public - guarded == _READS, "what changes anything is a one_call, checked_call or closing_call"


def test_the_error_says_where_it_was_raised() -> None:
    fuse = Fuse(2)
    yard = Yard(Busy(lambda queue: fuse.arm(queue, "add")))
    with pytest.raises(BoomError):
        yard.run()
    with pytest.raises(
        EngineDeadError, match=r"BoomError: add broke add_request\(\) off .* \(in fused, .*test_hooks\.py"
    ):
        yard.scheduler.schedule()
