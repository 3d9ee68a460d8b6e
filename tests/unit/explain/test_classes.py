"""Figures per class: the same as of each class's rows alone, with bounds of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokenyard as ty
from tokenyard.cli.main import main
from tokenyard.errors import ConfigError
from tokenyard.explain.recorded import report_by
from tokenyard.explain.report.classes import class_labels, slos_by_class
from tokenyard.explain.slo import SLOs, read_slos, slo_texts
from tokenyard.units import percent

DEPLOYMENT = ty.Deployment(model="Qwen/Qwen3-8B", max_model_len=8192, max_num_seqs=2, gpu="l40s")


def workload() -> ty.Workload:
    w = ty.WorkloadBuilder("two kinds", seed=3)
    for number, at in enumerate(w.poisson(rate=3.0, n=24)):
        is_batch = number % 3 == 0
        session = w.session(at=at, priority=int(is_batch))
        session.turn(user=1500 if is_batch else 200, output=40, meta={"tier": "batch" if is_batch else "interactive"})
    return w.build()


@pytest.fixture(scope="module")
def found() -> ty.RunResult:
    return ty.run(workload(), DEPLOYMENT, policy="priority")


def test_each_class_has_the_figures_of_its_rows(found: ty.RunResult) -> None:
    classes = found.by("tier")
    assert [each.name for each in classes.classes] == ["interactive", "batch"]
    for each in classes.classes:
        mine = found.requests["tier"] == each.name
        assert each.requests == each.finished == mine.sum()
        assert each.ttft_ms.p95 == pytest.approx(np.percentile(found.requests["ttft_ms"][mine], 95))
        ids = set(found.requests["request_id"][mine].tolist())
        lost = [
            seconds
            for request_id, seconds in zip(found.waits["request_id"], found.waits["seconds"], strict=True)
            if request_id in ids
        ]
        assert each.waited_s == pytest.approx(sum(lost))
    assert sum(each.requests for each in classes.classes) == len(found.requests)
    assert classes["interactive"].waited_for == "max_num_seqs"


@pytest.mark.parametrize("given", [{"ttft_p90": "1s"}, "ttft_p90=1s", ["ttft_p90=1s"], (("ttft_p90=1s",),)])
def test_bounds_are_given_in_several_ways(given: SLOs) -> None:
    (bound,) = read_slos(slo_texts(given))
    assert (bound.name, bound.bound_ms) == ("ttft_p90", 1000.0)


@pytest.mark.parametrize("given", [5, {5: 1}, {"ttft_p90": None}])
def test_what_is_no_bound_is_refused(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"slo = .*: give (NAME_STATISTIC=TIME|ttft_p90 a time)"):
        read_slos(slo_texts(given))


def test_numbers_of_many_digits_are_classes_of_their_own() -> None:
    numbers = [10_000_001, 10_000_002, 7, 0.1]
    assert class_labels(np.array(numbers[:3]), "customer").tolist() == ["10000001", "10000002", "7"]
    assert class_labels(np.array([*numbers, np.nan]), "customer").tolist() == [*map(str, numbers), "(none)"]


def test_bounds_are_of_one_class_or_of_all_others(found: ty.RunResult) -> None:
    classes = found.by("tier", slo="batch:ttft_p95=10min ttft_p50=1ms")
    batch, interactive = classes["batch"].goodput, classes["interactive"].goodput
    assert batch is not None
    assert interactive is not None
    assert (batch.met, interactive.met) == (True, False)
    assert [each.name for each in batch.objectives] == ["ttft_p95"]
    assert batch.requests == classes["batch"].finished


@pytest.mark.parametrize("by", ["priority", "prompt_tokens"])
def test_a_trace_has_the_classes_of_its_run(tmp_path: Path, by: str) -> None:
    made = ty.run(workload(), DEPLOYMENT, policy="priority", trace=tmp_path / "trace")
    of_trace = report_by(tmp_path / "trace", by, slo="ttft_p95=1s")[1].as_table()
    of_run = made.by(by, slo="ttft_p95=1s").as_table()
    assert of_trace.columns == of_run.columns
    for name in of_run.columns:
        if of_run[name].dtype.kind == "f":
            np.testing.assert_allclose(of_trace[name], of_run[name], rtol=1e-4, err_msg=name)
        else:
            assert of_trace[name].tolist() == of_run[name].tolist(), name
    with pytest.raises(ConfigError, match="a trace has: priority"):
        report_by(tmp_path / "trace", "tier")


def test_a_class_is_called_as_the_log_calls_it(tmp_path: Path) -> None:
    log = tmp_path / "gateway.csv"
    lines = [f"{at},500,20,{'search' if at % 3 else 'nightly'}" for at in range(9)]
    log.write_text("\n".join(["timestamp,prompt_tokens,completion_tokens,team", *lines]))
    made = ty.run(str(log), DEPLOYMENT, trace=tmp_path / "trace")
    for found in (made.by("team"), made.by("user"), report_by(tmp_path / "trace", "user")[1]):
        assert {each.name: each.requests for each in found.classes} == {"search": 6, "nightly": 3}


def test_a_class_that_there_is_not_is_refused_before_the_replay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--model", "Qwen/Qwen3-8B", "--gpu", "l40s", "--trace", str(tmp_path / "trace")]
    assert main(["run", "chat", "--limit", "2", *flags, "--by", "tea"]) == 2
    assert "--by = 'tea': requests have no such column: prompt_tokens, priority" in capsys.readouterr().err
    assert not (tmp_path / "trace").exists()


def test_the_run_without_bounds_has_none(found: ty.RunResult) -> None:
    assert found.by("priority")["1"].goodput is None


def test_numbers_with_many_values_are_ranges(found: ty.RunResult) -> None:
    longer = ty.run("chat", DEPLOYMENT, limit=6)
    names = [each.name for each in longer.by("prompt_tokens").classes]
    assert all(name.startswith("prompt_tokens ") for name in names)
    assert [each.name for each in found.by("prompt_tokens").classes] == ["200", "1500"]


@pytest.mark.parametrize(
    ("slo", "classes"),
    [
        ("ttft_p90=1s", {""}),
        ("tpot:40", {""}),
        ("ttft-p90:500", {""}),
        ("e2el_p90=1s,interactive:tpot:40", {"", "interactive"}),
        ("batch:e2e_p95=10min", {"batch"}),
        ("0:ttft:500", {"0"}),
    ],
)
def test_a_bound_names_its_class(slo: str, classes: set[str]) -> None:
    assert set(slos_by_class([[slo]])) == classes


def test_what_cannot_be_is_named(found: ty.RunResult) -> None:
    for by, slo, field in (
        ("tear", None, "by"),
        ("tier", "gold:ttft_p95=1s", "slo"),
        ("tier", "batch:x=1s", "slo"),
    ):
        with pytest.raises(ConfigError) as caught:
            found.by(by, slo)
        assert caught.value.field == field
    with pytest.raises(ConfigError, match="bound tpot"):
        found.by("tier", "batch:itl_p99=1s")


LOG = "arrival_time,prompt_tokens,completion_tokens,user,service_tier\n" + "".join(
    f"{number},{100 + number},8,team-{number % 2},{'batch' if number % 3 == 0 else 'interactive'}\n"
    for number in range(9)
)


def test_a_log_tells_users_and_tiers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "gateway.csv"
    log.write_text(LOG)
    given = ["run", str(log), "--model", "Qwen/Qwen3-8B", "--gpu", "l40s", "--advice", "none"]
    assert main([*given, "--by", "service-tier"]) == 2
    assert main([*given, "--by", "service_tier", "--json", "--slo", "batch:ttft_p95=1s"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["by"] == "tier"
    assert {each["name"]: each["requests"] for each in answer["classes"]} == {"batch": 3, "interactive": 6}
    assert [each["goodput"] is None for each in answer["classes"]] == [True, False]
    assert main([*given, "--by", "user"]) == 0
    assert "team-1" in capsys.readouterr().out
    assert main([*given, "--slo", "batch:ttft_p95=1s"]) == 2
    assert "--by" in capsys.readouterr().err


@pytest.mark.slow
def test_a_plan_holds_the_bounds_of_each_class() -> None:
    """Its row has what the run of the same settings has, and an early end is only of variants that miss a bound."""
    bounds = "interactive:ttft_p95=750ms batch:e2e_p95=40s"
    space = {"max_num_seqs": [1, 2, 4], "scheduling_policy": ["fcfs", "priority"]}
    plan = ty.plan(workload(), DEPLOYMENT, space=space, slo=bounds, by="tier", largest_load=False)
    chosen = plan.recommended
    assert plan.holds
    assert chosen is not None
    for row in plan.rows:
        run = ty.run(
            workload(),
            DEPLOYMENT.with_(max_num_seqs=str(row.settings["max_num_seqs"])),
            policy=str(row.settings["scheduling_policy"]),
        )
        goodput = run.by("tier", slo=bounds).goodput()
        assert goodput is not None
        if row.is_measured and row.times == 1:
            assert row.met == goodput.met
            assert row.figures["goodput.share"] == goodput.share
            ttft = run.by("tier")["interactive"].ttft_ms.p95
            assert row.figures["interactive:ttft_ms.p95"] == pytest.approx(ttft)
        elif row.met is not None and row.times == 1:
            assert goodput.met is False
    assert any(row.times == 1 for row in plan.rows)
    assert any(row.stopped is not None for row in plan.rows)


@pytest.mark.slow
def test_a_bound_without_a_class_is_of_every_other_class() -> None:
    found = ty.plan(
        workload(), DEPLOYMENT, space={"max_num_seqs": [4]}, slo="batch:e2e_p95=60s ttft_p95=30s", by="tier"
    )
    assert found.slo == ["batch:e2e_p95=60000ms", "interactive:ttft_p95=30000ms"]
    alone = ty.plan(workload(), DEPLOYMENT, space={"max_num_seqs": [4]}, slo="batch:e2e_p95=60s", by="tier")
    assert any(sentence.startswith("interactive has no bound") for sentence in alone.unknown)


def test_policies_are_compared_class_by_class() -> None:
    found = ty.compare(workload(), DEPLOYMENT, ["fcfs", "priority"], by="tier", slo="interactive:ttft:1000")
    run = ty.run(workload(), DEPLOYMENT, policy="priority").by("tier", slo="interactive:ttft:1000")
    metrics = found.cell("priority", 1.0).metrics
    ttft, goodput = run["interactive"].ttft_ms.p95, run["interactive"].goodput
    assert ttft is not None
    assert goodput is not None
    assert goodput.share is not None
    assert metrics["interactive:ttft_p95_s"].mean == pytest.approx(ttft / 1e3)
    assert metrics["interactive:goodput"].mean == pytest.approx(100 * goodput.share)
    assert "batch:goodput" not in metrics
    assert metrics["fairness"].mean == pytest.approx(run.fairness())
    assert 0.5 <= metrics["fairness"].mean <= 1


@pytest.mark.slow
def test_a_recorded_run_is_asked_class_by_class(tmp_path: Path) -> None:
    ty.run(workload(), DEPLOYMENT, trace=tmp_path)
    found = ty.whatif(tmp_path, {"scheduling_policy": "priority"}, by="priority")
    run = ty.run(workload(), DEPLOYMENT, policy="priority").by("priority")
    urgent = found.variants[0].classes[0]
    assert (urgent.name, urgent.requests) == ("0", 16)
    assert urgent.variant["ttft_ms.p95"] == pytest.approx(run["0"].ttft_ms.p95, rel=0.02)
    assert (urgent.variant["ttft_ms.p95"] or 0) < (urgent.baseline["ttft_ms.p95"] or 0)


@pytest.mark.slow
def test_a_recorded_run_is_held_to_the_bounds_of_each_class(tmp_path: Path) -> None:
    """Before and then, class by class: what the same settings give in a run."""
    run = ty.run(workload(), DEPLOYMENT, trace=tmp_path)
    bounds = "0:ttft_p95=2s 1:e2e:4000"
    found = ty.whatif(tmp_path, {"scheduling_policy": "priority"}, by="priority", slo=bounds)
    (variant,) = found.variants
    told = variant.goodput
    assert told is not None
    then = ty.run(workload(), DEPLOYMENT, policy="priority").by("priority", slo=bounds)
    before = run.by("priority", slo=bounds)
    for mine, theirs in ((told.baseline, before.goodput()), (told.variant, then.goodput())):
        assert theirs is not None
        assert [each.name for each in mine.objectives] == ["0:ttft_p95", "1:e2e"]
        assert mine.share == theirs.share
        assert mine.objectives[0].met == theirs.objectives[0].met
    for each in variant.classes:
        assert each.baseline_good == before[each.name].goodput.share  # type: ignore[union-attr]
        assert each.variant_good == then[each.name].goodput.share  # type: ignore[union-attr]
    assert told.variant.share != told.baseline.share
    assert "0: within every bound" in str(found)
    all_together = ty.whatif(tmp_path, {"max_num_seqs": 4}, slo="ttft_p95=2s").variants[0]
    assert all_together.goodput is not None
    assert [each.name for each in all_together.goodput.baseline.objectives] == ["ttft_p95"]
    with pytest.raises(ConfigError, match="say what it is a class of"):
        ty.whatif(tmp_path, (), slo="0:ttft_p95=2s")
    with pytest.raises(ConfigError, match="no request is of this class"):
        ty.whatif(tmp_path, (), by="priority", slo="7:ttft_p95=2s")


def test_a_sweep_has_figures_of_each_class() -> None:
    bounds = "interactive:ttft_p95=2s batch:e2e_p95=10min"
    found = ty.sweep(workload(), DEPLOYMENT, {"max_num_seqs": [2, 4]}, by="tier", slo=bounds)
    row = next(each for each in found.rows if each.settings["max_num_seqs"] == 2)
    two, printed = ty.run(workload(), DEPLOYMENT).by("tier", slo=bounds), " ".join(str(found).split())
    for name in ("interactive", "batch"):
        goodput = two[name].goodput
        assert goodput is not None
        assert row.figures[f"{name}:goodput.share"] == pytest.approx(goodput.share)
        assert f"{name} within its bounds {percent(goodput.share)}" in printed
    assert row.figures["interactive:ttft_ms.p95"] == pytest.approx(two["interactive"].ttft_ms.p95)
    assert f"{name} E2E p95" in printed


def test_bounds_of_a_class_say_of_which_column() -> None:
    with pytest.raises(ConfigError):
        ty.plan(workload(), DEPLOYMENT, slo="batch:ttft_p95=1s")
    with pytest.raises(ConfigError):
        ty.plan(workload(), DEPLOYMENT, slo="gold:ttft_p95=1s", by="tier")
    with pytest.raises(ConfigError):
        ty.plan(workload(), DEPLOYMENT, by="tear")


FAST_ENOUGH = ("run", "--model=Qwen/Qwen3-8B", "--gpu=l40s", "--max-model-len=8192")


def test_a_missed_bound_of_a_class_is_advised_about(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By a run, which replays the change and judges it by the class's own figure, and by the report on its trace."""
    rows = ["arrival_time,prompt_tokens,completion_tokens,priority,tier"]
    rows += [
        f"{i / 2},{1500 if i % 3 == 0 else 200},40,{int(i % 3 == 0)},{'batch' if i % 3 == 0 else 'interactive'}"
        for i in range(12)
    ]
    log, trace = tmp_path / "log.csv", tmp_path / "trace"
    log.write_text("\n".join(rows) + "\n")
    run = [FAST_ENOUGH[0], str(log), *FAST_ENOUGH[1:], "--by=tier", f"--trace={trace}", "--json"]
    assert main([*run, "--slo=interactive:tpot_p90=20ms"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["goodput"] is None, "no bound is of all requests"
    (advice,) = printed["advice"]
    assert (advice["rule"], advice["setting"], advice["trial"]["then"]) == ("slow-steps", "tensor_parallel_size", 2)
    assert advice["evidence"].startswith("A token of class interactive may take 20.0 ms and takes ")
    effects = {each["figure"]: each for each in advice["trial"]["effects"]}
    (interactive,) = (each for each in printed["classes"] if each["name"] == "interactive")
    assert effects["interactive:tpot_ms.p90"]["before"] == interactive["tpot_ms"]["p90"]

    assert main(["report", str(trace), "--by=priority", "--slo=0:tpot_p90=20ms", "--full"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert words.startswith("0:tpot_p90 is missed")
    assert "The GPU is too slow for this load: raise tensor_parallel_size to 2 (now 1)." in words
    assert "A token of class 0 may take 20.0 ms" in words
    assert main(["report", str(trace), "--by=priority", "--slo=0:tpot_p90=2s"]) == 0
    assert "What to change" not in capsys.readouterr().out


@pytest.mark.parametrize("command", ["run", "report"])
def test_classes_have_no_time_between_two_tokens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    trace = tmp_path / "trace"
    ty.run(workload(), DEPLOYMENT, trace=trace, rows=False)
    asked = ["run", "chat", *FAST_ENOUGH[1:], "--limit=3"] if command == "run" else ["report", str(trace)]
    assert main([*asked, "--by=priority", "--slo=itl_p99=50ms"]) == 2
    assert "a class is of requests, which have no such time: bound tpot, or e2e" in " ".join(
        capsys.readouterr().err.split()
    )
