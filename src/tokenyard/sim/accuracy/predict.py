"""What we would have said of measured points: a closed loop on the deployment, with the calibrated step times.

    TTFT = client and front end (a constant, and so much per prompt token)  +  waiting and computing, from the replay
    TPOT = from the replay

The schedules do not depend on step times (:mod:`closed_loop`), so points with the same load share one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from tokenyard.profiles import VLLM_0_22, DecisionProfile
from tokenyard.sim.accuracy.closed_loop import ClosedLoop, Schedule, run_closed_loop
from tokenyard.sim.accuracy.memory import kv_tokens
from tokenyard.sim.accuracy.points import Point
from tokenyard.sim.accuracy.stretches import run_in_stretches
from tokenyard.sim.latency.steptime.constants import Constants, shipped_constants
from tokenyard.sim.latency.steptime.known_error import Load
from tokenyard.sim.latency.steptime.model import CalibratedLatency

__all__ = ["Prediction", "Schedules", "front_end_seconds", "load_of", "loop_of", "predict"]

_MAX_SEQS = 1024
"""vLLM's default for a server on such GPUs."""
_SAMPLED = 512
"""Requests that vLLM measures the peak of sampling with, about."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """Of one point; seconds."""

    point: Point
    ttft: float
    tpot: float
    ttft_range: tuple[float, float]
    tpot_range: tuple[float, float]
    familiarity: str
    """Kinds of gaps between it and what was measured."""


class Schedules:
    """Schedules of closed loops, each made once."""

    def __init__(self, *, replay: bool = False) -> None:
        """With ``replay`` every one comes from the scheduler itself."""
        self._replay = replay
        self._made: dict[tuple[ClosedLoop, int], Schedule] = {}

    def of(self, loop: ClosedLoop, ranks: int) -> Schedule:
        made = self._made.get((loop, ranks))
        if made is None:
            made = self._made[loop, ranks] = self._make(loop, ranks)
        return made

    def _make(self, loop: ClosedLoop, ranks: int) -> Schedule:
        if not self._replay:
            return run_in_stretches(loop, ranks)
        if ranks > 1:  # one rank with its share of the users; the others do the same
            made = run_closed_loop(replace(loop, users=max(1, loop.users // ranks)))
            return replace(made, work=np.repeat(made.work, ranks, axis=1))
        return run_closed_loop(loop)


def predict(
    points: Iterable[Point],
    *,
    constants: Constants | None = None,
    replay: bool = False,
    profile: DecisionProfile = VLLM_0_22,
    on_point: Callable[[], None] = lambda: None,
) -> Iterator[Prediction]:
    """One prediction per point, in order; ``profile`` decides."""
    schedules = Schedules(replay=replay)
    constants = constants or shipped_constants()
    for point in points:
        latency = CalibratedLatency(
            point.spec,
            point.gpu,
            parallel=point.parallel,
            kv_cache_dtype=point.recipe.kv_cache_dtype,
            version=point.version or None,
            capture_size=point.recipe.capture_size,
            constants=constants,
        )
        schedule = schedules.of(loop_of(point, profile), point.parallel.data)
        waits, paces = schedule.times(latency.rows_seconds(schedule.work))
        ttft = float(waits.mean()) + front_end_seconds(point, constants)
        tpot = float(paces.mean())
        known = latency.known_error(load_of(point))
        yield Prediction(point, ttft, tpot, known.ttft.around(ttft), known.tpot.around(tpot), known.familiarity)
        on_point()


def load_of(point: Point) -> Load:
    """What was sent. Of a table's nominal lengths: those that it was asked for."""
    return Load(users=point.users, input_tokens=point.input_tokens, output_tokens=point.output_tokens)


def front_end_seconds(point: Point, constants: Constants) -> float:
    """Between client and scheduler, there and back: tokenising the prompt, HTTP, the first token's way."""
    values = constants.of(point.spec, point.gpu, point.version or None)
    return values["request"] + values["request_token"] * point.input_tokens * (1 + point.recipe.shortest) / 2


def loop_of(point: Point, profile: DecisionProfile = VLLM_0_22) -> ClosedLoop:
    """The load of a point, and its engine's limits. Memory only counts where it might run out."""
    blocks, block_size = 1 << 20, 16
    per_request = point.input_tokens + point.output_tokens
    held = kv_tokens(
        point.spec,
        point.gpu,
        point.parallel,
        gpu_memory_utilization=point.recipe.gpu_memory_utilization,
        kv_cache_dtype=point.recipe.kv_cache_dtype,
        max_num_batched_tokens=point.recipe.max_num_batched_tokens,
        max_num_seqs=_SAMPLED,
    )
    if held < 1.1 * per_request * point.users / point.parallel.data:
        blocks = int(max(held, 1.5 * per_request)) // (10 * block_size) * 10
    return ClosedLoop(
        users=point.users,
        input_tokens=point.input_tokens,
        output_tokens=point.output_tokens,
        shortest=point.recipe.shortest,
        rounds=point.rounds,
        max_num_batched_tokens=point.recipe.max_num_batched_tokens,
        max_num_seqs=_MAX_SEQS,
        num_gpu_blocks=blocks,
        block_size=block_size,
        async_scheduling=False,
        profile=profile,
    )
