"""The file formats by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from tokenyard.errors import ConfigError
from tokenyard.plugins import foreign
from tokenyard.workload.readers.lines import ReadOptions
from tokenyard.workload.readers.plain import read_plain
from tokenyard.workload.readers.published import read_azure, read_lmcache, read_mooncake, read_servegen, read_weka
from tokenyard.workload.record import WorkloadRequest

T = TypeVar("T")


class NamedSource(NamedTuple, Generic[T]):
    """What stands behind a name of a workload, and what the name means to a user who chooses."""

    read: T
    about: str


Reader = Callable[[Path, ReadOptions], Iterator[WorkloadRequest]]

FORMATS: dict[str, NamedSource[Reader]] = {
    "azure": NamedSource(
        read_azure, "Azure's public LLM inference traces: CSV of time, context tokens, generated tokens"
    ),
    "lmcache": NamedSource(
        read_lmcache, "LMCache's agentic traces: JSON lines of sessions' turns, with hashes of their blocks"
    ),
    "mooncake": NamedSource(
        read_mooncake, "Mooncake's public traces: JSON lines with times, lengths and hashes of blocks"
    ),
    "plain": NamedSource(
        read_plain, "Tokenyard's own: a JSON object a request, with what a workload can say; import writes it"
    ),
    "servegen": NamedSource(
        read_servegen, "ServeGen's generated traffic: CSV of time, client, input and output tokens"
    ),
    "weka": NamedSource(
        read_weka, "WEKA's recorded coding agents: a JSON object a session, with sub-agents and block hashes"
    ),
}
"""Name, as ``--format`` takes it -> reader."""


def reader_of(format: str) -> Reader | None:  # noqa: A002 (the option is called --format)
    """Reads files of the format: ours, or ``FILE.py:NAME``, or a name of the entry points ``tokenyard.formats``, a
    function of a path and ``ReadOptions`` that yields requests. None if there is none. Raises ConfigError.
    """
    if format in FORMATS:
        return FORMATS[format].read
    read: Reader | None = foreign("format", format)
    if read is not None and not callable(read):
        raise ConfigError("format", format, "it has to be a function of a path and ReadOptions that yields requests")
    return read
