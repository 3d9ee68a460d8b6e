"""``tokenyard plan`` as a user calls it: a workload, a trace, GPUs with prices, and what cannot be planned."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.integration.command import call, environment

from tokenyard.files import FolderLock
from tokenyard.questions.planning import search
from tokenyard.questions.sweeping.measuring import replayed

FLAGS = ("--limit", "3", "--rate-scale", "60", "--max-model-len", "8192")
BLOCKS = ("--num-gpu-blocks-override", "900", "--latency", "constant:0.02", "--no-async-scheduling")


def test_the_recommendation_is_what_a_run_with_its_flags_confirms(tmp_path: Path) -> None:
    bounds = ("--slo", "ttft_p90=200ms", "--slo", "tpot_p90=25ms")
    space = ("--space", "max_num_seqs=1,2,16", "policy=fcfs,continuum-ttl")
    shown = call("plan", "chat", *FLAGS, *BLOCKS, *space, *bounds, "--json", "--svg", "p.svg", cwd=tmp_path)
    assert shown.code == 0, shown.stderr
    plan = json.loads(shown.stdout)
    assert (plan["size"], plan["is_whole"], plan["holds"], plan["goal"]) == (6, True, True, "goodput")
    chosen = plan["recommended"]
    assert chosen["settings"]["max_num_seqs"] == 16
    assert plan["serve"].startswith("vllm serve meta-llama/Llama-3.1-8B-Instruct ")
    assert "--max-num-seqs 16" in plan["serve"]
    assert plan["flags"] == [word for name, value in chosen["settings"].items() for word in _words_of(name, value)]
    settings = ("--max-num-seqs", "16", "--scheduling-policy", chosen["settings"]["scheduling_policy"])
    run = call("run", "chat", *FLAGS, *BLOCKS, *settings, *bounds, "--advice", "none", "--json", cwd=tmp_path)
    report = json.loads(run.stdout)
    assert report["goodput"]["met"] is True
    assert chosen["figures"]["goodput.requests_per_s"] == report["goodput"]["requests_per_s"]
    assert plan["largest_load"] is None
    assert any("no rate that could go on, and no largest load" in each for each in plan["unknown"])
    assert all(row["met"] is False for row in plan["rows"] if row["settings"]["max_num_seqs"] == 1)
    assert (tmp_path / "p.svg").read_text().startswith("<svg")


def _words_of(name: str, value: object) -> list[str]:
    return [f"--{name.replace('_', '-')}", str(value)]


def test_flags_of_a_plan_are_those_that_it_changes_though_they_were_given(tmp_path: Path) -> None:
    words = ("--max-num-seqs", "16", "--max-num-batched-tokens", "2048", "--space", "max_num_seqs=8,4")
    plan = json.loads(call("plan", "chat", *FLAGS, *BLOCKS, *words, "--no-largest-load", "--json", cwd=tmp_path).stdout)
    assert plan["flags"] == _words_of("max_num_seqs", plan["recommended"]["settings"]["max_num_seqs"])


def test_the_least_cost_among_gpus(tmp_path: Path) -> None:
    words = ("--gpu", "h200,h100", "--price", "h100=2.5", "h200=3.4", "--space", "tensor_parallel_size=2,1")
    bounds = ("--slo", "ttft_p90=5s", "--minimize", "cost", "--no-largest-load")
    plan = json.loads(call("plan", "chat", *FLAGS, *words, *bounds, "--json", cwd=tmp_path).stdout)
    chosen = plan["recommended"]
    assert chosen["settings"] == {"gpu": "h100", "tensor_parallel_size": 1}
    assert (chosen["cost_per_hour"], plan["value"]) == (2.5, 2.5)
    assert chosen["cost_per_million_tokens"] > 0
    dearer = [row for row in plan["rows"] if row["cost_per_hour"] == 5.0]
    assert len(dearer) == 1
    text = call("plan", "chat", *FLAGS, *words, *bounds, cwd=tmp_path).stdout
    assert "on 1 x h100: vllm serve meta-llama/Llama-3.1-8B-Instruct" in text
    assert "2.50 an hour" in text


def test_replicas_are_deployments_behind_a_balancer_in_plan_sweep_and_run(tmp_path: Path) -> None:
    """The same figures wherever `replicas` is written, and a line that starts what was planned."""
    words = ("chat", *FLAGS, *BLOCKS, "--max-num-seqs", "1", "--slo", "ttft_p90=9s")
    space = ("--set", "replicas=2,3", "--price", "h100=2", "--no-largest-load")
    plan = json.loads(call("plan", *words, *space, "--json", cwd=tmp_path).stdout)
    chosen = plan["recommended"]
    assert chosen["settings"] == {"replicas": int(plan["replicas"])}
    assert "--data-parallel-size" not in plan["serve"]
    assert "replicas" not in plan["serve"]
    assert (chosen["gpus"], chosen["cost_per_hour"]) == (int(plan["replicas"]), 2.0 * int(plan["replicas"]))
    told = call("run", *words, "--replicas", plan["replicas"], "--advice", "none", "--json", cwd=tmp_path)
    report = json.loads(told.stdout)
    assert report["replicas"]["most"] == int(plan["replicas"])
    for figure in ("ttft_ms", "e2e_ms"):
        assert chosen["figures"][f"{figure}.p90"] == report[figure]["p90"]
    text = " ".join(call("plan", *words, *space, cwd=tmp_path).stdout.split())
    assert f"{plan['replicas']} replicas, on {plan['replicas']} x h100: vllm serve" in text
    assert f"{plan['replicas']} of these, each a vllm serve of its own, behind a balancer" in text
    assert "as --router least-loaded does" in text
    fixed = ("--no-largest-load", "--json")
    given = json.loads(call("plan", *words, "--replicas", "2", "--set", "block_size=16", *fixed, cwd=tmp_path).stdout)
    assert given["replicas"] == "2", "given as a flag it holds for all variants"
    engines = json.loads(call("plan", *words, "--set", "data_parallel_size=2", *fixed, cwd=tmp_path).stdout)
    assert "--data-parallel-size 2" in engines["serve"]
    assert engines["replicas"] is None


@pytest.mark.parametrize(("size", "flags", "machines"), [(16, (), 2), (8, (), 0), (16, ("--nnodes", "2"), 0)])
def test_an_engine_over_machines_is_said_to_need_nodes(
    size: int, flags: tuple[str, ...], machines: int, tmp_path: Path
) -> None:
    words = ("plan", "chat", *FLAGS, "--model", "llama-3.1-70b", "--gpu", "h100", *BLOCKS, *flags, "--no-largest-load")
    told = call(*words, "--set", f"tensor_parallel_size={size}", "--json", cwd=tmp_path)
    assert told.code == 0, told.stderr
    notes = [note for note in json.loads(told.stdout)["notes"] if "--node-rank" in note]
    expected = (
        f"an engine has 16 GPUs, and a machine 8: start it on each of {machines} machines with --nnodes {machines}"
    )
    assert [note.startswith(expected) for note in notes] == [True] * bool(machines)


def test_a_space_is_written_as_the_grid_of_a_sweep(tmp_path: Path) -> None:
    words = ("plan", "chat", *FLAGS, *BLOCKS, "--no-largest-load", "--json")
    plans = [
        json.loads(call(*words, *space, cwd=tmp_path).stdout)
        for space in (
            ("--set", "max_num_seqs=2,4,policy=fcfs"),
            ("--space", "max_num_seqs=2,4", "policy=fcfs"),
            ("--set", "max_num_seqs=2,4", "--space", "policy=fcfs"),
        )
    ]
    assert plans[0]["space"] == {"max_num_seqs": [2, 4], "scheduling_policy": ["fcfs"]}
    assert plans[0] == plans[1] == plans[2]


def test_values_with_commas_are_values(tmp_path: Path) -> None:
    drafts = '{"method":"ngram","num_speculative_tokens":2}'
    words = ("--set", f"speculative_config=none,{drafts}", "--no-largest-load", "--json")
    plan = json.loads(call("plan", "chat", *FLAGS, *words, cwd=tmp_path).stdout)
    assert plan["space"] == {"speculative_config": [None, drafts]}
    assert [row["problem"] for row in plan["rows"]] == [None, None]


def test_splits_are_chosen_from_beside_engines_that_do_both(tmp_path: Path) -> None:
    words = ("--split", "none,1+1", "--split", "1..2+1", "--space", "max_num_seqs=16", "--price", "h100=2")
    bounds = ("--slo", "ttft_p90=5s", "--no-largest-load")
    least = ("--minimize", "cost")
    plan = json.loads(call("plan", "chat", *FLAGS, *words, *bounds, *least, "--json", cwd=tmp_path).stdout)
    assert plan["space"]["split"] == [None, "1+1", "2+1"]
    whole = plan["recommended"]
    assert (whole["settings"]["split"], whole["gpus"], whole["cost_per_hour"]) == (None, 1, 2.0), "the cheapest"
    assert plan["serve"] is not None
    assert plan["serve_split"] is None

    only = json.loads(
        call("plan", "chat", *FLAGS, "--split", "2+1", *words[4:], *bounds, "--json", cwd=tmp_path).stdout
    )
    chosen, apart = only["recommended"], only["serve_split"]
    assert (chosen["settings"]["split"], chosen["gpus"], chosen["cost_per_hour"]) == ("2+1", 3, 6.0)
    assert only["serve"] is None
    assert (apart["prefill_engines"], apart["decode_engines"]) == (2, 1)
    for side, role, engines in (("prefill", "kv_producer", "--data-parallel-size 2"), ("decode", "kv_consumer", "")):
        line = apart[side]
        assert line.startswith("vllm serve meta-llama/Llama-3.1-8B-Instruct ")
        assert f'--kv-transfer-config \'{{"kv_connector":"NixlConnector","kv_role":"{role}"}}\'' in line
        assert engines in line
        assert "--max-num-seqs 16" in line
    assert "--data-parallel-size" not in apart["decode"]
    assert "split" not in apart["prefill"] + apart["decode"]
    shown = call("plan", "chat", *FLAGS, "--split", "2+1", *words[4:], *bounds, cwd=tmp_path).stdout
    text = " ".join(shown.split())
    assert "on 3 x h100 prefill (2 engines): vllm serve" in text
    assert "decode (1 engine): vllm serve" in text
    assert "busy: prefill " in text
    assert "a proxy between them" in text


def test_what_a_split_is_not_replayed_with_is_said_of_the_variants_that_have_it(tmp_path: Path) -> None:
    words = ("--split", "1+1", "--space", "kv_offloading_size=none,4", "--slo", "ttft_p90=5s", "--no-largest-load")
    shown = call("plan", "chat", *FLAGS, *words, cwd=tmp_path)
    assert shown.code == 0
    text = " ".join(shown.stdout.split())
    assert "1 could not be replayed" in text
    assert (
        "split=1+1 kv_offloading_size=4.0: kv_offloading_size = 4.0: is not modelled for prefill-decode disaggregation"
        in text
    )


def test_a_trace_is_planned_and_says_how_well_it_is_repeated(tmp_path: Path) -> None:
    run = ("run", "chat", *FLAGS, *BLOCKS, "--max-num-seqs", "2", "--advice", "none", "--trace", "trace")
    assert call(*run, cwd=tmp_path).code == 0
    words = ("--space", "max_num_seqs=2,16", "--slo", "ttft_p90=200ms", "--no-largest-load")
    refused = call("plan", "trace", *words, "--split", "1+1", cwd=tmp_path)
    assert refused.code == 2
    assert "--split = 'split': a trace cannot show what this would have done" in refused.stderr
    plan = json.loads(call("plan", "trace", *words, "--json", cwd=tmp_path).stdout)
    assert plan["recommended"]["settings"] == {"max_num_seqs": 16}
    assert plan["flags"] == ["--max-num-seqs", "16"]
    assert plan["serve"] is None
    assert any(said.startswith("the run as it was, replayed, is off by ttft_ms.p90") for said in plan["uncertainty"])


def test_where_no_variant_holds_every_bound_the_nearest_is_shown_and_the_code_is_1(tmp_path: Path) -> None:
    words = ("--space", "max_num_seqs=2,16", "--slo", "tpot_p90=1ms")
    shown = call("plan", "chat", *FLAGS, *BLOCKS, *words, cwd=tmp_path)
    assert shown.code == 1
    assert "Nearest to the bounds: none holds them all" in shown.stdout
    assert "What it reaches" in shown.stdout
    assert "one request at a time 20 ms, all of it decode: no load holds this bound here" in " ".join(
        shown.stdout.split()
    )
    assert "What limits next" not in shown.stdout


def test_the_nearest_to_the_bounds_is_the_one_that_a_sweep_to_the_end_shows(tmp_path: Path) -> None:
    """The cheaper variants end early at about as much beyond what a bound allows as the dearer ones do."""
    pytest.importorskip("pyarrow", reason="a sweep writes Parquet")
    space = ("--set", "max_num_seqs=1,2,3", "max_num_batched_tokens=256,512")
    words = ("chat", *FLAGS, *BLOCKS, *space, "--slo", "ttft_p90=70ms", "e2e_p90=2s")
    told = json.loads(call("plan", *words, "--json", "--no-largest-load", cwd=tmp_path).stdout)
    swept = json.loads(call("sweep", *words, "--json", cwd=tmp_path).stdout)
    assert not told["holds"]
    best = min(swept["rows"], key=lambda row: row["tightness"])
    chosen = told["recommended"]
    assert (chosen["tightness"], chosen["figures"]) == (best["tightness"], best["figures"])
    early = [row for row in told["rows"] if row["stopped"]]
    assert early, "some are not replayed to their end"
    assert all((row["tightness"], row["met"]) == (None, False) for row in early)
    assert all(row["tightness_above"] >= 1 for row in early)


def test_an_interrupted_plan_shows_the_best_so_far_and_goes_on_when_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("plan", "chat", *FLAGS, *BLOCKS, "--set", "max_num_seqs=1,2,16", "--slo", "tpot_p90=25ms", "--json")
    whole = call(*words, cwd=tmp_path)
    replays = [0]

    def interrupted(*arguments: Any, **named: Any) -> Any:
        replays[0] += 1
        if replays[0] == 3:
            raise KeyboardInterrupt
        return replayed(*arguments, **named)

    monkeypatch.setattr("tokenyard.questions.sweeping.measuring.replayed", interrupted)
    handler = signal.getsignal(signal.SIGINT)
    stopped = call(*words, cwd=tmp_path)
    signal.signal(signal.SIGINT, handler)
    assert (stopped.code, stopped.stdout) == (130, "")
    assert "2 of at most 3 variants were tried" in stopped.stderr
    assert re.search(r"the best so far: max_num_seqs=2, with 0\.\d+ requests/s; another may be better", stopped.stderr)
    assert "the same command goes on with the others" in stopped.stderr
    other = call(*words[:-1], "--slo", "ttft_p90=9s", "--json", cwd=tmp_path)
    assert "it goes on from there" not in other.stderr, "another plan is another"
    before = replays[0]
    again = call(*words, cwd=tmp_path)
    of_the_rest = replays[0] - before
    assert "2 variants were finished by an earlier call of this plan: it goes on from there" in again.stderr
    assert again.stdout == whole.stdout
    fresh = call(*words, cwd=tmp_path)
    assert "it goes on from there" not in fresh.stderr
    assert fresh.stdout == whole.stdout
    assert replays[0] - before == of_the_rest + (of_the_rest + 2), "two of the variants were not replayed again"


_TERMINATED = """
import os, signal, sys
from tokenyard.cli.main import command
from tokenyard.questions.sweeping import measuring

