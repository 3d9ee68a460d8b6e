"""Published traces: Azure, Mooncake, LMCache, WEKA, ServeGen."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np

from tokenyard.core.params import SOME_TOOL
from tokenyard.errors import WorkloadError, shown
from tokenyard.patterns import lazy_pattern
from tokenyard.quick_dataclass import dataclass
from tokenyard.workload.readers.lines import (
    Count,
    CsvRows,
    Length,
    ReadOptions,
    Seconds,
    decode,
    numbered_lines,
)
from tokenyard.workload.record import MAX_SECONDS, WorkloadRequest
from tokenyard.workload.tokens import HashedTokens, StreamTokens, seed_of

# ---------------------------------------------------------------------------------------------------------------------
# When recorded sessions start, for traces that only know the time since a session's own beginning.

_SESSION_RATE = 0.05
"""Per second, unless a setting says otherwise."""


def session_starts(options: ReadOptions) -> Iterator[float]:
    """Arrival times in seconds of a seeded Poisson process; the first session starts at 0."""
    rate = _SESSION_RATE if options.session_rate is None else options.session_rate
    rng = np.random.default_rng(options.seed)
    now = 0.0
    while True:
        yield now
        now += float(rng.exponential(1.0 / rate))


# ---------------------------------------------------------------------------------------------------------------------
# Hash ids of prompt blocks: how they are checked and kept.

HashId = Annotated[int, msgspec.Meta(ge=0, le=2**62)]

IdRanges = list[tuple[int, int]]
"""Runs of consecutive ids: (first id, count)."""


def append_range(ranges: IdRanges, first: int, count: int) -> None:
    """Add a run at the end, joined to the last one where it continues it."""
    if ranges and sum(ranges[-1]) == first:
        first, before = ranges.pop()
        count += before
    ranges.append((first, count))


def id_ranges(ids: Iterable[int]) -> IdRanges:
    """A list of ids as runs."""
    ranges: IdRanges = []
    first = count = 0
    for each in ids:
        if count and each == first + count:
            count += 1
            continue
        if count:
            ranges.append((first, count))
        first, count = each, 1
    if count:
        ranges.append((first, count))
    return ranges


def first_ids(ranges: IdRanges, keep: int) -> IdRanges:
    """The runs of the first ``keep`` ids."""
    kept: IdRanges = []
    for first, count in ranges:
        if keep <= 0:
            break
        kept.append((first, min(count, keep)))
        keep -= count
    return kept


def num_ids(ranges: IdRanges) -> int:
    """How many ids the runs hold."""
    return sum(count for _, count in ranges)


def problem_with_ids(ids: int, num_tokens: int, block_size: int) -> str | None:
    """What is wrong with so many ids for a prompt of so many tokens, or None.

    The last block may be counted, left out, or (where a recorder left out more) missing with others before it.
    """
    most = -(-num_tokens // block_size)
    if ids > most:
        return f"{ids} hash ids for {num_tokens} tokens: blocks of {block_size} allow at most {most}"
    return None


# ---------------------------------------------------------------------------------------------------------------------
# Azure LLM inference traces: CSV with ``TIMESTAMP``, ``ContextTokens`` and ``GeneratedTokens``.
#
# They record no prefixes: every prompt is unique. The first request arrives at 0. A time without an offset is UTC.

_MOMENT = lazy_pattern(
    r"(?P<date>\d{4}-\d\d-\d\d)[ T](?P<time>\d\d:\d\d:\d\d)(?:\.(?P<fraction>\d{1,9}))?(?P<offset>Z|[+-]\d\d:?\d\d)?",
    re.ASCII,
)
_FIRST_DAY = datetime(1970, 1, 1, tzinfo=UTC)


def read_azure(path: Path, options: ReadOptions) -> Iterator[WorkloadRequest]:
    """One request per row; rows must be in order of time, and a length of 0 tokens counts as 1."""
    rows = CsvRows(path, "TIMESTAMP", "ContextTokens", "GeneratedTokens")
    start: int | None = None
    last = 0.0
    for row in rows.read(options):
        moment = _nanoseconds(rows, row)
        start = moment if start is None else start
        arrival = (moment - start) / 1e9
        if not last <= arrival <= MAX_SECONDS:
            problem = "is earlier than the row before" if arrival < last else "is decades after the first row"
            raise rows.error(f"TIMESTAMP = {shown(rows.text(row, 'TIMESTAMP'))}: {problem}")
        last = arrival
        seed = seed_of("azure", options.seed, rows.line)
        yield WorkloadRequest(
            request_id=f"azure_{rows.line:06d}",
            prompt=StreamTokens.unique(seed, max(1, rows.count(row, "ContextTokens"))),
            max_tokens=max(1, rows.count(row, "GeneratedTokens")),
            arrival_time=arrival,
            output_seed=seed,
        )


def _nanoseconds(rows: CsvRows, row: list[str]) -> int:
    """The row's time, in nanoseconds since 1970: recorded arrivals have seven digits after the point."""
    text = rows.text(row, "TIMESTAMP")
    parts = _MOMENT.fullmatch(text)
    try:
        if parts is None:
            raise ValueError("not a date and a time")
        moment = datetime.fromisoformat(f"{parts['date']}T{parts['time']}{parts['offset'] or 'Z'}")
    except ValueError:
        fix = "give a date and time, for example 2023-11-16 18:17:03.9799600"
        raise rows.error(f"TIMESTAMP = {shown(text)}: {fix}") from None
    since = moment - _FIRST_DAY
    return (since.days * 86_400 + since.seconds) * 1_000_000_000 + int((parts["fraction"] or "").ljust(9, "0"))


