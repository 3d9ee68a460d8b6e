"""What the runner keeps of every slot of the request table: its tokens, its drafts, how its tokens are drawn.

Everything else about a row comes with the step. Tokens are kept here because the runner knows them first: a step may be
begun while the scheduler has not got those of the step before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenyard.core.arrays import Int32Array, IntArray
from tokenyard.core.params import PoolingParams, SamplingParams, TokenIds
from tokenyard.core.sched.outputs import TokenLogprobs
from tokenyard.core.sched.scheduler_output import SchedulerOutput
from tokenyard.quick_dataclass import dataclass
from tokenyard.serve.torch.adapters import NO_ADAPTER
from tokenyard.serve.torch.attention import StepRows

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
