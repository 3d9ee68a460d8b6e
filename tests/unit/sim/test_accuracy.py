"""Measured points, results and runs beside what we would have said of them."""

from __future__ import annotations

import csv
import gzip
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokenyard import accuracy
from tokenyard.cli.main import main
from tokenyard.core.profiles import decision_profile
from tokenyard.errors import ConfigError, WorkloadError
from tokenyard.models.gpus import named_gpu
from tokenyard.questions.accuracy.ask import recorded_runs
from tokenyard.questions.accuracy.comparison import Quantity, errors_of, loop_of
from tokenyard.questions.accuracy.measured_run import compare_run, read_measured_run, read_open_loop
from tokenyard.questions.accuracy.points import COLUMNS, Engine, installed_points, read_bench_result, read_points
from tokenyard.steptime.constants import shipped_constants
from tokenyard.steptime.formula import Parallelism

POINT = {
    "mode": "agg",
    "backend": "vllm",
    "backend_version": "0.19.0",
    "model_path": "MiniMaxAI/MiniMax-M2.5",
    "system": "b300_sxm",
    "precision": "fp8",
    "isl": "1024",
    "osl": "1024",
    "batch_size": "32",
    "tp_size": "4",
    "moe_tp_size": "4",
    "moe_ep_size": "1",
    "attention_dp_size": "1",
    "silicon_data_source": "silicon_concurrency=32; measured=2026-04-21T00:00:00.000Z",
    "silicon_ttft_ms": "95.6",
    "silicon_tpot_ms": "12.1",
}
BENCH = {
    "model_id": "meta-llama/Llama-3.1-8B",
    "num_prompts": 40,
    "max_concurrency": 8,
    "request_rate": "inf",
    "total_input_tokens": 40 * 500,
    "total_output_tokens": 40 * 100,
    "mean_ttft_ms": 60.0,
    "mean_tpot_ms": 8.0,
}


def table(folder: Path, *changes: dict[str, str]) -> Path:
    """A table with a row for every change of the point."""
    path = folder / "points.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(POINT))
        writer.writeheader()
        writer.writerows(POINT | change for change in changes)
    return path


def run_folder(folder: Path, **engine: Any) -> Path:
    """A run of eight requests on an RTX PRO 6000."""
    folder.mkdir()
    meta = {
        "model": "meta-llama/Llama-3.1-8B",
        "vllm_version": "0.19.0",
        "engine_kwargs": {"max_num_seqs": 4, **engine},
    }
    meta["hardware"] = {"device_name": "NVIDIA RTX PRO 6000 Blackwell Server Edition"}
    (folder / "meta.json").write_text(json.dumps(meta))
    rows = [
        {
            "input_toks": 200,
            "output_toks": 50,
            "queued_ts": 10 + i / 4,
            "first_token_ts": 11 + i / 4,
            "last_token_ts": 13 + i,
        }
        for i in range(8)
    ]
    (folder / "requests.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_a_table_is_read(tmp_path: Path) -> None:
    points, unread = read_points(table(tmp_path, {}, {"backend": "sglang"}, {"mode": "disagg"}))
    assert len(points) == 1
    assert "disagg" in unread[0].problem
    point = points[0]
    assert (point.users, point.input_tokens, point.tpot) == (32, 1024, 0.0121)
    assert point.recipe.max_num_batched_tokens == 2048
    assert point.parallel == Parallelism(tensor=4)


@pytest.mark.parametrize(
    ("change", "parallel"),
    [
        ({"precision": "fp4", "attention_dp_size": "4", "moe_ep_size": "16"}, Parallelism(data=4, expert=True)),
        ({"attention_dp_size": "4", "moe_ep_size": "16"}, Parallelism(tensor=4, expert=True)),
        ({"moe_tp_size": "1", "moe_ep_size": "4"}, Parallelism(tensor=4, expert=True)),
        ({"attention_dp_size": "", "tp_size": "2", "moe_tp_size": "4"}, Parallelism(tensor=2, data=2)),
    ],
)
def test_parallelism_is_what_the_server_was_told(tmp_path: Path, change: dict[str, str], parallel: Parallelism) -> None:
    assert read_points(table(tmp_path, change))[0][0].parallel == parallel


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"isl": "many"}, "isl"),
        ({"tp_size": "0"}, "tp_size"),
        ({"silicon_tpot_ms": "nan"}, "silicon_tpot_ms"),
        ({"silicon_ttft_ms": "-1"}, "silicon_ttft_ms"),
        ({"system": "tpu"}, "gpu"),
        ({"model_path": "acme/unheard-of"}, "model_path"),
    ],
)
def test_a_bad_row_is_left_out_with_its_reason(tmp_path: Path, change: dict[str, str], problem: str) -> None:
    points, unread = read_points(table(tmp_path, {}, change))
    assert len(points) == 1
    assert unread[0].line == 3
    assert problem in unread[0].problem


