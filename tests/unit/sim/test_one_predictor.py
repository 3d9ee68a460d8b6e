"""What ``tokenyard accuracy`` says of a measured point is what ``tokenyard run`` prints of the same load."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tokenyard import Deployment, Workload, run
from tokenyard.deploy.spec import build_replay
from tokenyard.models.gpus import named_gpu
from tokenyard.models.named import MODELS
from tokenyard.questions.accuracy.comparison import loop_of, predict
from tokenyard.questions.accuracy.deployments import Recipe
from tokenyard.questions.accuracy.measured_run import closed_loop_requests
from tokenyard.questions.accuracy.points import Point
from tokenyard.steptime.formula import Parallelism

VERSION = "0.22"


def drawn(seed: int) -> Point:
    """A small load on a deployment that memory does not bind."""
    rng = np.random.default_rng(seed)
    model, gpu = rng.choice(["llama-3.1-8b", "qwen3-30b-a3b", "gpt-oss-120b"]), rng.choice(["h100", "h200", "b200"])
    return Point(
        name=f"drawn {seed}",
        model=str(model),
        precision="",
        spec=MODELS[str(model)],
        gpu=named_gpu(str(gpu)),
        version=VERSION,
        parallel=Parallelism(tensor=int(rng.choice([2, 4]))),
        recipe=Recipe(shortest=float(rng.choice([0.8, 1.0])), async_scheduling=bool(rng.integers(2))),
        input_tokens=int(rng.integers(100, 3000)),
        output_tokens=int(rng.integers(10, 80)),
        users=int(rng.integers(1, 9)),
        rounds=3,
        ttft=1.0,
        tpot=1.0,
    )


def of_point(point: Point) -> tuple[Workload, Deployment]:
    """The same load and the same deployment, as a user gives them."""
    loop = loop_of(point)
    deployment = Deployment(
        model=point.spec.name,
        gpu=point.gpu.name,
        tensor_parallel_size=point.parallel.tensor,
        vllm_version=VERSION,
        max_num_batched_tokens=loop.max_num_batched_tokens,
        max_num_seqs=loop.max_num_seqs,
        max_model_len=loop.input_tokens + loop.output_tokens + 1,
        enable_prefix_caching=False,
        async_scheduling=point.recipe.async_scheduling,
        max_cudagraph_capture_size=point.recipe.capture_size,
    )
    return Workload("closed loop", closed_loop_requests(loop), max_concurrency=loop.users), deployment


@pytest.mark.parametrize("seed", range(8))
def test_accuracy_predicts_what_run_prints(seed: int) -> None:
    point = drawn(seed)
    (predicted,) = predict([point])
    workload, deployment = of_point(point)
    report = run(workload, deployment).report
    assert report.ttft_ms.mean == pytest.approx(predicted.ttft * 1e3, rel=1e-6)
    assert report.tpot_ms.mean == pytest.approx(predicted.tpot * 1e3, rel=1e-6)


def test_the_front_end_is_named_and_can_be_given() -> None:
    workload, deployment = of_point(replace(drawn(0), users=1))
    fitted, none = run(workload, deployment), run(workload, deployment, front_end_delay="0ms")
    named = [[each.name for each in one.deployment.assumed] for one in (fitted, none)]
    assert ["front-end-delay" in names for names in named] == [True, False]
    spec = build_replay(deployment.resolve(), workload)
    ways = [each.delay for each in spec.workload]
    assert min(ways) > 0.001
    assert fitted.requests["ttft_ms"][0] - none.requests["ttft_ms"][0] == pytest.approx(ways[0] * 1e3, rel=1e-6)
    # The ways of another deployment take the place of these; those that are given stay.
    other = build_replay(Deployment(model="qwen3-32b", gpu="h200").resolve(), spec.workload)
    assert [each.delay for each in other.workload] != ways
    given = workload.with_delays([0.5] * len(workload))
    assert {each.delay for each in build_replay(deployment.resolve(), given).workload} == {0.5}


def test_a_constant_way_changes_no_decision() -> None:
    """All requests reach the scheduler later by as much: it decides the same, that much later."""
    workload, deployment = of_point(drawn(3))
    spread = workload.with_requests([replace(each, arrival_time=0.01 * i) for i, each in enumerate(workload)])
    spread = Workload("open loop", spread.requests)
    runs = [run(spread, deployment, front_end_delay=way) for way in ("0ms", "20ms")]
    steps = [{name: list(one.steps[name]) for name in ("scheduled_tokens", "running", "waiting")} for one in runs]
    assert steps[0] == steps[1]
    first = [np.array(one.requests["ttft_ms"]) for one in runs]
    assert first[1] - first[0] == pytest.approx(np.full(len(spread), 20.0), abs=1e-3)
