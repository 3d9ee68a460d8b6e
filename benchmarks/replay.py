"""What replaying a whole workload costs: step by step and in leaps, bare and with the report of `tokenyard run`.

    python benchmarks/replay.py WORKLOAD [flags of `tokenyard run`] [-- WORKLOAD ...]

Each workload is replayed four times in this process; what came out has to be the same, with leaps and without. CPU time
is that of the process; reading the workload is left out.
"""

from __future__ import annotations

import gc
import sys
from itertools import groupby
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any, NamedTuple

from tokenyard.cli.support.asking import scenario_of
from tokenyard.cli.support.flags.replays import RunCommand
from tokenyard.cli.support.parsing import parse
from tokenyard.deploy.spec import ReplaySpec
from tokenyard.questions.replaying import Recordings
from tokenyard.questions.scenario import replay_spec
from tokenyard.sim.replay import ReplayResult, replay

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


class Timed(NamedTuple):
    """One replay."""

    result: ReplayResult
    report: Any
    wall: float
    cpu: float


def timed(setup: ReplaySpec, *, skip_refused: bool, leaps: bool, reports: bool) -> Timed:
    """Replay, with an eye on the clock."""
    recordings = Recordings(setup) if reports else None
    settings = setup.replays(skip_refused=skip_refused)
    gc.collect()
    wall, cpu = perf_counter(), process_time()
    result = replay(
        setup.workload,
        settings.scheduler,
        settings.cache,
        settings.latency,
        observer=None if recordings is None else recordings.recorders[0],
        policy=setup.policy(),
        kv_transfer=settings.kv_transfer,
        speculation=settings.speculation,
        skip_refused=skip_refused,
        leaps=leaps,
    )
    wall, cpu = perf_counter() - wall, process_time() - cpu
    return Timed(result, None if recordings is None else recordings.side_report(), wall, cpu)


def measure(arguments: Sequence[str]) -> bool:
    """Replay one workload; whether both ways gave the same."""
    flags = parse(["run", *arguments])
    assert isinstance(flags, RunCommand)
    setup = replay_spec(scenario_of(flags))
    print(f"{' '.join(arguments)}: {len(setup.workload):,} requests")
    same = True
    for name, reports in (("bare", False), ("with the report", True)):
        runs = {}
        for how, leaps in (("step by step", False), ("in leaps", True)):
            run = runs[how] = timed(setup, skip_refused=flags.arrivals.skip_refused, leaps=leaps, reports=reports)
            each = 1e6 * run.cpu / run.result.steps
            print(f"  {name + ', ' + how:29} {run.cpu:7.2f} s CPU {run.wall:7.2f} s  {each:6.1f} us/step", flush=True)
        one, other = runs.values()
        equal = one.result == other.result and one.report == other.report
        same &= equal
        verdict = "equal" if equal else "DIFFERENT"
        print(f"  {one.result.steps:,} steps, {one.cpu / other.cpu:.1f} times as fast, {verdict}")
    return same


def main(arguments: Sequence[str]) -> int:
    """Measure all that are named; 1 if leaps changed anything."""
    workloads = [list(words) for is_rule, words in groupby(arguments, lambda word: word == "--") if not is_rule]
    if not workloads:
        print(__doc__, file=sys.stderr)
        return 2
    wrong = [words for words in workloads if not measure(words)]
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
