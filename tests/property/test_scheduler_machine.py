"""Whatever happens in whatever order, every decision can be executed and no client gets a wrong token.

Hypothesis adds, schedules, updates, aborts, resets and pauses at will, on pools so small that preemption is common.
After every rule the scheduler's own invariants are checked, and beside them a worker that executes every step in a
memory of its own (``tests/support/worker.py``) and a ledger of what clients must see (``tests/support/reference.py``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from random import Random
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support.machines import TALLIES, Floor, machine_test
from tests.support.plans import KeptPlans
from tests.support.profiles import VLLM_0_22
from tests.support.reference import Ledger
from tests.support.servable import must_be_accepted, must_be_refused
from tests.support.toy_engine import Watcher, snapshot
from tests.support.worker import StatelessWorker, Worker

from tokenyard.core.config import (
    CacheConfig,
    GroupKind,
    HashAlgo,
    KVCacheGroup,
    MambaCacheMode,
    PauseState,
    SchedulerConfig,
    SpeculativeConfig,
    SpeculativeMethod,
)
from tokenyard.core.engine import EngineCore
from tokenyard.core.request import MultiModalItem, Request, RequestStatus, SamplingParams
from tokenyard.core.sched.features.grammars import GrammarOutput
from tokenyard.core.sched.outcomes import OutcomeKind, Reason
from tokenyard.core.sched.outputs import DraftTokens, ModelOutput
from tokenyard.core.sched.scheduler import Scheduler
from tokenyard.core.sched.scheduler_output import SchedulerOutput
from tokenyard.errors import RequestError

EOS, STOP, VOCABULARY = 0, 1, 12
LONGEST_SILENCE = 300
"""Steps: far more than the longest prompt takes to compute with a budget of one token, twice over."""

SEEDS = st.integers(0, 2**32 - 1)
"""Settings, requests and sampled tokens are drawn evenly from a seed; hypothesis chooses and shortens what happens."""


def draw_limits(random: Random) -> dict[str, Any]:
    limits: dict[str, Any] = {
        "profile": VLLM_0_22,  # what the checks below expect of resets, thresholds and stops
        "max_num_seqs": random.randint(1, 8),
        "max_num_batched_tokens": random.randint(1, 48),
        "max_model_len": random.randint(8, 40),
        "policy": random.choice(["fcfs", "priority"]),
        "long_prefill_token_threshold": random.choice([0, 0, 0, 1, 3, 7]),
        "scheduler_reserve_full_isl": random.choice([False, False, True]),
        "max_loras": random.choice([0, 0, 0, 1, 2]),
        "enable_chunked_prefill": random.random() < 0.7,
        "skip_oversized_prefill": random.random() < 0.5,
        "rolled_back_work_stays_cached": False,  # else hits can be on what was never computed, as in vLLM 0.22
    }
    if not limits["enable_chunked_prefill"]:
        limits["max_num_batched_tokens"] = max(limits["max_num_batched_tokens"], limits["max_model_len"])
    return limits


def draw_cache(random: Random, max_model_len: int) -> dict[str, Any]:
    """A pool that holds the longest request, often little more, seldom one block less."""
    block_size = random.randint(1, 8)
    return {
        "block_size": block_size,
        "num_gpu_blocks": 1 - (-max_model_len // block_size) + random.randint(-1, 12),
        "enable_prefix_caching": random.random() < 0.75,
        "prefix_caching_hash_algo": random.choice(list(HashAlgo)),
        "watermark": random.choice([0.0, 0.0, 0.0, 0.0, 0.1, 0.5, 1.0]),
    }


def draw_request(name: str, number: int, random: Random, **more: Any) -> Request:
    """Its prompt begins with some tokens of one of two texts and ends with tokens of its own."""
    first, shared, own = random.choice([100, 200]), random.randint(0, 24), random.choice([0, 0, 1, 3, 6])
    tokens = [*range(first, first + shared), *[1000 + number] * max(own, shared == 0)]
    max_tokens = random.randint(1, 20)
    params = SamplingParams(
        max_tokens=max_tokens,
        min_tokens=min(random.choice([0, 0, 0, 1, 3]), max_tokens),
        eos_token_id=random.choice([None, EOS]),
        ignore_eos=random.random() < 0.3,
        stop_token_ids=random.choice([(), (), (STOP,), (STOP, EOS), (*range(2000, 2006), STOP, EOS, 2006)]),
        skip_reading_prefix_cache=random.random() < 0.1,
    )
    return Request(
        name,
        tokens,
        params,
        priority=random.randrange(4),
        # Of requests that agree in priority and arrival the victim is the first, as in vLLM; that can go on for ever.
        arrival_time=random.randrange(3) + number / 1000,
        lora_name=random.choice([None] * 5 + ["x", "y", "z"]),
        cache_salt=random.choice([None] * 5 + ["salt"]),
        **more,
    )


class Flight(NamedTuple):
    """A step whose output has not come back yet."""

    output: SchedulerOutput
    resets: list[int]
    """Per request, how often it had been reset when the step was made."""
    ledgers: list[Ledger]


class MachineExecutor:
    """Runs a step on the machine's worker when its output is taken in: until then it is never done."""

    def __init__(self, machine: SchedulerMachine) -> None:
        self.machine = machine
        self.random = Random(0)
        self.sampled: list[list[int]] = []

    def execute_model(self, plan: SchedulerOutput) -> None:
        self.plan = plan

    def sample_tokens(self, plan: SchedulerOutput, grammar: GrammarOutput | None) -> MachineStep:
        assert grammar is None
        return MachineStep(self, plan)

    def run(self, plan: SchedulerOutput) -> ModelOutput:
        self.num_rows = len(plan.req_ids)
        sample = self.machine.sample
        self.sampled = self.machine.worker.execute(plan, lambda name, drafts: sample(self.random, drafts))
        return ModelOutput.from_lists(self.sampled)

    def take_draft_token_ids(self) -> DraftTokens:
        assert self.machine.speculative is not None
        random, most = self.random, self.machine.speculative.num_speculative_tokens
        rows = range(self.num_rows)
        drafts = [[random.randrange(VOCABULARY) for _ in range(random.randint(0, most))] for _ in rows]
        return DraftTokens.from_lists(drafts)

    def shutdown(self) -> None:
        pass


