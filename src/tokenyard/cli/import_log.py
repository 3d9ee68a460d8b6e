"""``tokenyard import``: a service's log, or its metrics, as a workload file, and what is in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from tokenyard.cli.support.console import errors, print_json, results, say_notes
from tokenyard.cli.support.flags.known import ImportCommand
from tokenyard.deploy.spec import seconds_of
from tokenyard.errors import ConfigError
from tokenyard.explain.render.report import print_measured
from tokenyard.questions.measured import measured_in
from tokenyard.questions.metrics import read_metrics, scraped
from tokenyard.questions.printing.metrics import print_metrics
from tokenyard.questions.traffic import workload_facts, workload_from
from tokenyard.redaction import hidden_users, plain
from tokenyard.workload.readers.plain import write_plain


def execute(flags: ImportCommand) -> int:
    """Read, write and say what was read; always 0 if it ends."""
    target = flags.output
    if target is not None and target.exists() and not flags.overwrite:
        raise ConfigError("output", str(target), "exists already: name another file, or give --overwrite")
    if flags.prometheus is not None:
        return _from_metrics(flags, flags.prometheus, target)
    if not flags.log:
        raise ConfigError("log", "", "name a log, or several: tokenyard import LOG")
    workload = workload_from(flags.log[0], flags.arrivals, flags.log[1:])
    if target is not None:
        write_plain(workload, target)
    facts = workload_facts(workload)
    if flags.json:
        told = {"notes": list(workload.notes), "remarks": list(workload.remarks), "measured": measured_in(workload)}
        print_json(facts | told | {"output": str(target) if target else None})
        return 0
    say_notes(workload)
    _print(facts, [each.text for each in workload.remarks if not each.warning], target)
    measured = measured_in(workload)
    if measured is not None:
        print_measured(measured, results())
        results().print("  tokenyard run has what a replay gives beside it.")
    return 0


def _from_metrics(flags: ImportCommand, source: str, target: Path | None) -> int:
    """The same of metrics, and what that time was short of."""
    if flags.log:
        raise ConfigError("prometheus", source, f"{flags.log[0]} is given as well: name a log, or metrics")
    model, seed = flags.arrivals.model_name, flags.arrivals.seed
    if "://" in source:
        last = None if flags.last is None else seconds_of("last", flags.last)
        step = None if flags.step is None else seconds_of("step", flags.step)
        with errors().status(f"reading {hidden_users(source)}"):
            workload, told = scraped(source, last=last, step=step, model_name=model, seed=seed)
    else:
        workload, told = read_metrics(source, model_name=model, seed=seed)
    if target is not None:
        write_plain(workload, target)
    if flags.json:
        print_json(told.to_dict() | {"output": str(target) if target else None})
        return 0
    print_metrics(told, results())
    if target is not None:
        results().print(f"\nWritten to {target}: tokenyard run {target}", soft_wrap=True, markup=False)
    return 0


def _print(facts: dict[str, int | float | str], assumed: Sequence[str], target: Path | None) -> None:
    table = Table(box=None, show_header=False, padding=(0, 2))
    for name, value in facts.items():
        shown = value if isinstance(value, str) else f"{value:,.3f}" if isinstance(value, float) else f"{value:,}"
        table.add_row(name.replace("_", " "), shown)
    for text in assumed:
        table.add_row("assumed", Text(plain(text)))
    results().print(table)
    if target is not None:
        results().print(f"Written to {target}: tokenyard run {target}", soft_wrap=True, markup=False)
