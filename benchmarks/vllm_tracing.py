"""What TracingScheduler costs beside vLLM's own scheduler: ratios of CPU time per step, taken in turns.

``python benchmarks/vllm_tracing.py`` in an environment with vLLM. ``unset``: the class, without its environment
variables; ``traced``: with them. ``step`` counts the thread that writes as well, ``step_thread`` only the one that
schedules. ``--inside`` times the tracer's part of each traced step instead, and prints one plus the median of its
share in vLLM's part: a busy machine slows both alike.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lab"))

from measure import Steps, measure, reach_steady_decode, writer_seconds
from recorder import host
from tokenyard.vllm import AsyncTracingScheduler, TracingScheduler
from tokenyard.vllm.versions import installed_version
from vllm_side import VllmEngine
from workload import EngineShape, PrefillMix, RequestSpec, Scenario, SteadyDecode

__all__ = ["main"]


class _Unset(VllmEngine):
    """Our class, which was not asked for a trace."""

    def __init__(self, shape: EngineShape) -> None:
        with patch.multiple(host, Scheduler=TracingScheduler, AsyncScheduler=AsyncTracingScheduler):
            super().__init__(shape)


class _Traced(_Unset):
    """Our class, which writes a trace as it does in a server."""

    def __init__(self, shape: EngineShape) -> None:
        self._folder = tempfile.TemporaryDirectory()
        with patch.dict(os.environ, SCHED_TRACE_PATH=self._folder.name):
            super().__init__(shape)
        self.tracer: Any = self._scheduler.tracer
        self._writer = self.tracer.writer

    def background_seconds(self) -> float:
        return writer_seconds(self._writer)

    def close(self) -> None:
        if not self.tracer.is_open:
            raise RuntimeError("the trace ended early")
        super().close()
        self._folder.cleanup()


@dataclass(frozen=True, slots=True)
class _Crowded(SteadyDecode):
    """The same with others waiting for a seat."""

    waiting: int = 64

    def requests(self) -> Iterator[RequestSpec]:
        """Running requests, then waiting ones."""
        own = list(SteadyDecode.requests(self))
        more = (spec._replace(id=f"waiting-{spec.id}") for spec in own[: self.waiting])
        return chain(own, more)


SCENARIOS: tuple[Scenario, ...] = (
    SteadyDecode("256 running", 256),
    SteadyDecode("256 running, async", 256, is_async=True),
    _Crowded("256 running, 64 waiting", 256),
    PrefillMix("prefill mix", count=200),
)


def _inside(scenario: SteadyDecode) -> str:
    """What the tracer takes of each step, beside what vLLM takes: CPU time of the thread that steps."""
    spent = 0.0

    def timed(call: Callable[..., None]) -> Callable[..., None]:
        def around(*args: Any, **options: Any) -> None:
            nonlocal spent
            start = time.thread_time()
            call(*args, **options)
            spent += time.thread_time() - start

        return around

    with closing(_Traced(scenario.engine)) as engine:
        tracer = engine.tracer
        for name in ("step_begins", "step_decided", "output_taken"):
            setattr(tracer, name, timed(getattr(tracer, name)))
        reach_steady_decode(scenario, engine)
        steps, shares, own = Steps(engine, scenario.engine.depth), [], []
        for _ in range(scenario.steps):
            spent, before = 0.0, steps.seconds
            steps.run()
            own.append(steps.seconds - before - spent)
            shares.append(spent / own[-1])
    low, middle, high = (1 + share for share in statistics.quantiles(shares, n=4))
    return f"own {statistics.median(own) * 1e3:6.3f} ms   inside {middle:.3f}   quartiles {low:.3f} {high:.3f}"


def main() -> None:
    """Print the cost of a step of vLLM's own class, and the ratios of ours: medians over the rounds."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="scenarios whose name contains this")
    parser.add_argument("--inside", action="store_true", help="time the tracer alone, in steps that all decode")
    arguments = parser.parse_args()
    rounds = arguments.rounds
    print(f"vLLM {installed_version()}, medians of {'the steps' if arguments.inside else f'{rounds} rounds'}")
    for scenario in SCENARIOS:
        if arguments.only not in scenario.name:
            continue
        if arguments.inside:
            if isinstance(scenario, SteadyDecode):
                print(f"{scenario.name:26} {_inside(scenario)}", flush=True)
            continue
        taken = [measure(scenario, {"own": VllmEngine, "unset": _Unset, "traced": _Traced}) for _ in range(rounds)]
        own = statistics.median(each["own"].seconds["step"] for each in taken)
        line = f"{scenario.name:26} own {own * 1e3:6.3f} ms"
        for name in ("unset", "traced"):
            for what in ("step_thread", "step"):
                ratio = statistics.median(each[name].seconds[what] / each["own"].seconds[what] for each in taken)
                line += f"   {name} {what} {ratio:.3f}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
