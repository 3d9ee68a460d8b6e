"""``tokenyard run``, ``report`` and ``demo``: what they print, what they leave behind, and that they agree."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.integration.command import call, environment

from tokenyard.record.writer import LineFile, Lines

BUCKETS = {
    "tok-budget",
    "kv-exhausted",
    "max-seqs",
    "alloc-frag",
    "alloc-exhausted",
    "kv-tight",
    "admitted-all",
    "under-capacity",
    "idle",
    "unknown",
}
SMALL = ["--gpu", "l4", "--model", "llama-3.2-1b", "--num-gpu-blocks-override", "600", "--max-model-len", "8192"]


def prompts(directory: Path, arrivals: list[float]) -> Path:
    """The case of a user who asked: prompts of 1,024 tokens that want 64 each."""
    path = directory / "prompts.jsonl"
    rows = [
        {"request_id": f"p{i}", "prompt_len": 1024, "max_tokens": 64, "arrival_time": arrival}
        for i, arrival in enumerate(arrivals)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def steps_of(trace: Path, event: str) -> list[dict[str, Any]]:
    (file,) = trace.glob("*.steps.jsonl")
    records = [json.loads(line) for line in file.read_text().splitlines()]
    return [record for record in records if record["event"] == event]


# ---- run


def test_json_is_one_object_with_what_was_promised(tmp_path: Path) -> None:
    outcome = call("run", "chat", "--limit", "5", *SMALL, "--json", cwd=tmp_path)
    assert outcome.code == 0, outcome.stderr
    report = json.loads(outcome.stdout)
    assert report["requests"] == report["requests_finished"] > 5
    assert set(report["buckets"]) == BUCKETS
    assert sum(report["buckets"].values()) == report["steps"]
    for times in ("ttft_ms", "tpot_ms", "e2e_ms", "queue_ms"):
        assert {"mean", "p50", "p90", "p99"} <= set(report[times])
    assert {"local", "external"} <= set(report["prefix_hit_rate"])
    assert {"mean", "p50", "p95"} <= set(report["token_budget_use"])
    assert {"requests_per_s", "output_tokens_per_s"} <= set(report["throughput"])
    assert {"reasons", "recorded_reasons", "preemptions", "recomputed_tokens"} <= set(report)
    assert outcome.stderr == ""


def test_accepted_drafts_are_in_the_report(tmp_path: Path) -> None:
    drafts = ("--num-speculative-tokens", "3", "--acceptance-rates", "1,0.5,0")
    arguments = ("run", "chat", "--limit", "2", *SMALL)
    outcome = call(*arguments, *drafts, "--json", cwd=tmp_path)
    assert outcome.stderr == ""
    said = json.loads(outcome.stdout)["speculation"]
    first, second, third = said["num_accepted_tokens_per_pos"]
    assert said["num_draft_tokens"] > said["num_drafts"] >= first > second > third == 0
    assert said["num_accepted_tokens"] == first + second
    assert said["acceptance_rate"] == (first + second) / said["num_draft_tokens"]
    assert said["acceptance_rate_per_pos"] == [count / said["num_drafts"] for count in (first, second, third)]
    assert json.loads(call(*arguments, "--json", cwd=tmp_path).stdout)["speculation"] is None
    table = " ".join(call(*arguments, *drafts, cwd=tmp_path).stdout.split())
    assert f"speculation {first + second:,} of {said['num_draft_tokens']:,} drafts accepted" in table


def test_two_steps_in_flight_cost_the_first_token_and_save_on_all_others(tmp_path: Path) -> None:
    """At light load: an arrival waits for the step that was scheduled ahead; no step waits for the host."""
    rows = [{"request_id": "long", "prompt_len": 200, "max_tokens": 400, "arrival_time": 0}]
    rows += [
        {"request_id": f"r{i}", "prompt_len": 100, "max_tokens": 20, "arrival_time": 0.1 + 0.21 * i} for i in range(9)
    ]
    (tmp_path / "w.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    ahead, waiting = (
        json.loads(call("run", "w.jsonl", *SMALL, *flags, "--trace", name, "--json", cwd=tmp_path).stdout)
        for name, flags in (("ahead", ()), ("waiting", ("--no-async-scheduling",)))
    )
    assert ahead["tpot_ms"]["mean"] < waiting["tpot_ms"]["mean"]
    assert ahead["ttft_ms"]["mean"] > waiting["ttft_ms"]["mean"]
    for name, is_async in (("ahead", True), ("waiting", False)):
        (start,) = steps_of(tmp_path / name, "trace_start")
        assert start["config"]["scheduler"]["async_scheduling"] is is_async


def test_same_seed_same_bytes(tmp_path: Path) -> None:
    arguments = ["run", "agentic", "--limit", "2", *SMALL, "--skip-refused", "--record-requests", "--advice", "none"]
    for name in ("one", "two"):
        assert call(*arguments, "--trace", name, cwd=tmp_path).code == 0
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert files == ["sched_trace.fcfs.requests.jsonl", "sched_trace.fcfs.steps.jsonl"]
    for name in files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


@pytest.mark.parametrize(
    "more", [(), ("--num-speculative-tokens", "2", "--acceptance-rates", "0.6"), ("--record-requests",)]
)
def test_report_on_the_trace_says_what_the_run_said(tmp_path: Path, more: tuple[str, ...]) -> None:
    pressed = ("--limit", "5", "--rate-scale", "40", *SMALL, "--max-num-seqs", "3")
    run = call("run", "chat", *pressed, *more, "--trace", "t", "--json", cwd=tmp_path)
    again = call("report", "t", "--json", cwd=tmp_path)
    ours, theirs = json.loads(run.stdout), json.loads(again.stdout)
    assert ours["recorded_reasons"], "the workload is meant to be held back"
    assert (ours["speculation"] is not None) is ("--num-speculative-tokens" in more)
    assert theirs["header"]["request_records"] or "--record-requests" not in more
    for each in (ours, theirs):
        for of_the_file in ("source", "request_records"):
            each["header"].pop(of_the_file)
    tried = {each["rule"] for each in ours.pop("advice")}
    assert tried <= {each["rule"] for each in theirs.pop("advice")}, "a run tries out what its trace would advise"
    ours.pop("tried")
    ours.pop("tried_on")
    assert (theirs.pop("tried"), theirs.pop("tried_on")) == ([], None)
    verdicts = [each.pop("answer") for each in (ours, theirs)]
    assert verdicts[1].pop("lever") is None, "nothing was tried"
    verdicts[0].pop("lever")
    assert not any(each["is_tried"] for each in verdicts[1].pop("remedies"))
    assert any(each["is_tried"] for each in verdicts[0].pop("remedies")) == bool(tried)
    sentence = verdicts[1].pop("sentence")
    assert verdicts[0].pop("sentence").startswith(sentence)
    assert verdicts[0] == verdicts[1]
    assert ours == theirs


def test_printed_report_says_where_the_trace_is(tmp_path: Path) -> None:
    outcome = call("run", "chat", "--limit", "2", *SMALL, "--trace", "traces/here", "--full", cwd=tmp_path)
    assert outcome.code == 0
    assert outcome.stdout.startswith("Requests hardly waited for the scheduler.\n\nLatency\n")
    assert "\nFCFS  l4  llama-3.2-1b  KV:600blk" in outcome.stdout
    assert "The trace is in traces/here." in outcome.stdout
    assert call("report", "traces/here", "--full", cwd=tmp_path).stdout in outcome.stdout
    screen = call("report", "traces/here", cwd=tmp_path).stdout
    assert screen.startswith("Requests hardly waited for the scheduler.\n\nLatency\n")
    assert "Deployment" not in screen
    assert "--full adds " in screen
    assert len(screen.splitlines()) <= 30


def test_without_trace_nothing_is_written(tmp_path: Path) -> None:
    assert call("run", "chat", "--limit", "2", *SMALL, cwd=tmp_path).code == 0
    assert list(tmp_path.iterdir()) == []


def test_trace_settings_from_the_environment(tmp_path: Path) -> None:
    env = {"VLLM_SCHED_TRACE_PATH": "t", "SCHED_TRACE_POLICY": "mine", "SCHED_TRACE_EVERY_N": "10"}
    assert call("run", "chat", "--limit", "2", *SMALL, cwd=tmp_path, env=env).code == 0
    (file,) = (tmp_path / "t").iterdir()
    assert file.name == "sched_trace.mine.steps.jsonl"
    assert {record["step"] % 10 for record in steps_of(tmp_path / "t", "step_decision")} == {0}


def test_trace_is_bounded_unless_asked_otherwise(tmp_path: Path) -> None:
    path = prompts(tmp_path, [0.0] * 100)
    arguments = ["run", str(path), *SMALL, "--advice", "none", "--trace"]
    assert call(*arguments, "bounded", cwd=tmp_path).code == 0
    assert call(*arguments, "whole", "--max-ids-per-step", "0", cwd=tmp_path).code == 0
    first = {name: steps_of(tmp_path / name, "step_snapshot")[0] for name in ("bounded", "whole")}
    assert len(first["whole"]["waiting_req_ids"]) == first["whole"]["num_waiting"] == 100
    assert len(first["bounded"]["waiting_req_ids"]) == 64
    assert first["bounded"]["num_waiting"] == 100
    assert first["bounded"]["waiting_req_ids_omitted"] == 36


def test_trace_of_an_earlier_run_is_replaced_whole(tmp_path: Path) -> None:
    arguments = ["run", "chat", "--limit", "2", *SMALL, "--trace", "t"]
    assert call(*arguments, "--record-requests", cwd=tmp_path).code == 0
    assert call(*arguments, cwd=tmp_path).code == 0
    assert [path.name for path in (tmp_path / "t").iterdir()] == ["sched_trace.fcfs.steps.jsonl"]


def test_priorities_decide_under_the_priority_policy(tmp_path: Path) -> None:
    rows = [{"request_id": f"r{i}", "prompt_len": 100, "max_tokens": 4, "priority": -i} for i in range(4)]
    (tmp_path / "w.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    arguments = ["run", "w.jsonl", *SMALL, "--max-num-seqs", "1", "--scheduling-policy", "priority", "--trace", "t"]
    assert call(*arguments, cwd=tmp_path).code == 0
    admitted = [rid for record in steps_of(tmp_path / "t", "step_decision") for rid in record["scheduled_new_req_ids"]]
    assert admitted == ["r3", "r2", "r1", "r0"]


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("mooncake", ['{"timestamp": 0, "input_length": 600, "output_length": 3, "hash_ids": [1, 2]}'] * 2),
        ("azure", ["TIMESTAMP,ContextTokens,GeneratedTokens", "2023-11-16 18:17:03.9799600,40,3"]),
        ("servegen", ["t_s,client,input_tokens,output_tokens", "0.5,a,40,3"]),
    ],
)
def test_recorded_formats_are_recognised(name: str, rows: list[str], tmp_path: Path) -> None:
    with gzip.open(tmp_path / "w.gz", "wt") as file:
        file.write("".join(row + "\n" for row in rows))
    outcome = call("run", "w.gz", *SMALL, "--json", cwd=tmp_path)
    assert outcome.code == 0, outcome.stderr
    report = json.loads(outcome.stdout)
    assert report["requests_finished"] == (2 if name == "mooncake" else 1)
    if name == "mooncake":
        assert report["prefix_hit_rate"]["local"] > 0.4


# ---- the user's question: sixteen prompts, and only a few in the first step


def test_all_prompts_are_in_the_first_step_when_they_are_there(tmp_path: Path) -> None:
    path = prompts(tmp_path, [0.0] * 16)
    outcome = call("run", path, "--max-num-batched-tokens", "16384", "--trace", "t", cwd=tmp_path)
    first = steps_of(tmp_path / "t", "step_decision")[0]
    assert list(first["num_scheduled_tokens"].values()) == [1024] * 16
    assert "had not arrived" not in outcome.stdout


@pytest.mark.parametrize("early", [2, 5, 7])
def test_report_says_that_the_others_had_not_arrived(early: int, tmp_path: Path) -> None:
    path = prompts(tmp_path, [0.0] * early + [0.012 * i for i in range(1, 17 - early)])
    # With two steps in flight the one before the last passes over every request whose last token is on its way.
    flags = ("--max-num-batched-tokens", "16384", "--no-async-scheduling")
    outcome = call("run", path, *flags, "--trace", "t", cwd=tmp_path)
    first = steps_of(tmp_path / "t", "step_decision")[0]
    assert list(first["num_scheduled_tokens"].values()) == [1024] * early
    for printed in (outcome.stdout, call("report", "t", cwd=tmp_path).stdout):
        text = " ".join(printed.split())
        assert f"scheduled every request there was ({early} of 16)" in text
        assert f"the other {16 - early} had not arrived" in text
    assert "no request was held back in any step" in outcome.stdout


# ---- demo, report


def test_demo_runs_reports_and_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Advice is tried on a short stretch here: how much of a run it is tried on is asked elsewhere."""
    monkeypatch.setattr("tokenyard.cli.run.STEPS_TRIED", 4_000)
    outcome = call("demo", cwd=tmp_path)
    assert outcome.code == 0, outcome.stderr
    assert len(outcome.stdout.splitlines()) <= 25
    ways = [line.split(" tokenyard ")[1] for line in outcome.stdout.partition("What next")[2].splitlines() if line]
    assert ways[:3] == ["view traces/demo", "why traces/demo", "report traces/demo --full"]
    start = steps_of(tmp_path / "traces" / "demo", "trace_start")[0]
    assert start["config"]["scheduler"]["max_num_batched_tokens"] == 2048
    assert start["config"]["scheduler"]["max_num_seqs"] == 100
    assert start["config"]["cache"]["num_gpu_blocks"] == 10318


