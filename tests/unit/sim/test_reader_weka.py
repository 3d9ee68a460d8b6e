"""WEKA sessions: keep/new decoding, chains, sub-agents."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenyard.errors import WorkloadError
from tokenyard.workload.load import read_workload
from tokenyard.workload.readers.lines import ReadOptions
from tokenyard.workload.readers.published import read_weka
from tokenyard.workload.tokens import HashedTokens

Writer = Callable[..., Path]


def call(tokens: int, keep: int, *new: list[int], t: float = 0.0, **changes: Any) -> dict[str, Any]:
    return {"t": t, "type": "n", "in": tokens, "out": 5, "keep": keep, "new": list(new), "api_time": 2.0, **changes}


def session(*requests: dict[str, Any], name: str = "s1", block_size: int = 4) -> dict[str, Any]:
    return {"id": name, "block_size": block_size, "hash_id_scope": "local", "requests": list(requests)}


def subagent(*requests: dict[str, Any], t: float, seconds: float | None) -> dict[str, Any]:
    duration = None if seconds is None else seconds * 1000
    return {"t": t, "type": "subagent", "agent_id": "x", "duration_ms": duration, "requests": list(requests)}


def test_ids_are_kept_and_added(write_lines: Writer) -> None:
    path = write_lines(
        session(
            call(14, 0, [1, 3], think_time=0.0),
            call(22, 3, [4, 2], t=10.0, think_time=8.0, type="s", out=0),
            call(13, 2, [90, 1], t=20.0, think_time=None),
        )
    )
    workload = read_workload(path)
    ids = []
    for each in workload:
        assert isinstance(each.prompt, HashedTokens)
        ids.append(each.prompt.hash_ids().tolist())
    assert ids == [[1, 2, 3], [1, 2, 3, 4, 5], [1, 2, 90]]
    assert [each.num_prompt_tokens for each in workload] == [14, 22, 13]
    assert [each.after for each in workload] == [(), ("s1_t0",), ("s1_t1",)]
    assert [each.gap for each in workload] == [0.0, 8.0, 8.0]
    assert [each.max_tokens for each in workload] == [5, 1, 5]
    assert [each.is_last_step for each in workload] == [False, False, True]
    a, b, c = (each.prompt.tokens().tolist() for each in workload)
    assert a[:12] == b[:12]
    assert c[:8] == a[:8]
    assert c[8:12] != a[8:12]
    assert a[12:] != b[12:14]


def test_a_call_that_ends_with_a_tool_says_so(write_lines: Writer) -> None:
    path = write_lines(session(call(4, 0, stop="tool_use"), call(8, 0, stop="end_turn"), call(9, 0)))
    assert [each.this_func_call for each in read_workload(path)] == ["tool", "", None]


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 30), st.lists(st.tuples(st.integers(0, 50), st.integers(1, 9)))), max_size=6))
def test_decoding_is_keep_then_new(tmp_path_factory: pytest.TempPathFactory, calls: list[Any]) -> None:
    import json  # noqa: PLC0415

    expected: list[list[int]] = []
    requests = []
    previous: list[int] = []
    for keep, ranges in calls:
        kept = min(keep, len(previous))
        previous = previous[:kept] + [first + i for first, count in ranges for i in range(count)]
        expected.append(previous)
        requests.append(call(len(previous) * 4 + 1, kept, *map(list, ranges)))
    if not requests:
        return
    path = tmp_path_factory.mktemp("weka") / "w.jsonl"
    path.write_text(json.dumps(session(*requests)))
    decoded = [each.prompt for each in read_weka(path, ReadOptions())]
    assert [prompt.hash_ids().tolist() for prompt in decoded if isinstance(prompt, HashedTokens)] == expected


def test_ids_are_local_to_the_session(write_lines: Writer) -> None:
    one, two = call(8, 0, [1, 2]), call(8, 0, [1, 2])
    a, b = read_workload(write_lines(session(one, name="s1"), session(two, name="s2")))
    assert a.prompt.tokens().tolist() != b.prompt.tokens().tolist()


def test_sessions_arrive_in_a_seeded_process(write_lines: Writer) -> None:
    path = write_lines(*(session(call(4, 0, [1, 1]), name=f"s{i}") for i in range(400)))
    starts = [each.arrival_time for each in read_workload(path, session_rate=2.0, seed=3)]
    assert starts[0] == 0.0
    assert starts == sorted(starts)
    assert starts == [each.arrival_time for each in read_workload(path, session_rate=2.0, seed=3)]
    assert starts[-1] == pytest.approx(200, rel=0.2)
    assert len(read_workload(path, limit=7)) == 7


def test_the_call_after_subagents_waits_for_them(write_lines: Writer) -> None:
    """Two sub-agents run at the same time from 3 s on; the second ends last, at 23 s; 7 s later the parent goes on."""
    path = write_lines(
        session(
            call(4, 0, [1, 1]),
            subagent(call(4, 0, [50, 1]), call(8, 1, [51, 1], t=5.0, think_time=3.0), t=13.0, seconds=10.0),
            subagent(call(4, 0, [60, 1]), t=23.0, seconds=20.0),
            call(8, 1, [2, 1], t=30.0, think_time=28.0),
        )
    )
    requests = {each.request_id: each for each in read_workload(path)}
    assert list(requests) == ["s1_t0", "s1_a1_t0", "s1_a1_t1", "s1_a2_t0", "s1_t1"]
    assert requests["s1_a1_t0"].after == ("s1_t0",)
    assert requests["s1_a1_t0"].gap == pytest.approx(1.0)
    assert requests["s1_a1_t1"].gap == 3.0
    assert requests["s1_a2_t0"].after == ("s1_t0",)
    assert set(requests["s1_t1"].after) == {"s1_t0", "s1_a1_t1", "s1_a2_t0"}
    assert requests["s1_t1"].gap == pytest.approx(7.0)
    assert requests["s1_a1_t1"].is_last_step
    assert requests["s1_a1_t0"].job_id == "s1_a1"
    assert requests["s1_t1"].is_last_step


def test_a_subagent_that_outlives_the_next_call_is_not_waited_for(write_lines: Writer) -> None:
    path = write_lines(
        session(
            call(4, 0, [1, 1]),
            subagent(call(4, 0, [50, 1]), call(4, 1, t=90.0), t=2.5, seconds=None),
            call(8, 1, [2, 1], t=30.0, think_time=28.0),
        )
    )
    last = read_workload(path).requests[-1]
    assert last.after == ("s1_t0",)
    assert last.gap == 28.0


def test_a_subagent_before_any_call_starts_by_the_clock(write_lines: Writer) -> None:
    path = write_lines(session(subagent(call(4, 0, [5, 1]), t=13.0, seconds=10.0), call(4, 0, [1, 1], t=14.0)))
    first, second = read_workload(path)
    assert (first.arrival_time, first.after) == (3.0, ())
    assert second.after == ("s1_a0_t0",)
    assert second.gap == pytest.approx(1.0)


def test_real_gaps_are_the_recorded_think_times(shared: Path) -> None:
    workload = read_workload(shared / "data/traces/weka_claude_code_sessions.jsonl.gz", limit=5)
    chained = [each for each in workload if len(each.after) == 1]
    assert len(chained) == 737
    assert all(each.gap >= 0 for each in workload)
    assert sorted(each.gap for each in chained)[len(chained) // 2] == pytest.approx(10, abs=6)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (session(call(8, 1, [1, 1])), "call 0 of s1: keep = 1, but the previous call has 0 ids"),
        (session(call(8, 0, [1, 9])), "call 0 of s1: 9 ids of 4 tokens for 8 tokens"),
        (session(call(8, 0, [1, 0])), "requests[0].new[0][1] = 0: give a whole number from 1"),
        (session({**call(8, 0), "new": [[1, 2, 3]]}), "requests[0].new[0] = [1, 2, 3]: give a list of 2 elements"),
        (
            session({"t": 0, "type": "subagent", "duration_ms": 1e300}),
            "requests[0].duration_ms = 1e+300: give a number",
        ),
        (session({"t": 0}), "requests[0].type is missing: give n or s or subagent"),
        (session(call(-8, 0)), "requests[0].in = -8: give a whole number from 1"),
        (session({"t": 0, "type": "n"}), "call 0 of s1: has no 'in'"),
        (session({"t": 0, "type": "zzz"}), "requests[0].type = 'zzz': give n or s or subagent"),
        ({**session(), "hash_id_scope": "global"}, "hash_id_scope = 'global': give local"),
        (session(block_size=0), "block_size = 0: give a whole number from 1 to 1048576"),
    ],
)
def test_bad_sessions(write_lines: Writer, bad: object, message: str) -> None:
    path = write_lines(session(call(4, 0, [1, 1]), name="s0"), bad)
    with pytest.raises(WorkloadError) as caught:
        read_workload(path)
    assert str(caught.value).startswith(f"{path}:2: ")
    assert message in str(caught.value)
