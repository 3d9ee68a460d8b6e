"""What the command line takes: one frozen dataclass per sub-command, read by ``parsing``.

Flags that set something in vLLM carry vLLM's name. This package is imported for every ``--help`` and therefore imports
nothing heavy; what a sub-command does stands in the module of its name. A command is loaded when it is asked for:
making the classes of all takes longer than many a command.
"""

from __future__ import annotations

from functools import reduce
from importlib import import_module
from operator import or_
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from tokenyard.cli.support.flags.known import (
        AccuracyCommand,
        DescribeCommand,
        ImportCommand,
        ParityCommand,
        WorkloadsCommand,
    )
    from tokenyard.cli.support.flags.planning import PlanCommand, SweepCommand
    from tokenyard.cli.support.flags.replays import (
        CompareCommand,
        DemoCommand,
        ReplayFlags,
        RunCommand,
        SplitCommand,
        UpgradeCommand,
    )
    from tokenyard.cli.support.flags.serving import (
        EmulateCommand,
        EngineFlags,
        FrontFlags,
        HeadroomCommand,
        ServeCommand,
    )
    from tokenyard.cli.support.flags.traces import (
        ConvertCommand,
        ExportCommand,
        QueryCommand,
        ReportCommand,
        ViewCommand,
        WatchCommand,
        WhyCommand,
    )
    from tokenyard.cli.support.flags.whatif import WhatIfCommand

    Command = (
        RunCommand
        | ReportCommand
        | WhyCommand
        | ExportCommand
        | CompareCommand
        | WhatIfCommand
        | UpgradeCommand
        | PlanCommand
        | SweepCommand
        | SplitCommand
        | HeadroomCommand
        | DescribeCommand
        | ParityCommand
        | AccuracyCommand
        | DemoCommand
        | WorkloadsCommand
        | ConvertCommand
        | QueryCommand
        | ViewCommand
        | WatchCommand
        | ImportCommand
        | ServeCommand
        | EmulateCommand
    )

    COMMANDS: dict[type[Command], str]
    """Every sub-command and its name, which is also the module with its ``execute``."""

__all__ = [
    "COMMANDS",
    "AccuracyCommand",
    "Command",
    "CompareCommand",
    "ConvertCommand",
    "DemoCommand",
    "DescribeCommand",
    "EmulateCommand",
    "EngineFlags",
    "ExportCommand",
    "FrontFlags",
    "HeadroomCommand",
    "ImportCommand",
    "ParityCommand",
    "PlanCommand",
    "QueryCommand",
    "ReplayFlags",
    "ReportCommand",
    "RunCommand",
    "ServeCommand",
    "SplitCommand",
    "SweepCommand",
    "UpgradeCommand",
    "ViewCommand",
    "WatchCommand",
    "WhatIfCommand",
    "WhyCommand",
    "WorkloadsCommand",
    "command_of",
    "name_of",
]

_HOMES = {
    "run": "replays.RunCommand",
    "report": "traces.ReportCommand",
    "view": "traces.ViewCommand",
    "watch": "traces.WatchCommand",
    "why": "traces.WhyCommand",
    "export": "traces.ExportCommand",
    "compare": "replays.CompareCommand",
    "whatif": "whatif.WhatIfCommand",
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
"""Sub-command -> the class of its flags, and the module of this package that it stands in, in the order of the help."""
_SHARED = {"EngineFlags": "serving", "FrontFlags": "serving", "ReplayFlags": "replays"}


def command_of(name: str) -> type[Command] | None:
    """The flags of a sub-command; None if there is none of this name."""
    return None if name not in _HOMES else cast("type[Command]", _loaded(*_HOMES[name].split(".")))


def name_of(command: type[Command]) -> str:
    """What a sub-command is called."""
    return next(name for name, home in _HOMES.items() if home.endswith(f".{command.__name__}"))


def _loaded(module: str, name: str) -> Any:
    return getattr(import_module(f"{__name__}.{module}"), name)


def __getattr__(name: str) -> Any:
    """A class of flags, or what takes all of them: ``COMMANDS`` and ``Command``."""
    if name == "COMMANDS":
        value: Any = {command_of(each): each for each in _HOMES}
    elif name == "Command":
        value = reduce(or_, [command_of(each) for each in _HOMES])
    else:
        homes = _SHARED | {cls: module for module, cls in (each.split(".") for each in _HOMES.values())}
        if name not in homes:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = _loaded(homes[name], name)
    globals()[name] = value
    return value
