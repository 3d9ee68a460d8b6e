"""Long random walks: many more steps than the state machine of the tests takes in the same time.

By turns they are those of an engine core (``core_walks.py``) and those of a bare scheduler, which are here.

A walk draws a configuration that is small enough for every limit to bind (blocks, sequences, tokens per step, prefix
cache, windows, drafts, steps in flight, priorities, every known version of vLLM), then lets requests arrive, end, be
aborted and be preempted by cache resets. After every call the scheduler's own invariants are checked; beside them, what
no part of the scheduler knows: that a step stays within its limits, that clients are told each request's tokens once,
and that at the end nothing is left and every block is free.
"""

from __future__ import annotations

import multiprocessing
import traceback
from collections import deque
from collections.abc import Iterator
from itertools import count
from random import Random

import numpy as np

from fuzzing.core_walks import CoreWalk
from tokenyard.core.config import (
    CacheConfig,
    GroupKind,
    KVCacheGroup,
    SchedulerConfig,
    SpeculativeConfig,
    SpeculativeMethod,
)
from tokenyard.core.profiles import PROFILES
from tokenyard.core.request import FinishReason, Request, SamplingParams
from tokenyard.core.sched.outputs import DraftTokens, EngineOutputs, ModelOutput
from tokenyard.core.sched.scheduler import Scheduler
from tokenyard.core.sched.scheduler_output import SchedulerOutput

__all__ = ["walk_steps"]

STEPS = 2_000
"""Steps of a walk before its clients stop sending."""
MOST_STEPS = 20_000
"""A walk that takes longer does not come to an end."""
_BATCH = 64
_MODEL_LEN = 96
_VOCABULARY = 12
_STOP_TOKEN = 3
_TEXTS = 4
"""Beginnings that prompts share."""


def walk_steps(steps: int, seed: int, processes: int | None = None) -> Iterator[int]:
    """Yields the steps so far after every walk, until ``steps``; AssertionError, with the seed, where one broke.

    Walks have the numbers from ``seed`` on, even ones of a bare scheduler and odd ones of an engine core; for a single
    step the walk of ``seed`` alone is made, in one process.
    """
    done = 0
    with multiprocessing.get_context("spawn").Pool(1 if steps == 1 else processes) as pool:
        for first in count(seed, _BATCH):
            for made in pool.imap_unordered(_walk, range(first, first + _BATCH)):
                done += made
                yield done
                if done >= steps:
                    return


def _walk(seed: int) -> int:
    try:
        walk = CoreWalk if seed % 2 else Walk
        return walk(Random(f"walk {seed}")).run()
    except Exception as error:
        fix = f"repeat it: scripts/fuzz.py --inputs 0 --steps 0 --walk 1 --seed {seed}"
        raise AssertionError(f"{fix}\n{traceback.format_exc()}") from error


