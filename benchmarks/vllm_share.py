"""The scheduler's share of an engine's step: vLLM on a CPU, a model of one layer, its own scheduler and FastScheduler.

``python benchmarks/vllm_share.py`` in the environment of vLLM 0.32, which runs models. Everybody decodes; a step is
what the engine core does for one token of each, and waits for the model, which runs in a process of its own. Seconds
are those of a clock on the wall; each figure is the median over the steps.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

REPO = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPO / "src"), str(REPO)]

from tests.vllm.tiny_models import make_model  # noqa: E402

__all__ = ["main"]

CLASSES = {"vLLM's own": None, "FastScheduler": "tokenyard.vllm.FastScheduler"}
_PROMPT_TOKENS = 32
_WARM_UP = 8


class _Step(NamedTuple):
    """Seconds of one step."""

    whole: float
    scheduler: float


class _Clock:
    """Stands around calls, and adds up what they take."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **options: Any) -> Any:
            start = time.perf_counter()
            try:
                return call(*args, **options)
            finally:
                self.seconds += time.perf_counter() - start

        return timed


def _steps(model: str, scheduler: str | None, running: int, count: int) -> list[_Step]:
    """Steps of an engine in this process in which ``running`` requests decode."""
    vllm = import_module("vllm")
    named = {} if scheduler is None else {"scheduler_cls": scheduler}
    llm = vllm.LLM(
        model,
        dtype="float32",
        enforce_eager=True,
        max_model_len=1024,
        block_size=32,
        max_num_seqs=running,
        max_num_batched_tokens=8192,
        disable_log_stats=False,
        **named,
    )
    engine = llm.llm_engine
    core = engine.engine_core.engine_core
    clock = _Clock()
    for name in ("schedule", "update_from_output"):
        setattr(core.scheduler, name, clock.around(getattr(core.scheduler, name)))
    whole = _Clock()
    core.step_fn = whole.around(core.step_fn)
    tokens = _WARM_UP + count + -(-running * _PROMPT_TOKENS // 8192) + 1
    limits = vllm.SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True, detokenize=False)
    for i in range(running):
        prompt = {"prompt_token_ids": [(i * 31 + j * 7) % 256 for j in range(_PROMPT_TOKENS)]}
        engine.add_request(str(i), prompt, limits)
    steps = []
    for _ in range(tokens):
        clock.seconds = whole.seconds = 0.0
        engine.step()
        steps.append(_Step(whole.seconds, clock.seconds))
    return steps[-count - 1 : -1]


def _measured(model: Path, name: str, running: int, count: int) -> dict[str, float]:
    """The medians of a class, from a process of its own."""
    command = [sys.executable, __file__, "--alone", name, "--model", str(model)]
    command += ["--running", str(running), "--steps", str(count)]
    settings = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"}
    settings |= {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1"}
    done = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr[-2000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Print a line per class and number of running requests."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--running", type=int, nargs="+", default=[32, 256])
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--alone", choices=CLASSES, help=argparse.SUPPRESS)
    parser.add_argument("--model", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.alone:
        steps = _steps(given.model, CLASSES[given.alone], given.running[0], given.steps)
        share = median(each.scheduler / each.whole for each in steps)
        whole, ours = (median(each[i] for each in steps) * 1e3 for i in (0, 1))
        print(json.dumps({"whole": whole, "scheduler": ours, "share": share}))
        return
    with tempfile.TemporaryDirectory() as folder:
        model = make_model("one-layer", Path(folder))
        for running in given.running:
            for name in CLASSES:
                found = _measured(model, name, running, given.steps)
                line = f"step {found['whole']:8.2f} ms   scheduler {found['scheduler']:7.2f} ms   {found['share']:6.1%}"
                print(f"{running:5,} running   {name:14} {line}", flush=True)


if __name__ == "__main__":
    main()
