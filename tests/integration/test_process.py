"""The command as a process: exit codes, signals, a reader that goes away, help."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest
from tests.integration.command import call, environment, tokenyard

from tokenyard.cli.main import main
from tokenyard.compiled import which_core

COMMAND = [sys.executable, "-m", "tokenyard.cli.main"]


def test_python_m_is_the_command(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tokenyard", "--version"]
    shown = subprocess.run(words, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert shown == f"tokenyard {version('tokenyard')}\ncore: {which_core()}\n"


@pytest.mark.parametrize(
    ("ends", "code", "said"),
    [("print('done') or 2", 2, ""), ("[][0]", 1, "IndexError: list index out of range")],
)
def test_the_process_ends_as_the_command_says(ends: str, code: int, said: str) -> None:
    """Behind the last words of threads and of handlers, all of which are heard."""
    script = f"""
import atexit, sys, threading, time
from tokenyard.cli import main

def late():
    time.sleep(0.05)
    print("thread")

def fake():
    atexit.register(print, "handler")
    threading.Thread(target=late).start()
    return {ends}

main.main = fake
main.command()
"""
    words = [sys.executable, "-c", script]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[-2:]) == (code, ["thread", "handler"])
    assert done.stderr.endswith(f"{said}\n") if said else done.stderr == ""


def test_version_and_help(tmp_path: Path) -> None:
    assert tokenyard("--version", cwd=tmp_path) == (0, f"tokenyard {version('tokenyard')}\ncore: {which_core()}\n", "")
    outcome = tokenyard("--help", cwd=tmp_path)
    assert outcome.code == 0
    assert tokenyard("help", cwd=tmp_path) == outcome
    assert all(name in outcome.stdout for name in ("run", "report", "parity", "demo", "workloads"))


def test_help_of_every_command_imports_nothing_heavy(tmp_path: Path) -> None:
    script = """
import sys
from tokenyard.cli.main import main
try:
    main([*sys.argv[1:], "--help"])
except SystemExit as left:
    heavy = sorted({"numpy", "xxhash", "tokenyard.core.sched", "tokenyard.sim"} & set(sys.modules))
    print("loaded:", heavy)
    raise
"""
    for name in ([], ["run"], ["report"], ["parity"], ["demo"], ["workloads"]):
        done = subprocess.run(
            [sys.executable, "-c", script, *name], env=environment(), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.endswith("loaded: []\n")


def test_servers_name_the_extra_that_they_need(tmp_path: Path) -> None:
    """In a process of its own: no module of an application may have been loaded before."""
    (tmp_path / "starlette.py").write_text("raise ImportError('no module starlette', name='starlette')\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    for words in (["serve", "demo"], ["emulate", "vllm serve qwen/Qwen3-8B"], ["view"]):
        outcome = tokenyard(*words, cwd=tmp_path, env={"PYTHONPATH": path})
        outcome.refused("starlette is not installed", "tokenyard[server]")


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Children that Ctrl-C reaches: one that is started by a job in the background inherits that it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def until_written(running: subprocess.Popen[str], steps: Path) -> None:
    """Wait until a run is well under way."""
    deadline = time.monotonic() + 60
    while not (steps.exists() and steps.stat().st_size > 100_000):
        assert running.poll() is None, "it ended before it could be interrupted"
        assert time.monotonic() < deadline
        time.sleep(0.05)


LONG_RUN = [*COMMAND, "run", "chat", "--limit", "4000", "--trace", "t"]
STEPS = Path("t", "sched_trace.fcfs.steps.jsonl")


@pytest.mark.usefixtures("interruptible")
def test_interrupted_run_leaves_a_readable_trace(tmp_path: Path) -> None:
    running = subprocess.Popen(
        LONG_RUN, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    until_written(running, tmp_path / STEPS)
    running.send_signal(signal.SIGINT)
    stdout, stderr = running.communicate(timeout=60)
    assert running.returncode == 130, stdout + stderr
    assert stdout == ""
    assert "Traceback" not in stderr
    assert "the trace so far is in t" in stderr
    assert all(json.loads(line) for line in (tmp_path / STEPS).read_text().splitlines())
    assert tokenyard("report", "t", cwd=tmp_path).code == 0


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_that_ends_the_reader_too_is_still_one(tmp_path: Path) -> None:
    """As of ``tokenyard run ... 2>&1 | tee log``: the message that no process reads does not make it a success."""
    read, write = os.pipe()
    running = subprocess.Popen(LONG_RUN, cwd=tmp_path, env=environment(), stdout=write, stderr=write, text=True)
    os.close(write)
    until_written(running, tmp_path / STEPS)
    os.close(read)
    running.send_signal(signal.SIGINT)
    assert running.wait(60) == 130


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(
    "module", ["tokenyard.cli.support.parsing", "tokenyard.cli.support.flags", "tokenyard.cli.run", "numpy"]
)
def test_an_interrupt_while_it_is_still_loading(module: str, tmp_path: Path) -> None:
    """Whatever it is about to import, there is no traceback."""
    script = f"""
import os, signal, sys

class Finder:
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
from tokenyard.cli.main import main
sys.exit(main(["run", "chat", "--limit", "2"]))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "tokenyard: interrupted\n")


