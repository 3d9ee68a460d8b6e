"""Functions that run in a process of their own, with bounds on its time and memory.

A library that decodes foreign data can take gigabytes in a single step, go on for minutes without looking at a clock,
or end the process that it runs in. Here it ends a process that has nothing else to do: it gets no more memory than it
may have, it is ended when its time is up, at once when its caller is interrupted, and soon after its caller died.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import IO, Any, NoReturn

_CODE = "from tokenyard.trace.columnar.child import answer; answer()"
_ENVIRONMENT = {"ARROW_DEFAULT_MEMORY_POOL": "system"}
"""pyarrow's own allocator takes a gigabyte in advance, which would count."""
_NO_MEMORY = 3
"""Exit status of a process that gets no more memory, where it can say so."""


class OutOfTimeError(Exception):
    """A function took longer than it may."""


class OutOfMemoryError(Exception):
    """A function was refused memory."""


class EndedError(Exception):
    """The process ended without a word; the message says how."""


class ChildProcess:
    """A process that calls generators of bytes, one after the other, and sends what they yield."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _CODE],
            env=os.environ | _ENVIRONMENT | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=1 << 16,
        )

    def call(self, function: Callable[..., Iterator[bytes]], *arguments: object, seconds: float) -> IO[bytes]:
        """Have ``function(*arguments)`` called; what it yields can be read.

        ``function`` is one of a module, its arguments can be pickled, and it may take ``seconds`` for each piece. It
        has to say where its answer ends: what can be read ends only with the process (:meth:`raise_end`).
        """
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):  # it has ended: there is nothing to read
            process.stdin.write(pickle.dumps((function, arguments, seconds)))
            process.stdin.flush()
        return process.stdout

    def ask(self, function: Callable[..., Any], *arguments: object, seconds: float) -> Any:
        """``function(*arguments)``, called there within so many seconds; what it raises is raised.

        What it gives back is pickled there: it must not come from foreign code. Raises OutOfTimeError and
        OutOfMemoryError, the latter also where the process ended without a word: then there is none any more.
        """
        try:
            raised, value = pickle.load(self.call(_outcome, function, arguments, seconds=seconds))
        except (EOFError, pickle.UnpicklingError):
            try:
                self.raise_end()
            except EndedError:
                raise OutOfMemoryError from None
        if raised:
            raise value
        return value

    def raise_end(self) -> NoReturn:
        """Raise what ended the process: OutOfTimeError, OutOfMemoryError or EndedError."""
        self._process.kill()
        ended = self._process.wait()
        if ended == _NO_MEMORY:
            raise OutOfMemoryError
        if ended == -getattr(signal, "SIGALRM", 0):
            raise OutOfTimeError
        raise EndedError(signal.Signals(-ended).name if ended < 0 else f"exit status {ended}")

    def __enter__(self) -> ChildProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the process, whatever it is doing."""
        self._process.kill()
        with suppress(BrokenPipeError), self._process:  # which closes the pipes and waits
            pass


def in_child_process(function: Callable[..., Any], *arguments: object, seconds: float) -> Any:
    """``function(*arguments)``, called in another process that ends then, as :meth:`ChildProcess.ask` does."""
    with ChildProcess() as child:
        return child.ask(function, *arguments, seconds=seconds)


def _outcome(function: Callable[..., Any], arguments: tuple[object, ...]) -> Iterator[bytes]:
    try:
        outcome = (False, function(*arguments))
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - raised on the other side
        outcome = (True, error)
    yield pickle.dumps(outcome)


def answer() -> None:
    """What the other process does: read calls, write what comes of them, until there are no more.

    Nothing else may be written there: DuckDB draws how far it is on standard output where that takes seconds.
    """
    said = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    if hasattr(signal, "SIGALRM"):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends the process, whatever it is in the middle of
    with suppress(EOFError, BrokenPipeError, KeyboardInterrupt):  # the caller has gone, or is about to go
        while True:
            function, arguments, seconds = pickle.load(sys.stdin.buffer)
            _end_in(seconds)
            try:
                for piece in function(*arguments):
                    _end_in(0)
                    said.write(piece)
                    said.flush()
                    _end_in(seconds)
            except MemoryError:
                os._exit(_NO_MEMORY)
            _end_in(0)


def _end_in(seconds: float) -> None:
    """End this process in so many seconds, where the system can; never for 0."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)


@cache
def keep_memory_within(megabytes: int) -> None:
    """Let this process take so much more memory than it has now, where the system can limit it; and leave no core."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return
    import resource  # noqa: PLC0415 - not everywhere

    taken = int(statm.read_text().split()[5]) * resource.getpagesize()
    most = taken + megabytes * 1024 * 1024
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard == resource.RLIM_INFINITY or most < hard:
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
