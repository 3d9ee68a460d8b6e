"""What the command line takes: one frozen dataclass per sub-command, read by ``parsing``.

Flags that set something in vLLM carry vLLM's name. This package is imported for every ``--help`` and therefore imports
nothing heavy; what a sub-command does stands in the module of its name. A command is loaded on first use:
making the classes of all takes longer than many a command.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any

from tokenyard.lazy import lazy_names

_, __all__, _load, __dir__ = lazy_names(__name__)

_IN_HELP = (
    *("run", "report", "view", "watch", "why", "export", "compare", "whatif", "upgrade", "plan", "headroom", "sweep"),
    *("split", "query", "convert", "describe", "parity", "accuracy", "demo", "workloads", "import", "serve", "emulate"),
)
"""Sub-commands in the order of the help."""
_CLASSES = {each.removesuffix("Command").lower(): each for each in __all__ if each.endswith("Command")}


def command_of(name: str) -> Any:
    """The flags of a sub-command; None if there is none of this name."""
    return _load(_CLASSES[name]) if name in _CLASSES else None


def name_of(command: type) -> str:
    """What a sub-command is called."""
    return command.__name__.removesuffix("Command").lower()


def __getattr__(name: str) -> Any:
    """A class of flags, or what takes all of them: ``COMMANDS`` and ``Command``."""
    if name not in ("COMMANDS", "Command"):
        return _load(name)
    commands = {command_of(each): each for each in _IN_HELP}
    value = globals()[name] = commands if name == "COMMANDS" else reduce(or_, commands)
    return value
