"""Calls in a process of their own: what comes back is the answer and nothing else."""

from __future__ import annotations

import os

import pytest

from tokenyard.trace.columnar.query import in_child_process


def chatter(value: int) -> int:
    """Writes to standard output in every way that there is, as a library may."""
    print("how far it is", flush=True)
    os.write(1, b"\r50% ")
    if value < 0:
        raise ValueError("negative")
    return value + 1


def test_what_a_library_prints_is_no_part_of_the_answer() -> None:
    assert in_child_process(chatter, 1, seconds=60) == 2


def test_nor_of_an_error() -> None:
    with pytest.raises(ValueError, match="negative"):
        in_child_process(chatter, -1, seconds=60)
