"""What arrives: settings of every question that reads a workload, and the workload they make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from statistics import fmean
from types import MappingProxyType

import numpy as np

from tokenyard.deploy.spec import seconds_of
from tokenyard.errors import ConfigError
from tokenyard.questions.recorded.recorded_requests import recorded_ways
from tokenyard.questions.settings import TrafficSettings
from tokenyard.workload.load import LoadShape, pauses_in, read_workload
from tokenyard.workload.logs.logged import LogOptions, Prefixes, Stamp, columns_from
from tokenyard.workload.logs.moments import TimeUnit
from tokenyard.workload.record import Clients, Workload

# ---------------------------------------------------------------------------------------------------------------------
# From flags to the workload that a command replays, with what lies around the engine: clients, and the way to it.

_OF_RANDOM: Mapping[str, str] = MappingProxyType(
    {
        "num_prompts": "num_prompts",
        "input_len": "input_len",
        "output_len": "output_len",
        "random_prefix_len": "prefix_len",
        "random_range_ratio": "range_ratio",
    }
)
"""Flag -> option of the workload ``random``."""


def workload_from(workload: str, arrivals: TrafficSettings, more: Sequence[str] = ()) -> Workload:
    """The workload, ``more`` being further logs; ConfigError or WorkloadError if a flag or a file cannot be used."""
    spec = (workload, *more) if more else workload
    given = {option: value for flag, option in _OF_RANDOM.items() if (value := getattr(arrivals, flag)) is not None}
    if given and spec != "random":
        flag = next(flag for flag, option in _OF_RANDOM.items() if option in given)
        raise ConfigError(flag, getattr(arrivals, flag), "it needs the workload `random`: give that, or leave this out")
    if arrivals.burstiness != 1 and arrivals.request_rate is None:
        raise ConfigError(
            "burstiness", arrivals.burstiness, "needs §request_rate: give that as well, or leave this out"
        )
    random_options = None
    if given:
        from tokenyard.workload.generators import RandomOptions  # noqa: PLC0415 - few workloads are made up

        random_options = RandomOptions(**given)
    _clients_of(arrivals)  # a mistake is reported before a file is read
    read = read_workload(
        spec,
        format=arrivals.format,
        limit=arrivals.limit,
        rate_scale=arrivals.rate_scale,
        seed=arrivals.seed,
        session_rate=arrivals.session_rate,
        random_options=random_options,
        log=LogOptions(
            columns=columns_from(arrivals.columns or ""),
            time_unit=TimeUnit(arrivals.time_unit) if arrivals.time_unit else None,
            stamped=Stamp(arrivals.stamped),
            prefixes=Prefixes(arrivals.prefixes),
            turns_follow=arrivals.turns_follow,
            max_bad_lines=arrivals.max_bad_lines,
            model_name=arrivals.model_name,
        ),
        load=LoadShape(
            request_rate=arrivals.request_rate, burstiness=arrivals.burstiness, max_concurrency=arrivals.max_concurrency
        ),
    )
    return _in_service(read, arrivals)


_OF_ANY = ("seed", "rate_scale", "max_concurrency", "skip_refused", "client_timeout", "retries", "retry_wait")
"""Settings that mean something for a workload that is there; the others say how one is read."""


def applied(workload: Workload, arrivals: TrafficSettings) -> Workload:
    """A workload that was made, as the settings have it. Raises ConfigError for one that says how files are read."""
    usual = TrafficSettings()
    for each in fields(arrivals):
        value = getattr(arrivals, each.name)
        if value != getattr(usual, each.name) and each.name not in (*_OF_ANY, "front_end_delay"):
            raise ConfigError(each.name, value, "says how a workload is read, and this one is there: leave it out")
    if arrivals.rate_scale != 1:
        workload = workload.with_rate(arrivals.rate_scale)
    if arrivals.max_concurrency is not None:
        workload = workload.with_max_concurrency(arrivals.max_concurrency)
    return _in_service(workload, arrivals)


def _clients_of(arrivals: TrafficSettings) -> Clients | None:
    """Clients as the flags say; None if they wait. Raises ConfigError."""
    if arrivals.client_timeout is None:
        if arrivals.retries:
            raise ConfigError(
                "retries", arrivals.retries, "retries happen after a timeout: give §client_timeout as well"
            )
        return None
    return Clients(
        timeout=seconds_of("client_timeout", arrivals.client_timeout),
        retries=arrivals.retries,
        wait=seconds_of("retry_wait", arrivals.retry_wait),
    )


def _in_service(workload: Workload, arrivals: TrafficSettings) -> Workload:
    """The workload with its clients, and the time that its requests are on their way. Raises TokenyardError."""
    clients = _clients_of(arrivals)
    if arrivals.front_end_delay is not None:
        workload = _delayed(workload, arrivals.front_end_delay, arrivals.seed)
    return workload if clients is None else workload.with_clients(clients)


def _delayed(workload: Workload, given: str, seed: int) -> Workload:
    """A constant, or draws from what a trace recorded."""
    if not Path(given).exists():
        return workload.with_delays([seconds_of("front_end_delay", given)] * len(workload))
    ways = _ways_in(given)
    drawn = np.random.default_rng(seed).choice(np.array(ways), len(workload)).tolist()
    half, most = np.percentile(ways, (50, 90)).tolist()
    said = (
        f"half the requests are {half * 1e3:.3g} ms or less on their way to the scheduler, nine of ten {most * 1e3:.3g}"
    )
    return workload.with_delays(drawn).with_notes([f"{said}: drawn from {len(ways):,} in {given}"])


def _ways_in(trace: str) -> Sequence[float]:
    ways = recorded_ways(trace)
    if not ways:
        fix = "says nothing of the way to the scheduler: give the trace of a server, not of a replay, or a time (20ms)"
        raise ConfigError("front_end_delay", trace, fix)
    return ways


def workload_facts(workload: Workload) -> dict[str, int | float | str]:
    """How many requests a workload has, over which time, and how long they are."""
    last = max(request.arrival_time for request in workload)
    paused = sum(pause.lasts for pause in pauses_in(workload))
    between = {
        "seconds_in_pauses": paused,
        "requests_per_second_between_pauses": len(workload) / (last - paused) if last > paused else 0.0,
    }
    return {
        "workload": workload.name,
        "kind": workload.kind or "built in",
        "requests": len(workload),
        "seconds": last,
        "requests_per_second": len(workload) / last if last else 0.0,
        **(between if paused else {}),
        "prompt_tokens": workload.num_prompt_tokens,
        "mean_prompt_tokens": fmean(request.num_prompt_tokens for request in workload),
        "output_tokens": workload.num_output_tokens,
        "mean_output_tokens": fmean(request.max_tokens for request in workload),
    }
