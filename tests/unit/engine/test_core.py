"""The step loop: what is in flight when, and what the executor is asked, in which order."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Thread
from typing import Any

import pytest
from tests.support.profiles import VLLM_0_33
from tests.support.toy_engine import make_request

from tokenyard.core.config import CacheConfig, PauseState, SchedulerConfig, SpeculativeConfig, SpeculativeMethod
from tokenyard.core.engine import EngineCore, Filling, PauseMode
from tokenyard.core.request import FinishReason, Request, RequestStatus
from tokenyard.core.sched.connector import KVConnector, Match
from tokenyard.core.sched.deadlocks import STUCK_AFTER
from tokenyard.core.sched.features.grammars import GrammarOutput
from tokenyard.core.sched.outputs import DraftTokens, ModelOutput
from tokenyard.core.sched.policy import Policy
from tokenyard.core.sched.scheduler import Scheduler
from tokenyard.core.sched.scheduler_output import SchedulerOutput
from tokenyard.errors import ConfigError, EngineDeadError, PolicyError, RequestError, StuckError


class Late:
    """A step whose end the test decides on."""

    def __init__(self, output: ModelOutput) -> None:
        self.output = output
        self.is_done = False

    def done(self) -> bool:
        return self.is_done

    def result(self) -> ModelOutput:
        return self.output


class Workers:
    """Answers 7 for everybody, and writes down what it was asked."""

    def __init__(self, drafts: int = 0) -> None:
        self.calls: list[str] = []
        self.futures: list[Late] = []
        self.drafts = drafts
        self.rows = 0
        self.fails = False
        self.done_at_once = False

    def execute_model(self, plan: SchedulerOutput) -> None:
        self.calls.append(f"execute {plan.step}")
        self.rows = len(plan.req_ids)

    def sample_tokens(self, plan: SchedulerOutput, grammar: GrammarOutput | None) -> Late:
        names = "" if grammar is None else " " + ",".join(grammar.structured_output_request_ids)
        self.calls.append(f"sample {plan.step}{names}")
        chunks = plan.is_prefill_chunk
        rows = [[] if chunks is not None and chunks[row] else [7] for row in range(len(plan.req_ids))]
        self.futures.append(Late(ModelOutput.from_lists(rows)))
        self.futures[-1].is_done = self.done_at_once
        if self.fails:
            raise RuntimeError("the device is gone")
        return self.futures[-1]

    def take_draft_token_ids(self) -> DraftTokens | None:
        self.calls.append("drafts")
        return DraftTokens.from_lists([[8] * self.drafts] * self.rows) if self.drafts else None

    def shutdown(self) -> None:
        self.calls.append("shutdown")


class Anything:
    """A grammar that allows everything."""

    is_ready = True

    def accept_tokens(self, tokens: Sequence[int]) -> bool:
        return True

    def validate_tokens(self, tokens: Sequence[int]) -> list[int]:
        return list(tokens)

    def bitmask(self, drafts: Sequence[int]) -> object:
        import numpy as np  # noqa: PLC0415

        return np.full((1 + len(drafts), 1), -1, np.int32)


def engine(
    *, is_async: bool = False, drafts: int = 0, filling: Filling | str = Filling.RETURN_EARLY, **settings: Any
) -> tuple[EngineCore, Workers]:
    config = SchedulerConfig(**{"max_model_len": 64, "async_scheduling": is_async, **settings})
    method = SpeculativeMethod.NGRAM_GPU if is_async else SpeculativeMethod.NGRAM
    spec = SpeculativeConfig(num_speculative_tokens=drafts, method=method) if drafts else None
    workers = Workers(drafts)
    scheduler = Scheduler(config, CacheConfig(num_gpu_blocks=50, block_size=4), speculative_config=spec)
    return EngineCore(scheduler, workers, filling=filling), workers


def test_one_step_at_a_time() -> None:
    core, workers = engine()
    assert core.step() is None
    assert not core.has_work
    core.add_request(make_request("a", 4, max_tokens=2))
    first, second, last = core.step(), core.step(), core.step()
    assert [[news.new_token_ids for news in outputs or ()] for outputs in (first, second, last)] == [[[7]], [[7]], []]
    assert workers.calls == ["execute 0", "sample 0", "execute 1", "sample 1", "execute 2", "sample 2"]
    assert not core.has_work
    assert core.step() is None


def test_the_pipeline_is_filled_before_an_output_is_taken_in() -> None:
    core, workers = engine(is_async=True)
    core.add_request(make_request("a", 4, max_tokens=9))
    assert core.step() is None
    assert core.num_in_flight == 1
    outputs = core.step()
    assert outputs is not None
    assert outputs.step == 0
    assert core.num_in_flight == 1
    assert workers.calls == ["execute 0", "sample 0", "execute 1", "sample 1"]


@pytest.mark.parametrize(("filling", "taken"), [(Filling.RETURN_EARLY, True), (Filling.FILL_FIRST, False)])
def test_an_output_that_is_there_is_taken_in_early_as_in_0_22(filling: Filling, taken: bool) -> None:
    core, workers = engine(is_async=True, filling=filling)
    workers.done_at_once = True
    core.add_request(make_request("a", 4, max_tokens=9))
    assert (core.step() is not None) is taken
    assert core.num_in_flight == (0 if taken else 1)


def test_an_empty_step_is_not_waited_behind_while_others_may_be_scheduled() -> None:
    """Both rules take the oldest output in when nothing was scheduled and no request is left."""
    for filling in Filling:
        core, _ = engine(is_async=True, filling=filling)
        core.add_request(make_request("a", 4, max_tokens=1))
        core.step()
        assert core.step() is not None, "the second step is empty: its one token is on its way"


def test_a_step_by_grammar_waits_for_the_tokens_before_it() -> None:
    core, workers = engine(is_async=True)
    core.add_request(make_request("a", 4, max_tokens=3, structured_output=Anything()))
    core.step()
    core.step()
    assert workers.calls == ["execute 0", "sample 0 a", "execute 1", "sample 1 a"]
    assert core.num_in_flight == 1
    core.fill()
    assert workers.calls[-1] == "execute 2", "its bitmask needs what step 1 samples"
    assert core.num_in_flight == 2
    core.take_in()
    assert workers.calls[-1] == "sample 2 a"


def test_drafts_are_asked_for_after_the_step_or_before_the_bitmask() -> None:
    core, workers = engine(drafts=2)
    core.add_request(make_request("a", 4, max_tokens=9))
    core.step()
    assert workers.calls == ["execute 0", "sample 0", "drafts"]
    assert core.scheduler.requests["a"].spec_token_ids == [8, 8]
    core, workers = engine(drafts=2, is_async=True)
    core.add_request(make_request("a", 4, max_tokens=9))
    core.step()
    core.step()
    assert "drafts" not in workers.calls, "with several steps in flight drafts never leave the workers"
    core.add_request(make_request("b", 4, max_tokens=9, structured_output=Anything()))
    for _ in range(3):
        core.step()
    assert workers.calls[-3:] == ["execute 4", "drafts", "sample 4 b"]


def test_drain_takes_in_and_schedules_nothing() -> None:
    core, workers = engine(is_async=True)
    core.add_request(make_request("a", 4, max_tokens=9))
    core.step()
    (outputs,) = core.drain()
    assert outputs.step == 0
    assert workers.calls == ["execute 0", "sample 0"]
    assert core.scheduler.requests["a"].num_output_tokens == 1


@pytest.mark.parametrize("mode", [*PauseMode, *map(str, PauseMode)], ids=repr)
def test_pauses(mode: PauseMode | str) -> None:
    core, _ = engine(max_num_seqs=1)
    for name in "ab":
        core.add_request(make_request(name, 4, max_tokens=3))
    core.step()
    aborted = core.pause(mode)
    expected = {
        PauseMode.ABORT: (["a", "b"], PauseState.PAUSED_NEW),
        PauseMode.WAIT: ([], PauseState.PAUSED_NEW),
        PauseMode.KEEP: ([], PauseState.PAUSED_ALL),
    }[PauseMode(mode)]
    assert ([request.request_id for request in aborted], core.scheduler.pause_state) == expected
    while core.has_work:
        core.step()
    left = {PauseMode.ABORT: set(), PauseMode.WAIT: {"b"}, PauseMode.KEEP: {"a", "b"}}[PauseMode(mode)]
    assert set(core.scheduler.requests) == left
    core.resume()
    while core.has_work:
        core.step()
    assert not core.scheduler.requests


def test_a_pause_of_no_known_kind() -> None:
    with pytest.raises(ConfigError, match="mode = 'later'"):
        engine()[0].pause("later")


def test_a_filling_by_its_value() -> None:
    with pytest.raises(ConfigError, match="filling = 'never'"):
        engine(filling="never")
    core, workers = engine(is_async=True, filling="fill_first")
    workers.done_at_once = True
    core.add_request(make_request("a", 4, max_tokens=9))
    assert core.step() is None, "a second step is scheduled first"


@pytest.mark.parametrize(("is_async", "depth"), [(False, 0), (True, 0), (False, -1)])
def test_depths_that_cannot_be(is_async: bool, depth: int) -> None:
    config = SchedulerConfig(max_model_len=64, async_scheduling=is_async)
    with pytest.raises(ConfigError, match="depth"):
        EngineCore(Scheduler(config, CacheConfig(num_gpu_blocks=9)), Workers(), depth=depth)


def test_other_threads_submit_and_abort() -> None:
    core, _ = engine()
    requests = [make_request(f"r{i}", 4, max_tokens=50) for i in range(40)]

    def client(mine: Sequence[Request]) -> None:
        for request in mine:
            core.submit(request)
            core.submit_abort([request.request_id, "never there"])

    threads = [Thread(target=client, args=(requests[i::4],)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    core.submit(make_request("twice", 4))
    core.submit(make_request("twice", 4))
    assert core.has_work
    core.step()
    assert {request.status for request in requests} == {RequestStatus.FINISHED_ABORTED}
    (refused,) = core.take_refused()
    assert (refused.request_id, refused.field) == ("twice", "request_id")
    assert core.take_refused() == []
    assert set(core.scheduler.requests) == {"twice"}


def test_other_threads_submit_and_abort_while_the_core_steps() -> None:
    config, cache = SchedulerConfig(max_num_seqs=4, max_model_len=64), CacheConfig(num_gpu_blocks=50, block_size=4)
    scheduler = Scheduler(config, cache, debug=True)
    core = EngineCore(scheduler, Workers())
    requests = [make_request(f"r{i}", 4, max_tokens=3 + i % 3) for i in range(60)]

    def client(mine: Sequence[Request]) -> None:
        for i, request in enumerate(mine):
            core.submit(request)
            if i % 3 == 0:
                core.submit_abort(request.request_id)

    threads = [Thread(target=client, args=(requests[i::4],)) for i in range(4)]
    for thread in threads:
        thread.start()
    told = {request.request_id: 0 for request in requests}
    while core.has_work or any(thread.is_alive() for thread in threads):
        for news in core.step() or ():
            told[news.request_id] += len(news.new_token_ids)
        scheduler.check_invariants()
    assert all(request.status.is_finished for request in requests)
    assert told == {request.request_id: request.num_output_tokens for request in requests}
    assert sum(request.status is RequestStatus.FINISHED_LENGTH_CAPPED for request in requests) >= 40


def test_aborts_are_seen_before_an_output_is_taken_in() -> None:
    core, _ = engine(is_async=True)
    core.add_request(make_request("a", 4, max_tokens=9))
    core.fill()
    core.submit_abort(["a"])
    assert list(core.take_in()) == []


def test_what_the_model_raises_leaves_the_step() -> None:
    core, workers = engine()
    core.add_request(make_request("a", 4))
    workers.fails = True
    with pytest.raises(RuntimeError, match="the device is gone"):
        core.step()
    core.shutdown()
    assert workers.calls[-1] == "shutdown"
    assert core.num_in_flight == 0


def test_a_reset_reaches_the_scheduler() -> None:
    core, _ = engine()
    core.add_request(make_request("a", 8, max_tokens=2))
    assert core.reset_prefix_cache()
    core.step()
    assert not core.reset_prefix_cache()
    assert core.reset_prefix_cache(reset_running_requests=True)


def test_an_answer_that_does_not_belong_is_asked_for_again() -> None:
    core, workers = engine()
    core.add_request(make_request("a", 4, max_tokens=2))
    core.fill()
    right, workers.futures[0].output = workers.futures[0].output, ModelOutput.from_lists([[7], [7]])
    for _ in range(2):
        with pytest.raises(ValueError, match="2 rows for 1 scheduled requests"):
            core.step()
        assert core.num_in_flight == 1
    workers.futures[0].output = right
    outputs = core.step()
    assert outputs is not None
    assert [news.new_token_ids for news in outputs] == [[7]]
    while core.has_work:
        core.step()
    assert workers.calls.count("execute 0") == 1


@pytest.mark.parametrize("is_async", [False, True])
def test_drafts_that_do_not_belong_close_the_engine(is_async: bool) -> None:
    core, workers = engine(is_async=is_async, drafts=1)
    core.add_request(make_request("a", 4, max_tokens=3, structured_output=Anything() if is_async else None))
    workers.drafts = 2
    with pytest.raises(ValueError, match="2 drafts for request 'a': give 0 to 1"):
        steps(core, 20)
    with pytest.raises(EngineDeadError, match="2 drafts for request 'a': give 0 to 1"):
        core.step()


def steps(core: EngineCore, number: int) -> None:
    for _ in range(number):
        core.step()


class Clumsy(Policy):
    """Raises at the second request, and whenever one ends."""

    def request_arrived(self, now: float, request: Request) -> None:
        if request.request_id == "b":
            raise KeyError(request.request_id)

    def keeps_blocks(self, now: float, request: Request) -> bool:
        raise LookupError(request.request_id)


@pytest.mark.parametrize(("names", "hook"), [("abc", "request_arrived"), ("ac", "keeps_blocks")])
def test_a_policy_that_raises_closes_the_core(names: str, hook: str) -> None:
    scheduler = Scheduler(SchedulerConfig(), CacheConfig(num_gpu_blocks=50, block_size=4), policy=Clumsy())
    core = EngineCore(scheduler, Workers())
    for name in names:
        core.submit(make_request(name, 4, max_tokens=2, job_id=name))
    with pytest.raises(PolicyError, match=rf"Clumsy\.{hook} raised \w+Error"):
        steps(core, 5)
    assert [each.request_id for each in core.take_refused()] == ["b"] * ("b" in names)
    assert core.death is not None
    for call in (core.step, core.drain, core.pause, lambda: core.abort_requests("a")):
        with pytest.raises(EngineDeadError, match=rf"Clumsy\.{hook} raised"):
            call()
    core.shutdown()


def test_only_ids_can_be_aborted_from_elsewhere() -> None:
    core, _ = engine()
    with pytest.raises(ConfigError, match="request_ids"):
        core.submit_abort([5])  # type: ignore[list-item]


@pytest.mark.parametrize("arguments", [{"depth": 1.5}, {"depth": True}, {"depth": "2"}, {"depth": 0}])
def test_a_depth_that_is_no_number_of_steps(arguments: dict[str, Any]) -> None:
    scheduler = Scheduler(SchedulerConfig(), CacheConfig(num_gpu_blocks=50, block_size=4))
    with pytest.raises(ConfigError, match=r"depth = .*whole number from 1 on"):
        EngineCore(scheduler, Workers(), **arguments)
    with pytest.raises(ConfigError, match="give a Scheduler"):
        EngineCore(Workers(), scheduler)  # type: ignore[arg-type]


# ---- grammars that fail


class Fails(Anything):
    """One method raises once."""

    def __init__(self, method: str) -> None:
        self.method = method
        self.num_calls = 0

    def _call(self, method: str) -> None:
        if method == self.method:
            self.num_calls += 1
            if self.num_calls == 1:
                raise KeyError(method)

    @property
    def is_ready(self) -> bool:  # type: ignore[override]
        self._call("is_ready")
        return True

    def bitmask(self, drafts: Sequence[int]) -> object:
        self._call("bitmask")
        return super().bitmask(drafts)

    def accept_tokens(self, tokens: Sequence[int]) -> bool:
        self._call("accept_tokens")
        return True

    def validate_tokens(self, tokens: Sequence[int]) -> list[int]:
        self._call("validate_tokens")
        return list(tokens)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("method", "drafts"),
    [*((name, n) for name in ("is_ready", "bitmask", "accept_tokens") for n in (0, 1)), ("validate_tokens", 1)],
)
def test_a_grammar_that_raises_once_costs_its_own_request_alone(method: str, drafts: int, is_async: bool) -> None:
    core, workers = engine(is_async=is_async, drafts=drafts)
    grammar = Fails(method)
    core.add_request(make_request("bound", 4, max_tokens=5, structured_output=grammar))
    core.add_request(make_request("other", 4, max_tokens=5, structured_output=Anything()))
    core.add_request(make_request("free", 4, max_tokens=5))
    told: dict[str, int] = {"bound": 0, "other": 0, "free": 0}
    reasons, errors = {}, []
    for _ in range(50):
        if not core.has_work:
            break
        outputs = core.step()
        core.scheduler.check_invariants()
        for news in outputs or ():
            if news.error is not None:
                errors.append((news.request_id, news.error.method, type(news.error.__cause__)))
            told[news.request_id] += len(news.new_token_ids)
            reasons[news.request_id] = news.finish_reason
    assert not core.has_work
    assert errors == [("bound", method, KeyError)]
    assert reasons == {"bound": FinishReason.ERROR, "other": FinishReason.LENGTH, "free": FinishReason.LENGTH}
    assert told["other"] == told["free"] == 5
    assert grammar.num_calls == 1, "it is not asked again"
    executed = [call for call in workers.calls if call.startswith("execute")]
    assert len(set(executed)) == len(executed), "no step is begun twice"
    assert core.scheduler.num_free_blocks == 49


def test_a_grammar_by_which_nobody_can_sample_is_refused() -> None:
    class Blind:
        is_ready = True

        def accept_tokens(self, tokens: Sequence[int]) -> bool:
            return True

        def validate_tokens(self, tokens: Sequence[int]) -> list[int]:
            return list(tokens)

    core, _ = engine()
    with pytest.raises(RequestError, match=r"structured_output = .*has no bitmask"):
        core.add_request(make_request("a", structured_output=Blind()))
    core.submit(make_request("b", structured_output=Blind()))
    assert core.step() is None
    assert [each.request_id for each in core.take_refused()] == ["b"]


# ---- ends


def test_an_executor_that_has_raised_is_not_asked_again() -> None:
    core, workers = engine()
    core.add_request(make_request("a", 4))
    workers.fails = True
    with pytest.raises(RuntimeError, match="the device is gone"):
        core.step()
    workers.fails = False
    for _ in range(2):
        with pytest.raises(
            EngineDeadError,
            match=r"RuntimeError: the device is gone broke step\(\) off .* \(in ",
        ) as caught:
            core.step()
        assert isinstance(caught.value.__cause__, RuntimeError)
    core.shutdown()


# ---- the drafts' contract


def test_drafts_are_those_of_the_step_that_was_begun_last() -> None:
    """With async scheduling a step is sampled from by grammars after it was begun: rows are its own requests."""
    core, workers = engine(is_async=True, drafts=2)
    core.add_request(make_request("bound", 4, max_tokens=9, structured_output=Anything()))
    core.step()
    core.add_request(make_request("new", 4, max_tokens=9))
    rows: list[int] = []
    take = workers.take_draft_token_ids

    def taken() -> DraftTokens | None:
        rows.append(workers.rows)
        return take()

    workers.take_draft_token_ids = taken  # type: ignore[method-assign]
    outputs = core.step()
    assert outputs is not None
    assert outputs.step == 0
    assert rows == [2], "of step 1, in which there are two requests; step 0 had one"
    assert workers.calls[-2:] == ["drafts", "sample 1 bound"]


def test_drafts_of_another_step_are_refused() -> None:
    core, workers = engine(is_async=True, drafts=2)
    core.add_request(make_request("bound", 4, max_tokens=9, structured_output=Anything()))
    core.step()
    core.add_request(make_request("new", 4, max_tokens=9))
    core.fill()
    workers.rows = 1  # as if they were those of step 0
    with pytest.raises(ValueError, match="1 rows of drafts, 1 counts for 2 requests"):
        core.step()


# ---- the watchdog


class Hoarder(Policy):
    """Keeps the blocks of everybody who has ended, and gives none back."""

    def keeps_blocks(self, now: float, request: Request) -> bool:
        return True


def stuck_engine(filling: Filling | None = None, **settings: Any) -> EngineCore:
    """One request has ended and holds the pool; the next one waits for ever."""
    config = SchedulerConfig(profile=VLLM_0_33, max_model_len=64, **settings)
    scheduler = Scheduler(config, CacheConfig(num_gpu_blocks=9, block_size=4), policy=Hoarder())
    core = EngineCore(scheduler, Workers(), filling=filling)
    core.add_request(make_request("first", 20, max_tokens=1, job_id="j"))
    while core.has_work:
        core.step()
    core.add_request(make_request("second", 20, max_tokens=1))
    core.add_request(make_request("third", 4, max_tokens=1))
    return core


def many_steps(core: EngineCore) -> None:
    for _ in range(2 * STUCK_AFTER):
        core.step()


@pytest.mark.parametrize("filling", Filling)
@pytest.mark.parametrize("is_async", [False, True])
def test_an_engine_that_does_not_move_says_at_whom_and_why(is_async: bool, filling: Filling) -> None:
    core = stuck_engine(async_scheduling=is_async, filling=filling)
    with pytest.raises(StuckError) as caught:
        many_steps(core)
    error = caught.value
    assert (error.request_id, error.reason, error.num_requests) == ("second", "kv_full_sequence", 2)
    assert error.num_steps >= STUCK_AFTER
    assert "(5 blocks needed, 3 free)" in str(error)
    assert "1 more wait with it: abort the request" in str(error)
    core.scheduler.check_invariants()
    core.abort_requests("second")
    told: dict[str, list[int]] = {}
    while core.has_work:
        told |= {news.request_id: news.new_token_ids for news in core.step() or ()}
    assert told == {"third": [7]}


def test_it_is_said_again_as_long_as_nobody_does_anything() -> None:
    core = stuck_engine()
    for _ in range(2):
        with pytest.raises(StuckError):
            many_steps(core)


class Later(Anything):
    is_ready = False


class Endless(KVConnector):
    """Its loads never end, and no request ever reads what it keeps; or it never knows what it has."""

    def __init__(self, waits: str) -> None:
        self.waits = waits

    def get_num_new_matched_tokens(self, request: Request, num_computed_tokens: int) -> Match:
        if self.waits == "a connector's answer":
            return Match(None)
        return Match(16, is_async=True) if self.waits == "a load" else Match(0)

    def request_finished(self, request: Request, blocks: Any) -> tuple[bool, None]:
        return self.waits == "a reader", None


@pytest.mark.parametrize("waits", ["a load", "a reader", "a connector's answer"])
def test_who_waits_for_a_connector_is_not_stuck(waits: str) -> None:
    cache = CacheConfig(num_gpu_blocks=9, block_size=4)
    scheduler = Scheduler(SchedulerConfig(profile=VLLM_0_33, max_model_len=64), cache, kv_connector=Endless(waits))
    core = EngineCore(scheduler, Workers())
    core.add_request(make_request("a", 20, max_tokens=1))
    core.step()
    core.add_request(make_request("b", 20, max_tokens=1))
    for _ in range(STUCK_AFTER + 100):
        core.step()
    assert "b" in scheduler.requests


@pytest.mark.parametrize("waits", ["a grammar", "a pause", "a new pause", "a session", "a policy with a clock"])
def test_who_waits_for_an_event_is_not_stuck(waits: str) -> None:
    now = [0.0]

    class Patient(Hoarder):
        def next_moment(self, now: float) -> float | None:
            return 1e9 if waits == "a policy with a clock" else None

    config = SchedulerConfig(profile=VLLM_0_33, max_model_len=64, max_num_seqs=2)
    scheduler = Scheduler(config, CacheConfig(num_gpu_blocks=9, block_size=4), policy=Patient(), clock=lambda: now[0])
    core = EngineCore(scheduler, Workers())
    if waits == "a grammar":
        core.add_request(make_request("a", structured_output=Later()))
    elif waits == "a session":
        core.add_request(make_request("a", 20, max_tokens=1, resumable=True))
        core.step()
        core.add_request(make_request("b", 20, max_tokens=1))
    elif waits == "a policy with a clock":
        core.add_request(make_request("a", 20, max_tokens=1, job_id="j"))
        core.step()
        core.add_request(make_request("b", 20, max_tokens=1))
    else:
        core.pause("keep" if waits == "a pause" else "wait")
        core.add_request(make_request("a"))
    for _ in range(STUCK_AFTER + 100):
        now[0] += 0.001
        core.step()
    assert core.scheduler.requests


def test_a_policys_moment_never_comes_where_the_clock_stands_still() -> None:
    class Patient(Hoarder):
        def next_moment(self, now: float) -> float | None:
            return now + 5

    scheduler = Scheduler(
        SchedulerConfig(profile=VLLM_0_33, max_model_len=64),
        CacheConfig(num_gpu_blocks=9, block_size=4),
        policy=Patient(),
    )
    core = EngineCore(scheduler, Workers())
    core.add_request(make_request("a", 20, max_tokens=1, job_id="j"))
    core.step()
    core.add_request(make_request("b", 20, max_tokens=1))
    with pytest.raises(StuckError, match="request 'b'"):
        many_steps(core)
