"""``tokenyard split``: prefill on one engine or several, decode on others; the report is what clients see."""

from __future__ import annotations

from tokenyard.cli.run import warn_of_refused, where_it_is
from tokenyard.cli.support.asking import reading, say_overwritten, scenario_of
from tokenyard.cli.support.console import print_json, replay_bar, results
from tokenyard.cli.support.flags.replays import SplitCommand
from tokenyard.questions.printing.split import print_split
from tokenyard.questions.split import ask


def execute(flags: SplitCommand) -> int:
    """Replay and report; 0 if it ends, 2 if its traces do not hold all of it."""
    with reading(flags.workload) as read:
        found = ask(scenario_of(flags), bars=replay_bar, on_read=read, on_overwritten=say_overwritten)
    if found.result.refused:
        warn_of_refused(found.workload, found.result.refused, found.result.num_left_out)
    if flags.json:
        print_json(found.report)
    else:
        print_split(found.report, results(), buckets=flags.buckets, header=flags.header)
        if found.traces is not None:
            results().print(where_it_is("The traces are", found.traces, found.problem), soft_wrap=True)
    return 0 if found.problem is None else 2
