"""``a..b`` is each number from a to b wherever several values are tried; replicas come and go by ``autoscale``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tokenyard as ty
from tokenyard.cli.main import main
from tokenyard.questions.scenario import Scenario, deployment_settings
from tokenyard.questions.space import grid_of
from tokenyard.questions.variant_sources import WorkloadVariants

SMALL = ty.Deployment(model="llama-3.2-1b", gpu="l4", max_num_seqs=4, max_model_len=4096)
FEW: dict[str, Any] = {"num_prompts": 6, "input_len": 300, "output_len": 4, "request_rate": 200.0}


def grid(space: Any) -> dict[str, tuple[Any, ...]]:
    source = WorkloadVariants(Scenario.of(deployment_settings(SMALL), "random"))
    return dict(grid_of(space, source).dimensions)


@pytest.mark.parametrize(
    ("space", "dimensions"),
    [
        ("replicas=1..6", {"replicas": (1, 2, 3, 4, 5, 6)}),
        ("replicas=1..3,8,none", {"replicas": (1, 2, 3, 8, None)}),
        ("--max-num-seqs=7..8", {"max_num_seqs": (7, 8)}),
        ("split=1..2+1..2,none", {"split": ("1+1", "1+2", "2+1", "2+2", None)}),
        ("autoscale=1..6", {"autoscale": ("1..6",)}),
        ("autoscale=1..2,1..6", {"autoscale": ("1..2", "1..6")}),
        ("gpu_memory_utilization=0.8,0.9", {"gpu_memory_utilization": (0.8, 0.9)}),
        ({"replicas": "1..3", "block_size": [16, "32..33"]}, {"replicas": (1, 2, 3), "block_size": (16, 32, 33)}),
        ({"replicas": range(1, 4)}, {"replicas": (1, 2, 3)}),
        ({"split": ["none", "1+1..2"]}, {"split": (None, "1+1", "1+2")}),
    ],
    ids=str,
)
def test_a_range_is_each_of_its_numbers(space: Any, dimensions: dict[str, tuple[Any, ...]]) -> None:
    assert grid(space) == dimensions


@pytest.mark.parametrize(
    ("space", "said"),
    [
        ("replicas=6..1", "replicas = '6..1': a range goes from the fewest to the most: 1..6"),
        ("max_num_seqs=1..5000", "max_num_seqs = '1..5000': these are 5,000 values: give at most 1,000"),
        ("split=2..1+1", "split = '2..1+1': a range goes from the fewest to the most: 1..2"),
        ("gpu_memory_utilization=0..1", "give a number"),
        ({"replicas": "1..x"}, "replicas = '1..x': give a whole number"),
    ],
)
def test_what_is_no_range_is_named(space: Any, said: str) -> None:
    with pytest.raises(ty.ConfigError) as caught:
        grid(space)
    assert said in str(caught.value)


def test_every_question_tries_each_of_a_range(tmp_path: Path) -> None:
    planned = ty.plan("random", SMALL, space={"replicas": "1..3"}, largest_load=False, **FEW)
    assert [row.settings for row in planned.rows] == [{"replicas": each} for each in (1, 2, 3)]
    assert [row.gpus for row in planned.rows if row.is_measured] == [1, 2, 3]
    compared = ty.compare("random", SMALL, space="max_num_seqs=1..2", **FEW)
    assert compared.policies == ("as it is", "max_num_seqs=1", "max_num_seqs=2")
    ty.run("random", SMALL, trace=tmp_path / "t", **FEW)
    for changes in ("max_num_seqs=2..3", {"max_num_seqs": "2..3"}):
        told = ty.whatif(tmp_path / "t", changes)
        assert [each.name for each in told.variants] == ["max_num_seqs=2", "max_num_seqs=3"]


def test_one_deployment_has_one_number_and_says_where_ranges_are_for(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ty.ConfigError) as caught:
        SMALL.with_(replicas="1..4")
    assert (caught.value.field, caught.value.value) == ("replicas", "1..4")
    assert "replicas that come and go with the load are --autoscale 1..4" in caught.value.fix
    for flag, said in (
        ("--replicas", "are --autoscale 1..8"),
        ("--limit", "plan, sweep, compare and whatif with --set"),
    ):
        assert main(["run", "random", flag, "1..8"]) == 2
        told = " ".join(capsys.readouterr().err.split())
        assert f"{flag} = '1..8': give a whole number" in told
        assert said in told


def test_replicas_that_come_and_go_have_their_own_word() -> None:
    told = ty.run("random", SMALL.with_(autoscale="1..3", startup="1s"), **FEW)
    assert told.report.replicas is not None
    assert (told.report.replicas.least, told.report.replicas.most) == (1, 3)
    fixed = ty.run("random", SMALL.with_(autoscale="1..3").with_(replicas=2), **FEW)
    assert fixed.report.replicas is not None
    assert (fixed.report.replicas.least, fixed.report.replicas.most) == (2, 2)
    with pytest.raises(ty.ConfigError, match="replicas 2 says that so many are always there: give one of the two"):
        ty.run("random", SMALL.with_(replicas=2, autoscale="1..3"), **FEW)
    for wrong in ("3", "3..1", "a..b"):
        with pytest.raises(ty.ConfigError, match=f"autoscale = '{wrong}': give the fewest"):
            ty.run("random", SMALL.with_(autoscale=wrong), **FEW)


def test_one_replica_is_one_server(tmp_path: Path) -> None:
    planned = ty.plan("random", SMALL, space={"replicas": "1..2"}, slo="ttft_p90=9s", minimize="gpus", **FEW)
    assert planned.recommended is not None
    assert planned.recommended.settings == {"replicas": 1}
    assert planned.replicas is None
    assert not any("balancer" in note for note in planned.notes)
    text = " ".join(str(planned).split())
    assert "for 1 GPU." in text
    assert "1 replicas" not in text
