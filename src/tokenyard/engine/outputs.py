"""What a generation has brought: records with the fields of vLLM's ``RequestOutput`` and ``CompletionOutput``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

__all__ = ["CompletionOutput", "EmbeddingOutput", "GenerationOutput", "Logprob"]


class Logprob(NamedTuple):
    """One token that could have stood at a position."""

    logprob: float
    """Natural logarithm of its probability."""
    rank: int | None
    """Its place in the vocabulary by probability, 1 the likeliest."""
    decoded_token: str
    """Its text; U+FFFD where it is a piece of a character."""


class CompletionOutput(msgspec.Struct, frozen=True, kw_only=True):
    """One answer, or the part of it that is new."""

    index: int
    """Which of the ``n`` answers."""
    text: str
    token_ids: Sequence[int]
    """All tokens, those of a stop string and of the end included."""
    cumulative_logprob: float | None = None
    """Sum over all tokens of the answer; None if ``logprobs`` were not asked for."""
    logprobs: Sequence[dict[int, Logprob]] | None = None
    """One per token of ``token_ids``: the token itself and the likeliest ones, by token id."""
    finish_reason: str | None = None
    """``stop``, ``length``, ``abort``, ``error``, ``repetition``; None: it has not ended."""
    stop_reason: int | str | None = None
    """The stop string, or the stop token, that ended it."""

    @property
    def finished(self) -> bool:
        """Whether it has ended."""
        return self.finish_reason is not None


class EmbeddingOutput(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt and its vector."""

    request_id: str
    prompt: str | None
    """Its text; None if token ids were given."""
    prompt_token_ids: Sequence[int]
    embedding: npt.NDArray[np.floating]
    """Shape ``[hidden size]``."""
    num_cached_tokens: int = 0
    """Prompt tokens that were in the prefix cache."""


class GenerationOutput(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt and its answers (vLLM's ``RequestOutput``)."""

    request_id: str
    prompt: str | None
    """Its text; None if token ids were given."""
    prompt_token_ids: Sequence[int]
    outputs: Sequence[CompletionOutput]
    """The answers; of a stream of deltas, those with news."""
    finished: bool
    """All answers have ended."""
    num_cached_tokens: int = 0
    """Prompt tokens that were in the prefix cache."""
    prompt_logprobs: Sequence[dict[int, Logprob] | None] | None = None
    """One per prompt token, the first None; None if they were not asked for, or are not complete."""
