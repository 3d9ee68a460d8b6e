"""From logits to tokens.

    logits -> bitmask of a grammar -> bias, min_tokens, penalties -> temperature -> top_k, top_p, min_p -> a draw

A position's draw is one number that depends on the request's seed and the position alone; the token is where it falls
in the cumulated probabilities. Drafts are verified by sampling every position as if there were none, as far as the
drafts before it are right: a draft that equals the token is accepted. So the distribution is kept (a draft is right
with the probability of its token, and what stands in a wrong one's place is drawn from the rest), and the very tokens
are those that are sampled without drafts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tokenyard.columns import Int32Array, IntArray
from tokenyard.engine.torch.checkpoint import require_torch
from tokenyard.engine.torch.sampling.draws import uniform
from tokenyard.params import SamplingParams
from tokenyard.sched.steps.aux_output import TokenLogprobs

__all__ = ["accepted", "sample", "token_logprobs"]

_COLDEST = 1e-5
"""Temperatures below it count as it: their logits would leave the numbers that there are."""


def sample(logits: Any, params: Sequence[SamplingParams], seeds: IntArray, positions: IntArray) -> IntArray:
    """A token for each row of ``logits`` (shape ``[rows, vocabulary]``), which may be changed.

    ``positions`` are those that the tokens will have.
    """
    tokens = logits.argmax(-1)
    cut = np.array([bool(p.top_k > 0 or p.top_p < 1 or p.min_p > 0) for p in params], np.bool_)
    drawn = np.array([p.temperature > 0 for p in params], np.bool_)
    # Apart, so that a row's token does not depend on whether another one's tail is cut off.
    for draw, wanted in ((_draw, drawn & ~cut), (_draw_cut, drawn & cut)):
        if wanted.any():
            torch = require_torch()
            chosen = wanted.nonzero()[0]
            numbers = torch.from_numpy(uniform(seeds[chosen], positions[chosen])).to(logits.device)
            at = torch.from_numpy(chosen).to(logits.device)
            tokens[at] = draw(logits[at].double(), [params[i] for i in chosen.tolist()], numbers[:, None])
    found: IntArray = tokens.cpu().numpy()
    return found


def _column(values: Sequence[float], logits: Any) -> Any:
    return logits.new_tensor(list(values)).unsqueeze(1)


def _scaled(logits: Any, params: Sequence[SamplingParams]) -> Any:
    return logits / _column([max(p.temperature, _COLDEST) for p in params], logits)


def _draw(logits: Any, params: Sequence[SamplingParams], numbers: Any) -> Any:
    """Tokens where ``numbers`` fall in the cumulated probabilities."""
    return _fall(_scaled(logits, params).softmax(-1), numbers).squeeze(1)


def _draw_cut(logits: Any, params: Sequence[SamplingParams], numbers: Any) -> Any:
    """The same among the likeliest tokens alone, in the order of their probability (equal ones of their ids)."""
    torch = require_torch()
    ordered, ids = _scaled(logits, params).sort(dim=-1, descending=True, stable=True)
    top_k = _column([p.top_k if p.top_k > 0 else logits.shape[1] for p in params], logits)
    rank = torch.arange(logits.shape[1], device=logits.device)
    probabilities = ordered.masked_fill(rank >= top_k, float("-inf")).softmax(-1)
    before = probabilities.cumsum(-1) - probabilities
    beyond = before >= _column([p.top_p for p in params], logits)
    beyond |= probabilities < _column([p.min_p for p in params], logits) * probabilities[:, :1]
    beyond[:, 0] = False
    return ids.gather(1, _fall(probabilities.masked_fill(beyond, 0.0), numbers)).squeeze(1)


def _fall(probabilities: Any, numbers: Any) -> Any:
    """Places where ``numbers`` of the whole fall, shape ``[rows, 1]``; never one without probability."""
    cumulated = probabilities.cumsum(-1)
    total = cumulated[:, -1:]
    # Rounding may lift a number next to 1 to the whole.
    reached = numbers * total
    reached = reached.where(reached < total, total.nextafter(total.new_zeros(())))
    return (cumulated <= reached).sum(-1, keepdim=True)


def accepted(tokens: IntArray, drafts: IntArray, counts: IntArray) -> IntArray:
    """Sampled tokens per row that count: the right drafts and the token after them.

    ``tokens`` has shape ``[rows, 1 + most]``, ``drafts`` ``[rows, most]`` of which the first ``counts`` were verified.
    """
    right = (tokens[:, : drafts.shape[1]] == drafts) & (np.arange(drafts.shape[1]) < counts[:, None])
    found: IntArray = 1 + np.logical_and.accumulate(right, axis=1).sum(axis=1)
    return found


def token_logprobs(logits: Any, tokens: IntArray | Int32Array, num_likeliest: int) -> TokenLogprobs:
    """Of ``tokens`` (shape ``[positions]``) and of the ``num_likeliest`` (-1: of all) at each position."""
    torch = require_torch()
    logprobs = logits.double().log_softmax(-1)
    wanted = logprobs.shape[1] if num_likeliest < 0 else min(num_likeliest, logprobs.shape[1])
    chosen = torch.from_numpy(np.ascontiguousarray(tokens, np.int64)).to(logits.device).unsqueeze(1)
    own = logprobs.gather(1, chosen)
    best, ids = logprobs.topk(wanted, -1)
    ranks = (logprobs > own).sum(-1) + 1
    return TokenLogprobs(
        torch.cat((chosen, ids), 1).cpu().numpy(), torch.cat((own, best), 1).cpu().numpy(), ranks.cpu().numpy()
    )
