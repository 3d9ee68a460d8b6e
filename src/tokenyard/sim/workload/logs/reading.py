"""One log read as a whole: its requests, of one model, and what there is to say of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from tokenyard.errors import ConfigError, WorkloadError, shown
from tokenyard.sim.workload.logs.doubts import models_of
from tokenyard.sim.workload.logs.kinds import LOGS, kind_of
from tokenyard.sim.workload.logs.logged import LoggedRequest, LogOptions, Reading
from tokenyard.sim.workload.logs.repeats import without_copies, without_outer
from tokenyard.sim.workload.logs.source import Source
from tokenyard.sim.workload.readers.formats import FORMATS
from tokenyard.sim.workload.remarks import Remark

__all__ = ["LogRead", "merged", "of_one_model", "read_log", "what_it_holds"]

_MOST_MODELS = 6
_SHOWN: tuple[str, ...] = (
    "arrival_time",
    "end_time",
    "duration",
    "prompt_len",
    "max_tokens",
    "cached_tokens",
    "model",
    "lora_name",
)
_SHOWN += ("session", "user", "priority")
"""Fields that are told where they were found, in this order."""


class LogRead(NamedTuple):
    """What came of a file."""

    path: Path
    kind: str
    logged: list[LoggedRequest]
    remarks: list[Remark]
    rounded: str | None
    """Why its times cannot be used; None if they can."""


def what_it_holds(path: Path, format: str | None, options: LogOptions) -> tuple[Source, str]:  # noqa: A002
    """A file, and the format or kind that it is read as. Raises WorkloadError, or ConfigError for a name of none."""
    source = Source(path)
    if format is None:
        return source, kind_of(source, options)
    if format not in FORMATS and format not in LOGS:
        raise ConfigError("format", format, f"use one of: {', '.join((*FORMATS, *LOGS))}")
    return source, format


def read_log(source: Source, kind: str, options: LogOptions) -> LogRead:
    """All requests of a log, in its order, and remarks. Raises WorkloadError naming file and line."""
    reading = Reading(source.path, options)
    logged = list(LOGS[kind](source, reading))
    if reading.clock.must_be_day_first:
        reading = Reading(source.path, options, day_first=True)
        logged = list(LOGS[kind](source, reading))
    if not logged:
        why = [reading.bad_note, *_left_out(reading), _passed_over(reading)]
        raise WorkloadError(source.path, 0, "; ".join(["holds no request", *(each for each in why if each)]))
    if reading.sum is not None:
        raise WorkloadError(source.path, 0, reading.sum)
    logged = without_outer(without_copies(logged, reading), reading)
    return LogRead(
        source.path, kind, logged, list(_remarks(reading, kind)), reading.rounded or reading.clock.no_seconds
    )


def _remarks(reading: Reading, kind: str) -> Iterator[Remark]:
    names = {field: " and ".join(reading.taken[field]) for field in _SHOWN if field in reading.taken}
    where = ", ".join(f"{field} from {name}" for field, name in names.items())
    yield Remark("kind", f"read as {kind}{': ' * bool(where)}{where}")
    yield from reading.remarks
    clock = reading.clock
    if clock.has_slashes:
        order = "day/month" if clock.must_be_day_first else "month/day"
        is_sure = clock.must_be_day_first or clock.must_be_month_first
        text = f"dates are read as {order}/year{'' if is_sure else ', as nothing in the log says otherwise'}"
        yield Remark("date_order", text, warning=not is_sure)
    if clock.with_offset and clock.without_offset:
        text = f"{clock.without_offset:,} times say no time zone and are taken as UTC; {clock.with_offset:,} say one"
        yield Remark("mixed_zones", text, warning=True)
    if clock.doubt is not None:
        yield Remark("coarse_times", clock.doubt, warning=True)
    yield from (Remark("left_out", each) for each in _left_out(reading))
    passed = _passed_over(reading)
    if passed:
        yield Remark("passed_over", passed)
    if reading.bad_note:
        yield Remark("bad_lines", reading.bad_note, warning=True)


def _left_out(reading: Reading) -> list[str]:
    return [f"left out: {count:,} {why}" for why, count in reading.left_out.items()]


def _passed_over(reading: Reading) -> str | None:
    return f"passed over, as they say nothing of tokens: {reading.passed_over:,}" if reading.passed_over else None


def of_one_model(
    logged: Sequence[LoggedRequest], path: object, options: LogOptions
) -> tuple[list[LoggedRequest], list[Remark]]:
    """The requests of the model that was named, or all if the log has one only; WorkloadError if it has several."""
    models = models_of(logged)
    listed = ", ".join(f"{shown(name)} {count:,}" for name, count in models.most_common(_MOST_MODELS))
    listed += f" and {len(models) - _MOST_MODELS} more" * (len(models) > _MOST_MODELS)
    wanted = options.model_name
    if wanted is None:
        named = options.columns.get("lora_name")
        if len(models) > 1 and named is None:
            fix = "a replay is of one model, so name one (--model-name NAME), or say that one serves them all "
            fix += "(--model-name '*'); of adapters name the column (--columns lora_name=NAME)"
            raise WorkloadError(path, 0, f"holds requests of {len(models)} models ({listed}): {fix}")
        return list(logged), []
    chosen = [each for each in logged if each.model is not None and fnmatchcase(each.model, wanted)]
    if not chosen:
        has = f"it has {listed}" if models else "no request says its model; name the column (--columns model=NAME)"
        raise ConfigError("model_name", wanted, f"{path} has no request of this model: {has}")
    left = len(logged) - len(chosen)
    note = f"{left:,} of {len(logged):,} requests are of other models and were left out ({listed})"
    return chosen, [Remark("models", note)] if left else []


_LEAST_UNIX = 1e8
"""From here on a number of seconds is a Unix time."""


def merged(read: Sequence[LogRead], *, drawn: bool) -> list[LoggedRequest]:
    """The requests of several files. WorkloadError if their times are not on one clock, unless arrivals are drawn."""
    rounded = next(((each.path, each.rounded) for each in read if each.rounded is not None), None)
    if rounded is not None and not drawn:
        raise WorkloadError(rounded[0], 0, rounded[1])
    if len(read) > 1 and not drawn:
        relative = [
            each for each in read if any(one.moment is not None and one.moment < _LEAST_UNIX for one in each.logged)
        ]
        if relative:
            fix = "give it alone, or send requests at a rate (--request-rate)"
            raise WorkloadError(
                relative[0].path, 0, f"its times count from its own start, not from other files': {fix}"
            )
        yearless = [each for each in read if any(remark.code == "whole_seconds" for remark in each.remarks)]
        if yearless and len(yearless) < len(read):
            raise WorkloadError(yearless[0].path, 0, "vLLM's log says no year: it cannot be merged with files that do")
    return [one for each in read for one in each.logged]
