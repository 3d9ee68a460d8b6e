"""A closed loop of users, step by step or in stretches."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt

from tokenyard.core.config import CacheConfig, SchedulerConfig
from tokenyard.core.profiles import OLDEST, DecisionProfile
from tokenyard.core.request import Request
from tokenyard.core.sched.observer import StepObserver
from tokenyard.sim.replay import replay
from tokenyard.steptime.model import StepShape, StepWork, TransferDirection
from tokenyard.workload.record import StreamTokens, Workload, WorkloadRequest

# ---------------------------------------------------------------------------------------------------------------------
# A closed loop: as many requests in flight as there are users, the next one sent when one ends.
#
# What happens in which step does not depend on how long the steps take, because nothing arrives by the clock. So the
# scheduler runs once per schedule, and any latency model is evaluated over the recorded steps afterwards:
#
#     end[s]  = sum of the seconds of steps 0 .. s
# TTFT    = end[first] - end[arrived]                    arrived: the step whose end freed the place, -1 at the start
#   | TPOT    = (end[last] - end[first]) / (tokens - 1)

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
    seed: int = 0
    profile: DecisionProfile = OLDEST
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
    """Replay it until every request has ended. Every step takes a second, so that moments count steps."""
    prompts, outputs = draw_lengths(loop)
    requests = [
        WorkloadRequest(request_id=str(i), prompt=StreamTokens.unique(i, prompt), max_tokens=output, output_seed=i)
        for i, (prompt, output) in enumerate(zip(prompts.tolist(), outputs.tolist(), strict=True))
    ]
    config = SchedulerConfig(
        profile=loop.profile,
        max_num_seqs=loop.max_num_seqs,
        max_num_batched_tokens=loop.max_num_batched_tokens,
        max_model_len=loop.input_tokens + loop.output_tokens + 1,
        async_scheduling=False,
    )
    cache = CacheConfig(num_gpu_blocks=loop.num_gpu_blocks, block_size=loop.block_size, enable_prefix_caching=False)
    steps, ended = _CountedSteps(), Ended()
    replay(Workload("closed loop", requests, max_concurrency=loop.users), config, cache, steps, observer=ended)
    arrived, first, last = ended.moments.astype(np.int64) - 1
    work = np.array(steps.work, np.float64)[:, None]
    return Schedule(
        work=work, repeats=np.ones(len(work)), arrived=arrived, first=first, last=last, tokens=np.array(outputs)
    )


class _CountedSteps:
    """A latency model by which every step takes a second; it notes what they compute."""

    host_seconds = 0.0

    def __init__(self) -> None:
        self.work: list[StepWork] = []

    def step_seconds(self, shape: StepShape) -> float:
        self.work.append(StepWork.of(shape))
        return 1.0

    def transfer_seconds(self, num_bytes: int, direction: TransferDirection) -> float:
        return 0.0


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


# ---------------------------------------------------------------------------------------------------------------------
# The closed loop in stretches: steps that only decode, for the same requests, are taken in one stroke.
#
# The shortcut for many measured points at once. It follows the scheduler's rule for the one case in which it is
# simple: first come, first served, decodes before prompts, and the budget that is left goes to prompts in order.
# Where memory is short it counts tokens instead of blocks: a prompt is admitted if it fits whole, and when the
# decodes have filled the memory the request that was admitted last starts over. ``run_closed_loop`` runs the
# scheduler itself: the two are equal step by step where memory suffices, and nearly equal where it does not; tests
# compare them, and ``tokenyard accuracy --replay`` uses the scheduler for every point.
#
# Ranks of data parallelism step together; a request goes to the rank that has the fewest.

_COLUMNS = 8


@dataclass(slots=True)
class _Waiting:
    request: int
    tokens: int
    """To compute before the next output token."""
    produced: int = 0
    """Output tokens from before a preemption."""
    computed: int = 0


class _Rank:
    """One engine: its requests, as sums."""

    def __init__(self, loop: ClosedLoop) -> None:
        self._budget = loop.max_num_batched_tokens
        self._most = loop.max_num_seqs
        self._block = loop.block_size
        self._capacity = (loop.num_gpu_blocks - 1) * loop.block_size
        self.waiting: deque[_Waiting] = deque()
        """The first one may be computed in part."""
        self.decoding: dict[int, tuple[int, int]] = {}
        """Request -> step of its first token now, tokens in the cache then; in order of admission."""
        self.ends: list[tuple[int, int]] = []
        """Heap: step of the last token, request; of requests that were preempted since, old entries stay."""
        self.context = 0
        """Tokens that the decodes have in the cache."""

    @property
    def num_requests(self) -> int:
        return len(self.waiting) + len(self.decoding)

    @property
    def free(self) -> float:
        """Tokens that still fit; half a block per request is empty."""
        begun = self.waiting[0].computed if self.waiting else 0
        return self._capacity - begun - self.context - self._block / 2 * len(self.decoding)

    def _held(self, tokens: int) -> float:
        """Tokens of memory that so many take, with half an empty block."""
        return tokens + self._block / 2

    def admits(self) -> bool:
        """Whether a step computes part of a prompt."""
        if not self.waiting or len(self.decoding) >= min(self._most, self._budget):
            return False
        return self.waiting[0].computed > 0 or self._held(self.waiting[0].tokens) <= self.free

    def steps_that_fit(self) -> float:
        """Steps for which the decodes have memory."""
        return self.free // len(self.decoding) + 1 if self.decoding else np.inf

    def decode(self, steps: int) -> list[float]:
        """One row for so many steps: their mean."""
        count = len(self.decoding)
        mean = self.context + count * (steps + 1) / 2
        self.context += count * steps
        return [count, count, count, mean, 0, 0, 0, 0.0]

    def mixed(self) -> tuple[list[float], list[_Waiting]]:
        """One step: the decodes, and prompts in the budget that is left; also who got a token."""
        count = len(self.decoding)
        left, free = self._budget - count, self.free
        chunks: list[tuple[int, int]] = []
        started: list[_Waiting] = []
        while self.waiting and left > 0 and count + len(chunks) < self._most:
            first = self.waiting[0]
            if not first.computed:
                if self._held(first.tokens) > free:
                    break
                free -= self._held(first.tokens)
            chunk = min(left, first.tokens - first.computed)
            left -= chunk
            chunks.append((first.computed, chunk))
            first.computed += chunk
            if first.computed < first.tokens:
                break
            started.append(self.waiting.popleft())
        self.context += count
        single = [computed for computed, chunk in chunks if chunk == 1]  # a step's sums count them as decodes
        chunks = [each for each in chunks if each[1] > 1]
        decodes, context = count + len(single), self.context + sum(single) + len(single)
        tokens = sum(chunk for _, chunk in chunks)
        pairs = sum(chunk * (computed + (chunk + 1) / 2) for computed, chunk in chunks)
        before = sum(computed for computed, _ in chunks)
        row = [decodes + tokens, count + len(started), decodes, context, len(chunks), tokens, before, pairs]
        return row, started

    def make_room(self, step: int, prompts: list[int]) -> None:
        """Preempt the request that was admitted last until the decodes of one step fit."""
        if self.free < 0 and self.waiting:
            self.waiting[0].computed = 0
        while len(self.decoding) > 1 and self.free < 0:
            request, (began, tokens) = self.decoding.popitem()
            held = tokens + step - began
            self.context -= held
            self.waiting.appendleft(_Waiting(request, held + 1, held + 1 - prompts[request]))


def run_in_stretches(loop: ClosedLoop, ranks: int = 1) -> Schedule:
    """As ``run_closed_loop``, many times faster; ``loop.users`` are those of all ranks, the limits those of one."""
    return _Run(loop, ranks).schedule()


class _Run:
    """One run."""

    def __init__(self, loop: ClosedLoop, ranks: int) -> None:
        prompts, outputs = draw_lengths(loop)
        self._prompts, self._outputs = prompts.tolist(), outputs.tolist()
        self._users = loop.users
        self._ranks = [_Rank(loop) for _ in range(ranks)]
        self._sent = 0
        self._arrived, self._first, self._last = ([-1] * len(prompts) for _ in range(3))

    def schedule(self) -> Schedule:
        for _ in range(self._users):
            self._send(-1)
        ranks, step = self._ranks, -1
        rows: list[list[list[float]]] = []
        repeats: list[int] = []
        while any(rank.num_requests for rank in ranks):
            for rank in ranks:
                rank.make_room(step, self._prompts)
            steps = 1
            if not any(rank.admits() for rank in ranks):
                until_end = min(rank.ends[0][0] for rank in ranks if rank.ends) - step
                steps = max(1, int(min(until_end, *(rank.steps_that_fit() for rank in ranks))))
            step += steps
            rows.append([self._advance(rank, steps, step, len(rows)) for rank in ranks])
            repeats.append(steps)
            for rank in ranks:
                self._finish(rank, step, len(rows) - 1)
        return Schedule(
            work=np.array(rows, np.float64).reshape(len(rows), len(ranks), _COLUMNS),
            repeats=np.array(repeats, np.float64),
            arrived=np.array(self._arrived),
            first=np.array(self._first),
            last=np.array(self._last),
            tokens=np.array(self._outputs),
        )

    def _advance(self, rank: _Rank, steps: int, step: int, row: int) -> list[float]:
        if not rank.admits():
            return rank.decode(steps)
        work, started = rank.mixed()
        for each in started:
            if not each.produced:
                self._first[each.request] = row
            rank.decoding[each.request] = step, each.tokens
            rank.context += each.tokens
            heappush(rank.ends, (step + self._outputs[each.request] - each.produced - 1, each.request))
        return work

    def _finish(self, rank: _Rank, step: int, row: int) -> None:
        while rank.ends and rank.ends[0][0] <= step:
            end, request = heappop(rank.ends)
            held = rank.decoding.get(request)
            if held is None or self._prompts[request] + self._outputs[request] - held[1] - 1 != end - held[0]:
                continue  # it was preempted since
            del rank.decoding[request]
            rank.context -= held[1] + end - held[0]
            self._last[request] = row
            self._send(row)

    def _send(self, row: int) -> None:
        """The next request, if there is one left."""
        request = self._sent
        if request == len(self._prompts):
            return
        self._sent += 1
        self._arrived[request] = row
        fewest = min(self._ranks, key=lambda rank: rank.num_requests)
        fewest.waiting.append(_Waiting(request, self._prompts[request]))
