"""Whatever a user gets wrong: one clear message on standard error, exit code 2, nothing on standard output.

Every kind of mistake once in a process of its own, as a user meets it; the many variants of each in this process.
"""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.integration.command import call, tokenyard

GOOD = {"request_id": "a", "prompt_len": 100, "max_tokens": 5}


def workload(directory: Path, *lines: dict[str, Any] | str) -> Path:
    path = directory / "workload.jsonl"
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


# ---- one of each kind, as a user meets it


@pytest.mark.parametrize(
    ("lines", "flags", "fragments"),
    [
        ([GOOD], ["--max-num-sqs", "3"], ["--max-num-seqs"]),
        ([GOOD], ["--max-num-seqs", "-4"], ["--max-num-seqs = -4"]),
        ([GOOD], ["--num-gpu-blocks-override", "0"], ["--num-gpu-blocks-override = 0", "from 2", "null block"]),
        ([{**GOOD, "promt_len": 3}], [], ["workload.jsonl:1:", "promt_len"]),
        ([GOOD, GOOD], [], ["workload.jsonl:2:", "twice"]),
        ([GOOD, '{"request_id": "b", "prom'], [], ["workload.jsonl:2:", "not JSON"]),
        ([], [], ["workload.jsonl", "empty"]),
        ([GOOD], ["--max-model-len", "50"], ["request 'a'", "--max-model-len (50)"]),
        (
            [GOOD],
            ["--num-gpu-blocks-override", "5"],
            ["request 'a'", "7 blocks", "has 4", "--num-gpu-blocks-override (5) to 8", "--skip-refused"],
        ),
    ],
    ids=["mistyped", "negative", "no blocks", "field", "duplicate", "truncated", "empty", "too long", "never fits"],
)
def test_in_a_process_of_its_own(
    lines: list[dict[str, Any] | str], flags: list[str], fragments: list[str], tmp_path: Path
) -> None:
    tokenyard("run", workload(tmp_path, *lines), *flags, cwd=tmp_path).refused(*fragments)


# ---- flags


