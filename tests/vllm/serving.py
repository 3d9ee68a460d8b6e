"""A vLLM server of its own process, and OpenAI clients of it. Everything ends in bounded time."""

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

_START_SECONDS = float(os.environ.get("VLLM_START_SECONDS", "300"))
"""A start takes 20 s on an idle machine, most of it imports; a server that dies fails at once."""
_PIECE_SECONDS = 90.0
"""A server that sends a client nothing for so long is dead."""
_ALL_SECONDS = 240.0
_STOP_SECONDS = 60.0


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
        return self.process.wait(_STOP_SECONDS)

    def kill(self) -> None:
        """End it and its workers, whatever they do."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        self.process.wait(_STOP_SECONDS)


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
    settings.pop("PYTHONDONTWRITEBYTECODE", None)  # without compiled files every start takes half a minute more
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=settings, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        server = Server(f"http://127.0.0.1:{port}", str(model), process)
        try:
            _wait_until_up(server, log)
            yield server
        finally:
            server.kill()


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
    return asyncio.run(asyncio.wait_for(_ask_all(server, asked), _ALL_SECONDS))


async def _ask_all(server: Server, asked: Sequence[Asked]) -> list[list[int]]:
    from openai import AsyncOpenAI  # where vLLM is, it is

    async with AsyncOpenAI(
        base_url=f"{server.url}/v1", api_key="none", timeout=_PIECE_SECONDS, max_retries=0
    ) as client:
        return await asyncio.gather(
            *(
                _ask(client, server.model, each)
                if each.leaves_after is None
                else _ask_and_leave(server, each, each.leaves_after)
                for each in asked
            )
        )


def _body(asked: Asked) -> dict[str, Any]:
    """What a request says beside the model and the prompt."""
    return {"ignore_eos": True, "return_token_ids": True, **asked.extra}


async def _ask(client: Any, model: str, asked: Asked) -> list[int]:
    stream = await client.completions.create(
        model=model,
        prompt=asked.prompt,
        max_tokens=asked.max_tokens,
        temperature=0,
        stream=True,
        extra_body=_body(asked),
    )
    tokens: list[int] = []
    async with stream:
        async for chunk in stream:
            for choice in chunk.choices:
                tokens += (choice.model_extra or {}).get("token_ids") or []
    return tokens


async def _ask_and_leave(server: Server, asked: Asked, pieces: int) -> list[int]:
    """Ask, read ``pieces`` events and cut the connection.

    A library's client reads a stream to its end before it closes, so the server would never see it leave.
    """
    said = {"model": server.model, "prompt": asked.prompt, "max_tokens": asked.max_tokens, "temperature": 0}
    body = json.dumps({**said, "stream": True, **_body(asked)}).encode()
    host, port = server.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(
            f"POST /v1/completions HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        status = await asyncio.wait_for(reader.readline(), _PIECE_SECONDS)
        assert b" 200 " in status, status
        tokens: list[int] = []
        while pieces:
            line = await asyncio.wait_for(reader.readline(), _PIECE_SECONDS)
            assert line, "the server closed the stream first"
            if line.startswith(b"data: {"):
                for choice in json.loads(line.removeprefix(b"data: "))["choices"]:
                    tokens += choice.get("token_ids") or []
                pieces -= 1
        return tokens
    finally:
        writer.transport.abort()
