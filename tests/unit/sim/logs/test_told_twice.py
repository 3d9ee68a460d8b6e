"""Requests that a log tells of twice, and records that are about several."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tokenyard.errors import WorkloadError
from tokenyard.workload.load import read_workload
from tokenyard.workload.logs.logged import LogOptions
from tokenyard.workload.record import Workload


def _request(i: int, **more: Any) -> dict[str, Any]:
    usage = {"prompt_tokens": 100 + 7 * i, "completion_tokens": 10 + 3 * i}
    return {"timestamp": f"2026-11-20T14:00:{i * (i + 1) // 2:02d}.{i + 1}25Z", **usage, **more}


def _read(tmp_path: Path, records: list[dict[str, Any]], log: LogOptions | None = None) -> Workload:
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in records))
    return read_workload(path, log=log)


def _codes(workload: Workload) -> set[str]:
    return {each.code for each in workload.remarks if each.warning}


def test_copies_of_a_record_count_once(tmp_path: Path) -> None:
    records = [_request(i, id=f"r{i}") for i in range(9)]
    workload = _read(tmp_path, [*records, *records[4:]])
    assert len(workload) == 9
    assert "left out: 5 copies of others (of the same id, time and lengths)" in {e.text for e in workload.remarks}


def test_one_id_with_other_lengths_is_a_warning(tmp_path: Path) -> None:
    """Parts of an answer that are logged as they come: which of them counts is not said."""
    records = [_request(i, id=f"r{i}") for i in range(9)]
    parts = [each | {"completion_tokens": 1} for each in records[:4]]
    assert _codes(_read(tmp_path, [*parts, *records])) == {"repeated_ids"}


def test_twins_without_ids_are_a_warning(tmp_path: Path) -> None:
    records = [_request(i) for i in range(9)]
    assert not _codes(_read(tmp_path, records))
    assert _codes(_read(tmp_path, records * 2)) == {"twins"}


def _span(i: int, seconds: float, parent: str | None, **more: Any) -> dict[str, Any]:
    return _request(i, span_id=more.pop("span_id", f"s{i}"), parent_id=parent, latency_ms=1000 * seconds, **more)


def test_a_span_around_others_is_no_request(tmp_path: Path) -> None:
    records = []
    for i in range(9):
        records += [_span(i, 2.0, None, span_id=f"chain{i}"), _span(i, 1.5, f"tool{i}")]
        records.append({"span_id": f"tool{i}", "parent_id": f"chain{i}", "timestamp": "2026-11-20T14:00:00Z"})
    workload = _read(tmp_path, records)
    assert len(workload) == 9
    assert "left out: 9 spans around others that say tokens" in {each.text for each in workload.remarks}


def test_a_message_that_answers_another_is_one(tmp_path: Path) -> None:
    """Chats call the message before their parent: it ended before the next one began."""
    workload = _read(tmp_path, [_span(i, 1.0, f"s{i - 1}" if i else None) for i in range(9)])
    assert len(workload) == 9
    assert not _codes(workload)


def test_parents_without_durations_are_a_warning(tmp_path: Path) -> None:
    records = [_request(i, span_id=f"s{i}", parent_id=f"s{i - 1}" if i % 2 else None) for i in range(9)]
    workload = _read(tmp_path, records)
    assert len(workload) == 9
    assert _codes(workload) == {"nested"}


def test_a_circle_of_parents_ends(tmp_path: Path) -> None:
    assert len(_read(tmp_path, [_span(i, 1.0, f"s{(i + 1) % 9}") for i in range(9)])) == 9


def test_a_chain_of_messages_may_be_long(tmp_path: Path) -> None:
    """Its cost grows with the messages, and not with their pairs."""
    times = {"latency_ms": 1000, "prompt_tokens": 5, "completion_tokens": 2}
    records = [{"timestamp": 1.764e9 + i, "span_id": f"s{i}", "parent_id": f"s{i - 1}", **times} for i in range(5_000)]
    assert len(_read(tmp_path, records)) == 5_000


@pytest.mark.parametrize("name", ["num_model_requests", "requests", "request_count"])
def test_a_sum_of_several_requests_is_refused(tmp_path: Path, name: str) -> None:
    records = [_request(i, **{name: 1 + i}) for i in range(9)]
    with pytest.raises(WorkloadError, match=f"{name} = 2: a record is the sum of several requests"):
        _read(tmp_path, records)
    assert len(_read(tmp_path, records, LogOptions(columns={"prompt_len": "prompt_tokens"}))) == 9
    assert len(_read(tmp_path, [each | {name: 1} for each in records])) == 9
