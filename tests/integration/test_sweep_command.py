"""``tokenyard sweep`` as a user calls it: a grid, a file, a trace, a second time, and what cannot be swept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.integration.command import call

from tokenyard.questions.sweeping.measuring import replayed

pytest.importorskip("pyarrow")

FLAGS = ("--limit", "4", "--rate-scale", "60", "--num-gpu-blocks-override", "900", "--max-model-len", "8192")
TIMES = ("--latency", "constant:0.02", "--no-async-scheduling")


def test_a_row_is_what_a_run_with_these_settings_reports_and_is_measured_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("sweep", "chat", *FLAGS, *TIMES, "--slo", "ttft_p90=1s", "tpot:25", "--price", "h100=2")
    first = call(*words, "--set", "max_num_seqs=2,4", "--json", cwd=tmp_path)
    told = json.loads(first.stdout)
    assert [row["settings"] for row in told["rows"]] == [{"max_num_seqs": 2}, {"max_num_seqs": 4}]
    happened = json.loads(
        call(
            *("run", "chat", *FLAGS, *TIMES, "--max-num-seqs", "2", "--slo", "ttft_p90=1s", "tpot:25"),
            *("--advice", "none", "--json"),
            cwd=tmp_path,
        ).stdout
    )
    row = told["rows"][0]
    for name in ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms"):
        assert row["figures"][f"{name}.p95"] == happened[name]["p95"]
    assert row["figures"]["goodput.share"] == happened["goodput"]["share"]
    assert row["met"] == happened["goodput"]["met"]
    assert (row["gpus"], row["cost_per_hour"]) == (1, 2.0)

    seats = []

    def noted(prepared: Any, *arguments: Any, **named: Any) -> Any:
        seats.append(prepared.replays.scheduler.max_num_seqs)
        return replayed(prepared, *arguments, **named)

    monkeypatch.setattr("tokenyard.questions.sweeping.measuring.replayed", noted)
    again = call(*words, "--set", "max_num_seqs=2,4,8", "--processes", "1", cwd=tmp_path)
    assert seats == [8], "the other two are known"
    assert "2 of 3 variants were finished before: sweep has them" in again.stderr
    assert "max_num_seqs=8" in again.stdout
    other = call("sweep", "chat", *FLAGS, "--set", "max_num_seqs=2", cwd=tmp_path)
    assert other.code == 2
    assert "--output = 'sweep': holds another sweep" in other.stderr


def test_a_file_of_variants_and_one_that_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "v.csv").write_text("max-num-seqs,policy\n4,fcfs\n4,continuum-ttl\n0,fcfs\n")
    told = json.loads(
        call("sweep", "chat", *FLAGS, *TIMES, "--variants", "v.csv", "--output", "out", "--json", cwd=tmp_path).stdout
    )
    assert [row["settings"].get("scheduling_policy") for row in told["rows"]] == ["fcfs", "continuum-ttl", "fcfs"]
    assert [row["problem"] is None for row in told["rows"]] == [True, True, False]
    assert told["table"] == "out/sweep.parquet"


def test_a_policy_that_finds_nothing_to_go_by_is_named_once(tmp_path: Path) -> None:
    words = ("sweep", "chat", *FLAGS, *TIMES, "--set", "policy=fcfs,priority", "max_num_seqs=2,4")
    said = "priority has nothing to decide by: all requests have the same priority: only their arrival orders them"
    assert call(*words, cwd=tmp_path).stderr.count(said) == 1
    asked = ("--scheduling-policy", "priority", "--space", "max_num_seqs=2,4")
    planned = call("plan", "chat", *FLAGS, *TIMES, *asked, cwd=tmp_path)
    assert planned.stderr.count(said) == 1


def test_replicas_that_come_and_go_cost_what_they_hold_and_the_page_has_all_variants(tmp_path: Path) -> None:
    words = (
        "--autoscale",
        "1..3",
        "--startup",
        "1s",
        "--price",
        "h100=2",
        "--scale-target",
        "1",
        "--set",
        "max_num_seqs=1,8",
    )
    shown = call("sweep", "chat", *FLAGS, *TIMES, *words, "--json", "--html", "p.html", cwd=tmp_path)
    few, many = json.loads(shown.stdout)["rows"]
    assert few["figures"]["replicas.max_held"] > many["figures"]["replicas.max_held"] == 1
    for row in (few, many):
        assert row["cost_per_hour"] == pytest.approx(2 * row["figures"]["replicas.mean_held"])
        assert row["gpus"] == row["figures"]["replicas.max_held"]
    assert (tmp_path / "p.html").read_text().count("<polyline") == 2


def test_every_variant_leaves_a_trace_that_says_what_its_row_says(tmp_path: Path) -> None:
    words = ("--set", "max_num_seqs=2,8", "--traces", "--html", "p.html", "--json")
    rows = json.loads(call("sweep", "chat", *FLAGS, *TIMES, *words, cwd=tmp_path).stdout)["rows"]
    names = []
    for row in rows:
        (trace,) = row["traces"]
        report = json.loads(call("report", f"sweep/traces/{trace}", "--json", cwd=tmp_path).stdout)
        for name in ("ttft_ms", "tpot_ms", "e2e_ms"):
            assert report[name]["p90"] == pytest.approx(row["figures"][f"{name}.p90"], rel=1e-6)
        assert report["requests_finished"] == row["requests"]
        names.append(str((tmp_path / "sweep" / "traces" / trace).absolute()))
    assert len(set(names)) == 2
    page = (tmp_path / "p.html").read_text()
    assert all(f'data-trace="{name}"' in page for name in names)
    told = json.loads(call("compare", *names, "--json", cwd=tmp_path).stdout)
    assert any("max_num_seqs" in json.dumps(each) for each in told["settings"]), "what differs is the setting swept"


def test_each_engine_of_a_split_leaves_a_trace(tmp_path: Path) -> None:
    words = ("--set", "split=none,2+1", "--traces", "--json")
    whole, apart = json.loads(call("sweep", "chat", *FLAGS, *words, cwd=tmp_path).stdout)["rows"]
    assert (whole["gpus"], apart["gpus"]) == (1, 3)
    ends = [name.rpartition("/")[0].partition("/")[2] for name in apart["traces"]]
    assert (len(whole["traces"]), ends) == (1, ["decode", "prefill/rank-0", "prefill/rank-1"])
    decode = json.loads(call("report", f"sweep/traces/{apart['traces'][0]}", "--json", cwd=tmp_path).stdout)
    assert decode["tpot_ms"]["p90"] == pytest.approx(apart["figures"]["tpot_ms.p90"], rel=1e-6)


def test_a_trace_is_swept_by_what_can_be_changed_in_it(tmp_path: Path) -> None:
    run = ("run", "chat", *FLAGS, *TIMES, "--max-num-seqs", "2", "--advice", "none", "--trace", "trace")
    assert call(*run, cwd=tmp_path).code == 0
    told = json.loads(call("sweep", "trace", "--set", "max_num_seqs=2,8", "--json", cwd=tmp_path).stdout)
    slow, fast = (row["figures"]["ttft_ms.mean"] for row in told["rows"])
    assert slow > fast
    refused = call("sweep", "trace", "--set", "tensor_parallel_size=1,2", "--output", "x", cwd=tmp_path)
    assert refused.code == 2
    assert "a trace cannot show what this would have done" in refused.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "say what to vary, for example max_num_seqs=64,128,256, or give --variants"),
        (("--set", "max_num_seq=2"), "there is no such setting"),
        (("--set", "max_num_seqs=two"), "--max-num-seqs = 'two': give a whole number"),
        (("--set", "max_num_seqs=2", "--variants", "v.json"), "--variants"),
        (("--set", "max_num_seqs=2", "--processes", "0"), "--processes"),
        (("--set", "max_num_seqs=2", "--price", "h100"), "--price = 'h100': give GPU=PRICE"),
        (("--set", "max_num_seqs=2", "--slo", "ttft"), "--slo = 'ttft'"),
    ],
)
def test_what_cannot_be_swept_is_said_in_a_line(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    refused = call("sweep", "chat", *FLAGS, *words, cwd=tmp_path)
    assert refused.code == 2
    assert said in refused.stderr
    assert "Traceback" not in refused.stderr
