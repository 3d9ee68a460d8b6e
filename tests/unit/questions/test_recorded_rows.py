"""Tables of a trace are those of the replay that wrote it; what another trace lacks is missing in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokenyard as ty
from tokenyard.explain.recorded import report_by
from tokenyard.explain.why.timeline import timeline_readers

SMALL: dict[str, Any] = {"model": "Qwen/Qwen3-8B", "gpu": "l4", "max_model_len": 8192}
CROWD: dict[str, Any] = {
    "num_prompts": 30,
    "input_len": 200,
    "output_len": 80,
    "random_prefix_len": 64,
    "random_range_ratio": 0.5,
    "request_rate": 300.0,
}
SHORT_OF_MEMORY: dict[str, Any] = {"max_model_len": 1024, "num_gpu_blocks_override": 120}
RUNS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "memory": ("random", CROWD, SHORT_OF_MEMORY),
    "seats": ("random", CROWD, {"max_num_seqs": 4}),
    "engines": (
        "rag",
        {"limit": 20, "rate_scale": 4},
        {"gpu": "h100", "max_model_len": 16384, "data_parallel_size": 2},
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_trace_has_the_tables_of_its_run(name: str, tmp_path: Path) -> None:
    workload, arrivals, settings = RUNS[name]
    run = ty.run(workload, ty.Deployment(**SMALL | settings), trace=tmp_path / "it", **arrivals)
    assert bool(run.report.preemptions) == (name == "memory")
    recorded = ty.Recording(tmp_path / "it")
    for ours, theirs in ((run.requests, recorded.requests), (run.steps, recorded.steps), (run.waits, recorded.waits)):
        assert len(ours) == len(theirs) > 10
        assert [each for each in theirs.columns if each != "tenant"] == list(ours.columns)
        for column in ours.columns:
            assert ours[column].dtype == theirs[column].dtype, column
            if ours[column].dtype.kind == "f":  # moments of a trace are whole microseconds
                np.testing.assert_allclose(theirs[column], ours[column], atol=2e-3 if column.endswith("_ms") else 2e-6)
            else:
                assert theirs[column].tolist() == ours[column].tolist(), column


def test_waits_of_a_sampled_trace_add_up_to_what_why_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHED_TRACE_EVERY_N", "5")
    ty.run("random", ty.Deployment(**SMALL | SHORT_OF_MEMORY), trace=tmp_path / "it", **CROWD)
    waits = ty.Recording(tmp_path / "it").waits
    spent: dict[tuple[str, str], float] = {}
    for each in waits:
        key = each["request_id"], each["reason"]
        spent[key] = spent.get(key, 0.0) + each["seconds"]
    told = {
        (timeline.request_id, part.reason): 0.0
        for _, reader in timeline_readers(tmp_path / "it")
        for timeline in reader.timelines()
        for wait in timeline.waits
        for part in wait.parts
    }
    for _, reader in timeline_readers(tmp_path / "it"):
        for timeline in reader.timelines():
            for wait in timeline.waits:
                for part in wait.parts:
                    told[timeline.request_id, part.reason] += part.us / 1e6
    assert len(told) > 20
    assert spent == pytest.approx(told)


def test_what_a_trace_does_not_tell_is_missing(tmp_path: Path) -> None:
    """Another emitter's trace: no completions, no outcomes, no free blocks."""
    ty.run("chat", ty.Deployment(**SMALL), trace=tmp_path / "it", limit=3)
    (steps,) = (tmp_path / "it").glob("*.steps.jsonl")
    lines = [json.loads(line) for line in steps.read_text().splitlines()]
    kept = [
        {k: v for k, v in line.items() if k != "free_blocks"} for line in lines if line["event"] != "step_completed"
    ]
    steps.write_text("".join(json.dumps(line) + "\n" for line in kept))
    table = ty.Recording(tmp_path / "it").steps
    assert np.isnan(table["free_blocks"]).all()
    assert np.isnan(table["seconds"]).all()
    assert table["scheduled_tokens"].dtype == np.int64
    assert table["scheduled_tokens"].sum() > 0


