"""What-if without a machine's noise: vLLM's own engine and scheduler under our step times, on a clock of their own.

``python benchmarks/whatif_emulated.py [VARIANT ...]`` in the environment of vLLM 0.32. vLLM's engine core runs in this
process with ``tokenyard.vllm.EmulatedExecutor``; waiting for a step moves the clock, so nothing else takes time and a
busy machine changes nothing. Each pair of settings gets the same conversations: a turn is sent when the answer before
it has come and its pause is over, which is what ``whatif`` supposes of turns. From the trace of the first alone
``whatif`` predicts the second; the means that the second really had stand beside the prediction. With
``--fixed-arrivals`` requests come at the same moments under both settings, whatever has been answered. Exits with 1 if
one is off by more than 2 %.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from heapq import heapify, heappop, heappush
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
_SECONDS_PER_TOKEN = 0.03
"""Seconds for which a client that does not wait for answers reads them."""
_SHORTEST_QUESTION = 15
"""Tokens at the end of a first turn that are no part of its document."""


class _Clients:
    """Sessions that go on: a turn is sent when the answer before it has come, and its pause is over."""

    def __init__(self, traffic: list[Session]) -> None:
        self._traffic = traffic
        self._said: list[list[int]] = [[] for _ in traffic]
        self._due = [(session.starts_at, number, 0) for number, session in enumerate(traffic)]
        heapify(self._due)

    @property
    def next_moment(self) -> float | None:
        """When the next turn is sent, as far as that is known; None: it is not."""
        return self._due[0][0] if self._due else None

    def turn(self) -> tuple[str, float, list[int], int, int]:
        """That turn: its name, moment, prompt, output tokens and priority."""
        moment, number, turn = heappop(self._due)
        new, max_tokens, _ = self._traffic[number].asked[turn]
        self._said[number] += new
        return f"{number}-{turn}", moment, list(self._said[number]), max_tokens, self._traffic[number].priority

    def answered(self, name: str, tokens: list[int], now: float) -> None:
        """A turn has its answer."""
        number, turn = (int(each) for each in name.split("-"))
        self._said[number] += tokens
        asked = self._traffic[number].asked
        if turn + 1 < len(asked):
            heappush(self._due, (now + asked[turn + 1][2], number, turn + 1))


class _Arrivals(_Clients):
    """Questions about a session's document, at moments of their own: none says again what was answered before."""

    def __init__(self, traffic: list[Session]) -> None:
        super().__init__(traffic)
        self._due = []
        for number, session in enumerate(traffic):
            moment = session.starts_at
            for turn, (_, max_tokens, pause) in enumerate(session.asked):
                moment += pause + max_tokens * _SECONDS_PER_TOKEN if turn else 0.0
                self._due.append((moment, number, turn))
        heapify(self._due)

    def turn(self) -> tuple[str, float, list[int], int, int]:
        moment, number, turn = heappop(self._due)
        session = self._traffic[number]
        new, max_tokens, _ = session.asked[turn]
        document = session.asked[0][0][:-_SHORTEST_QUESTION] if turn else []
        return f"{number}-{turn}", moment, [*document, *new], max_tokens, session.priority

    def answered(self, name: str, tokens: list[int], now: float) -> None:
        """Nothing waits for it."""


def served(model: Path, folder: Path, settings: dict[str, str], given: dict[str, Any], clients: _Clients) -> Path:
    """The trace of vLLM under what these clients send."""
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
            **{name: _value(value) for name, value in settings.items()},
        )
    )
    by_priority = settings.get("scheduling_policy") == "priority"
    CLOCK.now = 0.0
    while clients.next_moment is not None or engine.has_unfinished_requests():
        if not engine.has_unfinished_requests() and clients.next_moment is not None:
            CLOCK.now = max(CLOCK.now, clients.next_moment)
        while clients.next_moment is not None and clients.next_moment <= CLOCK.now:
            name, moment, prompt, max_tokens, priority = clients.turn()
            engine.add_request(
                name,
                {"prompt_token_ids": prompt},
                SamplingParams(max_tokens=max_tokens, ignore_eos=True, temperature=0),
                arrival_time=CLOCK.unix + moment,
                priority=priority if by_priority else 0,
            )
        for output in engine.step():
            if output.finished:
                clients.answered(output.request_id, list(output.outputs[0].token_ids), CLOCK.now)
    engine.engine_core.shutdown()
    CLOCK.now = None
    return folder


def _value(text: str) -> Any:
    """A number, true or false; else the text."""
    return json.loads(text) if text.isdecimal() or text in ("true", "false") else text


def main() -> int:
    """Print how far predictions and what was served are apart."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("variants", nargs="*", default=VARIANTS, help="what to ask, for example max_num_seqs=2")
    parser.add_argument("--sessions", type=int, default=60)
    parser.add_argument("--rate", type=float, default=1.0, help="sessions a second that begin")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--gpu", default="h100")
    parser.add_argument("--as", dest="model", default="qwen3-32b", help="whose step times are taken")
    parser.add_argument("--fixed-arrivals", action="store_true", help="no turn waits for the answer before it")
    flags = parser.parse_args()
    clients = _Arrivals if flags.fixed_arrivals else _Clients
    given = {"gpu": flags.gpu, "model": flags.model, "tensor_parallel_size": 2, "enforce_eager": False}
    worst = 0.0
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
                    served(model, folder / f"{number}{kind}", settings, given, clients(traffic))
                    for kind, settings in (("base", base), ("other", base | {name: value}))
                )
            )
            worst = max(worst, compare(asked, pair))
    print(f"the prediction that is furthest off is {worst:.1%} from what vLLM did")
    return 0 if worst <= _MOST_OFF else 1


if __name__ == "__main__":
    sys.exit(main())
