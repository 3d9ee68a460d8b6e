"""An emulated server with a socket: clients that leave hold nothing, others get their answers; OpenAI's own client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

pytest.importorskip("uvicorn", reason="uvicorn is not installed (extra: server)")
pytest.importorskip("openai", reason="openai is not installed")

import openai

from emulate_load import LINE, Clients, Wanted, held
from emulate_servers import served
from tokenyard.deploy.deployment import Deployment
from tokenyard.serve.emulate.host import Emulation

Served = tuple[Emulation, int]


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with served(Deployment(LINE, gpu="h100"), 100.0) as (emulation, port):
        yield emulation, port


def test_nothing_is_lost_and_nothing_held(server: Served) -> None:
    emulation, port = server
    wanted = Wanted(80, {"max_tokens": 20, "stream": True}, at_once=25, leaving=0.3)
    counts = asyncio.run(asyncio.wait_for(Clients(port, wanted).run(), 120))
    assert set(counts) == {"answered", "left", "chunks"}, "none was refused or lost"
    assert counts["answered"] + counts["left"] == 80
    assert counts["left"] > 0
    until = time.monotonic() + 30
    while held(emulation) and time.monotonic() < until:
        time.sleep(0.05)
    assert held(emulation) == 0
    assert emulation.fronts[0].llm.num_unfinished == 0


def test_openais_client_streams(server: Served) -> None:
    with openai.OpenAI(base_url=f"http://127.0.0.1:{server[1]}/v1", api_key="none", max_retries=0) as client:
        stream = client.chat.completions.create(
            model="Qwen/Qwen3-0.6B",
            messages=[{"role": "user", "content": "hello"}],
            max_tokens=12,
            stream=True,
            stream_options={"include_usage": True},
            extra_body={"ignore_eos": True},
        )
        *chunks, last = list(stream)
        assert chunks[0].choices[0].delta.role == "assistant"
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks).split()
        assert chunks[-1].choices[0].finish_reason == "length"
        assert last.usage is not None
        assert last.usage.completion_tokens == 12
        whole = client.completions.create(
            model="Qwen/Qwen3-0.6B", prompt="hello", max_tokens=5, extra_body={"ignore_eos": True}
        )
        assert whole.usage is not None
        assert whole.usage.completion_tokens == 5
