"""From a command to what it asks the library."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import fields, replace
from typing import cast

from tokenyard.cli.support.console import busy, say_notes, warn
from tokenyard.cli.support.flags.replays import (
    AgentsCommand,
    CompareCommand,
    PlanCommand,
    ReplayFlags,
    RunCommand,
    SplitCommand,
    SweepCommand,
    UpgradeCommand,
)
from tokenyard.deploy.settings import DeploymentSettings, SplitSettings
from tokenyard.questions.scenario import Scenario
from tokenyard.workload.record import Workload


def scenario_of(flags: ReplayFlags) -> Scenario:
    """The workload and the deployment that a command names."""
    command = cast(
        AgentsCommand | RunCommand | CompareCommand | SplitCommand | PlanCommand | SweepCommand | UpgradeCommand, flags
    )
    groups = {
        each.name: getattr(command, each.name) for each in fields(DeploymentSettings) if hasattr(command, each.name)
    }
    by = getattr(command, "by", None)
    scenario = Scenario(workload=command.workload, arrivals=command.arrivals, slo=command.slo, by=by, **groups)
    if not isinstance(command, CompareCommand):
        scenario = replace(scenario, more=command.more)
    if isinstance(command, SplitCommand):
        return replace(scenario, trace=command.output, split_settings=command.split_settings)
    if isinstance(command, RunCommand):
        return replace(scenario, trace=command.output)
    if isinstance(command, PlanCommand):
        return replace(scenario, split_settings=SplitSettings(kv_link_gb_per_s=command.kv_link_gb_per_s))
    return replace(scenario, split_settings=command.split_settings) if isinstance(command, SweepCommand) else scenario


@contextmanager
def reading(name: str) -> Iterator[Callable[[Workload], None]]:
    """A line on a terminal that ``name`` is read, until what this gives is called with the workload; then its notes."""
    with ExitStack() as shown:
        shown.enter_context(busy(f"reading {name}"))

        def read(workload: Workload) -> None:
            shown.close()
            say_notes(workload)

        yield read


def say_overwritten(directory: object) -> None:
    """Warn of a trace that is gone now."""
    warn(f"the trace that was in {directory} is overwritten; --trace DIR keeps both")
