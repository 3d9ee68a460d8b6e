"""Objects where names are taken: deployments, runs, studies, splits; own latency models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import tokenyard as ty
from tokenyard.core.request import Request
from tokenyard.policies import CachedBlock
from tokenyard.sim import ConstantLatency, EngineState, Noisy, Predicted, Router, ScaledTerms, StepShape, Table

DEPLOYMENT = ty.Deployment(model="Qwen/Qwen3-8B", gpu="l40s", max_num_seqs=8, max_model_len=4000)


class First(Router):
    def choose(self, now: float, request: Request, engines: Sequence[EngineState]) -> int:
        return 0


class Count(ty.StepObserver):
    def __init__(self) -> None:
        self.finished = 0

    def request_finished(self, ts: float, request: Request) -> None:
        self.finished += 1


class Newest(ty.EvictionOrder):
    def rank(self, block: CachedBlock, now: float) -> float:
        return -block.last_used


class Line:
    """A regressor: 8 ms, and a hundredth of one per prompt token."""

    def predict(self, rows: Sequence[Sequence[float]]) -> list[float]:
        return [8.0 + 0.01 * row[0] for row in rows]


def few(seed: int) -> ty.Workload:
    w = ty.WorkloadBuilder("few", seed=seed)
    for i, at in enumerate(w.poisson(rate=4, n=8)):
        w.request(at=at, prompt=int(w.lognormal(5, 0.5)) + 1, output=4, priority=i % 2)
    return w.build()


def test_a_deployment_takes_objects_and_keeps_them() -> None:
    own = DEPLOYMENT.with_(latency=ConstantLatency(seconds=0.5), router=First, eviction=Newest, replicas=2)
    found = ty.run(few(0), own)
    assert found.result.ranks[1].num_requests == 0
    assert own.resolve().header.step_time == "own:ConstantLatency"
    assert found.report.ttft_ms.p50 is not None
    assert found.report.ttft_ms.p50 >= 500
    assert own == own.with_()
    assert own != DEPLOYMENT
    assert own.with_(latency="constant:0.5", router="round-robin", eviction=None).to_json()
    with pytest.raises(ty.ConfigError, match=r"latency.*which JSON cannot hold"):
        own.to_json()


def test_run_takes_a_latency_model_and_observers_by_name() -> None:
    found = ty.run(few(0), DEPLOYMENT, latency=ConstantLatency(seconds=0.25), observer={"count": Count})
    assert found.observed["count"].finished == 8
    assert np.all(np.asarray(found.requests["ttft_ms"], float) >= 250)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_study_takes_routers_observers_and_classes(jobs: int) -> None:
    found = ty.study(
        few,
        {"slow": DEPLOYMENT.with_(latency=ConstantLatency(seconds=0.5), replicas=2), "usual": DEPLOYMENT},
        router=First,
        observers={"count": Count},
        metrics={"ended": lambda run: float(run.observed["count"].finished)} if jobs == 1 else {"ended": ended},
        by="priority",
        seeds=range(2),
        jobs=jobs,
    )
    assert {row.figures["ended"] for row in found.rows} == {8.0}
    assert found.rows[0].figures["1:requests"] == 4.0
    assert found.best("ttft_ms.mean").deployment == "usual"


def ended(run: ty.RunResult) -> float:
    return float(run.observed["count"].finished)


def test_a_study_of_many_is_sorted_and_marks_the_best() -> None:
    found = ty.study(
        few, {f"{n}": DEPLOYMENT.with_(latency=ConstantLatency(seconds=n / 100)) for n in range(20, 6, -1)}
    )
    printed = str(found)
    lines = [line for line in printed.splitlines() if line.startswith("fcfs on")]
    assert [line.split()[2] for line in lines] == [cell.deployment for cell in found.ranked()]
    assert lines[0].split()[2] == "7"
    assert "*" in lines[0]
    assert "sorted by ttft_ms.mean" in printed


def test_a_split_takes_a_policy() -> None:
    class Counting(ty.Policy):
        seen: ClassVar[list[str]] = []

        def request_arrived(self, now: float, request: Request) -> None:
            self.seen.append(request.request_id)

    ty.split(few(0), DEPLOYMENT, policy=Counting)
    assert len(Counting.seen) == 16


def shape(prompt: int, decodes: int, context: int) -> StepShape:
    new = np.array([prompt, *[1] * decodes] if prompt else [1] * decodes)
    computed = np.array([0, *[context] * decodes] if prompt else [context] * decodes)
    return StepShape(new, computed, decodes, int(new.sum()))


def test_a_table_of_steps(tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    rows = [f"{p},{d},{8 + 0.02 * p + 0.05 * d}" for p in (0, 128, 256, 512) for d in (0, 8, 16, 32)]
    path.write_text("\n".join(["prefill,decode,ms", *rows]))
    table = Table(path)
    assert table.step_seconds(shape(256, 8, 100)) == pytest.approx(8e-3 + 0.02e-3 * 256 + 0.05e-3 * 8, rel=1e-3)
    assert ty.run(few(0), DEPLOYMENT, latency=table).result.num_finished == 8
    path.write_text("prefil,ms\n1,2\n")
    with pytest.raises(ty.ConfigError, match="did you mean"):
        Table(path)
    path.write_text("prefill,ms\n1,2\n3,x\n")
    with pytest.raises(ty.ConfigError, match=r"steps.csv:3.*number in every column"):
        Table(path)


def test_a_regressor_and_scaled_terms() -> None:
    model = Predicted(Line(), unit="ms")
    assert model.step_seconds(shape(100, 3, 10)) == pytest.approx(9e-3)
    usual = DEPLOYMENT.resolve().latency
    same, double = ScaledTerms(usual, {}), ScaledTerms(usual, {"host": 0.0})
    asked = shape(512, 4, 300)
    assert same.step_seconds(asked) == pytest.approx(usual.step_seconds(asked))
    assert double.step_seconds(asked) == pytest.approx(usual.step_seconds(asked) - usual.host_seconds)
    with pytest.raises(ty.ConfigError, match="no term of this model"):
        ScaledTerms(usual, {"attn": 2.0})


@pytest.mark.parametrize("distribution", ["lognormal", "gamma", "normal"])
def test_noise_has_the_stated_mean_and_spread_and_is_drawn_by_seed(distribution: str) -> None:
    noisy = Noisy(ConstantLatency(seconds=1.0), 0.2, distribution=distribution)
    drawn = np.array([noisy.step_seconds(shape(0, 1, 1)) for _ in range(4000)])
    assert drawn.mean() == pytest.approx(1.0, abs=0.02)
    assert drawn.std() == pytest.approx(0.2, abs=0.02)
    own = DEPLOYMENT.with_(latency=noisy)
    ends = [ty.run(few(0), own, seed=seed).result.seconds for seed in (0, 0, 1)]
    assert ends[0] == ends[1] != ends[2]
