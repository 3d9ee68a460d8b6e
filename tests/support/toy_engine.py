"""A scheduler with a toy model in front of it: what most tests need to ask one question about one step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any
from zlib import crc32

from tests.support.profiles import VLLM_0_22

from tokenyard.core.config import CacheConfig, SchedulerConfig, SpeculativeConfig
from tokenyard.core.kv.manager import KVCacheManager
from tokenyard.core.request import Request, SamplingParams
from tokenyard.core.sched.connector import KVConnector
from tokenyard.core.sched.observer import SchedulerState, StepObserver
from tokenyard.core.sched.outcomes import Outcome, StepOutcomes
from tokenyard.core.sched.outputs import EngineOutputs, ModelOutput
from tokenyard.core.sched.policy import Policy
from tokenyard.core.sched.scheduler import Scheduler
from tokenyard.core.sched.scheduler_output import SchedulerOutput

__all__ = ["ToyEngine", "Watcher", "make_request", "memory_state", "prompt_of", "snapshot"]

FIRST_SAMPLED = 2_000_000_000
"""Tokens that the toy model samples start here: no prompt holds one."""

_PARAM_FIELDS = {field.name for field in fields(SamplingParams)}
_CACHE_FIELDS = {field.name for field in fields(CacheConfig)}


def prompt_of(text: str, length: int) -> list[int]:
    """``length`` tokens that begin like any other prompt made from the same text, and like none made from another."""
    first = crc32(text.encode()) % 1_000_000 * 1000
    return list(range(first, first + length))


def make_request(request_id: str, prompt: int | Sequence[int] = 4, **options: Any) -> Request:
    """A request, sampling fields sorted out; an int prompt is that many tokens which no other id's begins with."""
    params = {name: options.pop(name) for name in list(options) if name in _PARAM_FIELDS}
    tokens = prompt_of(request_id, prompt) if isinstance(prompt, int) else list(prompt)
    return Request(request_id, tokens, SamplingParams(**{"max_tokens": 8, **params}), **options)


