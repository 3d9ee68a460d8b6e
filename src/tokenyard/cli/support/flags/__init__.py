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

TASKS = {
    "look": {
        "run": "replays.RunCommand",
        "report": "traces.ReportCommand",
        "doctor": "operating.DoctorCommand",
        "why": "traces.WhyCommand",
        "view": "traces.ViewCommand",
        "watch": "traces.WatchCommand",
        "compare": "replays.CompareCommand",
        "query": "traces.QueryCommand",
    },
    "ask": {
        "whatif": "replays.WhatIfCommand",
        "plan": "replays.PlanCommand",
        "upgrade": "replays.UpgradeCommand",
        "headroom": "serving.HeadroomCommand",
        "agents": "replays.AgentsCommand",
        "check": "operating.CheckCommand",
        "sweep": "replays.SweepCommand",
        "split": "replays.SplitCommand",
    },
    "serve": {
        "emulate": "serving.EmulateCommand",
        "serve": "serving.ServeCommand",
    },
    "files": {
        "import": "known.ImportCommand",
        "export": "traces.ExportCommand",
        "convert": "traces.ConvertCommand",
        "describe": "known.DescribeCommand",
    },
    "learn": {
        "demo": "replays.DemoCommand",
        "ask": "known.AskCommand",
        "workloads": "known.WorkloadsCommand",
        "accuracy": "known.AccuracyCommand",
        "parity": "known.ParityCommand",
    },
}
"""Every sub-command with the class of its flags, by what it is for, in the order of the help."""
COMMANDS = {name: kind for commands in TASKS.values() for name, kind in commands.items()}
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
