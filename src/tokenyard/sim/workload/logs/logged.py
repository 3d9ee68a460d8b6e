"""One request as a log tells it, how a log is to be read, and what came of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from tokenyard.config import require_int
from tokenyard.errors import ConfigError, WorkloadError
from tokenyard.sim.workload.logs.moments import Clock, TimeUnit
from tokenyard.sim.workload.remarks import Remark

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LogOptions", "LoggedRequest", "Reading", "Stamp", "TimeUnit", "columns_from"]


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
    """Whose prompts begin alike; None: those of the session, or the user, or all."""
    lora_name: str | None = None
    """LoRA adapter that was asked for; None: not said, so the base model."""
    says_unit: bool = False
    """Whether the unit of its time is known: the name of the column says it."""
    session: str | None = None
    user: str | None = None
    """User or tenant."""
    priority: int = 0
    model: str | None = None
    """What the model is called that was asked; None: not said."""
    total_tokens: int | None = None
    """Prompt and output, if the log counts them too."""
    span: str | None = None
    """Names it among the spans of a trace."""


_FIELDS = (
    "arrival_time",
    "prompt_len",
    "max_tokens",
    "cached_tokens",
    "duration",
    "request_id",
    "group",
    "lora_name",
    "session",
    "user",
    "priority",
    "model",
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
    model_name: str | None = None
    """Only requests of the model of this name (``*`` and ``?`` as in file names); None: the log has one model."""

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


class Reading:
    """The reading of one file: its clock, what it took from where, what it left out and what it could not read."""

    def __init__(self, path: Path, options: LogOptions, *, day_first: bool = False) -> None:
        self.path = path
        self.options = options
        self.clock = Clock(options.time_unit, day_first=day_first)
        self.taken: dict[str, Counter[str]] = {}
        """Our field -> what the log calls it, and in how many requests."""
        self.left_out: Counter[str] = Counter()
        """Why requests were left out, and how many."""
        self.passed_over = 0
        """Records that are about no request."""
        self.sum: str | None = None
        """Why a record is about several requests; None if none is."""
        self.parents: dict[str, str] = {}
        """Of spans, the span around each."""
        self.rounded: str | None = None
        """Why times cannot be used; None if they can."""
        self.remarks: list[Remark] = []
        self._first = (0, "")
        self.bad_lines = 0

    def note(self, code: str, text: str, *, warning: bool = False) -> None:
        """Say something, once."""
        remark = Remark(code, text, warning)
        if remark not in self.remarks:
            self.remarks.append(remark)

    def take(self, field: str, name: str) -> None:
        """A request's ``field`` was found under ``name``."""
        self.taken.setdefault(field, Counter())[name] += 1

    def bad(self, line: int, problem: str) -> None:
        """One more line that cannot be read; WorkloadError if it is one too many."""
        if not self.bad_lines:
            self._first = (line, problem)
        self.bad_lines += 1
        most = self.options.max_bad_lines
        if self.bad_lines > most:
            first, what = self._first
            allowed = f"--max-bad-lines allows {most:,}"
            if self.bad_lines == 1:
                raise WorkloadError(self.path, first, f"{what} ({allowed})")
            many = f"{self.bad_lines:,} lines cannot be read, and {allowed}"
            raise WorkloadError(self.path, line, f"{many}; line {first}: {what}")

    @property
    def bad_note(self) -> str | None:
        """A sentence about what could not be read; None if all could."""
        if not self.bad_lines:
            return None
        line, problem = self._first
        lines = "line was" if self.bad_lines == 1 else "lines were"
        return f"{self.bad_lines:,} {lines} left out; the first is line {line}: {problem}"
