"""What-if against reality: vLLM on a CPU is served the same traffic under pairs of settings, with a trace of each.

``python benchmarks/whatif_vllm.py`` in the environment of vLLM 0.32, which runs models. From the trace of the first
setting alone ``whatif`` predicts the second; the means that the second really had stand beside the prediction. Both
servers are up, and get the traffic in turns, part by part: slower minutes of the machine fall on both, which should
have nothing else to do. The last pair has the same setting twice: so far apart are two runs of the same.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import msgspec

REPO = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPO / "src"), str(REPO)]

from tests.vllm.serving import Server, served  # noqa: E402
from tests.vllm.tiny_models import make_model  # noqa: E402

from tokenyard.explain.report.report import Report  # noqa: E402
from tokenyard.explain.report.summary import summarize  # noqa: E402
from tokenyard.questions.whatif import whatif  # noqa: E402

__all__ = ["BASE", "BASES", "VARIANTS", "Pair", "Session", "compare", "main", "sessions"]

BASE = {"max_num_seqs": "4", "max_num_batched_tokens": "256", "num_gpu_blocks_override": "120"}
VARIANTS = (
    "max_num_seqs=16",
    "max_num_batched_tokens=64",
    "num_gpu_blocks_override=50",
    "enable_prefix_caching=false",
    "max_num_seqs=2",
    "scheduling_policy=fcfs",
    "max_num_seqs=4",
)
BASES = {"scheduling_policy": {"scheduling_policy": "priority"}}
"""What the first server of a pair has besides, where the second changes this setting."""
SIZES = {
    "hidden_size": 768,
    "intermediate_size": 2048,
    "num_attention_heads": 12,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "num_hidden_layers": 8,
}
"""Size of the model: 51 million parameters, so that a step takes long beside what else goes on."""
_LENGTHENED = (0.4, 1.0, 1.6)
"""Length of the answers by priority, if the policy is the setting: no mean changes unless the urgent ones are short."""
_LAST_STEP = 1.0
"""Seconds after the last answer in which an engine says that its last step has ended."""
_MOST_TRIES = 3
"""Parts served for each that is wanted."""
FIGURES = ("ttft_ms", "tpot_ms", "e2e_ms", "queue_ms")
_BYTES = 256


class Session(NamedTuple):
    """Turns of one client: each prompt is all that was said, and something new."""

    starts_at: float
    asked: tuple[tuple[list[int], int, float], ...]
    """New prompt tokens, output tokens, and seconds before the turn is sent."""
    priority: int
    """Sent to a server that schedules by priorities."""


class Traffic(NamedTuple):
    """What both servers are asked."""

    parts: int
    sessions: int
    rate: float
    seed: int
    most_stolen: float


def sessions(count: int, rate: float, seed: int, *, urgent_are_short: bool = False) -> list[Session]:
    """The traffic, the same for both settings: conversations about a document, all with one system prompt."""
    random = Random(seed)
    system = [random.randrange(_BYTES) for _ in range(64)]
    made, moment = [], 0.0
    for _ in range(count):
        turns = []
        document = [random.randrange(_BYTES) for _ in range(random.randint(20, 190))]
        for turn in range(random.randint(5, 9)):
            new = [random.randrange(_BYTES) for _ in range(random.randint(15, 40))]
            turns.append((new if turn else system + document + new, random.randint(8, 40), random.uniform(0.0, 1.0)))
        priority = random.randint(0, 2)
        longer = _LENGTHENED[priority] if urgent_are_short else 1.0
        asked = tuple((new, round(max_tokens * longer), pause) for new, max_tokens, pause in turns)
        made.append(Session(moment, asked, priority))
        moment += random.expovariate(rate)
    return made


async def _talk(client: Any, server: Server, session: Session, began: float, by_priority: bool) -> None:
    await asyncio.sleep(max(began + session.starts_at - time.monotonic(), 0.0))
    said: list[int] = []
    priority = {"priority": session.priority} if by_priority else {}
    for number, (new, max_tokens, pause) in enumerate(session.asked):
        if number:
            await asyncio.sleep(pause)
        said = [*said, *new]
        answered = await client.completions.create(
            model=server.model,
            prompt=said,
            max_tokens=max_tokens,
            temperature=0,
            extra_body={"ignore_eos": True, "return_token_ids": True} | priority,
        )
        said += answered.choices[0].model_extra["token_ids"]


async def _all(server: Server, traffic: list[Session], by_priority: bool) -> None:
    import httpx  # noqa: PLC0415
    from openai import AsyncOpenAI  # noqa: PLC0415 - where vLLM is, they are

    reused = httpx.Limits(max_connections=None, keepalive_expiry=2)  # the server closes them after five seconds
    transport: Any = httpx.AsyncClient(limits=reused, timeout=300)
    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, http_client=transport) as client:
        warm = Session(0.0, (([1, 2, 3], 8, 0.0),), 0)
        await _talk(client, server, warm, time.monotonic(), by_priority)
        began = time.monotonic()
        await asyncio.gather(*(_talk(client, server, session, began, by_priority) for session in traffic))


class Pair(NamedTuple):
    """Folders of two traces."""

    base: Path
    other: Path


class _Served(NamedTuple):
    """A part that a server has answered, from its first request to its last answer, in seconds since the epoch."""

    began: float
    ended: float
    stolen: float
    """Share of the processors' time that went to other machines."""


class _Cut(msgspec.Struct):
    """What a line of a trace has to say to stay or go."""

    ts: float = 0.0


