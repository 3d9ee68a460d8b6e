"""``tokenyard compare`` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from tests.integration.command import call, tokenyard

SMALL = ("chat", "--limit", "2", "--num-gpu-blocks-override", "2500", "--max-model-len", "32768")


def test_json_has_every_policy_load_and_metric(tmp_path: Path) -> None:
    done = call(
        "compare",
        *SMALL,
        "--policies",
        "fcfs,continuum-share",
        "--loads",
        "1,4",
        "--seeds",
        "2",
        "--json",
        cwd=tmp_path,
    )
    assert (done.code, done.stderr) == (0, "")
    comparison = json.loads(done.stdout)
    assert (comparison["policies"], comparison["loads"]) == (["fcfs", "continuum-share"], [1.0, 4.0])
    cells = comparison["cells"]
    assert [(cell["policy"], cell["load"]) for cell in cells] == [
        ("fcfs", 1.0),
        ("continuum-share", 1.0),
        ("fcfs", 4.0),
        ("continuum-share", 4.0),
    ]
    for cell in cells:
        assert cell["metrics"]["completion_s"]["mean"] > 0
        assert cell["metrics"]["completion_s"]["half"] > 0
        assert 0 < cell["metrics"]["hit_rate"]["mean"] < 100
    assert cells[0]["speedup"] == {"mean": 1.0, "half": 0.0}


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    arguments = ("compare", *SMALL, "--policies", "fcfs,continuum-ttl", "--json")
    assert tokenyard(*arguments, cwd=tmp_path).stdout == tokenyard(*arguments, cwd=tmp_path).stdout


def test_a_table_and_a_drawing(tmp_path: Path) -> None:
    done = call("compare", *SMALL, "--policies", "fcfs,bypass", "--plot", "plot.svg", cwd=tmp_path)
    assert (done.code, done.stderr) == (0, "")
    assert "load 1" in done.stdout
    assert [line.split()[:2] for line in done.stdout.splitlines() if line.strip().startswith(("fcfs", "bypass"))] == [
        ["fcfs", "1.00"],
        ["bypass", "1.00"],
    ]
    root = ET.fromstring((tmp_path / "plot.svg").read_text(encoding="utf-8"))
    texts = {element.text for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"fcfs", "bypass", "1"} <= texts
    assert "Every policy gave the same figures" in done.stdout


DRAFTS = ("--num-speculative-tokens", "2", "--acceptance-rates", "0.9,0.5")


def test_drafts_are_those_of_single_runs_with_the_same_seeds(tmp_path: Path) -> None:
    runs = [
        json.loads(call("run", *SMALL, *DRAFTS, "--seed", seed, "--json", cwd=tmp_path).stdout) for seed in ("3", "4")
    ]
    done = call("compare", *SMALL, *DRAFTS, "--policies", "fcfs", "--seed", "3", "--seeds", "2", "--json", cwd=tmp_path)
    (cell,) = json.loads(done.stdout)["cells"]
    rates = [100 * run["speculation"]["acceptance_rate"] for run in runs]
    assert rates[0] != rates[1], "each seed has dice of its own"
    assert cell["metrics"]["acceptance_rate"]["mean"] == pytest.approx(sum(rates) / 2)
    ttft = sum(run["ttft_ms"]["mean"] for run in runs) / 2e3
    assert cell["metrics"]["ttft_s"]["mean"] == pytest.approx(ttft)


def test_without_drafts_there_is_no_column_for_them(tmp_path: Path) -> None:
    plain = call("compare", *SMALL, "--policies", "fcfs", cwd=tmp_path)
    drafted = call("compare", *SMALL, *DRAFTS, "--policies", "fcfs", cwd=tmp_path)
    assert "acc %" not in plain.stdout
    assert "acc %" in drafted.stdout


def test_a_narrow_terminal_gets_several_tables_and_every_figure(tmp_path: Path) -> None:
    arguments = ("compare", *SMALL, *DRAFTS, "--policies", "fcfs,bypass", "--seeds", "2")
    wide, narrow = (call(*arguments, cwd=tmp_path, env={"COLUMNS": width}).stdout for width in ("200", "70"))
    assert [figures(wide, policy)[0] for policy in ("fcfs", "bypass")] == [
        figures(narrow, policy)[0] + [cell for part in figures(narrow, policy)[1:] for cell in part[3:]]
        for policy in ("fcfs", "bypass")
    ]
    assert len(figures(wide, "fcfs")) == 1
    assert len(figures(narrow, "fcfs")) > 1


def figures(text: str, policy: str) -> list[list[str]]:
    """The policy's row of every table, without its name."""
    return [line.split()[1:] for line in text.splitlines() if line.startswith(f"{policy} ")]


@pytest.mark.parametrize(
    ("flags", "fragments"),
    [
        (("--policies", "fcfs,lifo"), ("policies", "lifo", "continuum-ttl")),
        (("--policies", ","), ("policies", "at least one")),
        (("--policies", "fcfs,fcfs"), ("policies", "twice")),
        (("--loads", "1,x"), ("loads", "1,x")),
        (("--loads", "0"), ("--loads = '0'", "above 0")),
        (("--loads", "1,1"), ("loads", "twice")),
        (("--seeds", "0"), ("seeds",)),
        (("--plot", "."), ("plot", "directory")),
        (("--num-speculative-tokens", "0"), ("--num-speculative-tokens = 0",)),
        (("--num-speculative-tokens", "2", "--acceptance-rates", "2"), ("--acceptance-rates", "0 to 1")),
    ],
)
def test_mistakes_are_named(flags: tuple[str, ...], fragments: tuple[str, ...], tmp_path: Path) -> None:
    call("compare", *SMALL, *flags, cwd=tmp_path).refused(*fragments)


