"""Clients that others have written, each with its own streams: run by ``emulate_clients.py`` where they are installed.

PYTHON lab/emulate_client.py openai|anthropic|litellm URL REQUESTS PAUSE
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

Said = list[dict[str, str]]


class Heard(NamedTuple):
    """An answer: how it ended, seconds to its first text and to its end, and its tokens."""

    ended: str
    first: float
    lasted: float
    prompt_tokens: int
    tokens: int


_OPTIONS: dict[str, Any] = {"max_tokens": 60, "stream": True, "stream_options": {"include_usage": True}}


async def _streamed(sent: float, stream: Any) -> Heard:
    """A stream in OpenAI's form."""
    first, last, usage = None, None, None
    async for chunk in stream:
        if chunk.choices and chunk.choices[0].delta.content and first is None:
            first = time.monotonic() - sent
        last = (chunk.choices[0].finish_reason if chunk.choices else None) or last
        usage = getattr(chunk, "usage", None) or usage
    assert first is not None
    assert last is not None
    assert usage is not None
    return Heard(last, first, time.monotonic() - sent, usage.prompt_tokens, usage.completion_tokens)


def openai(url: str) -> Callable[[Said], Awaitable[Heard]]:
    """OpenAI's client."""
    client = import_module("openai").AsyncOpenAI(base_url=f"{url}/v1", api_key="any")

    async def ask(said: Said) -> Heard:
        sent, body = time.monotonic(), {"ignore_eos": True}
        stream = await client.chat.completions.create(model="served", messages=said, extra_body=body, **_OPTIONS)
        return await _streamed(sent, stream)

    return ask


def litellm(url: str) -> Callable[[Said], Awaitable[Heard]]:
    """LiteLLM's."""
    library = import_module("litellm")

    async def ask(said: Said) -> Heard:
        sent = time.monotonic()
        stream = await library.acompletion(model="hosted_vllm/served", api_base=f"{url}/v1", messages=said, **_OPTIONS)
        return await _streamed(sent, stream)

    return ask


def anthropic(url: str) -> Callable[[Said], Awaitable[Heard]]:
    """Anthropic's, which counts tokens as well."""
    client = import_module("anthropic").AsyncAnthropic(base_url=url, auth_token="any")

    async def ask(said: Said) -> Heard:
        asked: dict[str, Any] = {"model": "served", "messages": said, "system": "be brief"}
        sent, first = time.monotonic(), None
        async with client.messages.stream(**asked, max_tokens=60) as stream:
            async for _ in stream.text_stream:
                first = time.monotonic() - sent if first is None else first
            end, lasted = await stream.get_final_message(), time.monotonic() - sent
        assert first is not None
        counted, usage = await client.messages.count_tokens(**asked), end.usage
        prompt = usage.input_tokens + (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)
        assert counted.input_tokens == prompt, (counted, usage)
        ended = {"max_tokens": "length", "end_turn": "stop"}[end.stop_reason]
        return Heard(ended, first, lasted, prompt, usage.output_tokens)

    return ask


async def _all(ask: Callable[[Said], Awaitable[Heard]], number: int, pause: float) -> list[Heard]:
    async def one(i: int) -> Heard:
        await asyncio.sleep(pause * i)
        return await ask([{"role": "user", "content": f"question {i}: " + "why " * (10 * i % 300)}])

    return list(await asyncio.gather(*(one(i) for i in range(number))))


def main(words: Sequence[str]) -> None:
    """Ask, and print counts and means as `vllm bench serve` does."""
    name, url, number, pause = words
    ask = {"openai": openai, "anthropic": anthropic, "litellm": litellm}[name](url)
    answers = asyncio.run(_all(ask, int(number), float(pause)))
    print(f"Successful requests: {sum(each.ended in ('stop', 'length') for each in answers)}")
    print(f"Total input tokens: {sum(each.prompt_tokens for each in answers)}")
    print(f"Total generated tokens: {sum(each.tokens for each in answers)}")
    paces = [(each.lasted - each.first) / (each.tokens - 1) for each in answers if each.tokens > 1]
    means = {"TTFT": [each.first for each in answers], "E2EL": [each.lasted for each in answers], "TPOT": paces}
    for what, times in means.items():
        print(f"Mean {what} (ms): {1e3 * sum(times) / len(times)}")


if __name__ == "__main__":
    main(sys.argv[1:])
