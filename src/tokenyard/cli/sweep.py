"""``tokenyard sweep``: many variants of a run, each a row of a table."""

from __future__ import annotations

from tokenyard.cli.support.asking import scenario_of
from tokenyard.cli.support.console import print_json, results, variants_bar, warn, write_text
from tokenyard.cli.support.flags.replays import SweepCommand
from tokenyard.questions.printing.sweep import print_sweep
from tokenyard.questions.space import read_prices
from tokenyard.questions.sweep import SweepQuestion, ask


def execute(flags: SweepCommand) -> int:
    """Replay what is not finished, write the table, print it; 0 if every variant has a row."""
    result = ask(question_of(flags))
    rows = result.rows
    if flags.traces and any(row.problem is None and not row.traces for row in rows):
        warn("some variants have no trace: replicas leave none, and a full disk leaves none that is whole")
    print_json(result) if flags.json else print_sweep(result, results())
    if flags.html is not None:
        write_text("html", flags.html, result.page())
    return 0 if any(row.problem is None for row in rows) else NOTHING_REPLAYED


def question_of(flags: SweepCommand) -> SweepQuestion:
    """The question that the flags describe. Raises ConfigError."""
    return SweepQuestion(
        scenario=scenario_of(flags),
        output=flags.output,
        space=[text for texts in flags.grid for text in texts],
        variants=flags.variants,
        prices=read_prices(flags.price),
        jobs=flags.processes,
        ray=flags.ray,
        traces=flags.traces,
        space_name="--set",
        bar=variants_bar,
        say=warn,
    )


NOTHING_REPLAYED = 2
"""The exit code where every variant was refused."""