def test_picture_of_a_report(tmp_path: Path) -> None:
    assert call("run", "chat", "--limit", "2", *SMALL, "--trace", "t", cwd=tmp_path).code == 0
    assert call("report", "t", "--buckets", "--svg", "images/report.svg", cwd=tmp_path).code == 0
    picture = (tmp_path / "images" / "report.svg").read_text()
    assert picture.startswith("<svg")
    assert "under-capacity" in picture
    assert "url(http" not in picture.replace('"', "")
    (tmp_path / "file").touch()
    call("report", "t", "--svg", "file/report.svg", cwd=tmp_path).refused("svg", "cannot be written")


def test_workloads_lists_every_name(tmp_path: Path) -> None:
    names = json.loads(call("workloads", "--json", cwd=tmp_path).stdout)
    assert {"agentic", "chat", "completion", "rag"} <= set(names["workloads"])
    assert {"azure", "mooncake", "weka", "plain"} <= set(names["formats"])
    assert {"h100", "a100-40gb"} <= set(names["gpus"])
    assert {"fcfs", "priority"} <= set(names["policies"])
    assert all(text for section in names.values() for text in section.values())
    printed = call("workloads", cwd=tmp_path).stdout
    assert all(name in printed for section in names.values() for name in section)


@pytest.mark.slow
def test_a_trace_that_is_not_whole_is_said_in_the_last_line(tmp_path: Path) -> None:
    """A disk with 20 kB of room: one warning, a true last line, whole lines, and an exit code that scripts see."""
    resource = pytest.importorskip("resource")
    done = subprocess.run(
        [sys.executable, "-m", "tokenyard.cli.main", "run", "chat", "--limit", "4", "--trace", "t"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)),
    )
    assert done.returncode == 2, done.stderr
    assert done.stdout.splitlines()[-1] == "The trace is not whole in t: t: File too large"
    assert done.stderr == "trace: writing stopped, the scheduler goes on: t: File too large\n"
    text = (tmp_path / "t" / "sched_trace.fcfs.steps.jsonl").read_bytes()
    assert 0 < len(text) <= 20_000
    assert all(json.loads(line) for line in text.decode().splitlines())
    assert text.endswith(b"\n")


