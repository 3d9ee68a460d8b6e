"""``--serve``, ``--config`` and flags of ``vllm serve`` by themselves: what they change, and what the header says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.integration.command import call

RUN = ("run", "chat", "--limit", "1")


def header(*arguments: str, cwd: Path) -> dict[str, Any]:
    outcome = call(*RUN, *arguments, "--json", cwd=cwd)
    assert outcome.code == 0, outcome.stderr
    found: dict[str, Any] = json.loads(outcome.stdout)["header"]
    return found


def test_what_nobody_said_is_vllms_default_and_said_to_be(tmp_path: Path) -> None:
    said = header(cwd=tmp_path)
    assert (said["max_num_seqs"], said["max_num_batched_tokens"], said["max_model_len"]) == (1024, 8192, 131_072)
    assert said["kv_tokens"] == said["num_gpu_blocks"] * said["block_size"]
    assert (said["weight_dtype"], said["kv_dtype"], said["vllm_version"]) == ("bfloat16", "bfloat16", "0.33")
    assert said["weight_gib"] == pytest.approx(14.96, abs=0.01)
    assumed = {each["name"]: each["value"] for each in said["assumed"]}
    assert assumed["gpu"] == "h100"
    assert assumed["max-num-seqs"] == 1024
    assert assumed["gpu-memory-utilization"] == 0.92
    assert said["ignored"] == said["used"] == said["without_effect"] == []


def test_defaults_are_those_of_the_version(tmp_path: Path) -> None:
    newest = header("--gpu", "b200", cwd=tmp_path)
    assert (newest["max_num_batched_tokens"], newest["vllm_version"]) == (16_384, "0.33")
    older = header("--gpu", "b200", "--vllm-version", "0.22", cwd=tmp_path)
    assert (older["max_num_batched_tokens"], older["vllm_version"]) == (8192, "0.22")
    assert header("--gpu", "b200", "--vllm-version", "0.5", cwd=tmp_path)["vllm_version"] == "0.22"
    call(*RUN, "--vllm-version", "new", cwd=tmp_path).refused("--vllm-version = 'new'", "0.22, 0.23, ")


def test_a_line_a_file_and_flags_beside_them(tmp_path: Path) -> None:
    (tmp_path / "flags.yaml").write_text("max-num-seqs: 16\nmax-num-batched-tokens: 1024\nport: 1\nblock-size: 32\n")
    line = "vllm serve qwen/Qwen3-8B --max-num-seqs 32 --max-model-len 8k --host 0.0.0.0"
    both = ("--config", "flags.yaml", "--serve", line)
    said = header(*both, "--max-num-seqs", "64", cwd=tmp_path)
    assert said["model"] == "qwen3-8b"
    assert (said["max_num_seqs"], said["max_num_batched_tokens"]) == (64, 1024)
    assert (said["max_model_len"], said["block_size"]) == (8000, 32)
    assert header(*both, cwd=tmp_path)["max_num_seqs"] == 32
    assert any(each.startswith("--port 1: ") for each in said["without_effect"])
    assert any(each.startswith("--host 0.0.0.0: ") for each in said["without_effect"])
    assert "--max-num-seqs 64" in said["used"]
    (tmp_path / "line.sh").write_text(f"#!/bin/sh\n{line}\n")
    assert header("--serve", "@line.sh", cwd=tmp_path)["max_num_seqs"] == 32


def test_flags_by_themselves_and_in_short(tmp_path: Path) -> None:
    said = header("-tp", "2", "--max-model-len", "16K", "--kv-cache-dtype", "fp8", cwd=tmp_path)
    assert (said["tensor_parallel_size"], said["max_model_len"], said["kv_dtype"]) == (2, 16_384, "fp8")
    plain = header("-tp", "2", "--max-model-len", "16K", cwd=tmp_path)
    assert said["kv_tokens"] == pytest.approx(2 * plain["kv_tokens"], rel=0.001)
    given = header("--kv-cache-memory-bytes", "4G", "--max-model-len", "8K", cwd=tmp_path)
    assert given["kv_tokens"] == 32_768  # 128 KiB each
    assert header("--max-num-batched-tokens", "300", cwd=tmp_path)["max_num_seqs"] == 300


def test_what_is_not_modelled_is_refused_by_name_or_listed(tmp_path: Path) -> None:
    flags = ("--cpu-offload-gb", "4", "--prefill-context-parallel-size", "2", "--data-parallel-size", "1")
    refused = call(*RUN, *flags, cwd=tmp_path)
    refused.refused("--cpu-offload-gb 4.0 (", "--prefill-context-parallel-size 2 (", "--ignore-unmodelled")
    assert "--data-parallel-size" not in refused.stderr
    assert "--tensor-parallel-size" not in refused.stderr
    said = header(*flags, "--ignore-unmodelled", cwd=tmp_path)
    assert sorted(each.split(":")[0] for each in said["ignored"]) == [
        "--cpu-offload-gb 4.0",
        "--prefill-context-parallel-size 2",
    ]
    for command in (("compare", "chat", "--limit", "1", "--policies", "fcfs"), ("split", "chat", "--limit", "1")):
        call(*command, *flags, cwd=tmp_path).refused("--cpu-offload-gb 4.0 (", "--ignore-unmodelled")


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--gpu", "l4"], "--max-model-len = 131072"),
        (["--model", "llama-3.1-70b"], "llama-3.1-70b needs"),
        (["-tp", "3"], "--tensor-parallel-size = 3"),
        (["--max-num-batched-tokens", "64", "--max-num-seqs", "65"], "less than --max-num-seqs = 65"),
        (["--max-model-len", "200000"], "more than the 131072 tokens"),
        (["--quantization", "awq"], "are not quantised"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_vllm_would_not_start(flags: list[str], reason: str, tmp_path: Path) -> None:
    call(*RUN, *flags, cwd=tmp_path).refused("vLLM would not start: ", reason)


def test_a_length_that_the_line_allows(tmp_path: Path) -> None:
    line = "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 vllm serve llama-3.1-8b --max-model-len 200000"
    assert header("--serve", line, cwd=tmp_path)["max_model_len"] == 200_000


def test_as_long_as_the_pool_holds(tmp_path: Path) -> None:
    """Since 0.33 vLLM knows that one of the blocks, the null block, holds nothing."""
    older = header("--gpu", "l4", "--max-model-len", "auto", "--vllm-version", "0.22", cwd=tmp_path)
    assert older["max_model_len"] <= older["kv_tokens"] < older["max_model_len"] + older["block_size"]
    said = header("--gpu", "l4", "--max-model-len", "auto", cwd=tmp_path)
    assert said["max_model_len"] == older["max_model_len"] - said["block_size"]
    call(*RUN, "--gpu", "l4", "--max-model-len", str(said["max_model_len"] + 1), cwd=tmp_path).refused(
        "vLLM would not start", "KV cache"
    )


def test_speculation_by_vllms_flags(tmp_path: Path) -> None:
    flags = ("--speculative-config.model", "some/eagle3", "--speculative-config.num_speculative_tokens", "2")
    outcome = call(*RUN, *flags, "--json", cwd=tmp_path)
    report = json.loads(outcome.stdout)
    assert len(report["speculation"]["num_accepted_tokens_per_pos"]) == 2
    assert {"acceptance-rates", "drafting"} <= {each["name"] for each in report["header"]["assumed"]}
    call(*RUN, "--spec-method", "suffix", "--spec-tokens", "2", cwd=tmp_path).refused("suffix", "is not modelled")


def test_a_line_that_cannot_be_read(tmp_path: Path) -> None:
    call(*RUN, "--serve", "echo hello", cwd=tmp_path).refused("holds no `vllm serve`")
    call(*RUN, "--serve", "vllm serve qwen3-8b --max-num-sqs 3", cwd=tmp_path).refused("did you mean --max-num-seqs?")
    call(*RUN, "--serve", "vllm serve nobody/knows-it", cwd=tmp_path).refused("nobody/knows-it", "config.json")
    call(*RUN, "--serve", cwd=tmp_path).refused("serve", "needs a value")


def test_the_header_is_printed_and_is_in_every_report(tmp_path: Path) -> None:
    flags = ("--serve", "vllm serve qwen3-8b --port 8000 --cpu-offload-gb 4", "--ignore-unmodelled")
    text = call(*RUN, *flags, "--trace", "t", "--full", cwd=tmp_path).stdout
    for part in ("Deployment", "--port 8000: where the server listens", "--cpu-offload-gb 4.0: memory and time"):
        assert part in " ".join(text.split())
    told = header(*flags, cwd=tmp_path)
    fields = ("kv_tokens", "num_gpu_blocks", "weight_gib", "kv_dtype", "assumed", "ignored", "without_effect")
    traced = json.loads(call("report", "t", "--json", cwd=tmp_path).stdout)["header"]
    compared = call("compare", "chat", "--limit", "1", "--policies", "fcfs", *flags, "--json", cwd=tmp_path)
    halves = call("split", "chat", "--limit", "1", *flags, "--json", cwd=tmp_path)
    for each in (traced, json.loads(compared.stdout)["header"], json.loads(halves.stdout)["header"]):
        assert {name: each[name] for name in fields} == {name: told[name] for name in fields}
