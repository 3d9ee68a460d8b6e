"""How a long question ends that is told to stop: what was found so far is said before the process goes."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ends_after_saying() -> Iterator[None]:
    """SIGTERM is taken as Ctrl-C is: what was found so far is said. Then the process ends by it all the same."""
    process, before = os.getpid(), signal.getsignal(signal.SIGTERM)

    def end(*_: object) -> None:
        if os.getpid() != process:  # a worker
            os._exit(128 + signal.SIGTERM)
        raise _TerminatedError

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGTERM, end)
    try:
        yield
    except _TerminatedError:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        sys.stderr.flush()
        os.kill(process, signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)


class _TerminatedError(KeyboardInterrupt):
    """SIGTERM came."""
