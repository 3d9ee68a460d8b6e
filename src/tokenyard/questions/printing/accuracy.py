"""Predictions beside what was measured, on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tokenyard.questions.accuracy.comparison import AccuracyReport, AccuracyRow, Errors
from tokenyard.steptime.constants import Constants
from tokenyard.steptime.known_error import LEFT_OUT, QUANTITIES

_MOST_SHOWN = 5


def left_out_table(constants: Constants) -> Table:
    """What the constants say of points that their fit had not seen."""
    table = Table(box=None, pad_edge=False)
    table.add_column("left out of the fit", no_wrap=True)
    for column in ("points", "TPOT p50", "p90", "p99", "TTFT p50", "p90", "p99"):
        table.add_column(column, justify="right")
    tpot, ttft = constants.errors("tpot"), constants.errors("ttft")
    for kind in tpot:
        cells = [f"{each[kind][share]:.1%}" for each in (tpot, ttft) for share in ("median", "p90", "p99")]
        table.add_row(LEFT_OUT[kind], f"{tpot[kind]['n']:.0f}", *cells)
    return table


def print_accuracy(accuracy: AccuracyReport, console: Console) -> None:
    """How far off predictions are, in a sentence; errors of all points, by group, and of each run by itself."""
    said = [f"{name.upper()} within {errors.median:.1%}" for name, errors in _overall(accuracy).items()]
    if said:
        console.print(f"[bold]Of half of the predictions {', '.join(said)} of what was measured.[/]\n", highlight=False)
    console.print("Absolute relative errors of mean TPOT, TTFT and E2E: predicted over measured, less 1.")
    nearest = "" if accuracy.nearest_to is None else f", the nearest known to {escape(accuracy.nearest_to)}"
    console.print(f"Decisions: those of vLLM {accuracy.vllm_version}{nearest}.\n", highlight=False)
    for name, groups in {"all": {"": _overall(accuracy)}, **accuracy.by}.items():
        _show_table(name, groups, console)
    for row in accuracy.rows:
        if row.users is None:
            show_run(row, console)
    if accuracy.not_compared:
        console.print(f"\n{len(accuracy.not_compared)} rows are not compared:")
        for problem in accuracy.not_compared[:_MOST_SHOWN]:
            console.print(f"  {escape(problem)}", soft_wrap=True)
    console.print(f"\n[dim]Step times: {escape(accuracy.source)}[/]", soft_wrap=True)


def _overall(accuracy: AccuracyReport) -> dict[str, Errors]:
    found = {name: getattr(accuracy, name) for name in QUANTITIES}
    return {name: errors for name, errors in found.items() if errors is not None}


def _show_table(name: str, groups: dict[str, dict[str, Errors]], console: Console) -> None:
    """Print errors of groups, and the share that the stated ranges held."""
    table = Table(box=None, pad_edge=False)
    table.add_column(name, no_wrap=True)
    columns = [each for one in ("TPOT", "TTFT") for each in (f"{one} p50", "p90", "held")]
    for column in ("points", *columns, "E2E p50"):
        table.add_column(column, justify="right")
    for group, found in groups.items():
        cells = [str(found["tpot"].n)]
        for own in (found["tpot"], found["ttft"]):
            cells += [f"{own.median:.1%}", f"{own.p90:.1%}", f"{own.covered:.0%}"]
        table.add_row(escape(group), *cells, f"{found['e2e'].median:.1%}")
    console.print(table)
    console.print()


def show_run(row: AccuracyRow, console: Console) -> None:
    """Print means and percentiles, and how far every request is off by itself."""
    console.print(f"{escape(row.name)}: {row.load}")
    table = Table(box=None, pad_edge=False)
    for column in ("", "measured, ms", "predicted", "error", "each request: p50", "p90", "p99"):
        table.add_column(column, justify="right" if column else "left")
    for name, mean in (("TTFT", row.ttft), ("TPOT", row.tpot), ("E2E", row.e2e)):
        if mean is None:
            continue
        own = row.of_requests.get(name.lower())
        for title, each in {"mean": mean, **row.percentiles.get(name.lower(), {})}.items():
            cells = [f"{each.measured:,.1f}", f"{each.predicted:,.1f}", f"{each.error:+.1%}"]
            if title == "mean" and own is not None:
                cells += [f"{own.median:.1%}", f"{own.p90:.1%}", f"{own.p99:.1%}"]
            table.add_row(f"{name} {title}", *cells)
    console.print(table)
