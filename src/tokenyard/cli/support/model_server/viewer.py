"""The viewer beside a server: its key comes by a pipe, and it ends when the pipe does."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from tokenyard.cli.support.flags import View
from tokenyard.cli.view import show

__all__ = ["main"]


def _end_with_the_server() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


def main() -> int:
    """Show the trace that is named, until the server ends."""
    key = sys.stdin.buffer.readline().decode().strip()
    threading.Thread(target=_end_with_the_server, name="tokenyard-server-ended", daemon=True).start()
    return show(View(paths=(Path(sys.argv[1]),)), key=key or None)


if __name__ == "__main__":
    sys.exit(main())
