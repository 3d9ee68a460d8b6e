"""From logits to tokens: draws, penalties, scores of prompts, pooled vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from tokenyard.core.arrays import Int32Array, IntArray
from tokenyard.core.params import PoolingParams, PoolingType, SamplingParams
from tokenyard.core.sched.outputs import TokenLogprobs
from tokenyard.core.sched.scheduler_output import SchedulerOutput
from tokenyard.serve.torch.attention import StepRows
from tokenyard.serve.torch.checkpoint import require_torch
from tokenyard.serve.torch.request_rows import RequestRows, Sampling
from tokenyard.splitmix import GOLDEN, mixed, shares

# ---------------------------------------------------------------------------------------------------------------------
# Random numbers that depend on a seed and a position alone: a request draws the same in any batch.
#
# A counter-based generator over seed and position.


def uniform(seeds: IntArray, positions: IntArray) -> npt.NDArray[np.float64]:
    """Numbers from 0 up to, and without, 1."""
    with np.errstate(over="ignore"):
        streams = mixed(seeds.astype(np.int64).view(np.uint64) + GOLDEN)
        words = mixed(streams + (positions.astype(np.uint64) + np.uint64(1)) * GOLDEN)
    return shares(words)


# ---------------------------------------------------------------------------------------------------------------------
# What changes a row's logits before it is drawn from: biases, tokens that are barred, penalties for repetition.


class LogitRow(msgspec.Struct, frozen=True):
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
    """Whether anything of this is requested: nearly never."""
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


# ---------------------------------------------------------------------------------------------------------------------
# From logits to tokens.
#
#     logits -> bitmask of a grammar -> bias, min_tokens, penalties -> temperature -> top_k, top_p, min_p -> a draw
#
# A position's draw is one number that depends on the request's seed and the position alone; the token is where it
# falls in the cumulated probabilities. Drafts are verified by sampling every position as if there were none, as far
# as the drafts before it are right: a draft that equals the token is accepted. So the distribution is kept (a draft
# is right with the probability of its token, and what stands in a wrong one's place is drawn from the rest), and the
# very tokens are those that are sampled without drafts.

_COLDEST = 1e-5
"""Temperatures below it count as it: their logits would leave the numbers that there are."""
MOST_AT_ONCE = 1 << 22
"""Logits that are drawn from or scored at once, in float64, unless a row has more: 32 MB, and a few copies of them."""


def rows_at_once(vocab_size: int) -> int:
    """Rows of logits that are drawn from or scored at once."""
    return max(1, MOST_AT_ONCE // vocab_size)


def sample(logits: Any, params: Sequence[SamplingParams], seeds: IntArray, positions: IntArray) -> IntArray:
    """A token for each row of ``logits`` (shape ``[rows, vocabulary]``), which may be changed.

    ``positions`` are those that the tokens will have.
    """
    tokens = logits.argmax(-1)
    cut = np.array([bool(p.top_k > 0 or p.top_p < 1 or p.min_p > 0) for p in params], np.bool_)
    drawn = np.array([p.temperature > 0 for p in params], np.bool_)
    # Apart, so that a row's token does not depend on whether another one's tail is cut off.
    for draw, wanted in ((_draw, drawn & ~cut), (_draw_cut, drawn & cut)):
        rows, step = wanted.nonzero()[0], rows_at_once(logits.shape[1])
        for begin in range(0, len(rows), step):
            torch, chosen = require_torch(), rows[begin : begin + step]
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
    """Log-probabilities of ``tokens`` (shape ``[positions]``) and of the ``num_likeliest`` (-1: of all) at each
    position.
    """
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


# ---------------------------------------------------------------------------------------------------------------------
# Log-probabilities of prompts, gathered chunk by chunk and returned when the prompt is complete.


class PromptScores:
    """The positions of one step that score a prompt's next token."""

    def __init__(self, state: RequestRows, plan: SchedulerOutput, rows: StepRows) -> None:
        self._state, self._plan, self._rows = state, plan, rows
        self._asking = [(row, each) for row in range(len(plan.slots)) if (each := self._asks(row)) is not None]

    def _asks(self, row: int) -> Sampling | None:
        """The request of the row if it is within its prompt and wants to know."""
        if self._rows.starts[row] >= self._plan.num_prompt[row]:
            return None
        sampling = self._state.sampling(self._plan.req_ids[row])
        return sampling if sampling.params.prompt_logprobs is not None and not sampling.told_prompt else None

    def _num_scored(self, row: int) -> int:
        """Positions of the row that are followed by a token of the prompt."""
        return int(min(self._rows.counts[row], self._plan.num_prompt[row] - 1 - self._rows.starts[row]))

    def of(self, logits_at: Callable[[IntArray], Iterator[Any]]) -> dict[int, TokenLogprobs]:
        """Row -> its whole prompt's, where this step completes it.

        ``logits_at`` takes places in the flattened batch and returns their logits, in as many parts as it likes.
        """
        complete, firsts = {}, self._rows.counts.cumsum() - self._rows.counts
        for row, sampling in self._asking:
            start, count = int(self._rows.starts[row]), self._num_scored(row)
            slot, wanted = self._plan.slots[row], sampling.params.prompt_logprobs
            assert wanted is not None
            if start == 0:
                sampling.prompt_logprobs.clear()  # it had been preempted
            done = start + 1
            for logits in logits_at(firsts[row] + np.arange(count)):
                following = self._state.tokens[slot, done : done + len(logits)]
                sampling.prompt_logprobs.append(token_logprobs(logits, following, wanted))
                done += len(logits)
            if start + self._rows.counts[row] >= self._plan.num_prompt[row]:
                columns = zip(*sampling.prompt_logprobs, strict=True)
                complete[row] = TokenLogprobs(*(np.concatenate(parts) for parts in columns))
                sampling.prompt_logprobs, sampling.told_prompt = [], True
        return complete


