"""Studies: every combination once, paired by seed, kept on disk, with own metrics."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokenyard as ty
from tokenyard.questions import Study, StudyCell
from tokenyard.questions.compare import interval

DEPLOYMENT = ty.Deployment(model="Qwen/Qwen3-8B", max_model_len=16384, max_num_seqs=2, gpu="l40s")


class LongestFirst(ty.KeyedPolicy):
    """Another order than that of arrival."""

    def key(self, request: ty.Request) -> tuple[float, ...]:
        return (-request.num_prompt_tokens,)


def worst_ttft(found: ty.RunResult) -> float:
    return float(found.requests["ttft_ms"].max())


@pytest.fixture(scope="module")
def whole() -> Study:
    return ty.study(
        "chat",
        {"two": DEPLOYMENT, "four": DEPLOYMENT.with_(max_num_seqs=4)},
        policies=["fcfs", LongestFirst],
        loads=[1, 40],
        seeds=[0, 1],
        metrics={"worst_ttft": worst_ttft},
        limit=3,
    )


@pytest.mark.slow
def test_every_combination_is_a_row(whole: Study) -> None:
    table = whole.as_table()
    combinations = set(zip(*(table[name].tolist() for name in ("deployment", "policy", "load", "seed")), strict=True))
    assert len(table) == len(combinations) == 16
    assert {each[1] for each in combinations} == {"fcfs", "LongestFirst"}


def test_a_row_is_what_run_answers(whole: Study) -> None:
    cell = StudyCell("four", "LongestFirst", 40.0)
    found = ty.run("chat", DEPLOYMENT.with_(max_num_seqs=4), policy=LongestFirst, limit=3, seed=1, rate_scale=40)
    assert whole.values("worst_ttft", cell)[1] == worst_ttft(found)
    assert whole.values("ttft_ms.p99", cell)[1] == pytest.approx(found.report.ttft_ms.p99)


def test_cells_are_compared_seed_by_seed(whole: Study) -> None:
    cell, first = StudyCell("four", "fcfs", 40.0), StudyCell("two", "fcfs", 40.0)
    own, other = whole.values("worst_ttft", cell), whole.values("worst_ttft", first)
    assert whole.against("worst_ttft", cell, first) == interval([own[seed] - other[seed] for seed in (0, 1)])
    assert whole.against("worst_ttft", cell, first, ratio=True) == interval([own[s] / other[s] for s in (0, 1)])
    row = next(row for row in whole.means() if (row["deployment"], row["policy"], row["load"]) == cell)
    assert row["worst_ttft_change"] == pytest.approx(sum(own.values()) / 2 - sum(other.values()) / 2)


def test_it_prints_and_draws(whole: Study) -> None:
    text = str(whole)
    assert "LongestFirst on four" in text
    assert "load 40" in text
    assert whole.draw().count("<polyline") == 12
    assert repr(whole) == "<Study: 8 cells x 2 seeds on chat>"


def test_processes_give_the_same_rows(whole: Study) -> None:
    again = ty.study("chat", {"two": DEPLOYMENT}, seeds=[0, 1], limit=3, jobs=2)
    cell = StudyCell("two", "fcfs", 1.0)
    assert again.values("e2e_ms.mean", cell) == whole.values("e2e_ms.mean", cell)


def test_the_same_study_goes_on_from_its_directory(tmp_path: Path) -> None:
    calls: list[int] = []

    def made(seed: int) -> ty.Workload:
        calls.append(seed)
        builder = ty.WorkloadBuilder("mine", seed=seed)
        for at in builder.poisson(rate=2.0, n=4):
            builder.session(at=at).turn(user=64, output=16)
        return builder.build()

    seen: list[tuple[int, int]] = []

    def asked(*seeds: int) -> Study:
        return ty.study(
            made, DEPLOYMENT, seeds=seeds, output=tmp_path / "kept", progress=lambda done, of: seen.append((done, of))
        )

    asked(0)
    found = asked(0, 1)
    assert seen == [(1, 1), (2, 2)]
    assert len(found.rows) == 2
    assert found.deployments == ("",)
    with pytest.raises(ty.ConfigError, match="holds another"):
        ty.study(made, DEPLOYMENT, seeds=(0,), output=tmp_path / "kept", until=1.0)


def test_what_cannot_be_replayed_is_a_row_with_its_problem() -> None:
    found = ty.study("chat", {"tiny": DEPLOYMENT.with_(num_gpu_blocks_override=2)}, limit=2)
    (row,) = found.rows
    assert row.problem is not None
    assert "not replayed" in str(found)


def test_a_metric_without_a_value_does_not_count() -> None:
    values = {0: math.nan, 1: 2.0, 2: 4.0}
    found = ty.study(
        "chat",
        DEPLOYMENT,
        seeds=tuple(values),
        limit=2,
        metrics={"mine": lambda run: values[run.result.num_finished % 3]},
    )
    cell = found.cells[0]
    assert all(not math.isnan(value) for value in found.values("mine", cell).values())


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"seeds": ()}, "seeds"),
        ({"loads": (1, 1)}, "loads"),
        ({"policies": ["fcf"]}, "policies"),
        ({"policies": ["fcfs", "fcfs"]}, "policies"),
        ({"jobs": 0}, "jobs"),
        ({"jobs": 2, "metrics": {"mine": lambda found: 1.0}}, "metrics"),
        ({"metrics": {"mine": lambda found: "fast"}}, "metrics"),
        ({"request_rat": 3}, "request_rat"),
    ],
)
def test_what_no_replay_could_take_is_named(given: dict[str, object], field: str) -> None:
    with pytest.raises(ty.ConfigError) as caught:
        ty.study("chat", DEPLOYMENT, limit=1, **given)  # type: ignore[arg-type]
    assert caught.value.field == field


def test_an_unknown_metric_names_the_others(whole: Study) -> None:
    with pytest.raises(ty.ConfigError, match=r"use one of: ttft_ms\.mean, ttft_ms\.p50"):
        whole.interval("ttft", whole.cells[0])


def test_lower_bounds_have_their_sign_and_are_not_compared() -> None:
    """One deployment does not serve all within the time, the other does."""
    slow = ty.Deployment(model="llama-3.1-8b", gpu="l4", max_model_len=4096, max_num_seqs=4)
    traffic: dict[str, Any] = {"num_prompts": 30, "request_rate": 4, "input_len": 300, "output_len": 30}
    found = ty.study("random", {"slow": slow, "fast": slow.with_(gpu="h100")}, until=9.0, **traffic)
    first, second = found.cells
    assert found.is_at_least("ttft_ms.p99", first)
    assert not found.is_at_least("ttft_ms.p99", second)
    interval = found.interval("ttft_ms.p99", first)
    said = str(found)
    assert f"\N{GREATER-THAN OR EQUAL TO}{interval} " in said
    assert "a lower bound, since requests were not served" in said
    (changes,) = (line.split() for line in said.splitlines() if line.strip().startswith("- "))
    assert changes[:4] == ["-"] * 4


def test_own_metrics_that_rest_on_lower_bounds_have_their_sign() -> None:
    slow = ty.Deployment(model="llama-3.1-8b", gpu="l4", max_model_len=4096, max_num_seqs=4)
    traffic: dict[str, Any] = {"num_prompts": 30, "request_rate": 4, "input_len": 300, "output_len": 30}
    own: dict[str, Any] = {
        "tail_s": lambda run: run.report.ttft_ms.p99 / 1e3,
        "rate": lambda run: run.report.throughput.output_tokens_per_s,
        "served": lambda run: run.report.outcomes.served,
    }
    found = ty.study("random", slow, until=9.0, metrics=own, **traffic)
    (cell,) = found.cells
    assert [found.is_at_least(name, cell) for name in own] == [True, False, False]
    assert f"≥{found.interval('tail_s', cell)}" in str(found)
    whole = ty.study("random", slow, metrics=own, **traffic)
    assert not any(whole.is_at_least(name, cell) for name in own)


def test_own_metrics_from_tables_say_of_how_many_they_are() -> None:
    """What skips those who have no latency is of a part; what counts them is not, whichever way it does that."""
    slow = ty.Deployment(model="llama-3.1-8b", gpu="l4", max_model_len=4096, max_num_seqs=4)
    traffic: dict[str, Any] = {"num_prompts": 30, "request_rate": 4, "input_len": 300, "output_len": 30}
    parts: dict[str, Any] = {
        "mean_ms": lambda run: np.nanmean(run.requests["e2e_ms"]),
        "median_ms": lambda run: np.nanmedian(run.requests["e2e_ms"]),
        "ends_s": lambda run: max(row["finished_s"] for row in run.requests if row["finished_s"] is not None),
        "within": lambda run: np.mean([each < 6000 for each in run.requests["e2e_ms"] if not np.isnan(each)]),
    }
    of_all: dict[str, Any] = {
        "served_share": lambda run: np.mean(~np.isnan(run.requests["e2e_ms"])),
        "within_of_all": lambda run: np.mean(run.requests["e2e_ms"] < 6000),
        "prompts": lambda run: run.requests["prompt_tokens"].sum(),
        "gap_ms": lambda run: run.token_gaps().mean(),
        "none": lambda run: run.requests["e2e_ms"].max(),
    }
    bounds: dict[str, Any] = {
        "age_s": lambda run: (run.requests["until_s"] - run.requests["arrival_s"]).max(),
        "class_ms": lambda run: run.by("priority")["0"].e2e_ms.p99,
    }
    own = {**parts, **of_all, **bounds}
    found = ty.study("random", {"slow": slow, "fast": slow.with_(gpu="h100")}, until=9.0, metrics=own, **traffic)
    cell, fast = found.cells
    (row, _) = found.rows
    assert 0 < row.unfinished < 30
    served, came = row.requests, row.requests + row.unfinished
    assert {name: found.part(name, cell) for name in own} == {
        **dict.fromkeys(parts, (served, came)),
        **dict.fromkeys([*of_all, *bounds], None),
    }
    assert [name for name in own if found.is_at_least(name, cell)] == [*bounds]
    assert all(found.is_sure(name, fast) for name in own)
    shown = ty.study("random", {"slow": slow}, until=9.0, metrics={"mean_ms": parts["mean_ms"]}, **traffic)
    table, text = found.as_table(), " ".join(str(shown).split())
    assert str(table["parts"][0]).split()[0] == f"mean_ms:{served}/{came}"
    assert f"({served} of {came})" in text
    assert "requests that were not served are left out of it; it is not compared" in text
    means = next(iter(found.means("mean_ms", "class_ms", "within_of_all")))
    assert [means[f"{name}_is"] for name in ("mean_ms", "class_ms", "within_of_all")] == [
        f"of {served}/{came}",
        "at least",
        None,
    ]
