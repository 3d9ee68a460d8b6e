"""The file formats by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from tokenyard.errors import ConfigError
from tokenyard.files import packaged
from tokenyard.plugins import foreign
from tokenyard.workload.readers import published
from tokenyard.workload.readers.lines import ReadOptions
from tokenyard.workload.readers.plain import read_plain
from tokenyard.workload.record import WorkloadRequest

T = TypeVar("T")
NAMES: dict[str, Any] = msgspec.json.decode(packaged("tokenyard.workload", "names.json"))
"""``names.json``."""


class NamedSource(NamedTuple, Generic[T]):
    """What stands behind a name of a workload, and what the name means to a user who chooses."""

    read: T
    about: str


Reader = Callable[[Path, ReadOptions], Iterator[WorkloadRequest]]

_PLAIN: dict[str, Reader] = {"plain": read_plain}
FORMATS: dict[str, NamedSource[Reader]] = {
    name: NamedSource(_PLAIN.get(name) or getattr(published, f"read_{name}"), about)
    for name, about in NAMES["formats"].items()
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
