"""What-if without a machine's noise: vLLM's own engine and scheduler under our step times, on a clock of their own.

``python benchmarks/whatif_emulated.py [VARIANT ...]`` in the environment of vLLM 0.32. vLLM's engine core runs in this
process with ``tokenyard.vllm.EmulatedExecutor``; waiting for a step moves the clock, so nothing else takes time and a
busy machine changes nothing. Each pair of settings gets the same requests at the same moments. From the trace of the
first alone ``whatif`` predicts the second; the means that the second really had stand beside the prediction. Exits with
1 if one is off by more than 2 %.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, SupportsIndex

REPO = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPO / "src"), str(REPO)]
os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_CPU_KVCACHE_SPACE": "1"}


class _Clock:
    """The time of this process: the machine's own, until it is begun; then that of the main thread, which sleeps."""

    def __init__(self) -> None:
        self.now: float | None = None
        self._time, self._monotonic, self._sleep = time.time, time.monotonic, time.sleep
        self._unix, self._start = time.time(), time.monotonic()

    def time(self) -> float:
        return self._time() if self.now is None else self._unix + self.now

    def monotonic(self) -> float:
        return self._monotonic() if self.now is None else self._start + self.now

    def sleep(self, seconds: float | SupportsIndex) -> None:
        if self.now is None or threading.current_thread() is not threading.main_thread():
            self._sleep(seconds)
        else:
            self.now += float(seconds)

    @property
    def unix(self) -> float:
        """The time of day at which it began, in Unix seconds."""
        return self._unix


CLOCK = _Clock()
time.time, time.monotonic, time.sleep = CLOCK.time, CLOCK.monotonic, CLOCK.sleep  # before others take them by name
time.perf_counter = CLOCK.monotonic

from tests.vllm.tiny_models import make_model  # noqa: E402

from whatif_vllm import BASE, BASES, VARIANTS, Pair, Session, compare, sessions  # noqa: E402

__all__ = ["main"]

_MOST_OFF = 0.02
_TURN = 0.6
"""Seconds between the turns of a session, beside its pauses: arrivals are the same whatever answers take."""


def requests_of(traffic: list[Session]) -> list[tuple[float, list[int], int, int]]:
    """Moment, prompt, output tokens and priority of each turn, in the order of the moments."""
    made = []
    for session in traffic:
        moment, said = session.starts_at, list[int]()
        for new, max_tokens, pause in session.asked:
            said = [*said, *new]
            made.append((moment, said, max_tokens, session.priority))
            moment += _TURN + pause
    return sorted(made, key=lambda each: each[0])


def served(model: Path, folder: Path, settings: dict[str, str], given: dict[str, Any], traffic: list[Session]) -> Path:
    """The trace of vLLM under this traffic."""
    from vllm import EngineArgs, SamplingParams  # noqa: PLC0415 - heavy
    from vllm.v1.engine.llm_engine import LLMEngine  # noqa: PLC0415

    os.environ["SCHED_TRACE_PATH"] = str(folder)
    engine = LLMEngine.from_engine_args(
        EngineArgs(
            model=str(model),
            dtype="float32",
            enforce_eager=True,
            max_model_len=1024,
            block_size=32,
            distributed_executor_backend="tokenyard.vllm.EmulatedExecutor",
            additional_config={"tokenyard": given},
            scheduler_cls="tokenyard.vllm.TracingScheduler",
            **{name: json.loads(value) if value[0] in "0123456789tf" else value for name, value in settings.items()},
        )
    )
    waiting, number = requests_of(traffic), 0
    by_priority = settings.get("scheduling_policy") == "priority"
    CLOCK.now = 0.0
    while number < len(waiting) or engine.has_unfinished_requests():
        if not engine.has_unfinished_requests():
            CLOCK.now = max(CLOCK.now, waiting[number][0])
        while number < len(waiting) and waiting[number][0] <= CLOCK.now:
            moment, prompt, max_tokens, priority = waiting[number]
            engine.add_request(
                str(number),
                {"prompt_token_ids": prompt},
                SamplingParams(max_tokens=max_tokens, ignore_eos=True, temperature=0),
                arrival_time=CLOCK.unix + moment,
                priority=priority if by_priority else 0,
            )
            number += 1
        engine.step()
    engine.engine_core.shutdown()
    CLOCK.now = None
    return folder


def main() -> int:
    """Print how far predictions and what was served are apart."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("variants", nargs="*", default=VARIANTS, help="what to ask, for example max_num_seqs=2")
    parser.add_argument("--sessions", type=int, default=60)
    parser.add_argument("--rate", type=float, default=1.0, help="sessions a second that begin")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--gpu", default="h100")
    parser.add_argument("--as", dest="model", default="qwen3-32b", help="whose step times are taken")
    flags = parser.parse_args()
    given, worst = {"gpu": flags.gpu, "model": flags.model, "tensor_parallel_size": 2}, 0.0
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        model = make_model("llama", folder)
        for number, asked in enumerate(flags.variants):
            name, _, value = asked.partition("=")
            base = BASE | BASES.get(name, {})
            urgent = name == "scheduling_policy"
            traffic = sessions(flags.sessions, flags.rate, flags.seed, urgent_are_short=urgent)
            pair = Pair(
                *(
                    served(model, folder / f"{number}{kind}", settings, given, traffic)
                    for kind, settings in (("base", base), ("other", base | {name: value}))
                )
            )
            worst = max(worst, compare(asked, pair))
    print(f"the prediction that is furthest off is {worst:.1%} from what vLLM did")
    return 0 if worst <= _MOST_OFF else 1


if __name__ == "__main__":
    sys.exit(main())
