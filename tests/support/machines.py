"""State machines as tests that cannot pass idly: what they got done on average has a floor."""

from __future__ import annotations

import unittest
from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine
from tests.support.examples import examples

__all__ = ["TALLIES", "Floor", "Tally", "machine_test"]


@dataclass
class Tally:
    """What a machine has done since its test began."""

    runs: int = 0
    """Schedulers made."""
    accepted: int = 0
    refused: int = 0
    steps: int = 0
    """Steps that computed anything."""


TALLIES: defaultdict[type[RuleBasedStateMachine], Tally] = defaultdict(Tally)
"""By machine; machines count here."""


class Floor(NamedTuple):
    """Least averages per scheduler made; a machine that refuses or stalls everything falls below."""

    accepted: float
    steps: float


def machine_test(
    machine: type[RuleBasedStateMachine], floor: Floor, *, max_examples: int, step_count: int = 50
) -> type[unittest.TestCase]:
    """The test case of ``machine``, which fails as well if the machine hardly got anything done.

    Of fewer than all ``max_examples`` (``support/examples.py``) a fifth of the floor is asked: their average strays.
    The average of fewer than ten is not asked.
    """
    drawn = examples(max_examples)
    asked = 1.0 if drawn == max_examples else 0.2 if drawn >= 10 else 0.0

    class MachineTest(machine.TestCase):  # type: ignore[misc, name-defined]  # made by hypothesis for each machine
        settings = settings(max_examples=drawn, stateful_step_count=step_count, deadline=None)

        def runTest(self) -> None:  # noqa: N802  # unittest's name
            tally = TALLIES[machine] = Tally()
            super().runTest()
            assert tally.runs >= drawn / 2, f"only {tally.runs} schedulers were made"
            found = Floor(tally.accepted / tally.runs, tally.steps / tally.runs)
            assert found.accepted >= floor.accepted * asked, f"{found.accepted:.1f} requests accepted per scheduler"
            assert found.steps >= floor.steps * asked, f"{found.steps:.1f} steps per scheduler"

    MachineTest.__name__ = MachineTest.__qualname__ = f"Test{machine.__name__}"
    return MachineTest
