"""A closed loop of users: replayed as it is, or once for all latency models."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tokenyard.core.config import CacheConfig, SchedulerConfig
from tokenyard.core.profiles import OLDEST, DecisionProfile
from tokenyard.core.request import Request
from tokenyard.core.sched.observer import StepObserver
from tokenyard.quick_dataclass import dataclass
from tokenyard.sim.replay import replay_engines
from tokenyard.sim.routers import Fleet
from tokenyard.sim.settings import ReplaySettings
from tokenyard.steptime.front_end import FrontEndTime
from tokenyard.steptime.model import RanksLatency, StepShape, StepWork, TransferDirection
from tokenyard.workload.record import Workload, WorkloadRequest
from tokenyard.workload.tokens import StreamTokens

# ---------------------------------------------------------------------------------------------------------------------
# A closed loop: as many requests in flight as there are users, the next one sent when one ends.
#
# With nothing between clients and scheduler, what happens in which step does not depend on how long the steps take,
# because nothing arrives by the clock. A fit of step times goes by that: the scheduler runs once per schedule, and any
# latency model is evaluated over the recorded steps afterwards:
#
#     end[s]    sum of the seconds of steps 0 .. s
#     TTFT      end[first] - end[arrived]; arrived is the step whose end freed the place, -1 at the start
#     TPOT      end[last] - end[first], over tokens - 1

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
    distinct_prompts: int = 0
    """Number of prompts that are sent in turn, again and again, to an engine that caches prefixes; every user sends one
    before the measurement begins. 0: every prompt is new, and nothing is sent before.
    """
    max_num_batched_tokens: int = 8192
    max_num_seqs: int = 1024
    num_gpu_blocks: int = 1 << 20
    block_size: int = 16
    async_scheduling: bool = False
    """Steps are decided one ahead; a schedule, which knows no times, is of an engine that does not."""
    seed: int = 0
    profile: DecisionProfile = OLDEST
    """The scheduler whose decisions are replayed."""


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


def run_closed_loop(loop: ClosedLoop, ranks: int = 1) -> Schedule:
    """Replay it until every request has ended; ``loop.users`` are those of all ranks, the limits those of one.

    Every step takes a second, so that moments count steps.
    """
    steps, outputs = _CountedSteps(), draw_lengths(loop)[1]
    return steps.schedule(_moments(loop, ranks, steps), outputs)


def replayed_times(
    loop: ClosedLoop, ranks: int, latency: RanksLatency, front_end: FrontEndTime
) -> tuple[Floats, Floats]:
    """TTFT and TPOT of every request in seconds, as ``tokenyard run`` replays them: requests are on their way to the
    scheduler for as long as the front end says, and steps last as ``latency`` does.
    """
    arrived, first, last = _moments(loop, ranks, latency, front_end)
    return first - arrived, (last - first) / np.maximum(draw_lengths(loop)[1] - 1, 1)


def _moments(loop: ClosedLoop, ranks: int, latency: RanksLatency, front_end: FrontEndTime | None = None) -> Floats:
    """When each measured request arrived, got its first token and ended: shape ``[3, n]``."""
    workload = Workload("closed loop", closed_loop_requests(loop), max_concurrency=loop.users)
    if front_end is not None:
        workload = workload.with_front_end(front_end.seconds)
    config = SchedulerConfig(
        profile=loop.profile,
        max_num_seqs=loop.max_num_seqs,
        max_num_batched_tokens=loop.max_num_batched_tokens,
        max_model_len=loop.input_tokens + loop.output_tokens + 1,
        async_scheduling=loop.async_scheduling and front_end is not None,
    )
    # More blocks than all requests in flight can hold change no decision: a pool of a million only takes memory.
    most_blocks = loop.users * (config.max_model_len // loop.block_size + 2) + 1
    blocks = min(loop.num_gpu_blocks, most_blocks)
    caches = loop.distinct_prompts > 0
    blocks = loop.num_gpu_blocks if caches else blocks
    cache = CacheConfig(num_gpu_blocks=blocks, block_size=loop.block_size, enable_prefix_caching=caches)
    ended = Ended()
    settings = ReplaySettings(config, cache, latency, fleet=Fleet(ranks, ranks > 1, loop.profile.vllm_version))
    replay_engines(workload, settings, observers=[ended] * ranks, policy="fcfs")
    return ended.moments[:, _sent_before(loop) :]


def _sent_before(loop: ClosedLoop) -> int:
    """Requests that have to end before the measurement begins."""
    return loop.users if loop.distinct_prompts else 0


def closed_loop_requests(loop: ClosedLoop) -> list[WorkloadRequest]:
    """The requests that are measured, behind those that have to end first."""
    prompts, outputs = draw_lengths(loop)
    before = _sent_before(loop)
    distinct = loop.distinct_prompts or len(prompts)
    names = tuple(str(i) for i in range(before))
    return [
        WorkloadRequest(
            request_id=str(i),
            prompt=StreamTokens.unique(each, int(prompts[each % len(prompts)])),
            max_tokens=int(outputs[max(0, i - before)]),
            after=names if i >= before else (),
            output_seed=i,
        )
        for i, each in enumerate((np.arange(before + len(prompts)) % distinct).tolist())
    ]


_DUMMY = (0.0,) * 8
"""What a rank computes for requests that has none in a step."""


class _CountedSteps:
    """A latency model by which every step takes a second; it notes what they compute, equal ones in a row at once."""

    host_seconds = 0.0

    def __init__(self) -> None:
        self._work: list[list[Sequence[float]]] = []
        self._repeats: list[int] = []

    def step_seconds(self, shape: StepShape) -> float:
        return self.ranks_seconds((shape,))

    def ranks_seconds(self, shapes: Sequence[StepShape | None]) -> float:
        """A step that several take together."""
        self._work.append([_DUMMY if shape is None else StepWork.of(shape) for shape in shapes])
        self._repeats.append(1)
        return 1.0

    def decode_seconds(self, num: int, context: int, steps: int) -> Sequence[float]:
        """Steps of a leap: one row, their mean. Nothing arrives by the clock, so none of them is asked in vain."""
        self._work.append([(num, num, num, context + num * (steps + 1) / 2, 0, 0, 0, 0)])
        self._repeats.append(steps)
        return [1.0] * steps

    def transfer_seconds(self, num_bytes: int, direction: TransferDirection) -> float:
        return 0.0

    def schedule(self, moments: Floats, outputs: Int64s) -> Schedule:
        """The schedule of requests that arrived, got their first and their last token at ``moments``, ``[3, n]``."""
        ends = np.cumsum(self._repeats)
        arrived, first, last = np.searchsorted(ends, moments)
        assert (ends[last] == moments[2]).all()
        assert (ends[first] == moments[1]).all()
        return Schedule(
            work=np.array(self._work, np.float64),
            repeats=np.array(self._repeats, np.float64),
            arrived=np.where(moments[0] > 0, arrived, -1),
            first=first,
            last=last,
            tokens=outputs,
        )


class Ended(StepObserver):
    """Notes requests that have ended."""

    reads_tokens = False

    def __init__(self) -> None:
        self._requests: dict[int, Request] = {}

    def request_finished(self, ts: float, request: Request) -> None:
        self._requests[int(request.request_id)] = request

    @property
    def moments(self) -> Floats:
        """When each request arrived, got its first token and ended, by the numbers in their names: shape ``[3, n]``."""
        found = [
            (request.arrival_time, request.times.first_token, request.times.finished)
            for _, request in sorted(self._requests.items())
        ]
        return np.array(found, np.float64).T


def draw_lengths(loop: ClosedLoop) -> tuple[Int64s, Int64s]:
    """Prompt and output tokens of every request."""
    rng = np.random.default_rng(loop.seed)
    count = loop.users * loop.rounds

    def draw(longest: int) -> Int64s:
        return rng.integers(max(1, int(longest * loop.shortest)), longest + 1, count)

    return draw(loop.input_tokens), draw(loop.output_tokens)
