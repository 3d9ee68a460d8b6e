"""Times as logs write them: dates in many spellings, or Unix times and seconds in any unit."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from enum import StrEnum

from tokenyard.errors import shown
from tokenyard.patterns import lazy_pattern


class TimeUnit(StrEnum):
    """Unit of the numbers that a log gives as times."""

    DAYS = "d"
    """Days as a spreadsheet counts them."""
    HOURS = "h"
    MINUTES = "min"
    SECONDS = "s"
    MILLISECONDS = "ms"
    MICROSECONDS = "us"
    NANOSECONDS = "ns"


_SECONDS = {
    TimeUnit.DAYS: 86_400.0,
    TimeUnit.HOURS: 3_600.0,
    TimeUnit.MINUTES: 60.0,
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
_UNIX_MINUTES = (1.5e7, 8e7)
"""The years 1998 to 2122; as seconds, a log that begins half a year after its zero."""
_COARSE = (
    (2.5e5, 1.4e6, "hours since 1970", TimeUnit.HOURS),
    (1e4, 8e4, "days, Unix or a spreadsheet's", TimeUnit.DAYS),
)
"""The same years in other units. Read as seconds, such a log would begin hours or days after its zero."""
_NARROW = 0.05
"""Share of its first time within which a log in such a unit ends: years."""
FASTEST = 1e-4
"""Seconds per request below which times are hardly seconds."""
_TICKS = (5e17, 8e17)
"""Numbers that are .NET's ticks of 100 ns since the year 1; as nanoseconds they would be of 1985 to 1995."""
_TICKS_AT_1970 = 621_355_968_000_000_000
_END_OF_TIME = 1e25
"""A number from here on is a time in no unit; neither is NaN."""
_IN_A_NAME = lazy_pattern(
    r"(?:^|[\W_])(?P<s>s|secs?|seconds)\W*$|(?P<ms>ms(?:ecs?)?|millis(?:econds)?)\W*$"
    r"|(?:^|[\W_])(?P<us>us(?:ecs?)?|micros(?:econds)?)\W*$|(?:^|[\W_])(?P<ns>ns(?:ecs?)?|nanos?(?:econds)?)\W*$",
    re.IGNORECASE,
)
_RATE = lazy_pattern(r"(?:/|(?:^|[\W_])per[\W_]*)\s*(?:s|secs?|seconds?|ms|min|minutes?)\W*$", re.IGNORECASE)
"""How the name of a rate ends, which is no duration: ``tokens/s``."""
_LONG_FRACTION = lazy_pattern(r"([.,]\d{6})\d+")
_JAVASCRIPT = lazy_pattern(r" GMT([+-]\d{4})(?: \([^)]*\))?$")
_TIME_OF_DAY = lazy_pattern(r"\d{1,2}:\d\d(?::\d\d(?:[.,]\d+)?)?\s*(?:[AaPp][Mm])?")
_EXAMPLES = "2026-11-22T10:00:00.5Z, 1764000000 or 1764000000500"
LONGEST = 200
"""Characters of a time, and of a name that may end with a unit: patterns are not tried on longer texts."""
_COMPACT = lazy_pattern(
    r"(?P<year>(?:19|20)\d\d)(?P<month>\d\d)(?P<day>\d\d)(?P<hour>\d\d)(?P<minute>\d\d)"
    r"(?:(?P<second>\d\d)(?:(?P<millis>\d{3})|\.(?P<fraction>\d{1,6}))?)?"
)
"""A date as one number: 20261120235940, and with milliseconds 20261120235940500. As Unix times, numbers of 12, 14 or
17 digits are of 1970 to 1976, or of the year 2600."""
_ROUNDED = lazy_pattern(r"\d(?:\.(?P<digits>\d*))?[eE]\+?(?P<exponent>\d{1,2})")
"""A number as spreadsheets show large ones: 1.76365E+09."""
LEAST_UNIX = 1e8
"""From here on a number of seconds is a Unix time; below, it counts from the beginning of a log."""
_MOST_ROUNDING = 1.0
"""Seconds."""

