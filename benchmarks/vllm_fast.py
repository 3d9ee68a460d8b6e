"""`make bench-fast`: vLLM's own scheduler and FastScheduler in one process, in turns, translation included.

Runs in an environment of vLLM's. Both get the same ``SchedulerOutput``s asked of them and the same
``ModelRunnerOutput``s, with statistics on, as a server has them; the executor is a stub, and its time is left out.
Figures are CPU time; a ratio is the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import warnings
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "lab")]

import vllm  # noqa: E402

import recorder  # noqa: E402, F401 - sets the environment that vLLM reads
from measure import measure  # noqa: E402
from recorder.host import build_host, model_output, scheduler_arguments  # noqa: E402
from recorder.plan import Engine as EngineConfig  # noqa: E402
from tokenyard.vllm.fast.scheduler import FastScheduler  # noqa: E402
from vllm_side import VllmEngine  # noqa: E402
from workload import SCENARIOS, VOCAB, EngineShape, SteadyDecode  # noqa: E402

__all__ = ["main"]


class OwnEngine(VllmEngine):
    """vLLM's own scheduler, with statistics."""

    def __init__(self, shape: EngineShape) -> None:
        super().__init__(shape)
        host = build_host(EngineConfig(**shape._asdict()), log_stats=True)
        self._scheduler, self._hasher = host.scheduler, host.block_hasher


class FastEngine(VllmEngine):
    """Ours behind vLLM's interface."""

    def __init__(self, shape: EngineShape) -> None:
        super().__init__(shape)
        self._scheduler: Any = FastScheduler(
            **scheduler_arguments(EngineConfig(**shape._asdict()), log_stats=True)._asdict()
        )

    def answer(self, output: Any) -> Any:
        self._step += 1
        ids, requests = list(output.num_scheduled_tokens), self._scheduler.core.requests
        sampled = [
            [] if requests[request_id].is_prefill_chunk else [(self._step * 31 + row) % VOCAB]
            for row, request_id in enumerate(ids)
        ]
        return model_output(ids, sampled)

    @property
    def num_running(self) -> int:
        return len(self._scheduler.core.running)

    @property
    def num_waiting(self) -> int:
        return len(self._scheduler.core.waiting)

    @property
    def all_decode(self) -> bool:
        return all(request.num_output_tokens for request in self._scheduler.core.running)


def main() -> None:
    """Print a line per number of running requests."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured (default: 3)")
    rounds = parser.parse_args().rounds
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    print(f"vLLM {vllm.__version__}, steady decode, CPU time of schedule() and update_from_output() per step:")
    for scenario in SCENARIOS:
        if isinstance(scenario, SteadyDecode) and not scenario.drafts:
            runs = [measure(scenario, {"own": OwnEngine, "fast": FastEngine}) for _ in range(rounds)]
            own, fast = ([run[name].seconds["step"] * 1e3 for run in runs] for name in ("own", "fast"))
            ratio = median(a / b for a, b in zip(own, fast, strict=True))
            line = f"{median(own):7.3f} ms vLLM's own  {median(fast):7.3f} ms FastScheduler  {ratio:5.1f} x"
            print(f"{scenario.running:5,} running {line}", flush=True)


if __name__ == "__main__":
    main()
