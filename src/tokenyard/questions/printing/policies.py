"""Policies side by side, and studies, on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tokenyard.explain.render.parts import deployment_table, print_section
from tokenyard.questions.compare import Cell, Comparison, Interval, Metric
from tokenyard.questions.regret import Regret
from tokenyard.questions.study import Study, StudyCell
from tokenyard.redaction import plain

_ALMOST = 0.01
"""Difference of job completion times below which it is none."""
_WIDEST = 1000
"""Columns that no table needs."""
_ALIKE = "Every policy gave the same figures"
_NOTHING_SCARCE = (
    f"{_ALIKE}: nothing was scarce enough for the order to matter. "
    "Try higher --loads, a smaller GPU or fewer blocks (--num-gpu-blocks-override)."
)


def print_policies(comparison: Comparison, console: Console, *, header: bool = False) -> None:
    """The verdict, a table per load (several where the terminal is too narrow for all columns), and the deployment.

    ``header`` puts the deployment first.
    """
    deployment = None if comparison.header is None else deployment_table(comparison.header)
    if header and deployment is not None:
        print_section(console, "Deployment", deployment)
        console.print()
    console.print(Text(_verdict(comparison), "bold"))
    for each in comparison.not_compared:
        console.print(Text(f"{plain(each.name)} is not among them: {plain(each.problem)}", "yellow"))
    console.print()
    for load in comparison.loads:
        title: str | None = f"load {load:g}"
        for metrics in _column_groups(comparison, load, console):
            table = _table(comparison, load, metrics)
            table.title, title = title, None
            console.print(table)
            console.print()
    console.print(
        f"speedup: job completion time of {plain(comparison.baseline)} over the {_kind(comparison)}'s, seed by seed; "
        "above 1 is faster"
    )
    for heading, meaning in dict(metric.legend for metric in comparison.metrics).items():
        console.print(f"{heading}: {meaning}")
    if any(cell.lower_bounds for cell in comparison.cells):
        console.print("≥: at least so much: some were refused, given up or not finished, and count by their age so far")
        console.print("open: jobs of this policy, or of the first, did not all come to their end")
    if len(comparison.seeds) > 1:
        console.print(f"±: 95 % confidence interval of the mean over {len(comparison.seeds)} seeds")
    if not header and deployment is not None:
        print_section(console, "Deployment", deployment)


def _kind(comparison: Comparison) -> str:
    return "variant" if comparison.of_settings else "policy"


def _verdict(comparison: Comparison) -> str:
    """Whether the order mattered, and whose jobs ended soonest where it did most."""
    if comparison.of_settings and not _differs(comparison):
        return "Every variant gave the same figures: nothing that it changes was scarce. Try higher --loads."
    if len(comparison.policies) < 2:
        return f"One policy, {comparison.baseline}: there is nothing to compare it with."
    if not _differs(comparison):
        return _why_alike(comparison)
    if all(cell.speedup_is_open for cell in comparison.cells if cell.policy != comparison.baseline):
        return "Nobody's jobs are faster for sure: some were refused, given up or not finished (open)."
    under, than = ("with", "") if comparison.of_settings else ("under", "under ")
    others = [cell for cell in comparison.cells if cell.policy != comparison.baseline and not cell.speedup_is_open]
    cell = max(others, key=lambda cell: abs(log(cell.speedup.mean)))
    mean, half = cell.speedup.mean, cell.speedup.half
    if abs(mean - 1) < _ALMOST:
        return f"Jobs take as long as {under} {comparison.baseline}, within {_ALMOST:.0%}; other figures differ."
    said = f"{100 * (max(mean, 1 / mean) - 1):.0f} % {'faster' if mean > 1 else 'slower'}"
    at = f" at load {cell.load:g}" if len(comparison.loads) > 1 else ""
    sure = "one seed, so perhaps by chance" if half is None else "more than seeds change by chance"
    if half is not None and abs(mean - 1) <= half:
        sure = "no more than seeds change by chance"
    return f"Jobs end {said} {under} {plain(cell.policy)} than {than}{comparison.baseline}{at}: {sure}."


def _why_alike(comparison: Comparison) -> str:
    """Policies that find nothing to decide by, else that nothing was scarce."""
    if not set(comparison.policies[1:]) <= set(comparison.idle):
        return _NOTHING_SCARCE
    idle = "; ".join(f"{plain(name)} has nothing to decide by here ({why})" for name, why in comparison.idle.items())
    return f"{_ALIKE}: {idle}."


def _differs(comparison: Comparison) -> bool:
    return any(cell.metrics != comparison.cell(comparison.baseline, cell.load).metrics for cell in comparison.cells)


def _column_groups(comparison: Comparison, load: float, console: Console) -> Iterator[Sequence[Metric]]:
    """The metrics, as many beside each other as fit the terminal, one at least."""
    rest = comparison.metrics
    unbounded = console.options.update(max_width=_WIDEST)
    while rest:
        fitting = len(rest)
        while fitting > 1:
            table = _table(comparison, load, rest[:fitting])
            if console.measure(table, options=unbounded).maximum <= console.width:
                break
            fitting -= 1
        yield rest[:fitting]
        rest = rest[fitting:]


def _table(comparison: Comparison, load: float, metrics: Sequence[Metric]) -> Table:
    table = Table(title_justify="left", title_style="bold", box=None, padding=(0, 1, 0, 0))
    table.add_column(_kind(comparison), style="cyan", no_wrap=not comparison.of_settings, overflow="fold")
    table.add_column("speedup", justify="right", no_wrap=True)
    for metric in metrics:
        table.add_column(metric.heading, justify="right", no_wrap=True)
    for policy in comparison.policies:
        table.add_row(policy, *_row(comparison.cell(policy, load), metrics))
    return table


def _row(cell: Cell, metrics: Sequence[Metric]) -> list[str]:
    speedup = "open" if cell.speedup_is_open else str(cell.speedup)
    return [speedup, *(_interval(cell, metric) for metric in metrics)]


def _interval(cell: Cell, metric: Metric) -> str:
    """The mean; with a sign in place of its interval where it is a lower bound."""
    value = cell.metrics[metric.name]
    if metric.name in cell.lower_bounds:
        return f"≥{Interval(value.mean)}"
    return str(value if metric.with_interval else Interval(value.mean))


# ---------------------------------------------------------------------------------------------------------------------
# A study: a table per load.


_MOST_WITH_CHANGES = 12
"""Cells of one load up to which each has a line with its changes; more are sorted."""


def print_study(study: Study, console: Console) -> None:
    """Means with intervals of 95 %; below each, how far the cell is from the first one, seed by seed."""
    console.print(study.summary())
    is_long = len(study.cells) > len(study.loads) * _MOST_WITH_CHANGES
    for load in study.loads:
        console.print(_sorted_table(study, load) if is_long else _table_with_changes(study, load))
    if is_long:
        console.print(f"sorted by {study.shown[0]}; *: the best of a column; means() has what each is to the first")
    if len(study.seeds) > 1:
        changes = "" if is_long else "; %: the ratio to the first line, taken seed by seed"
        console.print(f"±: 95 % confidence interval of the mean over {len(study.seeds)} seeds{changes}")
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


def print_regret(regret: Regret, console: Console) -> None:
    """The costliest choices, each with the engine that would have been better."""
    console.print(f"{regret.summary()}; the others cost everybody {regret.mean:.2f} ms of {regret.measure} on average")
    table = Table(box=None, padding=(0, 1, 0, 0))
    for heading in ("request", "chosen", "better", "own ms", "everybody ms"):
        table.add_column(heading, justify="left" if heading == "request" else "right")
    for each in sorted(regret.rows, key=lambda each: -each.everybody)[:_MOST_WITH_CHANGES]:
        table.add_row(each.request_id, str(each.chosen), str(each.best), f"{each.own:.1f}", f"{each.everybody:.2f}")
    console.print(table)


def _study_table(study: Study, load: float) -> Table:
    table = Table(title=f"load {load:g}", title_justify="left", title_style="bold", box=None, padding=(0, 1, 0, 0))
    table.add_column("", style="cyan", overflow="fold")
    for name in study.shown:
        table.add_column(name, justify="right", overflow="fold")
    return table


def _table_with_changes(study: Study, load: float) -> Table:
    """Two lines a cell: means, and how far they are from the first one's."""
    table = _study_table(study, load)
    cells = [cell for cell in study.cells if cell.load == load]
    for cell in cells:
        table.add_row(cell.label, *(_mean_over_seeds(study, name, cell) for name in study.shown))
        if cell != cells[0]:
            table.add_row("", *(_change(study, name, cell, cells[0]) for name in study.shown), style="dim")
    return table


def _sorted_table(study: Study, load: float) -> Table:
    """A line a cell, the best first; the best of each column is marked."""
    table = _study_table(study, load)
    best = {name: study.best(name, load) for name in study.shown}
    for cell in study.ranked(load=load):
        marks = ["*" if cell == best[name] else " " for name in study.shown]
        means = [_mean_over_seeds(study, name, cell) for name in study.shown]
        table.add_row(cell.label, *(f"{mean} {mark}" for mean, mark in zip(means, marks, strict=True)))
    return table


def _mean_over_seeds(study: Study, name: str, cell: StudyCell) -> str:
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
