"""WEKA coding-agent sessions: one session per JSON line, its calls nested, ids of 64-token blocks local to it.

Per call: ``in`` and ``out`` (tokens), ``t`` (seconds since the list began), ``api_time`` and ``think_time`` (seconds),
``keep`` (leading ids shared with the previous call of the list) and ``new`` ([first id, count] ranges); the ids of a
call are ``previous[:keep] + new``. An entry of type ``subagent`` nests a list of its own; its ``t`` is the moment it
*ended* and ``duration_ms`` how long it ran. What is replayed:

* the first call of a session at the session's start (a seeded Poisson process);
* any other call ``think_time`` after the previous one ended;
* a sub-agent's first call as long after the previous call's end as recorded;
* the call after sub-agents when they and the previous call have ended, plus what was left of the recorded time; a
  sub-agent that outlived the recorded call is not waited for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from tokenyard.errors import WorkloadError, shown
from tokenyard.sim.workload.readers.hashes import HashId, IdRanges, append_range, first_ids, num_ids
from tokenyard.sim.workload.readers.lines import (
    MAX_SECONDS,
    Count,
    Length,
    ReadOptions,
    Seconds,
    decode,
    numbered_lines,
)
from tokenyard.sim.workload.readers.session_starts import session_starts
from tokenyard.sim.workload.record import WorkloadRequest
from tokenyard.sim.workload.tokens import HashedTokens, seed_of

__all__ = ["read_weka"]


_SOME_TOOL = "tool"
"""The trace says that a call ended with the use of a tool, not of which."""


class _Entry(msgspec.Struct, kw_only=True):
    t: Seconds = 0.0
    type: Literal["n", "s", "subagent"]
    in_: Length | None = msgspec.field(name="in", default=None)
    out: Count = 0
    api_time: Seconds | None = 0.0
    think_time: Seconds | None = None
    keep: Count = 0
    new: list[tuple[HashId, Length]] = []
    stop: str | None = None
    duration_ms: Annotated[float, msgspec.Meta(ge=0, le=MAX_SECONDS * 1000)] | None = None
    requests: list[_Entry] = []


class _Session(msgspec.Struct):
    id: Annotated[str, msgspec.Meta(min_length=1)]
    block_size: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)]
    hash_id_scope: Literal["local"]
    requests: list[_Entry]


@dataclass(slots=True)
class _Ended:
    """A call that later ones may wait for."""

    request_id: str
    at: float
    """Recorded end, in seconds on the clock of its list."""


@dataclass(slots=True)
class _List:
    """Progress through one list of calls: the session's own, or a sub-agent's."""

    job: str
    start: float
    """Arrival of a first call that waits for nothing."""
    origin: _Ended | None = None
    """What the first call waits for: the parent's previous call, with its end on this list's clock."""
    ids: IdRanges = field(default_factory=list)
    previous: _Ended | None = None
    subagents: list[_Ended] = field(default_factory=list)
    """Ended since ``previous``."""
    turn: int = 0


def read_weka(path: Path, options: ReadOptions) -> Iterator[WorkloadRequest]:
    """One request per call, one job per session and sub-agent; an output of 0 tokens counts as 1."""
    decoder = msgspec.json.Decoder(_Session)
    lines = islice(numbered_lines(path), options.limit)
    for start, (number, line) in zip(session_starts(options), lines, strict=False):
        session = decode(decoder, path, number, line)
        reader = _SessionReader(session, options.seed)
        try:
            yield from reader.calls(session.requests, _List(session.id, start))
        except ValueError as error:
            raise WorkloadError(path, number, f"session {shown(session.id)}: {error}") from None


class _SessionReader:
    """Turns the nested calls of one session into requests."""

    def __init__(self, session: _Session, seed: int) -> None:
        self._block_size = session.block_size
        self._scope = seed_of("weka", seed, session.id)
        self._seed = seed

    def calls(self, entries: list[_Entry], calls: _List) -> Iterator[WorkloadRequest]:
        """The requests of one list, sub-agents before the call that waits for them."""
        last = max((i for i, entry in enumerate(entries) if entry.type != "subagent"), default=-1)
        for index, entry in enumerate(entries):
            if entry.type == "subagent":
                yield from self._subagent(index, entry, calls)
            else:
                yield self._call(entry, calls, is_last=index == last)

    def _subagent(self, index: int, entry: _Entry, parent: _List) -> Iterator[WorkloadRequest]:
        began = entry.t - (entry.duration_ms or 0.0) / 1000
        origin = parent.previous and _Ended(parent.previous.request_id, parent.previous.at - began)
        inner = _List(f"{parent.job}_a{index}", parent.start + max(0.0, began), origin)
        yield from self.calls(entry.requests, inner)
        if inner.previous is not None:
            ended = max(entry.t, began + inner.previous.at)
            parent.subagents.append(_Ended(inner.previous.request_id, ended))

    def _call(self, entry: _Entry, calls: _List, *, is_last: bool) -> WorkloadRequest:
        ids = self._ids(entry, calls)
        request_id = f"{calls.job}_t{calls.turn}"
        waits = [each for each in calls.subagents if each.at <= entry.t]
        before = calls.previous or calls.origin
        if before is not None:
            waits.append(before)
        gap = max(0.0, entry.t - max((each.at for each in waits), default=entry.t))
        if calls.previous is not None and len(waits) == 1 and entry.think_time is not None:
            gap = entry.think_time
        calls.ids, calls.subagents = ids, []
        calls.previous = _Ended(request_id, entry.t + (entry.api_time or 0.0))
        calls.turn += 1
        own = seed_of("weka", self._seed, request_id)
        assert entry.in_ is not None
        return WorkloadRequest(
            request_id=request_id,
            prompt=HashedTokens(ids, entry.in_, block_size=self._block_size, scope=self._scope, tail=own),
            max_tokens=max(1, entry.out),
            arrival_time=0.0 if waits else calls.start + entry.t,
            after=tuple(each.request_id for each in waits),
            gap=gap if waits else 0.0,
            job_id=calls.job,
            is_last_step=is_last,
            this_func_call=_SOME_TOOL if entry.stop == "tool_use" else None,
            output_seed=own,
        )

    def _ids(self, entry: _Entry, calls: _List) -> IdRanges:
        """``previous[:keep] + new``; ValueError if that cannot be."""
        where = f"call {calls.turn} of {calls.job}"
        if entry.in_ is None:
            raise ValueError(f"{where}: has no 'in'")
        if entry.keep > num_ids(calls.ids):
            raise ValueError(f"{where}: keep = {entry.keep}, but the previous call has {num_ids(calls.ids)} ids")
        ids = first_ids(calls.ids, entry.keep)
        for first, count in entry.new:
            append_range(ids, first, count)
        if num_ids(ids) > -(-entry.in_ // self._block_size):
            raise ValueError(f"{where}: {num_ids(ids)} ids of {self._block_size} tokens for {entry.in_} tokens")
        return ids
