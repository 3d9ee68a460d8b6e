"""A vLLM server of its own process, and clients of its OpenAI API."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import httpx

__all__ = ["Asked", "Server", "ask_all", "served"]

_START_SECONDS = 1800.0


class Asked(NamedTuple):
    """A completion that a client asks for."""

    prompt: str
    max_tokens: int = 24
    leaves_after: int | None = None
    """Pieces after which the client hangs up; None: it stays."""
    extra: Mapping[str, Any] = MappingProxyType({})
    """Further fields of the request."""


class Server(NamedTuple):
    """A server that answers."""

    url: str
    model: str
    process: subprocess.Popen[bytes]

    def metrics(self) -> dict[str, float]:
        """``/metrics``, each line by its name and labels."""
        lines = httpx.get(f"{self.url}/metrics", timeout=60).text.splitlines()
        found = (re.fullmatch(r"([a-z_:]+(?:\{.*\})?) (\S+)", line) for line in lines)
        return {each[1]: float(each[2]) for each in found if each is not None}

    def total(self, name: str) -> float:
        """Sum of a metric over all labels."""
        return sum(value for line, value in self.metrics().items() if line.partition("{")[0] == name)

    def stop(self) -> int:
        """Ask it to end, as an operator does, and wait until it has; returns its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(600)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def served(model: Path, log: Path, flags: Sequence[str] = (), env: dict[str, str] | None = None) -> Iterator[Server]:
    """Serve ``model`` until the block ends; ``log`` gets what it prints."""
    port = _free_port()
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--dtype", "float32"]
    command += ["--enforce-eager", "--max-model-len", "1024", "--block-size", "32", "--host", "127.0.0.1"]
    command += ["--port", str(port), *flags]
    settings = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_LOGGING_LEVEL": "INFO", **(env or {})}
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=settings, stdout=output, stderr=subprocess.STDOUT)
        server = Server(f"http://127.0.0.1:{port}", str(model), process)
        try:
            _wait_until_up(server, log)
            yield server
        finally:
            if process.poll() is None:
                server.stop()


def _wait_until_up(server: Server, log: Path) -> None:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end:
        if server.process.poll() is not None:
            raise RuntimeError(f"the server ended: {log.read_text()[-3000:]}")
        try:
            if httpx.get(f"{server.url}/health", timeout=5).status_code == 200:
                return
        except httpx.HTTPError:
            time.sleep(1)
    raise RuntimeError(f"the server did not start: {log.read_text()[-3000:]}")


def ask_all(server: Server, asked: Sequence[Asked]) -> list[list[int]]:
    """The tokens that each client gets; all ask at once, and read as tokens come."""
    return asyncio.run(_ask_all(server, asked))


async def _ask_all(server: Server, asked: Sequence[Asked]) -> list[list[int]]:
    limits = httpx.Limits(max_connections=len(asked) + 1)
    async with httpx.AsyncClient(base_url=server.url, timeout=600, limits=limits) as client:
        return await asyncio.gather(*(_ask(client, server.model, each) for each in asked))


async def _ask(client: httpx.AsyncClient, model: str, asked: Asked) -> list[int]:
    body = {
        "model": model,
        "prompt": asked.prompt,
        "max_tokens": asked.max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "return_token_ids": True,
        **asked.extra,
    }
    tokens: list[int] = []
    pieces = 0
    async with client.stream("POST", "/v1/completions", json=body) as answer:
        if answer.status_code != 200:
            raise RuntimeError(f"{answer.status_code}: {(await answer.aread()).decode()}")
        async for line in answer.aiter_lines():
            if not line.startswith("data: {"):
                continue
            record = json.loads(line[len("data: ") :])
            if "error" in record:
                raise RuntimeError(str(record["error"]))
            for choice in record["choices"]:
                tokens += choice.get("token_ids") or []
            pieces += 1
            if asked.leaves_after is not None and pieces >= asked.leaves_after:
                break
    return tokens
