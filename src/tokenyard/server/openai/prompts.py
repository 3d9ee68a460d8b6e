"""Prompts as clients send them: a text, token ids, or a list of either."""

from __future__ import annotations

from typing import Any

from tokenyard.engine.prompts import TokenizedPrompt
from tokenyard.server.openai.context import ServerContext
from tokenyard.server.openai.errors import bad_field
from tokenyard.server.openai.generating import in_thread_if_long

__all__ = ["tokenized_prompts"]

_MOST_PROMPTS = 1024


async def tokenized_prompts(
    context: ServerContext, field: str, given: Any, *, add_special_tokens: bool, n: int | None = None
) -> list[TokenizedPrompt]:
    """The prompts of a request, as token ids. Raises ApiError, which calls them ``field``, and QueueFullError.

    ``n`` answers are asked for to each.
    """
    one = [given] if isinstance(given, str) or _are(given, int) else given
    if not one or len(one) > _MOST_PROMPTS or not all(isinstance(each, str) or _are(each, int) for each in one):
        fix = f"give a text, a list of token ids, or a list of 1 to {_MOST_PROMPTS} of either; none may be empty"
        raise bad_field(field, given, fix)
    context.check_room(len(one), n)
    for each in one:
        if isinstance(each, str):
            context.check_length(field, each, len(each))

    def encode(text: str) -> list[int]:
        return context.tokenizer.encode(text, add_special_tokens=add_special_tokens)

    prompts = []
    for each in one:
        if isinstance(each, str):
            ids = await in_thread_if_long(len(each), lambda text=each: encode(text))  # type: ignore[misc]
            if not ids:
                raise bad_field(field, each, "has no token: give a text that is not empty")
            prompts.append(TokenizedPrompt(each, ids))
        else:
            prompts.append(TokenizedPrompt(None, each))
    return prompts


def _are(value: Any, kind: type) -> bool:
    return isinstance(value, list) and bool(value) and all(type(each) is kind for each in value)