def test_a_table_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(WorkloadError, match=COLUMNS[0]):
        read_points(path)


@pytest.mark.slow
def test_the_command_prints_errors_and_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = table(tmp_path, {}, {"osl": "0"})
    assert main(["accuracy", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    row = found["rows"][0]
    assert found["tpot"]["n"] == found["ttft"]["n"] == len(found["rows"]) == 1
    assert found["tpot"]["median"] == pytest.approx(abs(row["tpot"]["predicted"] / row["tpot"]["measured"] - 1))
    assert found["tpot"]["covered"] in (0.0, 1.0)
    assert "line 3" in found["not_compared"][0]
    assert main(["accuracy", str(path)]) == 0
    assert "MiniMax-M2.5" in capsys.readouterr().out


def test_errors_are_of_both_signs() -> None:
    quantities = [
        Quantity(measured=100, predicted=90, low=80, high=101),
        Quantity(measured=100, predicted=120, low=110, high=130),
        Quantity(measured=100, predicted=100),
    ]
    errors = errors_of(quantities)
    assert errors is not None
    assert errors.median == pytest.approx(0.1)
    assert errors.n == 3
    assert errors.covered == pytest.approx(1 / 3)
    assert errors_of([]) is None


def test_a_result_of_vllm_bench_is_a_point(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text(json.dumps(BENCH))
    found = accuracy((path,), gpu="h100")
    assert found.rows[0].load == "8 users, 500+100"
    assert 2 < found.rows[0].tpot.predicted < 30
    with pytest.raises(ConfigError, match="gpu"):
        accuracy((path,))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"mean_tpot_ms": None}, "mean_tpot_ms"),
        ({"mean_ttft_ms": 0}, "mean_ttft_ms"),
        ({"num_prompts": 0}, "num_prompts"),
    ],
)
def test_a_result_that_cannot_be_compared_is_refused(tmp_path: Path, change: dict[str, Any], problem: str) -> None:
    path = tmp_path / "result.json"
    path.write_text(json.dumps(BENCH | change))
    with pytest.raises(WorkloadError, match=problem):
        read_bench_result(path, Engine(gpu=named_gpu("h100")))


def open_loop(path: Path, **changed: Any) -> Path:
    """A result at a rate, with single requests."""
    rng = np.random.default_rng(2)
    lens, outs = rng.integers(100, 900, 40).tolist(), rng.integers(5, 60, 40).tolist()
    detailed: dict[str, Any] = {
        "model_id": "meta-llama/Llama-3.1-8B-Instruct",
        "num_prompts": 40,
        "request_rate": 8.0,
        "max_concurrency": None,
        "total_input_tokens": sum(lens),
        "request_throughput": 7.0,
        "input_lens": lens,
        "output_lens": outs,
        "ttfts": [0.05] * 40,
        "itls": [[0.02] * (n - 1) for n in outs],
        "start_times": (50.0 + np.cumsum(rng.exponential(1 / 8, 40))).tolist(),
    }
    kept = {name: value for name, value in (detailed | changed).items() if value is not None or name in BENCH}
    path.write_text(json.dumps(kept))
    return path


def test_a_result_at_a_rate_is_replayed_as_it_was_sent(tmp_path: Path) -> None:
    path = open_loop(tmp_path / "open.json")
    run = read_open_loop(path, Engine(gpu=named_gpu("h100")))
    told = json.loads(path.read_text())
    assert run.arrived == pytest.approx(np.array(told["start_times"]) - told["start_times"][0])
    assert run.e2e[7] == pytest.approx(0.05 + sum(told["itls"][7]))
    assert run.tpot == pytest.approx(np.full(40, 0.02))
    predicted = compare_run(run).predicted
    inside = compare_run(replace(run, is_of_clients=False)).predicted
    values = shipped_constants().of(run.spec, run.gpu)
    on_the_way = values["request"] + values["request_token"] * run.input_tokens
    added = predicted["ttft"] - inside["ttft"]  # and, here and there, a step more or less to wait for
    assert np.median(added / on_the_way) == pytest.approx(1.0, abs=0.2)
    assert float(predicted["tpot"].mean()) == pytest.approx(float(inside["tpot"].mean()), rel=0.05)
    # Measured as predicted: nothing is off.
    outs = told["output_lens"]
    gaps = [[pace] * (n - 1) for pace, n in zip(predicted["tpot"].tolist(), outs, strict=True)]
    found = accuracy((open_loop(tmp_path / "same.json", ttfts=predicted["ttft"].tolist(), itls=gaps),), gpu="h100")
    assert found.tpot is not None
    assert found.ttft is not None
    assert found.tpot.median == pytest.approx(0.0, abs=1e-6)
    assert found.ttft.median == pytest.approx(0.0, abs=1e-6)
    assert found.rows[0].percentiles["e2e"]["p99"].error == pytest.approx(0.0, abs=1e-6)
    assert found.rows[0].load.startswith("40 requests in ")


