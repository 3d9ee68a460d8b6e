"""A closed loop: as many requests in flight as there are users, the next one sent when one ends.

What happens in which step does not depend on how long the steps take, because nothing arrives by the clock. So the
scheduler runs once per schedule, and any latency model is evaluated over the recorded steps afterwards:

    end[s]  = sum of the seconds of steps 0 .. s
    TTFT    = end[first] - end[arrived]                    arrived: the step whose end freed the place, -1 at the start
    TPOT    = (end[last] - end[first]) / (tokens - 1)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tokenyard.config import CacheConfig, SchedulerConfig
from tokenyard.engine.core import EngineCore
from tokenyard.engine.executor import DoneStep
from tokenyard.profiles import VLLM_0_22, DecisionProfile
from tokenyard.request import Request, SamplingParams
from tokenyard.sched.features.grammars import GrammarOutput
from tokenyard.sched.scheduler import Scheduler
from tokenyard.sched.steps.model_output import ModelOutput
from tokenyard.sched.steps.scheduler_output import SchedulerOutput
from tokenyard.sim.latency.model import StepShape, StepWork

__all__ = ["ClosedLoop", "Schedule", "draw_lengths", "run_closed_loop"]

Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLoop:
    """What arrives, and the limits of the engine; equal ones have equal schedules."""

    users: int
    """Requests in flight."""
    input_tokens: int
    output_tokens: int
    shortest: float = 1.0
    """Lengths are drawn evenly from this share of the two above up to them (vLLM bench: ``--random-range-ratio``)."""
    rounds: int = 10
    """Requests per user."""
    max_num_batched_tokens: int = 8192
    max_num_seqs: int = 1024
    num_gpu_blocks: int = 1 << 20
    block_size: int = 16
    async_scheduling: bool = True
    seed: int = 0
    profile: DecisionProfile = VLLM_0_22
    """Who decides."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Schedule:
    """What was computed in which step, and which steps a request's tokens came from."""

    work: Floats
    """Columns of :class:`StepWork` per rank, shape ``[rows, ranks, 8]``; a row is a step, or the mean of several."""
    repeats: Floats
    """Steps that a row stands for, shape ``[rows]``."""
    arrived: Int64s
    """Per request: the row at whose end it arrived; -1: at the start. Shape ``[requests]``."""
    first: Int64s
    """Per request: the row that ends with its first token."""
    last: Int64s
    """Per request: the row that ends with its last token."""
    tokens: Int64s
    """Per request: output tokens."""

    def times(self, seconds: Floats) -> tuple[Floats, Floats]:
        """TTFT and TPOT of every request, in seconds, if the steps of each row last so long."""
        end = np.concatenate((np.cumsum(seconds * self.repeats), [0.0]))  # row -1: the start
        return end[self.first] - end[self.arrived], (end[self.last] - end[self.first]) / np.maximum(self.tokens - 1, 1)


def run_closed_loop(loop: ClosedLoop) -> Schedule:
    """Run the scheduler until every request has ended."""
    return _Run(loop).schedule()


class _Recorder:
    """An executor whose steps are done at once; it notes what they computed."""

    def __init__(self) -> None:
        self.work: list[StepWork] = []
        self.step_of: dict[int, int] = {}
        """Number of the plan -> its row in ``work``."""
        self._plan: SchedulerOutput | None = None

    def execute_model(self, plan: SchedulerOutput) -> None:
        if plan.total_num_scheduled_tokens:
            self.step_of[plan.step] = len(self.work)
            self.work.append(StepWork.of(StepShape.of(plan)))

    def sample_tokens(self, plan: SchedulerOutput, grammar: GrammarOutput | None) -> DoneStep:
        chunks = plan.is_prefill_chunk
        rows = len(plan.req_ids)
        sampled = np.ones(rows, np.int64) if chunks is None else (~chunks).astype(np.int64)
        return DoneStep(ModelOutput(np.ones((rows, 1), np.int64), sampled))

    def take_draft_token_ids(self) -> None:
        return None

    def shutdown(self) -> None:
        """Nothing is held."""


class _Run:
    """One run of the scheduler."""

    def __init__(self, loop: ClosedLoop) -> None:
        self._prompts, self._outputs = draw_lengths(loop)
        count = len(self._prompts)
        config = SchedulerConfig(
            profile=loop.profile,
            max_num_seqs=loop.max_num_seqs,
            max_num_batched_tokens=loop.max_num_batched_tokens,
            max_model_len=loop.input_tokens + loop.output_tokens + 1,
            async_scheduling=loop.async_scheduling,
        )
        cache = CacheConfig(num_gpu_blocks=loop.num_gpu_blocks, block_size=loop.block_size, enable_prefix_caching=False)
        self._recorder = _Recorder()
        self._core = EngineCore(Scheduler(config, cache), self._recorder)
        self._users = loop.users
        self._sent = 0
        self._prompt = np.zeros(loop.input_tokens, np.int32)
        self._arrived, self._first, self._last = (np.full(count, -1) for _ in range(3))
        self._waiting: set[str] = set()
        """Ids without a first token."""

    def schedule(self) -> Schedule:
        for _ in range(self._users):
            self._send(-1)
        core, row_of = self._core, self._recorder.step_of
        while core.has_work:
            outputs = core.step()
            row = None if outputs is None else row_of.pop(outputs.step, None)
            if outputs is None or row is None:
                continue
            if self._waiting:
                started = self._waiting.intersection(outputs.req_ids)
                self._first[[int(each) for each in started]] = row
                self._waiting -= started
            for i in outputs.finish_reasons:
                self._last[int(outputs.req_ids[i])] = row
                self._send(row)
        work = np.array(self._recorder.work, np.float64)[:, None]
        return Schedule(
            work=work,
            repeats=np.ones(len(work)),
            arrived=self._arrived,
            first=self._first,
            last=self._last,
            tokens=self._outputs,
        )

    def _send(self, row: int) -> None:
        """The next request, if there is one left."""
        i = self._sent
        if i == len(self._prompts):
            return
        self._sent += 1
        self._arrived[i] = row
        self._waiting.add(str(i))
        sampling = SamplingParams(max_tokens=int(self._outputs[i]), ignore_eos=True)
        self._core.add_request(Request(str(i), self._prompt[: self._prompts[i]], sampling))


def draw_lengths(loop: ClosedLoop) -> tuple[Int64s, Int64s]:
    """Prompt and output tokens of every request."""
    rng = np.random.default_rng(loop.seed)
    count = loop.users * loop.rounds

    def draw(longest: int) -> Int64s:
        return rng.integers(max(1, int(longest * loop.shortest)), longest + 1, count)

    return draw(loop.input_tokens), draw(loop.output_tokens)
