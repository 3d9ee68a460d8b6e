"""``tokenyard run`` with KV kept elsewhere: flags named like vLLM's, hits and DRAM in report and trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.integration.command import call
from tests.integration.test_run_command import steps_of

AGENTS = ["run", "agentic", "--limit", "2", "--gpu", "l4", "--model", "llama-3.2-1b", "--max-num-seqs", "2"]
AGENTS += ["--num-gpu-blocks-override", "1100", "--session-rate", "2"]


def report(directory: Path, *flags: str, advice: str = "none") -> dict[str, Any]:
    outcome = call(*AGENTS, *flags, "--advice", advice, "--json", cwd=directory)
    assert outcome.code == 0, outcome.stderr
    parsed: dict[str, Any] = json.loads(outcome.stdout)
    return parsed


def test_offloading_turns_recomputing_into_loading(tmp_path: Path) -> None:
    without = report(tmp_path)
    with_tier = report(tmp_path, "--kv-offloading-size", "4", "--trace", "trace")
    assert with_tier["requests_finished"] == without["requests_finished"]
    assert without["prefix_hit_rate"]["external"] == 0 < with_tier["prefix_hit_rate"]["external"]
    assert with_tier["e2e_ms"]["mean"] < without["e2e_ms"]["mean"]
    assert without["peak_dram_use"] is None
    assert 0 < with_tier["peak_dram_use"] <= 1
    assert with_tier["header"]["dram_bytes"] == 4 << 30
    snapshots, lookups = (steps_of(tmp_path / "trace", event) for event in ("step_snapshot", "prefix_cache_lookup"))
    assert {snapshot["cpu_total_blocks"] for snapshot in snapshots} == {with_tier["header"]["dram_blocks"]}
    assert min(snapshot["cpu_free_blocks"] for snapshot in snapshots) < max(s["cpu_free_blocks"] for s in snapshots)
    external = [lookup for lookup in lookups if lookup["external_hit_tokens"]]
    assert external
    assert all(lookup["load_kv_async"] for lookup in external)
    assert {lookup["connector"] for lookup in lookups} == {"OffloadingConnector"}
    assert {"async_kv_load_started"} <= set(with_tier["recorded_reasons"])


def test_a_report_on_the_trace_says_what_the_run_said(tmp_path: Path) -> None:
    live = report(tmp_path, "--kv-offloading-size", "1", "--trace", "trace", advice="auto")
    outcome = call("report", "trace", "--json", cwd=tmp_path)
    read = json.loads(outcome.stdout)
    for field in ("prefix_hit_rate", "peak_dram_use", "recorded_reasons", "ttft_ms"):
        assert read[field] == live[field]
    printed = call("report", "trace", "--full", cwd=tmp_path).stdout
    assert "DRAM:" in printed
    assert "DRAM blocks" in printed


@pytest.mark.parametrize(
    ("connector", "extra"),
    [
        ("OffloadingConnector", {"cpu_bytes_to_use": 1e9, "eviction_policy": "arc"}),
        ("OffloadingConnector", {"cpu_bytes_to_use": 1e9, "store_on": "eviction"}),
        ("SharedStorageConnector", {"load_async": False}),
    ],
)
def test_every_connector_brings_something(connector: str, extra: dict[str, Any], tmp_path: Path) -> None:
    config = {"kv_connector": connector, "kv_connector_extra_config": extra}
    is_shared = connector == "SharedStorageConnector"
    measured = report(tmp_path, "--kv-transfer-config", json.dumps(config), advice="auto" if is_shared else "none")
    assert measured["prefix_hit_rate"]["external"] > 0
    assert (measured["peak_dram_use"] is None) == is_shared


def test_compare_takes_the_same_flags(tmp_path: Path) -> None:
    flags = ["--policies", "fcfs,continuum-fixed", "--kv-offloading-size", "4", "--json"]
    outcome = call("compare", *AGENTS[1:], *flags, cwd=tmp_path)
    assert outcome.code == 0, outcome.stderr
    assert [cell["policy"] for cell in json.loads(outcome.stdout)["cells"]] == ["fcfs", "continuum-fixed"]


def test_what_cannot_work_is_refused_before_anything_runs(tmp_path: Path) -> None:
    call(*AGENTS, "--kv-offloading-size", "0", cwd=tmp_path).refused("--kv-offloading-size", "above 0")
    call(*AGENTS, "--kv-offloading-backend", "lmcache", cwd=tmp_path).refused("--kv-offloading-backend", "use native")
    call(*AGENTS, "--kv-transfer-config", "{", cwd=tmp_path).refused("--kv-transfer-config", "JSON object")
    call(*AGENTS, "--kv-transfer-config", "[" * 100_000, cwd=tmp_path).refused("--kv-transfer-config", "JSON object")
    no_path = '{"kv_connector": "SharedStorageConnector", "kv_connector_extra_config": {"shared_storage_path": 7}}'
    call(*AGENTS, "--kv-transfer-config", no_path, cwd=tmp_path).refused("shared_storage_path = 7", "path of a folder")
    storage = '{"kv_connector": "SharedStorageConnector"}'
    both = ["--kv-offloading-size", "1", "--kv-transfer-config", storage]
    call(*AGENTS, *both, cwd=tmp_path).refused("--kv-offloading-size", "OffloadingConnector")
    no_cache = ["--no-enable-prefix-caching", "--kv-offloading-size", "1"]
    call(*AGENTS, *no_cache, cwd=tmp_path).refused("--enable-prefix-caching", "turn it on")