def test_arrivals_that_a_result_does_not_say_are_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = open_loop(tmp_path / "old.json", start_times=None)
    assert main(["accuracy", str(path), "--gpu", "h100"]) == 0
    assert "arrivals drawn at 8 a second with seed 0" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("missing", ["input_lens", "ttfts", "itls"])
def test_a_result_at_a_rate_needs_single_requests(tmp_path: Path, missing: str) -> None:
    path = open_loop(tmp_path / "open.json", **{missing: None})
    with pytest.raises(WorkloadError, match="--save-detailed"):
        accuracy((path,), gpu="h100")
    with pytest.raises(ConfigError, match="does not name the GPU"):
        accuracy((path,))


def test_a_run_is_replayed(tmp_path: Path) -> None:
    run = read_measured_run(run_folder(tmp_path / "run"))
    assert run.gpu.name == "rtxpro6000"
    assert run.scheduler.async_scheduling
    assert run.ttft == pytest.approx(np.ones(8))
    comparison = compare_run(run)
    assert comparison.measured["e2e"].mean() == pytest.approx(np.mean([3 + i * 0.75 for i in range(8)]))
    predicted = comparison.predicted
    assert predicted["e2e"] == pytest.approx(predicted["ttft"] + 49 * predicted["tpot"])


def test_two_engines_share_the_requests(tmp_path: Path) -> None:
    """Four places are few for eight requests; two engines have eight."""
    one = compare_run(read_measured_run(run_folder(tmp_path / "one")))
    two = compare_run(read_measured_run(run_folder(tmp_path / "two", data_parallel_size=2)))
    assert two.predicted["ttft"].mean() < one.predicted["ttft"].mean()


def test_ranks_of_experts_step_together(tmp_path: Path) -> None:
    engine = {"model": "Qwen/Qwen3-30B-A3B", "data_parallel_size": 2, "enable_expert_parallel": True}
    comparison = compare_run(read_measured_run(run_folder(tmp_path / "run", **engine)))
    assert comparison.run.parallel == Parallelism(data=2, expert=True)
    assert 0.001 < comparison.predicted["tpot"].mean() < 0.1


@pytest.mark.parametrize(
    "engine", [{"tensor_parallel_size": "two"}, {"max_num_seqs": -1}, {"max_num_batched_tokens": True}]
)
def test_engine_arguments_of_a_run_must_be_numbers(tmp_path: Path, engine: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(engine))):
        read_measured_run(run_folder(tmp_path / "run", **engine))


@pytest.mark.parametrize("name", ["requests.jsonl", "meta.json"])
def test_files_of_a_run_are_bounded(name: str, tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run")
    (folder / name).write_text("[" * 100_000)
    with pytest.raises(WorkloadError, match="nest deeper than 100 levels"):
        read_measured_run(folder)
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(WorkloadError, match="is no file on a disk"):
        read_measured_run(folder)


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("requests.jsonl", "", "no request"),
        ("requests.jsonl", "{}", "input_toks"),
        ("requests.jsonl", "[", "is no JSON"),
        ("meta.json", "[]", "no JSON object"),
        ("meta.json", "{", "no JSON"),
    ],
)
def test_a_damaged_run_is_refused(tmp_path: Path, name: str, text: str, problem: str) -> None:
    folder = run_folder(tmp_path / "run")
    (folder / name).write_text(text)
    with pytest.raises(WorkloadError, match=problem):
        read_measured_run(folder)


# ---- what was measured


def _is_soon_replayed(row: dict[str, str]) -> bool:
    """Few users, of all ranks together, that are not answered at length: ranks that step together take no leaps."""
    users, ranks = int(row["batch_size"] or 99), int(row["attention_dp_size"] or 1)
    return users * ranks <= 64 and users * int(row["osl"]) <= 150_000


