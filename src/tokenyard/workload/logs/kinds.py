"""Formats and kinds of logs, and what a file holds before its kind is known."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from tokenyard.errors import WorkloadError, shown
from tokenyard.patterns import lazy_pattern
from tokenyard.workload.logs.engine_logs import SAYS_REQUESTS, SAYS_SGLANG, SIGN, read_sglang_log, read_vllm_log
from tokenyard.workload.logs.logged import (
    KNOWN,
    LoggedRequest,
    LogOptions,
    LogReading,
    RecordView,
    is_absent,
    normal,
    payload_of,
)
from tokenyard.workload.logs.records import (
    best_list,
    csv_header,
    first_row,
    read_csv_log,
    read_envoy,
    read_guidellm,
    read_jaeger,
    read_json_log,
    read_langfuse,
    read_ollama,
    read_otel,
    read_sharegpt,
    read_vllm_bench,
)
from tokenyard.workload.logs.source import Source
from tokenyard.workload.readers.plain import FORMATS, NamedSource

# ---------------------------------------------------------------------------------------------------------------------
# Files that are no logs of requests, though people have them at hand: what they are, and what to log instead.

_NOT_LOGS: Mapping[str, Any] = KNOWN["not_logs"]
INSTEAD: str = _NOT_LOGS["instead"]
"""What to log."""
_MOSTLY, _WITHOUT_TOKENS = (
    [(lazy_pattern(pattern), name) for pattern, name in _NOT_LOGS[which]] for which in ("mostly", "without_tokens")
)
"""Marks of what web servers and scrapes write, and of what engines and clouds log without the length of a request, or
without a time; and what it is."""
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


def what_it_is(lines: Sequence[bytes]) -> str | None:
    """What a file is that begins with these lines, and how to have a log of requests; None if it is not known."""
    for mark, name in _NOT_LOGS["binary"].items():
        if lines[0].startswith(mark.encode()):
            return f"is {name}: export it as CSV or JSON lines"
    if lines[0].startswith(_UTF_16):
        return "is UTF-16, as Excel's `Unicode Text`: save it as CSV UTF-8"
    texts = [line.decode("utf-8", "replace") for line in lines]
    beginning = "".join(texts[:10]).replace(" ", "")
    for pattern, name in _MOSTLY:
        if sum(pattern.search(text) is not None for text in texts) / len(texts) > 0.5:
            return f"{name}. {INSTEAD}"
    if '"resultType":' in beginning and '"metric"' in "".join(texts):
        return f"is an answer of Prometheus, whose series say nothing of single requests. {INSTEAD}"
    if '"resourceMetrics":' in texts[0].replace(" ", ""):
        return f"holds OpenTelemetry's metrics, which say nothing of single requests. {INSTEAD}"
    return None


def what_it_lacks(lines: Sequence[bytes]) -> str | None:
    """What a file is, and lacks, in which no reader finds a request; None if it is not known."""
    texts = [line.decode("utf-8", "replace") for line in lines]
    for pattern, name in _WITHOUT_TOKENS:
        if any(pattern.search(text) for text in texts):
            return f"{name}, which does not say the time and the tokens of single requests. {INSTEAD}"
    return None


# ---------------------------------------------------------------------------------------------------------------------
# Formats and kinds of logs by name, and how a file is recognised.
#
# Each has fields that it needs. A file's first records are held against all of them; the one most of whose fields are
# there is taken, and of equals the one that needs more.

LogReader = Callable[[Source, LogReading], Iterator[LoggedRequest]]

_READERS: dict[str, LogReader] = {
    "burstgpt": read_csv_log,
    "csv": read_csv_log,
    "envoy": read_envoy,
    "guidellm": read_guidellm,
    "jaeger": read_jaeger,
    "jsonl": read_json_log,
    "langfuse": read_langfuse,
    "litellm": read_json_log,
    "ollama": read_ollama,
    "openai": read_json_log,
    "otel": read_otel,
    "sglang": read_sglang_log,
    "sharegpt": read_sharegpt,
    "vllm-bench": read_vllm_bench,
    "vllm-log": read_vllm_log,
}
LOGS = {name: NamedSource(read, KNOWN["about"][name]) for name, read in _READERS.items()}
"""Name, as ``--format`` takes it -> kind of log."""

_ENOUGH = 0.6
"""Share of a kind's fields that must be there for it to be taken."""
_MOST_NAMES = 12
_OWN = '; plain is {"request_id": "a", "arrival_time": 0.5, "prompt_len": 1200, "max_tokens": 64} a line'


