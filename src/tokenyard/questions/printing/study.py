"""A study on a terminal: a table per load."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from tokenyard.questions.study import Study, StudyCell


def print_study(study: Study, console: Console) -> None:
    """Means with intervals of 95 %; below each, how far the cell is from the first one, seed by seed."""
    console.print(study.summary())
    for load in study.loads:
        table = Table(title=f"load {load:g}", title_justify="left", title_style="bold", box=None, padding=(0, 1, 0, 0))
        table.add_column("", style="cyan", overflow="fold")
        for name in study.shown:
            table.add_column(name, justify="right", overflow="fold")
        cells = [cell for cell in study.cells if cell.load == load]
        for cell in cells:
            table.add_row(cell.label, *(_interval(study, name, cell) for name in study.shown))
            if cell != cells[0]:
                table.add_row("", *(_change(study, name, cell, cells[0]) for name in study.shown), style="dim")
        console.print(table)
    if len(study.seeds) > 1:
        console.print(
            f"±: 95 % confidence interval of the mean over {len(study.seeds)} seeds; %: the ratio to the first line, "
            "taken seed by seed"
        )
    if any(study.is_at_least(name, cell) for name in study.shown for cell in study.cells):
        console.print(
            "\N{GREATER-THAN OR EQUAL TO}: a lower bound, since requests were not served; two are not compared"
        )
    if any(study.part(name, cell) is not None for name in study.shown for cell in study.cells):
        console.print("n of m: requests that were not served are left out of it; it is not compared")
    for row in study.rows:
        if row.problem is not None:
            where = ", ".join(f"{name} {value}" for name, value in row.settings.items() if value != "")
            console.print(f"not replayed: {where}: {row.problem}", markup=False)


def _interval(study: Study, name: str, cell: StudyCell) -> str:
    value, is_bound = study.interval(name, cell), study.is_at_least(name, cell)
    if value is None:
        return "never" if is_bound else "-"
    if is_bound:
        return f"\N{GREATER-THAN OR EQUAL TO}{value}" if value.mean else "-"
    part = study.part(name, cell)
    return str(value) if part is None else f"{value} ({part[0]:,} of {part[1]:,})"


def _change(study: Study, name: str, cell: StudyCell, first: StudyCell) -> str:
    ratio = study.against(name, cell, first, ratio=True)
    if ratio is None or not (study.is_sure(name, cell) and study.is_sure(name, first)):
        return "-"
    half = "" if ratio.half is None else f" ± {100 * ratio.half:.1f}"
    return f"{100 * (ratio.mean - 1):+.1f}{half} %"
