"""From a name or a path to a workload."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tokenyard.errors import ConfigError, WorkloadError
from tokenyard.sim.workload.generators.agentic import AgenticOptions, agentic
from tokenyard.sim.workload.generators.chat import ChatOptions, chat
from tokenyard.sim.workload.generators.completion import CompletionOptions, completion
from tokenyard.sim.workload.generators.rag import RagOptions, rag
from tokenyard.sim.workload.readers.formats import detect_format, reader_of
from tokenyard.sim.workload.readers.lines import SESSION_RATE, ReadOptions
from tokenyard.sim.workload.record import Workload

__all__ = ["GENERATORS", "load_workload"]


def _agentic(seed: int, limit: int | None) -> Workload:
    return agentic(AgenticOptions(seed=seed) if limit is None else AgenticOptions(seed=seed, num_sessions=limit))


def _chat(seed: int, limit: int | None) -> Workload:
    return chat(ChatOptions(seed=seed) if limit is None else ChatOptions(seed=seed, num_sessions=limit))


def _completion(seed: int, limit: int | None) -> Workload:
    return completion(
        CompletionOptions(seed=seed) if limit is None else CompletionOptions(seed=seed, num_requests=limit)
    )


def _rag(seed: int, limit: int | None) -> Workload:
    return rag(RagOptions(seed=seed) if limit is None else RagOptions(seed=seed, num_requests=limit))


GENERATORS: dict[str, Callable[[int, int | None], Workload]] = {
    "agentic": _agentic,
    "chat": _chat,
    "completion": _completion,
    "rag": _rag,
}
"""Built-in workloads by name; each takes (seed, number of sessions or requests)."""


def load_workload(
    spec: str | Path,
    *,
    format: str | None = None,  # noqa: A002 (the option is called --format)
    limit: int | None = None,
    rate_scale: float = 1.0,
    seed: int = 0,
    session_rate: float = SESSION_RATE,
) -> Workload:
    """A built-in workload by name, or one read from a file (plain or gzipped).

    ``format`` overrides what the file's first line shows; ``limit`` counts sessions where the workload has them, else
    requests; ``rate_scale`` makes arrivals so many times as fast; ``session_rate`` is the sessions per second of
    formats that record none. Raises WorkloadError naming file and line, or ConfigError naming the option.
    """
    options = ReadOptions(limit=limit, seed=seed, session_rate=session_rate)
    path = Path(spec)
    if isinstance(spec, str) and spec in GENERATORS and (format is None or not path.exists()):
        if format is not None:
            raise ConfigError("format", format, f"it belongs to files, and {spec} is built in: leave it out")
        workload = GENERATORS[spec](seed, limit)
    elif not path.exists():
        raise WorkloadError(spec, 0, f"is neither a file nor a built-in workload ({', '.join(GENERATORS)})")
    else:
        read = reader_of(detect_format(path) if format is None else format)
        workload = Workload(str(path), read(path, options))
    return workload.with_rate(rate_scale)
