"""Functions in a process of their own: what comes back is the answer and nothing else, and nothing is left running."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from tokenyard.trace.columnar.child import (
    ChildProcess,
    EndedError,
    OutOfMemoryError,
    OutOfTimeError,
    in_child_process,
)


def chatter(value: int) -> int:
    """Writes to standard output in every way that there is, as a library may."""
    print("how far it is", flush=True)
    os.write(1, b"\r50% ")
    if value < 0:
        raise ValueError("negative")
    return value + 1


def slow() -> Iterator[bytes]:
    yield b"one\n"
    time.sleep(60)


def greedy() -> Iterator[bytes]:
    yield b"one\n"
    raise MemoryError


def crashing() -> Iterator[bytes]:
    yield b"one\n"
    os.kill(os.getpid(), signal.SIGSEGV)


def endless() -> Iterator[bytes]:
    for _ in itertools.count():
        yield b"%d\n" % os.getpid()


def test_what_a_library_prints_is_no_part_of_the_answer() -> None:
    assert in_child_process(chatter, 1, seconds=60) == 2


def test_nor_of_an_error() -> None:
    with pytest.raises(ValueError, match="negative"):
        in_child_process(chatter, -1, seconds=60)


@pytest.mark.parametrize(
    ("function", "error"), [(slow, OutOfTimeError), (greedy, OutOfMemoryError), (crashing, EndedError)]
)
def test_it_says_how_it_ended(function: Callable[[], Iterator[bytes]], error: type[Exception]) -> None:
    with ChildProcess() as child:
        assert child.call(function, seconds=0.5).read() == b"one\n"
        with pytest.raises(error):
            child.raise_end()


def counted(count: int) -> Iterator[bytes]:
    yield from (b"%d\n" % i for i in range(count))


def test_it_answers_one_call_after_the_other() -> None:
    with ChildProcess() as child:
        for count in (1, 3, 2):
            said = child.call(counted, count, seconds=60)
            assert [int(said.readline()) for _ in range(count)] == list(range(count))


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_caller_that_stops_reading_ends_it() -> None:
    with ChildProcess() as child:
        pid = int(child.call(endless, seconds=60).readline())
        assert is_there(pid)
    assert not is_there(pid)


CALLER = """
import os, signal
from tests.unit.trace.test_child import endless
from tokenyard.trace.columnar.child import ChildProcess
child = ChildProcess()
print(int(child.call(endless, seconds=60).readline()), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_caller_that_is_killed_leaves_none() -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", CALLER], env=environment, capture_output=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    pid, end = int(done.stdout), time.monotonic() + 20
    while is_there(pid) and time.monotonic() < end:
        time.sleep(0.05)
    assert not is_there(pid)