class Watcher(StepObserver):
    """An observer that keeps the names of its calls and what the last step decided."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.outcomes = StepOutcomes()

    def names(self) -> list[str]:
        """What was called, in order."""
        return [call[0] for call in self.calls]

    def request_arrived(self, ts: float, request: Request) -> None:
        self.calls.append(("request_arrived", ts, request.request_id))

    def step_started(self, ts: float, step: int, state: SchedulerState) -> None:
        self.calls.append(("step_started", ts, step, len(state.running)))

    def prefix_looked_up(self, ts: float, step: int, request: Request, local: int, external: int) -> None:
        self.calls.append(("prefix_looked_up", ts, step, request.request_id, local, external))

    def step_decided(self, ts: float, output: SchedulerOutput, outcomes: StepOutcomes, state: SchedulerState) -> None:
        self.outcomes = outcomes
        self.calls.append(("step_decided", ts, output.step, len(state.running)))

    def step_completed(self, ts: float, output: SchedulerOutput, outputs: EngineOutputs) -> None:
        self.calls.append(("step_completed", ts, output.step, len(outputs)))

    def request_finished(self, ts: float, request: Request) -> None:
        self.calls.append(("request_finished", ts, request.request_id, request.times.finished))


class ToyEngine:
    """A small scheduler, its watcher and a toy model; checks all invariants after everything it does.

    Settings go to SchedulerConfig or CacheConfig by their names; it decides as vLLM 0.22 unless ``profile`` is given.
    ``now`` is the clock: set it.
    """

    def __init__(
        self,
        *,
        policy_object: Policy | None = None,
        speculative: SpeculativeConfig | None = None,
        kv_connector: KVConnector | None = None,
        log_stats: bool = False,
        **settings: Any,
    ) -> None:
        cache: dict[str, Any] = {"num_gpu_blocks": 101, "block_size": 4}
        cache |= {name: settings.pop(name) for name in list(settings) if name in _CACHE_FIELDS}
        limits = {"max_num_seqs": 8, "max_num_batched_tokens": 64, "max_model_len": 64}
        settings = {"profile": VLLM_0_22, **limits, **settings}
        self.now = 0.0
        self.watcher = Watcher()
        self.scheduler = Scheduler(
            SchedulerConfig(**settings),
            CacheConfig(**cache),
            clock=lambda: self.now,
            observer=self.watcher,
            policy=policy_object,
            speculative_config=speculative,
            kv_connector=kv_connector,
            log_stats=log_stats,
        )
        self.num_sampled = 0
        self.requests: dict[str, Request] = {}

    # ---- what happened

    @property
    def outcomes(self) -> StepOutcomes:
        """What came of the last step."""
        return self.watcher.outcomes

    @property
    def admission(self) -> Outcome:
        """Why the last admission pass ended."""
        assert self.outcomes.admission is not None, "the step recorded no outcome of the admission pass"
        return self.outcomes.admission

    @property
    def running(self) -> list[str]:
        return [request.request_id for request in self.scheduler.running]

    @property
    def waiting(self) -> list[str]:
        return [request.request_id for request in self.scheduler.waiting]

    @property
    def skipped(self) -> list[str]:
        return [request.request_id for request in self.scheduler.skipped_waiting]

    @property
    def free(self) -> int:
        return self.scheduler.num_free_blocks

    def blocks(self, request_id: str) -> list[int]:
        """Block ids that a request holds, in position order."""
        return self.scheduler.kv.get_block_ids(self.requests[request_id])[0]

    # ---- doing things

    def add(self, request_id: str, prompt: int | Sequence[int] = 4, **options: Any) -> Request:
        """Make a request and add it."""
        request = make_request(request_id, prompt, **options)
        self.scheduler.add_request(request)
        self.requests[request_id] = request
        self.scheduler.check_invariants()
        return request

    def schedule(self) -> SchedulerOutput:
        output = self.scheduler.schedule()
        self.scheduler.check_invariants()
        return output

    def update(self, output: SchedulerOutput, sampled: Mapping[str, Sequence[int]] | None = None) -> EngineOutputs:
        """Answer a step: a fresh token for everyone whose known tokens are computed, unless ``sampled`` says else."""
        result = self.scheduler.update_from_output(output, self.model(output, sampled or {}))
        self.scheduler.check_invariants()
        return result

    def model(self, output: SchedulerOutput, sampled: Mapping[str, Sequence[int]]) -> ModelOutput:
        """What the toy model returns for a step."""
        chunks = [False] * len(output.req_ids) if output.is_prefill_chunk is None else output.is_prefill_chunk.tolist()
        rows = [
            sampled.get(request_id, [] if chunk else [self._fresh_token()])
            for request_id, chunk in zip(output.req_ids, chunks, strict=True)
        ]
        return ModelOutput.from_lists(rows)

    def _fresh_token(self) -> int:
        self.num_sampled += 1
        return FIRST_SAMPLED + self.num_sampled

    def step(self, sampled: Mapping[str, Sequence[int]] | None = None) -> SchedulerOutput:
        """One whole step; returns what was decided."""
        output = self.schedule()
        self.update(output, sampled)
        return output

    def steps(self, number: int) -> None:
        for _ in range(number):
            self.step()

    def until(self, arrived: Callable[[], bool], limit: int = 1000) -> SchedulerOutput:
        """Step until something is so, once at least; returns the last decision."""
        for _ in range(limit):
            output = self.step()
            if arrived():
                return output
        raise AssertionError(f"it did not happen within {limit} steps")

    def abort(self, *request_ids: str) -> list[str]:
        ended = self.scheduler.finish_requests(request_ids)
        self.scheduler.check_invariants()
        return [request.request_id for request in ended]

    def drain(self, limit: int = 1000) -> int:
        """Step until nothing is left; returns the number of steps."""
        for number in range(limit):
            if not self.scheduler.has_requests():
                return number
            self.step()
        raise AssertionError(f"{self.scheduler.get_num_unfinished_requests()} requests are left after {limit} steps")


def snapshot(scheduler: Scheduler) -> Any:
    """Everything a refusal must leave as it was, by value: queues, requests, blocks, index, statistics."""
    stats = scheduler.kv.stats
    return (
        list(scheduler.requests),
        [request.request_id for request in scheduler.running],
        [request.request_id for request in scheduler.waiting],
        [request.request_id for request in scheduler.skipped_waiting],
        {rid: _facts(request) for rid, request in scheduler.requests.items()},
        memory_state(scheduler.kv),
        [getattr(stats, name) for name in _STATISTICS],
        scheduler.step,
    )


def memory_state(kv: KVCacheManager) -> Any:
    """Return holders of blocks, the order in which free ones are handed out, what each is found by, and slots."""
    pool = kv.pool
    contents = {each for each in pool.content if each is not None}
    return (
        pool.free_blocks(),
        list(pool.holders),
        list(pool.content),
        {(each, group): pool.blocks_with(each, group) for each in contents for group in range(pool.num_groups)},
        pool.num_cached,
        kv.held_lists(),
        {slot: _facts(request) for slot, request in kv.tenants.items()},
        (list(kv.free_slots), kv.num_slots),
    )


def _facts(request: Request) -> dict[str, Any]:
    facts: dict[str, Any] = {name: getattr(request, name) for name in _COUNTERS}
    return facts | {
        "spec_token_ids": list(request.spec_token_ids),
        "block_hashes": list(request.block_hashes),
        "blocks": request.blocks.as_list(),
        "all_token_ids": request.all_token_ids,
    }


_STATISTICS = ("requests", "queries", "hits", "preempted_requests", "preempted_queries", "preempted_hits", "reset")
_COUNTERS = (
    *("request_id", "status", "stop_reason", "num_prompt_tokens", "num_tokens", "num_computed_tokens"),
    *("num_output_placeholders", "num_cached_tokens", "num_external_computed_tokens", "num_preemptions"),
    *("async_steps_to_discard", "is_prefill_chunk", "last_step", "stop_at", "max_total", "eos", "looks_closer", "slot"),
    *("num_published", "publish_at", "skip_at", "encoder_at"),
)
"""What the scheduler writes in a request and a refusal must not; a lookup may note what it has found."""