@pytest.mark.parametrize("mine", [False, True])
def test_a_second_interrupt_ends_it_without_a_word(
    mine: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """While the interpreter shuts down no caller would catch it; a host's own handler is its own."""

    def interrupted(name: str) -> ModuleType:
        raise KeyboardInterrupt

    def own(number: int, frame: object) -> None: ...

    monkeypatch.setattr("tokenyard.cli.main.import_module", interrupted)
    before = signal.signal(signal.SIGINT, own if mine else signal.default_int_handler)
    try:
        assert main(["workloads"]) == 130
        assert signal.getsignal(signal.SIGINT) is (own if mine else signal.SIG_DFL)
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr() == ("", "tokenyard: interrupted\n")


def test_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [*COMMAND, "workloads"],
            cwd=tmp_path,
            env=environment(),
            stdout=write,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_device_in_the_place_of_a_trace_is_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "sched_trace.fcfs.steps.jsonl").symlink_to("/dev/full")
    outcome = tokenyard("run", "chat", "--limit", "2", "--trace", "t", "--json", cwd=tmp_path)
    outcome.refused("--trace = 't'", "is no file on a disk")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is Linux's")
@pytest.mark.parametrize("arguments", [["workloads"], ["workloads", "--json"], ["run", "--help"]], ids=" ".join)
def test_output_that_finds_no_room_is_one_message(arguments: list[str], tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, *arguments],
            cwd=tmp_path,
            env=environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr == "tokenyard: the output cannot be read or written: No space left on device\n"


LOGGED = '{{"request_id": "{0}", "timestamp": {0}, "prompt_tokens": 90, "completion_tokens": 5}}\n'
ONE_REQUEST = '{"request_id": "a", "prompt_len": 100, "max_tokens": 4, "arrival_time": 0}\n'


def run_with(
    arguments: list[str], cwd: Path, *, stdin: str = "", stdout: int | None = subprocess.PIPE, **more: str
) -> subprocess.CompletedProcess[str]:
    """A process of its own with streams of its own."""
    return subprocess.run(
        [sys.executable, "-m", "tokenyard.cli.main", *arguments],
        cwd=cwd,
        env=environment(more),
        input=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=300,
    )


def test_a_workload_and_a_trace_come_by_standard_input(tmp_path: Path) -> None:
    run = run_with(["run", "-", "--advice", "none", "--trace", "t", "--json"], tmp_path, stdin=ONE_REQUEST)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["requests_finished"] == 1
    (steps,) = (tmp_path / "t").iterdir()
    report = run_with(["report", "-", "--json"], tmp_path, stdin=steps.read_text())
    assert report.returncode == 0, report.stderr
    assert json.loads(report.stdout)["requests_finished"] == 1
    lone = json.loads(run_with(["import", "-", "--json"], tmp_path, stdin=ONE_REQUEST).stdout)
    assert (lone["requests"], lone["kind"]) == (1, "plain")
    (tmp_path / "day.jsonl").write_text(LOGGED.format(1_795_183_200.5))
    both = run_with(["import", "day.jsonl", "-", "--json"], tmp_path, stdin=LOGGED.format(1_795_183_203.5))
    assert (json.loads(both.stdout)["requests"], json.loads(both.stdout)["seconds"]) == (2, 3.0)
    twice = run_with(["compare", "-", "-"], tmp_path, stdin=steps.read_text())
    assert twice.returncode == 2
    assert "Traceback" not in twice.stderr


def test_output_that_knows_ascii_alone_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "w.jsonl").write_text(ONE_REQUEST.replace('"a"', '"ä"'))
    run = run_with(
        ["run", "w.jsonl", "--advice", "none", "--trace", "t"], tmp_path, PYTHONIOENCODING="ascii", PYTHONUTF8="0"
    )
    assert run.returncode == 0, run.stderr
    told = run_with(["why", "t", "ä", "--json"], tmp_path, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert json.loads(told.stdout)["request_id"] == "ä"


def test_a_closed_output_is_no_error(tmp_path: Path) -> None:
    command = f"{sys.executable} -m tokenyard.cli.main workloads >&-"
    done = subprocess.run(
        ["sh", "-c", command], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False, timeout=300
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_step_that_no_clock_can_hold_is_refused(tmp_path: Path) -> None:
    (tmp_path / "w.jsonl").write_text(ONE_REQUEST)
    call("run", "w.jsonl", "--latency", "constant:1e300", cwd=tmp_path).refused("give at most 1,000,000,000 seconds")


def test_export_makes_no_folders_unasked(tmp_path: Path) -> None:
    (tmp_path / "w.jsonl").write_text(ONE_REQUEST)
    assert call("run", "w.jsonl", "--trace", "t", cwd=tmp_path).code == 0
    call("export", "t", "--html", "deep/er/x.html", cwd=tmp_path).refused("there is no folder deep/er")
    assert not (tmp_path / "deep").exists()


def test_a_policy_that_answers_nonsense_is_named_with_its_file(tmp_path: Path) -> None:
    (tmp_path / "w.jsonl").write_text(ONE_REQUEST)
    (tmp_path / "mine.py").write_text(
        "from tokenyard.policies.simple import KeyedPolicy\n"
        "class Mine(KeyedPolicy):\n"
        "    def key(self, request): return None\n"
    )
    done = call("run", "w.jsonl", "--scheduling-policy", "mine.py:Mine", cwd=tmp_path)
    done.refused("policy Mine.key returned None", "mine.py)")