def test_a_trace_that_is_removed_meanwhile_is_said_in_the_last_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_down = LineFile.put_down

    def removed(file: LineFile, lines: Lines) -> None:
        put_down(file, lines)
        shutil.rmtree(tmp_path / "t", ignore_errors=True)

    monkeypatch.setattr(LineFile, "put_down", removed)
    outcome = call("run", "chat", "--limit", "2", "--trace", "t", cwd=tmp_path)
    assert outcome.code == 2
    last = outcome.stdout.splitlines()[-1]
    assert last.startswith("The trace is not whole in t: ")
    assert last.endswith("was removed or replaced while it was written")
    assert (
        json.loads(call("run", "chat", "--limit", "2", "--trace", "t", "--json", cwd=tmp_path).stdout)["header"][
            "source"
        ]
        is None
    )


def test_advice_begins_with_what_costs_nothing_and_says_what_a_run_with_it_does(tmp_path: Path) -> None:
    """KV is short: FP8 KV is tried before more GPUs, and the figures are those of a run with that flag."""
    asked = "random --num-prompts 30 --input-len 3000 --output-len 60 --request-rate 40 --gpu l4 --max-model-len 8192"
    words = ("run", *asked.split(), "--json")
    advice = json.loads(call(*words, "--advice", "all", cwd=tmp_path).stdout)["advice"]
    trials = [each["trial"] for each in advice]
    assert trials[0]["cost"] == "setting"
    costs = ["setting", "cpu-memory", "gpu-memory", "gpus", "other-scheduler"]
    ranks = [costs.index(trial["cost"]) for trial in trials]
    assert ranks == sorted(ranks)
    assert ranks[-1] == costs.index("gpus"), "more GPUs help more, and come after"
    smaller = next(trial for trial in trials if trial["flag"] == "--kv-cache-dtype fp8")
    report = json.loads(call(*words, "--kv-cache-dtype", "fp8", "--advice", "none", cwd=tmp_path).stdout)
    for effect in smaller["effects"]:
        section, name = effect["figure"].split(".")
        assert effect["after"] == report[section][name]


