"""Long random walks of an engine core: every call of a host, in any order, with the values that lie at an edge.

A walk draws an engine (version, policy, KV-cache groups, drafts, adapters, images, connector, steps in flight), then
calls what a host may call: requests, sessions and their ends, steps and halves of steps, aborts, pauses, resets of each
cache, plans that go through pickle while they are in flight, and answers that are wrong. Connectors, sessions and
resets are frequent together: one end of an answer did not know of a transfer, which nothing else had found.

What holds after every call are the scheduler's invariants; and what no part of it knows: a client is told what its
request holds and hears one end and nothing behind it, a step schedules none who has left, a wrong answer is refused
and changes nothing, and once all events have come everybody has ended and every block is free.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from tests.support.toy_connector import ToyConnector

from tokenyard.core.config import (
    CacheConfig,
    GroupKind,
    KVCacheGroup,
    MambaCacheMode,
    SchedulerConfig,
    SpeculativeConfig,
    SpeculativeMethod,
)
from tokenyard.core.engine import EngineCore, PauseMode
from tokenyard.core.kv.allocation import Blocks
from tokenyard.core.params import MultiModalItem, PoolingParams, RepetitionDetectionParams
from tokenyard.core.profiles import PROFILES
from tokenyard.core.request import Request, RequestStatus, SamplingParams
from tokenyard.core.sched.connector import Match
from tokenyard.core.sched.features.grammars import GrammarOutput
from tokenyard.core.sched.outputs import ConnectorOutput, DraftTokens, EngineOutputs, ModelAuxOutput, ModelOutput
from tokenyard.core.sched.scheduler import Scheduler
from tokenyard.core.sched.scheduler_output import SchedulerOutput
from tokenyard.errors import ConfigError, RequestError
from tokenyard.vocabulary import BUILT_IN, SHIPPED

__all__ = ["CoreWalk"]

CALLS = 400
"""Calls of a walk before its clients stop."""
_MOST_STEPS = 4_000
"""Steps within which a walk has to come to its end."""
_VOCABULARY = 7
_EDGES: tuple[Any, ...] = (
    *(0, 1, -1, 2**31 - 1, 2**31, 2**53, 2**63 - 1, 2**63, 2**64, 1.0, 0.5, float("nan"), float("inf"), True, None),
    *(np.int8(-1), np.int64(3), np.float32(2), np.float64("nan"), np.bool_(True), np.str_("x"), "7", "", b"7", (), [1]),
)
_FIELDS = (
    *("priority", "arrival_time", "predicted_output_tokens", "ends_after", "output_seed", "client_index"),
    *("is_last_step", "lora_name", "cache_salt", "job_id", "this_func_call", "meta", "kv_transfer_params"),
)
_LIMITS = ("max_tokens", "min_tokens", "eos_token_id", "stop_token_ids", "prompt_logprobs", "seed", "temperature")


class Grammar:
    """Forbids one token, once it is compiled."""

    def __init__(self, forbids: int) -> None:
        self._forbids = forbids
        self.is_ready = False

    def accept_tokens(self, tokens: Sequence[int]) -> bool:
        return self._forbids not in tokens

    def validate_tokens(self, tokens: Sequence[int]) -> list[int]:
        stop = next((i for i, token in enumerate(tokens) if token == self._forbids), len(tokens))
        return list(tokens[:stop])

    def bitmask(self, drafts: Sequence[int]) -> npt.NDArray[np.int32]:
        return np.full((1 + len(drafts), 1), ((1 << _VOCABULARY) - 1) & ~(1 << self._forbids), np.int32)


class Connector(ToyConnector):
    """Offers numbers of NumPy and more than there is; the end of each request is told once."""

    def __init__(self, random: Random, block_size: int) -> None:
        super().__init__(random)
        self._block_size = block_size
        self._ended: set[Request] = set()

    def get_num_new_matched_tokens(self, request: Request, num_computed_tokens: int) -> Match:
        match = super().get_num_new_matched_tokens(request, num_computed_tokens)
        if match.num_tokens is not None and self.random.random() < 0.2:
            offered: Any = np.int64(match.num_tokens)
            match = msgspec.structs.replace(match, num_tokens=offered)
            self.offers[request.request_id] = num_computed_tokens, match
        return match

    def build_connector_meta(self, output: SchedulerOutput) -> object:
        loads = super().build_connector_meta(output)
        assert isinstance(loads, tuple)
        return [load.request.request_id for load in loads]  # a plan is pickled, and no live request with it

    def request_finished(self, request: Request, blocks: Blocks) -> tuple[bool, Any]:
        assert request not in self._ended, f"{request} has ended twice"
        self._ended.add(request)
        keeps, _ = super().request_finished(request, blocks)
        return keeps, {"x": 1} if self.random.random() < 0.2 else None

    def reported(self, chance: float) -> ConnectorOutput:
        """Some transfers have ended, and of some loads a block has not come."""
        received = {name for name in sorted(self.loading) if self.random.random() < chance}
        invalid = set()
        for name in sorted(received):
            load = self.loading.pop(name)
            if load.blocks and self.random.random() < 0.2:
                invalid.add(load.blocks[min(load.start // self._block_size, len(load.blocks) - 1)])
        sent = {name for name in sorted(self.sending) if self.random.random() < chance}
        self.sending -= sent
        return ConnectorOutput(
            finished_receiving=frozenset(received),
            finished_sending=frozenset(sent),
            invalid_block_ids=frozenset(invalid - {0}),
        )


class Executor:
    """Samples what grammars allow, and is late as often as not."""

    def __init__(self, random: Random, num_drafts: int, connector: Connector | None) -> None:
        self.random, self.num_drafts, self.connector = random, num_drafts, connector
        self.chance = 0.3
        """Probability that the end of a transfer is reported."""
        self.pools: set[str] = set()
        """Ids of requests that sample nothing."""
        self.watch: Callable[[SchedulerOutput], None] = lambda plan: None
        self._plan: SchedulerOutput | None = None

    def execute_model(self, plan: SchedulerOutput) -> None:
        self.watch(plan)
        self._plan = plan

    def sample_tokens(self, plan: SchedulerOutput, grammar: GrammarOutput | None) -> Answer:
        drafts, masks, first = plan.scheduled_spec_decode_tokens, {}, 0
        if grammar is not None:
            for name in grammar.structured_output_request_ids:
                masks[name] = grammar.grammar_bitmask[first : first + 1 + len(drafts.get(name, ()))]
                first += len(masks[name])
        chunks = plan.is_prefill_chunk
        rows: list[list[int]] = []
        pooled: list[object] = []
        for row, name in enumerate(plan.req_ids):
            is_over = chunks is None or not chunks[row]
            pooled.append(1.0 if is_over and name in self.pools else None)
            samples = is_over and name not in self.pools
            rows.append(self._sampled(drafts.get(name, []), masks.get(name)) if samples else [])
        extras = ModelAuxOutput(pooler_output=pooled) if any(pooled) else None
        return Answer(self, ModelOutput.from_lists(rows, extras=extras))

    def _sampled(self, drafts: list[int], masks: npt.NDArray[np.int32] | None) -> list[int]:
        """Some of the drafts, as far as they are known and allowed, and a token of its own."""
        known = drafts.index(-1) if -1 in drafts else len(drafts)
        taken, wanted = 0, self.random.randint(0, known)
        while taken < wanted and (masks is None or int(masks[taken][0]) >> drafts[taken] & 1):
            taken += 1
        allowed = -1 if masks is None else int(masks[taken][0])
        return [*drafts[:taken], self.random.choice([each for each in range(_VOCABULARY) if allowed >> each & 1])]

    def take_draft_token_ids(self) -> DraftTokens:
        assert self._plan is not None
        most, random = self.num_drafts, self.random
        return DraftTokens.from_lists(
            [random.choices(range(_VOCABULARY), k=random.randint(0, most)) for _ in self._plan.req_ids]
        )

    def shutdown(self) -> None:
        pass


class Answer:
    """A step's future, which says the same however often it is asked."""

    def __init__(self, executor: Executor, output: ModelOutput) -> None:
        self._executor, self._output = executor, output
        self._is_reported = False

    def done(self) -> bool:
        return self._executor.random.random() < 0.5

    def result(self) -> ModelOutput:
        connector = self._executor.connector
        if connector is not None and not self._is_reported:
            self._output.connector = connector.reported(self._executor.chance)
        self._is_reported = True
        return self._output


