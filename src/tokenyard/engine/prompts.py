"""Prompts as callers give them: text, token ids, or vLLM's dictionaries of either."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tokenyard.engine.text.tokenizer import TextTokenizer
from tokenyard.errors import RequestError

__all__ = ["Prompt", "TokenizedPrompt", "tokenized"]

Prompt = str | Sequence[int] | Mapping[str, object]
"""Text, token ids, ``{"prompt": text}`` or ``{"prompt_token_ids": ids}``."""


class TokenizedPrompt(NamedTuple):
    """A prompt, ready for the scheduler."""

    text: str | None
    token_ids: Sequence[int]


def tokenized(
    request_id: str, prompt: Prompt, tokenizer: TextTokenizer | None, *, add_special_tokens: bool = True
) -> TokenizedPrompt:
    """The token ids of a prompt. Raises RequestError; whether the ids can be, the request itself checks."""
    if isinstance(prompt, Mapping):
        known = [name for name in ("prompt_token_ids", "prompt") if name in prompt]
        if len(known) != len(prompt) or not known:
            fix = 'give {"prompt": text} or {"prompt_token_ids": ids}, and nothing else'
            raise RequestError(request_id, "prompt", dict(prompt), fix)
        given: object = prompt[known[0]]
        text = prompt.get("prompt")
        if known == ["prompt_token_ids", "prompt"] and isinstance(text, str) and not isinstance(given, str):
            return TokenizedPrompt(text, _ids(request_id, given))
    else:
        given = prompt
    if not isinstance(given, str):
        return TokenizedPrompt(None, _ids(request_id, given))
    if tokenizer is None:
        raise RequestError(request_id, "prompt", given, "the engine has no tokenizer: give token ids")
    try:
        given.encode()
    except UnicodeEncodeError:
        fix = "holds a lone surrogate, half of a character: give both halves or none"
        raise RequestError(request_id, "prompt", given, fix) from None
    return TokenizedPrompt(given, tokenizer.encode(given, add_special_tokens=add_special_tokens))


def _ids(request_id: str, given: object) -> Sequence[int]:
    if isinstance(given, bytes) or not isinstance(given, Sequence):
        raise RequestError(request_id, "prompt", given, "give a text, or a list of token ids")
    return given
