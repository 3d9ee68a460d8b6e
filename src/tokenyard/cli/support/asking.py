"""From a command to what it asks the library."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import cast

from tokenyard.cli.support.console import warn
from tokenyard.cli.support.flags import Compare, Plan, Replay, Run, Split, Sweep
from tokenyard.deploy.settings import DeploymentSettings, SplitSettings
from tokenyard.deploy.spec import ReplaySpec
from tokenyard.questions.scenario import Scenario, prepared
from tokenyard.workload.record import Workload

__all__ = ["prepare", "say_overwritten", "scenario_of"]


def scenario_of(flags: Replay) -> Scenario:
    """The workload and the deployment that a command names."""
    command = cast(Run | Compare | Split | Plan | Sweep, flags)
    groups = {
        each.name: getattr(command, each.name) for each in fields(DeploymentSettings) if hasattr(command, each.name)
    }
    scenario = Scenario(workload=command.workload, arrivals=command.arrivals, slo=command.slo, **groups)
    if not isinstance(command, Compare):
        scenario = replace(scenario, more=command.more)
    if isinstance(command, Split):
        return replace(scenario, trace=command.output, apart=command.apart)
    if isinstance(command, Run):
        return replace(scenario, trace=command.output)
    if isinstance(command, Plan):
        return replace(scenario, apart=SplitSettings(kv_link_gb_per_s=command.kv_link_gb_per_s))
    return replace(scenario, apart=command.apart) if isinstance(command, Sweep) else scenario


def prepare(flags: Replay, workload: Workload | None = None) -> ReplaySpec:
    """Check every flag, then read the workload, unless it is given. Raises TokenyardError."""
    return prepared(scenario_of(flags), workload)


def say_overwritten(directory: object) -> None:
    """Warn of a trace that is gone now."""
    warn(f"the trace that was in {directory} is overwritten; --trace DIR keeps both")
