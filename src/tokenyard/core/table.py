"""The request table: one row (*slot*) per request that holds KV blocks, one NumPy column per counter.

The scheduler's strokes read and write whole columns; a single request is touched only when something happens to it
(a block fills, a stop fires, memory runs out). A slot is stable while its request holds blocks, so the same columns
can serve as the persistent input batch of a model runner.

``tail[slot]`` holds the tokens of the block that is being filled, the request all those before it:

    request.sealed_tokens  [ 0 ..................... start )
    tail[slot]                                      [ start ... num_tokens )      start: the last multiple of block_size

When a block fills, :meth:`RequestTable.seal` gives its tokens to the request, and the row is written over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenyard.core.columns import ONE, BoolArray, Index, Int32Array, IntArray, difference, int32s
from tokenyard.core.request import TOKEN_BYTES, Request, SamplingParams
from tokenyard.core.table_rows import (
    add_at,
    deal_rows,
    entry,
    fill_rows,
    gather,
    mark,
    packed_rows,
    push,
    put,
    put_all,
    put_row,
    put_rows,
    row_bytes,
    scatter,
)

__all__ = ["MOST_STOP_IDS", "NEVER", "NO_TOKEN", "Columns", "RequestTable", "Sealed"]

NO_TOKEN = -1
"""Stands in the columns ``eos`` and ``stop_ids`` where a request has no further such token; no token id is negative."""

MOST_STOP_IDS = 8
"""Stop tokens of a request that the ``stop_ids`` column has places for; one that has more is asked for each token."""

NEVER: int = np.iinfo(np.int64).max
"""A position no request reaches."""

Sealed = list[tuple[Request, int, bytes]]
"""Blocks that have become full: whose, at how many tokens, and their tokens as int32."""

_BLOCKS_AT_FIRST = 64
"""Width of a block table before a request needs more."""


def _shown(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The column as others see it: read-only."""
    shown = column.view()
    shown.flags.writeable = False
    return shown


def _put(column: IntArray, slots: IntArray | int, values: IntArray | int) -> None:
    """The entries of ``slots``, or the one of a slot, become ``values``; of a slot that occurs again, its last."""
    if isinstance(slots, int):
        put(column, slots, values)  # type: ignore[arg-type]  # one value
    else:
        scatter(column, slots, values)  # type: ignore[arg-type]  # one value for each


def _enlarged(table: Int32Array, rows: int, columns: int, used: int) -> Int32Array:
    """A copy of the first ``used`` rows with room for more rows or columns: memory is touched where it is needed."""
    larger = np.zeros((rows, columns), np.int32)
    larger[:used, : table.shape[1]] = table[:used]
    return larger


class Columns:
    """One entry per slot in each. Unit of every counter: tokens."""

    num_prompt: IntArray
    """Prompt."""
    num_tokens: IntArray
    """Prompt + verified output."""
    num_computed: IntArray
    """Positions computed, or about to be by the steps in flight."""
    tail_origin: IntArray
    """Position less place in the flat tails, for the tokens of the block that is being filled."""
    capacity: IntArray
    """Positions that the blocks held can store."""
    seal_at: IntArray
    """Position at which the next block becomes publishable in the prefix index."""
    skip_at: IntArray
    """Number of computed tokens at which a windowed group may free a block."""
    encoder_at: IntArray
    """Position beyond which an encoder input has to be looked at first."""
    last_step: IntArray
    """Number of the last step that scheduled it."""
    num_drafts: IntArray
    """Draft tokens that wait in ``drafts[slot]`` to be verified."""
    placeholders: IntArray
    """Output tokens that steps in flight will bring (async scheduling)."""
    stop_at: IntArray
    """``num_tokens`` at which a length limit, or the end of a recorded answer, stops it."""
    max_total: IntArray
    """Prompt + max_tokens."""
    eos: IntArray
    """End-of-sequence token or NO_TOKEN."""
    stop_ids: IntArray
    """Stop tokens, shape ``[slots, MOST_STOP_IDS]``; NO_TOKEN behind them, and where there are more."""
    any_may_stop: BoolArray
    """Any token may stop it: there are more stop tokens, or repetition is looked for."""
    followed: IntArray
    """``num_tokens`` up to which repetition has been looked for; 0: not since the tenant came or was changed."""
    prefilling: BoolArray
    """Known tokens are left to be computed: of its prompt and, after a preemption, of its output."""
    drafts: IntArray
    """Drafts that wait to be verified, shape ``[slots, max_drafts]``."""


