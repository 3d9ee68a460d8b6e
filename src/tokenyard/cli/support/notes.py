"""What a library call has to say besides its result, on standard error."""

from __future__ import annotations

from tokenyard.cli.support.console import warn
from tokenyard.sim.workload import Workload

__all__ = ["say_notes"]


def say_notes(workload: Workload) -> None:
    """What looks wrong in the workload as it was read, on standard error; the header has the rest, too."""
    for each in workload.remarks:
        if each.warning:
            warn(f"{workload.name}: {each.text}")
