"""What the command line takes: one frozen dataclass per sub-command, read by tyro.

Flags that set something in vLLM carry vLLM's name. This package is imported for every ``--help`` and therefore imports
nothing heavy; what a sub-command does stands in the module of its name.
"""

from __future__ import annotations

from tokenyard.cli.support.flags.planning import Plan, Sweep
from tokenyard.cli.support.flags.replays import Compare, Demo, Replay, Run, Split
from tokenyard.cli.support.flags.serving import EngineFlags, FrontFlags, Serve
from tokenyard.cli.support.flags.traces import (
    Accuracy,
    Convert,
    Export,
    Import,
    Parity,
    Query,
    Report,
    View,
    Watch,
    Why,
    Workloads,
)
from tokenyard.cli.support.flags.whatif import WhatIf

__all__ = [
    "COMMANDS",
    "Accuracy",
    "Command",
    "Compare",
    "Convert",
    "Demo",
    "EngineFlags",
    "Export",
    "FrontFlags",
    "Import",
    "Parity",
    "Plan",
    "Query",
    "Replay",
    "Report",
    "Run",
    "Serve",
    "Split",
    "Sweep",
    "View",
    "Watch",
    "WhatIf",
    "Why",
    "Workloads",
]

Command = (
    Run
    | Report
    | Why
    | Export
    | Compare
    | WhatIf
    | Plan
    | Sweep
    | Split
    | Parity
    | Accuracy
    | Demo
    | Workloads
    | Convert
    | Query
    | View
    | Watch
    | Import
    | Serve
)

COMMANDS: dict[type[Command], str] = {
    Run: "run",
    Report: "report",
    View: "view",
    Watch: "watch",
    Why: "why",
    Export: "export",
    Compare: "compare",
    WhatIf: "whatif",
    Plan: "plan",
    Sweep: "sweep",
    Split: "split",
    Query: "query",
    Convert: "convert",
    Parity: "parity",
    Accuracy: "accuracy",
    Demo: "demo",
    Workloads: "workloads",
    Import: "import",
    Serve: "serve",
}
"""Every sub-command and its name, which is also the module with its ``execute``."""
