"""The emitter: files, whole lines, sampling, and what happens when the disk says no."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.unit.trace.recorded import lines_of, records_of

from tokenyard.record.writer import LineFile, TraceWriter, WriterThread
from tokenyard.trace.config import TraceConfig
from tokenyard.trace.schema import RequestArrived, RequestRecord, TraceStart


def writer_to(path: Path, **settings: Any) -> TraceWriter:
    return TraceWriter(TraceConfig(path=path, policy="fcfs", **settings))


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a writer hands over is on disk when it goes on."""

    class AtOnce(WriterThread):
        def put(self, file: LineFile) -> None:
            super().put(file)
            self.drain()

    monkeypatch.setattr("tokenyard.record.writer.WriterThread", AtOnce)


def test_nothing_is_created_before_the_first_record(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "trace"
    with writer_to(folder) as writer:
        writer.begin(TraceStart(format_version=1))
        writer.flush()
        assert not folder.exists()
        writer.step_snapshot(0, ts=1.0)
        writer.flush()
        assert [file.name for file in folder.iterdir()] == ["sched_trace.fcfs.steps.jsonl"]
        writer.append_request(RequestRecord(step=0, req_id="a"))
    assert sorted(file.name for file in folder.iterdir()) == [
        "sched_trace.fcfs.requests.jsonl",
        "sched_trace.fcfs.steps.jsonl",
    ]


def test_without_a_path_nothing_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with TraceWriter(TraceConfig()) as writer:
        assert not writer.is_open
        assert not writer.wants_step(0)
        writer.step_snapshot(0)
        writer.append_request(RequestRecord(step=0))
    assert not list(tmp_path.iterdir())


def test_trace_start_comes_first_and_says_what_is_written(tmp_path: Path) -> None:
    with writer_to(tmp_path, every_n=2, max_ids_per_step=5) as writer:
        writer.begin(TraceStart(format_version=1, host="replay"))
        writer.step_snapshot(0, ts=1.0)
    start, snapshot = records_of(tmp_path)
    assert start == {
        "event": "trace_start",
        "format_version": 1,
        "policy": "fcfs",
        "host": "replay",
        "every_n": 2,
        "max_steps": 1_000_000,
        "max_ids_per_step": 5,
        "request_records": True,
    }
    assert snapshot == {"event": "step_snapshot", "step": 0, "ts": 1.0, "policy": "fcfs"}


def test_extra_fields_land_verbatim(tmp_path: Path) -> None:
    with writer_to(tmp_path) as writer:
        writer.step_snapshot(4, ts=1.5, free_blocks=3, weather={"wind": [1, 2.5]}, policy="other")
        writer.step_decision(4, num_scheduled_tokens={"a": np.int64(2)}, note="<b>", count=np.float32(0.5))
    snapshot, decision = records_of(tmp_path)
    assert snapshot == {
        "event": "step_snapshot",
        "step": 4,
        "ts": 1.5,
        "policy": "other",
        "free_blocks": 3,
        "weather": {"wind": [1, 2.5]},
    }
    assert decision["num_scheduled_tokens"] == {"a": 2}
    assert (decision["note"], decision["count"]) == ("<b>", 0.5)


def test_what_json_cannot_hold_is_written_as_text(tmp_path: Path) -> None:
    with writer_to(tmp_path) as writer:
        writer.step_snapshot(0, running_req_ids=["\ud800x"], where=Path("a"), ratio=float("nan"))
    (snapshot,) = records_of(tmp_path)
    assert snapshot["running_req_ids"] == ["?x"]
    assert snapshot["where"] == "a"
    assert snapshot["ratio"] is None


def test_sampling_and_step_limit_count_from_the_first_step_seen(tmp_path: Path) -> None:
    with writer_to(tmp_path, every_n=3, max_steps=7) as writer:
        for step in range(100, 120):
            writer.step_snapshot(step)
            writer.step_decision(step)
        # Once per request and not per step, so sampling leaves it alone; the limit does not.
        assert [step for step in range(100, 120) if writer.wants_events(step)] == list(range(100, 107))
    assert [record["step"] for record in records_of(tmp_path, "step_snapshot")] == [100, 103, 106]
    assert [record["step"] for record in records_of(tmp_path, "step_decision")] == [100, 103, 106]


def test_an_existing_trace_is_replaced(tmp_path: Path) -> None:
    for step in (1, 2):
        with writer_to(tmp_path) as writer:
            writer.step_snapshot(step)
    assert [record["step"] for record in records_of(tmp_path)] == [2]


@pytest.mark.usefixtures("at_once")
def test_lines_reach_the_disk_every_64_steps_and_when_idle(tmp_path: Path) -> None:
    with writer_to(tmp_path) as writer:
        for step in range(63):
            writer.step_snapshot(step)
            writer.steps_done(idle=False)
        assert not list(tmp_path.iterdir())
        writer.step_snapshot(63)
        writer.steps_done(idle=False)
        assert len(lines_of(tmp_path)) == 64
        writer.step_snapshot(64)
        writer.steps_done(idle=True)
        assert len(lines_of(tmp_path)) == 65


@pytest.mark.usefixtures("at_once")
def test_short_steps_reach_the_disk_when_time_has_passed(tmp_path: Path) -> None:
    with writer_to(tmp_path) as writer:
        for step in range(2000):
            writer.step_snapshot(step)
            writer.steps_done(idle=False, ts=10 + step / 1000)
            if step in (63, 64, 313, 314):
                # The first batch after 64 steps, the next one 250 ms later.
                assert len(lines_of(tmp_path)) == (64 if step < 313 else 314)


@pytest.mark.usefixtures("at_once")
def test_a_clock_that_stands_still_holds_up_1024_steps_at_most(tmp_path: Path) -> None:
    with writer_to(tmp_path) as writer:
        for step in range(64 + 1024):
            writer.step_snapshot(step)
            writer.steps_done(idle=False, ts=0.0)
        assert len(lines_of(tmp_path)) == 64 + 1024


@pytest.mark.usefixtures("at_once")
def test_much_data_reaches_the_disk_before_64_steps(tmp_path: Path) -> None:
    with writer_to(tmp_path) as writer:
        for step in range(3):
            writer.step_snapshot(step, note="x" * 500_000)
        assert len(lines_of(tmp_path)) == 3
        for number in range(3):
            writer.append_request(RequestRecord(step=3, req_id="r" * 500_000, priority=number))
        assert len(lines_of(tmp_path, "requests")) == 3


def test_an_unwritable_path_is_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING, "tokenyard.trace"):
        writer = writer_to(tmp_path / "file" / "trace")
        for step in range(200):
            writer.step_snapshot(step)
            writer.steps_done(idle=False)
        writer.flush()
        assert not writer.is_open
        assert not writer.wants_step(200)
        writer.step_snapshot(200)
        writer.close()
    assert len(caplog.records) == 1
    assert writer.problem is not None
    assert "file" in writer.problem


