"""The thread that writes can go on, at whatever instruction a caller is interrupted on the way to it."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import pytest

from tokenyard.record.writer import LineFile, WriterThread
from tokenyard.trace.schema import RequestRecord

BATCHES = 3


class Interrupt:
    """Ctrl-C at the n-th instruction of the interpreter within ``WriterThread`` and what it calls."""

    def __init__(self, after: int) -> None:
        self.left = after

    def __call__(self, frame: FrameType, event: str, arg: object) -> Any:
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt
        return self


def failed(error: Exception) -> None:
    raise error


def hand_over(writer: WriterThread, file: LineFile) -> None:
    for number in range(BATCHES):
        file.append(RequestRecord(step=number, req_id="a"))
        writer.put(file)
        writer.drain()


def interrupted(after: int, path: Path) -> tuple[bool, WriterThread, LineFile]:
    """Whether it came to that many instructions; nothing is stopped yet."""
    writer, file = WriterThread(failed), LineFile(path)
    file.append(RequestRecord(step=-1, req_id="first"))
    writer.put(file)  # starts the thread, which is another matter
    traced = sys.gettrace()
    # Python 3.12 looks for frames that want instructions only when tracing begins.
    sys._getframe().f_trace_opcodes = True  # noqa: SLF001 - Python's own
    sys.settrace(Interrupt(after))
    try:
        hand_over(writer, file)
    except KeyboardInterrupt:
        return True, writer, file
    finally:
        sys.settrace(traced)
    return False, writer, file


@pytest.mark.slow
def test_an_interrupt_anywhere_leaves_no_lock_behind(tmp_path: Path) -> None:
    """Else the thread would wait for ever, and the process that ends for the thread."""
    after, went_on = 1, True
    while went_on:
        path = tmp_path / str(after)
        went_on, writer, file = interrupted(after, path)
        thread = writer.thread
        assert thread is not None
        writer.put(file)
        stopping = threading.Thread(target=writer.stop, daemon=True)
        stopping.start()
        thread.join(10)
        assert not thread.is_alive(), f"an interrupt at instruction {after} stops the thread for ever"
        stopping.join(10)
        steps = [msgspec.json.decode(line)["step"] for line in path.read_bytes().splitlines()]
        assert steps == sorted(set(steps)), "whole lines, each once, in order"
        file.discard()
        after += 1
    assert after > 100, "it was interrupted often"
