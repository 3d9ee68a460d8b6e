"""``tokenyard view`` as a user starts it: a process, a port, and Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from urllib.parse import unquote

import httpx
import pytest
from tests.integration.command import call, environment, tokenyard

import crowd

_NO_BROWSER = ["--port", "0", "--no-browser"]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "runs" / "one" / "sched_trace.fcfs.steps.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text('{"event":"step_snapshot","step":0,"ts":0.0,"policy":"fcfs"}\n')
    return path


class Viewer:
    """A running viewer."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        self.said = process.stdout.readline()
        match = re.search(r"http://\S+", self.said)
        assert match is not None, self.said
        self.url, _, self.hash = match[0].partition("#")

    def interrupted(self) -> tuple[int, str]:
        """Exit code and standard error after Ctrl-C."""
        self.process.send_signal(signal.SIGINT)
        _, stderr = self.process.communicate(timeout=20)
        return self.process.returncode, stderr


def until(happened: Callable[[], bool]) -> None:
    """Wait for it, as long as a machine with much to do may take."""
    end = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


@contextmanager
def viewing(*arguments: str | Path, cwd: Path, env: dict[str, str] | None = None) -> Iterator[Viewer]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tokenyard.cli.main", "view", *map(str, arguments)],
        cwd=cwd,
        env=environment({"PYTHONUNBUFFERED": "1"} | (env or {})),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield Viewer(process)
    finally:
        process.kill()
        process.communicate()


def test_it_serves_the_trace_and_ends_cleanly(trace: Path, tmp_path: Path) -> None:
    with viewing(trace.parent, *_NO_BROWSER, cwd=tmp_path) as viewer:
        assert viewer.url.startswith("http://127.0.0.1:")
        assert unquote(viewer.hash) == f"trace={trace}"
        (listed,) = httpx.get(f"{viewer.url}api/traces").json()
        assert listed["steps"] == [str(trace)]
        assert httpx.get(f"{viewer.url}api/file", params={"path": listed["steps"][0]}).content == trace.read_bytes()
        assert httpx.get(viewer.url).headers["content-type"].startswith("text/html")
        code, stderr = viewer.interrupted()
    assert code == 0
    assert "Traceback" not in stderr


