"""Running the command line as a user does: in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

__all__ = ["Outcome", "tokenyard"]


class Outcome(NamedTuple):
    """What a user sees."""

    code: int
    stdout: str
    stderr: str

    def refused(self, *fragments: str) -> None:
        """Assert that it ended as bad input has to: code 2, a message with all ``fragments``, no traceback."""
        assert self.code == 2, f"exit code {self.code}\n{self.stdout}\n{self.stderr}"
        assert "Traceback" not in self.stderr + self.stdout
        message = " ".join(self.stderr.split())
        for fragment in fragments:
            assert fragment in message, f"{fragment!r} is not in {message!r}"
        assert self.stdout == ""


def tokenyard(*arguments: str | Path, cwd: Path, env: dict[str, str] | None = None) -> Outcome:
    """Run ``tokenyard`` in ``cwd``; a terminal of 100 columns is assumed where it asks."""
    without = {name: value for name, value in os.environ.items() if not name.startswith(("SCHED_TRACE", "VLLM_SCHED"))}
    done = subprocess.run(
        [sys.executable, "-m", "tokenyard.cli.main", *map(str, arguments)],
        cwd=cwd,
        env=without | {"COLUMNS": "100", "NO_COLOR": "1"} | (env or {}),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)
