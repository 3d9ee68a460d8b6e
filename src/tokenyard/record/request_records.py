"""Per-request records: ids of blocks and requests, token text."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, islice
from typing import cast

import msgspec

from tokenyard.core.request import BlockHash, RequestStatus
from tokenyard.record.recordable import RecordableRequest, RecordableState
from tokenyard.record.writer import Deferred, TraceWriter
from tokenyard.tokenizer import Decode, load_tokenizer
from tokenyard.trace.facts import least_need
from tokenyard.trace.schema import RequestRecord

# ---------------------------------------------------------------------------------------------------------------------
# Token ids as text, for the ``*_text`` fields of per-request records, by a tokenizer that is loaded when first
# needed.
#
# A tokenizer that cannot be loaded, or fails, costs one warning; the records then carry token ids only.

_log = logging.getLogger("tokenyard.trace")


def _load(name: str) -> Decode:
    """The records show a text as the model saw it, special tokens too."""
    return load_tokenizer(name, skip_special_tokens=False)


class Decoder:
    """Decodes with the named tokenizer, or answers None: when none is named, or after its first failure."""

    def __init__(self, name: str | None, load: Callable[[str], Decode] = _load) -> None:
        self._name = name
        self._load = load
        self._decode: Decode | None = None

    def text(self, token_ids: Sequence[int]) -> str | None:
        """``token_ids`` as text, or None."""
        if self._name is None:
            return None
        try:
            if self._decode is None:
                self._decode = self._load(self._name)
            return self._decode(token_ids)
        except Exception as error:  # noqa: BLE001 - a foreign library's: whatever it is, the scheduler goes on
            _log.warning("trace: tokenizer %s cannot be used, token ids only: %s", self._name, error)
            self._name = None
            return None


# ---------------------------------------------------------------------------------------------------------------------
# Ids of blocks of tokens: equal where the block and all tokens before it are equal, and saying nothing else.
#
# Ids count up as blocks come, so the blocks of a prompt are a few runs of consecutive ids: what it shares with
# earlier prompts, and what is new. A hash stands for its block and all before it. So blocks that came in one run are
# kept as one stretch, and where a prompt leaves it is found by halving: most hashes are never looked at.

_GENERATION = 1 << 19
"""Blocks that come before those are forgotten that have not come since; two generations take up to 35 MB."""


class _Stretch:
    """Blocks that came one behind the other, with consecutive ids."""

    __slots__ = ("first_id", "hashes", "num_recent")

    def __init__(self, first_id: int, hashes: bytes) -> None:
        self.first_id = first_id
        self.hashes = hashes
        self.num_recent = 0
        """Its blocks, from the first on, that have come in this generation."""

    def num_common(self, hashes: bytes, at: int, size: int) -> int:
        """How many of its blocks stand in ``hashes`` from ``at`` on: its first one does."""
        known, low, high = self.hashes, 1, min(len(self.hashes), len(hashes) - at) // size
        while low < high:
            middle = (low + high + 1) // 2
            place = (middle - 1) * size
            if known[place : place + size] == hashes[at + place : at + place + size]:
                low = middle
            else:
                high = middle - 1
        return low

    def cut(self, count: int, size: int) -> _Stretch:
        """Keep the first ``count`` blocks; returns those behind them."""
        rest = _Stretch(self.first_id + count, self.hashes[count * size :])
        rest.num_recent = max(self.num_recent - count, 0)
        self.hashes = self.hashes[: count * size]
        self.num_recent -= rest.num_recent
        return rest


class BlockIds:
    """Numbers blocks in the order in which they come.

    ``hashes`` are theirs one behind the other, ``size`` bytes each, and places in them count bytes: what is kept of
    blocks by the hundred is nothing to the garbage collector then.
    """

    def __init__(self) -> None:
        self._stretches: dict[bytes, _Stretch] = {}
        """By their first hashes."""
        self._next = 0
        self._num_recent = 0
        """Blocks that have come in this generation."""
        self._forgets = False
        """Something has been forgotten: what is behind a block that is new need not be new."""

    def runs(self, hashes: bytes, size: int, start: int = 0) -> list[int]:
        """The ids of blocks as runs: first id, how many, first id, how many ...

        What stands before ``start`` came in a call before, and is left out.
        """
        if self._num_recent >= _GENERATION:
            self._forget(size)
        runs: list[int] = []
        at = 0
        while at < len(hashes):
            stretch = self._stretches.get(hashes[at : at + size])
            if stretch is None:
                if at < start:  # it is forgotten
                    at += size
                    continue
                stretch = self._add(self._new_from(hashes, at, size), size)
            count = stretch.num_common(hashes, at, size)
            end = at + count * size
            if at < start < end:
                count = (end - start) // size
                stretch, at = self._put(stretch.cut((start - at) // size, size), size), start
            if at >= start:
                self._came(stretch, count)
                if runs and runs[-2] + runs[-1] == stretch.first_id:
                    runs[-1] += count
                else:
                    runs += (stretch.first_id, count)
            at = end
        return runs

    def _new_from(self, hashes: bytes, at: int, size: int) -> bytes:
        """What is new, from ``at`` on: all, where nothing has been forgotten."""
        if self._forgets:
            for end in range(at + size, len(hashes), size):
                if hashes[end : end + size] in self._stretches:
                    return hashes[at:end]
        return hashes[at:]

    def _add(self, new: bytes, size: int) -> _Stretch:
        stretch = self._put(_Stretch(self._next, new), size)
        self._next += len(new) // size
        return stretch

    def _put(self, stretch: _Stretch, size: int) -> _Stretch:
        self._stretches[stretch.hashes[:size]] = stretch
        return stretch

    def _came(self, stretch: _Stretch, count: int) -> None:
        """The first ``count`` of the stretch have come."""
        more = count - stretch.num_recent
        if more > 0:
            stretch.num_recent += more
            self._num_recent += more

    def _forget(self, size: int) -> None:
        """Keep what has come in this generation, and begin another."""
        self._stretches = {first: each for first, each in self._stretches.items() if each.num_recent}
        for each in self._stretches.values():
            each.hashes = each.hashes[: each.num_recent * size]
            each.num_recent = 0
        self._num_recent, self._forgets = 0, True


class HashedBlocks(Deferred):
    """Blocks of one request, numbered when they are written."""

    __slots__ = ("_hashes", "_ids", "_start", "_stop")

    def __init__(self, ids: BlockIds, hashes: Sequence[BlockHash], start: int, stop: int) -> None:
        """Blocks ``start`` to ``stop - 1``; ``hashes`` begins with the request's first block, and may grow.

        A copy would fetch each hash into the memory next to the step's core; so the thread that writes makes it.
        """
        self._ids = ids
        self._hashes = cast("Sequence[bytes]", hashes)
        self._start = start
        self._stop = stop

    def made(self) -> list[int]:
        hashes = self._hashes[: self._stop]
        size = len(hashes[0]) if hashes else 1  # an interrupt while they grew has them hashed anew
        return self._ids.runs(b"".join(hashes), size, self._start * size)


# ---------------------------------------------------------------------------------------------------------------------
# Per-request records: the state of every queued request at every step (the requests file).

_EDGE = 16
"""Token ids kept from either end of the prompt and from the end of the output."""

STATUS_TEXT = {status: f"RequestStatus.{status.name}" for status in RequestStatus}


class _Prompt(msgspec.Struct):
    """What never changes about a request, ready to be embedded."""

    prefix: list[int]
    suffix: list[int]
    text: str | None


class RequestRecords:
    """Writes the records of one step; costs time for every queued request."""

    def __init__(self, writer: TraceWriter, decoder: Decoder) -> None:
        self._writer = writer
        self._limit = writer.config.max_ids_per_step
        self._decoder = decoder
        self._prompts: dict[str, _Prompt] = {}

    def write(self, step: int, ts: float, state: RecordableState) -> int | None:
        """One record per running and per waiting request, at most ``max_ids_per_step`` of each.

        Returns the least blocks that admit a waiting request; None where the records do not record it.
        """
        self._write_queue(step, ts, "running", state.running, state)
        queue = chain(state.skipped_waiting, state.waiting)
        waiting = self._write_queue(step, ts, "waiting", queue, state)
        is_cut = next(queue, None) is not None
        return None if is_cut else least_need(waiting, state.block_size)

    def forget(self, request_id: str) -> None:
        """The request is gone."""
        self._prompts.pop(request_id, None)

    def _write_queue(
        self, step: int, ts: float, queue: str, requests: Iterable[RecordableRequest], state: RecordableState
    ) -> list[RequestRecord]:
        written = [
            self._record(step, ts, queue, request, state.num_blocks_of(request))
            for request in islice(requests, self._limit)
        ]
        for record in written:
            self._writer.append_request(record)
        return written

    def _record(self, step: int, ts: float, queue: str, request: RecordableRequest, num_blocks: int) -> RequestRecord:
        prompt = self._prompts.get(request.request_id) or self._prompt(request)
        num_tokens = request.num_tokens
        num_prompt = request.num_prompt_tokens
        tail: list[int] = []
        if num_tokens > num_prompt:
            tail = request.token_slice(max(num_prompt, num_tokens - _EDGE), num_tokens).tolist()
        return RequestRecord(
            step=step,
            ts=ts,
            queue=queue,
            req_id=request.request_id,
            job_id=request.job_id,
            status=STATUS_TEXT[request.status],
            priority=request.priority,
            arrival_time=request.arrival_time,
            max_tokens=request.max_tokens,
            num_prompt_tokens=num_prompt,
            num_tokens=num_tokens,
            num_output_tokens=num_tokens - num_prompt,
            num_computed_tokens=request.num_computed_tokens,
            num_cached_tokens=max(request.num_cached_tokens, 0),
            num_preemptions=request.num_preemptions,
            num_external_computed_tokens=request.num_external_computed_tokens,
            is_prefill_chunk=request.is_prefill_chunk,
            resumable=request.resumable,
            prompt_prefix=prompt.prefix,
            prompt_suffix=prompt.suffix,
            output_tail=tail,
            prompt_prefix_text=prompt.text,
            output_tail_text=self._decoder.text(tail) if tail else None,
            block_hashes_count=len(request.block_hashes),
            num_blocks=num_blocks,
        )

    def _prompt(self, request: RecordableRequest) -> _Prompt:
        num_prompt = request.num_prompt_tokens
        prefix = request.token_slice(0, min(_EDGE, num_prompt)).tolist()
        suffix = request.token_slice(max(0, num_prompt - _EDGE), num_prompt).tolist()
        prompt = _Prompt(_embedded(prefix), _embedded(suffix), self._decoder.text(prefix))
        self._prompts[request.request_id] = prompt
        return prompt


def _embedded(token_ids: list[int]) -> list[int]:
    return cast("list[int]", msgspec.Raw(msgspec.json.encode(token_ids)))