_ZONE = lazy_pattern(r"\s*(?:UTC|GMT|Z|Etc/UTC)$", re.IGNORECASE)
_OTHER_ZONE = lazy_pattern(r"\d\s*(?P<zone>[A-Z]{2,5}|[A-Z][a-z]+/[A-Z]\w+)$")
_CLOCK = lazy_pattern(
    r"(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9}))?)?\s*(?P<half>[AaPp]\.?[Mm]\.?)?"
    r"\s*(?P<offset>[+-]\d\d:?\d\d)?"
)
_NUMERIC_DATE = lazy_pattern(
    r"(?P<a>\d{1,2})(?P<mark>[/.-])(?P<b>\d{1,2})(?P=mark)(?P<year>\d{4}|\d\d),?[\sT]+(?P<rest>.+)"
)
_YEAR_FIRST = lazy_pattern(r"(?P<year>\d{4})[/.](?P<month>\d{1,2})[/.](?P<day>\d{1,2}),?[\sT]+(?P<rest>.+)")
_NAMED_DATES = (
    lazy_pattern(r"\[?(?P<day>\d{1,2})[/ -](?P<month>[A-Za-z]{3})[a-z]*[/ -](?P<year>\d{4})[: ,@]+(?P<rest>.+?)\]?"),
    lazy_pattern(r"(?P<month>[A-Za-z]{3})[a-z]*\.? (?P<day>\d{1,2}),? (?P<year>\d{4}),?(?: at| @)? (?P<rest>.+)"),
    lazy_pattern(r"[A-Za-z]{3} (?P<month>[A-Za-z]{3}) +(?P<day>\d{1,2}) (?P<rest>[\d:.]+) (?P<year>\d{4})"),
    lazy_pattern(r"[A-Za-z]{3} (?P<month>[A-Za-z]{3}) +(?P<day>\d{1,2}) (?P<year>\d{4}) (?P<rest>[\d:.]+ [+-]\d{4})"),
)
_MONTHS = {
    name: i
    for i, name in enumerate(["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"], 1)
}


class RoundedTimeError(ValueError):
    """A time that a spreadsheet has rounded, so that nothing of it is left."""


def unit_in_name(name: str) -> TimeUnit | None:
    """The unit that the name of a column of times ends with (``latency_ms``, ``time (s)``); None if it says none."""
    found = _unit_at_end(name)
    return TimeUnit(found.lastgroup) if found is not None and found.lastgroup is not None else None


def without_unit(name: str) -> str | None:
    """The name without the unit that it ends with; None if it says none, as that of a rate."""
    found = _unit_at_end(name)
    return None if found is None else name[: found.start()]


def _unit_at_end(name: str) -> re.Match[str] | None:
    return None if len(name) > LONGEST or _RATE.search(name) else _IN_A_NAME.search(name)


