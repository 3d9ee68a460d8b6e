"""Virtual time, and how fast a machine was at which moment."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tokenyard.quick_dataclass import dataclass
from tokenyard.steptime.model import LatencyModel, MappedLatency

# ---------------------------------------------------------------------------------------------------------------------
# Virtual time.


class VirtualClock:
    """Seconds that pass only when its owner says so; never backwards."""

    __slots__ = ("_now",)

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        """Seconds since the start of the workload."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass."""
        assert seconds >= 0, seconds
        self._now += seconds

    def advance_to(self, moment: float) -> float:
        """Wait until ``moment``; no time passes if it is over. Returns what the clock shows then."""
        self._now = now = max(self._now, moment)
        return now


# ---------------------------------------------------------------------------------------------------------------------
# How fast a machine was at which moment: the same work takes longer while a neighbour is busy, or clocks are down.
#
# A queue remembers slow stretches: a machine that is a tenth slower for a while makes people wait longer than one
# that is as slow on average, but evenly.

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class MachineSpeed:
    """Step times as multiples of what a latency model says, by stretches of time."""

    begins: Floats
    """Seconds since the first arrival at which each stretch begins, ascending, shape ``[stretches]``."""
    factors: Floats
    """Above 1: slower than the model says; shape ``[stretches]``."""

    def at(self, moment: float) -> float:
        """The factor of ``moment``; before the first stretch that of the first."""
        return float(self.factors[max(int(self.begins.searchsorted(moment, side="right")) - 1, 0)])


def paced(model: LatencyModel, pace: MachineSpeed, clock: VirtualClock) -> LatencyModel:
    """A latency model on a machine that is faster at some moments than at others; a step has the pace of its start."""
    return MappedLatency(model, lambda seconds, _: seconds * pace.at(clock.now()))