replayed, replays = measuring.replayed, [0]

def ended(*arguments, **named):
    replays[0] += 1
    if replays[0] == 3:
        os.kill(os.getpid(), signal.SIGTERM)
    return replayed(*arguments, **named)

measuring.replayed = ended
sys.argv = ["tokenyard", *sys.argv[1:]]
command()
"""
"""A plan that is told to end as its third replay begins."""


@pytest.mark.skipif(os.name != "posix", reason="signals of this system are others")
def test_a_terminated_plan_says_what_is_known_and_ends_by_the_signal(tmp_path: Path) -> None:
    words = ("plan", "chat", *FLAGS, *BLOCKS, "--set", "max_num_seqs=1,2,16", "--slo", "tpot_p90=25ms", "--json")
    whole = call(*words, cwd=tmp_path)
    ended = subprocess.run(
        [sys.executable, "-c", _TERMINATED, *words],
        cwd=tmp_path,
        env=environment({"XDG_CACHE_HOME": str(tmp_path / "cache")}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (-signal.SIGTERM, "")
    assert "a partial answer: 2 of at most 3 variants were tried" in ended.stderr
    assert re.search(r"the best so far: max_num_seqs=2, with 0\.\d+ requests/s; another may be better", ended.stderr)
    assert "the same command goes on with the others" in ended.stderr
    again = call(*words, cwd=tmp_path, env={"XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert "2 variants were finished by an earlier call of this plan: it goes on from there" in again.stderr
    assert again.stdout == whole.stdout


def test_a_choice_of_splits_alone_is_tried_whole(tmp_path: Path) -> None:
    words = ("plan", "chat", *FLAGS, *BLOCKS, "--split", "none,1+1", "--no-largest-load", "--json")
    told = json.loads(call(*words, cwd=tmp_path).stdout)
    assert (told["space"], told["is_whole"]) == ({"split": [None, "1+1"]}, True)


def test_a_plan_whose_progress_cannot_be_kept_goes_on_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    words = ("plan", "chat", *FLAGS, *BLOCKS, "--set", "max_num_seqs=16", "--no-largest-load")
    shown = call(*words, cwd=tmp_path, env={"XDG_CACHE_HOME": str(tmp_path / "file")})
    assert shown.code == 0
    assert "the progress of this plan is not kept: " in shown.stderr


def test_a_plan_with_a_folder_keeps_its_variants_and_one_process_at_a_time_has_it(tmp_path: Path) -> None:
    words = ("plan", "chat", *FLAGS, *BLOCKS, "--set", "max_num_seqs=2,16", "--slo", "tpot_p90=25ms")
    first = call(*words, "--output", "kept", "--json", cwd=tmp_path)
    assert (tmp_path / "kept" / "finished.jsonl").read_bytes().count(b"\n") == 2
    assert call(*words, "--output", "kept", "--json", cwd=tmp_path).stdout == first.stdout
    other = call(*words, "--replays", "1", "--output", "kept", cwd=tmp_path)
    other.refused("--output = 'kept': holds another sweep or plan")
    pytest.importorskip("fcntl", reason="locks of this system are not used")
    with FolderLock(tmp_path / "kept"):
        held = call(*words, "--output", "kept", cwd=tmp_path)
    held.refused(f"--output = 'kept': is in use by process {os.getpid()} on host")


def test_where_the_load_is_too_much_the_load_that_is_borne_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One seat that serves 25 requests a second, of 50: the load that it bears is below half of it."""
    monkeypatch.setattr(search, "FEWEST_FOR_LOAD", 300)
    random = ("random", "--num-prompts", "100", "--request-rate", "50", "--input-len", "40", "--output-len", "2")
    words = ("--space", "max_num_seqs=1", "--slo", "ttft_p90=100ms", "--max-model-len", "512", *BLOCKS, "--json")
    shown = call("plan", *random, *words, cwd=tmp_path)
    assert shown.code == 1
    plan = json.loads(shown.stdout)
    assert plan["floors"][0]["alone_ms"] < 100
    load = plan["largest_load"]
    assert 0.2 < load["load"] < 0.5
    assert (load["row"]["met"], load["row"]["state"]) == (True, "steady")
    assert load["row"]["requests"] >= 300
    assert load["offered_requests_per_s"] == load["row"]["figures"]["load.offered_requests_per_s"]
    assert load["offered_requests_per_s"] == pytest.approx(50 * load["load"], rel=0.15)
    assert load["beyond"]["met"] is False or load["beyond"]["state"] != "steady"


