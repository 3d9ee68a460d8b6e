"""What the command line takes: one frozen dataclass per sub-command, read by ``parsing``.

Flags that set something in vLLM carry vLLM's name. This package is imported for every ``--help`` and therefore imports
nothing heavy; what a sub-command does stands in the module of its name.
"""

from __future__ import annotations

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
from tokenyard.cli.support.flags.serving import EmulateCommand, EngineFlags, FrontFlags, HeadroomCommand, ServeCommand
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
]

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

COMMANDS: dict[type[Command], str] = {
    RunCommand: "run",
    ReportCommand: "report",
    ViewCommand: "view",
    WatchCommand: "watch",
    WhyCommand: "why",
    ExportCommand: "export",
    CompareCommand: "compare",
    WhatIfCommand: "whatif",
    UpgradeCommand: "upgrade",
    PlanCommand: "plan",
    HeadroomCommand: "headroom",
    SweepCommand: "sweep",
    SplitCommand: "split",
    QueryCommand: "query",
    ConvertCommand: "convert",
    DescribeCommand: "describe",
    ParityCommand: "parity",
    AccuracyCommand: "accuracy",
    DemoCommand: "demo",
    WorkloadsCommand: "workloads",
    ImportCommand: "import",
    ServeCommand: "serve",
    EmulateCommand: "emulate",
}
"""Every sub-command and its name, which is also the module with its ``execute``."""
