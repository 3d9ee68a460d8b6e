"""From logits to tokens: draws, penalties, scores of prompts, pooled vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from hashlib import blake2b
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from tokenyard.core.arrays import Int32Array, IntArray
from tokenyard.core.params import PoolingParams, PoolingType, SamplingParams, TokenIds
from tokenyard.core.sched.outputs import TokenLogprobs
from tokenyard.core.sched.scheduler_output import SchedulerOutput
from tokenyard.quick_dataclass import dataclass
from tokenyard.serve.torch.adapters import NO_ADAPTER
from tokenyard.serve.torch.attention import StepRows
from tokenyard.serve.torch.checkpoint import require_torch
from tokenyard.splitmix import GOLDEN, mixed, shares

# ---------------------------------------------------------------------------------------------------------------------
# What the runner keeps of every slot of the request table: its tokens, its drafts, how its tokens are drawn.
#
# Everything else about a row comes with the step. Tokens are kept here because the runner knows them first: a step may
# be begun while the scheduler has not got those of the step before.

NO_DRAFT = -1


@dataclass(slots=True)
class Sampling:
    """How one request's tokens are computed and drawn, from its first step to its end, whatever slots it has."""

    params: SamplingParams
    seed: int
    """Seed of its draws."""
    adapter: int
    """Number of its LoRA adapter, or NO_ADAPTER."""
    prompt_logprobs: list[TokenLogprobs] = field(default_factory=list)
    """Log-probabilities of the prompt's chunks so far."""
    pooling: PoolingParams | None = None
    """What is made of its prompt's states, in place of tokens."""
    pooled: Any = None
    """The vector so far."""
    told_prompt: bool = False
    """Whether the log-probabilities of the whole prompt have been returned."""


def _seed_of(request_id: str, engine_seed: int, params: SamplingParams) -> int:
    """The request's own seed, or one that depends on the engine's and on the request alone."""
    if params.seed is not None:
        return params.seed
    digest = blake2b(f"{engine_seed}/{request_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


class RequestRows:
    """One row per slot; slots of a plan are brought up to date with :meth:`take_in`, in the order of the steps."""

    def __init__(self, max_model_len: int, num_drafts: int, seed: int, adapters: Sequence[str] = ()) -> None:
        """``adapters`` are the names that requests may ask for, in the order of their numbers."""
        self._width = max_model_len + num_drafts + 1
        self._num_drafts = num_drafts
        self._seed = seed
        self.tokens: Int32Array = np.zeros((0, self._width), np.int32)
        """Known tokens, then whatever."""
        self.lengths: IntArray = np.zeros(0, np.int64)
        """Known tokens: prompt, and output that the runner has sampled."""
        self.drafts: IntArray = np.zeros((0, num_drafts), np.int64)
        """Guesses at the next tokens; NO_DRAFT after them."""
        self.adapters: IntArray = np.zeros(0, np.int64)
        """Number of the LoRA adapter, or NO_ADAPTER."""
        self._adapter_numbers: dict[str | None, int] = {name: i for i, name in enumerate(adapters)}
        self._samplings: dict[str, Sampling] = {}
        self.num_pooled = 0
        """Requests that are pooled: nearly always none."""

    def follow(self, plan: SchedulerOutput) -> None:
        """Requests of a step come, come back and go."""
        for request_id in plan.finished_req_ids:
            gone = self._samplings.pop(request_id, None)
            self.num_pooled -= gone is not None and gone.pooling is not None
        if len(plan.slots):
            self._make_room(int(plan.slots.max()) + 1)
        for row, new in plan.new_requests.items():
            request_id = plan.req_ids[row]
            seed = _seed_of(request_id, self._seed, new.sampling_params)
            adapter = self._adapter_numbers.get(new.lora_name, NO_ADAPTER)
            self._samplings[request_id] = Sampling(new.sampling_params, seed, adapter, pooling=new.pooling_params)
            self.num_pooled += new.pooling_params is not None
            self._know(int(plan.slots[row]), new.prompt_token_ids, adapter)
        for row, tokens in plan.known_tokens.items():
            self._know(int(plan.slots[row]), tokens, self._samplings[plan.req_ids[row]].adapter)

    def _know(self, slot: int, tokens: TokenIds, adapter: int) -> None:
        self.adapters[slot] = adapter
        self.tokens[slot, : len(tokens)] = tokens
        self.lengths[slot] = len(tokens)
        self.drafts[slot] = NO_DRAFT

    def _make_room(self, slots: int) -> None:
        missing = slots - len(self.lengths)
        if missing <= 0:
            return
        missing = max(missing, len(self.lengths))
        self.tokens = _taller(self.tokens, missing)
        self.lengths = _taller(self.lengths, missing)
        self.drafts = _taller(self.drafts, missing)
        self.adapters = _taller(self.adapters, missing)

    def sampling(self, request_id: str) -> Sampling:
        """How a request that takes part in the step is computed and drawn."""
        return self._samplings[request_id]

    def step_rows(self, plan: SchedulerOutput) -> StepRows:
        """Where the step's rows begin: the plan may count on drafts of a step in flight that have been rejected."""
        return StepRows(np.minimum(plan.num_computed, self.lengths[plan.slots] - 1), plan.num_new_tokens)

    def draft_counts(self, plan: SchedulerOutput) -> IntArray:
        """Drafts that each row verifies."""
        return np.zeros(len(plan.slots), np.int64) if plan.drafts is None else plan.drafts.counts

    def known_drafts(self, plan: SchedulerOutput) -> IntArray:
        """Drafts that the rows verify, shape ``[n, most]``: the plan's, or its own where only the runner knows them."""
        if plan.drafts is None:
            return np.zeros((len(plan.slots), 0), np.int64)
        given = plan.drafts.tokens
        if plan.num_placeholders is not None and plan.num_invalid_spec_tokens is None:
            given = np.where(given == NO_DRAFT, self.drafts[plan.slots, : given.shape[1]], given)
        return given

    def input_ids(self, plan: SchedulerOutput, rows: StepRows) -> npt.NDArray[np.int64]:
        """Tokens to compute, row after row: known ones, then drafts."""
        slots = np.repeat(plan.slots, rows.counts)
        positions = rows.positions
        ids = self.tokens[slots, positions].astype(np.int64)
        if plan.drafts is not None:
            ahead = positions - self.lengths[slots]
            drafts = np.repeat(self.known_drafts(plan), rows.counts, axis=0)
            guessed = ahead >= 0
            ids[guessed] = np.maximum(drafts[guessed, ahead[guessed]], 0)
        return ids

    def append(self, slots: IntArray, tokens: IntArray, counts: IntArray) -> None:
        """``counts[i]`` of ``tokens[i]`` have been sampled for ``slots[i]``."""
        places = np.arange(tokens.shape[1]) if len(slots) else np.zeros(0, np.int64)
        taken = places < counts[:, None]
        at = self.lengths[slots][:, None] + places
        fits = taken & (at < self._width)
        rows = np.broadcast_to(slots[:, None], taken.shape)
        self.tokens[rows[fits], at[fits]] = tokens[fits]
        self.lengths[slots] = np.minimum(self.lengths[slots] + counts, self._width)


def _taller(column: npt.NDArray[Any], rows: int) -> npt.NDArray[Any]:
    """The array with more rows, zeros in the new ones."""
    return np.concatenate((column, np.zeros((rows, *column.shape[1:]), column.dtype)))


# ---------------------------------------------------------------------------------------------------------------------

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
