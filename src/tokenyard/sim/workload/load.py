"""From a name or a path to a workload.

name of a generator    ->  generated
file of a format       ->  read request by request (readers/): prefixes, turns and jobs as recorded
log of a service       ->  read as what it says (logs/): lengths and times, perhaps hits
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tokenyard.errors import ConfigError, WorkloadError
from tokenyard.sim.workload.clock_doubts import doubt_of_seconds
from tokenyard.sim.workload.generators.agentic import AgenticOptions, agentic
from tokenyard.sim.workload.generators.chat import ChatOptions, chat
from tokenyard.sim.workload.generators.completion import CompletionOptions, completion
from tokenyard.sim.workload.generators.rag import RagOptions, rag
from tokenyard.sim.workload.generators.random import RandomOptions, random
from tokenyard.sim.workload.logs.conversion import arrivals_of, requests_of
from tokenyard.sim.workload.logs.kinds import LEAVES_UNIT_OPEN, LOGS, kind_by_names, kind_of_log, read_log
from tokenyard.sim.workload.logs.logged import LogOptions, Stamp
from tokenyard.sim.workload.logs.moments import seconds_of
from tokenyard.sim.workload.readers.formats import FORMATS, detect_format, unknown_format
from tokenyard.sim.workload.readers.lines import ReadOptions
from tokenyard.sim.workload.record import Workload

__all__ = ["GENERATORS", "STARTS_ARE_DRAWN", "LoadShape", "load_workload"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadShape:
    """When requests are sent, where that is not what was recorded: the flags of ``vllm bench serve``."""

    request_rate: float | None = None
    """Requests a second, at random, in the workload's order; infinity: all at once; None: as recorded."""
    burstiness: float = 1.0
    """1: a Poisson process; less: burstier; more: more regular."""
    max_concurrency: int | None = None
    """Most requests under way (a closed loop); None: no limit."""


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


def _random(options: ReadOptions) -> Workload:
    return random(RandomOptions(**_given(seed=options.seed, num_prompts=options.limit)))


_OWN_FORMAT = "plain"

GENERATORS: dict[str, Callable[[ReadOptions], Workload]] = {
    "agentic": _agentic,
    "chat": _chat,
    "completion": _completion,
    "rag": _rag,
    "random": _random,
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
    random_options: RandomOptions | None = None,
    log: LogOptions | None = None,
    load: LoadShape | None = None,
) -> Workload:
    """A built-in workload by name, or one read from a file (plain or gzipped).

    ``format`` overrides what the file's beginning shows; ``limit`` counts sessions where the workload has them, else
    requests; ``rate_scale`` makes arrivals so many times as fast; ``session_rate`` is the sessions per second where
    starts are drawn (``STARTS_ARE_DRAWN``; default 0.05 for files, else the generator's own), and refused elsewhere.
    ``random_options`` are for the workload ``random``, ``log`` for logs of services; ``load`` sends the requests
    otherwise than recorded. Raises WorkloadError naming file and line, or ConfigError naming the option.
    """
    options = ReadOptions(limit=limit, seed=seed, session_rate=session_rate)
    load = load or LoadShape()
    path = Path(spec)
    if isinstance(spec, str) and spec in GENERATORS and (format is None or not path.exists()):
        if format is not None:
            raise ConfigError("format", format, f"it belongs to files, and {spec} is built in: leave it out")
        _check_session_rate(session_rate, spec)
        workload = _generated(spec, options, random_options)
    elif not path.exists():
        raise WorkloadError(spec, 0, f"is neither a file nor a built-in workload ({', '.join(GENERATORS)})")
    else:
        workload = _read(path, format, options, log or LogOptions(), load)
    if load.request_rate is not None:
        workload = workload.with_request_rate(load.request_rate, burstiness=load.burstiness, seed=seed)
    if load.max_concurrency is not None:
        workload = workload.with_max_concurrency(load.max_concurrency)
    return workload.with_rate(rate_scale)


def _generated(name: str, options: ReadOptions, random_options: RandomOptions | None) -> Workload:
    if name != "random" or random_options is None:
        return GENERATORS[name](options)
    given = _given(seed=options.seed, num_prompts=options.limit)
    return random(replace(random_options, **given))


def _read(path: Path, format: str | None, options: ReadOptions, log: LogOptions, load: LoadShape) -> Workload:  # noqa: A002
    if format is None:
        format = kind_of_log(path, log) or detect_format(path) or kind_by_names(path)  # noqa: A001
        if format is None:
            raise unknown_format(path)
    if format not in FORMATS and format not in LOGS:
        raise ConfigError("format", format, f"use one of: {', '.join((*FORMATS, *LOGS))}")
    _check_session_rate(options.session_rate, format)
    is_timed = log.time_unit is not None or load.request_rate is not None
    if format in FORMATS:
        return _recorded(path, format, options, log, is_timed=is_timed)
    logged, notes = read_log(path, format, log)
    arrivals, assumed = arrivals_of(path, logged, log, drawn=load.request_rate is not None)
    if format in LEAVES_UNIT_OPEN and not is_timed and not logged[0].says_unit:
        moments = [each.moment for each in logged if each.moment is not None]
        assumed += _doubts(moments)
    requests = requests_of(arrivals[: options.limit], format, options.seed)
    return Workload(str(path), requests, notes=(*notes, *assumed))


def _recorded(path: Path, format: str, options: ReadOptions, log: LogOptions, *, is_timed: bool) -> Workload:  # noqa: A002
    """A file of one of the formats, which say themselves what is what; ``plain`` may count in another unit."""
    for name, is_given in (("columns", bool(log.columns)), ("stamped", log.stamped is not Stamp.ARRIVAL)):
        if is_given:
            value = ", ".join(log.columns) if name == "columns" else str(log.stamped)
            raise ConfigError(
                name, value, f"it is for logs of services, and {path} is in format {format}: leave it out"
            )
    if log.time_unit is not None and format != _OWN_FORMAT:
        fix = f"{format} says the unit of its times itself: leave it out"
        raise ConfigError("time_unit", str(log.time_unit), fix)
    unit = 1.0 if log.time_unit is None else seconds_of(1, log.time_unit)
    workload = Workload(str(path), FORMATS[format](path, replace(options, seconds_per_unit=unit)))
    if format != _OWN_FORMAT or is_timed:
        return workload
    doubts = _doubts([each.arrival_time for each in workload if not each.after])
    return workload.with_notes(doubts) if doubts else workload


def _doubts(moments: Sequence[float]) -> list[str]:
    doubt = doubt_of_seconds(moments)
    return [] if doubt is None else [doubt]


def _check_session_rate(rate: float | None, kind: str) -> None:
    if rate is not None and kind not in STARTS_ARE_DRAWN:
        fix = (
            f"{kind} says itself when requests arrive, so leave it out or use rate_scale; it is for "
            f"{', '.join(STARTS_ARE_DRAWN[:-1])} and {STARTS_ARE_DRAWN[-1]}, whose sessions start at random"
        )
        raise ConfigError("session_rate", rate, fix)
