"""Running the command line: in a process of its own, as a user does, or in this one, which is faster."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from tokenyard.cli.main import main

__all__ = ["Outcome", "call", "environment", "tokenyard"]


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


def environment(extra: dict[str, str] | None = None) -> dict[str, str]:
    """This process's environment without trace settings; a terminal of 100 columns for a command that asks."""
    kept = {name: value for name, value in os.environ.items() if "SCHED_TRACE" not in name}
    return kept | {"COLUMNS": "100", "NO_COLOR": "1"} | (extra or {})


def tokenyard(*arguments: str | Path, cwd: Path, env: dict[str, str] | None = None) -> Outcome:
    """Run ``tokenyard`` in ``cwd``, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tokenyard.cli.main", *map(str, arguments)],
        cwd=cwd,
        env=environment(env),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def call(*arguments: str | Path, cwd: Path, env: dict[str, str] | None = None) -> Outcome:
    """Run ``tokenyard`` in ``cwd``, in this process; an unexpected exception comes through."""
    stdout, stderr = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(cwd),
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
        mock.patch.dict(os.environ, environment(env), clear=True),
    ):
        try:
            code: object = main([str(argument) for argument in arguments])
        except SystemExit as left:  # once a help is printed
            code = left.code
    assert isinstance(code, int)
    return Outcome(code, stdout.getvalue(), stderr.getvalue())
