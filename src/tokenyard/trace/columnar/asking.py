"""Calls a function in a process of its own, whose time and memory end where they are said to end.

DuckDB looks at the clock between two steps of its own and counts only some of its memory: one function of a long list
takes minutes, and gigabytes, in a single step. A process can be killed when its time is up, and gets no more memory
than it may have. It ends at once when the caller is interrupted, and soon after when the caller dies.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["OutOfMemoryError", "OutOfTimeError", "called_apart", "keep_memory_within"]

_CODE = "from tokenyard.trace.columnar.asking import answer; answer()"
_ORPHAN_SECONDS = 2.0
"""Beyond its time."""


class OutOfTimeError(Exception):
    """It took longer than it may."""


class OutOfMemoryError(Exception):
    """It ended without a word, as a process does that gets no memory."""


def called_apart(function: Callable[..., Any], *arguments: object, seconds: float) -> Any:
    """``function(*arguments)``, called in another process; what it raises is raised.

    ``function`` is one of a module, and all that passes can be pickled. Raises OutOfTimeError, OutOfMemoryError.
    """
    call = pickle.dumps((function, arguments, seconds))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    process = subprocess.Popen(
        [sys.executable, "-c", _CODE],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    with process:
        try:
            said, _ = process.communicate(call, timeout=seconds)
        except subprocess.TimeoutExpired:
            raise OutOfTimeError from None
        finally:
            process.kill()
    if process.returncode != 0:
        raise OutOfMemoryError
    raised, value = pickle.loads(said)
    if raised:
        raise value
    return value


def answer() -> None:
    """What the other process does: read the call, write what comes of it.

    Nothing else may be written there: DuckDB draws how far it is on standard output where that takes seconds.
    """
    said = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    function, arguments, seconds = pickle.load(sys.stdin.buffer)
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends the process, whatever it is in the middle of
        signal.setitimer(signal.ITIMER_REAL, seconds + _ORPHAN_SECONDS)
    try:
        outcome = (False, function(*arguments))
    except MemoryError:
        sys.exit(1)
    except Exception as error:  # noqa: BLE001 - raised on the other side
        outcome = (True, error)
    with said:
        said.write(pickle.dumps(outcome))


def keep_memory_within(megabytes: int) -> None:
    """Let this process take so much more memory than it has now, where the system can limit it."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return
    import resource  # noqa: PLC0415 - not everywhere

    taken = int(statm.read_text().split()[0]) * resource.getpagesize()
    most = taken + megabytes * 1024 * 1024
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard == resource.RLIM_INFINITY or most < hard:
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
