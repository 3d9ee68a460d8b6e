"""``tokenyard parity`` on the project's own vectors, on damaged ones and on ones that differ."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from tests.integration.command import call

Lines = list[dict[str, Any]]


def read(path: Path) -> Lines:
    with gzip.open(path, "rt") as file:
        return [json.loads(line) for line in file]


def write(path: Path, lines: Lines) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture
def lines(vectors: Path) -> Lines:
    return read(vectors / "fcfs.jsonl.gz")


@pytest.fixture
def steps(vectors: Path) -> dict[str, int]:
    """How many steps each of the project's vectors holds, as its recorder counted them."""
    counted: dict[str, int] = json.loads((vectors / "manifest.json").read_text())["steps"]
    return counted


def test_equal_files_end_with_one_line(vectors: Path, steps: dict[str, int], tmp_path: Path) -> None:
    outcome = call("parity", vectors / "fcfs.jsonl.gz", vectors / "pressure.jsonl.gz", cwd=tmp_path)
    assert outcome.code == 0, outcome.stderr
    assert outcome.stdout == f"2 files, {steps['fcfs'] + steps['pressure']} steps, all equal\n"
    assert outcome.stderr == ""


def test_json_is_one_object(vectors: Path, steps: dict[str, int], tmp_path: Path) -> None:
    outcome = call("parity", vectors / "fcfs.jsonl.gz", "--json", cwd=tmp_path)
    found = json.loads(outcome.stdout)
    assert found["files"] == 1
    assert found["all_equal"] is True
    assert found["steps"] == found["results"][0]["steps"] == steps["fcfs"]


def test_first_difference_shows_both_sides(lines: Lines, tmp_path: Path) -> None:
    tick = next(line for line in lines[1:] if "s" in line and line["s"]["nst"])
    tokens = tick["s"]["nst"][0][1]
    tick["s"]["nst"][0][1] = tokens + 1
    outcome = call("parity", write(tmp_path / "changed.jsonl", lines), cwd=tmp_path)
    assert outcome.code == 1
    assert f"changed.jsonl: tick {tick['t']}, schedule.nst[0][1]" in outcome.stdout
    assert f"ours  {tokens}\n" in outcome.stdout
    assert f"vLLM  {tokens + 1}\n" in outcome.stdout
    assert outcome.stdout.splitlines()[-1].endswith("1 file different")


def test_unsupported_is_never_equal(lines: Lines, vectors: Path, steps: dict[str, int], tmp_path: Path) -> None:
    lines[0]["config"]["prefill_schedule_interval"] = 2
    alone = write(tmp_path / "parallel.jsonl", lines)
    outcome = call("parity", alone, cwd=tmp_path)
    assert outcome.code == 2
    assert "1 file not compared: setting prefill_schedule_interval" in outcome.stdout
    assert outcome.stdout.splitlines()[-1] == "0 files, 0 steps, 1 file unsupported"
    beside = call("parity", alone, vectors / "fcfs.jsonl.gz", cwd=tmp_path)
    assert beside.code == 2
    assert beside.stdout.splitlines()[-1] == f"1 file, {steps['fcfs']} steps, 1 file unsupported"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "empty file"),
        (b"not json\n", ":1: not the header"),
        (b'{"name": "x"}\n', ":1: not the header"),
        (b"[1, 2]\n", ":1: not the header"),
    ],
)
def test_damaged_header(content: bytes, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(content)
    outcome = call("parity", path, cwd=tmp_path)
    assert outcome.code == 2
    assert problem in outcome.stderr
    assert "Traceback" not in outcome.stderr
    assert outcome.stdout == "0 files, 0 steps, 1 file damaged\n"


def test_truncated_file_line_and_recording(vectors: Path, steps: dict[str, int], lines: Lines, tmp_path: Path) -> None:
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes((vectors / "fcfs.jsonl.gz").read_bytes()[:-200])
    torn = tmp_path / "torn.jsonl"
    torn.write_text(json.dumps(lines[0]) + "\n" + json.dumps(lines[1])[:-10] + "\n")
    short = write(tmp_path / "short.jsonl", lines[:-1])
    outcome = call("parity", cut, torn, short, vectors / "fcfs.jsonl.gz", cwd=tmp_path)
    assert outcome.code == 2
    assert "cut.jsonl.gz: compressed data is cut off" in outcome.stderr
    assert "torn.jsonl:2: not JSON" in outcome.stderr
    assert f"short.jsonl: cut short: it holds {len(lines) - 2} of the {len(lines) - 1} ticks" in outcome.stderr
    assert outcome.stdout == f"1 file, {steps['fcfs']} steps, 3 files damaged\n"


def test_no_file_and_empty_directory(tmp_path: Path) -> None:
    call("parity", cwd=tmp_path).refused("at least one golden vector")
    call("parity", tmp_path, cwd=tmp_path).refused("no *.jsonl")
    outcome = call("parity", "absent.jsonl.gz", cwd=tmp_path)
    assert outcome.code == 2
    assert "absent.jsonl.gz: no such file" in outcome.stderr
    assert outcome.stdout == "0 files, 0 steps, 1 file missing\n"
    told = json.loads(call("parity", "absent.jsonl.gz", "--json", cwd=tmp_path).stdout)
    assert (told["missing"], told["damaged"], told["all_equal"]) == (["absent.jsonl.gz"], [], False)