def _processor_time() -> tuple[int, int]:
    """Ticks that the hypervisor has kept back, and all ticks."""
    ticks = [int(each) for each in Path("/proc/stat").read_text().partition("\n")[0].split()[1:9]]
    return ticks[7], sum(ticks)


def _serve(server: Server, part: list[Session], by_priority: bool) -> _Served:
    stolen, ticks = _processor_time()
    began = time.time()
    asyncio.run(_all(server, part, by_priority))
    ended = time.time()
    now_stolen, now_ticks = _processor_time()
    return _Served(began, ended, (now_stolen - stolen) / max(now_ticks - ticks, 1))


def cut(folder: Path, kept: list[_Served]) -> None:
    """Leave of a trace what happened in these parts."""
    line_of = msgspec.json.Decoder(_Cut)
    for path in folder.glob("*.jsonl"):
        header, *lines = path.read_text().splitlines(keepends=True)
        moments = [line_of.decode(line).ts for line in lines]
        within = [any(part.began <= moment <= part.ended + _LAST_STEP for part in kept) for moment in moments]
        path.write_text(header + "".join(line for line, stays in zip(lines, within, strict=True) if stays))


def recorded(model: Path, folder: Path, asked: str, traffic: Traffic) -> Pair:
    """Serve parts of the traffic in turns, with the base's settings and with what is asked."""
    name, _, value = asked.partition("=")
    base = BASE | BASES.get(name, {})
    settings = {"base": base, "other": base | {name: value}}
    with ExitStack() as stack:
        pair = [
            (stack.enter_context(_started(model, folder / each, given)), given.get("scheduling_policy") == "priority")
            for each, given in settings.items()
        ]
        kept: list[tuple[_Served, _Served]] = []
        tried = 0
        # Between two parts each server has the other's part to end its own in: no part begins before the last is done.
        while len(kept) < traffic.parts and tried < _MOST_TRIES * traffic.parts:
            seed = traffic.seed + tried
            part = sessions(traffic.sessions, traffic.rate, seed, urgent_are_short=name == "scheduling_policy")
            first, second = (_serve(server, part, by_priority) for server, by_priority in pair)
            tried += 1
            if max(first.stolen, second.stolen) <= traffic.most_stolen:
                kept.append((first, second))
        for server, _ in pair:
            server.stop()
    traces = Pair(folder / "base" / "trace", folder / "other" / "trace")
    for trace, parts in zip(traces, zip(*kept, strict=True), strict=True):
        cut(trace, list(parts))
    stolen = max((each.stolen for both in kept for each in both), default=0.0)
    print(f"{asked}: {len(kept)} of {tried} parts kept, at most {stolen:.1%} of the processors' time stolen in one")
    return traces


def _started(model: Path, folder: Path, settings: dict[str, str]) -> AbstractContextManager[Server]:
    """A server that leaves its trace in ``folder``."""
    folder.mkdir(parents=True)
    flags = ["--scheduler-cls", "tokenyard.vllm.TracingScheduler"]
    for name, value in settings.items():
        flag = name.replace("_", "-")
        flags += [f"--no-{flag}"] if value == "false" else [f"--{flag}", value]
    env = {"SCHED_TRACE_PATH": str(folder / "trace"), "PYTHONPATH": str(REPO / "src")}
    return served(model, folder / "log", flags, env)


def main() -> int:
    """Print how far predictions and measurements are apart."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("variants", nargs="*", default=VARIANTS, help="what to ask, for example max_num_seqs=2")
    parser.add_argument("--sessions", type=int, default=8, help="in each part")
    parser.add_argument("--parts", type=int, default=4)
    parser.add_argument("--rate", type=float, default=2.0, help="sessions a second that begin")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, default=None, help="folder for the traces")
    parser.add_argument("--most-stolen", type=float, default=0.08, help="share of the processors' time, in each part")
    flags = parser.parse_args()
    traffic = Traffic(flags.parts, flags.sessions, flags.rate, flags.seed, flags.most_stolen)
    with tempfile.TemporaryDirectory() as temporary:
        folder = flags.keep or Path(temporary)
        folder.mkdir(exist_ok=True)
        model = make_model("llama", folder, **SIZES)
        print(f"{'milliseconds, means':28}{'':11}" + "".join(f"{name.removesuffix('_ms'):>30}" for name in FIGURES))
        for number, asked in enumerate(flags.variants):
            pair = recorded(model, folder / f"pair{number}", asked, traffic)
            compare(asked, pair)
    return 0


def compare(asked: str, pair: Pair) -> float:
    """Print what was predicted and what was measured; the largest share that a mean of the prediction is off by."""
    told = whatif(pair.base, asked)
    (variant,) = told.variants
    measured = summarize(pair.other)
    predicted = {figure.name: figure.variant for figure in variant.figures}
    _row("as it was", "replayed", {each.name: each.replayed for each in told.self_check.checks}, summarize(pair.base))
    return _row(asked, "predicted", predicted, measured)


def _row(name: str, what: str, told: dict[str, float | None], measured: Report) -> float:
    cells, worst = [], 0.0
    for figure in FIGURES:
        real, said = getattr(measured, figure).mean, told.get(f"{figure}.mean")
        off = "-" if not real or said is None else f"{said / real - 1:+.1%}"
        if real and said is not None:
            worst = max(worst, abs(said / real - 1))
        cells.append(f"{said or 0:9.1f} / {real or 0:8.1f} {off:>8}")
    print(f"{name:28}{what:11}" + "".join(f"{cell:>30}" for cell in cells), flush=True)
    return worst


if __name__ == "__main__":
    sys.exit(main())