def test_ctrl_c_does_not_wait_for_who_follows(trace: Path, tmp_path: Path) -> None:
    with (
        viewing(trace, *_NO_BROWSER, cwd=tmp_path) as viewer,
        socket.create_connection(_address(viewer.url)) as follower,
    ):
        query = f"/api/tail?path={trace}&offset={trace.stat().st_size}&wait=30"
        follower.sendall(f"GET {query} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        time.sleep(0.5)  # it waits now
        code, stderr = viewer.interrupted()
        assert follower.recv(12) == b"HTTP/1.1 200"
    assert code == 0
    assert "Traceback" not in stderr


def test_a_second_ctrl_c_ends_it_without_a_traceback(trace: Path, tmp_path: Path) -> None:
    with (
        viewing(trace, *_NO_BROWSER, cwd=tmp_path) as viewer,
        socket.create_connection(_address(viewer.url)) as follower,
    ):
        query = f"/api/tail?path={trace}&offset={trace.stat().st_size}&wait=30"
        follower.sendall(f"GET {query} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        time.sleep(0.5)  # it waits now
        viewer.process.send_signal(signal.SIGINT)
        time.sleep(0.05)
        code, stderr = viewer.interrupted()
    assert code == 0
    assert "Traceback" not in stderr


def _address(url: str) -> tuple[str, int]:
    host, port = url.removeprefix("http://").rstrip("/").split(":")
    return host, int(port)


@pytest.mark.slow
def test_a_crowd_keeps_nobody_out(tmp_path: Path) -> None:
    """A small one; `python scripts/crowd.py` brings 660, and looks at the time that a list takes."""
    paths = crowd.traces(tmp_path, megabytes=2)
    with crowd.server(tmp_path) as (process, port):
        measured = crowd.crowded_lists(port, crowd.Crowd(idle=60, slow=10, questions=12), paths, lists=3)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=20)
    assert measured.statuses == [200] * 3
    assert measured.traces == crowd.TRACES + 2
    assert set(measured.answered) == {200}
    assert measured.opened >= 70
    assert (process.returncode, "Traceback" in stderr) == (0, False), stderr


def test_ctrl_c_does_not_wait_for_a_thread_that_is_stuck(trace: Path, tmp_path: Path) -> None:
    """In a file on a disk that does not answer, for example: a thread cannot be told to stop."""
    stuck = tmp_path / "sitecustomize.py"
    stuck.write_text(
        "import threading\n"
        "import tokenyard.web.files as files\n"
        "def stuck(*_: object) -> None:\n"
        f"    open({str(tmp_path / 'stuck')!r}, 'w').close()\n"
        "    threading.Event().wait()\n"
        "files.serve_file = stuck\n"
        "import tokenyard.web.queries as app\n"
        "app.serve_file = files.serve_file\n"
    )
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    with (
        viewing(trace, *_NO_BROWSER, cwd=tmp_path, env={"PYTHONPATH": path}) as viewer,
        socket.create_connection(_address(viewer.url)) as waiting,
    ):
        waiting.sendall(f"GET /api/file?path={trace} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        until((tmp_path / "stuck").exists)
        code, stderr = viewer.interrupted()
    assert (code, "Traceback" in stderr) == (0, False), stderr


def test_ctrl_c_does_not_wait_for_who_reads_slowly(trace: Path, tmp_path: Path) -> None:
    trace.write_bytes(trace.read_bytes() * 200_000)
    with (
        viewing(trace, *_NO_BROWSER, cwd=tmp_path) as viewer,
        socket.create_connection(_address(viewer.url)) as reader,
    ):
        reader.sendall(f"GET /api/file?path={trace} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        assert reader.recv(12) == b"HTTP/1.1 200"
        code, stderr = viewer.interrupted()
    assert (code, stderr.strip()) == (0, "Ctrl-C ends it.")


def test_a_folder_of_traces_opens_the_list(trace: Path, tmp_path: Path) -> None:
    with viewing(*_NO_BROWSER, cwd=tmp_path) as viewer:
        assert viewer.hash == ""
        assert [each["name"] for each in httpx.get(f"{viewer.url}api/traces").json()] == ["runs/one"]


def test_it_opens_the_browser_at_that_trace(trace: Path, tmp_path: Path) -> None:
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {opened}.part && mv {opened}.part {opened}\n')
    browser.chmod(0o755)
    with viewing(trace, "--port", "0", cwd=tmp_path, env={"BROWSER": f"{browser} %s"}) as viewer:
        until(opened.exists)
        assert opened.read_text() == f"{viewer.url}#{viewer.hash}"


def test_a_port_in_use(trace: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        call("view", trace, "--port", str(port), "--no-browser", cwd=tmp_path).refused(
            f"port = {port}", "is in use", "0"
        )


def test_bad_input(trace: Path, tmp_path: Path) -> None:
    call("view", "nothing", *_NO_BROWSER, cwd=tmp_path).refused("'nothing'", "no such file or directory")
    call("view", trace, "--port", "70000", cwd=tmp_path).refused("port = 70000", "65535")
    call("view", trace, "--host", "192.0.2.1", *_NO_BROWSER, cwd=tmp_path).refused("192.0.2.1", "cannot listen there")
    (tmp_path / "x.txt").write_text("hello\n")
    call("view", "x.txt", *_NO_BROWSER, cwd=tmp_path).refused("x.txt", "not a trace")


def hiding(directory: Path, *names: str) -> dict[str, str]:
    """An environment in which some packages cannot be imported."""
    directory.mkdir()
    for name in names:
        (directory / f"{name}.py").write_text(f"raise ImportError('hidden', name='{name}')\n")
    return {"PYTHONPATH": os.pathsep.join([str(directory), *filter(None, [os.environ.get("PYTHONPATH")])])}


def test_without_the_extra_it_says_what_to_install(trace: Path, tmp_path: Path) -> None:
    outcome = tokenyard("view", trace, cwd=tmp_path, env=hiding(tmp_path / "hidden", "starlette"))
    outcome.refused("starlette is not installed", "pip install 'tokenyard[server]'")


def test_it_needs_neither_pyarrow_nor_duckdb(trace: Path, tmp_path: Path) -> None:
    """They belong to another extra: what needs them says so, the rest works."""
    hidden = hiding(tmp_path / "hidden", "pyarrow", "duckdb")
    twin = tmp_path / "t.steps.parquet"
    twin.touch()
    with viewing(trace, twin, *_NO_BROWSER, cwd=tmp_path, env=hidden) as viewer:
        assert httpx.get(f"{viewer.url}api/file", params={"path": str(trace)}).content == trace.read_bytes()
        packed = {"path": str(twin), "decode": "1"}
        response = httpx.get(f"{viewer.url}api/file", params=packed)
        assert response.status_code == 422
        assert "pip install 'tokenyard[analysis]'" in response.json()["error"]["fix"]


@pytest.mark.slow
def test_notes_survive_kill_9(trace: Path, tmp_path: Path) -> None:
    """Killed again and again while notes are saved: they are always some that were sent, whole, and can be saved on."""
    notes = trace.with_name(trace.name + ".annotations.json")
    before, random, sent = trace.read_bytes(), Random(1), 0
    for attempt in range(8):
        with viewing(trace.parent, *_NO_BROWSER, cwd=tmp_path) as viewer:
            there = httpx.get(f"{viewer.url}api/annotations", params={"path": str(trace)})
            assert there.status_code == 200, "what the last one left can be read"
            if attempt == 4:
                # However slow the machine is, one is saved before the next kill.
                sent += 1
                assert _save(viewer.url, trace, {"number": sent, "text": "n"}).status_code == 200
            killed = threading.Timer(0.05 + 0.2 * random.random(), viewer.process.kill)
            killed.start()
            with suppress(httpx.TransportError):
                while True:
                    sent += 1
                    body = {"number": sent, "text": "n" * random.randrange(2_000_000)}
                    _save(viewer.url, trace, body)
            killed.join()
        if notes.exists():
            saved = json.loads(notes.read_bytes())
            assert 1 <= saved["number"] <= sent
            assert set(saved["text"]) <= {"n"}
        assert trace.read_bytes() == before
    assert notes.exists()
    with viewing(trace.parent, *_NO_BROWSER, cwd=tmp_path) as viewer:
        assert _save(viewer.url, trace, {"number": 0}).status_code == 200
    assert json.loads(notes.read_bytes()) == {"number": 0}


def _save(url: str, trace: Path, notes: object) -> httpx.Response:
    headers = {"Tokenyard-Annotations": "1"}
    return httpx.put(f"{url}api/annotations", params={"path": str(trace)}, json=notes, headers=headers)