def test_what_if_of_a_recording_is_a_data_frame(tmp_path: Path) -> None:
    """As the researcher of the issue wrote it."""
    pytest.importorskip("pandas", reason="pandas is not installed: its data frames cannot be made")
    ty.run("chat", ty.Deployment(**SMALL), trace=tmp_path / "monday", limit=5)
    frame = ty.Recording(tmp_path / "monday").whatif({"kv": dict(num_gpu_blocks_override=20_000)}).to_pandas()  # noqa: C408
    assert set(frame["variant"]) == {"kv"}
    assert "ttft_ms.mean" in set(frame["figure"])


PARTS: dict[str, dict[str, float]] = {
    "warmup": {"warmup": 0.08},
    "until": {"until": 0.6},
    "both": {"warmup": 0.08, "until": 0.6},
}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", ["memory", "seats", "engines"])
def test_a_trace_of_a_part_of_a_run_gives_the_figures_of_that_part(name: str, part: str, tmp_path: Path) -> None:
    """What came before the warm-up was over does not count, and who is unfinished has waited until the run ended."""
    workload, arrivals, settings = RUNS[name]
    scale = 10.0 if name == "engines" else 1.0
    asked: dict[str, Any] = {each: seconds * scale for each, seconds in PARTS[part].items()}
    slo = {"ttft": "300ms", "e2e_p90": "2s"}
    deployment = ty.Deployment(**SMALL | settings)
    run = ty.run(workload, deployment, trace=tmp_path / "it", slo=slo, **arrivals, **asked)
    recorded = ty.Recording(tmp_path / "it")
    told = recorded.report(slo=slo)
    people = run.report.outcomes
    assert people is not None
    assert (people.arrived < len(run.workload)) == ("warmup" in asked)
    assert bool(people.unfinished) == ("until" in asked)
    assert _figures(told) == _figures(run.report)
    assert told.header.warmup_s == asked.get("warmup")
    assert told.header.partial is None
    assert recorded.requests["request_id"].tolist() == run.requests["request_id"].tolist()
    assert recorded.steps["step"].tolist() == run.steps["step"].tolist()
    for column in ("arrival_s", "first_token_s", "until_s"):
        np.testing.assert_allclose(recorded.requests[column], run.requests[column], atol=2e-6)
    np.testing.assert_allclose(recorded.waits["seconds"].sum(), run.waits["seconds"].sum(), atol=1e-3)
    assert recorded.waiting().requests == people.arrived
    (ours,), (theirs,) = run.by("priority", slo).classes, report_by(tmp_path / "it", "priority", slo=slo)[1].classes
    assert ours.outcomes == theirs.outcomes == people
    for figure in ("requests", "open", "arrived", "requests_per_s", "met"):
        assert getattr(ours.goodput, figure) == getattr(theirs.goodput, figure)


def _figures(report: ty.Report) -> dict[str, Any]:
    """All of a report but where it is from, what it says of its reading, and advice, which a run is asked for."""
    told = report.to_dict()
    for name in ("advice", "answer", "reading"):
        told.pop(name)
    told["header"] = {**told["header"], "source": None, "request_records": None}
    told["ranks"] = [{**each, "source": None, "dummy_batches": None} for each in told["ranks"]]
    return told


def test_an_engine_without_a_step_has_no_end(tmp_path: Path) -> None:
    made = ty.WorkloadBuilder("few")
    for i in range(2):
        made.request(at=0.1 * i, prompt=500, output=400)
    deployment = ty.Deployment(**SMALL, data_parallel_size=4)
    run = ty.run(made.build(), deployment, until=2.0, trace=tmp_path / "it")
    assert run.requests["until_s"].tolist() == [2.0, 2.0]
    told = ty.report(tmp_path / "it")
    assert told.outcomes == run.report.outcomes
    assert told.e2e_ms == run.report.e2e_ms
