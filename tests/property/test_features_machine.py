"""Every feature with every other: drafts, async steps, hybrid groups, states, adapters, images, grammars, sessions,
pauses, a connector whose loads may fail, policies with pins, pooling, repetition, aborts and resets, in any order.

After every step: the scheduler's invariants, a worker that executes it (``tests/support/worker.py``), what clients must
see (``tests/support/reference.py``), and a livelock detector. It asks, whenever a request waits and nothing runs, that
the step admits a request or names a reason that time or an event will clear. In the end all events come, and each
has been served.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any, NamedTuple

import msgspec
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.support.machines import TALLIES, Floor, machine_test
from tests.support.plans import KeptPlans
from tests.support.profiles import VLLM_0_22
from tests.support.reference import Ledger, SessionPiece
from tests.support.servable import must_be_accepted, must_be_refused
from tests.support.toy_connector import ToyConnector
from tests.support.toy_engine import Watcher
from tests.support.worker import StatelessWorker, Worker

from tokenyard.core.config import (
    CacheConfig,
    GroupKind,
    KVCacheGroup,
    MambaCacheMode,
    PauseState,
    SchedulerConfig,
    SpeculativeConfig,
    SpeculativeMethod,
)
from tokenyard.core.params import MultiModalItem, PoolingParams, RepetitionDetectionParams
from tokenyard.core.request import Request, RequestStatus, SamplingParams
from tokenyard.core.sched.outcomes import OutcomeKind, Reason
from tokenyard.core.sched.outputs import DraftTokens, ModelAuxOutput, ModelOutput
from tokenyard.core.sched.scheduler import Scheduler
from tokenyard.core.sched.scheduler_output import SchedulerOutput
from tokenyard.errors import RequestError
from tokenyard.vocabulary import SHIPPED

VOCABULARY = 8
LONGEST_SILENCE = 300
FOREVER = 1e6
SEEDS = st.integers(0, 2**32 - 1)

_CLEARED_BY_EVENTS = {
    Reason.PAUSED,  # until the engine is resumed
    Reason.WAITING_GRAMMAR,
    Reason.WAITING_REMOTE_KV,
    Reason.ASYNC_KV_LOAD_STARTED,
    Reason.CONNECTOR_UNDECIDED,
    Reason.WAITING_STREAM_INPUT,
    Reason.PREEMPTED_THIS_STEP,  # by itself: the next step tries again
}


class Grammar:
    """Allows all tokens but some, once it is compiled."""

    def __init__(self, forbids: frozenset[int]) -> None:
        self.forbids = forbids
        self.is_ready = False

    def accept_tokens(self, tokens: Sequence[int]) -> bool:
        return self.forbids.isdisjoint(tokens)

    def validate_tokens(self, tokens: Sequence[int]) -> list[int]:
        stop = next((i for i, token in enumerate(tokens) if token in self.forbids), len(tokens))
        return list(tokens[:stop])


class Flight(NamedTuple):
    """A step whose output has not come back yet."""

    output: SchedulerOutput
    ledgers: list[Ledger]
    resets: list[int]


def draw_settings(random: Random) -> dict[str, Any]:
    chunked = random.random() < 0.7
    longest = random.randint(12, 40)
    return {
        "max_num_seqs": random.randint(1, 6),
        "max_num_batched_tokens": random.randint(2, 40) + (0 if chunked else longest),
        "max_model_len": longest,
        "policy": random.choice(["fcfs", "fcfs", "priority", "priority", *SHIPPED]),
        "enable_chunked_prefill": chunked,
        "long_prefill_token_threshold": random.choice([0, 0, 0, 4]),
        "scheduler_reserve_full_isl": random.random() < 0.6,
        "max_loras": random.choice([0, 0, 1, 2]),
        "async_scheduling": random.random() < 0.5,
        "max_num_encoder_input_tokens": random.choice([0, 8, 16]),
        "encoder_cache_size": random.choice([0, 8, 24]),
        "disable_chunked_mm_input": random.random() < 0.2,
        "profile": replace(VLLM_0_22, running_index_drifts=random.random() < 0.5),
        "kv_load_failure_policy": random.choice(["recompute", "recompute", "fail"]),
        "rolled_back_work_stays_cached": False,  # else hits can be on what was never computed, as in vLLM 0.22
    }


def draw_cache(random: Random, config: SchedulerConfig, *, guesses: bool, eagle: bool) -> CacheConfig:
    """``guesses``: drafts count as computed before they are verified; ``eagle``: by an EAGLE head.

    A window is then moved on too early, and its blocks are freed: as in vLLM 0.22, see docs/parity.md.
    """
    full, max_model_len = KVCacheGroup(), config.max_model_len
    size = random.choice([1, 2, 3, 4])
    if not guesses and random.random() < 0.25:
        return draw_states(random, config, size, eagle=eagle)
    window = KVCacheGroup(kind=GroupKind.SLIDING_WINDOW, window=random.randint(1, 12))
    chunks = KVCacheGroup(kind=GroupKind.CHUNKED_LOCAL, window=size * random.randint(1, 4))
    groups = random.choice([(full,), (full,), (full, window), (full, chunks), (full, window, window)])
    if guesses:
        groups = (full,)
    longest = len(groups) * (3 - (-max_model_len // size))
    return CacheConfig(
        num_gpu_blocks=longest + random.randint(0, 16),
        block_size=size,
        groups=groups,
        enable_prefix_caching=random.random() < 0.8,
        watermark=random.choice([0.0, 0.0, 0.2]),
        enable_kv_cache_events=random.random() < 0.3,
    )


def draw_states(random: Random, config: SchedulerConfig, size: int, *, eagle: bool) -> CacheConfig:
    """Layers with a state, alone or beside others. An EAGLE head's group must be marked, see docs/parity.md."""
    full, state = KVCacheGroup(is_eagle=eagle), KVCacheGroup(kind=GroupKind.MAMBA)
    groups = random.choice([(full, state), (state, full), (full, state, state), *([] if eagle else [(state,)])])
    mode = random.choice([*MambaCacheMode, MambaCacheMode.ALIGN])
    cuts_anywhere = config.enable_chunked_prefill and not config.disable_chunked_mm_input
    least = min(config.max_num_batched_tokens, config.long_prefill_token_threshold or config.max_num_batched_tokens)
    if mode is MambaCacheMode.ALIGN and not (cuts_anywhere and least >= size):
        mode = MambaCacheMode.ALL  # refused otherwise
    longest = len(groups) * (3 - (-config.max_model_len // size))
    return CacheConfig(
        num_gpu_blocks=longest + random.randint(0, 16),
        block_size=size,
        groups=groups,
        mamba_cache_mode=mode,
        enable_prefix_caching=mode is not MambaCacheMode.NONE,
        watermark=random.choice([0.0, 0.0, 0.2]),
    )


def draw_speculation(random: Random) -> SpeculativeConfig | None:
    method = random.choice([None, None, *SpeculativeMethod])
    return None if method is None else SpeculativeConfig(num_speculative_tokens=random.randint(1, 3), method=method)


def draw_params(random: Random) -> SamplingParams:
    most = random.randint(1, 10)
    return SamplingParams(
        max_tokens=most,
        min_tokens=random.choice([0, 0, min(2, most)]),
        eos_token_id=random.choice([None, 0]),
        stop_token_ids=random.choice([(), (), (1,), (1, *range(60, 70))]),
        repetition_detection=random.choice([None, None, RepetitionDetectionParams(max_pattern_size=2, min_count=3)]),
    )


def draw_prompt(random: Random) -> list[int]:
    """It begins like some others and ends like few."""
    return [*range(random.choice([100, 200]), random.choice([101, 104, 209, 212])), *random.choices(range(20, 29), k=3)]


class FeaturesMachine(RuleBasedStateMachine):
    """At most two steps in flight."""

    @initialize(seed=SEEDS)
    def build(self, seed: int) -> None:
        TALLIES[type(self)].runs += 1
        random = Random(seed)
        self.config = SchedulerConfig(**draw_settings(random))
        self.speculative = draw_speculation(random)
        guesses = self.config.async_scheduling and self.speculative is not None
        eagle = self.speculative is not None and self.speculative.use_eagle
        self.cache = draw_cache(random, self.config, guesses=guesses, eagle=eagle)
        kinds = {group.kind for group in self.cache.groups}
        if GroupKind.CHUNKED_LOCAL in kinds and eagle:
            self.speculative = None  # refused
        self.connector = (
            ToyConnector(random) if self.cache.groups == (KVCacheGroup(),) and random.random() < 0.5 else None
        )
        note(f"{self.config}\n{self.cache}\n{self.speculative}\nconnector: {self.connector is not None}")
        self.now = 0.0
        self.watcher = Watcher()
        self.scheduler = Scheduler(
            self.config,
            self.cache,
            clock=lambda: self.now,
            observer=self.watcher,
            speculative_config=self.speculative,
            kv_connector=self.connector,
            log_stats=random.random() < 0.5,
        )
        followed = self.speculative is None or GroupKind.MAMBA not in kinds  # each draft has a state of its own
        self.worker = (Worker if followed else StatelessWorker)(self.cache)
        self.depth = 2 if self.config.async_scheduling else 1
        # Sessions are refused otherwise: a state would have absorbed the token that a session drops (docs/parity.md).
        self.may_go_on = self.depth == 1 or GroupKind.MAMBA not in kinds
        self.flights: deque[Flight] = deque()
        self.plans = KeptPlans()
        self.ledgers: dict[str, Ledger] = {}
        self.grammars: dict[str, Grammar] = {}
        self.counter = 0
        self.told = 0

    # ---- arrivals

    @rule(seeds=st.lists(SEEDS, min_size=1, max_size=4), steps=st.integers(0, 2))
    def add(self, seeds: list[int], steps: int) -> None:
        for seed in seeds:
            self._add(Random(seed))
            for _ in range(steps):
                self.turn(seed)

    def _add(self, random: Random) -> None:
        self.counter += 1
        name = f"r{self.counter}"
        prompt = draw_prompt(random)
        grammar = Grammar(frozenset({random.randrange(VOCABULARY)})) if random.random() < 0.2 else None
        kind = random.choice(["plain"] * 4 + ["session" if self.may_go_on else "plain", "pooling"])
        if kind == "pooling":
            grammar = None
        request = Request(
            name,
            prompt,
            None if kind == "pooling" else draw_params(random),
            pooling_params=PoolingParams() if kind == "pooling" else None,
            arrival_time=self.counter / 1000,
            priority=random.randrange(3),
            lora_name=random.choice([None] * 4 + ["x", "y", "z"]),
            cache_salt=random.choice([None] * 5 + ["salt"]),
            mm_features=self._draw_images(random, len(prompt)),
            structured_output=grammar,
            resumable=kind == "session",
            job_id=random.choice([None, "a", "b"]),
            is_last_step=random.random() < 0.3,
            this_func_call=random.choice([None, "ls"]),
        )
        settings = (request, self.config, self.cache, self.speculative)
        try:
            self.scheduler.add_request(request)
        except RequestError:
            # An image can be more than an encoder is given; whatever else is refused lacks memory or length.
            assert request.mm_features or not must_be_accepted(*settings), "it could have been served"
            TALLIES[type(self)].refused += 1
            return
        assert not must_be_refused(*settings), "it can come to need more than there is"
        TALLIES[type(self)].accepted += 1
        ledger = self.ledgers[name] = Ledger(request, self.config.max_model_len)
        if grammar is not None:
            self.grammars[name] = grammar
            ledger.forbids = grammar.forbids

    def _draw_images(self, random: Random, length: int) -> list[MultiModalItem]:
        if not self.config.max_num_encoder_input_tokens or length < 8 or random.random() < 0.5:
            return []
        sizes = [random.randint(1, 4) for _ in range(random.randint(1, 2))]
        offsets = [random.randint(0, 3), random.randint(4, 7)]
        return [
            MultiModalItem(mm_hash=f"i{random.randrange(4)}.{size}", offset=offset, length=min(size, 8 - offset))
            for offset, size in zip(offsets, sizes, strict=False)
            if min(size, 8 - offset) == size
        ]

    @precondition(lambda self: self._sessions())
    @rule(pick=st.integers(0, 9), seed=SEEDS, last=st.booleans())
    def feed(self, pick: int, seed: int, last: bool) -> None:
        sessions, random = self._sessions(), Random(seed)
        self._feed(
            sessions[pick % len(sessions)], SessionPiece(random.choices(range(30, 39), k=3), draw_params(random)), last
        )

    def _feed(self, ledger: Ledger, piece: SessionPiece, last: bool) -> None:
        name = ledger.request.request_id
        more = Request(name, piece.tokens, piece.params, resumable=not last, arrival_time=self.counter / 1000)
        try:
            self.scheduler.add_request(more)
        except RequestError:
            return  # too long
        ledger.feed(None if last else piece)

    def _sessions(self) -> list[Ledger]:
        """Sessions that take input: not told to end yet."""
        return [ledger for ledger in self._live() if ledger.request.resumable and None not in ledger.pieces]

    def _live(self) -> list[Ledger]:
        return [ledger for ledger in self.ledgers.values() if not ledger.ended] if hasattr(self, "ledgers") else []

    # ---- steps

    @rule(seeds=st.lists(SEEDS, min_size=1, max_size=10))
    def run(self, seeds: list[int]) -> None:
        for seed in seeds:
            self.turn(seed)

    def turn(self, seed: int, chance: float = 0.5) -> None:
        """Fill the pipeline, take in the oldest output."""
        while len(self.flights) < self.depth and self.scheduler.has_requests():
            self.schedule_one(Random(seed))
        if self.flights:
            self.update_one(Random(seed), chance)
        self.everything_adds_up()

    def schedule_one(self, random: Random) -> None:
        self.now += 0.02
        idle = not self.scheduler.running
        output = self.scheduler.schedule()
        self.plans.keep(output)
        TALLIES[type(self)].steps += bool(output.total_num_scheduled_tokens)
        if self.speculative is not None and self.depth == 2 and random.random() < 0.5:
            most = self.speculative.num_speculative_tokens
            known = DraftTokens.from_lists([random.choices(range(VOCABULARY), k=most) for _ in output.req_ids])
            output = self.scheduler.update_draft_token_ids_in_output(output, known)
        ledgers = [self.ledgers[request_id] for request_id in output.req_ids]
        self.flights.append(Flight(output, ledgers, [ledger.num_resets for ledger in ledgers]))
        if idle and not self.scheduler.running:
            self.check_progress()

    def update_one(self, random: Random, chance: float) -> None:
        flight = self.flights.popleft()
        output = flight.output
        loads: Any = output.kv_connector_metadata or ()
        for load in loads:
            load.carry_out(self.worker)
        self.worker.guess = lambda: random.randrange(VOCABULARY)
        sampled = self.worker.execute(output, lambda name, drafts: self._sample(random, drafts))
        chunks = output.is_prefill_chunk
        pooled = [
            request_id if ledger.request.pooling_params is not None and (chunks is None or not chunks[row]) else None
            for row, (request_id, ledger) in enumerate(zip(output.req_ids, flight.ledgers, strict=True))
        ]
        lost = self._lose_somebody(flight, random)
        extras = (
            ModelAuxOutput(pooler_output=pooled if any(pooled) else (), failed=lost) if lost or any(pooled) else None
        )
        report = self.connector.report(self.worker, lambda: random.random() < chance) if self.connector else None
        result = self.scheduler.update_from_output(output, ModelOutput.from_lists(sampled, report, extras))
        gone = [*lost, *self._not_loaded(lost)]
        if self.speculative is not None and self.depth == 1:
            most = self.speculative.num_speculative_tokens
            drafts = [random.choices(range(VOCABULARY), k=random.randint(0, most)) for _ in output.req_ids]
            self.scheduler.update_draft_token_ids(output, DraftTokens.from_lists(drafts))
        assert [msgspec.structs.astuple(news)[:4] for news in result] == self._expected(flight, sampled, pooled, gone)
        for ledger in flight.ledgers:
            assert ledger.request.all_token_ids == ledger.stream

    @staticmethod
    def _lose_somebody(flight: Flight, random: Random) -> frozenset[str]:
        """Seldom the workers lose a request."""
        alive = [ledger.request.request_id for ledger in flight.ledgers if not ledger.ended]
        return frozenset({random.choice(alive)} if alive and random.random() < 0.02 else ())

    def _not_loaded(self, lost: frozenset[str]) -> list[str]:
        """Requests that end because their external KV did not arrive."""
        if self.connector is None or self.config.kv_load_failure_policy == "recompute":
            return []
        return [name for name in self.connector.failed if not self.ledgers[name].ended and name not in lost]

    def _expected(
        self, flight: Flight, sampled: list[list[int]], pooled: list[str | None], gone: list[str]
    ) -> list[tuple[Any, ...]]:
        """What clients are told: who got on, in scheduling order, then who was lost."""
        news: list[tuple[Any, ...]] = []
        for name in gone:
            self.ledgers[name].ended = True
        for ledger, tokens, result, resets in zip(flight.ledgers, sampled, pooled, flight.resets, strict=True):
            # A reset makes tokens in flight worthless; a pooled result counts all the same, as in vLLM 0.22.
            if ledger.ended or (self.depth > 1 and ledger.num_resets != resets and result is None):
                continue
            if result is not None:
                ledger.ended = True
                news.append((result, [], "stop", None))
            elif tokens:
                news.append(msgspec.structs.astuple(ledger.accept(tokens))[:4])
            self.told += bool(result or tokens)
        return news + [(name, [], "error", None) for name in gone]

    @staticmethod
    def _sample(random: Random, drafts: list[int]) -> list[int]:
        """Some of the drafts, but none that is not allowed (-1), and a token of its own."""
        allowed = drafts.index(-1) if -1 in drafts else len(drafts)
        return [*drafts[: random.randint(0, allowed)], random.randrange(VOCABULARY)]

    # ---- the livelock detector

    def check_progress(self) -> None:
        """Nothing ran and nothing was admitted: for everybody who waits there is a reason that will go away."""
        outcomes = self.watcher.outcomes
        ended = outcomes.admission
        assert ended is not None
        reasons = {each.reason for each in outcomes.skipped}
        if ended.kind is not OutcomeKind.LOOP_ENDED:
            reasons.add(ended.reason)
        else:
            assert ended.reason is Reason.QUEUES_EMPTY, f"{ended.reason} although nothing runs"
        for reason in reasons - _CLEARED_BY_EVENTS:
            assert reason.startswith("kv_"), f"{reason} although nothing runs"
            assert self._held_for_a_while(), f"{reason} although no other request needs the memory"

    def _held_for_a_while(self) -> bool:
        """Blocks are held by loads, readers, pins, or sessions whose users are silent."""
        waiting = [*self.scheduler.waiting, *self.scheduler.skipped_waiting]
        silent = any(request.status is RequestStatus.WAITING_FOR_STREAMING_REQ for request in waiting)
        away = self.connector is not None and bool(self.connector.loading or self.connector.sending)
        return silent or away or len(self.scheduler.pins) > 0

    # ---- events

    @rule(pick=st.integers(0, 9))
    def compile_grammar(self, pick: int) -> None:
        open_ones = [grammar for grammar in self.grammars.values() if not grammar.is_ready]
        if open_ones:
            open_ones[pick % len(open_ones)].is_ready = True

    @precondition(lambda self: self._live())
    @rule(picks=st.lists(st.integers(0, 50), min_size=1, max_size=3))
    def abort(self, picks: list[int]) -> None:
        live = self._live()
        ids = list(dict.fromkeys(live[pick % len(live)].request.request_id for pick in picks))
        assert [request.request_id for request in self.scheduler.finish_requests(ids)] == ids
        for request_id in ids:
            self.ledgers[request_id].ended = True

    @rule(running=st.booleans())
    def reset_cache(self, running: bool) -> None:
        if running:
            for request in self.scheduler.running:
                self.ledgers[request.request_id].num_resets += 1
        if self.scheduler.reset_prefix_cache(reset_running_requests=running):
            assert self.scheduler.num_cached_blocks == 0

    @rule(state=st.sampled_from([PauseState.UNPAUSED, PauseState.UNPAUSED, *PauseState]))
    def pause(self, state: PauseState) -> None:
        self.scheduler.set_pause_state(state)

    @rule(seconds=st.sampled_from((0.01, 1.0, 5.0)))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    # ---- always

    def everything_adds_up(self) -> None:
        scheduler = self.scheduler
        scheduler.check_invariants()
        self.plans.check()
        places = [*scheduler.running, *scheduler.waiting, *scheduler.skipped_waiting]
        assert sorted(request.request_id for request in places) == sorted(
            each.request.request_id for each in self._live()
        )

    def teardown(self) -> None:
        """Everything that is waited for comes; then everybody is served and every block is free."""
        if not hasattr(self, "scheduler"):
            return
        self.scheduler.set_pause_state(PauseState.UNPAUSED)
        silent = 0
        while self.scheduler.requests or self.flights or self.scheduler.has_requests():
            for grammar in self.grammars.values():
                grammar.is_ready = True
            for ledger in self._sessions():
                self._feed(ledger, SessionPiece([1], SamplingParams()), last=True)
            self.now += 1.0
            told = self.told
            self.turn(seed=told, chance=1.0)
            silent = 0 if told < self.told else silent + 1
            assert silent < LONGEST_SILENCE, f"{len(self._live())} requests hang"
        assert self._live() == []
        self.now += FOREVER
        self.scheduler.schedule()
        self.scheduler.pins.clear()
        assert self.scheduler.num_free_blocks == self.scheduler.num_total_blocks - 1


TestFeatures = machine_test(FeaturesMachine, Floor(accepted=1, steps=3), max_examples=300, step_count=40)