# ---------------------------------------------------------------------------------------------------------------------
# Hashed LMCache agent traces: JSON lines, one call each, with global prefix-chained ids of 64-token blocks.
#
# Fields read: ``suite``, ``session``, ``timestamp`` (ms since the session began), ``input_length``,
# ``output_length``, ``hash_ids``. Only arrivals are recorded, not durations. So a turn arrives as long after the
# previous one's arrival as recorded, or when the previous one ends, whichever is later. Sessions start in a seeded
# Poisson process.

BLOCK_SIZE = 64


class _PublishedRow(msgspec.Struct):
    suite: str
    session: str
    timestamp: Seconds
    input_length: Count
    output_length: Count
    hash_ids: list[HashId]


def read_lmcache(path: Path, options: ReadOptions) -> Iterator[WorkloadRequest]:
    """One request per line, one job per session; a length of 0 tokens (not recorded) counts as 1."""
    session_requests: dict[str, list[_PublishedRow]] = {}
    beyond: set[str] = set()
    decoder = msgspec.json.Decoder(_PublishedRow)
    for number, line in numbered_lines(path):
        row = decode(decoder, path, number, line)
        name = f"{row.suite}_{row.session}"
        if name not in session_requests and options.limit is not None and len(session_requests) == options.limit:
            beyond.add(name)
            continue
        turns = session_requests.setdefault(name, [])
        problem = problem_with_ids(len(row.hash_ids), row.input_length, BLOCK_SIZE)
        if not problem and turns and row.timestamp < turns[-1].timestamp:
            problem = f"timestamp = {row.timestamp:g}: is earlier than the session's call before"
        if problem:
            raise WorkloadError(path, number, problem)
        turns.append(row)
    options.left_out.count, options.left_out.what = len(beyond), "sessions"
    scope = seed_of("lmcache", options.seed)
    for start, (name, turns) in zip(session_starts(options), session_requests.items(), strict=False):
        for turn, row in enumerate(turns):
            own = seed_of("lmcache", options.seed, name, turn)
            first = turn == 0
            yield WorkloadRequest(
                request_id=f"{name}_t{turn}",
                prompt=HashedTokens(
                    id_ranges(row.hash_ids), max(1, row.input_length), block_size=BLOCK_SIZE, scope=scope, tail=own
                ),
                max_tokens=max(1, row.output_length),
                arrival_time=start + row.timestamp / 1000 if first else 0.0,
                after=() if first else (f"{name}_t{turn - 1}",),
                spacing=0.0 if first else (row.timestamp - turns[turn - 1].timestamp) / 1000,
                job_id=name,
                is_last_step=turn == len(turns) - 1,
                output_seed=own,
            )


# ---------------------------------------------------------------------------------------------------------------------
# Mooncake traces: JSON lines with global hash ids of 512-token prefix blocks.
#
# Fields read: ``timestamp`` (ms), ``input_length``, ``output_length`` (tokens), ``hash_ids``; others are ignored. The
# last id may stand for a block that the prompt fills in part. As AIPerf and Dynamo write them, a ``session_id`` may
# join lines: one with a ``delay`` (ms) begins so long after the answer before it. ``block_size`` of a first line
# counts for all.

