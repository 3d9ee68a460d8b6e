"""What-if against reality: one vLLM on a CPU is served the same traffic under several settings, with a trace of each.

``python benchmarks/whatif_vllm.py`` in the environment of vLLM 0.32, which runs models. From the trace of the first
setting alone ``whatif`` predicts each of the others; the measured means stand beside the predictions, and how far two
runs with the same settings are apart. The machine must have nothing else to do: step times are what is predicted from.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

REPO = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPO / "src"), str(REPO)]

from tests.vllm.serving import Server, served  # noqa: E402
from tests.vllm.tiny_models import make_model  # noqa: E402

from tokenyard.explain.report.report import Report  # noqa: E402
from tokenyard.explain.report.summary import summarize  # noqa: E402
from tokenyard.sim.whatif.ask import answer, replay_as_it_was  # noqa: E402
from tokenyard.sim.whatif.recorded_run import read_run  # noqa: E402
from tokenyard.sim.whatif.settings import read_variant  # noqa: E402

__all__ = ["main"]

BASE = {"max_num_seqs": "4", "max_num_batched_tokens": "256", "num_gpu_blocks_override": "120"}
VARIANTS = (
    "max_num_seqs=16",
    "max_num_batched_tokens=64",
    "num_gpu_blocks_override=40",
    "enable_prefix_caching=false",
    "max_num_seqs=2",
)
SIZES = {
    "hidden_size": 768,
    "intermediate_size": 2048,
    "num_attention_heads": 12,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "num_hidden_layers": 8,
}
"""Of the model: 51 million parameters, so that a step takes long beside what else goes on."""
FIGURES = ("ttft_ms", "tpot_ms", "e2e_ms", "queue_ms")
_BYTES = 256


class Session(NamedTuple):
    """Turns of one client: each prompt is all that was said, and something new."""

    starts_at: float
    asked: tuple[tuple[list[int], int, float], ...]
    """New prompt tokens, output tokens, and seconds before the turn is sent."""


def sessions(count: int, rate: float, seed: int) -> list[Session]:
    """The traffic, the same for every setting."""
    random = Random(seed)
    system = [random.randrange(_BYTES) for _ in range(64)]
    made, moment = [], 0.0
    for _ in range(count):
        turns = []
        for turn in range(random.randint(1, 3)):
            new = [random.randrange(_BYTES) for _ in range(random.randint(20, 140))]
            turns.append((new if turn else system + new, random.randint(8, 40), random.uniform(0.0, 0.3)))
        made.append(Session(moment, tuple(turns)))
        moment += random.expovariate(rate)
    return made


async def _talk(client: Any, model: str, session: Session, began: float) -> None:
    await asyncio.sleep(max(began + session.starts_at - time.monotonic(), 0.0))
    said: list[int] = []
    for number, (new, max_tokens, pause) in enumerate(session.asked):
        if number:
            await asyncio.sleep(pause)
        said = [*said, *new]
        answered = await client.completions.create(
            model=model,
            prompt=said,
            max_tokens=max_tokens,
            temperature=0,
            extra_body={"ignore_eos": True, "return_token_ids": True},
        )
        said += answered.choices[0].model_extra["token_ids"]


async def _all(server: Server, traffic: list[Session]) -> None:
    import httpx  # noqa: PLC0415
    from openai import AsyncOpenAI  # noqa: PLC0415 - where vLLM is, they are

    reused = httpx.Limits(max_connections=None, keepalive_expiry=2)  # the server closes them after five seconds
    transport: Any = httpx.AsyncClient(limits=reused, timeout=300)
    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, http_client=transport) as client:
        warm = Session(0.0, (([1, 2, 3], 8, 0.0),))
        await _talk(client, server.model, warm, time.monotonic())
        began = time.monotonic()
        await asyncio.gather(*(_talk(client, server.model, session, began) for session in traffic))


def recorded(model: Path, folder: Path, settings: dict[str, str], traffic: list[Session]) -> Path:
    """Serve the traffic under ``settings``; returns the folder of its trace."""
    folder.mkdir()
    flags = ["--scheduler-cls", "tokenyard.vllm.TracingScheduler"]
    for name, value in settings.items():
        flag = name.replace("_", "-")
        flags += [f"--no-{flag}"] if value == "false" else [f"--{flag}", value]
    env = {"SCHED_TRACE_PATH": str(folder / "trace"), "PYTHONPATH": str(REPO / "src")}
    with served(model, folder / "log", flags, env) as server:
        asyncio.run(_all(server, traffic))
        server.stop()
    return folder / "trace"


def main() -> int:
    """Print how far predictions and measurements are apart."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sessions", type=int, default=40)
    parser.add_argument("--rate", type=float, default=0.7, help="sessions a second")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, default=None, help="folder for the traces")
    flags = parser.parse_args()
    traffic = sessions(flags.sessions, flags.rate, flags.seed)
    with tempfile.TemporaryDirectory() as temporary:
        folder = flags.keep or Path(temporary)
        folder.mkdir(exist_ok=True)
        model = make_model("llama", folder, **SIZES)
        run = read_run(recorded(model, folder / "base", BASE, traffic))
        baseline = replay_as_it_was(run)
        print(f"{'':28}{'':12}" + "".join(f"{name.removesuffix('_ms'):>28}" for name in FIGURES))
        _row("as it was", "replayed", baseline.report, run.report)
        _row("as it was", "served anew", summarize(recorded(model, folder / "again", BASE, traffic)), run.report)
        for number, asked in enumerate(VARIANTS):
            changed = BASE | dict([asked.split("=")])
            measured = summarize(recorded(model, folder / f"variant{number}", changed, traffic))
            (told,) = answer(run, baseline, [read_variant(run, asked)]).variants
            predicted = {figure.name: figure.variant for figure in told.figures}
            _row(asked, "predicted", predicted, measured)
    return 0


def _row(name: str, what: str, predicted: Report | dict[str, float | None], measured: Report) -> None:
    cells = []
    for figure in FIGURES:
        real = getattr(measured, figure).mean
        said = predicted.get(f"{figure}.mean") if isinstance(predicted, dict) else getattr(predicted, figure).mean
        off = "-" if not real or said is None else f"{said / real - 1:+.1%}"
        cells.append(f"{said or 0:9.1f} / {real or 0:7.1f} {off:>8}")
    print(f"{name:28}{what:12}" + "".join(f"{cell:>28}" for cell in cells), flush=True)


if __name__ == "__main__":
    sys.exit(main())
