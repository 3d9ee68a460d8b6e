# Sub-commands and what several of them share; the module beside it loads these names when they are asked for.
# isort: skip_file

from tokenyard.cli.support.flags.replays import (
    RunCommand as RunCommand,
    CompareCommand as CompareCommand,
    UpgradeCommand as UpgradeCommand,
    SplitCommand as SplitCommand,
    DemoCommand as DemoCommand,
    ReplayFlags as ReplayFlags,
)
from tokenyard.cli.support.flags.traces import (
    ReportCommand as ReportCommand,
    ViewCommand as ViewCommand,
    WatchCommand as WatchCommand,
    WhyCommand as WhyCommand,
    ExportCommand as ExportCommand,
    QueryCommand as QueryCommand,
    ConvertCommand as ConvertCommand,
)
from tokenyard.cli.support.flags.planning import (
    PlanCommand as PlanCommand,
    SweepCommand as SweepCommand,
    WhatIfCommand as WhatIfCommand,
)
from tokenyard.cli.support.flags.known import (
    DescribeCommand as DescribeCommand,
    ParityCommand as ParityCommand,
    AccuracyCommand as AccuracyCommand,
    WorkloadsCommand as WorkloadsCommand,
    ImportCommand as ImportCommand,
)
from tokenyard.cli.support.flags.serving import (
    HeadroomCommand as HeadroomCommand,
    ServeCommand as ServeCommand,
    EmulateCommand as EmulateCommand,
    EngineFlags as EngineFlags,
    AccessFlags as AccessFlags,
)

Command = (
    RunCommand
    | CompareCommand
    | UpgradeCommand
    | SplitCommand
    | DemoCommand
    | ReportCommand
    | ViewCommand
    | WatchCommand
    | WhyCommand
    | ExportCommand
    | QueryCommand
    | ConvertCommand
    | WhatIfCommand
    | PlanCommand
    | SweepCommand
    | DescribeCommand
    | ParityCommand
    | AccuracyCommand
    | WorkloadsCommand
    | ImportCommand
    | HeadroomCommand
    | ServeCommand
    | EmulateCommand
)

COMMANDS: dict[type[Command], str]
"""Every sub-command and its name, which is also the module with its ``execute``, in the order of the help."""

def command_of(name: str) -> type[Command] | None: ...
def name_of(command: type[Command]) -> str: ...
