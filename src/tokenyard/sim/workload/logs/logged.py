"""One request as a log tells it, and how a log is to be read."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from tokenyard.config import require_int
from tokenyard.errors import ConfigError, WorkloadError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["BadLines", "LogOptions", "LoggedRequest", "Stamp", "TimeUnit", "columns_from"]


class TimeUnit(StrEnum):
    """Unit of the numbers that a log gives as times."""

    SECONDS = "s"
    MILLISECONDS = "ms"
    MICROSECONDS = "us"
    NANOSECONDS = "ns"


class Stamp(StrEnum):
    """Which moment of a request a log's time is."""

    ARRIVAL = "arrival"
    COMPLETION = "completion"


class LoggedRequest(NamedTuple):
    """What a log says of one request."""

    moment: float | None
    """Seconds on the log's own clock; None: the log has no times."""
    prompt_tokens: int
    """Tokens, at least 1."""
    output_tokens: int
    """Tokens; 0 counts as 1."""
    cached_tokens: int = 0
    """Prompt tokens that the service's prefix cache held, as it said itself."""
    duration: float | None = None
    """Seconds from arrival to completion; None: not said."""
    request_id: str | None = None
    group: str | None = None
    """Session, user or key whose prompts begin alike; None: not said."""
    lora_name: str | None = None
    """LoRA adapter that was asked for; None: not said, so the base model."""
    says_unit: bool = False
    """Whether the unit of its time is known: the name of the column says it."""


_FIELDS = (
    "arrival_time",
    "prompt_len",
    "max_tokens",
    "cached_tokens",
    "duration",
    "request_id",
    "group",
    "lora_name",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """How to read a log. Raises ConfigError naming the option."""

    columns: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Our field -> the log's column (or dotted key), where the names are not known."""
    time_unit: TimeUnit | None = None
    """Of times that are numbers; None: told by the column's name or their size (Unix time), else seconds."""
    stamped: Stamp = Stamp.ARRIVAL
    """What the log's times are."""
    max_bad_lines: int = 100
    """Lines that may be unreadable before the reading stops."""

    def __post_init__(self) -> None:
        require_int("max_bad_lines", self.max_bad_lines, 0)
        for name in self.columns:
            if name not in _FIELDS:
                raise ConfigError("columns", name, f"map one of: {', '.join(_FIELDS)}")


def columns_from(text: str) -> dict[str, str]:
    """``"arrival_time=ts,prompt_len=in"`` -> field to column; ConfigError if it is not of that form."""
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    if not all(name.strip() and column.strip() for name, _, column in pairs):
        raise ConfigError("columns", text, "give FIELD=COLUMN pairs with commas between them: prompt_len=tokens_in")
    return {name.strip(): column.strip() for name, _, column in pairs}


class BadLines:
    """Lines that could not be read: counted, the first one kept, too many refused."""

    def __init__(self, path: Path, most: int) -> None:
        self._path = path
        self._most = most
        self._first = (0, "")
        self.count = 0

    def add(self, line: int, problem: str) -> None:
        """One more; WorkloadError if it is one too many."""
        if not self.count:
            self._first = (line, problem)
        self.count += 1
        if self.count > self._most:
            first, what = self._first
            allowed = f"--max-bad-lines allows {self._most:,}"
            if self.count == 1:
                raise WorkloadError(self._path, first, f"{what} ({allowed})")
            many = f"{self.count:,} lines cannot be read, and {allowed}"
            raise WorkloadError(self._path, line, f"{many}; line {first}: {what}")

    @property
    def note(self) -> str | None:
        """A sentence about them; None if there are none."""
        if not self.count:
            return None
        line, problem = self._first
        lines = "line was" if self.count == 1 else "lines were"
        return f"{self.count:,} {lines} left out; the first is line {line}: {problem}"
