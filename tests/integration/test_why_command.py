"""``tokenyard why`` as a user calls it: whole traces, and bad input. Real workloads where the shared data are there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.integration.command import call

from check_why import check

WORKLOADS = {
    "mooncake": ("mooncake_conversation.jsonl.gz", ["--limit", "60"]),
    "azure": ("azure2023_conv.csv.gz", ["--limit", "100", "--max-num-seqs", "4"]),
    "weka": ("weka_claude_code_sessions.jsonl.gz", ["--limit", "1", "--max-model-len", "524288", "--gpu", "h200"]),
}


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("why")
    flags = ["--limit", "3", "--max-num-seqs", "2", "--trace", str(folder / "trace")]
    assert call("run", "agentic", *flags, cwd=folder).code == 0
    return folder / "trace"


@pytest.mark.parametrize("name", WORKLOADS)
def test_waits_of_a_real_workload_are_divided_without_rest(
    name: str, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "1")  # sessions are longer than the model was made for
    file, flags = WORKLOADS[name]
    path = shared / "data" / "traces" / file
    assert path.exists(), "the shared data have changed"
    assert check([str(path), *flags]) == []


def test_the_longest_wait_is_explained(trace: Path, tmp_path: Path) -> None:
    everybody = json.loads(call("why", trace, "--json", cwd=tmp_path).stdout)
    longest = everybody["longest"][0]
    one = json.loads(call("why", trace, longest["request_id"], "--json", cwd=tmp_path).stdout)
    assert one["waited_us"] == longest["waited_us"] == sum(span["end_us"] - span["start_us"] for span in one["spans"])
    assert one["reasons"][0]["reason"] == longest["reason"]
    shown = call("why", trace, longest["request_id"], cwd=tmp_path).stdout
    assert f"What it waited for: {longest['waited_us'] / 1e6:.1f} s" in shown or "ms" in shown
    assert longest["request_id"] in call("why", trace, cwd=tmp_path).stdout


def test_a_request_that_is_not_there(trace: Path, tmp_path: Path) -> None:
    call("why", trace, "agent_0000_t999", cwd=tmp_path).refused("no request 'agent_0000_t999'", "; it has 'agent_000")


def test_a_trace_in_which_nothing_is_stuck(trace: Path, tmp_path: Path) -> None:
    shown = call("why", "--stuck", trace, cwd=tmp_path)
    assert shown.code == 0
    assert shown.stdout.startswith("Nothing is stuck: a request got on, or waited for an event, in all ")
    assert json.loads(call("why", trace, "--stuck", "--json", cwd=tmp_path).stdout)["places"] == []
    call("why", "--stuck", trace, "agent_0000", cwd=tmp_path).refused("leave the request out")


def test_a_replay_that_is_stuck_says_so_and_its_trace_says_where(tmp_path: Path) -> None:
    policy = "from tokenyard import Policy\n\n\nclass Hoarder(Policy):\n    def keeps_blocks(self, now, request):\n"
    (tmp_path / "hoarder.py").write_text(policy + "        return True\n", encoding="utf-8")
    flags = ["--limit", "12", "--vllm-version", "0.33", "--num-gpu-blocks-override", "2200", "--trace", "trace"]
    run = call("run", "agentic", *flags, "--scheduling-policy", "hoarder.py:Hoarder", cwd=tmp_path)
    run.refused("the engine is stuck at request 'agent_")
    answer = json.loads(call("why", "--stuck", "trace", "--json", cwd=tmp_path).stdout)
    place = answer["places"][-1]
    assert place["ends_trace"]
    assert f"'{place['request_id']}': {place['reason']} ({place['needed_blocks']} blocks needed" in run.stderr
    assert place["num_running"] == 0
    assert f"and {place['num_waiting'] - 1} more wait with it" in run.stderr
    shown = call("why", "trace", "--stuck", cwd=tmp_path).stdout
    assert place["request_id"] in shown
    assert "none of them will let go" in " ".join(shown.split())


def test_no_trace(tmp_path: Path) -> None:
    call("why", tmp_path / "nowhere", "a", cwd=tmp_path).refused("nowhere: no such file or directory")


def test_ids_with_markup_are_shown_as_they_are(tmp_path: Path) -> None:
    name = "[red]a[/red]\x1b[31m"
    empty: dict[str, object] = {"num_running": 0, "num_waiting": 0, "running_req_ids": [], "waiting_req_ids": []}
    waits = empty | {"num_waiting": 1, "waiting_req_ids": [name]}
    lines = [
        {"event": "step_snapshot", "step": 0, "ts": 1.0, **waits},
        {"event": "step_decision", "step": 0, "ts": 1.0, "scheduled_new_req_ids": [], "num_scheduled_tokens": {}},
        {"event": "step_snapshot", "step": 1, "ts": 2.5, **empty},
    ]
    (tmp_path / "x.steps.jsonl").write_text("\n".join(map(json.dumps, lines)))
    outcome = call("why", tmp_path, name, cwd=tmp_path)
    assert outcome.code == 0, outcome.stderr
    assert "[red]a[/red]\N{REPLACEMENT CHARACTER}[31m" in outcome.stdout
    assert "1.500000 s" in outcome.stdout


@pytest.fixture
def served(tmp_path: Path) -> tuple[Path, list[str]]:
    """Two requests of one job, as vLLM names them: it appends to the id that it tells its client. The second waits."""
    told = [f"chatcmpl-{letter * 32}" for letter in "ab"]
    first, second = (f"{each}-{number:08x}" for number, each in enumerate(told))
    queues = {"running_req_ids": [first], "waiting_req_ids": [second]}
    jobs = {"running_job_ids": ["agent"], "waiting_job_ids": ["agent"]}
    lines = []
    for step in range(3):
        ts = 1.0 + step
        lines += [
            {"event": "step_snapshot", "step": step, "ts": ts, "num_running": 1, "num_waiting": 1, **queues, **jobs},
            {"event": "step_decision", "step": step, "ts": ts, "num_scheduled_tokens": {first: 1}}
            | {"scheduled_new_req_ids": [], "scheduled_running_req_ids": [first]},
        ]
    (tmp_path / "x.steps.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return tmp_path, [told[1], second]


@pytest.mark.parametrize("columns", ["60", "80"])
def test_long_ids_can_be_copied_and_the_one_that_a_client_knows_is_enough(
    served: tuple[Path, list[str]], columns: str
) -> None:
    folder, (told, whole) = served
    listed = call("why", folder, cwd=folder, env={"COLUMNS": columns}).stdout
    assert whole in [line.strip() for line in listed.splitlines()]
    one = call("why", folder, told, cwd=folder, env={"COLUMNS": columns})
    assert one.code == 0, one.stderr
    assert whole in one.stdout.partition("\n\n")[2].splitlines()[0]
    assert json.loads(call("why", folder, told[:12], "--json", cwd=folder).stdout)["request_id"] == whole
    call("why", folder, "chatcmpl-", cwd=folder).refused("2 ids begin with 'chatcmpl-'", "write more of one")


def test_a_job_is_explained_as_all_of_its_requests(served: tuple[Path, list[str]]) -> None:
    folder, (_, whole) = served
    shown = call("why", folder, "agent", cwd=folder)
    assert shown.code == 0, shown.stderr
    assert "1 of 2 requests of job agent waited" in shown.stdout
    assert json.loads(call("why", folder, "agent", "--json", cwd=folder).stdout)["longest"][0]["request_id"] == whole
