"""Hostile inputs, one after the other, in processes that may use a second of this and a gigabyte of that.

A worker runs commands in its own process, under a limit of memory and an alarm: what a command must never do is end in
a traceback, take longer than the alarm or more memory than the limit, or kill its process.
"""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import resource
import signal
import sys
import traceback
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from fuzzing.corpus import Seed, seeds
from fuzzing.mutations import mutated

__all__ = ["Failure", "fuzz_inputs"]

SECONDS = 20
"""For one command."""
MEMORY = 1 << 30
"""Bytes of address space beyond what the worker holds when it starts."""
_ALLOWED = {0, 1, 2}


class Failure(NamedTuple):
    """An input that a command did not bear."""

    what: str
    command: tuple[str, ...]
    name: str
    """Name of the seed."""
    data: bytes
    said: str


class _TooLong(BaseException):
    """The alarm: not an Exception, so that no reader takes it for bad input."""


def ring(signum: int, frame: object) -> None:
    raise _TooLong


def _grown_by(size: int) -> int:
    with Path("/proc/self/statm").open() as file:
        return int(file.read().split()[0]) * resource.getpagesize() + size


def _serve(door: Connection, folder: Path) -> None:
    """Run commands for ever, each in ``folder``, and answer (exit code, what was wrong, words)."""
    from tokenyard.cli.main import main  # noqa: PLC0415 - in the worker alone

    os.chdir(folder)
    signal.signal(signal.SIGALRM, ring)
    with contextlib.suppress(ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (_grown_by(MEMORY), resource.RLIM_INFINITY))
    while True:
        command = door.recv()
        if command is None:
            return
        door.send(run_once(main, command))


def run_once(main: Any, command: tuple[str, ...]) -> tuple[int | None, str, str]:
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            signal.alarm(SECONDS)
            try:
                code = main(list(command))
            except SystemExit as left:
                code = left.code if isinstance(left.code, int) else 2
            finally:
                signal.alarm(0)
    except _TooLong:
        return None, f"longer than {SECONDS} s", "".join(traceback.format_exc()[-3000:])
    except BaseException:  # noqa: BLE001 - whatever it is, it is the finding
        return None, "a traceback", traceback.format_exc()[-3000:]
    words = said.getvalue()
    if code not in _ALLOWED:
        return code, f"exit code {code}", words[-2000:]
    if "Traceback (most recent call last)" in words:
        return code, "a traceback was printed", words[-3000:]
    if "\x1b]" in words or "\x1b[2J" in words:
        return code, "a terminal escape was printed", repr(words[-2000:])
    return code, "", ""


class Worker:
    """A process that is replaced when it dies."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._door, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, self._folder), daemon=True)
        self._process.start()
        theirs.close()

    def run(self, command: tuple[str, ...]) -> tuple[str, str]:
        """What was wrong, and what was said; two empty texts if nothing was."""
        try:
            self._door.send(command)
            if self._door.poll(3 * SECONDS):
                _, what, said = self._door.recv()
                return what, said
            what = f"longer than {3 * SECONDS} s, deaf to signals"
        except (EOFError, BrokenPipeError, ConnectionResetError):
            self._process.join(5)
            what = f"the process died: {self._process.exitcode}"
        self._process.kill()
        self._process.join()
        self._start()
        return what, ""

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._door.send(None)
        self._process.join(5)
        self._process.kill()


def fuzz_inputs(count: int, seed: int, folder: Path) -> Iterator[Failure | None]:
    """``count`` hostile inputs, each to one command that reads such files; None for one that was borne."""
    random = Random(seed)
    corpus = seeds(folder)
    others = [each.data for each in corpus]
    place = folder / "place"
    place.mkdir()
    worker = Worker(place)
    try:
        for _ in range(count):
            origin = random.choice(corpus)
            yield _one(worker, place, origin, mutated(origin.data, others, random), random)
    finally:
        worker.close()


def _one(worker: Worker, place: Path, origin: Seed, data: bytes, random: Random) -> Failure | None:
    path = place / origin.name
    path.write_bytes(data)
    command = tuple(part.replace("{}", origin.name) for part in random.choice(origin.commands))
    what, said = worker.run(command)
    path.unlink(missing_ok=True)
    return Failure(what, command, origin.name, data, said) if what else None


if __name__ == "__main__":
    sys.exit("run scripts/fuzz.py")
