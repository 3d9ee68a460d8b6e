"""Virtual time, and how fast a machine was at which moment."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from tokenyard.quick_dataclass import dataclass
from tokenyard.steptime.model import LatencyModel, MappedLatency, StepShape

# ---------------------------------------------------------------------------------------------------------------------
# Virtual time.


class VirtualClock:
    """Seconds that pass only when its owner says so; never backwards."""

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


class Stall(msgspec.Struct, frozen=True):
    """A step that took longer than its work does: a kernel was compiled, the machine paused."""

    moment: float
    """Seconds since the first arrival at which the step began."""
    seconds: float
    """How much longer it took."""


@dataclass(frozen=True, slots=True, eq=False)
class MachineSpeed:
    """Step times as multiples of what a latency model says, by stretches of time."""

    begins: Floats
    """Seconds since the first arrival at which each stretch begins, ascending, shape ``[stretches]``."""
    factors: Floats
    """Above 1: slower than the model says; shape ``[stretches]``."""
    stalls: tuple[Stall, ...] = ()
    """When it stood still, ascending."""

    @classmethod
    def even(cls, stalls: Sequence[Stall]) -> MachineSpeed:
        """A machine that is as fast as the model says, but for these."""
        return cls(np.zeros(1), np.ones(1), tuple(stalls))

    def at(self, moment: float) -> float:
        """The factor of ``moment``; before the first stretch that of the first."""
        return float(self.factors[max(int(self.begins.searchsorted(moment, side="right")) - 1, 0)])


def paced(model: LatencyModel, pace: MachineSpeed, clock: VirtualClock) -> LatencyModel:
    """A latency model on a machine that is faster at some moments than at others; a step has the pace of its start.

    A stall is part of the step that begins nearest to its moment, or of the first one after it: requests that are there
    wait for it. The model is asked for every step once, in order.
    """
    coming = deque(pace.stalls)

    def change(seconds: float, shape: StepShape) -> float:
        now = clock.now()
        seconds *= pace.at(now)
        nearest = now + seconds / 2
        while coming and coming[0].moment < nearest:
            seconds += coming.popleft().seconds
        return seconds

    return MappedLatency(model, change)