@pytest.mark.slow
def test_the_measured_points_are_met(shared: Path, tmp_path: Path) -> None:
    """A share of them, of loads that are replayed soon: all take minutes."""
    whole = shared / "data/groundtruth/aic_silicon_sample_ttft_tpot.csv.gz"
    with gzip.open(whole, "rt", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["backend"] == "vllm" and _is_soon_replayed(row)]
    path = tmp_path / "share.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows[::24])
    found = accuracy((path,))
    assert found.tpot is not None
    assert found.ttft is not None
    assert found.tpot.n > 25
    assert found.tpot.median < 0.06
    assert found.tpot.p90 < 0.15
    assert found.ttft.median < 0.10
    assert found.ttft.p90 < 0.3
    assert found.tpot.covered > 0.85


@pytest.mark.slow
@pytest.mark.parametrize("gpu", ["RTX4090", "RTXPRO6000"])
def test_the_measured_runs_are_met(shared: Path, gpu: str) -> None:
    comparison = compare_run(read_measured_run(shared / f"data/groundtruth/vllm019_{gpu}_Llama-3.1-8B"))
    for name, measured in comparison.measured.items():
        assert comparison.predicted[name].mean() == pytest.approx(measured.mean(), rel=0.03), name


@pytest.mark.slow
def test_it_says_whose_decisions_were_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(table(tmp_path, {}))
    assert main(["accuracy", path]) == 0
    assert "Decisions: those of vLLM 0.22." in capsys.readouterr().out
    assert main(["accuracy", path, "--vllm-version", "0.33", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["vllm_version"] == "0.33"
    assert main(["accuracy", path, "--vllm-version", "0.11"]) == 0
    assert "Decisions: those of vLLM 0.22, the nearest known to 0.11." in capsys.readouterr().out
    assert main(["accuracy", path, "--vllm-version", "newest"]) == 2
    assert "--vllm-version = 'newest': use one of: 0.22, 0.23" in capsys.readouterr().err


def test_the_version_decides_runs_and_points(tmp_path: Path) -> None:
    newer = decision_profile("0.33")
    assert read_measured_run(run_folder(tmp_path / "run"), profile=newer).scheduler.profile is newer
    (point,), _ = read_points(table(tmp_path, {}))
    assert loop_of(point, newer).profile is newer


def test_without_a_file_it_says_what_is_known_and_where_the_points_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tokenyard.cli.accuracy.installed_points", lambda: None)
    assert main(["accuracy"]) == 0
    told = capsys.readouterr().out
    assert "pip install aiconfigurator-core" in told
    (titles,) = (line for line in told.splitlines() if line.startswith("left out of the fit"))
    assert titles.count("p99") == 2
    assert "a model, in all its precisions" in told
    assert told.count("each request: p50") == 2
    assert main(["accuracy", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {run["gpu"] for run in found["runs"]} == {"rtx4090", "rtxpro6000"}
    assert all(run["of_requests"]["ttft"]["p99"] > 0 for run in found["runs"])
    assert found["held_out"]["tpot"]["model"]["median"] > found["held_out"]["tpot"]["load"]["median"]


@pytest.mark.slow
def test_the_recorded_runs_are_what_their_folders_give(shared: Path) -> None:
    folders = sorted((shared / "data/groundtruth").glob("vllm019_*"))
    for row, recorded in zip(accuracy(folders).rows, recorded_runs(), strict=True):
        assert Path(row.file).name == recorded.file
        assert row.of_requests == recorded.of_requests
        assert row.percentiles == recorded.percentiles


def test_without_a_file_the_installed_points_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the package is, whatever it keeps its table in; it is not imported."""
    systems = tmp_path / "aiconfigurator_core" / "systems"
    systems.mkdir(parents=True)
    (systems.parent / "__init__.py").write_text("raise ImportError('nothing of it is run')\n")
    table(tmp_path, {}).rename(systems / "silicon_sample.csv")
    monkeypatch.syspath_prepend(tmp_path)
    assert installed_points() == systems / "silicon_sample.csv"
    assert main(["accuracy", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tpot"]["n"] == 1


def test_a_run_has_percentiles_and_errors_of_its_requests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run_folder(tmp_path / "run")
    (row,) = accuracy((folder,)).rows
    measured = read_measured_run(folder).ttft
    assert row.percentiles["ttft"]["p90"].measured == pytest.approx(1e3 * np.percentile(measured, 90))
    assert row.of_requests["tpot"].n == len(measured)
    assert main(["accuracy", str(folder)]) == 0
    told = capsys.readouterr().out
    assert "TTFT p99" in told
    assert "each request" in told
