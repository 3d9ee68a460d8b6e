"""``tokenyard whatif``: a recorded run with other settings, beside itself."""

from __future__ import annotations

import sys
from itertools import chain

from tokenyard.cli.support.console import errors, print_json, replay_bar, results, warn
from tokenyard.cli.support.flags.replays import WhatIfCommand
from tokenyard.cli.support.parsing import names_in
from tokenyard.errors import TraceError
from tokenyard.questions.by_class import read_bounds
from tokenyard.questions.printing.whatif import off_by, print_check, print_whatif
from tokenyard.questions.recorded.ask import Baseline, WhatIfOptions, answer, replay_as_it_was
from tokenyard.questions.recorded.deployment import GivenDeployment
from tokenyard.questions.recorded.recorded_run import RecordedRun
from tokenyard.questions.whatif import answered, read_recorded, require_any, variants_of


def execute(flags: WhatIfCommand) -> int:
    """Check, ask, print; 0 if it ends."""
    with errors().status("reading the trace"):
        run, recorded = read_recorded(flags.trace, GivenDeployment(flags.recorded, flags.recorded_gpu))
    every = chain.from_iterable
    asked = variants_of(  # mistakes raise before anything is replayed
        run,
        recorded,
        changes=list(every(flags.changes)),
        policies=names_in(every(flags.policies)),
        serve=list(every(flags.serve)),
        gpus=list(every(flags.gpu)),
    )
    require_any(asked)
    bounds = read_bounds(flags.slo, flags.by)
    with replay_bar(len(run.workload), "as it was") as on_progress:
        baseline = replay_as_it_was(run, on_progress, WhatIfOptions(flags.by, bounds))
    if asked and not baseline.check.holds and not flags.yes:
        _ask_on(run, baseline, is_json=flags.json)
    told = answered(run, baseline, asked, replay_bar)
    if flags.json:
        print_json(told)
    else:
        print_whatif(told, results())
    return 0


def _ask_on(run: RecordedRun, baseline: Baseline, *, is_json: bool) -> None:
    """Whether to go on with a poor fit: asked on a terminal, else an error that says how. Raises TraceError."""
    off = ", ".join(off_by(baseline.check, name) for name in baseline.check.failed)
    problem = f"the replay of the run as it was is off by more than 10 %: {off}"
    if is_json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise TraceError(f"{run.source}: {problem}; --yes goes on all the same")
    print_check(answer(run, baseline, []), errors())
    warn(problem)
    errors().print("Go on all the same? [y/N] ", end="")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise TraceError(f"{run.source}: not asked further")
