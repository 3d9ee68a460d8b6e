"""One half of a measured run tells how fast its machine was; the replay then has to meet the other half.

``python benchmarks/whatif_halves.py RUN ...``: folders with ``meta.json`` and ``requests.jsonl``. Step times are the
calibrated ones, times the factor by which the TPOT of the first half of the requests was longer than replayed. The
errors are those of the second half, which the factor has not seen; then the other way round.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tokenyard.questions.accuracy.measured_run import (
    MeasuredRun,
    ReplayedTimes,
    calibrated,
    read_measured_run,
    replay_run,
)
from tokenyard.steptime.calibrated import CalibratedLatency
from tokenyard.steptime.model import StepShape, TransferDirection

__all__ = ["main"]


class Slower(NamedTuple):
    """A latency model of a machine that takes ``factor`` times as long."""

    model: CalibratedLatency
    factor: float

    @property
    def host_seconds(self) -> float:
        return self.model.host_seconds * self.factor

    def step_seconds(self, shape: StepShape) -> float:
        return self.model.step_seconds(shape) * self.factor

    def ranks_seconds(self, shapes: Sequence[StepShape | None]) -> float:
        return self.model.ranks_seconds(shapes) * self.factor

    def transfer_seconds(self, num_bytes: int, direction: TransferDirection) -> float:
        return self.model.transfer_seconds(num_bytes, direction)


def main() -> int:
    """Print the errors of the half that was not fitted."""
    print(f"{'run':36}{'fitted to':>12}{'factor':>8}{'TTFT':>9}{'TPOT':>9}{'E2E':>9}   of the other half")
    for folder in sys.argv[1:]:
        run = read_measured_run(Path(folder))
        measured = _measured(run)
        plain = replay_run(run, calibrated(run))
        halves = np.arange(len(measured.ttft)) < len(measured.ttft) // 2
        for name, seen in (("the first", halves), ("the second", ~halves)):
            factor = float(measured.tpot[seen].mean() / plain.tpot[seen].mean())
            told = replay_run(run, Slower(calibrated(run), factor))
            errors = [
                float(there[~seen].mean() / was[~seen].mean() - 1) for there, was in zip(told, measured, strict=True)
            ]
            print(f"{run.name:36}{name:>12}{factor:8.3f}" + "".join(f"{100 * error:+8.1f}%" for error in errors))
    return 0


def _measured(run: MeasuredRun) -> ReplayedTimes:
    """In order of arrival, as a replay has them."""
    order = np.argsort(run.arrived, kind="stable")
    return ReplayedTimes(run.ttft[order], run.tpot[order], run.e2e[order])


if __name__ == "__main__":
    sys.exit(main())
