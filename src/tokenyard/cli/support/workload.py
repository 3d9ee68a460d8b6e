"""From flags to the workload that a command replays."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tokenyard.cli.support.console import warn
from tokenyard.cli.support.flags import WorkloadFlags
from tokenyard.cli.support.service import clients_of, in_service
from tokenyard.errors import ConfigError
from tokenyard.sim.workload import Workload, load_workload
from tokenyard.sim.workload.generators.random import RandomOptions
from tokenyard.sim.workload.load import LoadShape
from tokenyard.sim.workload.logs.logged import LogOptions, Stamp, TimeUnit, columns_from

__all__ = ["say_notes", "workload_from"]

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


def workload_from(spec: str, flags: WorkloadFlags) -> Workload:
    """The workload; ConfigError or WorkloadError if a flag or the file cannot be used."""
    given = {option: value for flag, option in _OF_RANDOM.items() if (value := getattr(flags, flag)) is not None}
    if given and spec != "random":
        flag = next(flag for flag, option in _OF_RANDOM.items() if option in given)
        raise ConfigError(flag, getattr(flags, flag), "it shapes the workload `random`: name that, or leave it out")
    if flags.burstiness != 1 and flags.request_rate is None:
        raise ConfigError("burstiness", flags.burstiness, "it belongs to request_rate: give that, or leave it out")
    clients_of(flags)  # a mistake is said before a file is read
    workload = load_workload(
        spec,
        format=flags.format,
        limit=flags.limit,
        rate_scale=flags.rate_scale,
        seed=flags.seed,
        session_rate=flags.session_rate,
        random_options=RandomOptions(**given) if given else None,
        log=LogOptions(
            columns=columns_from(flags.columns or ""),
            time_unit=TimeUnit(flags.time_unit) if flags.time_unit else None,
            stamped=Stamp(flags.stamped),
            max_bad_lines=flags.max_bad_lines,
        ),
        load=LoadShape(
            request_rate=flags.request_rate, burstiness=flags.burstiness, max_concurrency=flags.max_concurrency
        ),
    )
    return in_service(workload, flags)


def say_notes(workload: Workload) -> None:
    """What was left out or assumed when the workload was read, on standard error."""
    for note in workload.notes:
        warn(f"{workload.name}: {note}")
