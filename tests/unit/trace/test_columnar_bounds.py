"""A Parquet file costs what its size warrants: bombs are refused by name, and a list of traces reads footers only."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokenyard.errors import TraceError
from tokenyard.files.bounds import MIB, Bounds
from tokenyard.trace.columnar.convert import convert
from tokenyard.trace.columnar.reading import columnar_reader
from tokenyard.trace.read.files import raw_lines

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
from tokenyard.trace.read.files import raw_lines
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
