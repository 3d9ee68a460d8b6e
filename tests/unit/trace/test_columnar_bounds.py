"""A Parquet file costs what its size warrants: bombs are refused by name, and a list of traces reads footers only."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokenyard.errors import TraceError
from tokenyard.files import MIB, Bounds
from tokenyard.trace.columnar.convert import convert
from tokenyard.trace.columnar.footer import I32, PageSizes, ThriftReader
from tokenyard.trace.columnar.reading import columnar_reader
from tokenyard.trace.files import raw_lines

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

ROWS = 4_096
MEGABYTES = 1_024
"""Memory of a process that reads, all its libraries included."""


def write(path: Path, row_group_size: int = ROWS, **columns: Any) -> Path:
    """A Parquet file with these columns beside ``step`` and ``event``."""
    rows = len(next(iter(columns.values())))
    table = {"step": pa.array(range(rows), pa.int32()), "event": pa.array(["step_snapshot"] * rows)}
    pq.write_table(
        pa.table(table | columns), path, compression="zstd", store_schema=False, row_group_size=row_group_size
    )
    return path


def repeated(text: str, rows: int = ROWS) -> Any:
    """A column with one text in every row, which takes no memory here either."""
    return pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([text]))


def in_little_memory(code: str, *arguments: Path) -> str:
    """What ``code`` prints in a process that may have no more than ``MEGABYTES``."""
    limit = f"import resource, sys; resource.setrlimit(resource.RLIMIT_DATA, ({MEGABYTES} << 20,) * 2)\n"
    done = subprocess.run(
        [sys.executable, "-c", limit + code, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


COUNT = """
from pathlib import Path
from tokenyard.errors import TraceError
from tokenyard.trace.files import raw_lines
longest = lines = 0
try:
    for line in raw_lines(Path(sys.argv[1])):
        lines += 1
        longest = max(longest, len(line))
except TraceError as error:
    print("refused:", error)
print(lines, "lines")
"""


@pytest.mark.slow
def test_a_text_in_every_row_is_not_multiplied_by_the_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "a.steps.parquet", policy=repeated("a" * 3_000_000))
    assert path.stat().st_size < 20_000
    told = in_little_memory(COUNT, path)
    assert "TOKENYARD_MAX_UNPACKED_MB" in told
    assert "1 lines" in told


@pytest.mark.slow
@pytest.mark.parametrize("nested", ["list", "map", "struct"])
def test_a_text_in_every_element_is_counted(nested: str, tmp_path: Path) -> None:
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 400, pa.int32()), pa.array(["b" * 100_000]))
    offsets = pa.array([0, 200, 400], pa.int32())
    columns = {
        "list": lambda: {"running_req_ids": pa.ListArray.from_arrays(offsets, text)},
        "map": lambda: {
            "num_scheduled_tokens": pa.MapArray.from_arrays(offsets, text, pa.array([1] * 400, pa.int32()))
        },
        "struct": lambda: {
            "skipped": pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays([text], ["reason"]))
        },
    }
    path = write(tmp_path / "a.steps.parquet", **columns[nested]())
    with pytest.raises(TraceError, match=r"line 1 is longer than 16 MiB.*TOKENYARD_MAX_LINE_MB"):
        list(raw_lines(path))


def test_rows_come_in_pieces_and_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENYARD_MAX_UNPACKED_MB", "64")
    path = write(tmp_path / "a.steps.parquet", 7, policy=repeated("a" * MIB, 40))
    lines = list(raw_lines(path))
    assert [int(line[len('{"event":"step_snapshot","step":') :].split(b",")[0]) for line in lines] == list(range(40))
    assert all(len(line) > MIB for line in lines)


@pytest.mark.parametrize(
    ("bounds", "problem"),
    [
        (Bounds(column_mb=1), r"column 'policy' of row group 0 is larger than 1 MiB.*TOKENYARD_MAX_COLUMN_MB"),
        (Bounds(row_group_mb=1), r"row group 0 is larger than 1 MiB.*TOKENYARD_MAX_ROW_GROUP_MB"),
    ],
)
def test_the_footer_tells_what_is_too_large(bounds: Bounds, problem: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.steps.parquet", policy=pa.array([f"{i:02}" + "x" * 200_000 for i in range(20)]))
    with pytest.raises(TraceError, match=problem), columnar_reader(path, bounds) as reader:
        list(reader.raw_lines())
    with pytest.raises(TraceError, match=problem), columnar_reader(path, bounds) as reader:
        reader.check()


@pytest.mark.slow
def test_many_values_in_next_to_no_room_are_refused(tmp_path: Path) -> None:
    count = 40_000_000
    values = pa.ListArray.from_arrays(pa.array([0, count], pa.int32()), pa.array(np.zeros(count, np.int32)))
    path = write(tmp_path / "a.steps.parquet", num_accepted_tokens_per_pos=values)
    assert path.stat().st_size < 200_000
    with pytest.raises(TraceError, match="TOKENYARD_MAX_COLUMN_MB"):
        list(raw_lines(path))


def test_the_footer_holds_the_facts_for_a_list(tmp_path: Path) -> None:
    source = tmp_path / "a.steps.jsonl"
    source.write_text(
        '{"event":"trace_start","policy":"fcfs","host":"replay","block_size":16}\n'
        '{"event":"step_snapshot","step":3,"total_blocks":99}\n'
        '{"event":"step_snapshot","step":4,"total_blocks":98}\n'
    )
    target = tmp_path / "b.steps.parquet"
    convert(source, target, "steps")
    with columnar_reader(target) as reader:
        facts = reader.facts()
    assert (facts.policy, facts.host, facts.block_size, facts.total_blocks, facts.first_step) == (
        "fcfs",
        "replay",
        16,
        99,
        3,
    )


def lying(path: Path, count: int) -> Path:
    """A file whose footer says that its texts, of a megabyte each, take next to no room."""
    texts = pa.array(["c" * 1_000_000 + str(i) for i in range(count)])
    honest = write(path.with_suffix(".honest"), policy=texts)
    data, column = honest.read_bytes(), pq.read_metadata(honest).row_group(0).column(2)
    told, lie = zigzag(column.total_uncompressed_size), zigzag(1_000)
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    assert told in data[footer:]
    path.write_bytes(data[:footer] + data[footer:].replace(told, padded(lie, len(told)), 1))
    return path


def zigzag(value: int) -> bytes:
    """An integer as Thrift's compact protocol writes it."""
    value, digits = value << 1, b""
    while value > 127:
        digits, value = digits + bytes([value & 127 | 128]), value >> 7
    return digits + bytes([value])


