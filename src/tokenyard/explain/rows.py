"""Tables of a run, row by row: its requests, its steps, and what requests waited for.

A replay (:mod:`tokenyard.sim.rows`) and a trace (:mod:`tokenyard.explain.recorded`) fill the same tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import nan
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from tokenyard.explain.population import LATENCIES, population_of
from tokenyard.explain.table import Column, RowTable, column_of
from tokenyard.explain.why.cause_log import WaitPiece
from tokenyard.vocabulary import WaitState

Floats = npt.NDArray[np.float64]


class RequestEntry(NamedTuple):
    """A row of the table of requests; moments in seconds, None where it did not come so far."""

    request_id: str
    job_id: str | None
    engine: int
    arrival_s: float | None
    first_scheduled_s: float | None
    first_token_s: float | None
    finished_s: float | None
    until_s: float | None
    """Its end; of an unfinished one the last moment that is known."""
    prompt_tokens: int
    cached_tokens: int
    external_tokens: int
    output_tokens: int
    max_tokens: int
    """Tokens of output that it may get at most; 0 where that is not known."""
    preemptions: int
    finish_reason: str | None
    priority: int
    lora_name: str | None
    predicted_output_tokens: float | None
    more: Mapping[str, Any]
    """Further columns by name, called ``meta.`` and the name where there is such a column already."""


_MOMENTS = ("arrival_s", "first_scheduled_s", "first_token_s", "finished_s", "until_s")
_COUNTS = ("prompt_tokens", "cached_tokens", "external_tokens", "output_tokens", "max_tokens", "preemptions")


def requests_table(rows: Sequence[RequestEntry]) -> RowTable:
    """One row per request. Moments in seconds, latencies in milliseconds.

    ``request_id``, ``job_id``, ``engine``; ``arrival_s``, ``first_scheduled_s``, ``first_token_s``, ``finished_s``,
    ``until_s``; ``prompt_tokens``, ``cached_tokens``, ``external_tokens``, ``output_tokens``, ``max_tokens``,
    ``preemptions``; ``queue_ms``, ``ttft_ms``, ``tpot_ms``, ``e2e_ms``; ``finish_reason``, ``priority``,
    ``lora_name``, ``predicted_output_tokens``;
    and what ``more`` names.
    """
    of = (
        dict(zip(RequestEntry._fields, zip(*rows, strict=True), strict=True))
        if rows
        else dict.fromkeys(RequestEntry._fields, ())
    )
    moments = {name: moments_of(of[name]) for name in _MOMENTS}
    counts = {name: np.array(of[name], np.int64) for name in _COUNTS}
    people = population_of(
        moments, output=counts["output_tokens"], max_tokens=counts["max_tokens"], reasons=of["finish_reason"]
    )
    columns: dict[str, Column] = {
        "request_id": column_of(of["request_id"]),
        "job_id": column_of(of["job_id"]),
        "engine": np.array(of["engine"], np.int64),
        **moments,
        **counts,
        **{f"{name}_ms": people.values[name] * 1e3 for name in LATENCIES},
        "finish_reason": column_of(of["finish_reason"]),
        "priority": np.array(of["priority"], np.int64),
        "lora_name": column_of(of["lora_name"]),
        "predicted_output_tokens": moments_of(of["predicted_output_tokens"]),
    }
    for name in dict.fromkeys(name for each in of["more"] for name in each):
        columns[f"meta.{name}" if name in columns else name] = column_of([each.get(name) for each in of["more"]])
    return RowTable("requests", columns)


STEP_COLUMNS = (
    *("step", "start_s", "seconds", "scheduled_tokens", "scheduled_requests", "sampled_tokens"),
    *("running", "waiting", "free_blocks", "admitted", "resumed", "preempted"),
)
_MAY_BE_MISSING = ("start_s", "seconds", "sampled_tokens")
"""Numbers with a fraction, or that a step has only when it is over."""


def steps_table(engines: Sequence[tuple[int, Mapping[str, Floats]]]) -> RowTable:
    """One row per step, by engine: ``engine``, and :data:`STEP_COLUMNS`, which each of ``engines`` has beside its
    number; NaN where the step has no such number.
    """
    columns: dict[str, Column] = {
        "engine": np.concatenate([np.full(len(each["step"]), i, np.int64) for i, each in engines])
    }
    for name in STEP_COLUMNS:
        column = np.concatenate([each[name] for _, each in engines])
        columns[name] = column if name in _MAY_BE_MISSING or np.isnan(column).any() else column.astype(np.int64)
    return RowTable("steps", columns)


class WaitEntry(msgspec.Struct, frozen=True):
    """Stretches of one wait of a request, in order of time."""

    request_id: str
    engine: int
    state: WaitState
    pieces: Sequence[WaitPiece]


def waits_table(waits: Iterable[WaitEntry]) -> RowTable:
    """One row per stretch of time in which a request got no tokens for one reason.

    ``request_id``, ``engine``; ``state`` (queued, preempted, stalled), ``reason`` (``docs/reasons.md``), ``place``
    (own, behind the head of the queue, all, outside the scheduler); ``from_s``, ``to_s``, ``seconds``. The seconds
    of a request's rows are its waiting time.
    """
    found = [(wait, piece) for wait in waits for piece in _merged(wait.pieces)]
    start = np.array([piece.start_us for _, piece in found], np.float64) / 1e6
    end = np.array([piece.end_us for _, piece in found], np.float64) / 1e6
    columns: dict[str, Column] = {
        "request_id": column_of([wait.request_id for wait, _ in found]),
        "engine": np.array([wait.engine for wait, _ in found], np.int64),
        "state": column_of([wait.state.value for wait, _ in found]),
        "reason": column_of([str(piece.cause.reason) for _, piece in found]),
        "place": column_of([str(piece.cause.place) for _, piece in found]),
        "from_s": start,
        "to_s": end,
        "seconds": end - start,
    }
    return RowTable("waits", columns)


def _merged(pieces: Sequence[WaitPiece]) -> list[WaitPiece]:
    """Neighbours that have the same cause are one, whichever stood at the head of the queue."""
    merged: list[WaitPiece] = []
    for piece in pieces:
        if merged and merged[-1].cause == piece.cause and merged[-1].end_us == piece.start_us:
            merged[-1] = msgspec.structs.replace(merged[-1], end_us=piece.end_us)
        else:
            merged.append(piece)
    return merged


def moments_of(values: Iterable[float | None]) -> Floats:
    """Numbers as a column, NaN where there is none."""
    return np.array([nan if value is None else value for value in values], np.float64)
