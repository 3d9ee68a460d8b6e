"""Kinds of logs by name, and how a file tells which one it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path

import msgspec

from tokenyard.errors import WorkloadError
from tokenyard.sim.workload.logs.documents import (
    CHARACTERS_PER_TOKEN,
    read_guidellm,
    read_otel,
    read_sharegpt,
    read_vllm_bench,
)
from tokenyard.sim.workload.logs.line_logs import cells_of, read_csv_log, read_json_log
from tokenyard.sim.workload.logs.logged import BadLines, LoggedRequest, LogOptions
from tokenyard.sim.workload.logs.records import has_known_lengths
from tokenyard.sim.workload.logs.vllm_log import SIGN, read_vllm_log
from tokenyard.sim.workload.readers.lines import first_line, numbered_lines

__all__ = ["ASSUMED", "LEAVES_UNIT_OPEN", "LOGS", "kind_by_names", "kind_of_log", "read_log"]

_FIRST_LINES = 64
_FIRST_BYTES = 1 << 16
"""How far a document is read to tell its kind."""
_SIGNS = (
    (b'"resourceSpans"', "otel"),
    (b'"conversations"', "sharegpt"),
    (b'"benchmarks"', "guidellm"),
    (b'"input_lens"', "vllm-bench"),
)

LogReader = Callable[[Path, LogOptions, BadLines], Iterator[LoggedRequest]]

LOGS: dict[str, LogReader] = {
    "burstgpt": read_csv_log,
    "csv": read_csv_log,
    "guidellm": read_guidellm,
    "jsonl": read_json_log,
    "openai": read_json_log,
    "otel": read_otel,
    "sharegpt": read_sharegpt,
    "vllm-bench": read_vllm_bench,
    "vllm-log": read_vllm_log,
}
"""By name, as ``--format`` takes it."""

ASSUMED: Mapping[str, str] = {
    "sharegpt": f"a token is {CHARACTERS_PER_TOKEN} characters: lengths are estimates",
    "vllm-log": "where a log has no output, requests run to max_tokens; arrivals are whole seconds",
}
"""What reading a kind of log takes for granted."""


LEAVES_UNIT_OPEN = ("csv", "jsonl", "openai")
"""Kinds whose times may be numbers of any unit."""


def read_log(path: Path, kind: str, options: LogOptions) -> tuple[list[LoggedRequest], list[str]]:
    """All requests of a log, and sentences about what was left out or assumed.

    Raises WorkloadError naming file and line.
    """
    bad = BadLines(path, options.max_bad_lines)
    logged = list(LOGS[kind](path, options, bad))
    notes = [note for note in (ASSUMED.get(kind), bad.note) if note]
    if not logged:
        raise WorkloadError(path, 0, f"holds no request{'; ' + bad.note if bad.note else ''}")
    return logged, notes


def kind_of_log(path: Path, options: LogOptions) -> str | None:
    """The kind that a file's beginning shows; None if it shows none."""
    _, line = first_line(path)
    text = line.lstrip()
    if SIGN.search(text.decode("utf-8", "replace")):
        return "vllm-log"
    if text[:1] in (b"{", b"["):
        return _kind_of_json(path, text, options)
    try:
        cells = {cell.strip().lower() for cell in cells_of(text)}
    except ValueError:
        return None
    if {"timestamp", "request tokens", "response tokens"} <= cells:
        return "burstgpt"
    named = {column.lower() for column in options.columns.values()}
    return "csv" if named and named <= cells else None


def kind_by_names(path: Path) -> str | None:
    """``csv`` or ``jsonl`` if prompt and output have names that are known; None if not. Asked last."""
    _, line = first_line(path)
    if line.lstrip()[:1] == b"{":
        try:
            record = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        return "jsonl" if isinstance(record, dict) and has_known_lengths(record) else None
    try:
        cells = {cell.strip().lower(): 1 for cell in cells_of(line)}
    except ValueError:
        return None
    return "csv" if has_known_lengths(cells) else None


def _kind_of_json(path: Path, line: bytes, options: LogOptions) -> str | None:
    beginning = b"\n".join(text for _, text in islice(numbered_lines(path), _FIRST_LINES))[:_FIRST_BYTES]
    for sign, kind in _SIGNS:
        if sign in beginning:
            return kind
    try:
        record = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    if "usage" in record or "response" in record:
        return "openai"
    if "total_input_tokens" in record and "request_throughput" in record:
        return "vllm-bench"
    return "jsonl" if options.columns else None
