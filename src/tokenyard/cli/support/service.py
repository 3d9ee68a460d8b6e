"""What lies around the engine: clients that hang up and ask again, and the way of requests to the scheduler."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import inf
from pathlib import Path

import numpy as np

from tokenyard.cli.support.flags import WorkloadFlags
from tokenyard.errors import ConfigError
from tokenyard.explain.report.slo import MILLISECONDS
from tokenyard.sim.whatif.front_end import recorded_ways
from tokenyard.sim.workload import Workload
from tokenyard.sim.workload.clients import Clients

__all__ = ["clients_of", "in_service", "seconds_of"]

_TIME = re.compile(r"([0-9.]+(?:e[+-]?[0-9]+)?)\s*([a-z]+)")


def seconds_of(field: str, text: str) -> float:
    """A time with its unit (``30s``, ``250ms``), in seconds. Raises ConfigError naming ``field``."""
    found = _TIME.fullmatch(text.strip().lower())
    try:
        seconds = float(found[1]) * MILLISECONDS[found[2]] / 1e3 if found is not None else -1.0
    except (KeyError, ValueError):
        seconds = -1.0
    if not 0 <= seconds < inf:
        raise ConfigError(field, text, f"give a time with its unit ({', '.join(MILLISECONDS)}), for example 30s")
    return seconds


def clients_of(flags: WorkloadFlags) -> Clients | None:
    """Clients as the flags say; None if they wait. Raises ConfigError."""
    if flags.client_timeout is None:
        if flags.retries:
            raise ConfigError(
                "retries", flags.retries, "clients that wait never ask again: give client_timeout as well"
            )
        return None
    return Clients(
        timeout=seconds_of("client_timeout", flags.client_timeout),
        retries=flags.retries,
        wait=seconds_of("retry_wait", flags.retry_wait),
    )


def in_service(workload: Workload, flags: WorkloadFlags) -> Workload:
    """The workload with its clients, and the time that its requests are on their way. Raises TokenyardError."""
    clients = clients_of(flags)
    if flags.front_end_delay is not None:
        workload = _delayed(workload, flags.front_end_delay, flags.seed)
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
