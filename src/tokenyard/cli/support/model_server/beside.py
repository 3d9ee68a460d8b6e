"""The viewer beside a server, on its trace."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tokenyard.cli.support.flags import ViewCommand
from tokenyard.cli.view import show


@contextmanager
def viewing(trace: Path, *, has_key: bool) -> Iterator[None]:
    """The viewer on ``trace``, in a process of its own, which prints its address.

    It ends when the pipe to it is closed, so that it does not outlive this, however this process ends. ``has_key``: its
    address holds a key, and nothing is shown without.
    """
    command = [sys.executable, "-m", "tokenyard.cli.support.model_server.beside", str(trace)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE)
    assert process.stdin is not None
    try:
        with suppress(BrokenPipeError):
            process.stdin.write((secrets.token_urlsafe(24) if has_key else "").encode() + b"\n")
            process.stdin.flush()
        yield
    finally:
        process.terminate()
        process.wait()
        with suppress(BrokenPipeError):
            process.stdin.close()


# ---------------------------------------------------------------------------------------------------------------------
# The viewer beside a server: its key comes by a pipe, and it ends when the pipe does.


def _end_with_the_server() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


def main() -> int:
    """Show the trace that is named, until the server ends."""
    key = sys.stdin.buffer.readline().decode().strip()
    threading.Thread(target=_end_with_the_server, name="tokenyard-server-ended", daemon=True).start()
    return show(ViewCommand(paths=(Path(sys.argv[1]),)), key=key or None)


if __name__ == "__main__":
    sys.exit(main())
