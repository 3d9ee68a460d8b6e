"""``tokenyard whatif`` as a user calls it: a recorded run, what cannot be asked, and where nobody can be asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.integration.command import call

FLAGS = ("--limit", "6", "--rate-scale", "30", "--num-gpu-blocks-override", "900", "--max-num-seqs", "2")
SAME_TIMES = ("--latency", "constant:0.02", "--no-async-scheduling", "--max-model-len", "8192", "--advice", "none")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whatif")
    assert call("run", "chat", *FLAGS, *SAME_TIMES, "--trace", "trace", cwd=folder).code == 0
    return folder


def test_an_answer_is_what_a_run_with_that_setting_reports(folder: Path) -> None:
    told = json.loads(call("whatif", "trace", "--set", "max_num_seqs=4", "--json", cwd=folder).stdout)
    assert told["self_check"]["parting"] is None
    happened = json.loads(call("run", "chat", *FLAGS[:-1], "4", *SAME_TIMES, "--json", cwd=folder).stdout)
    then = {each["name"]: each["variant"] for each in told["variants"][0]["figures"]}
    for name in ("ttft_ms", "tpot_ms", "e2e_ms", "queue_ms"):
        assert then[f"{name}.mean"] == pytest.approx(happened[name]["mean"], rel=1e-6)
    assert then["prefix_hit_rate.local"] == pytest.approx(happened["prefix_hit_rate"]["local"])
    assert told["variants"][0]["serve_flags"] == ["--max-num-seqs", "4"]


def test_the_tables(folder: Path) -> None:
    shown = call("whatif", "trace", "--set", "max_num_seqs=4", "--policy", "continuum-ttl", cwd=folder)
    assert shown.code == 0
    assert "The run as it was, replayed" in shown.stdout
    assert "With max_num_seqs=4" in shown.stdout
    assert "With scheduling_policy=continuum-ttl" in shown.stdout
    assert "all 1," in shown.stdout or "steps are the same" in shown.stdout


def test_without_a_question_the_check_is_shown(folder: Path) -> None:
    shown = call("whatif", "trace", cwd=folder)
    assert shown.code == 0
    assert "With " not in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--set", "nothing=1"), "use one of: async_scheduling"),
        (("--set", "max_num_seqs=x"), "give a whole number"),
        (("--policy", "nobody.py:Nothing"), "nobody.py"),
    ],
)
def test_what_cannot_be_asked_is_said_before_anything_is_replayed(
    arguments: tuple[str, ...], said: str, folder: Path
) -> None:
    call("whatif", "trace", *arguments, cwd=folder).refused(said)


def test_a_poor_fit_is_not_passed_over(folder: Path) -> None:
    """Every step of the trace is said to have begun ever later than it did: no price of a token explains that."""
    (path,) = (folder / "trace").glob("*.steps.jsonl")
    stretched = folder / "stretched.steps.jsonl"
    with stretched.open("w") as out:
        for line in path.read_text().splitlines():
            record = json.loads(line)
            for name in ("ts", "arrival_time", "first_scheduled_time", "first_token_time", "finished_time"):
                if name in record:
                    record[name] = record[name] ** 2
            out.write(json.dumps(record) + "\n")
    call("whatif", stretched, "--set", "max_num_seqs=4", cwd=folder).refused("off by more than 10 %", "--yes goes on")
    assert call("whatif", stretched, cwd=folder).code == 0, "the check alone is shown"
    gone_on = call("whatif", stretched, "--set", "max_num_seqs=4", "--yes", cwd=folder)
    assert "This is a poor fit" in gone_on.stdout


def test_other_emitters_say_too_little(folder: Path) -> None:
    (path,) = (folder / "trace").glob("*.steps.jsonl")
    bare = folder / "bare.steps.jsonl"
    bare.write_text("".join(line + "\n" for line in path.read_text().splitlines()[1:]))
    call("whatif", bare, cwd=folder).refused("does not say how its scheduler was configured")