def test_a_full_disk_leaves_whole_lines_and_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = 1000
    real_write = os.write

    def write(fd: int, data: bytes | memoryview) -> int:
        nonlocal room
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        done = real_write(fd, data[:room])
        room -= done
        return done

    monkeypatch.setattr(os, "write", write)
    with caplog.at_level(logging.WARNING, "tokenyard.trace"), writer_to(tmp_path) as writer:
        for step in range(640):
            writer.step_snapshot(step, ts=0.5)
            writer.steps_done(idle=False)
    assert [record.getMessage() for record in caplog.records] == [
        f"trace: writing stopped, the scheduler goes on: {tmp_path}: No space left on device"
    ]
    steps = [record["step"] for record in records_of(tmp_path)]
    assert 0 < len(steps) < 64
    assert steps == list(range(len(steps)))
    assert lines_of(tmp_path)[-1].endswith(b"}")


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real_write(fd, bytes(data[:7])))
    with writer_to(tmp_path) as writer:
        for step in range(2000):
            writer.step_snapshot(step, ts=0.5)
    assert [record["step"] for record in records_of(tmp_path)] == list(range(2000))


@pytest.mark.parametrize(("error", "told"), [(MemoryError("no memory"), "no memory"), (MemoryError(), "MemoryError")])
def test_any_failure_of_the_disk_thread_ends_the_trace_only(
    error: Exception, told: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(fd: int, data: object) -> int:
        raise error

    monkeypatch.setattr(os, "write", write)
    with caplog.at_level(logging.WARNING, "tokenyard.trace"), writer_to(tmp_path) as writer:
        writer.step_snapshot(0)
        writer.flush()
        writer.step_snapshot(1)
    assert len(caplog.records) == 1
    assert writer.problem is not None
    assert writer.problem.endswith(told)


def test_without_a_thread_lines_are_written_directly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Thread.start", start)
    with writer_to(tmp_path) as writer:
        writer.step_snapshot(0)
        writer.flush()
        assert len(lines_of(tmp_path)) == 1


def test_what_is_gathered_is_written_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill between two writes would leave half a line: every one ends with a line, however many pieces it has."""
    writes: list[bytes] = []
    real_write = os.write

    def write(fd: int, data: bytes | memoryview) -> int:
        writes.append(bytes(data))
        return real_write(fd, data)

    monkeypatch.setattr(os, "write", write)
    with writer_to(tmp_path) as writer:
        for step in range(2000):
            writer.append_event(RequestArrived(step=step, req_id=str(step)))
        writer.flush()
        assert len(lines_of(tmp_path)) == 2000
    assert writes
    assert all(each.endswith(b"}\n") for each in writes)


@pytest.mark.parametrize("how", ["file", "directory", "replaced"])
def test_a_trace_that_is_removed_meanwhile_is_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    """What is written on to a removed file is lost, and nothing would say so."""
    folder = tmp_path / "trace"
    with caplog.at_level(logging.WARNING, "tokenyard.trace"), writer_to(folder) as writer:
        writer.step_snapshot(0)
        writer.flush()
        assert writer.is_whole
        path = writer.config.steps_path
        assert path is not None
        if how == "directory":
            shutil.rmtree(folder)
        else:
            path.unlink()
        if how == "replaced":
            path.write_text("mine")
        writer.step_snapshot(1)
    assert not writer.is_whole
    assert writer.problem == f"{path}: was removed or replaced while it was written"
    assert len(caplog.records) == 1
    assert [each.read_text() for each in tmp_path.rglob("*.jsonl")] == ["mine"] * (how == "replaced")


def test_a_trace_that_is_removed_after_its_last_line_is_missed_too(tmp_path: Path) -> None:
    with writer_to(tmp_path / "trace") as writer:
        writer.step_snapshot(0)
        writer.flush()
        shutil.rmtree(tmp_path / "trace")
    assert writer.problem is not None


def test_two_writers_do_not_share_a_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The first one's trace is whole; the second one says once that it has none, and its scheduler goes on."""
    pytest.importorskip("fcntl")
    with caplog.at_level(logging.WARNING, "tokenyard.trace"), writer_to(tmp_path) as first:
        first.step_snapshot(0)
        first.flush()
        with writer_to(tmp_path) as second:
            for step in range(200):
                second.step_snapshot(step)
                second.steps_done(idle=False)
        first.step_snapshot(1)
    assert (first.is_whole, second.is_whole) == (True, False)
    assert [record.getMessage() for record in caplog.records] == [
        f"trace: writing stopped, the scheduler goes on: {first.config.steps_path}: is being written by another run"
    ]
    assert [record["step"] for record in records_of(tmp_path)] == [0, 1]


def test_a_writer_that_was_killed_keeps_nobody_out(tmp_path: Path) -> None:
    code = """
        import os, signal, sys, pathlib
        from tokenyard.record.writer import TraceConfig, TraceWriter
        writer = TraceWriter(TraceConfig(path=pathlib.Path(sys.argv[1]), policy="fcfs"))
        writer.claim()
        writer.step_snapshot(0)
        writer.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    """
    assert run_python(code, tmp_path) == -9
    with writer_to(tmp_path) as writer:
        writer.claim()
        writer.step_snapshot(7)
    assert writer.is_whole
    assert [record["step"] for record in records_of(tmp_path)] == [7]


def test_a_claimed_trace_without_records_is_an_empty_file(tmp_path: Path) -> None:
    with writer_to(tmp_path / "trace") as writer:
        writer.claim()
        assert lines_of(tmp_path / "trace") == []
    assert writer.is_whole


def run_python(code: str, path: Path) -> int:
    return subprocess.run([sys.executable, "-c", textwrap.dedent(code), str(path)], check=False, timeout=30).returncode


def test_an_exit_without_close_loses_nothing(tmp_path: Path) -> None:
    code = """
        import sys, pathlib
        from tokenyard.record.writer import TraceConfig, TraceWriter
        writer = TraceWriter(TraceConfig(path=pathlib.Path(sys.argv[1]), policy="fcfs"))
        for step in range(10):
            writer.step_snapshot(step)
        raise SystemExit(3)
    """
    assert run_python(code, tmp_path) == 3
    assert len(lines_of(tmp_path)) == 10


def test_a_killed_process_leaves_whole_lines(tmp_path: Path) -> None:
    code = """
        import os, signal, sys, pathlib, time
        from tokenyard.record.writer import TraceConfig, TraceWriter
        folder = pathlib.Path(sys.argv[1])
        writer = TraceWriter(TraceConfig(path=folder, policy="fcfs"))
        for step in range(100):
            writer.step_snapshot(step)
            writer.steps_done(idle=False)
        while not any(file.read_bytes().count(b"\\n") >= 64 for file in folder.glob("*")):
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    assert run_python(code, tmp_path) == -9
    assert [record["step"] for record in records_of(tmp_path)] == list(range(64))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_does_not_write_its_parents_lines(tmp_path: Path) -> None:
    code = """
        import os, sys, pathlib
        from tokenyard.record.writer import TraceConfig, TraceWriter
        writer = TraceWriter(TraceConfig(path=pathlib.Path(sys.argv[1]), policy="fcfs"))
        writer.step_snapshot(0)
        writer.flush()
        child = os.fork()
        writer.step_snapshot(1 if child else 2)
        writer.flush()
        writer.close()
        if child:
            os.waitpid(child, 0)
    """
    assert run_python(code, tmp_path) == 0
    assert [record["step"] for record in records_of(tmp_path)] == [0, 1]


def test_a_record_is_encoded_when_it_is_appended(tmp_path: Path) -> None:
    record = RequestRecord(step=0, req_id="a")
    with writer_to(tmp_path) as writer:
        writer.append_request(record, note=1)
        record.req_id = "b"
    assert msgspec.json.decode(lines_of(tmp_path, "requests")[0]) == {"step": 0, "req_id": "a", "note": 1}
