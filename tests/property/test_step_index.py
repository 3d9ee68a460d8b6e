"""The index of a file finds what reading the whole file finds, however the file is cut up and however it grows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tokenyard.server.web import step_index
from tokenyard.server.web.step_index import StepIndex

STEPS = st.integers(0, 30)
RECORDS = st.fixed_dictionaries(
    {},
    optional={
        "text": st.sampled_from(['"step": 3', "x" * 40, "\\", '{"step":9}']),
        "inner": st.fixed_dictionaries({"step": STEPS}),
        "step": STEPS | st.none() | st.text(max_size=2) | st.just(2.5),
        "ts": st.floats(0, 9),
    },
)
LINES = st.one_of(
    RECORDS.map(lambda record: json.dumps(record).encode()),
    RECORDS.map(lambda record: json.dumps(record, separators=(",", ":")).encode()),
    st.binary(max_size=8).map(lambda line: line.replace(b"\n", b"")),
)


def found_by_reading(text: bytes, first: int, last: int) -> list[bytes]:
    return [line for line in text.split(b"\n")[:-1] if first <= step_of(line) <= last]


def step_of(line: bytes) -> float:
    try:
        record: Any = json.loads(line)
    except ValueError:
        return -1
    step = record.get("step") if isinstance(record, dict) else None
    return step if type(step) is int else -1


@given(
    parts=st.lists(st.lists(LINES, max_size=8), min_size=1, max_size=3),
    bounds=st.tuples(STEPS, STEPS),
    stretch=st.integers(1, 200),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_there_is_found(
    parts: list[list[bytes]],
    bounds: tuple[int, int],
    stretch: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(step_index, "_STRETCH", stretch)
    path = tmp_path / "t.steps.jsonl"
    path.write_bytes(b"")
    index, text = StepIndex(path), b""
    first, last = sorted(bounds)
    for part in parts:
        text += b"".join(line + b"\n" for line in part)
        path.write_bytes(text + b'{"step":')  # the beginning of the next line
        assert list(index.lines(first, last)) == found_by_reading(text, first, last)
