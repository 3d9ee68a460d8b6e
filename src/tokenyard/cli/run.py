"""``tokenyard run``: a workload through the scheduler on a virtual clock, then the report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tokenyard.cli.support.asking import reading, say_overwritten, scenario_of
from tokenyard.cli.support.console import print_json, replay_bar, results, warn
from tokenyard.cli.support.flag_table import in_words_of
from tokenyard.cli.support.flags.replays import RunCommand
from tokenyard.deploy.spec import seconds_of
from tokenyard.errors import ConfigError, WorkloadError
from tokenyard.explain.report.classes import Classes
from tokenyard.explain.report.report import Report
from tokenyard.questions.by_class import require_column
from tokenyard.questions.replaying import Watching
from tokenyard.questions.run import STEPS_TRIED, ask
from tokenyard.sim.traffic import RefusedRequest
from tokenyard.workload.record import Workload

if TYPE_CHECKING:  # rich is loaded where it prints
    from rich.console import Console


class Replayed(msgspec.Struct, frozen=True):
    """What came of a run."""

    report: Report
    trace: Path | None
    """The directory of its trace; None if none was wanted."""
    problem: str | None
    """Why the trace is not whole; None if it is."""
    classes: Classes | None = None
    """Figures per class, if they were requested."""

    @property
    def code(self) -> int:
        """The exit code: a trace that was requested and is not there is for the user to mend."""
        return 0 if self.problem is None else 2


def execute(flags: RunCommand) -> int:
    """Replay and report; 0 if it ends, 2 if its trace does not hold all of it."""
    replayed = run(flags)
    if flags.json:
        classes = replayed.classes
        also = {} if classes is None else {"by": classes.by, "classes": classes.classes}
        print_json(replayed.report.to_dict() | also)
    else:
        show(replayed, results(), full=flags.full, buckets=flags.buckets, header=flags.header)
    return replayed.code


def show(
    replayed: Replayed, console: Console, *, full: bool = False, buckets: bool = False, header: bool = False
) -> None:
    """Print the report, and where its trace is."""
    from tokenyard.explain.render.report import print_report  # noqa: PLC0415

    print_report(replayed.report, console, full=full, buckets=buckets, header=header, classes=replayed.classes)
    if replayed.trace is not None:
        subject = "The traces, one per rank, are" if replayed.report.ranks else "The trace is"
        console.print(where_it_is(subject, replayed.trace, replayed.problem), soft_wrap=True)


def where_it_is(subject: str, directory: Path, problem: str | None) -> str:
    """The last line of a run that was asked for a trace."""
    from rich.markup import escape  # noqa: PLC0415

    place = f"in [bold]{escape(str(directory))}[/]"
    return f"\n{subject} {place}." if problem is None else f"\n{subject} not whole {place}: {escape(problem)}"


def run(flags: RunCommand) -> Replayed:
    """Replay, with a progress bar on a terminal; warnings go to standard error."""
    until = None if flags.until is None else seconds_of("until", flags.until)
    if until is not None and flags.advice == "all":
        raise ConfigError("until", flags.until, "proposals are compared by whole runs: leave out this, or §advice all")
    with reading(flags.workload) as say_read:

        def read(workload: Workload) -> None:
            say_read(workload)
            if flags.by is not None:
                require_column(flags.by, workload)  # before the replay, not after it

        found = ask(
            scenario_of(flags),
            bars=replay_bar,
            watching=Watching(rows=flags.by is not None, until=until),
            say=warn,
            on_read=read,
            on_overwritten=say_overwritten,
            advice=flags.advice != "none" and until is None,
            most_steps=STEPS_TRIED if flags.advice == "auto" else None,
            calibrate=flags.calibrate,
        )
    if found.result.refused:
        warn_of_refused(found.workload, found.result.refused, found.result.num_left_out)
    classes = None if flags.by is None else found.by(flags.by, flags.slo)
    return Replayed(found.report, found.trace, found.problem, classes)


def warn_of_refused(workload: Workload, refusals: Sequence[RefusedRequest], left_out: int) -> None:
    """Say on standard error that a replay went on without some requests; WorkloadError if none was left."""
    refused, first = len(refusals), in_words_of(RunCommand, refusals[0].marked)
    if refused + left_out == len(workload):
        problem = f"--skip-refused leaves none of its {len(workload):,} requests; the first: {first}"
        raise WorkloadError(workload.name, 0, problem)
    after = f" and {left_out:,} turn{'s' * (left_out != 1)} after {'them' if refused > 1 else 'it'} left out"
    warn(
        f"{refused:,} request{'s were' if refused > 1 else ' was'} refused{after * (left_out > 0)}; the first: {first}"
    )