def test_several_logs_are_merged_by_time(tmp_path: Path) -> None:
    """As a shell writes `run logs/*.csv`."""
    for name, seconds in (("a.csv", (0, 4)), ("b.csv", (2, 6))):
        rows = [f"2026-11-20T14:00:{second:02d}Z,{20 + second},4\n" for second in seconds]
        (tmp_path / name).write_text("timestamp,prompt_tokens,completion_tokens\n" + "".join(rows))
    logs = [str(tmp_path / "a.csv"), str(tmp_path / "b.csv")]
    done = call("run", *logs, *SMALL, "--advice", "none", "--json", cwd=tmp_path)
    assert done.code == 0, done.stderr
    assert json.loads(done.stdout)["requests"] == 4
    done = call("run", "chat", *logs, cwd=tmp_path)
    done.refused("chat: is neither a file nor a pattern of files: only logs are merged, by time")


def test_a_run_ends_at_a_moment_with_whoever_is_unfinished(tmp_path: Path) -> None:
    words = (
        *("run", "random", "--num-prompts", "60", "--request-rate", "8", "--input-len", "40", "--output-len", "20"),
        *("--gpu", "l4", "--max-model-len", "8192", "--latency", "constant:0.02", "--max-num-seqs", "2"),
    )
    told = json.loads(call(*words, "--until", "5s", "--json", cwd=tmp_path).stdout)
    assert told["outcomes"]["unfinished"] > 0
    assert told["duration_s"] <= 5
    assert "p50" in told["e2e_ms"]["censored"]
    call(*words, "--until", "5s", "--advice", "all", cwd=tmp_path).refused("--until = '5s': proposals are compared by")
    call(*words, "--until", "5", cwd=tmp_path).refused("--until = '5': give a time with its unit")
