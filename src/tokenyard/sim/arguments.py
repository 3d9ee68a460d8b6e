"""The four things that every replay is given, looked at before anything is made of them."""

from __future__ import annotations

from tokenyard.config import CacheConfig, SchedulerConfig
from tokenyard.errors import ConfigError
from tokenyard.params import has_member
from tokenyard.sim.workload.record import Workload

__all__ = ["check_arguments"]

_ORDER = "a replay takes workload, config, cache_config, latency, in this order"


def check_arguments(workload: object, config: object, cache_config: object, latency: object) -> None:
    """Raise ConfigError for arguments that are something else, or in another order."""
    if not isinstance(workload, Workload):
        fix = f"give a Workload: load_workload() makes one of a name or a file, WorkloadBuilder in Python; {_ORDER}"
        raise ConfigError("workload", workload, fix)
    for field, value, kind in (
        ("config", config, SchedulerConfig),
        ("cache_config", cache_config, CacheConfig),
    ):
        if not isinstance(value, kind):
            raise ConfigError(field, value, f"give a {kind.__name__}: {_ORDER}")
    if isinstance(latency, type) or not has_member(latency, "step_seconds"):
        fix = (
            "give a latency model, an object with step_seconds(): load_latency() makes one of a name (docs/latency.md)"
        )
        raise ConfigError("latency", latency, fix)