# ---------------------------------------------------------------------------------------------------------------------
# Vectors of prompts: what pooling requests get in place of tokens, gathered chunk by chunk.
#
#     LAST    hidden state of the prompt's last token, after the model's last norm
#     CLS     of its first token
#     MEAN    the mean over all of its tokens


class Pooler:
    """The rows of one step that are pooled."""

    def __init__(self, state: RequestRows, plan: SchedulerOutput, rows: StepRows) -> None:
        self._plan, self._rows = plan, rows
        self._asking: list[tuple[int, Sampling, PoolingParams]] = []
        for row, request_id in enumerate(plan.req_ids if state.num_pooled else ()):
            sampling = state.sampling(request_id)
            if sampling.pooling is not None:
                self._asking.append((row, sampling, sampling.pooling))

    @property
    def rows(self) -> list[int]:
        """Rows for which no token is sampled."""
        return [row for row, _, _ in self._asking]

    def of(self, hidden: Any) -> dict[int, Any]:
        """Row -> its vector, where this step completes its prompt; ``hidden`` has shape ``[tokens, size]``."""
        ends, complete = self._rows.counts.cumsum(), {}
        for row, sampling, params in self._asking:
            start, count = int(self._rows.starts[row]), int(self._rows.counts[row])
            states = hidden[int(ends[row]) - count : int(ends[row])]
            sampling.pooled = _gathered(params.pooling_type, start, states, sampling.pooled)
            length = int(self._plan.num_prompt[row])
            if start + count >= length:
                vector = sampling.pooled / length if params.pooling_type == PoolingType.MEAN else sampling.pooled
                vector = vector / vector.norm().clamp_min(1e-12) if params.normalize else vector
                complete[row], sampling.pooled = vector.cpu().numpy(), None
        return complete


def _gathered(kind: str, start: int, states: Any, before: Any) -> Any:
    """What is known of the vector after a chunk that begins at ``start``: at 0 it begins anew, as after preemption."""
    states = states.float() if states.dtype.itemsize < 4 else states
    if kind == PoolingType.MEAN:
        return states.sum(0) if start == 0 else before + states.sum(0)
    if kind == PoolingType.CLS:
        return states[0] if start == 0 else before
    return states[-1]
