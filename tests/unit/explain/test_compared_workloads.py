"""Two traces of different workloads say so first: their figures do not tell what the settings did."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.trace.recorded import RecordedYard

import tokenyard as ty
from tokenyard.explain.compare.comparison import workload_differences

SMALL = ty.Deployment(model="llama-3.2-1b", gpu="l4", max_num_seqs=4, max_model_len=4096)
FEW: dict[str, Any] = {"num_prompts": 30, "input_len": 300, "output_len": 8, "request_rate": 40.0}


def record(path: Path, deployment: ty.Deployment = SMALL, **changes: Any) -> Path:
    ty.run("random", deployment, trace=path, **{**FEW, **changes})
    return path


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("traces") / "first")


@pytest.mark.parametrize(
    ("changes", "codes"),
    [
        ({}, []),
        ({"num_prompts": 60}, ["requests", "arrivals"]),
        ({"input_len": 600}, ["prompts"]),
        ({"rate_scale": 2.0}, ["arrivals"]),
        ({"input_len": 900, "request_rate": 5.0, "num_prompts": 12}, ["requests", "prompts", "arrivals"]),
    ],
    ids=str,
)
def test_what_differs_of_two_workloads_is_named(
    first: Path, tmp_path: Path, changes: dict[str, Any], codes: list[str]
) -> None:
    told = ty.compare_recordings(first, record(tmp_path / "other", **changes))
    assert [each.code for each in told.workloads] == codes
    text = " ".join(str(told).split())
    assert text.startswith("The workloads differ: ") == bool(codes)
    assert [each["code"] for each in json.loads(msgspec.json.encode(told))["workloads"]] == codes
    assert ("other workloads" in told.summary()) == bool(codes)


def test_the_first_line_says_how_they_differ_and_the_second_what_figures_do(first: Path, tmp_path: Path) -> None:
    other = record(tmp_path / "other", input_len=600, num_prompts=60)
    one, two = str(ty.compare_recordings(first, other)).split("B against A")[:2]
    assert "30 requests in A, 60 in B; prompts of 300 tokens on average in A, 600 in B" in " ".join(one.split())
    assert "So figures do not tell what the settings did." in " ".join(one.split())
    assert two.startswith(": TTFT p90")


def test_other_settings_are_no_other_workload_though_turns_and_closed_loops_then_arrive_at_other_times(
    first: Path, tmp_path: Path
) -> None:
    slow = SMALL.with_(max_num_seqs=1)
    assert workload_differences(first, record(tmp_path / "slow", slow)) == []
    loops = [record(tmp_path / f"loop{seats}", deployment, request_rate=float("inf"), max_concurrency=seats)
             for seats, deployment in ((2, SMALL), (8, slow))]  # fmt: skip
    assert workload_differences(*loops) == []
    sessions = []
    for name, deployment in (("quick", SMALL), ("late", slow)):
        ty.run("chat", deployment, trace=tmp_path / name, limit=6, rate_scale=20)
        sessions.append(tmp_path / name)
    assert workload_differences(*sessions) == []


def test_of_a_host_whose_clients_are_not_known_other_moments_alone_say_nothing(tmp_path: Path) -> None:
    """They may have waited for answers; where prompts differ as well they are told."""

    def recorded(name: str, *, apart: int, prompt: int = 8) -> Path:
        toy = RecordedYard(tmp_path / name, seconds=0.5, max_num_seqs=2)
        for number in range(6):
            toy.add(f"{name}{number}", prompt, max_tokens=2, arrival_time=toy.now)
            for _ in range(apart):
                if toy.scheduler.has_requests():
                    toy.step()
                else:
                    toy.now += 0.5
        toy.writer.close()
        return tmp_path / name

    near, far = recorded("near", apart=1), recorded("far", apart=6)
    assert workload_differences(near, far) == []
    longer = recorded("longer", apart=6, prompt=16)
    assert [each.code for each in workload_differences(near, longer)] == ["prompts", "arrivals"]
