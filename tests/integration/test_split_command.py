"""``tokenyard split``: two engines, two reports, two traces."""

from __future__ import annotations

import json
from pathlib import Path

from tests.integration.command import call
from tests.integration.test_run_command import steps_of

SMALL = ["split", "chat", "--limit", "3", "--gpu", "l4", "--model", "llama-3.2-1b", "--max-model-len", "16384"]


def test_both_engines_are_reported_and_traced(tmp_path: Path) -> None:
    outcome = call(*SMALL, "--trace", "traces", "--json", cwd=tmp_path)
    assert outcome.code == 0, outcome.stderr
    both = json.loads(outcome.stdout)
    prefill, decode = both["prefill"], both["decode"]
    assert prefill["requests_finished"] == decode["requests_finished"] > 3
    assert prefill["output_tokens"] == prefill["requests_finished"], "one token each"
    assert decode["prefix_hit_rate"]["external"] > 0
    assert decode["ttft_ms"]["mean"] > prefill["ttft_ms"]["mean"], "clients wait for both, and for the link"
    assert all(0 < both["use"][name] <= 1 for name in ("prefill", "decode", "link"))
    assert both["use"]["kv_bytes"] > 0
    (start,) = steps_of(tmp_path / "traces" / "decode", "trace_start")
    assert start["config"]["kv_transfer"]["kv_role"] == "kv_consumer"
    lookups = steps_of(tmp_path / "traces" / "decode", "prefix_cache_lookup")
    assert {lookup["connector"] for lookup in lookups} == {"NixlConnector"}
    read = json.loads(call("report", "traces/prefill", "--json", cwd=tmp_path).stdout)
    assert read["ttft_ms"] == prefill["ttft_ms"]


def test_a_slower_link_shows_in_the_first_token_only(tmp_path: Path) -> None:
    def decode(gb_per_s: str) -> dict[str, dict[str, float]]:
        outcome = call(*SMALL, "--kv-link-gb-per-s", gb_per_s, "--json", cwd=tmp_path)
        report: dict[str, dict[str, float]] = json.loads(outcome.stdout)["decode"]
        return report

    fast, slow = decode("100"), decode("0.1")
    assert slow["ttft_ms"]["mean"] > 1.5 * fast["ttft_ms"]["mean"]
    assert abs(slow["tpot_ms"]["mean"] / fast["tpot_ms"]["mean"] - 1) < 0.1


def test_it_prints_what_clients_see_and_how_busy_the_engines_were(tmp_path: Path) -> None:
    outcome = call(*SMALL, "--trace", "traces", cwd=tmp_path)
    assert outcome.code == 0, outcome.stderr
    assert "The decode engine" in outcome.stdout
    assert "The prefill engine and the link" in outcome.stdout
    assert "KV sent" in outcome.stdout
    assert "The traces are in traces" in outcome.stdout


def test_bad_flags_are_refused(tmp_path: Path) -> None:
    call(*SMALL, "--kv-link-gb-per-s", "0", cwd=tmp_path).refused("--kv-link-gb-per-s", "above 0")
    call(*SMALL, "--split", "0+2", cwd=tmp_path).refused("--split = '0+2'", "2+1")
    call(*SMALL, "--split", "2+1", "-dp", "2", cwd=tmp_path).refused("--data-parallel-size", "give one of the two")
    call("split", "no such file", cwd=tmp_path).refused("no such file")


def test_the_sides_may_be_of_different_sizes(tmp_path: Path) -> None:
    outcome = call(*SMALL, "--split", "2+1", "--router", "round-robin", "--trace", "traces", "--json", cwd=tmp_path)
    assert outcome.code == 0, outcome.stderr
    both = json.loads(outcome.stdout)
    assert (both["prefill_engines"], both["decode_engines"]) == (2, 1)
    first, second = both["prefill"]["ranks"]
    assert abs(first["requests"] - second["requests"]) <= 1
    assert both["decode"].get("ranks") in ([], None)
    assert both["decode"]["requests_finished"] == both["prefill"]["requests_finished"]
    for name in ("prefill/rank-0", "prefill/rank-1", "decode"):
        assert json.loads(call("report", f"traces/{name}", "--json", cwd=tmp_path).stdout)["requests_finished"] > 0
    shown = call(*SMALL, "--split", "1+2", cwd=tmp_path).stdout
    assert "The 2 decode engines" in shown
    assert "The prefill engine and the link" in shown