def _draw_groups(random: Random, size: int) -> tuple[KVCacheGroup, ...]:
    full = KVCacheGroup()
    window = KVCacheGroup(kind=GroupKind.SLIDING_WINDOW, window=random.randint(1, 12))
    local = KVCacheGroup(kind=GroupKind.CHUNKED_LOCAL, window=2 * size)
    states = KVCacheGroup(kind=GroupKind.MAMBA)
    return random.choice([(full,), (full,), (full,), (full,), (full, window), (full, local), (window,), (full, states)])


def draw_engine(random: Random, clock: Callable[[], float]) -> tuple[Scheduler, Executor, EngineCore]:
    """An engine in which every limit binds; what cannot be is drawn again."""
    while True:
        is_async, length = random.random() < 0.5, random.choice([16, 32, 64])
        size = random.choice([1, 2, 3, 4, 8])
        groups = _draw_groups(random, size)
        connector = Connector(random, size) if random.random() < 0.5 else None
        method = random.choice([None, None, None, *SpeculativeMethod])
        drafts = method and SpeculativeConfig(num_speculative_tokens=random.randint(1, 4), method=method)
        least = len(groups) * (-(-length // size) + 4) + 2
        try:
            scheduler = Scheduler(
                _draw_config(random, length, is_async=is_async),
                CacheConfig(
                    num_gpu_blocks=least + random.choice([0, 1, 5, 20, least]),
                    block_size=size,
                    groups=groups,
                    enable_prefix_caching=random.random() < 0.8,
                    enable_kv_cache_events=random.random() < 0.3,
                    watermark=random.choice([0, 0, 0.1, 0.3]),
                    mamba_cache_mode=random.choice(list(MambaCacheMode)),
                ),
                speculative_config=drafts,
                kv_connector=connector,
                clock=clock,
                log_stats=random.random() < 0.3,
            )
            executor = Executor(random, scheduler.num_speculative_tokens, connector)
            return scheduler, executor, EngineCore(scheduler, executor, depth=random.choice([None, None, 1, 2, 3]))
        except ConfigError:
            continue


def _draw_config(random: Random, length: int, *, is_async: bool) -> SchedulerConfig:
    return SchedulerConfig(
        profile=random.choice(list(PROFILES.values())),
        max_num_seqs=random.choice([1, 2, 3, 5, 8]),
        max_num_batched_tokens=random.choice([3, 8, 17, 40, 128]),
        max_model_len=length,
        policy=random.choice([*BUILT_IN, *BUILT_IN, *SHIPPED]),
        enable_chunked_prefill=random.random() < 0.8,
        long_prefill_token_threshold=random.choice([0, 0, 0, 5]),
        scheduler_reserve_full_isl=random.random() < 0.6,
        async_scheduling=is_async,
        pipeline_parallel_size=random.choice([1, 1, 1, 2, 3]),
        max_loras=random.choice([0, 0, 1, 2]),
        max_num_encoder_input_tokens=random.choice([0, 0, 8, 16]),
        encoder_cache_size=random.choice([0, 8, 24]),
        disable_chunked_mm_input=random.random() < 0.2,
        kv_load_failure_policy=random.choice(["fail", "recompute", "recompute"]),
        rolled_back_work_stays_cached=False,
    )


class CoreWalk:
    """An engine core, its clients, and what they know."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.now = 0.0
        self.scheduler, self.executor, self.core = draw_engine(random, lambda: self.now)
        self.executor.watch = self._planned
        self.num_free = self.scheduler.num_free_blocks
        self.requests: dict[str, Request] = {}
        self.sessions: dict[str, bool] = {}
        """Session -> whether its client may still send."""
        self.told: dict[str, list[int]] = {}
        self.ended: set[str] = set()
        self.gone: set[str] = set()
        """Aborted, or refused once they were submitted."""
        self.grammars: list[Grammar] = []
        self.plans: deque[SchedulerOutput] = deque(maxlen=8)
        """The latest, more than are in flight at a time."""
        self.num_names = 0
        self.num_steps = 0

    def run(self) -> int:
        """Walk to the end; the steps that were planned."""
        transfers = 4 if self.executor.connector is not None else 1
        calls: dict[Callable[[], object], int] = {
            self._step: 30,
            self._add: 10,
            self._submit: 2,
            self._open: 2 * transfers,
            self._feed: 2 * transfers,
            self._end_session: transfers,
            self._reset: transfers,
            self.core.fill: 4,
            self._take_in: 4,
            self._drain: 1,
            self._abort: 2,
            self._submit_abort: 1,
            self._pause: 1,
            self.core.resume: 2,
            self._compile: 5,
            self._observe: 2,
            self._pickle: 2,
            self._answer_wrongly: 1,
            self._add_at_an_edge: 2,
        }
        for call in self.random.choices(list(calls), list(calls.values()), k=CALLS):
            self.now += self.random.choice((0.0, 0.001, 0.01, 1.0))
            call()
            self._check()
        self._come_to_rest()
        return self.num_steps

    # ---- what is looked at

    def _check(self) -> None:
        self.scheduler.check_invariants()
        for request in self.scheduler.requests.values():
            assert request.num_tokens <= self.scheduler.config.max_model_len + 1, f"{request} is too long"

    def _planned(self, plan: SchedulerOutput) -> None:
        self.num_steps += 1
        self.plans.append(plan)
        total = int(plan.num_new_tokens.sum())
        assert plan.total_num_scheduled_tokens == total <= self.scheduler.config.max_num_batched_tokens
        assert len(set(plan.req_ids)) == len(plan.req_ids), "a request is scheduled twice"
        left = (self.ended - self.sessions.keys()) | self.gone
        assert left.isdisjoint(plan.req_ids), f"scheduled though they have left: {left & set(plan.req_ids)}"

    def _hear(self, outputs: EngineOutputs | None) -> None:
        self._refused()
        for news in outputs or ():
            name = news.request_id
            assert name not in self.gone, f"{name} was aborted, and its client is told more"
            assert name in self.sessions or name not in self.ended, f"{name} has ended, and its client is told more"
            self.told.setdefault(name, []).extend(news.new_token_ids)
            if news.finish_reason is None:
                continue
            self.ended.add(name)
            if name not in self.sessions:
                request = self.requests[name]
                assert request.status.is_finished, f"{name} has ended, and is {request.status.name}"
                assert self.told[name] == request.output_token_ids, f"{name} was told something else than it holds"
                assert len(self.told[name]) <= request.max_tokens, f"{name} got more than it asked for"

    def _refused(self) -> None:
        for refusal in self.core.take_refused():
            self.gone.add(refusal.request_id)

    # ---- what clients do

    def _name(self) -> str:
        self.num_names += 1
        odd = ["\u202e", "\x00", "a" * 1000, "\n", "../x", "<script>"]
        return f"{self.random.choice(odd) if self.random.random() < 0.1 else 'r'}{self.num_names}"

    def _request(self, name: str, *, is_session: bool = False) -> Request:
        random, length = self.random, self.scheduler.config.max_model_len
        shared = random.choice((0, 3, 6, length // 2)) * (not is_session)
        text = 100 * random.randrange(3)
        prompt = [*range(text, text + shared), *random.choices(range(_VOCABULARY), k=random.randint(1, length // 4))]
        prompt = prompt[-random.randint(1, 4) :] if is_session else prompt
        longest = random.randint(1, 3) if is_session else random.choice((1, 2, 5, max(1, length - len(prompt) - 1)))
        options: dict[str, Any] = {
            "job_id": random.choice((None, None, "a", "b/1")),
            "lora_name": random.choice((None, None, "x", "y", "z")),
            "cache_salt": random.choice((None,) * 8 + ("s", "")),
            "priority": random.choice((0, 0, 0, 1, -1, 1 - 2**63, 2**63 - 1)),
            "ends_after": random.choice((None, None, random.randint(1, 8))),
            "is_last_step": random.random() < 0.3,
            "resumable": is_session,
        }
        if self.scheduler.config.max_num_encoder_input_tokens and len(prompt) > 3 and random.random() < 0.4:
            tokens = random.randint(1, 3)
            place = random.randint(0, len(prompt) - tokens)
            kind = f"h{tokens}{random.randrange(3)}"
            options["mm_features"] = (MultiModalItem(mm_hash=kind, offset=place, length=tokens),)
        if not is_session and random.random() < 0.1:
            self.executor.pools.add(name)
            return Request(name, prompt, **options | {"pooling_params": PoolingParams(), "ends_after": None})
        if not is_session and random.random() < 0.2:
            options["structured_output"] = grammar = Grammar(random.randrange(_VOCABULARY))
            self.grammars.append(grammar)
        repeats = RepetitionDetectionParams(max_pattern_size=2, min_count=3) if random.random() < 0.1 else None
        return Request(name, prompt, self._params(longest, repeats), **options)

    def _params(self, longest: int, repeats: RepetitionDetectionParams | None) -> SamplingParams:
        random = self.random
        return SamplingParams(
            max_tokens=longest,
            min_tokens=min(longest, random.choice((0, 0, 2))),
            eos_token_id=random.choice((None, 0)),
            stop_token_ids=random.choice(((), (3,), (1, 2))),
            ignore_eos=random.random() < 0.3,
            repetition_detection=repeats,
            prompt_logprobs=1 if random.random() < 0.05 else None,
        )

    def _try(self, request: Request) -> bool:
        try:
            self.core.add_request(request)
        except RequestError:
            return False
        return True

    def _add(self) -> None:
        request = self._request(self._name())
        if self._try(request):
            self.requests[request.request_id] = request

    def _submit(self) -> None:
        request = self._request(self._name())
        self.requests[request.request_id] = request
        self.core.submit(request)

    def _open(self) -> None:
        request = self._request(self._name(), is_session=True)
        if self._try(request):
            self.requests[request.request_id], self.sessions[request.request_id] = request, True

    def _one_open(self) -> str | None:
        names = [name for name, may_send in self.sessions.items() if may_send and name in self.scheduler.requests]
        return self.random.choice(names) if names else None

    def _feed(self) -> None:
        name = self._one_open()
        if name is not None:
            self._try(self._request(name, is_session=True))

    def _end_session(self) -> None:
        name = self._one_open()
        if name is None:
            return
        if self._try(Request(name, [1])):
            self.sessions[name] = False
        if name not in self.scheduler.requests:
            self.gone.add(name)

    def _add_at_an_edge(self) -> None:
        name, random = self._name(), self.random
        options = {field: random.choice(_EDGES) for field in random.sample(_FIELDS, random.randint(0, 2))}
        params = {field: random.choice(_EDGES) for field in random.sample(_LIMITS, random.randint(0, 2))}
        prompt = random.choice((*_EDGES, *[[each] for each in _EDGES])) if random.random() < 0.2 else [1, 2, 3]
        try:
            request = Request(name, prompt, SamplingParams(**{"max_tokens": 5} | params), **options)
            self.core.add_request(request)
        except RequestError:
            return
        self.requests[name] = request

    def _abort(self) -> None:
        if self.scheduler.requests:
            name = self.random.choice(list(self.scheduler.requests))
            aborted = self.core.abort_requests([name, "nobody", name])
            assert [each.request_id for each in aborted] == [name]
            self.gone.add(name)

    def _submit_abort(self) -> None:
        if self.scheduler.requests:
            name = self.random.choice(list(self.scheduler.requests))
            self.core.submit_abort(name)
            self.gone.add(name)

    # ---- what hosts do

    def _step(self) -> None:
        for _ in range(self.random.randint(1, 4)):
            self._hear(self.core.step())

    def _take_in(self) -> None:
        if self.core.oldest is not None:
            self._hear(self.core.take_in())

    def _drain(self) -> None:
        for outputs in self.core.drain():
            self._hear(outputs)

    def _pause(self) -> None:
        self.gone |= {each.request_id for each in self.core.pause(self.random.choice(list(PauseMode)))}

    def _reset(self) -> None:
        random = self.random
        kind = random.randrange(5)
        if kind == 0:
            self.scheduler.reset_encoder_cache()
        elif kind == 1:
            self.scheduler.reset_connector_cache()
        else:
            running, far = random.random() < 0.8, random.random() < 0.3
            self.core.reset_prefix_cache(reset_running_requests=running, reset_connector=far)

    def _compile(self) -> None:
        for grammar in self.grammars:
            grammar.is_ready = grammar.is_ready or self.random.random() < 0.7

    def _observe(self) -> None:
        repr(self.scheduler)
        self.scheduler.make_stats()
        self.scheduler.take_kv_events()

    def _flying(self) -> SchedulerOutput | None:
        """The oldest plan in flight."""
        return self.plans[-self.core.num_in_flight] if self.core.num_in_flight else None

    def _pickle(self) -> None:
        plan = self._flying()
        if plan is not None:
            again = pickle.loads(pickle.dumps(plan))
            assert again == plan
            assert again.scheduled_cached_reqs == plan.scheduled_cached_reqs

    def _answer_wrongly(self) -> None:
        plan = self._flying()
        if plan is None:
            return
        before = self._state()
        for rows in ([[1]] * (len(plan.req_ids) + 1), [[2**31]] * max(1, len(plan.req_ids))):
            try:
                self.scheduler.update_from_output(plan, ModelOutput.from_lists(rows))
            except (ValueError, OverflowError):
                continue
            raise AssertionError(f"a wrong answer was taken: {rows} for {plan.req_ids}")
        assert self._state() == before, "an answer that was refused has changed something"

    def _state(self) -> object:
        scheduler = self.scheduler
        computed = [(each.request_id, each.num_computed_tokens) for each in scheduler.requests.values()]
        return scheduler.num_free_blocks, scheduler.get_request_counts(), computed

    # ---- the end

    def _come_to_rest(self) -> None:
        self.core.resume()
        self.executor.chance = 1.0
        while (name := self._one_open()) is not None:
            if self._try(Request(name, [1])):
                self.sessions[name] = False
            else:
                self.core.abort_requests(name)
            if name not in self.scheduler.requests:
                self.gone.add(name)
        for grammar in self.grammars:
            grammar.is_ready = True
        first = self.scheduler.step
        while self.core.has_work:
            self.now += 1.0
            if self.scheduler.step - first > _MOST_STEPS:
                # Equal requests may evict each other for ever without that reservation, as in vLLM.
                assert not self.scheduler.config.scheduler_reserve_full_isl, f"no end: {self.scheduler}"
                self.gone.update(self.scheduler.requests)
                self.core.abort_requests(list(self.scheduler.requests))
            self._hear(self.core.step())
            self._check()
        self._refused()
        self.scheduler.pins.clear()
        assert self.scheduler.num_free_blocks == self.num_free, f"blocks are lost: {self.scheduler}"
        lost = self.requests.keys() - self.ended - self.gone - self.sessions.keys()
        assert not lost, f"their clients never heard of an end: {lost}"
        waits = [each.request_id for each in self.requests.values() if each.status is RequestStatus.WAITING]
        assert set(waits) <= self.gone, f"they still wait: {waits}"