MOONCAKE_BLOCK_SIZE = 512


class _MooncakeRow(msgspec.Struct):
    input_length: Length
    output_length: Count
    hash_ids: list[HashId]
    timestamp: Seconds | None = None
    delay: Seconds | None = None
    session_id: str | int | None = None
    block_size: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)] | None = None


def read_mooncake(path: Path, options: ReadOptions) -> Iterator[WorkloadRequest]:
    """One request per line; an output of 0 tokens counts as 1."""
    decoder = msgspec.json.Decoder(_MooncakeRow)
    scope = seed_of("mooncake", options.seed)
    size = 0
    last_turns: dict[str | int, str] = {}
    for number, line in numbered_lines(path, options):
        row = decode(decoder, path, number, line)
        size = size or row.block_size or MOONCAKE_BLOCK_SIZE
        problem = problem_with_ids(len(row.hash_ids), row.input_length, size)
        before = None if row.session_id is None else last_turns.get(row.session_id)
        follows = before is not None and row.delay is not None
        if row.timestamp is None and not follows:
            problem = "timestamp is missing: give a number from 0, or a delay behind an earlier line of its session_id"
        if problem:
            raise WorkloadError(path, number, problem)
        own, name = seed_of("mooncake", options.seed, number), f"mooncake_{number:06d}"
        if row.session_id is not None:
            last_turns[row.session_id] = name
        yield WorkloadRequest(
            request_id=name,
            prompt=HashedTokens(id_ranges(row.hash_ids), row.input_length, block_size=size, scope=scope, tail=own),
            max_tokens=max(1, row.output_length),
            arrival_time=0.0 if follows else (row.timestamp or 0.0) / 1000,
            after=(before,) if before is not None and follows else (),
            gap=(row.delay or 0.0) / 1000 if follows else 0.0,
            job_id=None if row.session_id is None else str(row.session_id),
            output_seed=own,
        )


# ---------------------------------------------------------------------------------------------------------------------
# ServeGen draws: CSV with ``t_s``, ``client`` and token columns.
#
# The prompt is ``input_tokens``, or the sum of ``text_tokens``, ``image_tokens``, ``audio_tokens`` and
# ``video_tokens`` (encoders are not modelled: their tokens count as prompt). Prefixes are not recorded.

_MODAL = ("text_tokens", "image_tokens", "audio_tokens", "video_tokens")


def read_servegen(path: Path, options: ReadOptions) -> Iterator[WorkloadRequest]:
    """One request per row; a length of 0 tokens counts as 1."""
    rows = CsvRows(path, "t_s", "client", "output_tokens")
    columns = ["input_tokens"] if rows.has("input_tokens") else [name for name in _MODAL if rows.has(name)]
    if not columns:
        raise rows.error(f"the header has neither 'input_tokens' nor any of {', '.join(_MODAL)}")
    for row in rows.read(options):
        seed = seed_of("servegen", options.seed, rows.line)
        yield WorkloadRequest(
            request_id=f"servegen_{rows.line:06d}",
            prompt=StreamTokens.unique(seed, max(1, sum(rows.count(row, name) for name in columns))),
            max_tokens=max(1, rows.count(row, "output_tokens")),
            arrival_time=rows.seconds(row, "t_s"),
            output_seed=seed,
        )


# ---------------------------------------------------------------------------------------------------------------------
# WEKA coding-agent sessions: one session per JSON line, its calls nested, ids of 64-token blocks local to it.
#
# Per call: ``in`` and ``out`` (tokens), ``t`` (seconds since the list began), ``api_time`` and ``think_time``
# (seconds), ``keep`` (leading ids shared with the previous call of the list) and ``new`` ([first id, count] ranges);
# the ids of a call are ``previous[:keep] + new``. An entry of type ``subagent`` nests a list of its own; its ``t`` is
# the moment it *ended* and ``duration_ms`` how long it ran. What is replayed:
#
# * the first call of a session at the session's start (a seeded Poisson process);
# * any other call ``think_time`` after the previous one ended;
# * a sub-agent's first call as long after the previous call's end as recorded;
# * the call after sub-agents when they and the previous call have ended, plus what was left of the recorded time; a
#   sub-agent that outlived the recorded call is not waited for.


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
    lines = numbered_lines(path, options, "sessions")
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
            this_func_call=SOME_TOOL if entry.stop == "tool_use" else None if entry.stop is None else "",
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
