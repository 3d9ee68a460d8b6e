"""A server over a small folder of traces, spoken to without a socket."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

STEPS = 40


def lines_of(*records: dict[str, Any]) -> bytes:
    return b"".join(msgspec.json.encode(record) + b"\n" for record in records)


def steps_text(count: int = STEPS) -> bytes:
    """A steps file: what ran, and a snapshot and a decision per step."""
    records: list[dict[str, Any]] = [
        {"event": "trace_start", "format_version": 1, "ts": 0.0, "host": "replay", "model": "toy", "gpu": "l4"}
    ]
    for step in range(count):
        records += [
            {"event": "step_snapshot", "step": step, "ts": step / 4, "policy": "fcfs", "total_blocks": 99},
            {
                "event": "step_decision",
                "step": step,
                "ts": step / 4,
                "policy": "fcfs",
                "num_scheduled_tokens": {"r": 1},
            },
        ]
    return lines_of(*records)


def requests_text(count: int = STEPS) -> bytes:
    return lines_of(*({"step": step, "queue": "running", "req_id": "r"} for step in range(count)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """``traces/run1`` holds a pair; beside ``traces`` lies what must not be read."""
    (tmp_path / "secret.steps.jsonl").write_text('{"event":"step_snapshot","step":0,"password":"hunter2"}\n')
    run = tmp_path / "traces" / "run1"
    run.mkdir(parents=True)
    (run / "sched_trace.fcfs.steps.jsonl").write_bytes(steps_text())
    (run / "sched_trace.fcfs.requests.jsonl").write_bytes(requests_text())
    (run / "notes.txt").write_text("hunter2")
    return tmp_path / "traces"


@pytest.fixture
def steps(folder: Path) -> Path:
    return folder / "run1" / "sched_trace.fcfs.steps.jsonl"
