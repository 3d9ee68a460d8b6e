"""Lines of packed and plain files, within bounds that are told before memory is spent."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tokenyard.errors import ConfigError, FileError
from tokenyard.files import MIB, Bounds, DamagedFileError, bounded_lines

pa = pytest.importorskip("pyarrow")

SMALL = Bounds(line_mb=1, unpacked_mb=2)


def packed(path: Path, pieces: list[bytes]) -> Path:
    """A file with these pieces, packed as its name says."""
    if path.suffix == ".zst":
        with pa.CompressedOutputStream(str(path), "zstd") as out:
            for piece in pieces:
                out.write(piece)
    else:
        with gzip.open(path, "wb") if path.suffix == ".gz" else path.open("wb") as file:
            file.writelines(pieces)
    return path


def read(path: Path) -> tuple[list[bytes], FileError | None]:
    """The lines up to the first problem, and the problem."""
    lines = []
    try:
        for line in bounded_lines(path, bounds=SMALL):
            lines.append(line)  # noqa: PERF402
    except FileError as error:
        return lines, error
    return lines, None


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst"])
def test_lines_come_as_they_are(name: str, tmp_path: Path) -> None:
    path = packed(tmp_path / name, [b"one\n", b"\n", b"two"])
    assert list(bounded_lines(path)) == [b"one\n", b"\n", b"two"]


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst"])
def test_a_line_may_be_as_long_as_the_bound(name: str, tmp_path: Path) -> None:
    path = packed(tmp_path / name, [b"x" * (MIB - 1), b"\n", b"y" * MIB])
    assert [len(line) for line in bounded_lines(path, bounds=SMALL)] == [MIB, MIB]


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst"])
def test_a_longer_line_is_named_with_what_allows_it(name: str, tmp_path: Path) -> None:
    path = packed(tmp_path / name, [b"short\n", b"x" * (MIB + 1)])
    with pytest.raises(FileError, match=f"{name}: line 2 is longer than 1 MiB.* TOKENYARD_MAX_LINE_MB"):
        list(bounded_lines(path, bounds=SMALL))


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst"])
def test_much_that_unpacks_from_little_is_refused(name: str, tmp_path: Path) -> None:
    path = packed(tmp_path / name, [b"x" * (MIB - 1) + b"\n"] * 100)
    taken, problem = read(path)
    assert "TOKENYARD_MAX_UNPACKED_MB" in str(problem)
    assert sum(map(len, taken)) <= max(2 * MIB, 250 * path.stat().st_size) < 100 * MIB


def test_a_plain_file_may_be_of_any_size(tmp_path: Path) -> None:
    path = packed(tmp_path / "a.jsonl", [(b"x" * 999 + b"\n") * 1000] * 4)
    assert sum(map(len, bounded_lines(path, bounds=SMALL))) == 4_000_000


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst"])
def test_what_stands_before_a_cut_is_read(name: str, tmp_path: Path) -> None:
    path = packed(tmp_path / name, [os.urandom(50).hex().encode() + b"\n" for _ in range(20_000)])
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    lines, problem = read(path)
    assert isinstance(problem, DamagedFileError)
    assert f"cut off or damaged after line {len(lines)}" in problem.problem
    assert len(lines) > 1000


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak of memory from /proc")
def test_three_gigabytes_in_one_line_cost_little_memory(tmp_path: Path) -> None:
    path = packed(tmp_path / "bomb.jsonl.zst", [bytes(64 * MIB)] * 48)
    assert path.stat().st_size < MIB
    script = (
        "import re, resource, sys; resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))\n"
        "from pathlib import Path\n"
        "from tokenyard.errors import FileError\n"
        "from tokenyard.files import bounded_lines\n"
        "try:\n    list(bounded_lines(Path(sys.argv[1])))\n"
        "except FileError as error:\n"
        # Not `ru_maxrss`: a new process starts with the peak of the one that started it.
        "    print(error, *re.findall(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text()))\n"
    )
    done = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, check=True, timeout=60)
    assert "line 1 is longer than 16 MiB" in done.stdout
    assert int(done.stdout.split()[-1]) < 400_000  # kilobytes


@pytest.mark.parametrize("text", ["0", "-1", "many", "1.5", "9" * 30, "\N{SUPERSCRIPT TWO}"])
def test_a_bound_that_is_no_number_is_named(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENYARD_MAX_LINE_MB", text)
    with pytest.raises(ConfigError, match="TOKENYARD_MAX_LINE_MB"):
        Bounds.from_env()


def test_the_environment_raises_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENYARD_MAX_LINE_MB", "64")
    assert Bounds.from_env() == Bounds(line_mb=64)
