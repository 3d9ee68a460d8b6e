"""From a name or a path to a workload."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenyard.errors import ConfigError, WorkloadError
from tokenyard.sim.workload.generators.agentic import AgenticOptions, agentic
from tokenyard.sim.workload.generators.chat import ChatOptions, chat
from tokenyard.sim.workload.generators.completion import CompletionOptions, completion
from tokenyard.sim.workload.generators.rag import RagOptions, rag
from tokenyard.sim.workload.readers.formats import detect_format, reader_of
from tokenyard.sim.workload.readers.lines import ReadOptions
from tokenyard.sim.workload.record import Workload

__all__ = ["GENERATORS", "STARTS_ARE_DRAWN", "load_workload"]


def _given(**options: Any) -> dict[str, Any]:
    """Those that somebody set."""
    return {name: value for name, value in options.items() if value is not None}


def _agentic(options: ReadOptions) -> Workload:
    given = _given(seed=options.seed, num_sessions=options.limit, rate=options.session_rate)
    return agentic(AgenticOptions(**given))


def _chat(options: ReadOptions) -> Workload:
    return chat(ChatOptions(**_given(seed=options.seed, num_sessions=options.limit, rate=options.session_rate)))


def _completion(options: ReadOptions) -> Workload:
    return completion(CompletionOptions(**_given(seed=options.seed, num_requests=options.limit)))


def _rag(options: ReadOptions) -> Workload:
    return rag(RagOptions(**_given(seed=options.seed, num_requests=options.limit)))


GENERATORS: dict[str, Callable[[ReadOptions], Workload]] = {
    "agentic": _agentic,
    "chat": _chat,
    "completion": _completion,
    "rag": _rag,
}
"""Built-in workloads by name."""

STARTS_ARE_DRAWN = ("agentic", "chat", "lmcache", "weka")
"""Workloads and formats with sessions that nothing says the start of: ``session_rate`` does."""


def load_workload(
    spec: str | Path,
    *,
    format: str | None = None,  # noqa: A002 (the option is called --format)
    limit: int | None = None,
    rate_scale: float = 1.0,
    seed: int = 0,
    session_rate: float | None = None,
) -> Workload:
    """A built-in workload by name, or one read from a file (plain or gzipped).

    ``format`` overrides what the file's first line shows; ``limit`` counts sessions where the workload has them, else
    requests; ``rate_scale`` makes arrivals so many times as fast; ``session_rate`` is the sessions per second where
    starts are drawn (``STARTS_ARE_DRAWN``; default 0.05 for files, else the generator's own), and refused elsewhere.
    Raises WorkloadError naming file and line, or ConfigError naming the option.
    """
    options = ReadOptions(limit=limit, seed=seed, session_rate=session_rate)
    path = Path(spec)
    if isinstance(spec, str) and spec in GENERATORS and (format is None or not path.exists()):
        if format is not None:
            raise ConfigError("format", format, f"it belongs to files, and {spec} is built in: leave it out")
        _check_session_rate(session_rate, spec)
        workload = GENERATORS[spec](options)
    elif not path.exists():
        raise WorkloadError(spec, 0, f"is neither a file nor a built-in workload ({', '.join(GENERATORS)})")
    else:
        format = detect_format(path) if format is None else format  # noqa: A001
        read = reader_of(format)
        _check_session_rate(session_rate, format)
        workload = Workload(str(path), read(path, options))
    return workload.with_rate(rate_scale)


def _check_session_rate(rate: float | None, kind: str) -> None:
    if rate is not None and kind not in STARTS_ARE_DRAWN:
        fix = (
            f"{kind} says itself when requests arrive, so leave it out or use rate_scale; it is for "
            f"{', '.join(STARTS_ARE_DRAWN[:-1])} and {STARTS_ARE_DRAWN[-1]}, whose sessions start at random"
        )
        raise ConfigError("session_rate", rate, fix)
