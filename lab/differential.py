"""`make differential`: the same random streams through vLLM's own scheduler and FastScheduler, call by call.

Runs in an environment of vLLM's. The named scenarios of the recorder come first, then numbered random ones until so
many were compared. Exit 1 if any differs; it is printed, made small, with the command that repeats it.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import time
import warnings
from collections.abc import Iterator
from itertools import count

import vllm

import lockstep  # noqa: F401 - sets the environment that vLLM reads
from lockstep.report import case_lines, summary
from lockstep.scenario import Outcome, run_plan
from lockstep.shrink import shrunk
from lockstep.streams import stream
from noted import note_longest
from recorder.plan import Scenario
from recorder.scenarios import LATER, SCENARIOS
from recorder.versions import IS_FIRST, VERSION

__all__ = ["main"]

_EVERY = 100
"""Scenarios between two lines of progress."""
_NUMBERS = 10**9
"""A first number is drawn below this."""


def _scenarios(first: int, *, named: bool) -> Iterator[Scenario]:
    if named:
        yield from (*SCENARIOS, *(() if IS_FIRST else LATER))
    yield from map(stream, count(first))


def main() -> int:
    """Compare until enough scenarios have run: 0 if all agree."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--scenarios", type=int, default=2000, help="random scenarios to compare (default: 2000)")
    parser.add_argument("--minutes", type=float, default=600, help="stop after so many minutes (default: 600)")
    parser.add_argument("--first", type=int, help="number of the first one (default: a new one every time)")
    parser.add_argument("--most-differences", type=int, default=3, help="stop after so many (default: 3)")
    parser.add_argument("--no-named", action="store_true", help="leave out the recorder's named scenarios")
    parser.add_argument("--no-shrink", action="store_true", help="print differences as they were found")
    parser.add_argument("--note", action="store_true", help="keep the counts for the page of parity")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)  # every grammar that is broken on purpose is an error to vLLM
    first = random.SystemRandom().randrange(_NUMBERS) if arguments.first is None else arguments.first
    print(f"vLLM {vllm.__version__}: random scenarios from number {first} on (--first {first})", flush=True)
    start, outcomes, compared = time.time(), [], 0
    for scenario in _scenarios(first, named=not arguments.no_named):
        outcome = run_plan(scenario, scenario.plan())
        outcomes.append(outcome)
        compared += not (outcome.refused or outcome.gave_up) and scenario.name.startswith("drawn_")
        if outcome.difference:
            _print_case(scenario, outcome, shrink=not arguments.no_shrink)
            if sum(o.difference is not None for o in outcomes) >= arguments.most_differences:
                break
        if compared >= arguments.scenarios or time.time() - start > 60 * arguments.minutes:
            break
        if len(outcomes) % _EVERY == 0:
            print(f"{len(outcomes)} ({scenario.name}), {time.time() - start:.0f} s", file=sys.stderr, flush=True)
    print("\n".join(summary(vllm.__version__, outcomes, time.time() - start)))
    if arguments.note:
        _note(first, outcomes)
    return int(any(o.difference for o in outcomes))


def _note(first: int, outcomes: list[Outcome]) -> None:
    """Keep the counts, unless those of a longer run of this release are kept."""
    compared = [outcome for outcome in outcomes if not (outcome.refused or outcome.gave_up)]
    figures = {
        "release": vllm.__version__.partition("+")[0],
        "first": first,
        "scenarios": len(compared),
        "steps": sum(outcome.steps for outcome in compared),
        "different": sum(outcome.difference is not None for outcome in compared),
        "refused": sum(outcome.refused is not None for outcome in outcomes),
        "given_up": sum(outcome.gave_up is not None for outcome in outcomes),
    }
    note_longest(VERSION, "lockstep", "scenarios", figures)


def _print_case(scenario: Scenario, outcome: Outcome, *, shrink: bool) -> None:
    plan, small = shrunk(scenario, outcome) if shrink else (scenario.plan(), outcome)
    print("\n".join(case_lines(scenario, plan, small)))
    if scenario.name.startswith("drawn_"):
        number = scenario.name.removeprefix("drawn_")
        print(f"  again   make differential ARGS='--no-named --first {number} --scenarios 1'", flush=True)


if __name__ == "__main__":
    sys.exit(main())
