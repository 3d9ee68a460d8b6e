"""Only regular files are opened, and nothing is waited for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tokenyard.errors import FileError
from tokenyard.files import open_input, read_input


def test_a_regular_file_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"text")
    with open_input(path) as file:
        assert file.read() == b"text"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(FileError, match="pipe: is no file on a disk"):
        open_input(path)


@pytest.mark.parametrize(
    ("name", "problem"),
    [("absent", "No such file"), (".", "is a directory"), ("a\0b", "no such file"), ("x" * 300, "too long")],
)
def test_what_cannot_be_opened_is_named(name: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(FileError, match=problem):
        open_input(f"{tmp_path}/{name}")


def test_a_small_file_that_is_not_small_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"12345")
    assert read_input(path, 5) == b"12345"
    with pytest.raises(FileError, match="larger than 4 bytes"):
        read_input(path, 4)
