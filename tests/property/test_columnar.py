"""Whatever stands in a file of JSON lines, its Parquet twin gives the same bytes back."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenyard.trace.columnar import layout, reading, writing
from tokenyard.trace.columnar.columns import columns_of
from tokenyard.trace.columnar.reading import ColumnarReader
from tokenyard.trace.columnar.writing import ColumnarWriter

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


def twin(text: bytes, kind: str) -> io.BytesIO:
    sink = io.BytesIO()
    writer = ColumnarWriter(sink, kind, "snappy")
    for line in io.BytesIO(text):
        writer.add(line)
    writer.finish()
    return sink


def given_back(sink: io.BytesIO) -> bytes:
    with pq.ParquetFile(sink) as file:
        reader = ColumnarReader(Path("x.parquet"), file)
        lines = list(reader.raw_lines())
        return b"\n".join(lines) + (b"\n" if lines and reader.footer.final_newline else b"")


@given(lines=st.lists(LINES, max_size=12), kind=st.sampled_from(["steps", "requests"]), ends=st.booleans())
def test_the_bytes_come_back(lines: list[bytes], kind: str, ends: bool) -> None:
    text = b"\n".join(lines) + (b"\n" if ends else b"")
    assert given_back(twin(text, kind)) == text


@given(lines=st.lists(LINES, max_size=30), sizes=st.tuples(*[st.integers(1, 300)] * 2), rows=st.integers(1, 5))
def test_the_bytes_come_back_from_many_pieces(lines: list[bytes], sizes: tuple[int, int], rows: int) -> None:
    """Batches, row groups and what is read at once end anywhere; there are more layouts than are kept."""
    text = b"".join(line + b"\n" for line in lines)
    with (
        mock.patch.object(writing, "_BATCH_BYTES", min(sizes)),
        mock.patch.object(writing, "_GROUP_BYTES", max(sizes)),
        mock.patch.object(reading, "_ROWS_AT_ONCE", rows),
        mock.patch.object(layout, "MAX_LAYOUTS", 3),
    ):
        assert given_back(twin(text, "steps")) == text


def is_object(line: bytes) -> bool:
    try:
        return isinstance(msgspec.json.decode(line), dict)
    except ValueError:
        return False


def step_of(line: bytes) -> int | None:
    step = msgspec.json.decode(line).get("step") if is_object(line) else None
    return step if type(step) is int and -(2**31) <= step < 2**31 else None


STEPPED = st.fixed_dictionaries({"step": st.integers(0, 9)}).flatmap(lambda step: RECORDS.map(lambda r: r | step))


@settings(max_examples=60)
@given(
    lines=st.lists(STEPPED.map(msgspec.json.encode) | LINES, max_size=20),
    group=st.integers(1, 300),
    bounds=st.tuples(st.integers(0, 9), st.integers(0, 9)),
)
def test_the_lines_of_some_steps(lines: list[bytes], group: int, bounds: tuple[int, int]) -> None:
    first, last = sorted(bounds)
    with mock.patch.object(writing, "_BATCH_BYTES", 1), mock.patch.object(writing, "_GROUP_BYTES", group):
        sink = twin(b"".join(line + b"\n" for line in lines), "steps")
    with pq.ParquetFile(sink) as file:
        found = list(ColumnarReader(Path("x.parquet"), file).step_lines(first, last))
    assert found == [line for line in lines if (step := step_of(line)) is not None and first <= step <= last]


@settings(max_examples=50)
@given(lines=st.lists(LINES, min_size=1, max_size=6))
def test_lines_and_bad_lines_are_counted(lines: list[bytes]) -> None:
    text = b"".join(line + b"\n" for line in lines)
    with pq.ParquetFile(twin(text, "steps")) as file:
        footer = ColumnarReader(Path("x.parquet"), file).footer
    bad = [line for line in lines if line.strip() and not is_object(line)]
    assert (footer.lines, footer.bad_lines) == (len(lines), len(bad))


@settings(max_examples=50)
@given(records=st.lists(RECORDS, max_size=6))
def test_without_layouts_the_records_come_back(records: list[dict[str, Any]]) -> None:
    """Another program that copies the columns loses the footer: spacing and order go, values stay."""
    text = b"".join(msgspec.json.encode(record) + b"\n" for record in records)
    with pq.ParquetFile(twin(text, "steps")) as file:
        reader = ColumnarReader(Path("x.parquet"), file)
        reader.footer.layouts = []
        back = [msgspec.json.decode(line) for line in reader.raw_lines()]
    known = columns_of("steps")
    for record, again in zip(records, back, strict=True):
        assert again == {name: value for name, value in record.items() if value is not None or name not in known}
