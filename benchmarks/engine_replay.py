"""Does a replay predict the engine? Two runs of a real model on the CPU, each predicted by the step times of the other.

    PYTHONPATH=src OMP_NUM_THREADS=1 .venv-engine/bin/python benchmarks/engine_replay.py

The runs have requests of their own (other lengths, other moments). From the trace of the one a latency model is fitted;
the requests of the other are replayed with it, and its measured means stand beside the predicted ones. Then every run
is driven step by step, with its arrivals in the steps that they fell into: its decisions have to be the same.

The machine should have nothing else to do. The runs are served in turns, a part of the one, then a part of the other,
so that its slower minutes fall on both. How even it was is printed: what a fixed computation took between the turns,
and how fast the steps of a run were at its fastest and slowest moment, as a share of their fit.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from tokenyard.core.sched.observer import StepObserver
from tokenyard.questions.recorded.ask import replay_as_it_was
from tokenyard.questions.recorded.decisions import drive
from tokenyard.questions.recorded.recorded_run import RecordedRun, read_run
from tokenyard.record.writer import TraceWriter
from tokenyard.serve.async_llm import AsyncLLM
from tokenyard.serve.generation import GenerationParams, OutputKind
from tokenyard.serve.openai.assembly import unix_clock, watch
from tokenyard.serve.served_model import load_core, make_demo_model
from tokenyard.trace.config import TraceConfig

__all__ = ["Asked", "Prediction", "main", "predicted", "recorded", "traffic"]

FIGURES = ("ttft_ms.mean", "tpot_ms.mean", "e2e_ms.mean")
_BYTES = 256


class Asked(NamedTuple):
    """A request."""

    moment: float
    """Seconds after the beginning of its turn."""
    prompt: list[int]
    max_tokens: int


class Prediction(NamedTuple):
    """A figure of a run, and what a replay with another run's step times made of it."""

    name: str
    measured: float
    replayed: float

    @property
    def error(self) -> float:
        """As a share of what was measured."""
        return self.replayed / self.measured - 1


def traffic(turns: int, requests: int, rate: float, seed: int) -> list[list[Asked]]:
    """Requests by turn, ``requests`` in each, so many a second; half of them begin alike."""
    chance = Random(seed)
    system = [chance.randrange(_BYTES) for _ in range(48)]
    made = []
    for _ in range(turns):
        part, moment = [], 0.0
        for _ in range(requests):
            own = [chance.randrange(_BYTES) for _ in range(chance.randint(16, 200))]
            part.append(Asked(moment, system + own if chance.random() < 0.5 else own, chance.randint(8, 64)))
            moment += chance.expovariate(rate)
        made.append(part)
    return made


def recorded(
    model: Path, folder: Path, both: Sequence[list[list[Asked]]], between: Callable[[], None], **flags: Any
) -> list[RecordedRun]:
    """Serve both kinds of traffic in turns, each on an engine of its own, and read their traces.

    ``between`` is called before every turn.
    """
    folders = [folder / f"run{number}" for number in range(1, len(both) + 1)]
    with ExitStack() as stack:
        engines = []
        for each in folders:
            core = load_core(model, {"dtype": "float32", "device": "cpu", "clock": unix_clock(), **flags})
            config = TraceConfig(path=each, policy="fcfs", request_records=False)
            writer = stack.enter_context(TraceWriter(config))
            watch(core, StepObserver(), writer, policy="fcfs", model="random", engine=flags)
            engines.append(AsyncLLM(core))
        asyncio.run(_in_turns(engines, both, between))
    return [read_run(each) for each in folders]


async def _in_turns(
    engines: Sequence[AsyncLLM], both: Sequence[list[list[Asked]]], between: Callable[[], None]
) -> None:
    async with AsyncExitStack() as stack:
        for engine in engines:
            await stack.enter_async_context(engine)
        for turn, parts in enumerate(zip(*both, strict=True)):
            for engine, part in zip(engines, parts, strict=True):
                between()
                await _serve(engine, part, f"t{turn}")


