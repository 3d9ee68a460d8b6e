"""``tokenyard upgrade``: the first different step has its cause, what moves and what vanishes is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.integration.command import call

from tokenyard import Deployment, run, upgrade, whatif
from tokenyard.core.profiles import PROFILES
from tokenyard.questions.upgrade import meanings

SERVE = "vllm serve Qwen/Qwen3-8B --max-model-len 2048 --max-num-seqs 8"


def test_every_switch_has_a_meaning() -> None:
    assert set(meanings()) - {"vllm_version"} == {name for name in PROFILES["0.22"].__slots__ if name != "vllm_version"}


def test_the_switch_that_makes_a_step_differ_is_named() -> None:
    """A lone request ignores the threshold since 0.31: its very first step differs, and nothing else is the cause."""
    deployment = Deployment.from_serve(f"{SERVE} --long-prefill-token-threshold 64", gpu="h100")
    told = upgrade("chat", deployment, "0.30", "0.31", limit=4, seed=1)
    first = told.first_difference
    assert first is not None
    assert (first.switch, first.since) == ("lone_request_prefills_whole", "0.31")
    assert first.older is not None
    assert first.newer is not None
    assert sum(first.newer.values()) > sum(first.older.values()) == 64
    assert told.equal_steps == first.step
    assert {each.name for each in told.switches} == {
        "lone_request_prefills_whole",
        "output_blocks_hash_last_image",
        "requests_with_blocks_first",
    }


def test_a_difference_that_the_workload_does_not_meet_changes_no_step() -> None:
    told = upgrade("chat", Deployment.from_serve(SERVE, gpu="h100"), "0.29", "0.30", limit=4, seed=1)
    assert told.first_difference is None
    names = {each.name for each in told.switches}
    assert names == {"idle_admission_pads", "eagle_keeps_block_below", "states_free_across_gaps"}, "drafts and states"
    assert told.equal_steps > 0
    assert all(each.older == each.newer for each in told.latencies)


def test_the_command_says_what_moves_and_what_vanishes(tmp_path: Path) -> None:
    words = ("upgrade", "chat", "--limit", "1", "--gpu", "b200", "--serve", f"{SERVE} --max-num-partial-prefills 1")
    told = json.loads(call(*words, "--from", "0.26", "--to", "0.33", "--json", cwd=tmp_path).stdout)
    moved = {each["name"]: (each["older"], each["newer"]) for each in told["defaults"]}
    assert moved["max_num_batched_tokens"] == (8192, 16_384)
    assert [flag.split()[0] for flag in told["missing_flags"]] == ["--max-num-partial-prefills"]
    shown = call(*words, "--from", "0.26", "--to", "0.33", cwd=tmp_path).stdout
    for title in ("vLLM 0.26 -> 0.33", "decisions", "defaults that move", "flags that vanish", "memory", "latencies"):
        assert title in shown
    first = " ".join(shown.split("\n\n")[0].split())
    assert first.startswith("vLLM 0.33 instead of 0.26, for this traffic: nothing that clients notice (TTFT p90 +0.0 %")
    assert "vLLM 0.33 does not start with --max-num-partial-prefills 1: take that out first." in first
    assert "Another default: max_num_batched_tokens." in first
    assert "scheduling " in first
    call(*words, "--from", "0.26", "--to", "0.26", cwd=tmp_path).refused("is the version that it comes from")
    call(*words, "--from", "0.5", cwd=tmp_path).refused("0.22, 0.23")


@pytest.mark.parametrize("version", PROFILES)
def test_every_version_replays(version: str) -> None:
    told = Deployment.from_serve(SERVE, gpu="h100", vllm_version=version).replay("chat", limit=2)
    assert told.result.num_finished == len(told.workload)
    assert told.deployment.vllm_version == version


def test_a_trace_is_upgraded_as_whatif_says(tmp_path: Path) -> None:
    """A hybrid model that keeps every state to 0.27: later versions have room for more tokens."""
    line = "vllm serve ibm-granite/granite-4.0-h-tiny --enable-prefix-caching --max-model-len 8192 --max-num-seqs 8"
    deployment = Deployment.from_serve(line, gpu="l4", vllm_version="0.27")
    run("completion", deployment, limit=30, seed=1, trace=tmp_path / "trace")
    words = ("upgrade", str(tmp_path / "trace"), "--from", "0.27", "--to", "0.33", "--json")
    told = json.loads(call(*words, cwd=tmp_path).stdout)
    assert told["requests"] == 30
    assert "num_blocks" in [each["name"] for each in told["memory"]]
    figures = whatif(tmp_path / "trace", {"vllm_version": "0.33"}).variants[0].figures
    latencies = {each["name"]: (each["older"], each["newer"]) for each in told["latencies"]}
    assert latencies == {each.name: (pytest.approx(each.baseline), pytest.approx(each.variant)) for each in figures}
    first = " ".join(call(*words[:-1], cwd=tmp_path).stdout.split("\n\n")[0].split())
    assert first.startswith("vLLM 0.33 instead of 0.27, for this traffic: TTFT p90 +")
    assert "The KV cache has room for " in first
    assert "Other defaults: block_size, mamba_cache_mode." in first
    other = json.loads(call(*words, "--serve", SERVE, "--gpu", "h100", cwd=tmp_path).stdout)
    assert other["memory"] == [], "another deployment may be named"
    call(*words, "--max-num-seqs", "4", cwd=tmp_path).refused("--max-num-seqs = 4", "--serve")