@pytest.mark.parametrize(
    ("flags", "fragments"),
    [
        (["--max-num-sqs", "3"], ["--max-num-sqs", "--max-num-seqs"]),
        (["--max-num-seqs", "many"], ["--max-num-seqs = 'many': give a whole number"]),
        (["--limit", "1.5"], ["--limit = '1.5': give a whole number"]),
        (["--seed", "9" * 5000], ["give a whole number of at most 18 digits"]),
        (["--rate-scale", "fast"], ["--rate-scale = 'fast': give a number"]),
        (["--session-rate", ""], ["--session-rate = '': give a number"]),
        (["--max-num-seqs", "0"], ["--max-num-seqs = 0", "from 1"]),
        (["--max-num-seqs", "-4"], ["--max-num-seqs", "-4"]),
        (["--max-num-seqs", "99999999999999"], ["--max-num-seqs = 99999999999999"]),
        (["--max-num-batched-tokens", "0"], ["--max-num-batched-tokens = 0"]),
        (["--max-model-len", "-2"], ["--max-model-len", "-2"]),
        (["--num-gpu-blocks-override", "1"], ["--num-gpu-blocks-override = 1", "from 2", "null block"]),
        (["--num-gpu-blocks-override", "-7"], ["--num-gpu-blocks-override = -7"]),
        (["--num-gpu-blocks-override", "2000000000"], ["--num-gpu-blocks-override = 2000000000"]),
        (["--max-num-seqs", "2000000000"], ["--max-num-seqs = 2000000000"]),
        (["--block-size", "0"], ["--block-size = 0"]),
        (["--watermark", "1.5"], ["watermark = 1.5", "from 0 to 1"]),
        (["--watermark", "nan"], ["watermark = nan"]),
        (["--gpu-memory-utilization", "0"], ["--gpu-memory-utilization = 0"]),
        (["--gpu-memory-utilization", "nan", "--num-gpu-blocks-override", "600"], ["--gpu-memory-utilization = nan"]),
        (["--kv-offloading-size", "-1"], ["--kv-offloading-size = -1.0"]),
        (["--kv-offloading-size", "inf"], ["--kv-offloading-size = inf"]),
        (["--gpu", "h1000"], ["gpu = 'h1000'", "h100, h200"]),
        (["--model", "llama-9"], ["model = 'llama-9'", "llama-3-8b"]),
        (["--model", "absent/config.json"], ["absent/config.json", "cannot be read"]),
        (["--tensor-parallel-size", "3"], ["--tensor-parallel-size = 3", "divide"]),
        (["--model", "llama-3.1-70b"], ["llama-3.1-70b needs", "--tensor-parallel-size"]),
        (["--scheduling-policy", "sjf"], ["policy = 'sjf'", "fcfs", "priority"]),
        (["--prefix-caching-hash-algo", "md5"], ["md5", "xxh3_128"]),
        (
            ["--no-enable-chunked-prefill", "--max-num-batched-tokens", "8k"],
            ["vLLM would not start", "--max-num-batched-tokens = 8000", "--max-model-len"],
        ),
        (["--latency", "slow"], ["latency = 'slow'", "roofline"]),
        (["--latency", "slow"], ["fitted:TRACE"]),
        (["--latency", "constant:-1"], ["latency = 'constant:-1'", "constant:0.02"]),
        (["--latency", "constant:nan"], ["latency = 'constant:nan'", "constant:0.02"]),
        (["--latency", "fitted:"], ["latency = 'fitted:'", "fitted:TRACE"]),
        (["--latency", "table:absent"], ["absent"]),
        (["--latency", "fitted:absent"], ["absent", "no such file"]),
        (["--limit", "0"], ["limit = 0"]),
        (["--seed", "-1"], ["seed = -1"]),
        (["--rate-scale", "0"], ["--rate-scale = 0"]),
        (["--rate-scale", "inf"], ["--rate-scale = inf"]),
        (["--session-rate", "-2"], ["--session-rate = -2"]),
        (["--session-rate", "2"], ["--session-rate = 2.0", "plain", "agentic, chat, lmcache and weka"]),
        (["--format", "parquet"], ["format = 'parquet'", "mooncake"]),
        (["--format", ""], ["format = ''", "mooncake"]),
        (
            ["--async-scheduling", "--no-async-scheduling"],
            ["--async-scheduling", "--no-async-scheduling", "give one of them"],
        ),
        (
            [
                "--async-scheduling",
                "--num-speculative-tokens",
                "2",
                "--speculative-method",
                "ngram",
                "--vllm-version",
                "0.22",
            ],
            ["--async-scheduling", "drafts of method ngram", "leave it out"],
        ),
        (["--max-ids-per-step", "-1"], ["--max-ids-per-step = -1"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_flags(flags: list[str], fragments: list[str], tmp_path: Path) -> None:
    path = workload(tmp_path, GOOD)
    call("run", path, *flags, cwd=tmp_path).refused(*fragments)


def test_commands(tmp_path: Path) -> None:
    call("rnu", cwd=tmp_path).refused("rnu")
    call("run", cwd=tmp_path).refused("WORKLOAD")
    call("report", cwd=tmp_path).refused("TRACE")


# ---- workloads


@pytest.mark.parametrize(
    ("line", "fragments"),
    [
        ({**GOOD, "promt_len": 3}, ["promt_len"]),
        ({**GOOD, "max_tokens": "5"}, ["max_tokens"]),
        ({**GOOD, "max_tokens": 0}, ["max_tokens"]),
        ({**GOOD, "prompt_len": -1}, ["prompt_len"]),
        ({**GOOD, "prompt_len": 10**15}, ["prompt_len"]),
        ({**GOOD, "arrival_time": -0.5}, ["arrival_time"]),
        ({**GOOD, "arrival_time": 1e300}, ["arrival_time"]),
        ({**GOOD, "priority": 1.5}, ["priority"]),
        ({"request_id": "a", "max_tokens": 5, "prompt_token_ids": [1, -2]}, ["prompt_token_ids"]),
        ({"request_id": "a", "max_tokens": 5, "prompt_token_ids": []}, ["prompt_token_ids"]),
        ({"request_id": "a", "max_tokens": 5}, ["prompt_token_ids or prompt_len"]),
        ({"request_id": "", "prompt_len": 3, "max_tokens": 5}, ["request_id"]),
        ({**GOOD, "after": "nobody", "gap": 1}, ["nobody"]),
        ({**GOOD, "request_id": "first"}, ["first", "twice"]),
        ('{"request_id": "a", "prompt_len": 10', ["not JSON"]),
        ("hello", ["not JSON"]),
        ("[1, 2]", ["object"]),
    ],
    ids=str,
)
def test_line_of_a_workload(line: dict[str, Any] | str, fragments: list[str], tmp_path: Path) -> None:
    path = workload(tmp_path, {**GOOD, "request_id": "first"}, line)
    call("run", path, cwd=tmp_path).refused("workload.jsonl:2:", *fragments)


def test_files_that_are_no_workload(tmp_path: Path) -> None:
    call("run", "absent.jsonl", cwd=tmp_path).refused("absent.jsonl", "agentic")
    call("run", tmp_path, cwd=tmp_path).refused(str(tmp_path))
    call("run", "chat", "--format", "plain", cwd=tmp_path).refused("format = 'plain'", "chat is built in")
    (tmp_path / "empty.jsonl").touch()
    call("run", "empty.jsonl", cwd=tmp_path).refused("empty.jsonl", "empty")
    (tmp_path / "header.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n")
    call("run", "header.csv", cwd=tmp_path).refused("header.csv", "no request")
    (tmp_path / "odd.txt").write_text("once upon a time\n")
    call("run", "odd.txt", cwd=tmp_path).refused("odd.txt", "--format")
    packed = gzip.compress(json.dumps(GOOD).encode() * 50)
    (tmp_path / "cut.jsonl.gz").write_bytes(packed[:-12])
    call("run", "cut.jsonl.gz", cwd=tmp_path).refused("cut.jsonl.gz")


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "LONG"],
        ["run", "GOOD", "--model", "LONG"],
        ["report", "LONG"],
        ["why", "LONG"],
        ["compare", "LONG", "LONG"],
        ["convert", "LONG"],
        ["parity", "LONG"],
    ],
    ids=" ".join,
)
def test_names_that_the_system_refuses(arguments: list[str], tmp_path: Path) -> None:
    named = {"LONG": "x" * 5000, "GOOD": str(workload(tmp_path, GOOD))}
    outcome = call(*(named.get(argument, argument) for argument in arguments), cwd=tmp_path)
    outcome.refused("'xxx", "File name too long")
    assert len(outcome.stderr) < 300, "a long name is cut"


# ---- requests the engine refuses


def test_prompt_longer_than_the_model(tmp_path: Path) -> None:
    path = workload(tmp_path, GOOD, {"request_id": "long", "prompt_len": 5000, "max_tokens": 1})
    outcome = call("run", path, "--max-model-len", "4096", cwd=tmp_path)
    outcome.refused("request 'long'", "5000", "--max-model-len (4096)")


def test_request_that_can_never_fit(tmp_path: Path) -> None:
    path = workload(tmp_path, GOOD, {"request_id": "huge", "prompt_len": 1000, "max_tokens": 100})
    outcome = call("run", path, "--num-gpu-blocks-override", "64", cwd=tmp_path)
    outcome.refused("request 'huge'", "69 blocks and the pool has 63", "--num-gpu-blocks-override (64) to 70")
    outcome.refused("--skip-refused goes on without")


def test_refused_requests_can_be_left_out(tmp_path: Path) -> None:
    path = workload(
        tmp_path,
        GOOD,
        {"request_id": "long", "prompt_len": 5000, "max_tokens": 1},
        {"request_id": "next", "prompt_len": 10, "max_tokens": 1, "after": "long"},
    )
    outcome = call("run", path, "--max-model-len", "4096", "--skip-refused", "--json", cwd=tmp_path)
    assert outcome.code == 0
    outcomes = {"arrived": 2, "served": 1, "refused": 1, "cancelled": 0, "unfinished": 0}
    assert json.loads(outcome.stdout)["outcomes"] == outcomes
    assert "1 request was refused" in outcome.stderr
    assert "1 turn after" in outcome.stderr
    assert "'long'" in outcome.stderr


@pytest.mark.parametrize("command", ["run", "split", "compare"])
def test_a_workload_of_which_nothing_is_left(command: str, tmp_path: Path) -> None:
    """A report on no request at all would say that nothing was held back."""
    path = workload(tmp_path, GOOD, {**GOOD, "request_id": "b", "after": "a"})
    few = ["--num-gpu-blocks-override", "5", "--skip-refused"]
    call(command, path, *few, cwd=tmp_path).refused("--skip-refused leaves none of its", "the first")


# ---- traces


def test_trace_that_cannot_be_written(tmp_path: Path) -> None:
    path = workload(tmp_path, GOOD)
    (tmp_path / "file").touch()
    call("run", path, "--trace", "file", cwd=tmp_path).refused("trace = 'file'", "cannot be written")
    call("run", path, "--trace", "file/below", cwd=tmp_path).refused("cannot be written")
    outcome = call("demo", "--trace", "file/below", cwd=tmp_path)
    assert outcome.code == 2
    assert "cannot be written" in outcome.stderr


def test_traces_that_cannot_be_read(tmp_path: Path) -> None:
    call("report", "absent", cwd=tmp_path).refused("absent: no such file or directory")
    call("report", os.devnull, cwd=tmp_path).refused(f"{os.devnull}: is no file on a disk")
    call("report", tmp_path, cwd=tmp_path).refused("steps.jsonl")
    (tmp_path / "log.txt").write_text("not a trace\n")
    call("report", "log.txt", cwd=tmp_path).refused("log.txt", "not a trace")
    (tmp_path / "x.steps.jsonl").write_text("{broken\n")
    call("report", "x.steps.jsonl", cwd=tmp_path).refused("x.steps.jsonl", "no step")


def test_settings_in_the_environment(tmp_path: Path) -> None:
    path = workload(tmp_path, GOOD)
    env = {"SCHED_TRACE_PATH": str(tmp_path / "trace"), "SCHED_TRACE_EVERY_N": "often"}
    call("run", path, cwd=tmp_path, env=env).refused("SCHED_TRACE_EVERY_N", "often")
    env = {"VLLM_SCHED_TRACE_PATH": str(tmp_path / "trace"), "SCHED_TRACE_POLICY": "a/b"}
    call("run", path, cwd=tmp_path, env=env).refused("SCHED_TRACE_POLICY = 'a/b'", "use letters")


def test_a_page_that_cannot_be_written_takes_no_answer_with_it(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    words: tuple[str, ...] = ("chat", "--limit", "2", "--num-gpu-blocks-override", "900", "--max-model-len", "8192")
    words += ("--set", "max_num_seqs=1,2", "--json", "--html", "file/below.html")
    for more in (("plan", "--slo", "ttft_p90=5s", "--no-largest-load"), ("sweep",)):
        outcome = call(more[0], *words, *more[1:], cwd=tmp_path)
        assert outcome.code == 2
        assert "cannot be written" in outcome.stderr
        assert json.loads(outcome.stdout)["rows"]