def padded(digits: bytes, length: int) -> bytes:
    """The same integer in more bytes, so many."""
    return digits[:-1] + bytes([digits[-1] | 128]) + b"\x80" * (length - len(digits) - 1) + b"\x00"


def test_a_footer_that_lies_is_found_out_by_the_pages(tmp_path: Path) -> None:
    path = lying(tmp_path / "a.steps.parquet", 20)
    assert pq.read_metadata(path).row_group(0).column(2).total_uncompressed_size == 1_000
    problem = r"column 'policy' of row group 0 is larger than 1 MiB.*TOKENYARD_MAX_COLUMN_MB"
    with pytest.raises(TraceError, match=problem), columnar_reader(path, Bounds(column_mb=1)) as reader:
        list(reader.raw_lines())
    with pytest.raises(TraceError, match=problem), columnar_reader(path, Bounds(column_mb=1)) as reader:
        reader.check()
    with columnar_reader(path, Bounds(column_mb=64, unpacked_mb=64)) as reader:
        assert len(list(reader.raw_lines())) == 20


def test_a_file_of_tiny_pages_is_not_walked_to_its_end(tmp_path: Path) -> None:
    """A header of seven bytes: a data page of no bytes, without values; and many columns may lie on the same pages."""
    path = tmp_path / "pages"
    header = bytes([0x15, 0, 0x15, 0, 0x15, 0, 0])
    path.write_bytes(header * 90_000)
    with path.open("rb") as file:
        pages = PageSizes(file.fileno())
        assert pages.unpacked(0, len(header) * 100, MIB) == 0
        with pytest.raises(ValueError, match="too many pages"):
            pages.unpacked(0, len(header) * 90_000, MIB)


@pytest.mark.parametrize(
    "header", [b"", b"\x00", b"\xff" * 40, bytes([0x15, 0, 0x15, 1, 0]), bytes([0x1C]) * 40, b"\x19\x15", b"\x15" * 3]
)
def test_what_is_no_page_header_is_an_error(header: bytes, tmp_path: Path) -> None:
    path = tmp_path / "pages"
    path.write_bytes(header)
    with path.open("rb") as file, pytest.raises(ValueError, match=r"page header|metadata"):
        PageSizes(file.fileno()).unpacked(0, 100, MIB)