class Walk:
    """A scheduler, its clients and its model."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.now = 0.0
        self.drafts = random.choice((0, 0, 0, 2))
        config, cache = self._config(), self._cache()
        speculative = None
        if self.drafts:
            methods = [SpeculativeMethod.EAGLE] if config.async_scheduling else list(SpeculativeMethod)
            speculative = SpeculativeConfig(num_speculative_tokens=self.drafts, method=random.choice(methods))
        self.scheduler = Scheduler(config, cache, clock=lambda: self.now, speculative_config=speculative)
        self.num_free = self.scheduler.num_free_blocks
        self.in_flight: deque[SchedulerOutput] = deque()
        self.told: dict[str, int] = {}
        """Unfinished request -> tokens that its client was told."""
        self.asked: dict[str, int] = {}
        """Unfinished request -> its ``max_tokens``."""
        self.num_added = 0
        self.num_steps = 0
        """That computed something."""

    def _config(self) -> SchedulerConfig:
        random = self.random
        return SchedulerConfig(
            profile=random.choice(list(PROFILES.values())),
            max_num_seqs=random.choice((1, 3, 8, 16)),
            max_num_batched_tokens=random.choice((_MODEL_LEN, 128, 256)),
            max_model_len=_MODEL_LEN,
            policy=random.choice(("fcfs", "fcfs", "priority")),
            enable_chunked_prefill=random.random() < 0.8,
            long_prefill_token_threshold=random.choice((0, 0, 24)),
            scheduler_reserve_full_isl=random.random() < 0.5,
            async_scheduling=random.random() < 0.5,
        )

    def _cache(self) -> CacheConfig:
        random, size = self.random, self.random.choice((2, 4, 8))
        groups = random.choice(((), (), (KVCacheGroup(kind=GroupKind.SLIDING_WINDOW, window=3 * size),)))
        needed = -(-(_MODEL_LEN + 2 * self.drafts) // size) * (1 + len(groups)) + 2
        return CacheConfig(
            num_gpu_blocks=random.choice((needed + 1, 2 * needed, 5 * needed)),
            block_size=size,
            enable_prefix_caching=random.random() < 0.8,
            groups=(KVCacheGroup(), *groups),
        )

    def run(self) -> int:
        """Walk to the end; the steps that computed something."""
        often = self.random.choice((0.05, 0.2, 0.6))
        for _ in range(STEPS):
            self._clients(often)
            self._step()
        while self.told:
            if self.scheduler.step >= MOST_STEPS:
                # Without that reservation requests of one priority may evict each other for ever.
                assert not self.scheduler.config.scheduler_reserve_full_isl, f"no request ends: {self.scheduler}"
                self.scheduler.finish_requests(list(self.told))
                self.told.clear()
            self._step()
        while self.in_flight:
            self._take_in()
        assert not self.scheduler.has_unfinished_requests(), f"all requests have ended, but {self.scheduler}"
        assert self.scheduler.num_free_blocks == self.num_free, f"blocks are lost: {self.scheduler}"
        return self.num_steps

    def _clients(self, often: float) -> None:
        random, scheduler = self.random, self.scheduler
        if random.random() < often and len(self.told) < 40:
            for _ in range(random.randint(1, 3)):
                self._add()
        if self.told and random.random() < 0.01:
            name = random.choice(list(self.told))
            scheduler.finish_requests(name)
            del self.told[name], self.asked[name]
            scheduler.check_invariants()
        if random.random() < 0.002:
            scheduler.reset_prefix_cache(reset_running_requests=random.random() < 0.5)
            scheduler.check_invariants()

    def _add(self) -> None:
        random = self.random
        shared = random.randint(0, 40)
        text = 1_000 * random.randrange(_TEXTS)
        prompt = [*range(text, text + shared), *random.choices(range(_VOCABULARY), k=random.randint(1, 30))]
        name, self.num_added = f"r{self.num_added}", self.num_added + 1
        max_tokens = random.choice((1, 2, 8, _MODEL_LEN - len(prompt)))
        stops = (_STOP_TOKEN,) if random.random() < 0.3 else ()
        params = SamplingParams(max_tokens=max_tokens, stop_token_ids=stops, ignore_eos=True)
        self.scheduler.add_request(Request(name, prompt, params, priority=random.randrange(3)))
        self.told[name], self.asked[name] = 0, max_tokens

    def _step(self) -> None:
        scheduler, config = self.scheduler, self.scheduler.config
        self.now += 0.01
        step = scheduler.schedule()
        scheduler.check_invariants()
        assert step.total_num_scheduled_tokens == int(step.num_new_tokens.sum()) <= config.max_num_batched_tokens
        assert len(scheduler.running) <= config.max_num_seqs
        assert len(set(step.req_ids)) == len(step.req_ids)
        assert set(step.req_ids) <= self.told.keys(), "a request was scheduled that has ended"
        self.num_steps += bool(step.req_ids)
        self.in_flight.append(step)
        if len(self.in_flight) > config.async_scheduling:
            self._take_in()

    def _take_in(self) -> None:
        step = self.in_flight.popleft()
        self._hear(self.scheduler.update_from_output(step, self._answer(step)))
        self.scheduler.check_invariants()
        self._propose(step)

    def _answer(self, step: SchedulerOutput) -> ModelOutput:
        """A random token for each request that samples, and for each of its drafts up to one that is rejected."""
        rows = len(step.req_ids)
        lengths = np.ones(rows, np.int64)
        if step.drafts is not None:
            lengths += [self.random.randint(0, drafts) for drafts in step.drafts.counts.tolist()]
        if step.is_prefill_chunk is not None:
            lengths[step.is_prefill_chunk] = 0
        width = 1 + self.drafts
        tokens = self.random.choices(range(_VOCABULARY), k=rows * width)
        return ModelOutput(np.array(tokens, np.int64).reshape(rows, width), lengths)

    def _hear(self, outputs: EngineOutputs) -> None:
        for name, tokens in zip(outputs.req_ids, outputs.num_tokens.tolist(), strict=True):
            assert name in self.told, f"{name} has ended, and its client is told more"
            self.told[name] += tokens
            assert self.told[name] <= self.asked[name], f"{name} got more than it asked for"
        for row, reason in outputs.finish_reasons.items():
            name = outputs.req_ids[row]
            told, asked = self.told.pop(name), self.asked.pop(name)
            assert reason is FinishReason.STOP or told == asked, f"{name} ended as {reason} with {told} of {asked}"

    def _propose(self, step: SchedulerOutput) -> None:
        """Drafts for the next step, where the scheduler has to be told."""
        if not self.drafts or self.scheduler.config.async_scheduling or not step.req_ids:
            return
        counts = [self.random.randint(0, self.drafts) for _ in step.req_ids]
        tokens = self.random.choices(range(_VOCABULARY), k=len(counts) * self.drafts)
        drafts = np.array(tokens, np.int64).reshape(len(counts), self.drafts)
        self.scheduler.update_draft_token_ids(step, DraftTokens(drafts, np.array(counts, np.int64)))
