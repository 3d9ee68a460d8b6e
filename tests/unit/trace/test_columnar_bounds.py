"""A Parquet file costs what its size warrants, and whatever it does to the process that decodes it is one error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokenyard.errors import TraceError
from tokenyard.files import MIB, Bounds
from tokenyard.trace.columnar.reading import ColumnarHeads, columnar_head, columnar_lines
from tokenyard.trace.convert import convert
from tokenyard.trace.reader import raw_lines

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
from tokenyard.trace.reader import raw_lines
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


@pytest.mark.slow
def test_rows_come_in_pieces_and_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENYARD_MAX_UNPACKED_MB", "64")
    path = write(tmp_path / "a.steps.parquet", 7, policy=repeated("a" * MIB, 40))
    lines = list(raw_lines(path))
    assert [int(line[len('{"event":"step_snapshot","step":') :].split(b",")[0]) for line in lines] == list(range(40))
    assert all(len(line) > MIB for line in lines)


@pytest.mark.slow
def test_many_values_in_next_to_no_room_are_refused(tmp_path: Path) -> None:
    count = 40_000_000
    values = pa.ListArray.from_arrays(pa.array([0, count], pa.int32()), pa.array(np.zeros(count, np.int32)))
    path = write(tmp_path / "a.steps.parquet", num_accepted_tokens_per_pos=values)
    assert path.stat().st_size < 200_000
    with pytest.raises(TraceError, match="TOKENYARD_MAX_LINE_MB"):
        list(raw_lines(path))
    with pytest.raises(TraceError, match=r"a\.steps\.parquet: .*100 MiB.*TOKENYARD_MAX_PARQUET_MB"):
        list(columnar_lines(path, Bounds(parquet_mb=100)))


def test_the_footer_holds_the_facts_for_a_list(tmp_path: Path) -> None:
    source = tmp_path / "a.steps.jsonl"
    source.write_text(
        '{"event":"trace_start","policy":"fcfs","host":"replay","block_size":16}\n'
        '{"event":"step_snapshot","step":3,"total_blocks":99}\n'
        '{"event":"step_snapshot","step":4,"total_blocks":98}\n'
    )
    target = tmp_path / "b.steps.parquet"
    convert(source, target, "steps")
    head = columnar_head(target)
    facts = head.facts
    assert (head.kind, head.bad_lines, head.last_step) == ("steps", 0, 4)
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


@pytest.mark.slow
def test_a_footer_that_lies_about_sizes_does_no_harm(tmp_path: Path) -> None:
    path = lying(tmp_path / "a.steps.parquet", 20)
    assert pq.read_metadata(path).row_group(0).column(2).total_uncompressed_size == 1_000
    assert len(list(columnar_lines(path, Bounds(unpacked_mb=64)))) == 20


@pytest.mark.slow
def test_decoding_within_too_little_memory_is_one_error(tmp_path: Path) -> None:
    path = write(tmp_path / "a.steps.parquet", policy=pa.array([f"{i:03}" + "x" * 200_000 for i in range(300)]))
    with pytest.raises(TraceError, match=r"a\.steps\.parquet: .*8 MiB.*TOKENYARD_MAX_PARQUET_MB"):
        list(columnar_lines(path, Bounds(parquet_mb=8, unpacked_mb=64)))


@pytest.mark.slow
def test_a_changed_footer_is_borne_or_one_error_whatever_pyarrow_makes_of_it(tmp_path: Path) -> None:
    """It ends its process over some of them, among them a column that contradicts itself: the next file is read."""
    path = write(tmp_path / "a.steps.parquet", policy=pa.array(["fcfs"] * 3))
    sound, told = path.read_bytes(), []
    with ColumnarHeads() as heads:
        for at in range(len(sound) - 8 - int.from_bytes(sound[-8:-4], "little"), len(sound)):
            path.write_bytes(sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :])
            try:
                heads.head(path)
            except TraceError as error:
                told.append(str(error))
                if "ended with SIG" in told[-1]:
                    with pytest.raises(TraceError, match=r"a\.steps\.parquet: damaged"):
                        list(raw_lines(path))
        path.write_bytes(sound)
        assert heads.head(path).last_step == 2
    assert all(each.startswith(f"{path}: ") for each in told)
    assert any("ended with SIG" in each for each in told)
    assert any("no Parquet file" in each for each in told)


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


@pytest.mark.slow
def test_blank_lines_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tokenyard.files.FREE_RATIO", 1)
    rows, path = 2_000_000, tmp_path / "a.requests.parquet"
    pq.write_table(pa.table({"_raw": pa.array([b""] * rows), "step": pa.nulls(rows, pa.int32())}), path)
    taken: list[bytes] = []
    with pytest.raises(TraceError, match="TOKENYARD_MAX_UNPACKED_MB"):
        taken.extend(columnar_lines(path, Bounds(unpacked_mb=1)))
    assert set(taken) <= {b"\n"}


def test_a_file_without_a_column_of_ours_is_none(tmp_path: Path) -> None:
    path = tmp_path / "a.steps.parquet"
    pq.write_table(pa.table({"x": [1]}).replace_schema_metadata({"tokenyard.kind": "steps"}), path)
    with pytest.raises(TraceError, match="none of the columns of one"):
        list(raw_lines(path))
