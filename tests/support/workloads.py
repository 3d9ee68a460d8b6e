"""Small workloads, one per feature that holds requests back, each drawn from a seed and written to a trace."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from random import Random
from typing import Any

from tests.support.toy_connector import ToyConnector
from tests.support.toy_engine import make_request
from tests.support.worker import Worker
from tests.unit.trace.recorded import RecordedYard

from tokenyard.core.config import GroupKind, KVCacheGroup, PauseState, SpeculativeConfig
from tokenyard.core.params import MultiModalItem
from tokenyard.core.sched.observer import Observers, StepObserver
from tokenyard.core.sched.outputs import DraftTokens, ModelOutput
from tokenyard.core.sched.scheduler_output import SchedulerOutput
from tokenyard.errors import RequestError
from tokenyard.trace.facts import FactSink

__all__ = ["WORKLOADS", "TracedWorkload"]

WORKLOADS: dict[str, dict[str, Any]] = {
    "pressure": {"num_gpu_blocks": 15, "max_num_seqs": 4},
    "priority": {"policy": "priority", "num_gpu_blocks": 17, "max_num_seqs": 4, "enable_prefix_caching": False},
    "async": {"async_scheduling": True, "num_gpu_blocks": 19, "max_num_seqs": 4, "scheduler_reserve_full_isl": False},
    "speculation": {"num_gpu_blocks": 23, "max_num_seqs": 3, "max_num_batched_tokens": 24},
    "lora": {"max_loras": 1, "max_num_seqs": 3},
    "images": {"max_num_encoder_input_tokens": 8, "encoder_cache_size": 16, "max_num_batched_tokens": 32},
    "connector": {"num_gpu_blocks": 21, "max_num_seqs": 4},
    "whole prompts": {
        "enable_chunked_prefill": False,
        "skip_oversized_prefill": True,
        "max_num_batched_tokens": 40,
        "max_model_len": 40,
    },
    "pauses": {"max_num_seqs": 2, "max_num_batched_tokens": 16},
    "hybrid": {
        "groups": (KVCacheGroup(), KVCacheGroup(kind=GroupKind.SLIDING_WINDOW, window=8)),
        "num_gpu_blocks": 34,
        "max_num_batched_tokens": 24,
        "watermark": 0.2,
    },
}
"""Name -> settings of its scheduler."""
_MOST_STEPS = 400


class TracedWorkload:
    """A scheduler under one of the workloads; ``run`` serves it and closes the trace."""

    def __init__(
        self,
        name: str,
        seed: int,
        path: Path,
        *sinks: FactSink,
        observers: tuple[StepObserver, ...] = (),
        trace: dict[str, Any] | None = None,
    ) -> None:
        self._random = random = Random(f"{name} {seed}")
        settings = dict(WORKLOADS[name])
        self._name = name
        self._depth = 2 if settings.get("async_scheduling") else 1
        self._connector = ToyConnector(random) if name == "connector" else None
        self._drafts = 2 if name == "speculation" else 0
        self.toy = RecordedYard(
            path,
            *sinks,
            trace=trace,
            speculative=SpeculativeConfig(num_speculative_tokens=self._drafts) if self._drafts else None,
            kv_connector=self._connector,
            **settings,
        )
        scheduler = self.toy.scheduler
        scheduler.observer = Observers(self.toy.watcher, self.toy.recorder, *observers)
        self._worker = Worker(scheduler.cache_config)
        self._flights: deque[SchedulerOutput] = deque()
        self.toy.now = 1_713_567_000.25

    def run(self, requests: int, *, to_the_end: bool = True) -> None:
        """Serve so many requests; if not to the end, the trace ends in the middle."""
        random, scheduler, number = self._random, self.toy.scheduler, 0
        for _ in range(_MOST_STEPS):
            while number < requests and random.random() < 0.6:
                self._add(number)
                number += 1
            if number == requests and (not to_the_end or not scheduler.has_requests()):
                break
            if self._name == "pauses":
                scheduler.set_pause_state(random.choice([*PauseState, *[PauseState.UNPAUSED] * 3]))
            if scheduler.requests and random.random() < 0.03:
                self.toy.abort(random.choice(sorted(scheduler.requests)))
            self._step()
        while self._flights:
            self._update()
        self.toy.writer.close()

    def _add(self, number: int) -> None:
        random = self._random
        job = f"job_{number % 4:04}"
        length = random.choice([3, 6, 12, 20, 30])
        images = []
        if self._name == "images" and length >= 8 and random.random() < 0.7:
            images = [MultiModalItem(mm_hash=f"image{random.randrange(6)}", offset=random.randint(0, 3), length=5)]
        request = make_request(
            f"{job}_t{number // 4}",
            length,
            max_tokens=random.choice([1, 2, 5, 8]),
            arrival_time=self.toy.now - random.choice([0.0, 0.0, 0.125, 0.3]),
            job_id=random.choice([job, job, None]),
            priority=random.randrange(3),
            lora_name=random.choice([None, "x", "y", "z"]) if self._name == "lora" else None,
            mm_features=images,
        )
        try:
            self.toy.scheduler.add_request(request)
        except RequestError:
            return  # no step could serve it
        self.toy.requests[request.request_id] = request

    def _step(self) -> None:
        toy = self.toy
        while len(self._flights) < self._depth and toy.scheduler.has_requests():
            self._flights.append(toy.schedule())
            toy.now += self._random.choice([0.0, 0.001, 0.25])
        toy.now += self._random.choice([0.013, 0.25, 0.5, 1.1])
        if self._flights:
            self._update()
            toy.now += self._random.choice([0.0, 0.0, 0.125])

    def _update(self) -> None:
        toy, random, output = self.toy, self._random, self._flights.popleft()
        drafted = output.scheduled_spec_decode_tokens if self._drafts else {}
        chunks = [False] * len(output.req_ids) if output.is_prefill_chunk is None else output.is_prefill_chunk.tolist()
        sampled: list[list[int]] = []
        for request_id, chunk in zip(output.req_ids, chunks, strict=True):
            known = list(drafted.get(request_id, ()))
            sampled.append(
                []
                if chunk
                else [*known[: random.randint(0, len(known))], random.randrange(2_000_000_000, 2_000_000_099)]
            )
        report = self._connector.report(self._worker, lambda: random.random() < 0.4) if self._connector else None
        toy.scheduler.update_from_output(output, ModelOutput.from_lists(sampled, report))
        toy.scheduler.check_invariants()
        if self._drafts:
            drafts = [[random.randrange(99)] * random.randint(0, self._drafts) for _ in output.req_ids]
            toy.scheduler.update_draft_token_ids(output, DraftTokens.from_lists(drafts))
