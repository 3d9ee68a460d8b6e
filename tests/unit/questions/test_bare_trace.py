"""A trace without configuration, arrivals and ends is replayed as ours is, as far as it tells."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.integration.command import call
from tests.support.bare import Engine, write_bare
from tests.unit.explain.test_bare import chat

import tokenyard as ty
from tokenyard.errors import TraceError
from tokenyard.questions.recorded.recorded_run import read_run

_OURS_ALONE = {"total_scheduled_tokens", "recomputed_tokens", "running_consumed_blocks", "gpu_cached_blocks"}


def stripped(trace: Path, to: Path) -> Path:
    """The trace as document 000 has it: snapshots, decisions and the requests file."""
    to.mkdir()
    for file in trace.iterdir():
        records = [json.loads(line) for line in file.read_text().splitlines()]
        kept = [each for each in records if each.get("event") in (None, "step_snapshot", "step_decision")]
        plain = [{name: value for name, value in each.items() if name not in _OURS_ALONE} for each in kept]
        (to / file.name).write_text("".join(json.dumps(each) + "\n" for each in plain))
    return to


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Sessions of four turns, as we record them and as the document has them."""
    folder = tmp_path_factory.mktemp("bare")
    rows, file = [], folder / "turns.jsonl"
    for job in range(12):
        length = 0
        for turn in range(4):
            length += 150 + 37 * job
            row = {"request_id": f"j{job}t{turn}", "prompt_len": length, "max_tokens": 20 + job, "job_id": f"j{job}"}
            rows.append(row | ({"after": [f"j{job}t{turn - 1}"], "gap": 0.8} if turn else {"arrival_time": job * 0.3}))
            length += 20 + job
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    flags = (
        "--model",
        "Qwen/Qwen3-8B",
        "--gpu",
        "l40s",
        "--max-num-seqs",
        "4",
        "--record-requests",
        "--json",
        "--front-end-delay=0s",
    )
    call("run", str(file), *flags, "--trace", "own", cwd=folder)
    return folder / "own", stripped(folder / "own", folder / "theirs")


def test_its_requests_are_those_of_the_whole_trace(traces: tuple[Path, Path]) -> None:
    own, theirs = map(read_run, traces)
    assert len(theirs.workload) == len(own.workload) == 48
    for ours, bare in zip(own.workload.requests, theirs.workload.requests, strict=True):
        assert (bare.request_id, bare.job_id, bare.after) == (ours.request_id, ours.job_id, ours.after)
        assert (len(bare.prompt), bare.max_tokens) == (len(ours.prompt), ours.max_tokens)
        assert bare.arrival_time == pytest.approx(ours.arrival_time)
        assert bare.gap == pytest.approx(ours.gap, abs=1e-6)
    assert theirs.scheduler.max_num_seqs == 4
    assert "names no configuration" in theirs.workload.notes[0]


def test_a_what_if_says_the_same_of_both(traces: tuple[Path, Path]) -> None:
    found = []
    for trace in traces:
        figures = {each.name: each for each in ty.whatif(trace, {"max_num_seqs": 16}).variants[0].figures}
        found.append(figures["ttft_ms.mean"].change)
    assert None not in found
    assert found[1] == pytest.approx(found[0], abs=0.05)


def test_without_a_requests_file_lengths_are_what_was_computed(tmp_path: Path) -> None:
    turns = chat(4)
    write_bare(tmp_path, Engine(seats=8), turns, 60.0)
    run = read_run(tmp_path)
    found = {len(each.prompt) for each in run.workload.requests}
    assert found <= {turn.prompt for turn in turns}
    assert any("no requests file" in note for note in run.workload.notes)


def test_snapshots_without_limits_are_not_enough(tmp_path: Path, traces: tuple[Path, Path]) -> None:
    for file in traces[1].iterdir():
        (tmp_path / file.name).write_text(file.read_text().replace("max_num_running_reqs", "seats"))
    with pytest.raises(TraceError, match="does not say how its scheduler was configured"):
        read_run(tmp_path)
