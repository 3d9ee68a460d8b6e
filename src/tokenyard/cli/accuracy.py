"""``tokenyard accuracy``: measured points and runs in, what we would have said of them, and how far off it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from tokenyard.cli.support.console import errors, print_json, results
from tokenyard.cli.support.flags import Accuracy as Flags
from tokenyard.core.profiles import DecisionProfile, decision_profile
from tokenyard.deploy.vllm_serve.defaults import known_version
from tokenyard.errors import ConfigError, WorkloadError
from tokenyard.models.gpus import named_gpu
from tokenyard.models.named import model_spec
from tokenyard.questions.accuracy.comparison import AccuracyReport, Errors, Row, predict, row_of, row_of_run, together
from tokenyard.questions.accuracy.measured_run import compare_run, read_run
from tokenyard.questions.accuracy.points import (
    HOW_TO_GET,
    PACKAGE,
    Engine,
    Point,
    Unread,
    installed_points,
    read_bench_result,
    read_points,
)
from tokenyard.steptime.constants import Constants, shipped_constants
from tokenyard.steptime.formula import Parallelism
from tokenyard.steptime.known_error import LEFT_OUT

__all__ = ["compare_files", "execute"]

_MOST_SHOWN = 5


def execute(flags: Flags) -> int:
    """Compare and print; always 0 if it ends. Without a file: with the public points, where they are installed."""
    if not flags.files:
        found = installed_points()
        if found is None:
            return _tell_what_ships(flags)
        flags = replace(flags, files=(found,))
    accuracy = compare_files(flags)
    if flags.json:
        print_json(accuracy)
    else:
        _show(accuracy, results())
    return 0


def _tell_what_ships(flags: Flags) -> int:
    """What the constants say of themselves, and where the points are that they were fitted to."""
    constants = shipped_constants()
    if flags.json:
        print_json({"source": constants.provenance, "held_out": constants.data["errors"], "points": list(HOW_TO_GET)})
        return 0
    console = results()
    console.print(f"No file is named, and {PACKAGE} is not installed. These errors were found when the constants")
    console.print("were fitted, on points that the fit had not seen (docs/accuracy.md):\n")
    console.print(_left_out_table(constants))
    console.print(f"\nStep times: {escape(constants.provenance)}", soft_wrap=True)
    console.print("\nTo compare with the public points, row by row:", highlight=False)
    for line in HOW_TO_GET:
        console.print(f"  {escape(line)}", soft_wrap=True, highlight=False)
    return 0


def _left_out_table(constants: Constants) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("left out of the fit", no_wrap=True)
    for column in ("points", "TPOT p50", "p90", "TTFT p50", "p90"):
        table.add_column(column, justify="right")
    tpot, ttft = constants.errors("tpot"), constants.errors("ttft")
    for kind in tpot:
        cells = [f"{each[kind][share]:.1%}" for each in (tpot, ttft) for share in ("median", "p90")]
        table.add_row(LEFT_OUT[kind], f"{tpot[kind]['n']:.0f}", *cells)
    return table


def compare_files(flags: Flags) -> AccuracyReport:
    """Rows of every file, in order. Raises TokenyardError."""
    if not flags.files:
        raise ConfigError("files", None, "name a table of points, a folder of a measured run or a result of vllm bench")
    engine, version = _engine(flags), known_version(flags.vllm_version)
    profile = decision_profile(version)
    rows: list[Row] = []
    not_compared: list[str] = []
    for path in flags.files:
        if path.is_dir():
            comparison = compare_run(read_run(path, spec=engine.spec, gpu=engine.gpu, profile=profile))
            rows.append(row_of_run(str(path), comparison))
            continue
        points, unread = _points(path, engine)
        not_compared += [f"{path}, line {each.line}: {each.problem}" for each in unread]
        rows += _rows(path, points, profile, replay=flags.replay)
    if not rows:
        raise WorkloadError(
            str(flags.files[0]), 0, not_compared[0] if not_compared else "holds no measured point of vLLM"
        )
    return together(rows, not_compared, shipped_constants().provenance, version)


def _points(path: Path, engine: Engine) -> tuple[list[Point], list[Unread]]:
    if path.suffix == ".json":
        return [read_bench_result(path, engine)], []
    return read_points(path)


def _rows(path: Path, points: list[Point], profile: DecisionProfile, *, replay: bool) -> list[Row]:
    console = errors()
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(escape(path.name), total=len(points))
        predicted = predict(points, replay=replay, profile=profile, on_point=lambda: progress.advance(task))
        return [row_of(str(path), each) for each in predicted]


def _engine(flags: Flags) -> Engine:
    return Engine(
        spec=None if flags.model is None else model_spec(flags.model),
        gpu=None if flags.gpu is None else named_gpu(flags.gpu),
        parallel=Parallelism(
            tensor=flags.tensor_parallel_size, data=flags.data_parallel_size, expert=flags.enable_expert_parallel
        ),
        max_num_batched_tokens=flags.max_num_batched_tokens,
        kv_cache_dtype=None if flags.kv_cache_dtype == "auto" else flags.kv_cache_dtype,
    )


def _show(accuracy: AccuracyReport, console: Console) -> None:
    console.print("Absolute relative errors of the mean TPOT and TTFT: predicted over measured, less 1.")
    console.print(f"Decisions: those of vLLM {accuracy.vllm_version}.\n", highlight=False)
    for name, groups in {"all": {"": _overall(accuracy)}, **accuracy.by}.items():
        _show_table(name, groups, console)
    for row in accuracy.rows:
        if row.users is None:
            _show_run(row, console)
    if accuracy.not_compared:
        console.print(f"\n{len(accuracy.not_compared)} rows are not compared:")
        for problem in accuracy.not_compared[:_MOST_SHOWN]:
            console.print(f"  {escape(problem)}", soft_wrap=True)
    console.print(f"\n[dim]Step times: {escape(accuracy.source)}[/]", soft_wrap=True)


def _overall(accuracy: AccuracyReport) -> dict[str, Errors]:
    both = {"tpot": accuracy.tpot, "ttft": accuracy.ttft}
    return {name: errors for name, errors in both.items() if errors is not None}


def _show_table(name: str, groups: dict[str, dict[str, Errors]], console: Console) -> None:
    """Of all points with p99, which needs more points than most groups have."""
    shares = ("median", "p90") if name != "all" else ("median", "p90", "p99")
    table = Table(box=None, pad_edge=False)
    table.add_column(name)
    titles = ("p50", *shares[1:], "in range")
    for column in ("points", f"TPOT {titles[0]}", *titles[1:], f"TTFT {titles[0]}", *titles[1:]):
        table.add_column(column, justify="right")
    for group, both in groups.items():
        cells = [str(both["tpot"].n)]
        for found in (both["tpot"], both["ttft"]):
            cells += [f"{getattr(found, share):.1%}" for share in shares] + [f"{found.covered:.0%}"]
        table.add_row(escape(group), *cells)
    console.print(table)
    console.print()


def _show_run(row: Row, console: Console) -> None:
    """Means and percentiles, and how far every request is off by itself."""
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
