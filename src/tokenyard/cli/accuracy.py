"""``tokenyard accuracy``: measured points and runs in, what we would have said of them, and how far off it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rich.markup import escape
from rich.progress import Progress

from tokenyard.cli.support.console import errors, print_json, results
from tokenyard.cli.support.flags import Accuracy as Flags
from tokenyard.core.profiles import DecisionProfile, decision_profile
from tokenyard.deploy.vllm_serve.defaults import known_version
from tokenyard.errors import ConfigError, WorkloadError
from tokenyard.models.gpus import named_gpu
from tokenyard.models.named import model_spec
from tokenyard.questions.accuracy.comparison import AccuracyReport, Row, predict, row_of, row_of_run, together
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
from tokenyard.questions.printing.accuracy import left_out_table, print_accuracy
from tokenyard.steptime.constants import shipped_constants
from tokenyard.steptime.formula import Parallelism

__all__ = ["compare_files", "execute"]


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
        print_accuracy(accuracy, results())
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
    console.print(left_out_table(constants))
    console.print(f"\nStep times: {escape(constants.provenance)}", soft_wrap=True)
    console.print("\nTo compare with the public points, row by row:", highlight=False)
    for line in HOW_TO_GET:
        console.print(f"  {escape(line)}", soft_wrap=True, highlight=False)
    return 0


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
