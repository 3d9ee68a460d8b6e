"""The four things that every replay is given, looked at before anything is made of them."""

from __future__ import annotations

from tokenyard.config import CacheConfig, SchedulerConfig
from tokenyard.errors import ConfigError
from tokenyard.params import has_member
from tokenyard.sim.workload.record import Workload

__all__ = ["check_arguments"]


def check_arguments(workload: object, config: object, cache_config: object, latency: object) -> None:
    """Raise ConfigError for arguments that are something else, or in another order."""
    for field, value, kind in (
        ("workload", workload, Workload),
        ("config", config, SchedulerConfig),
        ("cache_config", cache_config, CacheConfig),
    ):
        if not isinstance(value, kind):
            order = "a replay takes workload, config, cache_config, latency, in this order"
            raise ConfigError(field, value, f"give a {kind.__name__}: {order}")
    if isinstance(latency, type) or not has_member(latency, "step_seconds"):
        raise ConfigError("latency", latency, "give a latency model: an object with step_seconds (docs/latency.md)")
