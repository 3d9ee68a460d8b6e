"""A step's decision as a value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from tokenyard.core.arrays import IntArray
from tokenyard.core.basics import cached_attribute
from tokenyard.core.kv.allocation import BlockDeltas, Blocks, StepBlocks
from tokenyard.core.params import MultiModalItem, PoolingParams, SamplingParams, TokenIds
from tokenyard.core.rows import TokenRow
from tokenyard.core.sched.step_rows import COMPUTED, IN_FLIGHT, KNOWN, NEW, PROMPT, SAMPLES, SLOT, Rows

# ---------------------------------------------------------------------------------------------------------------------
# A step's decision, as a value: what goes to the workers.
#
# Columns over the step's scheduled requests, in scheduling order. Nothing that happens later changes it: it can be
# kept, compared, pickled and sent to another process. The dictionaries and records that hosts like vLLM expect are
# derived from the columns on demand, whenever that is.


class NewRequest(NamedTuple):
    """What a worker has to know of a request that is scheduled for the first time, beside the columns."""

    prompt_token_ids: TokenIds
    """Shape ``[num_prompt_tokens]``, int32."""
    sampling_params: SamplingParams
    pooling_params: PoolingParams | None
    lora_name: str | None
    cache_salt: str | None
    mm_features: tuple[MultiModalItem, ...]
    prompt_embeds: npt.NDArray[np.generic] | None
    output_seed: int
    """For a simulated model."""


class NewRequestData(NamedTuple):
    """A request scheduled for the first time: everything a worker needs (vLLM's record)."""

    req_id: str
    prompt_token_ids: list[int]
    mm_features: tuple[MultiModalItem, ...]
    sampling_params: SamplingParams
    pooling_params: PoolingParams | None
    block_ids: tuple[list[int], ...]
    """All its blocks, per KV-cache group."""
    num_computed_tokens: int
    lora_name: str | None
    prompt_embeds: npt.NDArray[np.generic] | None = None
    cache_salt: str | None = None


class CachedRequestData(msgspec.Struct, frozen=True):
    """Requests a worker knows: only what changed. Running ones first, then resumed ones (vLLM's record)."""

    req_ids: list[str]
    resumed_req_ids: frozenset[str]
    """Preempted earlier and admitted again: their block lists replace what the worker has."""
    all_token_ids: dict[str, list[int]]
    """Whole token streams of requests that were not scheduled in the previous step."""
    new_block_ids: list[tuple[list[int], ...] | None]
    """Per request and KV-cache group; None if it got no block."""
    num_computed_tokens: list[int]
    """Before this step."""
    num_output_tokens: list[int]


class ScheduledDrafts(NamedTuple):
    """Draft tokens to be verified in a step, aligned with its requests."""

    tokens: IntArray
    """Shape ``[n, max drafts]``; -1 for a draft that only the worker knows."""
    counts: IntArray
    """Drafts per request, shape ``[n]``."""


class KnownTokens(Mapping[int, TokenIds]):
    """Row -> all tokens of its request that were known before the step, int32, read-only.

    With several steps in flight every step has all its rows here, and most executors never look: token streams only
    grow, so that whole ones are made when they are asked for.
    """

    __slots__ = ("_streams",)

    def __init__(self, streams: dict[int, tuple[TokenIds, TokenRow, int]]) -> None:
        """Per row the tokens that were given, those behind them, and how many there are in all."""
        self._streams = streams

    def __getitem__(self, row: int) -> TokenIds:
        given, behind, count = self._streams[row]
        tokens = np.concatenate((given[:count], np.frombuffer(behind.part(0, max(count - len(given), 0)), np.int32)))
        tokens.flags.writeable = False
        return tokens

    def __iter__(self) -> Iterator[int]:
        return iter(self._streams)

    def __len__(self) -> int:
        return len(self._streams)

    def __repr__(self) -> str:
        return repr(dict(self))

    def __reduce__(self) -> tuple[type, tuple[dict[int, TokenIds]]]:
        """Elsewhere they are a dictionary of arrays."""
        return dict, (dict(self),)


_NOTHING: Mapping[Any, Any] = {}
"""Never written to."""


class SchedulerOutput:
    """One step's decision, as columns; a value, not to be changed.

    Request ``req_ids[i]`` computes ``num_new_tokens[i]`` tokens from position ``num_computed[i]`` on. Order: running
    ones in running order, then admitted ones (new and resumed mixed) in admission order.
    """

    step: int
    """Number of the step."""
    rows: Rows | None
    """Where the columns come from; None in another process, which has them as arrays."""
    num_running: int
    """The first ``num_running`` requests were running before the step, the others are admitted in it."""
    total_num_scheduled_tokens: int = 0
    """Tokens to compute in this step, all requests together."""
    blocks: StepBlocks | None = None
    """Blocks got in this step; see ``new_blocks``."""
    drafts: ScheduledDrafts | None = None
    """Drafts to verify; None: nowhere."""
    num_invalid_spec_tokens: IntArray | None = None
    """The drafts, per request, that its grammar forbids, shape ``[n]``; None: not known, or none."""
    new_requests: Mapping[int, NewRequest] = _NOTHING
    """Row -> a request scheduled for the first time."""
    admitted_resumed: tuple[int, ...] = ()
    """Rows of requests admitted again after a preemption."""
    not_scheduled_before: tuple[int, ...] = ()
    """Rows of running requests that the previous step left out: workers dropped their tokens."""
    known_tokens: Mapping[int, TokenIds] = _NOTHING
    """Row -> all known tokens, of the rows that are resumed or were left out, int32."""
    preempted_req_ids: tuple[str, ...] = ()
    """Requests that lost their blocks in this step."""
    finished_req_ids: frozenset[str] = frozenset()
    """Finished since the previous step: workers drop their state."""
    scheduled_encoder_inputs: Mapping[str, list[int]] = _NOTHING
    """Request id -> indices of its multi-modal items whose encoder runs in this step."""
    encoder_embeds: tuple[int, ...] = ()
    """Embeddings of each of them."""
    free_encoder_mm_hashes: tuple[str, ...] = ()
    """Encoder outputs that workers may drop."""
    new_block_ids_to_zero: tuple[int, ...] | None = None
    """Attention blocks taken since the previous step, for workers of models with Mamba layers to zero."""
    has_structured_output_requests: bool = False
    """Some request samples by a grammar in this step."""
    pending_structured_output_tokens: bool = False
    """The bitmask has to wait for the output of a step in flight, whose tokens advance a grammar."""
    num_common_prefix_blocks: tuple[int, ...] = ()
    """Leading blocks shared by all block holders, per KV-cache group; empty unless ``count_common_prefix_blocks``."""
    kv_connector_metadata: object = None
    """What the workers' half of a KV connector has to know."""
    is_async: bool
    """Output tokens may be in flight."""

    def __init__(self, step: int, rows: Rows, is_async: bool = False) -> None:
        self.step = step
        self.rows = rows
        self.is_async = is_async
        self.num_running = rows.size

    # ---- the columns

    @cached_attribute
    def req_ids(self) -> tuple[str, ...]:
        """Ids of the scheduled requests, in scheduling order."""
        return self._rows().names.tuple_of_ids()

    @cached_attribute
    def slots(self) -> IntArray:
        """Rows of a runner's persistent batch, shape ``[n]``."""
        return self._rows().column(SLOT)

    @cached_attribute
    def num_new_tokens(self) -> IntArray:
        """Tokens to compute, shape ``[n]``, all > 0."""
        return self._rows().column(NEW)

    @cached_attribute
    def num_computed(self) -> IntArray:
        """Computed tokens before the step, shape ``[n]``."""
        return self._rows().column(COMPUTED)

    @cached_attribute
    def num_known(self) -> IntArray:
        """Tokens known before the step (prompt and output), shape ``[n]``."""
        return self._rows().column(KNOWN)

    @cached_attribute
    def num_prompt(self) -> IntArray:
        """Prompt tokens, shape ``[n]``."""
        return self._rows().column(PROMPT)

    @cached_attribute
    def num_placeholders(self) -> IntArray | None:
        """Output tokens in flight before the step, shape ``[n]``; None without async scheduling."""
        return self._rows().column(IN_FLIGHT) if self.is_async else None

    @cached_attribute
    def is_prefill_chunk(self) -> npt.NDArray[np.bool_] | None:
        """Where known tokens are left after this step, so that nothing is sampled, shape ``[n]``; None: nowhere."""
        rows = self._rows()
        return rows.column(SAMPLES) == 0 if rows.num_chunks else None

    @cached_attribute
    def new_blocks(self) -> BlockDeltas:
        """Blocks got in this step (all blocks, if admitted), by row and KV-cache group; not to be changed."""
        assert self.blocks is not None, "a step has its blocks from the beginning"
        return self.blocks.deltas()

    def _rows(self) -> Rows:
        assert self.rows is not None, "elsewhere the columns are there"
        return self.rows

    # ---- as a value

    def fields(self) -> dict[str, Any]:
        """Return all that it says, by name."""
        return {name: getattr(self, name) for name in _FIELDS}

    def __eq__(self, other: object) -> bool:
        """Whether both say the same; what a connector put into them is compared as it is."""
        if not isinstance(other, SchedulerOutput):
            return NotImplemented
        bare, others = (each.replace(kv_connector_metadata=None) for each in (self, other))
        return bare.encode() == others.encode() and bool(self.kv_connector_metadata == other.kv_connector_metadata)

    __hash__ = None  # type: ignore[assignment]  # arrays have no hash

    def __repr__(self) -> str:
        return f"SchedulerOutput({', '.join(f'{name}={value!r}' for name, value in self.fields().items())})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _of_fields, (self.fields(),)

    @classmethod
    def of_columns(cls, **fields: Any) -> SchedulerOutput:
        """Return a step of these fields, which belongs to no scheduler; those that are left out say nothing."""
        plan = cls.__new__(cls)
        plan.__dict__.update({"num_placeholders": None, "is_prefill_chunk": None, "rows": None, **fields})
        plan.is_async = plan.num_placeholders is not None
        return plan

    def replace(self, **fields: object) -> SchedulerOutput:
        """Return a copy with other values in these fields."""
        unknown = fields.keys() - set(_FIELDS)
        if unknown:
            raise TypeError(f"SchedulerOutput has no {min(unknown)!r}")
        copy = SchedulerOutput.__new__(SchedulerOutput)
        copy.__dict__.update(self.__dict__)
        copy.__dict__.update(fields)
        for name in _DERIVED:
            copy.__dict__.pop(name, None)
        return copy

    def encode(self) -> bytes:
        """The fields as MessagePack, equal for equal plans; an array is a map of ``dtype``, ``shape`` and ``data``.

        For other languages and for comparing; a plan that has to come back as one is pickled.
        """
        fields = self.fields()
        fields |= {"finished_req_ids": sorted(self.finished_req_ids), "known_tokens": dict(self.known_tokens)}
        return msgspec.msgpack.encode(fields, enc_hook=encode_arrays)

    @property
    def admitted(self) -> list[int]:
        """Rows of all admitted requests."""
        return list(range(self.num_running, len(self.req_ids)))

    @property
    def admitted_new(self) -> list[int]:
        """Rows of requests scheduled for the first time."""
        return list(self.new_requests)

    @cached_attribute
    def num_scheduled_tokens(self) -> dict[str, int]:
        """Request id -> tokens, in scheduling order."""
        total, count = int(self.total_num_scheduled_tokens), len(self.req_ids)  # a limit may have made it NumPy's
        if count and total % count == 0:
            each = total // count
            if each == 1 or bool((self.num_new_tokens == each).all()):  # none has zero: of one each, nobody has more
                return _alike(self.req_ids, each).copy()
        return dict(zip(self.req_ids, self.num_new_tokens.tolist(), strict=True))

    @property
    def scheduled_spec_decode_tokens(self) -> dict[str, list[int]]:
        """Request id -> drafts to verify, for requests that have any."""
        return {} if self.drafts is None else self._drafts_by_id

    @cached_attribute
    def _drafts_by_id(self) -> dict[str, list[int]]:
        assert self.drafts is not None
        tokens, counts = self.drafts.tokens.tolist(), self.drafts.counts.tolist()
        if counts and min(counts) == self.drafts.tokens.shape[1]:  # mostly all have as many as there may be
            return dict(zip(self.req_ids, tokens, strict=True))
        return {
            request_id: each[:count]
            for request_id, each, count in zip(self.req_ids, tokens, counts, strict=True)
            if count
        }

    @cached_attribute
    def blocks_by_row(self) -> dict[int, Blocks]:
        """Row -> the blocks that it got in this step, per KV-cache group."""
        return self.new_blocks.by_row() if self.blocks is None else self.blocks.by_row()

    @property
    def scheduled_new_reqs(self) -> list[NewRequestData]:
        """Requests scheduled for the first time, in full."""
        return self._new_reqs if self.new_requests else []

    @cached_attribute
    def _new_reqs(self) -> list[NewRequestData]:
        return [self._new(row, new) for row, new in self.new_requests.items()]

    def _new(self, row: int, new: NewRequest) -> NewRequestData:
        return NewRequestData(
            self.req_ids[row],
            new.prompt_token_ids.tolist(),
            new.mm_features,
            new.sampling_params,
            new.pooling_params,
            self.blocks_by_row[row],
            int(self.num_computed[row]),
            new.lora_name,
            new.prompt_embeds,
            new.cache_salt,
        )

    @cached_attribute
    def scheduled_cached_reqs(self) -> CachedRequestData:
        """All others, as deltas."""
        running, resumed = self.num_running, self.admitted_resumed
        req_ids, known_tokens = list(self.req_ids[:running]), self.known_tokens
        outputs = self.num_known - self.num_prompt
        if self.num_placeholders is not None:
            outputs = outputs + self.num_placeholders
        computed, num_outputs = self.num_computed.tolist(), outputs.tolist()
        blocks: list[Blocks | None] = [None] * len(self.req_ids)
        for row, new in self.blocks_by_row.items():
            blocks[row] = new
        back: frozenset[str] = frozenset()
        if running < len(self.req_ids):
            rows = [*range(running), *resumed]
            req_ids += [self.req_ids[row] for row in resumed]
            computed, num_outputs, blocks = (
                [column[row] for row in rows] for column in (computed, num_outputs, blocks)
            )
            back = frozenset(req_ids[running:])
        return CachedRequestData(
            req_ids,
            back,
            {self.req_ids[row]: tokens.tolist() for row, tokens in known_tokens.items()} if known_tokens else {},
            blocks,
            computed,
            num_outputs,
        )


_FIELDS = (
    *("step", "req_ids", "slots", "num_new_tokens", "num_computed", "num_known", "num_prompt", "num_placeholders"),
    *("drafts", "num_invalid_spec_tokens", "num_running", "total_num_scheduled_tokens", "new_blocks", "new_requests"),
    *("admitted_resumed", "not_scheduled_before", "known_tokens", "preempted_req_ids", "finished_req_ids"),
    *("is_prefill_chunk", "scheduled_encoder_inputs", "encoder_embeds", "free_encoder_mm_hashes"),
    *("new_block_ids_to_zero", "has_structured_output_requests", "pending_structured_output_tokens"),
    *("num_common_prefix_blocks", "kv_connector_metadata"),
)
_DERIVED = ("num_scheduled_tokens", "scheduled_cached_reqs", "_drafts_by_id", "blocks_by_row", "_new_reqs")


def _of_fields(fields: dict[str, Any]) -> SchedulerOutput:
    return SchedulerOutput.of_columns(**fields)


@lru_cache(maxsize=4)
def _alike(req_ids: tuple[str, ...], each: int) -> dict[str, int]:
    """The same for each: steps of decodes repeat their ids, and to copy a dictionary is cheaper than to fill it."""
    return dict.fromkeys(req_ids, each)


def encode_arrays(value: object) -> object:
    """What MessagePack has no form for: arrays as maps, numbers of numpy as numbers."""
    if isinstance(value, np.ndarray):
        return {"dtype": value.dtype.str, "shape": value.shape, "data": np.ascontiguousarray(value).tobytes()}
    if isinstance(value, np.generic):
        return value.item()
    raise NotImplementedError(f"no form for {type(value).__name__}")  # what msgspec asks of such a hook
