"""A Parquet twin gives the records of any file of JSON lines back; of lines that our writer wrote, the bytes."""

from __future__ import annotations

import io
import json
import tempfile
from pathlib import Path
from typing import IO, Any
from unittest import mock

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

from tokenyard.files import Bounds
from tokenyard.trace.columnar import reading, writing
from tokenyard.trace.columnar.reading import open_columnar
from tokenyard.trace.columnar.rows import columns_of
from tokenyard.trace.columnar.writing import ColumnarWriter
from tokenyard.trace.schema import STEP_EVENTS

pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed (extra: analysis)")

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.integers(-3, 2**31 + 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=6),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
IDS = st.sampled_from(["r0", "r1", "</script>", "r\u202e", ""])
KV = st.fixed_dictionaries({}, optional={"limit": IDS, "needed": st.integers(0, 9), "free": st.integers(0, 9)})
FITTING = st.one_of(
    st.integers(0, 2**31 - 1),
    st.floats(0, 1e9),
    st.booleans(),
    IDS,
    st.lists(IDS, max_size=3),
    st.lists(IDS | st.none(), max_size=3),
    st.lists(st.integers(0, 9), max_size=3),
    st.dictionaries(IDS, st.integers(0, 99), max_size=3),
    KV,
    st.lists(st.fixed_dictionaries({"reason": IDS}, optional={"req_id": IDS, "kv": KV}), max_size=2),
)
NAMES = st.sampled_from([*columns_of("steps"), *columns_of("requests"), "tier", "_extra", "_raw", "_layout"])
RECORDS = st.dictionaries(NAMES, FITTING | VALUES, max_size=8)
WRITTEN = st.one_of(
    RECORDS.map(msgspec.json.encode),
    RECORDS.map(lambda record: json.dumps(record).encode()),
    RECORDS.map(lambda record: json.dumps(record, indent=None, separators=(" ,", ":")).encode()),
    RECORDS.map(lambda record: msgspec.json.encode(record) + b"\r"),
    VALUES.map(lambda value: json.dumps(value).encode()),
)
TWICE = RECORDS.map(lambda record: b'{"step":1,"step":2,' + msgspec.json.encode(record)[1:])
LINES = st.one_of(WRITTEN, WRITTEN, TWICE, st.binary(max_size=12).map(lambda line: line.replace(b"\n", b"")))


def records_of(kind: type[msgspec.Struct]) -> st.SearchStrategy[msgspec.Struct]:
    fields = {field.name: st.from_type(field.type) for field in msgspec.structs.fields(kind)}
    return st.fixed_dictionaries({}, optional=fields).map(lambda given: kind(**({"step": 0} | given)))


OURS = st.one_of(*(records_of(kind) for kind in STEP_EVENTS.values() if "step" in kind.__struct_fields__))
"""Records of the steps file, each with some of its fields."""


def twin(text: bytes, kind: str) -> IO[bytes]:
    sink = tempfile.NamedTemporaryFile()  # noqa: SIM115 - its caller closes it
    writer = ColumnarWriter(sink, kind, "snappy")
    for line in io.BytesIO(text):
        writer.add(line)
    writer.finish()
    sink.flush()
    return sink


def given_back(sink: IO[bytes]) -> list[bytes]:
    with sink, open_columnar(Path(sink.name), Bounds(parquet_mb=8_000)) as trace:
        return [line for lines in trace.pieces() for line in lines]


def record_of(line: bytes) -> dict[str, Any] | None:
    """What a line says; None if it is no JSON object."""
    try:
        record = msgspec.json.decode(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def same(line: bytes, back: bytes) -> bool:
    """Whether a line has come back: every field with its value and its type, or the bytes if it is no object."""
    before, after = record_of(line), record_of(back)
    return line == back if before is None else sorted_and_typed(before) == sorted_and_typed(after)


def sorted_and_typed(value: Any) -> Any:
    """A value with true and 1 told apart, and 1 and 1.0 not: JSON has one kind of number."""
    if isinstance(value, dict):
        return {name: sorted_and_typed(item) for name, item in value.items()}
    if isinstance(value, list):
        return [sorted_and_typed(item) for item in value]
    return (bool, value) if isinstance(value, bool) else value


@given(lines=st.lists(LINES, max_size=12), kind=st.sampled_from(["steps", "requests"]), ends=st.booleans())
def test_the_records_come_back(lines: list[bytes], kind: str, ends: bool) -> None:
    text = b"\n".join(lines) + (b"\n" if ends else b"")
    back = given_back(twin(text, kind))
    there = list(io.BytesIO(text))
    assert len(back) == len(there)
    assert all(same(line.removesuffix(b"\n"), again) for line, again in zip(there, back, strict=True))


@given(lines=st.lists(LINES, max_size=30), sizes=st.tuples(*[st.integers(1, 300)] * 2), rows=st.integers(1, 5))
def test_the_records_come_back_from_many_pieces(lines: list[bytes], sizes: tuple[int, int], rows: int) -> None:
    """Batches, row groups and what is read at once end anywhere."""
    with (
        mock.patch.object(writing, "BATCH_BYTES", min(sizes)),
        mock.patch.object(writing, "GROUP_BYTES", max(sizes)),
        mock.patch.object(reading, "ROWS_AT_ONCE", rows),
    ):
        back = given_back(twin(b"".join(line + b"\n" for line in lines), "steps"))
    assert len(back) == len(lines)
    assert all(same(line, again) for line, again in zip(lines, back, strict=True))


@given(records=st.lists(OURS, max_size=12))
def test_lines_of_ours_come_back_to_the_byte(records: list[Any]) -> None:
    """Whatever the fields, and however large the numbers."""
    lines = [msgspec.json.encode(record) for record in records]
    assert given_back(twin(b"".join(line + b"\n" for line in lines), "steps")) == lines


@settings(max_examples=examples(50))
@given(lines=st.lists(LINES, min_size=1, max_size=6))
def test_bad_lines_are_counted(lines: list[bytes]) -> None:
    text = b"".join(line + b"\n" for line in lines)
    with twin(text, "steps") as sink, open_columnar(Path(sink.name), Bounds(parquet_mb=8_000)) as trace:
        counted = trace.head().bad_lines
    assert counted == len([line for line in lines if line.strip() and record_of(line) is None])
