"""Times as logs write them: ISO 8601, or Unix times and seconds in any unit."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime

from tokenyard.errors import shown
from tokenyard.sim.workload.logs.logged import TimeUnit

__all__ = ["moment_of", "seconds_of", "unit_in_name"]

_SECONDS = {
    TimeUnit.SECONDS: 1.0,
    TimeUnit.MILLISECONDS: 1e-3,
    TimeUnit.MICROSECONDS: 1e-6,
    TimeUnit.NANOSECONDS: 1e-9,
}
_UNIX = (
    (1e17, TimeUnit.NANOSECONDS),
    (1e14, TimeUnit.MICROSECONDS),
    (1e11, TimeUnit.MILLISECONDS),
)
"""From this number on a time can only be a Unix time in that unit: 1e11 seconds are the year 5138."""
_END_OF_TIME = 1e25
"""A number from here on is a time in no unit; neither is NaN."""
_IN_A_NAME = re.compile(
    r"(?:^|[\W_])(?P<s>s|secs?|seconds)\W*$|(?P<ms>ms(?:ecs?)?|millis(?:econds)?)\W*$"
    r"|(?:^|[\W_])(?P<us>us(?:ecs?)?|micros(?:econds)?)\W*$|(?:^|[\W_])(?P<ns>ns(?:ecs?)?|nanos?(?:econds)?)\W*$",
    re.IGNORECASE,
)
_LONG_FRACTION = re.compile(r"(\.\d{6})\d+")
_EXAMPLES = "2026-11-22T10:00:00.5Z, 1764000000 or 1764000000500"


def unit_in_name(name: str) -> TimeUnit | None:
    """The unit that the name of a column of times ends with (``latency_ms``, ``time (s)``); None if it says none."""
    found = _IN_A_NAME.search(name)
    return TimeUnit(found.lastgroup) if found is not None and found.lastgroup is not None else None


def moment_of(value: object, unit: TimeUnit | None = None) -> float:
    """A log's time in seconds. A time without an offset is UTC; ``unit`` is that of numbers.

    ValueError with the value and the fix if it is no time.
    """
    if isinstance(value, str):
        text = value.strip()
        try:
            return _number(float(text), unit)
        except ValueError:
            pass
        try:
            moment = datetime.fromisoformat(_LONG_FRACTION.sub(r"\1", text))
        except ValueError:
            raise ValueError(f"{shown(value)} is no time: give one like {_EXAMPLES}") from None
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{shown(value)} is no time: give one like {_EXAMPLES}")
    return _number(value, unit)


def _number(value: float, unit: TimeUnit | None) -> float:
    if not 0 <= value < _END_OF_TIME:
        raise ValueError(f"{value} is no time: give one like {_EXAMPLES}")
    if unit is None:
        unit = next((unit for least, unit in _UNIX if value >= least), TimeUnit.SECONDS)
    return value * _SECONDS[unit]


def seconds_of(value: object, unit: TimeUnit = TimeUnit.SECONDS) -> float:
    """A duration in seconds; ValueError if it is none."""
    try:
        seconds = float(value) * _SECONDS[unit] if isinstance(value, int | float | str) else math.nan
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise ValueError(f"{shown(value)} is no duration: give a number, not negative")
    return seconds