class MachineStep(NamedTuple):
    """A step in flight."""

    executor: MachineExecutor
    plan: SchedulerOutput

    def done(self) -> bool:
        return False

    def result(self) -> ModelOutput:
        return self.executor.run(self.plan)


class SchedulerMachine(RuleBasedStateMachine):
    """Steps in flight: at most one, with async scheduling two."""

    speculative: SpeculativeConfig | None = None
    depth = 1
    fixed_limits: Mapping[str, Any] = {}
    fixed_cache: Mapping[str, Any] = {}

    def __init__(self) -> None:
        super().__init__()
        self.flights: deque[Flight] = deque()
        self.plans = KeptPlans()
        self.ledgers: dict[str, Ledger] = {}
        self.watcher = Watcher()
        self.counter = 0

    @initialize(seed=SEEDS)
    def build(self, seed: int) -> None:
        TALLIES[type(self)].runs += 1
        random = Random(seed)
        self.config = SchedulerConfig(**{**draw_limits(random), **self.fixed_limits}, async_scheduling=self.depth > 1)
        self.cache = self.draw_cache(random)
        note(f"{self.config}\n{self.cache}")
        self.scheduler = Scheduler(self.config, self.cache, observer=self.watcher, speculative_config=self.speculative)
        self.worker = Worker(self.cache)
        self.executor = MachineExecutor(self)
        self.core = EngineCore(self.scheduler, self.executor, depth=self.depth)
        self.add([seed], steps=0)  # whatever rules hypothesis leaves out of this run, it has a request

    def draw_cache(self, random: Random) -> CacheConfig:
        return CacheConfig(**{**draw_cache(random, self.config.max_model_len), **self.fixed_cache})

    # ---- arrivals

    @rule(seeds=st.lists(SEEDS, min_size=1, max_size=4), steps=st.integers(0, 3))
    def add(self, seeds: list[int], steps: int) -> None:
        """Requests arrive, with some steps after each of them."""
        for seed in seeds:
            self.counter += 1
            request = self.draw_request(Random(seed))
            self._add(request)
            for step in range(steps):
                self.turn(seed + step)

    def draw_request(self, random: Random) -> Request:
        return draw_request(f"r{self.counter}", self.counter, random)

    def _add(self, request: Request) -> None:
        """What memory certainly suffices for is accepted, what can need more is refused; between, both are right."""
        settings = (request, self.config, self.cache, self.speculative)
        if must_be_refused(*settings):
            self._refuse(request)
            return
        before = snapshot(self.scheduler)
        try:
            self.scheduler.add_request(request)
        except RequestError:
            assert not must_be_accepted(*settings), "it could have been served"
            assert snapshot(self.scheduler) == before, "a refused request left traces"
            TALLIES[type(self)].refused += 1
            return
        TALLIES[type(self)].accepted += 1
        self.ledgers[request.request_id] = Ledger(request, self.config.max_model_len)

    def _refuse(self, request: Request) -> None:
        TALLIES[type(self)].refused += 1
        before = snapshot(self.scheduler)
        with pytest.raises(RequestError):
            self.scheduler.add_request(request)
        assert snapshot(self.scheduler) == before, "a refused request left traces"

    @precondition(lambda self: self._live())
    @rule(pick=st.integers(0, 50))
    def add_twice(self, pick: int) -> None:
        live = self._live()
        self._refuse(Request(live[pick % len(live)], [5]))

    # ---- steps

    @rule(seeds=st.lists(SEEDS, min_size=1, max_size=12))
    def run(self, seeds: list[int]) -> None:
        """Several steps with nothing in between."""
        for seed in seeds:
            self.turn(seed)

    def turn(self, seed: int) -> None:
        """As an engine does it: fill the pipeline, then take in the oldest output."""
        while len(self.flights) < self.depth and self.scheduler.has_requests():
            self.schedule_one()
        if self.flights:
            self.update_one(seed)
        self.everything_adds_up()

    @precondition(lambda self: len(self.flights) < self.depth)
    @rule()
    def schedule(self) -> None:
        self.schedule_one()

    @precondition(lambda self: self.flights)
    @rule(seed=SEEDS)
    def update(self, seed: int) -> None:
        self.update_one(seed)

    def schedule_one(self) -> None:
        running = [request.request_id for request in self.scheduler.running]
        if not self.scheduler.has_requests():
            return
        self.core.fill()
        output = self.executor.plan
        self.plans.keep(output)
        TALLIES[type(self)].steps += bool(output.total_num_scheduled_tokens)
        ledgers = [self.ledgers[request_id] for request_id in output.req_ids]
        self.flights.append(Flight(output, [ledger.num_resets for ledger in ledgers], ledgers))
        self._check_grants(output)
        self._check_reasons(output, running)
        self.check_progress(running)

    def _check_grants(self, output: SchedulerOutput) -> None:
        granted = output.num_new_tokens.tolist()
        budget = 0 if self.scheduler.pause_state is PauseState.PAUSED_ALL else self.config.max_num_batched_tokens
        assert sum(granted) == output.total_num_scheduled_tokens <= budget
        assert all(count > 0 for count in granted)
        threshold = self.config.long_prefill_token_threshold
        assert not threshold or all(count <= threshold for count in granted)
        ends = (output.num_computed + output.num_new_tokens).tolist()
        assert all(end <= self.config.max_model_len - 1 for end in ends), "the last position is never computed"
        assert len(set(output.req_ids)) == len(output.req_ids)
        assert len(self.scheduler.running) <= self.config.max_num_seqs
        assert not set(output.req_ids) & set(output.preempted_req_ids)

    def check_progress(self, ran: list[str]) -> None:
        """The livelock detector: unless a connector still holds blocks, the next step must be the way out."""
        scheduler, ended = self.scheduler, self.watcher.outcomes.admission
        waiting = [*scheduler.waiting, *scheduler.skipped_waiting]
        if ran or scheduler.running or not waiting:
            return
        loading = any(request.status is RequestStatus.WAITING_FOR_REMOTE_KVS for request in waiting)
        if not loading and not scheduler.has_finished_requests():
            assert ended is not None
            skipped = {each.reason for each in self.watcher.outcomes.skipped}
            undecided = Reason.CONNECTOR_UNDECIDED in skipped
            assert undecided or ended.kind is OutcomeKind.NOT_ENTERED, "nothing runs, and none will ever be admitted"

    def _check_reasons(self, output: SchedulerOutput, running: list[str]) -> None:
        """No request is left out without a reason, and its numbers are those of the moment."""
        outcomes, scheduler = self.watcher.outcomes, self.scheduler
        scheduled = list(output.req_ids[: output.num_running])
        passed_over = {each.request_id for each in outcomes.not_scheduled}
        preempted = {each.request_id for each in outcomes.preemptions}
        assert preempted == set(output.preempted_req_ids)
        assert set(running) == set(scheduled) | passed_over | preempted
        assert not set(scheduled) & (passed_over | preempted)
        ended = outcomes.admission
        assert ended is not None
        skipped = {each.request_id for each in outcomes.skipped}
        waiting = [*scheduler.waiting, *scheduler.skipped_waiting]
        assert ended.num_requests == len(waiting) - len(skipped), "a request waits without a reason"
        held_back = [request for request in waiting if request.request_id not in skipped]
        left = self.config.max_num_batched_tokens - output.total_num_scheduled_tokens
        if ended.reason is Reason.QUEUES_EMPTY:
            assert not held_back
        elif ended.reason is Reason.TOKEN_BUDGET:
            assert left == 0
        elif ended.reason is Reason.MAX_NUM_SEQS:
            assert len(scheduler.running) == self.config.max_num_seqs
        elif ended.reason is Reason.PREEMPTED_THIS_STEP:
            assert preempted
        elif ended.reason is Reason.PAUSED:
            assert scheduler.pause_state is not PauseState.UNPAUSED
        elif ended.reason is Reason.MAMBA_STATE_NOT_READY:
            assert ended.kv is None
        elif ended.reason is Reason.MAMBA_ALIGNMENT:
            assert ended.wanted_tokens < self.cache.block_size
            assert ended.wanted_tokens <= ended.budget_left == left
        elif ended.reason is Reason.ENCODER_BUDGET:
            assert ended.budget_left < self.config.max_num_encoder_input_tokens
        elif ended.reason is Reason.PREFILL_EXCEEDS_BUDGET:
            assert ended.wanted_tokens > ended.budget_left == left
        else:
            assert ended.kv is not None
            assert ended.kv.missing > 0
            assert ended.kv.free == scheduler.num_free_blocks
            assert ended.kv.cached_hits <= ended.kv.needed
            size = self.cache.tokens_per_block
            whole = min(-(-request.num_tokens // size) for request in held_back)
            assert ended.smallest_need == min(whole, ended.kv.needed), "of the head, what it was asked for"
        assert (ended.kind is OutcomeKind.NOT_ENTERED) == (ended.reason in (Reason.PREEMPTED_THIS_STEP, Reason.PAUSED))

    def update_one(self, seed: int) -> None:
        flight, self.executor.random = self.flights.popleft(), Random(seed)
        result = self.core.take_in()
        sampled = self.executor.sampled
        news = [
            ledger.accept(tokens)
            for ledger, tokens, resets in zip(flight.ledgers, sampled, flight.resets, strict=True)
            if tokens and not ledger.ended and not self._stale(ledger, resets)
        ]
        assert list(result) == news
        for ledger in flight.ledgers:
            assert ledger.request.all_token_ids == ledger.stream

    def _stale(self, ledger: Ledger, resets: int) -> bool:
        """With several steps in flight, a reset makes the outputs of steps made before it worthless."""
        return self.depth > 1 and ledger.num_resets != resets

    @staticmethod
    def sample(random: Random, drafts: list[int]) -> list[int]:
        return [*drafts[: random.randint(0, len(drafts))], random.randrange(VOCABULARY)]

    # ---- endings, resets, pauses

    @precondition(lambda self: self._live())
    @rule(picks=st.lists(st.integers(0, 50), min_size=1, max_size=3))
    def abort(self, picks: list[int]) -> None:
        live = self._live()
        ids = list(dict.fromkeys(live[pick % len(live)] for pick in picks))
        assert [request.request_id for request in self.scheduler.finish_requests(ids)] == ids
        for request_id in ids:
            self.ledgers[request_id].ended = True

    @rule()
    def abort_nobody(self) -> None:
        before = snapshot(self.scheduler)
        with pytest.raises(RequestError):
            self.scheduler.finish_requests([*self._live(), "nobody"])
        assert snapshot(self.scheduler) == before

    @precondition(lambda self: len(self.flights) < self.depth)
    @rule()
    def reset_in_flight(self) -> None:
        """Between schedule and update."""
        self.schedule_one()
        self.reset(running=True)

    @rule(running=st.booleans())
    def reset_cache(self, running: bool) -> None:
        self.reset(running=running)

    def reset(self, *, running: bool) -> None:
        idle = not self.scheduler.running
        if running:
            for request in self.scheduler.running:
                self.ledgers[request.request_id].num_resets += 1
        assert self.scheduler.reset_prefix_cache(reset_running_requests=running) is (running or idle)
        if running or idle:
            assert self.scheduler.num_cached_blocks == 0

    @rule(state=st.sampled_from([PauseState.UNPAUSED, PauseState.UNPAUSED, *PauseState]))
    def pause(self, state: PauseState) -> None:
        self.scheduler.set_pause_state(state)

    # ---- always

    def _live(self) -> list[str]:
        return [request_id for request_id, ledger in self.ledgers.items() if not ledger.ended]

    @invariant()
    def everything_adds_up(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        scheduler = self.scheduler
        scheduler.check_invariants()
        self.plans.check()
        places = [*scheduler.running, *scheduler.waiting, *scheduler.skipped_waiting]
        assert sorted(request.request_id for request in places) == sorted(self._live())
        verified = [flight.output.scheduled_spec_decode_tokens for flight in self.flights]
        for request in places:
            in_flight = sum(len(drafts.get(request.request_id, ())) for drafts in verified)
            known = request.num_tokens + request.num_output_placeholders + in_flight
            assert request.num_computed_tokens <= known
        if not scheduler.running:
            assert scheduler.num_free_blocks == scheduler.num_total_blocks - 1

    def teardown(self) -> None:
        """Whatever is left can be finished; steps without news are all right, a long row of them is not."""
        if not hasattr(self, "scheduler"):
            return
        self.scheduler.set_pause_state(PauseState.UNPAUSED)
        silent = 0
        while self.scheduler.has_requests() or self.flights:
            told = sum(len(ledger.output) for ledger in self.ledgers.values())
            self.turn(seed=told)
            silent = 0 if told < sum(len(ledger.output) for ledger in self.ledgers.values()) else silent + 1
            assert silent < LONGEST_SILENCE, f"{len(self._live())} requests hang"
        assert self._live() == []
        assert self.scheduler.num_free_blocks == self.scheduler.num_total_blocks - 1


class PressureMachine(SchedulerMachine):
    """Much runs at once, so that victims are often found among requests that this very step has served."""

    fixed_limits = MappingProxyType(
        {"policy": "priority", "max_num_seqs": 6, "scheduler_reserve_full_isl": False, "max_loras": 0}
    )
    fixed_cache = MappingProxyType({"watermark": 0.0})


class SpeculativeMachine(SchedulerMachine):
    """Up to three drafts per request and step."""

    speculative = SpeculativeConfig(num_speculative_tokens=3)


class EagleMachine(SchedulerMachine):
    """Drafts with KV of their own, and the last hit computed again."""

    speculative = SpeculativeConfig(num_speculative_tokens=2, method=SpeculativeMethod.EAGLE)


class AsyncMachine(SchedulerMachine):
    """Two steps in flight."""

    depth = 2


class HybridMachine(SchedulerMachine):
    """Layers that differ: positions outside a window lose their blocks, a hit has to serve every group."""

    def draw_cache(self, random: Random) -> CacheConfig:
        full = KVCacheGroup()
        coarse = KVCacheGroup(block_size=2 * random.choice([1, 2, 4]))
        window, other = (KVCacheGroup(kind=GroupKind.SLIDING_WINDOW, window=random.randint(1, 20)) for _ in range(2))
        size = random.randint(1, 6)
        # Where chunks are not whole blocks, vLLM's hits can end within a chunk of which nothing is there; so do ours.
        chunks = KVCacheGroup(kind=GroupKind.CHUNKED_LOCAL, window=size * random.randint(1, 6))
        groups = random.choice([(full, window), (full, window, other), (window,), (full, chunks), (coarse, window)])
        size = random.choice([1, 2, 4]) if coarse in groups else size
        settings = draw_cache(random, self.config.max_model_len) | {"block_size": size, "groups": groups}
        longest = len(groups) * (2 - (-self.config.max_model_len // size))
        return CacheConfig(**settings | {"num_gpu_blocks": longest + random.randint(-2, 20)})


class HybridDraftsMachine(HybridMachine):
    """Windows with lookahead slots for the drafts of a second model."""

    speculative = SpeculativeConfig(num_speculative_tokens=3, method=SpeculativeMethod.DRAFT_MODEL)


class RecurrentMachine(HybridMachine):
    """Layers with a state, which is read where the last step left it."""

    fixed_limits = MappingProxyType({"enable_chunked_prefill": True, "long_prefill_token_threshold": 0})

    def draw_cache(self, random: Random) -> CacheConfig:
        size = random.randint(1, min(8, self.config.max_num_batched_tokens))
        full, state = KVCacheGroup(), KVCacheGroup(kind=GroupKind.MAMBA)
        window = KVCacheGroup(kind=GroupKind.SLIDING_WINDOW, window=random.randint(1, 20))
        mode = random.choice([*MambaCacheMode, MambaCacheMode.ALIGN])
        if mode is MambaCacheMode.NONE:
            state = KVCacheGroup(kind=GroupKind.MAMBA, block_size=random.choice([size, self.config.max_model_len]))
        groups = random.choice([(state,), (full, state), (state, full), (full, state, state), (full, state, window)])
        settings = draw_cache(random, self.config.max_model_len)
        settings |= {"block_size": size, "groups": groups, "mamba_cache_mode": mode}
        longest = len(groups) * (2 - (-self.config.max_model_len // size))
        return CacheConfig(
            **settings
            | {
                "num_gpu_blocks": max(2, longest + random.randint(-longest // 2, 12)),
                "enable_prefix_caching": mode is not MambaCacheMode.NONE,
            }
        )


class RecurrentAsyncMachine(RecurrentMachine):
    """The state that a step reads is written by the one before it, which is still in flight."""

    depth = 2


class RecurrentDraftsMachine(RecurrentMachine):
    """With drafts, each of which has a state of its own; the worker does not follow these."""

    speculative = SpeculativeConfig(num_speculative_tokens=2)

    @initialize(seed=SEEDS)
    def build(self, seed: int) -> None:
        super().build(seed)
        self.worker = StatelessWorker(self.cache)


class EncoderDecoderMachine(HybridMachine):
    """What an encoder has read has blocks of its own."""

    fixed_limits = MappingProxyType(
        {
            "enable_chunked_prefill": False,
            "long_prefill_token_threshold": 0,
            "max_num_batched_tokens": 48,
            "max_num_encoder_input_tokens": 30,
        }
    )

    def draw_cache(self, random: Random) -> CacheConfig:
        cross = KVCacheGroup(kind=GroupKind.CROSS_ATTENTION, block_size=random.choice([0, 3, 16]))
        groups = random.choice([(KVCacheGroup(), cross), (cross, KVCacheGroup())])
        settings = draw_cache(random, self.config.max_model_len)
        more = {"groups": groups, "enable_prefix_caching": False, "num_gpu_blocks": settings["num_gpu_blocks"] + 8}
        return CacheConfig(**settings | more)

    def draw_request(self, random: Random) -> Request:
        length = random.choice([0, 1, 7, 16, 30])
        speech = MultiModalItem(mm_hash=f"speech {self.counter}", offset=0, length=max(1, length), cross=True)
        return draw_request(f"r{self.counter}", self.counter, random, mm_features=[speech] if length else [])


class RanksMachine(SchedulerMachine):
    """Blocks that hold a part on each of several ranks."""

    fixed_cache = MappingProxyType({"decode_context_parallel_size": 2, "prefill_context_parallel_size": 2})


TestScheduler = machine_test(SchedulerMachine, Floor(accepted=1, steps=3), max_examples=250)
TestPressure = machine_test(PressureMachine, Floor(accepted=1, steps=3), max_examples=150)
TestSpeculative = machine_test(SpeculativeMachine, Floor(accepted=1, steps=3), max_examples=100)
TestEagle = machine_test(EagleMachine, Floor(accepted=1, steps=3), max_examples=60)
TestAsync = machine_test(AsyncMachine, Floor(accepted=1, steps=3), max_examples=100)
TestHybrid = machine_test(HybridMachine, Floor(accepted=1, steps=3), max_examples=100)
TestHybridDrafts = machine_test(HybridDraftsMachine, Floor(accepted=1, steps=3), max_examples=60)
TestRecurrent = machine_test(RecurrentMachine, Floor(accepted=1, steps=3), max_examples=100)
TestRecurrentAsync = machine_test(RecurrentAsyncMachine, Floor(accepted=1, steps=3), max_examples=50)
TestRecurrentDrafts = machine_test(RecurrentDraftsMachine, Floor(accepted=1, steps=3), max_examples=50)
TestEncoderDecoder = machine_test(EncoderDecoderMachine, Floor(accepted=1, steps=3), max_examples=60)
TestRanks = machine_test(RanksMachine, Floor(accepted=1, steps=3), max_examples=100)