class _Kind(msgspec.Struct, frozen=True):
    name: str
    needs: Sequence[Sequence[str]]
    """Fields, of each any of several names; a name in angle brackets is one of ours, under whatever name is known."""
    weight: int = 0
    """The heavier of two equals is taken; without weights the one that needs more fields."""

    def score(self, view: RecordView) -> float:
        """How well a record fits; 0 if it does not."""
        share = sum(_has(view, names) for names in self.needs) / len(self.needs)
        return share + max(self.weight, len(self.needs)) / 100 if share >= _ENOUGH else 0.0


_JSON, _CSV = (tuple(_Kind(**each) for each in KNOWN[form]) for form in ("json", "csv"))


def log_kind(source: Source, options: LogOptions) -> str:
    """The format or kind that a file's beginning shows. WorkloadError says what it is, if it can be none of them."""
    texts = [line.decode("utf-8", "replace") for line in source.beginning]
    if any(SAYS_SGLANG.search(text) for text in texts):
        return "sglang"
    if any(SIGN.search(text) or SAYS_REQUESTS.search(text) for text in texts):
        return "vllm-log"
    if other := what_it_is(source.beginning):
        raise WorkloadError(source.path, 0, f"{other}. {_readable()}")
    found = _json_kind(source, options) if source.is_json else _csv_kind(source, options)
    if found is None:
        raise _unknown_kind(source)
    return found


def _json_kind(source: Source, options: LogOptions) -> str | None:
    found = _best(_JSON, _json_records(source))
    return "jsonl" if found is None and options.columns and source.first_records() else found


def _csv_kind(source: Source, options: LogOptions) -> str | None:
    """Raises WorkloadError for a file that begins as JSON, and is none."""
    if source.first.lstrip()[:1] in (b"{", b"["):
        _refuse_what_lacks(source)
        source.require_json()
    try:
        _, cells = csv_header(source.first)
    except ValueError:
        cells = []
    named = {normal(column) for column in options.columns.values()}
    if named and named <= {normal(cell) for cell in cells}:
        return "csv"
    return _best(_CSV, [dict.fromkeys(cells, "1")]) or _best(_CSV, [first_row(source)])


def _json_records(source: Source) -> list[Mapping[str, Any]]:
    """The first objects, and those of the list within that says most."""
    records = source.first_records()
    if not source.is_json_lines or len(records) == 1:
        within = best_list(records[0] if len(records) == 1 else source.document) or []
        records = records + [each for each in within[:16] if isinstance(each, Mapping)]
    return records


def _best(kinds: Sequence[_Kind], records: Sequence[Mapping[str, Any]]) -> str | None:
    """The kind that one of the records fits best; None if none fits. Of equals the first one listed."""
    alike = {_shape(record): record for record in records}  # most logs write all requests in one way
    views = [view for each in alike.values() for view in (RecordView(_opened(each)), RecordView(payload_of(each)))]
    scores = {kind.name: max((kind.score(view) for view in views), default=0.0) for kind in kinds}
    best = max(scores, key=lambda name: scores[name])
    return best if scores[best] else None


def _shape(value: object) -> Hashable:
    """All of a record that a score looks at: the fields that say something, at every level."""
    if isinstance(value, Mapping):
        return tuple((key, _shape(each)) for key, each in value.items())
    if isinstance(value, list):
        return _shape(value[0]) if value else None
    return value if isinstance(value, str) and value[:1] == "{" else is_absent(value)


def _opened(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """The record with the first of the list that it calls ``data``."""
    data = record.get("data")
    return {**record, "data": data[0]} if isinstance(data, list) and data and isinstance(data[0], Mapping) else record


def _has(view: RecordView, names: Sequence[str]) -> bool:
    return any(view.find(name[1:-1]).value is not None if name.startswith("<") else view.has(name) for name in names)


def _unknown_kind(source: Source) -> WorkloadError:
    """The error for a file of no known kind: what it has, and what would be read. Raises one for a known lack."""
    _refuse_what_lacks(source)
    names: list[str] = []
    if source.is_json:
        records = _json_records(source)
        names = sorted({str(key) for record in records[-1:] for key in record})
    elif b"," in source.first or b";" in source.first:
        with suppress(ValueError):
            names = csv_header(source.first)[1]
    has = f"; it has {', '.join(map(shown, names[:_MOST_NAMES]))}" if names else ""
    fix = "name one with --format, or its columns with --columns arrival_time=NAME,prompt_len=NAME,max_tokens=NAME"
    return WorkloadError(source.path, source.first_number, f"is of no known format: {_readable()}; {fix}{has}{_OWN}")


def _refuse_what_lacks(source: Source) -> None:
    if lacks := what_it_lacks(source.beginning):
        raise WorkloadError(source.path, 0, lacks)


def _readable() -> str:
    return f"Read are {', '.join(FORMATS)}, and logs of kind {', '.join(LOGS)}"
