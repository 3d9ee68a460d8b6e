"""What workers without a model return beside tokens: log-probabilities, vectors of pooling models, tokens that a
grammar allows. The same request gets the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import torch
from vllm.v1.outputs import LogprobsLists, LogprobsTensors

_SURE = -0.25
"""The log-probability of a token that was sampled; those beside it have less and less."""
_WORD = 32
"""Bits of a word of a grammar's mask."""


class Wanted(msgspec.Struct, frozen=True):
    """What a request wants to know."""

    logprobs: int | None = None
    """Likeliest tokens at every place of the answer; None: not even the token's own."""
    prompt_logprobs: int | None = None
    """The same of the prompt."""
    end: int | None = None
    """The token that ends an answer."""
    pools: str | None = None
    """The task of a pooling model."""

    @classmethod
    def of(cls, new: Any, vocab_size: int) -> Wanted:
        """What a request asks for, by the step that schedules it for the first time."""
        if new.pooling_params is not None:
            return cls(pools=new.pooling_params.task)
        params = new.sampling_params

        def number(given: int | None) -> int | None:
            return vocab_size - 1 if given == -1 else given

        end = getattr(params, "eos_token_id", None)
        return cls(number(params.logprobs), number(params.prompt_logprobs), end)


def logprobs_of(tokens: Sequence[int], wanted: Sequence[Wanted], vocab_size: int) -> LogprobsLists | None:
    """Log-probabilities of a step, a row for each request; None if none is requested."""
    most = max((each.logprobs for each in wanted if each.logprobs is not None), default=None)
    if most is None:
        return None
    return LogprobsLists(*_rows(np.array(tokens, np.int64), most, vocab_size))


def prompt_logprobs_of(prompt: Sequence[int], number: int, vocab_size: int) -> LogprobsTensors:
    """Log-probabilities of a prompt, from its second token on."""
    return LogprobsTensors(*map(torch.from_numpy, _rows(np.array(prompt[1:], np.int64), number, vocab_size)))


def _rows(tokens: npt.NDArray[np.int64], number: int, vocab_size: int) -> tuple[Any, Any, Any]:
    """Each token is its place's likeliest."""
    beside = (tokens[:, None] + np.arange(number + 1)) % vocab_size
    beside[:, 1:] = beside[:, :-1].copy()  # the token itself, then the likeliest, of which it is the first
    chances = np.repeat((_SURE - np.arange(number + 1.0))[None, :], len(tokens), 0).astype(np.float32)
    chances[:, 1:] = chances[:, :-1].copy()
    return beside, chances, np.ones(len(tokens), np.int64)


def pooled(seed: int, prompt: Sequence[int], task: str, size: int) -> torch.Tensor:
    """A vector of length 1 for a prompt, or one for each of its tokens."""
    rows = len(prompt) if task.startswith("token") else 1
    drawn = np.random.default_rng([seed & 0xFFFF_FFFF, *prompt[:64]]).standard_normal((rows, size)).astype(np.float32)
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    made = torch.from_numpy(drawn)
    return made if task.startswith("token") else made[0]


def allowed(token: int, mask: npt.NDArray[np.int32], end: int | None) -> int:
    """A token that a grammar's mask allows: the end where that is one, else one that ``token`` leads to."""
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
    if end is not None and end < len(bits) and bits[end]:
        return end
    found = np.flatnonzero(bits)
    return int(found[token % len(found)]) if len(found) else token


def keep_to_grammars(
    sampled: list[list[int]], places: Mapping[str, int], grammar: Any, ends: Sequence[int | None]
) -> None:
    """Put tokens that grammars allow in the place of those that were made up; without drafts there is one at a time."""
    for row, request_id in enumerate(grammar.structured_output_request_ids):
        place = places.get(request_id)
        if place is not None and sampled[place]:
            sampled[place] = [allowed(sampled[place][0], grammar.grammar_bitmask[row], ends[place])]
