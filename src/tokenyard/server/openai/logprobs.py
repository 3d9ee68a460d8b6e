"""Log-probabilities as the two endpoints tell them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tokenyard.engine.outputs import CompletionOutput, GenerationOutput, Logprob

__all__ = ["EchoedPrompt", "chat_logprobs", "completion_logprobs", "prompt_logprobs"]

_LEAST = -9999.0
"""Stands for a probability of 0: JSON has no infinity."""


def _value(each: Logprob) -> float:
    return max(each.logprob, _LEAST)


def _likeliest(row: dict[int, Logprob]) -> list[Logprob]:
    return sorted(row.values(), key=lambda each: (each.rank is None, each.rank))


class EchoedPrompt(NamedTuple):
    """A prompt that stands before its answer, token by token."""

    token_ids: Sequence[int]
    rows: Sequence[dict[int, Logprob] | None]
    """One per token; of the first, which nothing stands before, there is none."""
    first_text: str
    """Of the first token."""


def completion_logprobs(
    output: CompletionOutput, offset: int, echoed: EchoedPrompt | None = None
) -> dict[str, Any] | None:
    """Of a completion; ``offset`` is where its text begins among all that the client has got."""
    if output.logprobs is None:
        return None
    rows: list[tuple[int, dict[int, Logprob] | None]] = list(zip(output.token_ids, output.logprobs, strict=True))
    if echoed is not None:
        rows = [*zip(echoed.token_ids, echoed.rows, strict=True), *rows]
    tokens, values, tops, offsets = [], [], [], []
    for token, row in rows:
        text = row[token].decoded_token if row is not None else echoed.first_text if echoed is not None else ""
        tokens.append(text)
        values.append(None if row is None else _value(row[token]))
        tops.append(None if row is None else {each.decoded_token: _value(each) for each in reversed(_likeliest(row))})
        offsets.append(offset)
        offset += len(text)
    return {"tokens": tokens, "token_logprobs": values, "top_logprobs": tops, "text_offset": offsets}


def prompt_logprobs(output: GenerationOutput) -> list[dict[str, Any] | None] | None:
    """Of a prompt, as vLLM tells them: by token id; None if they were not asked for."""
    if output.prompt_logprobs is None:
        return None
    return [None if row is None else _by_token(row) for row in output.prompt_logprobs]


def _by_token(row: dict[int, Logprob]) -> dict[str, Any]:
    return {str(token): {**each._asdict(), "logprob": _value(each)} for token, each in row.items()}


def chat_logprobs(output: CompletionOutput, num_top: int) -> dict[str, Any] | None:
    """Of a chat's answer, with the ``num_top`` likeliest tokens at every place."""
    if output.logprobs is None:
        return None
    content = []
    for token, row in _rows(output):
        likeliest = [_token(each) for each in _likeliest(row)[:num_top]]
        content.append({**_token(row[token]), "top_logprobs": likeliest})
    return {"content": content, "refusal": None}


def _rows(output: CompletionOutput) -> Sequence[tuple[int, dict[int, Logprob]]]:
    return list(zip(output.token_ids, output.logprobs or (), strict=True))


def _token(each: Logprob) -> dict[str, Any]:
    return {
        "token": each.decoded_token,
        "logprob": _value(each),
        "bytes": list(each.decoded_token.encode(errors="replace")),
    }
