"""What changes a row's logits before it is drawn from: biases, tokens that are barred, penalties for repetition."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tokenyard.columns import Int32Array, IntArray
from tokenyard.engine.torch.checkpoint import require_torch
from tokenyard.params import SamplingParams

__all__ = ["LogitRow", "adjust", "apply_bitmask", "needs_adjusting"]


class LogitRow(NamedTuple):
    """One position that a token is sampled for."""

    params: SamplingParams
    tokens: Int32Array | IntArray
    """Prompt and output before it, drafts that have to be right for it included."""
    num_prompt: int

    @property
    def output(self) -> Int32Array | IntArray:
        """Tokens that have been put out."""
        return self.tokens[self.num_prompt :]


def _has_penalties(params: SamplingParams) -> bool:
    return bool(params.presence_penalty or params.frequency_penalty) or params.repetition_penalty != 1.0


def needs_adjusting(params: SamplingParams) -> bool:
    """Whether anything of this is asked for: nearly never."""
    return bool(params.logit_bias or params.min_tokens) or _has_penalties(params)


def adjust(logits: Any, row: LogitRow) -> None:
    """Change the logits of one position in place, shape ``[vocabulary]``; vLLM's order: bias, min_tokens, penalties."""
    params = row.params
    if params.logit_bias:
        tokens = [token for token in params.logit_bias if token < len(logits)]
        logits[tokens] += logits.new_tensor([params.logit_bias[token] for token in tokens])
    if len(row.output) < params.min_tokens:
        stops = [*params.stop_token_ids, *([] if params.eos_token_id is None else [params.eos_token_id])]
        logits[[token for token in stops if token < len(logits)]] = float("-inf")
    if _has_penalties(params):
        _penalize(logits, row)


def _penalize(logits: Any, row: LogitRow) -> None:
    """Repetition over prompt and output (Keskar et al. 2019), then frequency and presence over the output (OpenAI)."""
    torch, params = require_torch(), row.params
    if params.repetition_penalty != 1.0:
        seen = torch.from_numpy(np.unique(row.tokens).astype(np.int64)).to(logits.device)
        found = logits[seen]
        logits[seen] = torch.where(found > 0, found / params.repetition_penalty, found * params.repetition_penalty)
    if params.frequency_penalty or params.presence_penalty:
        ids, counts = np.unique(row.output, return_counts=True)
        taken = counts * params.frequency_penalty + params.presence_penalty
        logits[torch.from_numpy(ids.astype(np.int64)).to(logits.device)] -= logits.new_tensor(taken)


def apply_bitmask(logits: Any, mask: Int32Array) -> None:
    """Bar the tokens whose bit is not set, in place: shapes ``[rows, vocabulary]`` and ``[rows, words]``."""
    torch = require_torch()
    allowed = np.unpackbits(np.ascontiguousarray(mask).view(np.uint8), axis=1, bitorder="little")
    allowed = allowed[:, : logits.shape[1]].astype(bool)
    known = torch.from_numpy(allowed).to(logits.device)
    logits[:, : known.shape[1]].masked_fill_(~known, float("-inf"))
    logits[:, known.shape[1] :] = float("-inf")
