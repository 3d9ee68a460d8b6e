"""A plan with so many GPUs: couples of settings, one for the other, and what each GPU gives."""

from __future__ import annotations

import pytest

import tokenyard as ty
from tokenyard.errors import ConfigError
from tokenyard.questions.planning.goal import pareto_front
from tokenyard.questions.scenario import Scenario
from tokenyard.questions.space import space_of
from tokenyard.questions.sweeping.rows import Row
from tokenyard.questions.variant_sources import WorkloadVariants

COUPLES = ["tensor_parallel_size=1,replicas=2", "tensor_parallel_size=2,replicas=1"]


def source() -> WorkloadVariants:
    return WorkloadVariants(Scenario.of(ty.Deployment(model="Qwen/Qwen3-8B", gpu="h100").settings, load()))


def load() -> ty.Workload:
    w = ty.WorkloadBuilder("load", seed=0)
    for at in w.poisson(rate=20, n=40):
        w.request(at=at, prompt=200, output=20)
    return w.build()


def test_couples_are_one_for_the_other() -> None:
    grid = space_of([*COUPLES, "max_num_seqs=8,16"], source())
    found = [(each["tensor_parallel_size"], each["replicas"], each["max_num_seqs"]) for each in grid.all()]
    assert found == [(1, 2, 8), (1, 2, 16), (2, 1, 8), (2, 1, 16)]
    assert len(grid) == 4
    with pytest.raises(ConfigError, match="given twice"):
        space_of(["max_num_seqs=8", "max_num_seqs=16"], source())
    with pytest.raises(ConfigError, match="given twice"):
        space_of(["max_num_seqs=8,replicas=2", "max_num_seqs=16"], source())


def test_no_variant_takes_more_than_the_budget() -> None:
    grid = space_of(["tensor_parallel_size=1,2,4", "replicas=1,2,4"], source(), most_gpus=4)
    sizes = {(each["tensor_parallel_size"], each["replicas"]) for each in grid.all()}
    assert sizes == {(1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (4, 1)}
    usual = space_of(None, source(), most_gpus=8).all()
    assert {(each["tensor_parallel_size"], each["replicas"]) for each in usual} == {(1, 8), (2, 4), (4, 2), (8, 1)}
    with pytest.raises(ConfigError, match="every variant takes more"):
        space_of(["tensor_parallel_size=4"], source(), most_gpus=2)


def row(gpus: int, tokens: float, tpot: float) -> Row:
    figures: dict[str, float | None] = {"throughput.output_tokens_per_s": tokens, "tpot_ms.p90": tpot}
    return Row(settings={"replicas": gpus}, gpus=gpus, figures=figures)


def test_the_front_is_of_each_gpu() -> None:
    rows = [row(1, 100.0, 30.0), row(2, 180.0, 20.0), row(2, 150.0, 25.0), row(4, 300.0, 10.0)]
    assert [each.gpus for each in pareto_front(rows)] == [1, 2, 4]


@pytest.mark.slow
def test_the_best_use_of_two_gpus_is_found() -> None:
    deployment = ty.Deployment(model="Qwen/Qwen3-8B", gpu="h100")
    told = ty.plan(
        load(), deployment, space=COUPLES, gpus=2, maximize="throughput", largest_load=False, price={"h100": 2}
    )
    assert told.size == 2
    assert {each.gpus for each in told.rows} == {2}
