"""Random steps with every feature: the state machine of the tests, driven by plain random numbers, which is fast.

The machine checks the scheduler's invariants, a worker, what clients must see, and livelocks after every step.
"""

from __future__ import annotations

import itertools
import multiprocessing
import traceback
from collections.abc import Callable, Iterator
from random import Random

from tests.property import test_features_machine as features
from tests.support.machines import TALLIES
from tests.support.plans import KeptPlans

from tokenyard.core.config import PauseState
from tokenyard.core.sched.scheduler_output import SchedulerOutput

__all__ = ["fuzz_steps"]

TURNS = 40
"""Calls of rules on one scheduler."""
_BATCH = 64
COMPARED = 10
"""One of so many schedulers has its plans copied and compared after every step."""
_STATES = (PauseState.UNPAUSED, PauseState.UNPAUSED, *PauseState)


class _NoPlans(KeptPlans):
    """Most schedulers' plans are not copied and compared: that takes longer than the steps."""

    def keep(self, plan: SchedulerOutput) -> None:
        """Forget it."""


def _silent(value: object) -> None:
    """There is no hypothesis here to keep notes."""


def fuzz_steps(count: int, seed: int, processes: int | None = None) -> Iterator[int]:
    """Yields the steps so far after every scheduler, until ``count``; AssertionError, with the seed, where one broke.

    Schedulers are made from ``seed`` on, in as many processes as there are cores; for a single step in one, so that the
    scheduler of ``seed`` itself is the one that is asked.
    """
    steps = 0
    with multiprocessing.get_context("spawn").Pool(1 if count == 1 else processes) as pool:
        for first in itertools.count(seed, _BATCH):  # an endless queue would be filled before the first is done
            for done in pool.imap_unordered(_steps_of, range(first, first + _BATCH)):
                steps += done
                yield steps
                if steps >= count:
                    return


def _steps_of(seed: int) -> int:
    """Steps that the scheduler of ``seed`` computed something in."""
    features.note = _silent  # type: ignore[attr-defined]
    tally = TALLIES[features.FeaturesMachine]
    before = tally.steps
    try:
        _scheduler(seed)
    except Exception as error:
        fix = f"repeat it: scripts/fuzz.py --inputs 0 --steps 1 --seed {seed}"
        raise AssertionError(f"{fix}\n{traceback.format_exc()}") from error
    return tally.steps - before


def _scheduler(seed: int) -> None:
    random = Random(seed)

    def number(most: int) -> int:
        return random.randrange(most + 1)

    def drawn(most: int) -> list[int]:
        return [random.randrange(2**32) for _ in range(random.randint(1, most))]

    machine = features.FeaturesMachine()
    machine.build(seed=random.randrange(2**32))
    if seed % COMPARED:
        machine.plans = _NoPlans()

    def feed() -> None:
        if machine._sessions():  # noqa: SLF001 - as the machine's own precondition
            machine.feed(pick=number(9), seed=random.randrange(2**32), last=random.random() < 0.5)

    def abort() -> None:
        if machine._live():  # noqa: SLF001
            machine.abort(picks=[number(50) for _ in range(random.randint(1, 3))])

    rules: dict[Callable[[], None], int] = {
        lambda: machine.add(seeds=drawn(4), steps=number(2)): 6,
        lambda: machine.run(seeds=drawn(10)): 8,
        feed: 2,
        lambda: machine.compile_grammar(pick=number(9)): 2,
        abort: 1,
        lambda: machine.reset_cache(running=random.random() < 0.5): 1,
        lambda: machine.pause(state=random.choice(_STATES)): 1,
        lambda: machine.wait(seconds=random.choice((0.01, 1.0, 5.0))): 1,
    }
    for rule in random.choices(list(rules), list(rules.values()), k=TURNS):
        rule()
    machine.teardown()
