"""Our scheduler under test.

plain          as a host drives it that reads columns
records        and every dictionary and record made that vLLM makes
traced         and a trace written, step records on, bounded as ``tokenyard run`` does
fully_traced   and unbounded
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from measure import writer_seconds
from tokenyard.core.config import CacheConfig, SchedulerConfig, SpeculativeConfig, SpeculativeMethod
from tokenyard.core.kv.hashing import BlockHasher
from tokenyard.core.profiles import decision_profile
from tokenyard.core.request import Request, SamplingParams
from tokenyard.core.sched.outputs import DraftTokens, ModelOutput
from tokenyard.core.sched.scheduler import Scheduler
from tokenyard.core.sched.scheduler_output import SchedulerOutput
from tokenyard.deploy.settings import MAX_IDS_PER_STEP
from tokenyard.record.recorder import TraceRecorder
from tokenyard.record.writer import TraceWriter
from tokenyard.trace.config import TraceConfig
from worker import serve
from workload import VOCAB, EngineShape, RequestSpec

if TYPE_CHECKING:
    from tokenyard.core.sched.observer import StepObserver

__all__ = ["FullyTracedEngine", "OurEngine", "RecordsEngine", "TracedEngine"]


class OurEngine:
    """The calls of ``measure.Engine``; making a request hashes its prompt, as it does on vLLM's side.

    Left to itself the scheduler hashes a prompt when it first looks it up.
    """

    count_common_prefix_blocks = False

    def __init__(self, shape: EngineShape, observer: StepObserver | None = None) -> None:
        config = SchedulerConfig(
            profile=decision_profile("0.22"),  # what it is timed against
            max_num_seqs=shape.max_num_seqs,
            max_num_batched_tokens=shape.max_num_batched_tokens,
            max_model_len=shape.max_model_len,
            async_scheduling=bool(shape.async_scheduling),
            count_common_prefix_blocks=self.count_common_prefix_blocks,
        )
        cache = CacheConfig(num_gpu_blocks=shape.num_blocks, block_size=shape.block_size)
        self._drafts = shape.num_speculative_tokens or 0
        self._proposes = bool(self._drafts) and not shape.async_scheduling
        speculative = None
        if self._drafts:
            method = SpeculativeMethod(str(shape.spec_method))
            speculative = SpeculativeConfig(num_speculative_tokens=self._drafts, method=method)
        self.scheduler = Scheduler(
            config, cache, clock=time.perf_counter, observer=observer, speculative_config=speculative
        )
        self._step = 0

    def make(self, spec: RequestSpec) -> Request:
        params = SamplingParams(max_tokens=spec.max_tokens, ignore_eos=True)
        request = Request(spec.id, spec.prompt, params, arrival_time=spec.arrival_time)
        self.scheduler.kv.hasher.extend(request)
        return request

    def hash(self, request: Request) -> None:
        self.scheduler.kv.hasher.forget_beyond(request, 0)
        # One that knows no prompt: ours would take the hashes over.
        BlockHasher(self.scheduler.cache_config.block_size).extend(request)

    def add(self, request: Request) -> None:
        self.scheduler.add_request(request)

    def schedule(self) -> SchedulerOutput:
        return self.scheduler.schedule()

    def answer(self, output: SchedulerOutput) -> ModelOutput:
        self._step += 1
        count = len(output.req_ids)
        rows = np.arange(count)
        tokens, lengths = (self._step * 31 + rows) % VOCAB, np.ones(count, np.int64)
        width = 1
        if output.drafts is not None:  # right drafts, and one token more
            lengths += (self._step + rows) % (output.drafts.counts + 1)
            width += self._drafts
        if output.is_prefill_chunk is not None:
            lengths[output.is_prefill_chunk] = 0
        return ModelOutput(np.repeat(tokens[:, None], width, axis=1), lengths)

    def update(self, output: SchedulerOutput, answer: ModelOutput) -> None:
        self.scheduler.update_from_output(output, answer)
        self.propose(output)

    def propose(self, output: SchedulerOutput) -> None:
        """Drafts for the next step, where the scheduler has to be told."""
        if self._proposes:
            count = len(output.req_ids)
            drafts = DraftTokens(np.ones((count, self._drafts), np.int64), np.full(count, self._drafts))
            self.scheduler.update_draft_token_ids(output, drafts)

    def look_up(self, request: Request) -> int:
        return self.scheduler.kv.get_computed_blocks(request).num_tokens

    def scheduled_tokens(self, output: SchedulerOutput) -> int:
        return output.total_num_scheduled_tokens

    def background_seconds(self) -> float:
        return 0.0

    def close(self) -> None:
        pass

    @property
    def num_running(self) -> int:
        return len(self.scheduler.running)

    @property
    def num_waiting(self) -> int:
        return len(self.scheduler.waiting)

    @property
    def all_decode(self) -> bool:
        return all(request.num_output_tokens for request in self.scheduler.running)


class RecordsEngine(OurEngine):
    """A host that wants what vLLM hands out gets it derived on demand: that costs, and this counts it."""

    count_common_prefix_blocks = True

    def schedule(self) -> SchedulerOutput:
        output = super().schedule()
        _ = output.num_scheduled_tokens, output.scheduled_new_reqs, output.scheduled_cached_reqs
        _ = output.num_common_prefix_blocks, output.scheduled_spec_decode_tokens
        return output

    def update(self, output: SchedulerOutput, answer: ModelOutput) -> None:
        list(self.scheduler.update_from_output(output, answer))
        self.propose(output)


class TracedEngine(OurEngine):
    """With a trace written, bounded as ``tokenyard run`` does it: a record per event, no per-request records."""

    max_ids_per_step: int | None = MAX_IDS_PER_STEP

    def __init__(self, shape: EngineShape) -> None:
        self._folder = tempfile.TemporaryDirectory()
        config = TraceConfig(
            path=Path(self._folder.name),
            policy="fcfs",
            request_records=False,
            max_ids_per_step=self.max_ids_per_step,
        )
        self._writer = TraceWriter(config)
        super().__init__(shape, TraceRecorder(self._writer))

    def background_seconds(self) -> float:
        return writer_seconds(self._writer)

    def close(self) -> None:
        self._writer.close()
        self._folder.cleanup()


class FullyTracedEngine(TracedEngine):
    """Every list of the trace is whole, however long the queues are."""

    max_ids_per_step = None


if __name__ == "__main__":
    serve({"plain": OurEngine, "records": RecordsEngine, "traced": TracedEngine, "fully_traced": FullyTracedEngine})