async def _serve(llm: AsyncLLM, part: Sequence[Asked], name: str) -> None:
    """One turn, to the end of its last request."""
    began = time.monotonic()

    async def ask(number: int, asked: Asked) -> None:
        await asyncio.sleep(max(began + asked.moment - time.monotonic(), 0.0))
        params = GenerationParams(max_tokens=asked.max_tokens, ignore_eos=True, output_kind=OutputKind.FINAL_ONLY)
        async for _ in llm.generate({"prompt_token_ids": asked.prompt}, params, f"{name}r{number}"):
            pass

    async with asyncio.TaskGroup() as tasks:
        for number, asked in enumerate(part):
            tasks.create_task(ask(number, asked))


def predicted(run: RecordedRun, by: RecordedRun) -> list[Prediction]:
    """The means of ``run``, measured, and replayed with the step times of ``by``."""
    baseline = replay_as_it_was(replace(run, latency=by.latency, pace=None, stalls=()))
    checks = {check.name: check for check in baseline.check.checks}
    return [Prediction(name, checks[name].recorded or 0.0, checks[name].replayed or 0.0) for name in FIGURES]


def _probes() -> list[float]:
    """Milliseconds of a fixed computation, done ten times."""
    import torch  # noqa: PLC0415 - an extra

    found, square = [], torch.ones(384, 384)
    for _ in range(10):
        began = time.perf_counter()
        for _ in range(4):
            square = square @ square * 1e-3
        found.append((time.perf_counter() - began) * 1e3)
    return found


def _evenness(moments: list[float]) -> str:
    moments.sort()
    middle, high = moments[len(moments) // 2], moments[len(moments) * 9 // 10]
    return f"{middle:.2f} ms, one in ten above {high / middle - 1:+.0%}"


def main() -> int:
    """Print measured and predicted means, and how even the machine was; 1 if a mean is more than 10 % off."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--turns", type=int, default=8, help="of each run")
    parser.add_argument("--requests", type=int, default=12, help="in each turn")
    parser.add_argument("--rate", type=float, default=1.0, help="requests a second")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--max-num-seqs", type=int, default=16)
    parser.add_argument("--no-async-scheduling", action="store_true")
    parser.add_argument("--keep", type=Path, default=None, help="folder for the traces")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        model = make_demo_model(Path(temporary) / "model", layers=flags.layers, width=flags.width)
        settings = {
            "max_num_seqs": flags.max_num_seqs,
            "max_num_batched_tokens": 256,
            "num_gpu_blocks_override": 400,
            "async_scheduling": not flags.no_async_scheduling,
        }
        probes: list[float] = []
        both = [traffic(flags.turns, flags.requests, flags.rate, seed) for seed in (1, 2)]
        runs = recorded(model, flags.keep or Path(temporary), both, lambda: probes.extend(_probes()), **settings)
        return _told(runs, probes)


def _told(runs: list[RecordedRun], probes: list[float]) -> int:
    print(f"a fixed computation between the turns takes {_evenness(probes)}")
    is_off = False
    for number, (run, other) in enumerate(((runs[0], runs[1]), (runs[1], runs[0])), 1):
        fit, pace = run.fit, run.pace
        span = "even" if pace is None else f"{pace.factors.min():.2f} to {pace.factors.max():.2f} times its fit"
        median = "-" if fit.median_error is None else f"{fit.median_error:.1%}"
        print(f"\nrun {number}: {len(run.workload)} requests, {fit.steps} steps, machine {span}")
        print(f"  its step times, fitted to half of them: half of the others are within {median}")
        print(f"  predicted from run {3 - number}{'measured':>24}{'replayed':>12}{'error':>9}")
        for each in predicted(run, other):
            is_off |= abs(each.error) > 0.10
            print(f"    {each.name:28}{each.measured:>11.1f} ms{each.replayed:>9.1f} ms{each.error:>+9.1%}")
        driven = drive(run)
        is_off |= driven.first_difference is not None
        print(f"  driven step by step: {driven.equal} of {driven.steps} steps decide the same")
        if driven.first_difference is not None:
            print(f"    they part at {driven.difference}")
    return int(is_off)


if __name__ == "__main__":
    sys.exit(main())
