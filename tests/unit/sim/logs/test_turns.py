"""Logs that say sessions and count no hits: which prompts begin alike."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tokenyard import Deployment, run
from tokenyard.errors import ConfigError
from tokenyard.workload.load import read_workload
from tokenyard.workload.logs.logged import LogOptions, Prefixes
from tokenyard.workload.readers.plain import write_plain
from tokenyard.workload.record import Workload, WorkloadRequest
from tokenyard.workload.tokens import Segment, StreamTokens


def _log(tmp_path: Path, *rows: tuple[float, str, int, int], **more: Any) -> Path:
    """A JSON line per (time, session, prompt, answer)."""
    path = tmp_path / "log.jsonl"
    lines = [
        {"timestamp": at, "session_id": session, "prompt_tokens": prompt, "completion_tokens": answer, **more}
        for at, session, prompt, answer in rows
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def _shared(workload: Workload) -> list[int]:
    """How many tokens each prompt but the first has in common with what was said up to the one before."""
    made = []
    for one, other in pairwise(workload):
        said = [*one.prompt.tokens().tolist(), *_answer(one)]
        prompt = other.prompt.tokens().tolist()
        made.append(
            next((i for i, (a, b) in enumerate(zip(said, prompt, strict=False)) if a != b), min(len(said), len(prompt)))
        )
    return made


def _answer(request: WorkloadRequest) -> list[int]:
    start = request.num_prompt_tokens
    tokens: list[int] = StreamTokens(Segment(request.output_seed, start, start + request.max_tokens)).tokens().tolist()
    return tokens


def test_a_turn_that_has_room_for_the_answer_begins_with_both(tmp_path: Path) -> None:
    workload = read_workload(_log(tmp_path, (0, "a", 1000, 200), (20, "a", 1350, 80), (40, "a", 1430, 10)))
    assert _shared(workload) == [1200, 1430]
    assert any("2 of 2 later turns of sessions" in note for note in workload.notes)


def test_a_turn_that_is_longer_but_not_by_the_answer_begins_with_the_prompt(tmp_path: Path) -> None:
    """Thoughts are left out of what is sent again."""
    workload = read_workload(_log(tmp_path, (0, "a", 1000, 900), (20, "a", 1100, 800), (40, "a", 1250, 10)))
    assert _shared(workload) == [1000, 1100]


def test_a_shorter_turn_begins_anew(tmp_path: Path) -> None:
    rows = [
        (0.0, "a", 1000, 200),
        (20.0, "a", 1300, 50),
        (40.0, "a", 1400, 50),
        (60.0, "a", 1500, 50),
        (80.0, "a", 400, 5),
    ]
    assert _shared(read_workload(_log(tmp_path, *rows))) == [1200, 1350, 1450, 0]


def test_what_runs_at_once_goes_on_once(tmp_path: Path) -> None:
    """Two calls after one: the first goes on, the second shares nothing; sessions do not mix."""
    rows = [
        (0.0, "a", 1000, 200),
        (20.0, "a", 1300, 50),
        (20.5, "a", 1250, 50),
        (21.0, "b", 2000, 5),
        (40.0, "a", 1360, 9),
    ]
    rows += [(60.0, "a", 1400, 9), (80.0, "b", 2300, 9)]
    assert _shared(read_workload(_log(tmp_path, *rows)))[:4] == [1200, 0, 0, 0]


def test_a_turn_does_not_go_on_what_still_runs(tmp_path: Path) -> None:
    path = _log(tmp_path, (0, "a", 1000, 200), (20, "a", 1350, 80), duration_ms=60_000)
    workload = read_workload(path)
    assert _shared(workload) == [0]
    assert any("0 of 1 later turns" in note for note in workload.notes)


def test_sessions_whose_prompts_come_and_go_are_not_conversations(tmp_path: Path) -> None:
    rows = [(10.0 * i, "a", [700, 300, 900, 200, 500, 100][i], 40) for i in range(6)]
    workload = read_workload(_log(tmp_path, *rows))
    assert _shared(workload) == [0] * 5
    assert any("do not grow (2 of 5 later turns)" in note for note in workload.notes)


def test_hits_that_a_log_counts_are_believed(tmp_path: Path) -> None:
    """Also if there were none."""
    path = _log(tmp_path, (0, "a", 1000, 200), (20, "a", 1350, 80), cached_tokens=0)
    assert _shared(read_workload(path)) == [0]


def test_prefixes_as_recorded(tmp_path: Path) -> None:
    path = _log(tmp_path, (0, "a", 1000, 200), (20, "a", 1350, 80))
    workload = read_workload(path, log=LogOptions(prefixes=Prefixes.RECORDED))
    assert _shared(workload) == [0]
    assert not any("later turns" in note for note in workload.notes)
    plain = tmp_path / "plain.jsonl"
    plain.write_text('{"arrival_time": 0, "prompt_len": 5, "max_tokens": 1}\n')
    with pytest.raises(ConfigError, match="prefixes = 'recorded'"):
        read_workload(plain, format="plain", log=LogOptions(prefixes=Prefixes.RECORDED))


def test_turns_are_found_in_the_cache(tmp_path: Path) -> None:
    path = _log(tmp_path, (0, "a", 1000, 200), (20, "a", 1350, 80), (40, "a", 1430, 10))
    cached = run(str(path), Deployment(model="Qwen/Qwen3-8B", gpu="l40s")).requests["cached_tokens"]
    assert cached.tolist() == [0, 1184, 1424]  # whole blocks of 1,199 and of 1,429: the last token has no KV yet


def _two_turns(tmp_path: Path) -> Path:
    """A second turn 5 s after the first one's answer, which took 2 s."""
    return _log(tmp_path, (0, "a", 1000, 200), (7, "a", 1350, 80), (7.5, "b", 100, 5), duration_ms=2000)


def test_turns_follow_the_answer_before(tmp_path: Path) -> None:
    path = _two_turns(tmp_path)
    first, second, other = read_workload(path, log=LogOptions(turns_follow=True), rate_scale=5)
    assert (second.after, second.gap, second.arrival_time) == ((first.request_id,), 5.0, 0.0)
    assert (other.after, other.arrival_time) == ((), 1.5)
    assert [each.after for each in read_workload(path)] == [(), (), ()]
    deployment = Deployment(model="Qwen/Qwen3-8B", gpu="l40s")
    rows = run(str(path), deployment, turns_follow=True).requests
    one, then = ([*rows["prompt_tokens"]].index(length) for length in (1000, 1350))
    assert rows["arrival_s"][then] == pytest.approx(rows["arrival_s"][one] + rows["e2e_ms"][one] / 1e3 + 5.0)


def test_a_workload_that_was_written_keeps_what_follows(tmp_path: Path) -> None:
    made = read_workload(_two_turns(tmp_path), log=LogOptions(turns_follow=True))
    write_plain(made, tmp_path / "w.jsonl")
    again = read_workload(tmp_path / "w.jsonl")
    assert [(each.after, each.gap) for each in again] == [(each.after, each.gap) for each in made]
    assert _shared(again) == _shared(made)


def test_what_follows_has_to_be_known(tmp_path: Path) -> None:
    silent = _log(tmp_path, (0, "a", 1000, 200), (7, "a", 1350, 80))
    with pytest.raises(ConfigError, match="1 requests say no duration"):
        read_workload(silent, log=LogOptions(turns_follow=True))
    with pytest.raises(ConfigError, match="no sessions whose prompts grow"):
        read_workload(silent, log=LogOptions(turns_follow=True, prefixes=Prefixes.RECORDED))