def test_a_workload_that_is_not_there_is_said_once(tmp_path: Path) -> None:
    refused = call("plan", "nosuch.csv", *FLAGS, cwd=tmp_path)
    assert refused.code == 2
    assert refused.stderr.startswith("tokenyard: nosuch.csv: is neither a file nor a built-in workload")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--space", "max_num_seq=2"), "--set = 'max_num_seq': there is no such setting"),
        (("--maximize", "load"), "--maximize = 'load': say with --slo which bounds have to hold"),
        (("--minimize", "cost", "--slo", "ttft_p90=1s", "--gpu", "b200"), "no list price of b200 is known"),
        (("--minimize", "gpus", "--maximize", "load"), "give one of the two"),
        (("--space", "max_num_seqs=0"), "none could be replayed"),
        (("--replays", "0"), "--replays"),
        (("--space", "limit=1,4"), "another workload is no choice"),
        (("--space", "rate_scale=1,30"), "another workload is no choice"),
        (("--gpu", "h100,"), "--gpu = 'h100,'"),
        (("--split", "2"), "--split = '2': give engines that prefill"),
        (("--split", "0+1"), "--split = '0+1'"),
        (("--split", "3..1+1"), "--split = '3..1+1': a range goes from the fewest to the most"),
        (("--split", "1..999+1..999"), "give a smaller range"),
        (("--split", "1+1", "--space", "split=2+1"), "--split names some as well"),
        (("--space", "split=2..1+1"), "--split = '2..1+1'"),
        (("--split", "1+1", "--autoscale", "1..2"), "--autoscale = '1..2': a split is not replayed as several"),
        (("--split", "1+1", "--kv-offloading-size", "4"), "--kv-offloading-size = 4.0: is not modelled"),
        (("--split", "1+1", "--num-speculative-tokens", "2"), "--num-speculative-tokens = 2: is not modelled"),
        (("--split", "1+1", "--client-timeout", "30s"), "--client-timeout = '30s': clients of a split"),
        (("--split", "2+1", "-dp", "2"), "--data-parallel-size = 2: a split of 2+1 says how many engines"),
        (("--split", "1+1", "-tp", "16", "-dcp", "2"), "--decode-context-parallel-size = 2"),
        (("--split", "1+1", "--kv-link-gb-per-s", "0", "--space", "max_num_seqs=2"), "--kv-link-gb-per-s = 0.0"),
    ],
)
def test_what_cannot_be_planned_is_said_in_a_line(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    refused = call("plan", "chat", *FLAGS, *words, cwd=tmp_path)
    assert refused.code == 2
    assert said in refused.stderr
    assert "Traceback" not in refused.stderr