class Clock:
    """Reads the times of one log, of which all are written alike."""

    def __init__(self, unit: TimeUnit | None = None, *, day_first: bool = False) -> None:
        """``unit``: that of numbers, if the user says it; ``day_first``: whether 3/4/2026 is in April."""
        self.unit = unit
        self._day_first = day_first
        self.has_slashes = False
        """Whether days and months were numbers, either of which could stand first."""
        self.must_be_day_first = self.must_be_month_first = False
        """Whether the first, or the second, of two such numbers was above 12 in some date."""
        self.with_offset = self.without_offset = 0
        """Dates that say their time zone, and dates that do not."""
        self._least, self._most, self._count = math.inf, -math.inf, 0
        """Least, most and count of numbers that were taken for seconds because nothing says otherwise."""

    @property
    def no_seconds(self) -> str | None:
        """Why the times cannot be what they were taken for: numbers so large are Unix times in minutes."""
        if not _UNIX_MINUTES[0] <= self._least <= self._most < _UNIX_MINUTES[1]:
            return None
        return (
            f"times are numbers from {self._least:,.10g} to {self._most:,.10g}, which look like minutes since 1970: "
            "say which unit they have (--time-unit min, or --time-unit s), or send requests at a rate (--request-rate)"
        )

    @property
    def doubt(self) -> str | None:
        """What else they may be; None if nothing comes to mind, or if they come too fast for anything else."""
        if self._most - self._least < FASTEST * self._count:
            return None
        for first, end, what, unit in _COARSE:
            if first <= self._least <= self._most < min(end, self._least * (1 + _NARROW)):
                numbers = f"times from {self._least:,.10g} to {self._most:,.10g} are read as seconds"
                return f"{numbers}: if they are {what}, say so (--time-unit {unit})"
        return None

    def moment(self, value: object, name: str = "") -> float:
        """A time in seconds; a number has the unit that was given, or that of the ``name``, or that of its size.

        A time without an offset is UTC. ValueError with the value and the fix if it is no time.
        """
        if isinstance(value, str):
            return self._of_text(value.strip(), name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{shown(value)} is no time: give one like {_EXAMPLES}")
        compact = self._compact(str(value), name) if isinstance(value, int) else None
        if compact is not None:
            return compact
        return self._number(value, name)

    def _of_text(self, text: str, name: str) -> float:
        if len(text) > LONGEST:
            raise ValueError(f"{shown(text)} is no time: give one like {_EXAMPLES}")
        compact = self._compact(text, name)
        if compact is not None:
            return compact
        rounded = _ROUNDED.fullmatch(text)
        try:
            number = float(text)
        except ValueError:
            return self._date(text)
        moment = self._number(number, name)
        if rounded is not None and moment >= LEAST_UNIX:
            step = 10.0 ** (int(rounded["exponent"]) - len(rounded["digits"] or "")) * moment / number
            if step > _MOST_ROUNDING:
                raise RoundedTimeError(
                    f"{shown(text)} is a time that a spreadsheet has rounded to {step:,.0f} s: format its column as "
                    "a number without decimals, or as text, and export it again; or send requests at a rate "
                    "(--request-rate)"
                )
        return moment

    def _number(self, value: float, name: str) -> float:
        if not 0 <= value < _END_OF_TIME:
            raise ValueError(f"{value} is no time: give one like {_EXAMPLES}")
        unit = self.unit or unit_in_name(name)
        if unit is None and _TICKS[0] <= value < _TICKS[1]:
            return (value - _TICKS_AT_1970) * 1e-7
        if unit is None:
            unit = next((unit for least, unit in _UNIX if value >= least), TimeUnit.SECONDS)
            if unit is TimeUnit.SECONDS:
                self._least, self._most = min(self._least, value), max(self._most, value)
                self._count += 1
        return value * _SECONDS[unit]

    def _compact(self, text: str, name: str) -> float | None:
        """A date and a time as one number; None if it is another number, or if its unit is given."""
        found = _COMPACT.fullmatch(text)
        if found is None or self.unit is not None or unit_in_name(name) is not None:
            return None
        year, month, day, hour, minute = (int(found[part]) for part in ("year", "month", "day", "hour", "minute"))
        micros = int((found["millis"] or found["fraction"] or "0").ljust(6, "0"))
        try:
            moment = datetime(year, month, day, hour, minute, int(found["second"] or 0), micros, UTC)
        except ValueError:
            return None
        self.without_offset += 1
        return moment.timestamp()

    def _date(self, text: str) -> float:
        bare = _JAVASCRIPT.sub(r" \1", _ZONE.sub("", text))
        try:
            moment = _iso(bare) or self._spelt(bare) or _mail(text)
        except (ValueError, OverflowError):
            moment = None
        if moment is None:
            zone = _OTHER_ZONE.search(text)
            fix = f"give one like {_EXAMPLES}"
            if _TIME_OF_DAY.fullmatch(text):
                fix = "it says no day: export the date, too, or send requests at a rate (--request-rate)"
            if zone is not None and zone["zone"].upper() not in ("AM", "PM"):
                fix = f"the time zone {zone['zone']} is not known: write UTC, or an offset like +01:00"
            raise ValueError(f"{shown(text)} is no time: {fix}")
        if moment.tzinfo is None and _ZONE.search(text) is None:
            self.without_offset += 1
        else:
            self.with_offset += 1
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()

    def _spelt(self, text: str) -> datetime | None:
        """A date in numbers, or with the month's name; None if it is neither. ValueError if there is no such day."""
        if found := _YEAR_FIRST.fullmatch(text):
            return _at(int(found["year"]), int(found["month"]), int(found["day"]), found["rest"])
        if found := _NUMERIC_DATE.fullmatch(text):
            first, second, year = int(found["a"]), int(found["b"]), int(found["year"])
            day_first = self._day_first or found["mark"] == "."
            if found["mark"] != ".":
                self.has_slashes = True
                self.must_be_day_first |= first > 12
                self.must_be_month_first |= second > 12
            day, month = (first, second) if day_first else (second, first)
            if first > 12 and not day_first:
                day, month = first, second
            return _at(year + 2000 * (year < 100), month, day, found["rest"])
        for pattern in _NAMED_DATES:
            found = pattern.fullmatch(text)
            if found is not None and found["month"].lower() in _MONTHS:
                return _at(int(found["year"]), _MONTHS[found["month"].lower()], int(found["day"]), found["rest"])
        return None


def _iso(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(_LONG_FRACTION.sub(r"\1", text))
    except ValueError:
        return None


def _mail(text: str) -> datetime | None:
    """A time as headers of mails and of HTTP write it: Fri, 20 Nov 2026 14:00:00 GMT."""
    if "," not in text[:4]:
        return None
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 - few logs have such times

    return parsedate_to_datetime(text)


def _at(year: int, month: int, day: int, clock: str) -> datetime | None:
    found = _CLOCK.fullmatch(clock.strip())
    if found is None:
        return None
    hour = int(found["hour"])
    if found["half"]:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + 12 * (found["half"][0] in "Pp")
    micros = int((found["fraction"] or "0")[:6].ljust(6, "0"))
    moment = datetime(year, month, day, hour, int(found["minute"]), int(found["second"] or 0), micros)  # noqa: DTZ001
    offset = found["offset"]
    return moment if offset is None else datetime.fromisoformat(moment.isoformat() + offset)


def duration_seconds(value: object, unit: TimeUnit = TimeUnit.SECONDS) -> float:
    """A duration in seconds; ValueError if it is none."""
    try:
        seconds = float(value) * _SECONDS[unit] if isinstance(value, int | float | str) else math.nan
    except (ValueError, OverflowError):  # a whole number of hundreds of digits
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise ValueError(f"{shown(value)} is no duration: give a number, not negative")
    return seconds
