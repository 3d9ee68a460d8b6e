"""Measured points and runs in, what is predicted for them, and how far off that is."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike
from pathlib import Path

import msgspec

from tokenyard.arguments import given_path, suggests_keywords
from tokenyard.core.profiles import decision_profile
from tokenyard.deploy.vllm_serve.defaults import MEASURED_VERSION, is_known, known_version
from tokenyard.errors import ConfigError, WorkloadError
from tokenyard.models.gpus import named_gpu
from tokenyard.models.named import model_called
from tokenyard.questions.accuracy.comparison import AccuracyReport, AccuracyRow, predict, row_of, row_of_run, together
from tokenyard.questions.accuracy.measured_run import compare_run, is_open_loop, read_measured_run, read_open_loop
from tokenyard.questions.accuracy.points import (
    Engine,
    Point,
    Unread,
    installed_points,
    read_bench_result,
    read_points,
)
from tokenyard.questions.scenario import OnCount, counting_of
from tokenyard.steptime.constants import shipped_constants
from tokenyard.steptime.formula import Parallelism


@suggests_keywords()
def accuracy(
    files: str | PathLike[str] | Iterable[str | PathLike[str]] = (),
    *,
    model: str | None = None,
    gpu: str | None = None,
    tensor_parallel_size: int = 1,
    data_parallel_size: int = 1,
    enable_expert_parallel: bool = False,
    max_num_batched_tokens: int = 8192,
    kv_cache_dtype: str = "auto",
    vllm_version: str = MEASURED_VERSION,
    progress: OnCount | bool | None = None,
) -> AccuracyReport:
    """How far step times and latencies are off, beside what was measured.

    ``files``: tables of points, folders of measured runs, results of ``vllm bench serve``; none: the public points,
    where they are installed. What a result of ``vllm bench serve`` does not say of its engine, the settings say; one
    at a request rate is replayed as it was sent, which takes its single requests (``--save-detailed``).
    ``vllm_version``: whose decisions are taken, or those of the nearest that is known. ``progress`` is called with the
    points of a file that are predicted, and how many it has; True shows a line. Raises TokenyardError.
    """
    counting = counting_of(progress, "points")
    named = list(files) if isinstance(files, Iterable) and not isinstance(files, str | bytes) else [files]
    paths = [given_path("files", each) for each in named]
    if not paths and (installed := installed_points()) is not None:
        paths = [installed]
    if not paths:
        raise ConfigError("files", None, "name a table of points, a folder of a measured run or a result of vllm bench")
    engine = Engine(
        spec=None if model is None else model_called(model),
        gpu=None if gpu is None else named_gpu(gpu),
        parallel=Parallelism(tensor=tensor_parallel_size, data=data_parallel_size, expert=enable_expert_parallel),
        max_num_batched_tokens=max_num_batched_tokens,
        kv_cache_dtype=None if kv_cache_dtype == "auto" else kv_cache_dtype,
    )
    version = known_version(vllm_version)
    profile = decision_profile(version)
    rows: list[AccuracyRow] = []
    not_compared: list[str] = []
    for path in paths:
        if path.is_dir():
            comparison = compare_run(read_measured_run(path, spec=engine.spec, gpu=engine.gpu, profile=profile))
            rows.append(row_of_run(str(path), comparison))
            continue
        if path.suffix == ".json" and is_open_loop(path):
            rows.append(row_of_run(str(path), compare_run(read_open_loop(path, engine, profile=profile))))
            continue
        points, unread = _points(path, engine)
        not_compared += [f"{path}, line {each.line}: {each.problem}" for each in unread]
        with counting(len(points), 0) as advance:
            predicted = predict(points, profile=profile, on_point=advance)
            rows += [row_of(str(path), each) for each in predicted]
    if not rows:
        raise WorkloadError(str(paths[0]), 0, not_compared[0] if not_compared else "holds no measured point of vLLM")
    nearest_to = None if is_known(vllm_version) else vllm_version
    return together(rows, not_compared, shipped_constants().provenance, version, nearest_to)


def _points(path: Path, engine: Engine) -> tuple[list[Point], list[Unread]]:
    if path.suffix == ".json":
        return [read_bench_result(path, engine)], []
    return read_points(path)


# ---------------------------------------------------------------------------------------------------------------------
# Runs that were compared when the constants were fitted: what ``tokenyard accuracy`` says where no file is named.

RECORDED_RUNS = Path(__file__).with_name("recorded_runs.json")


def recorded_runs() -> list[AccuracyRow]:
    """Each run, with percentiles and the errors of its requests."""
    return msgspec.json.decode(RECORDED_RUNS.read_bytes(), type=list[AccuracyRow])


def record_runs(rows: Iterable[AccuracyRow]) -> None:
    """Write them anew; of a run's folder its name is kept."""
    named = [msgspec.structs.replace(row, file=Path(row.file).name) for row in rows]
    RECORDED_RUNS.write_bytes(msgspec.json.format(msgspec.json.encode(named), indent=1) + b"\n")
