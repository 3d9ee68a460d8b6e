"""``tokenyard compare``: two traces, or one workload under several policies, at several loads, with several seeds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from tokenyard.cli.support.asking import prepare
from tokenyard.cli.support.console import errors, print_json, results, say_notes, warn
from tokenyard.cli.support.flags import Compare
from tokenyard.core.config import require_int
from tokenyard.deploy.header import with_idle_policies, with_oracles
from tokenyard.deploy.spec import ReplaySpec
from tokenyard.errors import ConfigError, WorkloadError
from tokenyard.explain.compare.comparison import compare_traces
from tokenyard.explain.render.comparison import print_comparison
from tokenyard.explain.render.parts import deployment_table, print_section
from tokenyard.explain.report.slo import read_slos
from tokenyard.questions.compare import Cell, Comparison, Interval, Metric, compare, draw
from tokenyard.sim.replay import Progress
from tokenyard.workload.record import Workload

__all__ = ["execute"]

_MOST_SEEDS = 1000
_WIDEST = 1000
"""Columns that no table needs."""
_ALIKE = (
    "\nEvery policy gave the same figures: nothing was scarce enough for the order to matter. "
    "Try higher --loads, a smaller GPU or fewer blocks (--num-gpu-blocks-override)."
)


def execute(flags: Compare) -> int:
    """Compare, draw and print; always 0 if it ends."""
    if flags.other is not None:
        return _compare_traces(Path(flags.workload), flags.other, flags)
    comparison = _compare(flags)
    if comparison.cells[0].metrics["output_tokens_per_s"].mean == 0:
        fix = "--skip-refused leaves none of its requests; without it, the first one's problem is named"
        raise WorkloadError(flags.workload, 0, fix)
    if flags.plot is not None:
        _write(flags.plot, draw(comparison))
    refused = comparison.cells[0].refused
    if refused:
        were = "requests were refused or came after refused ones" if refused > 1 else "request was refused"
        warn(f"{refused:,} {were}, under every policy the same")
    if flags.json:
        print_json(comparison)
    else:
        _print(comparison, results())
    return 0


def _compare_traces(a: Path, b: Path, flags: Compare) -> int:
    comparison = compare_traces(a, b, flags.align, slos=read_slos(flags.slo))
    print_json(comparison) if flags.json else print_comparison(comparison, results())
    return 0


def _compare(flags: Compare) -> Comparison:
    require_int("seeds", flags.seeds, 1, _MOST_SEEDS)
    if flags.arrivals.client_timeout is not None:
        fix = "jobs are compared whole: leave it out, or compare traces of two runs with it"
        raise ConfigError("client_timeout", flags.arrivals.client_timeout, fix)
    policies, loads = _names(flags.policies), _loads(flags.loads)
    slos = read_slos(flags.slo)
    if slos and all(slo.statistic == "mean" or slo.figure == "itl" for slo in slos):
        fix = "policies are compared by requests within bounds: give one that a request can hold, for example ttft:500"
        raise ConfigError("slo", ", ".join(map(str, slos)), fix)
    setup = _prepare(flags, flags.arrivals.seed)
    say_notes(setup.workload)
    runs = len(policies) * len(loads) * flags.seeds
    seen: set[tuple[str, float, int]] = set()
    with errors().status("") as status:

        def show(policy: str, load: float, seed: int, progress: Progress) -> None:
            seen.add((policy, load, seed))
            status.update(f"run {len(seen)} of {runs}: {policy}, load {load:g}, {progress.num_done:,} requests done")

        comparison = compare(
            policies,
            lambda seed: _workload(flags, setup, seed),
            setup.replays(skip_refused=flags.arrivals.skip_refused),
            loads=loads,
            seeds=range(flags.arrivals.seed, flags.arrivals.seed + flags.seeds),
            slos=slos,
            on_progress=show,
        )
    header = with_idle_policies(with_oracles(setup.deployment, policies), policies, setup.workload)
    return msgspec.structs.replace(comparison, header=header)


def _workload(flags: Compare, setup: ReplaySpec, seed: int) -> Workload:
    return setup.workload if seed == flags.arrivals.seed else _prepare(flags, seed).workload


def _prepare(flags: Compare, seed: int) -> ReplaySpec:
    """The same as for a single run."""
    return prepare(replace(flags, arrivals=replace(flags.arrivals, seed=seed), slo=()))


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _loads(text: str) -> list[float]:
    try:
        loads = [float(load) for load in text.split(",")]
    except ValueError:
        loads = []
    if not loads or not all(0 < load < inf for load in loads):
        raise ConfigError("loads", text, "give numbers above 0 with commas between them, for example 0.5,1,2")
    return loads


def _write(path: Path, drawing: str) -> None:
    try:
        path.write_text(drawing, encoding="utf-8")
    except OSError as error:
        raise ConfigError("plot", str(path), f"cannot be written: {error.strerror or error}") from None


def _print(comparison: Comparison, console: Console) -> None:
    """The deployment, and a table per load, or several where the terminal is too narrow for all columns."""
    deployment = None if comparison.header is None else deployment_table(comparison.header)
    if deployment is not None:
        print_section(console, "Deployment", deployment)
        console.print()
    for load in comparison.loads:
        title: str | None = f"load {load:g}"
        for metrics in _column_groups(comparison, load, console):
            table = _table(comparison, load, metrics)
            table.title, title = title, None
            console.print(table)
            console.print()
    console.print(
        f"speedup: job completion time of {comparison.baseline} over the policy's, seed by seed; above 1 is faster"
    )
    for metric in comparison.metrics:
        console.print(f"{metric.heading}: {metric.meaning}")
    if len(comparison.seeds) > 1:
        console.print(f"±: 95 % confidence interval of the mean over {len(comparison.seeds)} seeds")
    if len(comparison.policies) > 1 and not _differs(comparison):
        console.print(_ALIKE)


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
    table.add_column("policy", style="cyan", no_wrap=True)
    table.add_column("speedup", justify="right", no_wrap=True)
    for metric in metrics:
        table.add_column(metric.heading, justify="right", no_wrap=True)
    for policy in comparison.policies:
        table.add_row(policy, *_row(comparison.cell(policy, load), metrics))
    return table


def _row(cell: Cell, metrics: Sequence[Metric]) -> list[str]:
    return [str(cell.speedup), *(_text(cell.metrics[metric.name], metric) for metric in metrics)]


def _text(value: Interval, metric: Metric) -> str:
    return str(value if metric.with_interval else Interval(value.mean))
