"""The sub-commands: for each a frozen dataclass with a field for every flag.

A field is the only place of its flag: name, type and default stand in the code, what the help says in the text below
it, and what else a command line needs in :mod:`~tokenyard.cli.support.flag_table`. Flags that set something in vLLM
carry vLLM's name. The modules here are imported for every ``--help`` and therefore import nothing heavy; what a
sub-command does stands in the module of its name.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from tokenyard.cli.support.flag_table import Command

COMMANDS = {
    "run": "replays.RunCommand",
    "report": "traces.ReportCommand",
    "view": "traces.ViewCommand",
    "watch": "traces.WatchCommand",
    "why": "traces.WhyCommand",
    "export": "traces.ExportCommand",
    "compare": "replays.CompareCommand",
    "whatif": "planning.WhatIfCommand",
    "upgrade": "replays.UpgradeCommand",
    "plan": "planning.PlanCommand",
    "headroom": "serving.HeadroomCommand",
    "sweep": "planning.SweepCommand",
    "split": "replays.SplitCommand",
    "query": "traces.QueryCommand",
    "convert": "traces.ConvertCommand",
    "describe": "known.DescribeCommand",
    "parity": "known.ParityCommand",
    "accuracy": "known.AccuracyCommand",
    "demo": "replays.DemoCommand",
    "workloads": "known.WorkloadsCommand",
    "import": "known.ImportCommand",
    "serve": "serving.ServeCommand",
    "emulate": "serving.EmulateCommand",
}
"""Every sub-command with the class of its flags, in the order of the help."""
_MODULES = {"import": "import_log"}
"""Sub-commands whose name cannot be that of a module."""


def command_of(name: str) -> type[Command]:
    """Load the flags of a sub-command. KeyError if there is none of this name."""
    module, _, kind = COMMANDS[name].partition(".")
    return cast("type[Command]", getattr(import_module(f"{__name__}.{module}"), kind))


def name_of(command: type[Command]) -> str:
    """Return what a sub-command is called."""
    return command.__name__.removesuffix("Command").lower()


def module_of(command: type[Command]) -> str:
    """Return the module that executes a sub-command."""
    name = name_of(command)
    return f"tokenyard.cli.{_MODULES.get(name, name)}"
