"""Both ends of a benchmark's worker process: orders and answers are JSON, one a line.

    order   ─ stdin ──►   worker   ─ stdout ─►   answer

Anything a worker's libraries print goes to its stderr, which is shown if it dies.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["Side", "answer"]

HERE = Path(__file__).resolve().parent
REPO = HERE.parent


class Side:
    """A process that measures on demand."""

    def __init__(
        self, python: str | Path, script: str, args: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> None:
        """``script`` lies among the benchmarks."""
        self.script = script
        self._errors: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115 - lives as long as the worker
        paths = os.pathsep.join(map(str, (HERE, REPO / "scripts", REPO / "src")))
        self._process = subprocess.Popen(
            [python, HERE / script, *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={**os.environ, "PYTHONPATH": paths, **(environment or {})},
        )

    def ask(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to an order; exits with the worker's last words if it dies."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(order) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self._errors.seek(0)
            sys.exit(f"{self.script} ended while measuring:\n{self._errors.read()[-3000:]}")
        answered: dict[str, Any] = json.loads(line)
        return answered

    def close(self) -> None:
        """Let it end."""
        self._process.communicate()


def answer(reply: Callable[[dict[str, Any]], Mapping[str, Any]]) -> None:
    """The worker's end: answer orders until stdin ends."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    for line in sys.stdin:
        answers.write(json.dumps(reply(json.loads(line))) + "\n")
        answers.flush()
