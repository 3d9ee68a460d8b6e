"""Per-request records: ids of blocks and requests, token text."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, islice
from typing import cast

import msgspec
import numpy as np

from tokenyard.core.columns import IntArray
from tokenyard.core.request import RequestStatus
from tokenyard.record.recordable import RecordableRequest, RecordableState
from tokenyard.record.writer import Deferred, TraceWriter
from tokenyard.redaction import valid_text
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
# earlier prompts, and what is new.

_GENERATION = 1 << 19
"""Blocks that come before those are forgotten that have not come since; two generations take up to 175 MB."""


class BlockIds:
    """Numbers hashes of blocks in the order in which they come."""

    def __init__(self) -> None:
        self._ids: dict[bytes, int] = {}
        self._older: dict[bytes, int] = {}
        self._next = 0

    def runs(self, hashes: Sequence[bytes]) -> list[int]:
        """The ids of ``hashes`` as runs: first id, how many, first id, how many ..."""
        if len(self._ids) >= _GENERATION:
            self._older, self._ids = self._ids, {}
        known = list(map(self._ids.get, hashes))
        first = known.index(None) if None in known else len(known)
        new = hashes[first:]
        if known.count(None) < len(new) or (self._older and not self._older.keys().isdisjoint(new)):
            return _runs(map(self._number, hashes))
        # As nearly always: where a block is new, all behind it are.
        runs = _runs(cast("list[int]", known[:first]))
        if new:
            end = self._next + len(new)
            self._ids.update(zip(new, range(self._next, end), strict=True))
            if runs and runs[-2] + runs[-1] == self._next:
                runs[-1] += len(new)
            else:
                runs += (self._next, len(new))
            self._next = end
        return runs

    def _number(self, key: bytes) -> int:
        number = self._ids.get(key)
        if number is None:
            number = self._older.pop(key, None)
            if number is None:
                number = self._next
                self._next += 1
            self._ids[key] = number
        return number


def _runs(numbers: Iterable[int]) -> list[int]:
    """First number, how many from it on, first number, how many ..."""
    runs: list[int] = []
    following = -1
    for number in numbers:
        if number == following:
            runs[-1] += 1
        else:
            runs += (number, 1)
        following = number + 1
    return runs


class HashedBlocks(Deferred):
    """Blocks of one request, numbered when they are written."""

    def __init__(self, ids: BlockIds, hashes: list[bytes]) -> None:
        """``hashes`` is not changed any more."""
        self._ids = ids
        self._hashes = hashes

    def made(self) -> list[int]:
        return self._ids.runs(self._hashes)


# ---------------------------------------------------------------------------------------------------------------------
# Pieces of JSON that rarely change, kept as bytes: the lists of request ids that make up most of a trace.
#
# In steady decode the running list is the same for many steps, so its ids are joined once and put into each record as
# they are. That the filled records decode to the records of the schema is tested.

_JOBS_KEPT = 65_536


class _Encoded(dict[str | None, bytes]):
    """Text -> its JSON, filled when asked."""

    def __missing__(self, key: str | None) -> bytes:
        value = self[key] = msgspec.json.encode(None if key is None else valid_text(key))
        return value


class Names:
    """JSON text of request and job ids, encoded once."""

    __slots__ = ("ids", "jobs")

    def __init__(self) -> None:
        self.ids = _Encoded()
        self.jobs = _Encoded()

    def forget(self, request_id: str) -> None:
        """The request will not be named again."""
        self.ids.pop(request_id, None)
        if len(self.jobs) > _JOBS_KEPT:
            self.jobs.clear()


def json_list(values: Iterable[bytes]) -> bytes:
    """A JSON list of encoded values."""
    return b"[" + b",".join(values) + b"]"


def json_map(items: Iterable[bytes]) -> bytes:
    """A JSON object of encoded ``key:value`` items."""
    return b"{" + b",".join(items) + b"}"


_FEW = tuple(b":%d" % count for count in range(64))
"""What stands behind the id of a request with so many tokens, where they are few: drafts give each request some."""


class QueueIds:
    """The ids and jobs of one queue, or of its first ``limit`` requests."""

    __slots__ = ("_alike", "_limit", "_names", "_one_each", "ids", "jobs", "names", "omitted", "total")

    def __init__(self, names: Names, limit: int | None) -> None:
        self._names = names
        self._limit = limit
        self.take(0, ())

    def take(self, total: int, requests: Iterable[RecordableRequest]) -> None:
        """Name the queue, which has ``total`` requests, anew."""
        kept = list(islice(requests, self._limit))
        self._name(total, [request.request_id for request in kept])
        jobs, job_ids = self._names.jobs, [request.job_id for request in kept]
        self.jobs = json_list([jobs[job_id] for job_id in job_ids]) if any(job_ids) else b"[]"

    def take_ids(self, req_ids: Sequence[str], total: int) -> None:
        """Name these of ``total`` requests, at most as many as may be named, without their jobs."""
        self._name(total, req_ids[: self._limit])

    def _name(self, total: int, req_ids: Sequence[str]) -> None:
        ids = self._names.ids
        self.total = total
        self.names = list(map(ids.__getitem__, req_ids))
        self.ids = json_list(self.names)
        self.omitted = total - len(req_ids)
        self._alike: dict[int, list[bytes]] = {}
        """Count -> ``id:count`` for every named request."""
        self._one_each: bytes | None = None

    def items(self, tokens: IntArray) -> list[bytes]:
        """``id:count`` for every named request; ``tokens[i]`` belongs to the i-th."""
        names = self.names
        counted = tokens[: len(names)]
        usual = 1
        if len(counted) and counted[0] == counted[-1] < len(_FEW):  # as many drafts each, mostly
            usual = int(counted[0])
        alike = self._alike.get(usual)
        if alike is None:
            alike = self._alike[usual] = [name + _FEW[usual] for name in names]
        items = alike.copy()
        rows = np.flatnonzero(counted != usual)
        for i, count in zip(rows.tolist(), counted[rows].tolist(), strict=True):
            items[i] = names[i] + (_FEW[count] if count < len(_FEW) else b":%d" % count)
        return items

    def one_each(self) -> bytes:
        """The map of a step in which every named request gets one token."""
        if self._one_each is None:
            self._one_each = json_map(self.items(np.ones(len(self.names), np.int64)))
        return self._one_each


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
