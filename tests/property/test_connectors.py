"""With KV kept elsewhere, every decision can be executed, no request reads another's KV, nothing is kept for ever.

The worker halves are the real ones, over the memory of the suspicious worker: what a tier brings back has to be what
the request's tokens say. Their transfers end some steps later, some fail, and requests are aborted meanwhile.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Any

from hypothesis import note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.property.test_scheduler_machine import SEEDS, MachineExecutor, SchedulerMachine, draw_cache, draw_limits
from tests.support.connector_engine import ConnectorEngine, DigestMemory
from tests.support.examples import examples
from tests.support.worker import Worker

from tokenyard.connectors.prefill_decode import OfferExchange, PrefillDecodeConnector, PrefillDecodeWorker
from tokenyard.connectors.tier_worker import BlockMemory, BlockStore, HostMemory, Tensors, TierWorker
from tokenyard.connectors.tiered import TieredConnector
from tokenyard.connectors.tiers import Address, CPUTier, Load, Store
from tokenyard.core.config import CacheConfig, SchedulerConfig
from tokenyard.core.engine import EngineCore
from tokenyard.core.request import FinishReason, Request, RequestStatus
from tokenyard.core.sched.outputs import ConnectorOutput, ModelOutput
from tokenyard.core.sched.scheduler import Scheduler
from tokenyard.core.sched.scheduler_output import SchedulerOutput

WAITING = RequestStatus.WAITING_FOR_REMOTE_KVS


class MoodyWorker(TierWorker):
    """Asynchronous jobs take some steps; a block fails to load now and then."""

    def __init__(self, memory: BlockMemory, store: BlockStore, seed: int) -> None:
        super().__init__(memory, store)
        self.random = Random(seed)
        self.fails = True
        self.later: list[tuple[int, Load | Store]] = []
        self.failed: set[str] = set()
        """Requests of which a block failed to load since the last look."""

    def begin(self, job: Load | Store) -> None:
        self.later.append((self.random.randrange(4), job))

    def report(self) -> ConnectorOutput | None:
        waiting, self.later = self.later, []
        for steps, job in waiting:
            if steps:
                self.later.append((steps - 1, job))
            else:
                super().begin(job)
        return super().report()

    def fetch(self, load: Load, source: Address) -> Tensors:
        if self.fails and self.random.random() < 0.2:
            self.failed.add(load.request_id)
            raise OSError("a bad day")
        return super().fetch(load, source)


class MovingExecutor(MachineExecutor):
    """Its workers move KV as well."""

    machine: OffloadMachine

    def run(self, plan: SchedulerOutput) -> ModelOutput:
        return self.machine.carry_out(plan, self.random)


class OffloadMachine(SchedulerMachine):
    """A CPU tier, seldom large enough."""

    @initialize(seed=SEEDS)
    def build(self, seed: int) -> None:
        random = Random(seed)
        limits = draw_limits(random) | {"kv_load_failure_policy": random.choice(["recompute", "fail"])}
        self.config = SchedulerConfig(**limits, async_scheduling=self.depth > 1)
        settings = draw_cache(random, self.config.max_model_len) | {"enable_prefix_caching": True}
        self.cache = CacheConfig(**settings)
        self.tier = CPUTier(random.randint(1, 30), random.choice(["lru", "arc"]))
        store_on, load_async = random.choice(["finish", "eviction"]), random.random() < 0.6
        self.connector = TieredConnector(self.cache, self.tier, store_on=store_on, load_async=load_async)
        note(f"{self.config}\n{self.cache}\n{self.tier.num_blocks} blocks, {store_on}, async {load_async}")
        self.scheduler = Scheduler(self.config, self.cache, observer=self.watcher, kv_connector=self.connector)
        self.worker = Worker(self.cache)
        self.executor = MovingExecutor(self)
        self.core = EngineCore(self.scheduler, self.executor, depth=self.depth)
        memory = DigestMemory(self.worker, self.cache.block_size)
        self.mover = MoodyWorker(memory, HostMemory(self.tier.num_blocks), seed)
        # A step in flight can give away, and save, what was computed from a load that is not known to have failed.
        self.mover.fails = self.depth == 1 or load_async or store_on == "finish"
        self.worker.starts_over = self.depth > 1
        self.bad: deque[set[int]] = deque(maxlen=self.depth)
        """Blocks that failed to load in the steps that those in flight may build on."""

    def carry_out(self, step: SchedulerOutput, random: Random) -> ModelOutput:
        """Move what the step asks for, and compute it; notes what the failures of this step make worthless."""
        plan: Any = step.kv_connector_metadata
        self.mover.before_step(plan)
        first = self.mover.report()
        self.bad.append(set(first.invalid_block_ids) if first is not None else set())
        self.worker.bad = set().union(*self.bad)
        self.void = {r.request_id for r in self.scheduler.running if self._touches(r, self.bad[-1])}
        self.sampled = self.worker.execute(step, lambda name, drafts: self.sample(random, drafts))
        self.mover.after_step(plan)
        self.alive = alive = set(self._live())
        if self.worker.starts_over and self.config.kv_load_failure_policy == "recompute":
            for request_id in self.void:
                self.ledgers[request_id].num_resets += 1
        self.lost = {name for name in self.mover.failed & alive if self.scheduler.requests[name].status is WAITING}
        self.mover.failed = set()
        return ModelOutput.from_lists(self.sampled, first)

    def update_one(self, seed: int) -> None:
        flight, self.executor.random = self.flights.popleft(), Random(seed)
        result = self.core.take_in()
        sampled, void, alive, lost = self.sampled, self.void, self.alive, self.lost
        expected = []
        for ledger, tokens, resets in zip(flight.ledgers, sampled, flight.resets, strict=True):
            worthless = ledger.ended or self._stale(ledger, resets) or ledger.request.request_id in void
            if tokens and not worthless:
                expected.append(ledger.accept(tokens))
        news = list(result)
        errors = [each for each in news if each.finish_reason is FinishReason.ERROR]
        assert [each for each in news if each not in errors] == expected
        assert all(not each.new_token_ids for each in errors)
        failed = {each.request_id for each in errors}
        if self.config.kv_load_failure_policy == "fail":
            assert lost | (void & alive) == failed
        else:
            assert not failed
        for request_id in failed:
            self.ledgers[request_id].ended = True
        for ledger in flight.ledgers:
            assert ledger.request.all_token_ids == ledger.stream
        self.tier.check_invariants()

    def check_progress(self, ran: list[str]) -> None:
        if not self.connector.being_read and not self.connector.being_written:
            super().check_progress(ran)  # else the end of a transfer is waited for

    def _touches(self, request: Request, blocks: set[int]) -> bool:
        return not blocks.isdisjoint(self.scheduler.kv.get_block_ids(request)[0])

    def reset(self, *, running: bool) -> None:
        if running:
            for request in self.scheduler.running:
                self.ledgers[request.request_id].num_resets += 1
        done = self.scheduler.reset_prefix_cache(reset_running_requests=running)
        assert done == (self.scheduler.num_free_blocks == self.scheduler.num_total_blocks - 1)
        if done:
            assert self.scheduler.num_cached_blocks == 0

    @rule()
    def reset_connector(self) -> None:
        if self.scheduler.reset_connector_cache():
            assert self.scheduler.state.cpu_blocks == (self.tier.num_blocks, self.tier.num_blocks)

    @invariant()
    def everything_adds_up(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        self.scheduler.check_invariants()
        places = [*self.scheduler.running, *self.scheduler.waiting, *self.scheduler.skipped_waiting]
        assert sorted(request.request_id for request in places) == sorted(self._live())

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "scheduler"):
            for _ in range(20):  # saves of evicted blocks that no request waits for
                step = self.scheduler.schedule()  # the engine core would not: no request is there
                self.scheduler.update_from_output(step, self.carry_out(step, Random(0)))
            assert self.scheduler.reset_connector_cache(), "something is held for ever"


class AsyncOffloadMachine(OffloadMachine):
    """Two steps in flight."""

    depth = 2


class PrefillDecodeMachine(RuleBasedStateMachine):
    """A prefill and a decode engine with little memory; requests are aborted on either side, leases run out."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.count = 0
        self.handed: list[tuple[Request, Any]] = []
        """Prefilled, and not yet sent on."""
        self.answers: dict[str, int] = {}
        """Request of the decode engine -> tokens it has to bring."""

    @initialize(seed=SEEDS)
    def build(self, seed: int) -> None:
        random = Random(seed)
        exchange = OfferExchange()
        self.prefill, self.decode = (self._engine(name, exchange, random) for name in ("prefill", "decode"))

    def _engine(self, name: str, exchange: OfferExchange, random: Random) -> ConnectorEngine:
        def clock() -> float:
            return self.now

        return ConnectorEngine(
            lambda cache: PrefillDecodeConnector(cache, name, clock, lease_seconds=5.0),
            lambda memory: PrefillDecodeWorker(memory, exchange, name, clock, patience=3.0),
            num_gpu_blocks=random.randint(11, 30),
            max_num_seqs=random.randint(1, 6),
            max_num_batched_tokens=random.randint(4, 48),
            max_model_len=40,
            policy=random.choice(["fcfs", "priority"]),
            kv_load_failure_policy="recompute",
            scheduler_reserve_full_isl=random.random() < 0.5,
        )

    @rule(seed=SEEDS)
    def arrive(self, seed: int) -> None:
        random = Random(seed)
        self.count += 1
        shared = random.randint(1, 24)
        prompt = [*range(100, 100 + shared), *[1000 + self.count] * random.choice([0, 1, 5])]
        params = random.choice([None, {"do_remote_decode": True}, {"do_remote_decode": True}])
        priority = random.randrange(3)
        options: dict[str, Any] = {"max_tokens": 1, "priority": priority, "arrival_time": self.count}
        self.prefill.add(f"r{self.count}", prompt, kv_transfer_params=params, **options)

    @rule(number=st.integers(1, 4))
    def step_prefill(self, number: int) -> None:
        for _ in range(number):
            self.prefill.step()
            self._collect()

    def _collect(self) -> None:
        for news in self.prefill.news:
            if news.kv_transfer_params is not None:
                self.handed.append((self.prefill.requests[news.request_id], news.kv_transfer_params))
        self.prefill.news.clear()

    @precondition(lambda self: self.handed)
    @rule(pick=st.integers(0, 20), max_tokens=st.integers(1, 12))
    def send_on(self, pick: int, max_tokens: int) -> None:
        first, params = self.handed.pop(pick % len(self.handed))
        prompt = first.prompt_token_ids
        name, priority = first.request_id, first.priority
        self.decode.add(
            name,
            prompt,
            max_tokens=max_tokens,
            kv_transfer_params=params,
            priority=priority,
            arrival_time=first.arrival_time,
        )
        self.answers[name] = min(max_tokens, 40 - len(prompt))

    @precondition(lambda self: self.handed)
    @rule(pick=st.integers(0, 20))
    def lose(self, pick: int) -> None:
        """The client goes away between the two."""
        self.handed.pop(pick % len(self.handed))

    @rule(number=st.integers(1, 6))
    def step_decode(self, number: int) -> None:
        for _ in range(number):
            self.decode.step()

    @rule(pick=st.integers(0, 20), on_decode=st.booleans())
    def abort(self, pick: int, on_decode: bool) -> None:
        site = self.decode if on_decode else self.prefill
        live = list(site.scheduler.requests)
        if live:
            name = live[pick % len(live)]
            site.scheduler.finish_requests(name)
            if on_decode:
                del self.answers[name]

    @rule(seconds=st.sampled_from([0.5, 4.0, 6.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    def teardown(self) -> None:
        if not hasattr(self, "prefill"):
            return
        for _ in range(600):
            self.prefill.step()
            self.decode.step()
            self._collect()
            self.now += 1.0
            if not self.prefill.scheduler.has_requests() and not self.decode.scheduler.has_requests():
                break
        assert self.prefill.is_quiet
        assert self.decode.is_quiet
        assert not self.prefill.scheduler.requests
        assert not self.decode.scheduler.requests
        for name, wanted in self.answers.items():
            assert self.decode.requests[name].num_output_tokens == wanted


TestOffload = OffloadMachine.TestCase
TestOffload.settings = settings(max_examples=examples(100), stateful_step_count=40)
TestAsyncOffload = AsyncOffloadMachine.TestCase
TestAsyncOffload.settings = settings(max_examples=examples(50), stateful_step_count=40)
TestPrefillDecode = PrefillDecodeMachine.TestCase
TestPrefillDecode.settings = settings(max_examples=examples(80), stateful_step_count=40)
