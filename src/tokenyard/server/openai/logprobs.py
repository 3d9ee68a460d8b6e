"""Log-probabilities as the two endpoints tell them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tokenyard.engine.outputs import CompletionOutput, Logprob

__all__ = ["chat_logprobs", "completion_logprobs"]

_LEAST = -9999.0
"""Stands for a probability of 0: JSON has no infinity."""


def _value(each: Logprob) -> float:
    return max(each.logprob, _LEAST)


def _likeliest(row: dict[int, Logprob]) -> list[Logprob]:
    return sorted(row.values(), key=lambda each: (each.rank is None, each.rank))


def completion_logprobs(output: CompletionOutput, offset: int) -> dict[str, Any] | None:
    """Of a completion; ``offset`` is where its text begins among all that the client has got."""
    if output.logprobs is None:
        return None
    tokens, values, tops, offsets = [], [], [], []
    for token, row in zip(output.token_ids, output.logprobs, strict=True):
        own = row[token]
        tokens.append(own.decoded_token)
        values.append(_value(own))
        tops.append({each.decoded_token: _value(each) for each in reversed(_likeliest(row))})
        offsets.append(offset)
        offset += len(own.decoded_token)
    return {"tokens": tokens, "token_logprobs": values, "top_logprobs": tops, "text_offset": offsets}


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
