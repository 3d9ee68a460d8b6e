"""What a prompt is to a router: bytes, of which equal beginnings count."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from tokenyard.request import Request

__all__ = ["RoutedPrompt", "as_request", "prompt_of"]

_MOST_BYTES = 64 * 1024
"""Of a prompt, from its beginning: what follows decides nothing."""


class RoutedPrompt(msgspec.Struct, frozen=True):
    """The beginning of a prompt; requests of different salts share nothing."""

    text: bytes
    cache_salt: str | None = None


class _Body(msgspec.Struct):
    """The fields that matter here; whatever else there is, the replica checks."""

    prompt: Any = None
    messages: Any = None
    tools: Any = None
    cache_salt: Any = None


def prompt_of(body: bytes) -> RoutedPrompt | None:
    """The prompt in the body of a request; None where there is none, or a body that the replica will refuse."""
    try:
        said = msgspec.json.decode(body, type=_Body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if said.messages is not None:
        # Templates put tools first, then one message after the other.
        parts = [said.tools or [], *(said.messages if isinstance(said.messages, list) else [said.messages])]
        text = b"\n".join(msgspec.json.encode(part) for part in parts)
    else:
        text = _text(said.prompt)
    salt = said.cache_salt if isinstance(said.cache_salt, str) else None
    return RoutedPrompt(text[:_MOST_BYTES], salt) if text else None


def _text(prompt: Any) -> bytes:
    """Of several prompts, which stay together, the first."""
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str):
        return prompt.encode(errors="replace")
    return msgspec.json.encode(prompt)[1:-1] if isinstance(prompt, list) else b""


def as_request(name: str, prompt: RoutedPrompt | None) -> Request:
    """The same as routers take it: each byte is a token. Without a prompt it shares nothing with anybody."""
    if prompt is None:
        return Request(name, [0])
    return Request(name, np.frombuffer(prompt.text, np.uint8), cache_salt=prompt.cache_salt)
