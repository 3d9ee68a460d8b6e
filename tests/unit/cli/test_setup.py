"""Every flag of ``run`` reaches the setting it is named after."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.kv_size import size_kv_cache

from tokenyard.cli.main import main
from tokenyard.cli.support.asking import scenario_of
from tokenyard.cli.support.flags.replays import RunCommand
from tokenyard.cli.support.parsing import parse
from tokenyard.core.config import HashAlgo
from tokenyard.deploy.spec import ReplaySpec, open_trace
from tokenyard.errors import ConfigError
from tokenyard.models.gpus import named_gpu
from tokenyard.models.named import named_model
from tokenyard.questions.scenario import replay_spec
from tokenyard.record.writer import TraceWriter
from tokenyard.steptime.calibrated import CalibratedLatency
from tokenyard.steptime.model import ConstantLatency
from tokenyard.steptime.roofline import RooflineLatency


@pytest.fixture(autouse=True)
def no_trace_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PATH", "POLICY", "EVERY_N", "MAX_STEPS", "TOKENIZER"):
        monkeypatch.delenv(f"SCHED_TRACE_{name}", raising=False)
    monkeypatch.delenv("VLLM_SCHED_TRACE_PATH", raising=False)


def setup(*flags: str) -> ReplaySpec:
    command = parse(["run", "chat", "--limit", "1", *flags])
    assert isinstance(command, RunCommand)
    return replay_spec(scenario_of(command))


@pytest.mark.parametrize(
    ("flags", "part", "setting", "value"),
    [
        (["--max-num-seqs", "7"], "scheduler", "max_num_seqs", 7),
        (["--max-num-batched-tokens", "300"], "scheduler", "max_num_batched_tokens", 300),
        (["--max-model-len", "900"], "scheduler", "max_model_len", 900),
        (["--model", "qwen3-8b"], "scheduler", "max_model_len", 40_960),
        (["--scheduling-policy", "priority"], "scheduler", "policy", "priority"),
        (
            ["--no-enable-chunked-prefill", "--max-num-batched-tokens", "131072"],
            "scheduler",
            "enable_chunked_prefill",
            False,
        ),
        (["--long-prefill-token-threshold", "64"], "scheduler", "long_prefill_token_threshold", 64),
        (["--no-scheduler-reserve-full-isl"], "scheduler", "scheduler_reserve_full_isl", False),
        (["--skip-oversized-prefill"], "scheduler", "skip_oversized_prefill", True),
        (["--num-gpu-blocks-override", "77"], "cache", "num_gpu_blocks", 77),
        (["--block-size", "32"], "cache", "block_size", 32),
        (["--no-enable-prefix-caching"], "cache", "enable_prefix_caching", False),
        (["--prefix-caching-hash-algo", "sha256"], "cache", "prefix_caching_hash_algo", HashAlgo.SHA256),
        ([], "cache", "prefix_caching_hash_algo", HashAlgo.XXH3_128),
        (["--watermark", "0.01"], "cache", "watermark", 0.01),
        (["--trace", "here"], "trace", "path", Path("here")),
        (["--record-requests"], "trace", "request_records", True),
        ([], "trace", "request_records", False),
        (["--max-ids-per-step", "9"], "trace", "max_ids_per_step", 9),
        (["--max-ids-per-step", "0"], "trace", "max_ids_per_step", None),
        ([], "trace", "max_ids_per_step", 64),
        (["--scheduling-policy", "priority"], "trace", "policy", "priority"),
        (["--gpu", "l4", "--model", "llama-3.2-1b"], "start", "gpu", "l4"),
        (["--model", "llama-3.2-1b"], "start", "model", "llama-3.2-1b"),
        (["--block-size", "32"], "start", "bytes_per_block", 32 * 131_072),
    ],
)
def test_setting(flags: list[str], part: str, setting: str, value: Any) -> None:
    assert getattr(getattr(setup(*flags), part), setting) == value


@pytest.mark.parametrize(
    ("flags", "is_async"),
    [
        ([], True),
        (["--no-async-scheduling"], False),
        (["--async-scheduling"], True),
        (["--num-speculative-tokens", "2", "--speculative-method", "eagle"], True),
        (["--num-speculative-tokens", "2", "--speculative-method", "ngram_gpu"], True),
        (["--num-speculative-tokens", "2", "--speculative-method", "ngram"], True),
        (["--num-speculative-tokens", "2", "--speculative-method", "draft_model"], True),
        (["--distributed-executor-backend", "ray"], True),
        (["--distributed-executor-backend", "ray", "--vllm-version", "0.22"], True),
        (["--num-speculative-tokens", "2", "--speculative-method", "ngram", "--vllm-version", "0.22"], False),
        (["--num-speculative-tokens", "2", "--speculative-method", "draft_model", "--vllm-version", "0.22"], False),
        (["--num-speculative-tokens", "2", "--speculative-method", "draft_model", "--async-scheduling"], True),
        (["--num-speculative-tokens", "2", "--speculative-method", "eagle", "--no-async-scheduling"], False),
    ],
    ids=lambda value: " ".join(value) or "nothing said" if isinstance(value, list) else None,
)
def test_async_scheduling_is_on_where_vllm_turns_it_on(flags: list[str], is_async: bool) -> None:
    made = setup(*flags)
    assert made.scheduler.async_scheduling is is_async
    assert made.start.config is not None
    assert made.start.config["scheduler"]["async_scheduling"] is is_async


def test_pool_is_sized_with_the_flags_that_matter() -> None:
    flags = ["--gpu", "h200", "--model", "llama-3.1-70b", "--tensor-parallel-size", "4"]
    flags += ["--gpu-memory-utilization", "0.8", "--max-num-seqs", "64", "--max-num-batched-tokens", "4096"]
    expected = size_kv_cache(
        named_model("llama-3.1-70b"),
        named_gpu("h200"),
        gpu_memory_utilization=0.8,
        max_num_batched_tokens=4096,
        max_num_seqs=64,
        tensor_parallel_size=4,
    )
    assert setup(*flags).cache.num_gpu_blocks == expected.num_blocks


def test_latency_models() -> None:
    assert isinstance(setup().latency, CalibratedLatency)
    assert isinstance(setup("--latency", "roofline").latency, RooflineLatency)
    constant = setup("--latency", "constant:0.5").latency
    assert isinstance(constant, ConstantLatency)
    assert constant.seconds == 0.5


def test_workload_flags() -> None:
    once = setup("--seed", "3").workload
    assert len(once) == len(setup("--seed", "3").workload)
    fast = setup("--seed", "3", "--rate-scale", "2", "--limit", "5").workload
    slow = setup("--seed", "3", "--limit", "5").workload
    arrivals = [(a.arrival_time, b.arrival_time) for a, b in zip(fast, slow, strict=True) if not a.after]
    assert max(b for _, b in arrivals) > 0
    assert all(a == pytest.approx(b / 2) for a, b in arrivals)


def test_flags_win_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHED_TRACE_PATH", "from-environment")
    monkeypatch.setenv("SCHED_TRACE_EVERY_N", "5")
    monkeypatch.setenv("SCHED_TRACE_POLICY", "mine")
    trace = setup().trace
    assert (trace.path, trace.every_n, trace.policy) == (Path("from-environment"), 5, "mine")
    assert setup("--trace", "flag").trace.path == Path("flag")


def test_start_record_holds_the_whole_configuration() -> None:
    config = setup("--max-num-seqs", "7", "--rate-scale", "3").start.config
    assert config is not None
    assert config["scheduler"]["max_num_seqs"] == 7
    assert config["cache"]["block_size"] == 16
    assert config["workload"]["rate_scale"] == 3
    assert config["hardware"]["latency"] == "calibrated"


def test_open_trace_clears_an_earlier_run_away(tmp_path: Path) -> None:
    config = setup("--trace", str(tmp_path / "new" / "trace")).trace
    assert config.steps_path is not None
    assert config.requests_path is not None
    with TraceWriter(config) as writer:
        assert open_trace(writer) == config.path
        assert config.steps_path.read_text() == ""
    config.steps_path.write_text("old")
    config.requests_path.write_text("old")
    other = config.steps_path.with_name("sched_trace.other.steps.jsonl")
    other.write_text("kept")
    with TraceWriter(config) as writer:
        open_trace(writer)
        assert config.steps_path.read_text() == ""
    assert not config.requests_path.exists()
    assert other.read_text() == "kept"
    with TraceWriter(setup().trace) as writer:
        assert open_trace(writer) is None


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs on this system")
def test_open_trace_does_not_wait_for_a_pipe(tmp_path: Path) -> None:
    config = setup("--trace", str(tmp_path)).trace
    assert config.steps_path is not None
    os.mkfifo(config.steps_path)
    with TraceWriter(config) as writer, pytest.raises(ConfigError, match="cannot be written"):
        open_trace(writer)
    reader = os.open(config.steps_path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with TraceWriter(config) as writer, pytest.raises(ConfigError, match="is no file on a disk"):
            open_trace(writer)
    finally:
        os.close(reader)


def test_open_trace_names_another_run_that_writes_there(tmp_path: Path) -> None:
    """A trace of another run stays as it is; under another name in the same directory there is room."""
    pytest.importorskip("fcntl")
    config = setup("--trace", str(tmp_path)).trace
    assert config.steps_path is not None
    with TraceWriter(config) as first, TraceWriter(config) as second:
        open_trace(first)
        first.step_snapshot(0)
        first.flush()
        with pytest.raises(ConfigError, match=r"another run is writing sched_trace.fcfs.steps.jsonl there"):
            open_trace(second)
        with TraceWriter(setup("--trace", str(tmp_path), "--scheduling-policy", "priority").trace) as third:
            open_trace(third)
        first.step_snapshot(1)
    assert [msgspec.json.decode(line)["step"] for line in config.steps_path.read_bytes().splitlines()] == [0, 1]
    with TraceWriter(config) as again:
        open_trace(again)


def test_open_trace_names_what_is_in_the_way(tmp_path: Path) -> None:
    config = setup("--trace", str(tmp_path)).trace
    assert config.steps_path is not None
    config.steps_path.mkdir()
    with TraceWriter(config) as writer, pytest.raises(ConfigError, match="cannot be written: Is a directory"):
        open_trace(writer)


def test_a_policy_that_knows_the_length_of_answers_is_called_an_oracle(capsys: pytest.CaptureFixture[str]) -> None:
    few = ("chat", "--limit", "2", "--json")
    assert main(["run", *few, "--scheduling-policy", "shortest-remaining"]) == 0
    said = {each["name"]: each for each in json.loads(capsys.readouterr().out)["header"]["assumed"]}
    assert said["scheduling-policy"]["why"].startswith("an oracle: it uses max_tokens")
    assert main(["compare", *few, "--policies", "fcfs,shortest-remaining"]) == 0
    assumed = json.loads(capsys.readouterr().out)["header"]["assumed"]
    assert [each["value"] for each in assumed if each["name"] == "scheduling-policy"] == ["shortest-remaining"]
    assert main(["run", *few]) == 0
    names = {each["name"] for each in json.loads(capsys.readouterr().out)["header"]["assumed"]}
    assert "scheduling-policy" not in names