EVERY_BYTE = """
from pathlib import Path
from tokenyard.errors import TraceError
from tokenyard.trace.columnar.reading import columnar_reader
from tokenyard.trace.columnar.footer import I32, ThriftReader
path = Path(sys.argv[1])
sound = path.read_bytes()
borne = refused = 0
for at in range(len(sound) - 8 - int.from_bytes(sound[-8:-4], "little"), len(sound)):
    for change in (0x01, 0x10, 0xFF):
        path.write_bytes(sound[:at] + bytes([sound[at] ^ change]) + sound[at + 1 :])
        try:
            with columnar_reader(path) as reader:
                reader.check()
                reader.step_bounds()
                list(reader.raw_lines())
            borne += 1
        except TraceError:
            refused += 1
print(borne > 0, refused > 0)
"""


@pytest.mark.slow
def test_no_byte_of_a_footer_takes_the_process_down(tmp_path: Path) -> None:
    """pyarrow ends the process over a column whose statistics contradict it, unless it is read by its pages."""
    path = write(tmp_path / "a.steps.parquet", policy=pa.array(["fcfs"] * 3))
    assert in_little_memory(EVERY_BYTE, path) == "True True\n"


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("_raw", pa.array([b"x" * 500] * 2, pa.binary(500))),
        ("prompt_prefix", pa.array([[1] * 9] * 2, pa.large_list(pa.int32()))),
        ("prompt_prefix", pa.array([[1] * 9] * 2, pa.list_(pa.int32(), 9))),
        ("ts", pa.array([1, 2], pa.timestamp("us"))),
    ],
)
def test_columns_whose_text_cannot_be_told_are_refused(column: str, values: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.requests.parquet"
    pq.write_table(pa.table({"step": [1, 2], column: values}), path)
    with pytest.raises(TraceError, match=f"column '{column}' is of type .*, which no trace has"):
        list(raw_lines(path))


def test_a_list_of_many_small_objects_counts_its_objects(tmp_path: Path) -> None:
    entries = pa.StructArray.from_arrays([pa.array(np.zeros(900_000, np.int32))] * 2, ["num_requests", "wanted_tokens"])
    skipped = pa.ListArray.from_arrays(pa.array([0, 900_000], pa.int32()), entries)
    path = write(tmp_path / "a.steps.parquet", skipped=skipped)
    with pytest.raises(TraceError, match="line 1 is longer than 16 MiB"):
        list(raw_lines(path))


def test_blank_lines_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tokenyard.files._FREE_RATIO", 1)
    rows, path = 2_000_000, tmp_path / "a.requests.parquet"
    pq.write_table(pa.table({"_raw": pa.array([b""] * rows), "step": pa.nulls(rows, pa.int32())}), path)
    taken: list[bytes] = []
    problem = "TOKENYARD_MAX_UNPACKED_MB"
    with pytest.raises(TraceError, match=problem), columnar_reader(path, Bounds(unpacked_mb=1)) as reader:
        taken.extend(reader.raw_lines())
    assert set(taken) <= {b"\n"}


def test_a_file_without_a_column_of_ours_is_none(tmp_path: Path) -> None:
    path = tmp_path / "a.steps.parquet"
    pq.write_table(pa.table({"x": [1]}).replace_schema_metadata({"tokenyard.kind": "steps"}), path)
    with pytest.raises(TraceError, match="none of the columns of one"):
        list(raw_lines(path))


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ([(f"c{i}", pa.int8()) for i in range(5_001)], "5,002 columns"),
        ([("n" * 1_001, pa.int8())], "a name of 1,001 bytes"),
        ([("deep", pa.int8())], "nested more than 20 deep"),
    ],
)
def test_schemas_that_no_trace_has(schema: list[tuple[str, Any]], problem: str, tmp_path: Path) -> None:
    if schema[0][0] == "deep":
        kind = pa.int8()
        for _ in range(21):
            kind = pa.struct([("d", kind)])
        schema = [("deep", kind)]
    path = tmp_path / "a.steps.parquet"
    pq.write_table(pa.schema(schema).empty_table(), path)
    with pytest.raises(TraceError, match=problem):
        list(raw_lines(path))
    with pytest.raises(TraceError, match="TOKENYARD_MAX_FOOTER_MB"), columnar_reader(path, Bounds(footer_mb=0)):
        pass


@pytest.mark.parametrize(
    "footer",
    [
        bytes([0x15, 4, 0x05, 2, 4, 0]),  # field 1 twice
        bytes([0x16, 4, 0]),  # 64 bits where 32 are
        bytes([0x05, 0x80, 0x80, 0x08, 4, 0]),  # a field number that wraps
        bytes([0x18, 1, 0, 0]),  # bytes where a number is
    ],
)
def test_what_other_readers_would_read_otherwise_is_not_read(footer: bytes) -> None:
    with pytest.raises(ValueError, match="its metadata has"):
        ThriftReader(footer).struct({1: I32})
    assert ThriftReader(bytes([0x15, 4, 0])).struct({1: I32}) == {1: 2}