def test_refused_requests_are_mentioned(tmp_path: Path) -> None:
    done = call(
        "compare",
        "agentic",
        "--limit",
        "2",
        "--max-model-len",
        "5000",
        "--skip-refused",
        "--policies",
        "fcfs",
        cwd=tmp_path,
    )
    assert done.code == 0
    assert "were refused" in done.stderr


NEWEST_FIRST = """
from tokenyard.policies.simple import KeyedPolicy


class Newest(KeyedPolicy):
    def key(self, request):
        return (-request.arrival_time,)
"""


def test_a_policy_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "newest.py").write_text(NEWEST_FIRST, encoding="utf-8")
    busy = ("agentic", "--limit", "4", "--num-gpu-blocks-override", "2200", "--gpu", "a100-40gb")
    done = call("compare", *busy, "--policies", "fcfs,newest.py:Newest", "--json", cwd=tmp_path)
    assert (done.code, done.stderr) == (0, "")
    comparison = json.loads(done.stdout)
    assert comparison["policies"] == ["fcfs", "newest.py:Newest"]
    assert comparison["cells"][0]["metrics"] != comparison["cells"][1]["metrics"]
    flags = ("--scheduling-policy", "newest.py:Newest", "--trace", "trace")
    assert call("run", *busy, *flags, cwd=tmp_path).code == 0
    assert (tmp_path / "trace" / "sched_trace.Newest.steps.jsonl").exists()
    call("compare", *busy, "--policies", "fcfs,newest.py:Newst", cwd=tmp_path).refused("newest.py:Newest")


def test_policies_are_compared_by_requests_within_bounds(tmp_path: Path) -> None:
    done = call("compare", *SMALL, "--policies", "fcfs", "--slo", "ttft_p90=500ms", "--json", cwd=tmp_path)
    run = call("run", *SMALL, "--slo", "ttft_p90=500ms", "--advice", "none", "--json", cwd=tmp_path)
    cell, report = json.loads(done.stdout)["cells"][0], json.loads(run.stdout)
    assert cell["metrics"]["goodput"]["mean"] == pytest.approx(100 * report["goodput"]["share"])
    call("compare", *SMALL, "--slo", "itl_p99=50ms", cwd=tmp_path).refused("policies are compared by requests")
    call("compare", *SMALL, "--client-timeout", "30s", cwd=tmp_path).refused("jobs are compared whole")


ON_SMALL = ("--limit", "3", "--gpu", "l40s", "--model", "qwen3-8b", "--max-model-len", "8192", "--max-num-seqs", "2")


def test_settings_are_compared_as_runs_with_them(tmp_path: Path) -> None:
    words = ("chat", *ON_SMALL, "--rate-scale", "20")
    done = call("compare", *words, "--set", "max_num_seqs=4,16", "kv_cache_dtype=fp8", "--json", cwd=tmp_path)
    assert done.code == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["of_settings"] is True
    names = ["as it is", "max_num_seqs=4 kv_cache_dtype=fp8", "max_num_seqs=16 kv_cache_dtype=fp8"]
    assert told["policies"] == names
    for cell, flags in zip(told["cells"], ((), ("4", "fp8"), ("16", "fp8")), strict=True):
        own = [word for pair in zip(("--max-num-seqs", "--kv-cache-dtype"), flags, strict=False) for word in pair]
        alone = json.loads(call("run", *words, *own, "--advice", "none", "--json", cwd=tmp_path).stdout)
        assert cell["metrics"]["ttft_s"]["mean"] == pytest.approx(alone["ttft_ms"]["mean"] / 1e3)
        assert cell["metrics"]["output_tokens_per_s"]["mean"] == pytest.approx(
            alone["throughput"]["output_tokens_per_s"]
        )
    assert told["cells"][0]["metrics"] != told["cells"][2]["metrics"]
    shown = " ".join(call("compare", *words, "--set", "max_num_seqs=16", cwd=tmp_path).stdout.split())
    assert "faster with max_num_seqs=16 than as it is: one seed" in shown


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("chat", "--set", "max_num_seqs=4", "--policy", "fcfs"), "--set scheduling_policy=A,B names policies"),
        (("chat", "--set", "rate_scale=2"), "--set = 'rate_scale=2.0': all variants get the same requests"),
        (("chat", "--set", "split=1+1"), "a split is no single deployment"),
        (("chat", "--set", "nonsense=1"), "--set = 'nonsense': there is no such setting"),
        (("a", "b", "--set", "max_num_seqs=4"), "tokenyard whatif TRACE --set"),
    ],
)
def test_what_cannot_be_compared_by_settings(words: tuple[str, ...], names: str, tmp_path: Path) -> None:
    call("compare", *words, cwd=tmp_path).refused(names)
