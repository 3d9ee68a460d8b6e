"""The same requests to an emulated server and to Dynamo's mocker: what answers cost, and how long they take.

    .venv/bin/python lab/emulate_beside.py --dynamo PYTHON [--vllm .venv-vllm-0.32] [--requests 400] [--at-once 64]

``PYTHON`` has ai-dynamo installed: its frontend and its mocker run with the limits of the emulated line, workers found
in a folder, requests sent over TCP. A client streams completions of 100 tokens, so many at a time, after one that is
not counted. Printed are the tokens that came, the processor time of the servers' processes for each request, the mean
TTFT, TPOT and E2E that the client saw, and the families of metrics that begin with ``vllm:`` and with ``dynamo``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import httpx

from emulate_servers import ROOT, running, tiny_model, until_ready

_TOKENS, _LENGTH, _SEQS, _BLOCKS = 100, 4096, 128, 20_000
_VOCABULARY = 32_000
_TICKS = os.sysconf("SC_CLK_TCK")


def _words() -> dict[str, Any]:
    """A tokenizer each of whose tokens is a word: the mocker draws ids that smaller ones do not have."""
    vocabulary = {f"w{number}": number for number in range(_VOCABULARY)}
    parts: dict[str, Any] = {
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "post_processor": None,
    }
    spaces = {
        "pre_tokenizer": {"type": "Whitespace"},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": False},
    }
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "w0"}
    return {"version": "1.0", **parts, **spaces, "model": model}


class Seen(NamedTuple):
    """One answer, in seconds."""

    ttft: float
    e2e: float
    chunks: int
    tokens: int


def processor_seconds(pids: Sequence[int]) -> float:
    """Processor time of processes, their threads included, as Linux tells it."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(each[11]) + int(each[12]) for each in fields) / _TICKS


async def one(http: httpx.AsyncClient, number: int) -> Seen:
    """A completion, streamed."""
    prompt = f"question {number}: " + "why " * (number * 7 % 100)
    body = {"model": "served", "prompt": prompt, "max_tokens": _TOKENS, "stream": True}
    body |= {"ignore_eos": True, "stream_options": {"include_usage": True}}
    sent, first, chunks, tokens = time.monotonic(), 0.0, 0, 0
    async with http.stream("POST", "/v1/completions", json=body) as answer:
        if answer.status_code != 200:
            raise SystemExit(f"{answer.status_code}: {(await answer.aread()).decode()[:500]}")
        async for line in answer.aiter_lines():
            if '"usage":{' in line and (told := re.search(r'"completion_tokens":(\d+)', line)):
                tokens = int(told[1])
            if line.startswith("data: {") and '"choices":[{' in line:
                first, chunks = first or time.monotonic() - sent, chunks + 1
    return Seen(first, time.monotonic() - sent, chunks, tokens)


async def load(url: str, requests: int, at_once: int, pids: Sequence[int]) -> tuple[list[Seen], float, float]:
    """What came, in how many seconds, and for how many of the processor."""
    room = asyncio.Semaphore(at_once)

    async def when_there_is_room(number: int) -> Seen:
        async with room:
            return await one(http, number)

    limits = httpx.Limits(max_connections=at_once)
    async with httpx.AsyncClient(base_url=url, timeout=600, limits=limits) as http:
        await one(http, 0)
        began, before = time.monotonic(), processor_seconds(pids)
        seen = await asyncio.gather(*(when_there_is_room(number + 1) for number in range(requests)))
        return list(seen), time.monotonic() - began, processor_seconds(pids) - before


def _is_served(answer: httpx.Response) -> bool:
    return "served" in answer.text


@contextmanager
def ours(model: Path, port: int, folder: Path) -> Iterator[list[int]]:
    """An emulated server."""
    line = f"vllm serve Qwen/Qwen3-8B --tokenizer {model} --served-model-name served --max-model-len {_LENGTH} "
    line += f"--max-num-seqs {_SEQS} --num-gpu-blocks-override {_BLOCKS}"
    command = [sys.executable, "-m", "tokenyard", "emulate", line, "--gpu", "h100", "--port", str(port)]
    with running(command, folder / "ours.log", PYTHONPATH=str(ROOT / "src")) as process:
        until_ready(f"http://127.0.0.1:{port}/v1/models", [folder / "ours.log"], 180, [process], _is_served)
        yield [process.pid]


@contextmanager
def dynamo(python: Path, model: Path, port: int, folder: Path) -> Iterator[list[int]]:
    """Dynamo's frontend, and a mocker behind it."""
    where = {"DYN_FILE_KV": str(folder / "found"), "HF_HUB_OFFLINE": "1", "DYN_HTTP_HOST": "127.0.0.1"}
    found = ["--discovery-backend", "file", "--request-plane", "tcp"]
    front = [str(python), "-m", "dynamo.frontend", "--http-host", "127.0.0.1", "--http-port", str(port), *found]
    worker = [str(python), "-m", "dynamo.mocker", "--model-path", str(model), "--model-name", "served", *found]
    worker += ["--max-num-seqs", str(_SEQS), "--max-model-len", str(_LENGTH)]
    worker += ["--num-gpu-blocks-override", str(_BLOCKS), "--block-size", "16"]
    with ExitStack() as stack:
        processes = [
            stack.enter_context(running(command, folder / f"{name}.log", **where))
            for name, command in (("front", front), ("worker", worker))
        ]
        logs = [folder / "front.log", folder / "worker.log"]
        until_ready(f"http://127.0.0.1:{port}/v1/models", logs, 180, processes, _is_served)
        yield [each.pid for each in processes]


def told(name: str, url: str, requests: int, at_once: int, pids: Sequence[int]) -> None:
    """Send the load, and print."""
    seen, seconds, processor = asyncio.run(load(url, requests, at_once, pids))
    tokens, chunks = sum(each.tokens for each in seen), sum(each.chunks for each in seen)
    tpot = mean((each.e2e - each.ttft) / (each.tokens - 1) for each in seen)
    families = re.findall(r"^# TYPE (\w+):?", httpx.get(f"{url}/metrics", timeout=10).text, re.MULTILINE)
    ttft, e2e = mean(each.ttft for each in seen), mean(each.e2e for each in seen)
    print(
        f"{name:15} {tokens:,} tokens in {chunks:,} chunks, {seconds:.1f} s; "
        f"processor {1e3 * processor / requests:.2f} ms a request; "
        f"mean TTFT {1e3 * ttft:.1f} ms, TPOT {1e3 * tpot:.2f} ms, E2E {1e3 * e2e:.0f} ms; "
        f"metrics: {families.count('vllm')} of vLLM, {sum(each.startswith('dynamo') for each in families)} of Dynamo",
        flush=True,
    )


def main() -> int:
    """Run both."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--dynamo", type=Path, required=True, help="a Python that has ai-dynamo")
    parser.add_argument("--vllm", type=Path, default=ROOT / ".venv-vllm-0.32", help="makes the tiny model")
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--at-once", type=int, default=64)
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        (folder / "model").mkdir()
        model = tiny_model(flags.vllm, folder / "model")
        (model / "tokenizer.json").write_text(json.dumps(_words()), encoding="utf-8")
        with ours(model, 8961, folder) as pids:
            told("emulate", "http://127.0.0.1:8961", flags.requests, flags.at_once, pids)
        with dynamo(flags.dynamo, model, 8962, folder) as pids:
            told("Dynamo's mocker", "http://127.0.0.1:8962", flags.requests, flags.at_once, pids)
    return 0


if __name__ == "__main__":
    sys.exit(main())