_COUNTERS = (
    *("num_prompt", "num_tokens", "num_computed", "tail_origin", "capacity", "seal_at", "skip_at", "encoder_at"),
    *("last_step", "num_drafts", "placeholders", "stop_at", "max_total", "eos", "stop_ids", "followed", "drafts"),
)
COLUMNS = dict.fromkeys(_COUNTERS, np.int64) | dict.fromkeys(("any_may_stop", "prefilling"), np.bool_)
"""Column -> type of its entries."""


def _stop_ids(params: SamplingParams) -> Sequence[int]:
    """The stop tokens, if there are places for all of them."""
    return params.stop_token_ids if len(params.stop_token_ids) <= MOST_STOP_IDS else ()


def _any_may_stop(params: SamplingParams) -> bool:
    looked_for = params.repetition_detection
    return len(params.stop_token_ids) > MOST_STOP_IDS or (looked_for is not None and looked_for.max_pattern_size > 0)


class RequestTable(Columns):
    """Columns of all requests that hold KV blocks.

    All code reads columns, and only this class writes them, through methods that say what happens: outside they are
    read-only arrays. The arrays behind them are those of ``_write``.

    ``block_tables[group][slot]`` begins with the ids of the blocks that the tenant holds in that KV-cache group, in
    position order, as a model runner wants them: int32, of shape ``[slots, width]``; what follows them is arbitrary.
    """

    def __init__(self, capacity: int, block_size: int, max_drafts: int = 0, num_groups: int = 1) -> None:
        self.block_size = block_size
        self._block_tables: list[Int32Array] = [np.zeros((0, _BLOCKS_AT_FIRST), np.int32) for _ in range(num_groups)]
        self.block_tables: list[Int32Array] = []
        """Per KV-cache group; read-only."""
        self._widths = [_BLOCKS_AT_FIRST] * num_groups
        self.max_drafts = max_drafts
        self.requests: list[Request | None] = []
        self._free: list[int] = []
        self.version = 0
        """Changes whenever a tenant leaves: until then the slots of a step in flight are those of its requests."""
        self.num_with_eos = 0
        """Tenants that stop at an end-of-sequence token: zero lets the stop check skip it."""
        self.num_with_stop_ids = 0
        """The same of those with tokens in ``stop_ids``."""
        self.num_any_may_stop = 0
        """The same of those that any token may stop."""
        self.num_with_grammar = 0
        """Tenants whose output follows a grammar."""
        self._size = 0
        self._num_touched = 0
        """Slots that ever had a tenant: the first ones."""
        self._write = Columns()
        self._grow(max(capacity, 1))

    row_in_step: IntArray
    """Scratch space: the row of a step that a slot's request has, while that is asked for."""
    tail: IntArray
    """Tokens of the blocks that are being filled; int64, as they come: to convert in every step costs more."""
    _flat_tail: IntArray
    _tail_last: IntArray

    def _grow(self, size: int) -> None:
        """Make room for ``size`` slots, keeping the tenants."""
        old, before, now = self._size, self._write, Columns()
        widths = {"drafts": self.max_drafts, "stop_ids": MOST_STOP_IDS}
        for name, kind in COLUMNS.items():
            shape = (size, widths[name]) if name in widths else (size,)
            column: npt.NDArray[np.generic] = np.zeros(shape, kind)
            if name == "stop_ids":
                column.fill(NO_TOKEN)
            if old:
                column[:old] = getattr(before, name)
            setattr(now, name, column)
            setattr(self, name, _shown(column))
        self._write = now
        tail = np.zeros((size, self.block_size), np.int64)
        if old:
            tail[:old] = self.tail
        self.tail = tail
        self.row_in_step = np.zeros(size, np.int64)
        self._block_tables = [_enlarged(table, size, table.shape[1], old) for table in self._block_tables]
        self.block_tables = [_shown(table) for table in self._block_tables]
        # One index array into the flat tails costs half of two into the table.
        self._flat_tail = tail.reshape(-1)
        self._tail_last = np.arange(1, size + 1) * self.block_size - 1
        self.requests.extend([None] * (size - old))
        self._free.extend(range(size - 1, old - 1, -1))
        self._size = size

    @property
    def num_tenants(self) -> int:
        """Slots in use."""
        return self._size - len(self._free)

    def acquire(self, request: Request, max_model_len: int) -> int:
        """Give ``request`` a slot and load its row."""
        if not self._free:
            self._grow(self._size * 2)
        slot: Index = self._free.pop()
        write = self._write
        self._num_touched = max(self._num_touched, slot + 1)
        put(write.capacity, slot, 0)
        put(write.seal_at, slot, self.block_size)
        put(write.last_step, slot, -1)
        put(write.encoder_at, slot, NEVER)
        self.requests[slot] = request
        self._load(slot, request, max_model_len)
        return slot

    @contextmanager
    def reloading(self, request: Request, max_model_len: int) -> Iterator[None]:
        """Detach a tenant so that its tokens and limits can be changed, then load its row anew; its blocks stay."""
        slot = request.slot
        self._unload(request)
        yield
        self._load(slot, request, max_model_len)

    def _load(self, slot: Index, request: Request, max_model_len: int) -> None:
        params, write = request.sampling_params, self._write
        num_prompt: Index = request.num_prompt_tokens
        num_tokens: Index = request.num_tokens
        put(write.num_prompt, slot, num_prompt)
        put(write.num_tokens, slot, num_tokens)
        put(write.num_drafts, slot, 0)
        put(write.placeholders, slot, request.num_output_placeholders)
        put(write.num_computed, slot, request.num_computed_tokens)
        max_tokens = params.max_tokens
        put(write.max_total, slot, num_prompt + max_tokens)
        longest = max_tokens if request.ends_after is None else min(max_tokens, request.ends_after)
        put(write.stop_at, slot, min(num_prompt + longest, max_model_len))
        put(write.followed, slot, 0)
        put(write.prefilling, slot, False)
        self._load_stop_tokens(slot, params)
        self.num_with_grammar += request.structured_output is not None
        size: Index = self.block_size
        start: Index = num_tokens // size * size
        put(write.tail_origin, slot, start - slot * size)
        if start < num_tokens:
            put_row(self.tail, slot, request.token_slice(start, num_tokens))
        request.attach(self, slot)

    def _load_stop_tokens(self, slot: Index, params: SamplingParams) -> None:
        """Tokens with which the tenant ends; ``stop_ids`` and ``any_may_stop`` are as without one before."""
        write = self._write
        eos = NO_TOKEN if params.ignore_eos or params.eos_token_id is None else params.eos_token_id
        put(write.eos, slot, eos)
        self.num_with_eos += eos != NO_TOKEN
        stop_ids = _stop_ids(params)
        if stop_ids:
            self.num_with_stop_ids += 1
            write.stop_ids[slot, : len(stop_ids)] = stop_ids
        if _any_may_stop(params):
            self.num_any_may_stop += 1
            put(write.any_may_stop, slot, True)

    def release(self, request: Request) -> None:
        """Take the slot back; the request keeps its counters and tokens."""
        slot = request.slot
        self._unload(request)
        self.note_departure()
        self.requests[slot] = None
        self._free.append(slot)

    def _unload(self, request: Request) -> None:
        slot, write = request.slot, self._write
        self.flush_tail(request)
        request.detach(entry(self.num_computed, slot), entry(self.placeholders, slot))
        self.num_with_eos -= entry(self.eos, slot) != NO_TOKEN
        if self.num_with_stop_ids and self.stop_ids[slot, 0] != NO_TOKEN:
            self.num_with_stop_ids -= 1
            write.stop_ids[slot] = NO_TOKEN
        if self.num_any_may_stop and self.any_may_stop[slot]:
            self.num_any_may_stop -= 1
            put(write.any_may_stop, slot, False)
        self.num_with_grammar -= request.structured_output is not None

    def flush_tail(self, request: Request) -> None:
        """Copy the unsealed tokens that the request's own stream has not yet into it."""
        slot = request.slot
        size: Index = self.block_size
        num_tokens: Index = entry(self.num_tokens, slot)
        start: Index = num_tokens // size * size
        first: Index = max(start, request.num_sealed_tokens)
        if num_tokens > first:
            request.replace_tail(first, row_bytes(self.tail, slot, first - start, num_tokens - start))

    def append(self, slots: IntArray, tokens: IntArray) -> tuple[IntArray, IntArray]:
        """Append ``tokens[i]`` to the tenant of ``slots[i]``, which are distinct.

        Returns the new numbers of tokens, shape ``[n]``, and the rows whose tails are full now.
        """
        write = self._write
        return push(self._flat_tail, slots, tokens, write.num_tokens, write.tail_origin, self._tail_last)

    def append_steps(self, slots: IntArray, tokens: IntArray) -> Sealed:
        """:meth:`append`, and :meth:`seal` where tails fill, for several steps: ``tokens[i]`` go to ``slots[i]``.

        ``tokens`` has shape ``[n, steps]``. Returns the blocks that have become full, in the order of steps, then rows.
        """
        size, steps = self.block_size, tokens.shape[1]
        known = gather(self.num_tokens, slots)
        filled = known % size
        add_at(self._write.num_tokens, slots, ONE, steps)
        packed = fill_rows(self.tail, slots, filled, tokens)
        if not packed:
            return []
        full = (filled + steps) // size
        add_at(self._write.tail_origin, slots, full, size)
        return self._sealed(self.tenants(slots), difference(known, filled), filled, full, packed)

    def _sealed(
        self, tenants: Sequence[Request], starts: IntArray, filled: IntArray, full: IntArray, packed: bytes
    ) -> Sealed:
        """Move blocks that have become full, ``full[i]`` of each tenant, into the tenants' own streams.

        They begin at ``starts[i]``, where ``filled[i]`` tokens were there before; ``packed`` has them tenant by tenant.
        """
        size: Index = self.block_size
        stride: Index = TOKEN_BYTES * size
        at: Index = 0
        row: Index
        start: Index
        before: Index
        count: Index
        block: Index
        request: Request
        sealed: list[tuple[int, int, int, Request, bytes]] = []
        columns = (starts.tolist(), filled.tolist(), full.tolist())
        for row, (request, start, before, count) in enumerate(zip(tenants, *columns, strict=True)):
            if not count:
                continue
            request.replace_tail(start, packed[at : at + count * stride])
            for block in range(1, count + 1):
                tokens = packed[at : at + stride]
                sealed.append((block * size - before, row, start + block * size, request, tokens))
                at += stride
        sealed.sort()  # by step, then row; no two have both
        return [(request, num_tokens, tokens) for _, _, num_tokens, request, tokens in sealed]

    # ---- columns that others have written

    def advance(self, slots: IntArray, num_computed: IntArray) -> None:
        """A step computes the tenants' tokens up to ``num_computed``."""
        scatter(self._write.num_computed, slots, num_computed)

    def mark_prefilling(self, slots: IntArray, chunk: BoolArray | None) -> None:
        """The step leaves the tenants where ``chunk`` is true within their known tokens; None: none of them."""
        mark(self._write.prefilling, slots, chunk)

    def take_back(self, slots: IntArray, tokens: IntArray) -> None:
        """Take back computed tokens that turned out to be worthless: rejected drafts."""
        add_at(self._write.num_computed, slots, tokens, -1)

    def set_num_computed(self, slot: int, num_computed: int) -> None:
        """The tenant's computed tokens."""
        put(self._write.num_computed, slot, num_computed)

    def mark_scheduled(self, slots: IntArray, step: int) -> None:
        """Step number ``step`` gives the tenants tokens."""
        put_all(self._write.last_step, slots, step)

    def set_drafts(self, slots: IntArray, drafts: IntArray, counts: IntArray) -> None:
        """``counts[i]`` of ``drafts[i]`` wait to be verified."""
        scatter(self._write.num_drafts, slots, counts)
        put_rows(self._write.drafts, slots, drafts)

    def clear_drafts(self, slots: IntArray | int) -> None:
        """No draft waits."""
        self._write.num_drafts[slots] = 0

    def add_placeholders(self, slots: IntArray, tokens: IntArray) -> None:
        """Steps in flight will bring so many more tokens."""
        add_at(self._write.placeholders, slots, tokens)

    def take_placeholders(self, slots: IntArray, tokens: IntArray) -> None:
        """Count tokens of steps in flight that have come, or never will."""
        add_at(self._write.placeholders, slots, tokens, -1)

    def clear_placeholders(self, slot: int) -> None:
        """Steps in flight will bring nothing for the tenant."""
        put(self._write.placeholders, slot, 0)

    def set_capacity(self, slots: IntArray | int, positions: IntArray | int) -> None:
        """Positions that the tenants' blocks can store."""
        _put(self._write.capacity, slots, positions)

    def add_capacity(self, slots: IntArray, blocks: IntArray, block_size: int) -> None:
        """The tenants of ``slots``, which are distinct, hold so many more blocks of ``block_size``."""
        add_at(self._write.capacity, slots, blocks, block_size)

    def set_seal_at(self, slots: IntArray | int, positions: IntArray | int) -> None:
        """Positions at which the tenants' next blocks can be published."""
        _put(self._write.seal_at, slots, positions)

    def set_skip_at(self, slot: int, num_computed: int) -> None:
        """Computed tokens at which a windowed group may free a block of the tenant."""
        put(self._write.skip_at, slot, num_computed)

    def set_encoder_at(self, slot: int, position: int) -> None:
        """The position beyond which one of the tenant's encoder inputs has to be looked at."""
        put(self._write.encoder_at, slot, position)

    def set_followed(self, slots: IntArray, num_tokens: IntArray) -> None:
        """Repetition has been looked for up to these numbers of tokens."""
        scatter(self._write.followed, slots, num_tokens)

    def note_departure(self) -> None:
        """A tenant leaves, or what steps in flight bring for one is worthless: their updates have to look."""
        self.version += 1

    def set_blocks(self, slot: int, blocks: Sequence[list[int]]) -> tuple[Int32Array, ...]:
        """The tenant of ``slot`` holds these blocks, per KV-cache group; returns them as columns."""
        columns = tuple([int32s(ids) for ids in blocks])
        for group, ids in enumerate(columns):
            put_row(self._wide_enough(group, len(ids)), slot, ids)
        return columns

    def append_blocks(self, slots: IntArray, starts: IntArray, counts: IntArray, blocks: Int32Array) -> None:
        """Share out ``blocks``: ``counts[i]``, one at least, go to ``slots[i]``, from place ``starts[i]`` on.

        There is one KV-cache group.
        """
        try:
            deal_rows(self._block_tables[0], slots, starts, counts, blocks)
        except IndexError:
            deal_rows(self._wide_enough(0, int((starts + counts).max())), slots, starts, counts, blocks)

    def _wide_enough(self, group: int, width: int) -> Int32Array:
        table = self._block_tables[group]
        if width > self._widths[group]:
            self._widths[group] = max(width, 2 * self._widths[group])
            table = self._block_tables[group] = _enlarged(table, self._size, self._widths[group], self._num_touched)
            self.block_tables[group] = _shown(table)
        return table

    def tenants(self, slots: IntArray) -> list[Request]:
        """The requests in ``slots``, all of which are taken."""
        requests = self.requests
        return [requests[slot] for slot in slots.tolist()]  # to ask for each that it is one costs as much again

    def seal(self, slots: IntArray) -> list[tuple[Request, bytes]]:
        """Move tails that have just become full into their requests' own streams; returns them as int32 bytes."""
        size: Index = self.block_size
        end: Index
        request: Request
        add_at(self._write.tail_origin, slots, ONE, size)
        tenants, packed = self.tenants(slots), packed_rows(self.tail, slots)
        for request, end, tokens in zip(tenants, gather(self.num_tokens, slots).tolist(), packed, strict=True):
            request.replace_tail(end - size, tokens)
        return list(zip(tenants, packed, strict=True))

    def check_invariants(self) -> None:
        """Raise AssertionError if a tenant and its row disagree."""
        tenants = [(slot, r) for slot, r in enumerate(self.requests) if r is not None]
        assert len(tenants) == self.num_tenants, "free slots and tenants do not add up"
        assert len(set(self._free)) == len(self._free), "a slot is free twice"
        for slot, request in tenants:
            assert request.slot == slot, f"{request.request_id} does not know its slot"
            assert 0 <= self.num_computed[slot] <= self.capacity[slot], f"{request.request_id} lacks blocks"
            assert request.num_prompt_tokens <= self.num_tokens[slot]
            assert self.num_drafts[slot] >= 0, f"{request.request_id} has negative drafts"
            assert self.placeholders[slot] >= 0, f"{request.request_id} has negative placeholders"
        assert self.num_with_eos == sum(self.eos[slot] != NO_TOKEN for slot, _ in tenants)
        assert self.num_with_stop_ids == sum(bool(_stop_ids(r.sampling_params)) for _, r in tenants)
        assert self.num_any_may_stop == sum(_any_may_stop(r.sampling_params) for _, r in tenants)
