"""Both ends of a benchmark's worker process: orders and answers are JSON, one a line.

    order   ─ stdin ─►   worker   ─ a pipe of its own ─►   answer

Whatever a worker's libraries print is shown if it dies.
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
_ANSWERS = "TOKENYARD_BENCHMARK_ANSWERS"
"""Number of the file that a worker answers to."""


class Side:
    """A process that measures on demand."""

    def __init__(
        self, python: str | Path, script: str, args: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> None:
        """``script`` lies among the benchmarks."""
        self.script = script
        self._printed: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115 - lives as long as the worker
        paths = os.pathsep.join(map(str, (HERE, REPO / "lab", REPO / "src")))
        reading, writing = os.pipe()
        self._process = subprocess.Popen(
            [python, HERE / script, *args],
            stdin=subprocess.PIPE,
            stdout=self._printed,
            stderr=self._printed,
            text=True,
            env={**os.environ, "PYTHONPATH": paths, _ANSWERS: str(writing), **(environment or {})},
            pass_fds=(writing,),
        )
        os.close(writing)
        self._answers = os.fdopen(reading)

    def ask(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to an order; exits with the worker's last words if it dies."""
        orders = self._process.stdin
        assert orders is not None
        try:
            orders.write(json.dumps(order) + "\n")
            orders.flush()
            line = self._answers.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self._printed.seek(0)
            sys.exit(f"{self.script} ended while measuring:\n{self._printed.read()[-3000:]}")
        answered: dict[str, Any] = json.loads(line)
        return answered

    def close(self) -> None:
        """Let it end."""
        self._process.communicate()
        self._answers.close()
        self._printed.close()


def answer(reply: Callable[[dict[str, Any]], Mapping[str, Any]]) -> None:
    """The worker's end: answer orders until stdin ends."""
    with os.fdopen(int(os.environ[_ANSWERS]), "w") as answers:
        for line in sys.stdin:
            answers.write(json.dumps(reply(json.loads(line))) + "\n")
            answers.flush()
