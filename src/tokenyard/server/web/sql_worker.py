"""Answers one question and ends: reads a :class:`Question` from standard input, writes JSON to standard output."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

import msgspec

from tokenyard.errors import TokenyardError
from tokenyard.trace.columnar.query import Limits, ask

__all__ = ["Question", "main"]

_SHARED_MB = 2_048
"""Address space of the interpreter, of DuckDB's code and of its threads' stacks."""


class Question(msgspec.Struct, kw_only=True):
    """What to ask of which Parquet files."""

    sql: str
    steps: str | None = None
    requests: str | None = None
    limits: Limits


def main() -> None:
    """Answer, or say what is wrong with the question."""
    question = msgspec.json.decode(sys.stdin.buffer.read(), type=Question)
    _bound(question.limits)
    steps, requests = (Path(path) if path is not None else None for path in (question.steps, question.requests))
    try:
        answer = msgspec.json.encode(ask(question.sql, steps, requests, question.limits), enc_hook=str)
    except TokenyardError as error:
        field, fix = getattr(error, "field", "sql"), getattr(error, "fix", str(error))
        shown = question.sql if len(question.sql) <= 200 else question.sql[:200] + "..."
        answer = msgspec.json.encode({"error": {"field": field, "value": shown, "fix": fix}})
    sys.stdout.buffer.write(answer)


def _bound(limits: Limits) -> None:
    """Let the system refuse what DuckDB does not count. Not every system has these limits."""
    try:
        import resource  # noqa: PLC0415 - not on Windows
    except ImportError:
        return
    memory = (limits.memory_mb + _SHARED_MB) << 20
    for what, most in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, 0)):
        with suppress(ValueError, OSError):
            resource.setrlimit(what, (most, most))


if __name__ == "__main__":
    main()
