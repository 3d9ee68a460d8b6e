"""``tokenyard serve`` as a process: what it prints, how it ends, what its trace holds."""

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

import httpx
import pytest
from tests.integration.command import call
from tests.support.toy_model import text_to, toy_tokenizer

REPO = Path(__file__).resolve().parents[2]


class Server:
    """A process that serves the toy model."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        first = process.stdout.readline()
        found = re.search(r"http://\S+/v1", first)
        assert found is not None, first
        self.said = first + process.stdout.readline()
        self.url = found[0]
        self.metrics = self.url.removesuffix("v1") + "metrics"


@contextmanager
def serving(*flags: str, seconds: float = 0.0, stderr: int | None = None) -> Iterator[Server]:
    command = [sys.executable, "-m", "tests.support.toy_serve", "toy", "--port", "0", *flags]
    environment = {**os.environ, "TOY_SECONDS": str(seconds)}
    process = subprocess.Popen(command, cwd=REPO, env=environment, stdout=subprocess.PIPE, stderr=stderr, text=True)
    try:
        yield Server(process)
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
        if process.stderr is not None:
            process.stderr.close()


def ask(url: str, max_tokens: int, into: list[httpx.Response]) -> threading.Thread:
    """Ask in a thread; the answer joins ``into``."""
    body = {"prompt": "hello", "max_tokens": max_tokens}
    thread = threading.Thread(target=lambda: into.append(httpx.post(f"{url}/completions", json=body, timeout=60)))
    thread.start()
    return thread


def whole(max_tokens: int) -> str:
    return text_to(toy_tokenizer().encode("hello"), max_tokens)


def begun(server: Server) -> None:
    """Wait until a request runs."""
    deadline = time.monotonic() + 20
    while 'vllm:num_requests_running{engine="0",model_name="toy"} 1.0' not in httpx.get(server.metrics).text:
        assert time.monotonic() < deadline, "nothing runs"
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_running_requests_end_and_nobody_new_is_taken(sent: signal.Signals) -> None:
    answers: list[httpx.Response] = []
    with serving("--max-num-seqs", "3", seconds=0.03) as server:
        assert "400 blocks of 4 tokens, 3 requests at a time" in server.said
        thread = ask(server.url, 100, answers)
        begun(server)
        server.process.send_signal(sent)
        time.sleep(0.5)
        with pytest.raises(httpx.HTTPError):
            httpx.post(f"{server.url}/completions", json={"prompt": "late"})
        assert server.process.wait(timeout=30) == 0
        thread.join()
    assert answers[0].json()["choices"][0]["text"] == whole(100)


@pytest.mark.slow
def test_who_takes_longer_than_the_time_to_end_is_told() -> None:
    answers: list[httpx.Response] = []
    with serving("--shutdown-timeout", "1", seconds=0.1) as server:
        thread = ask(server.url, 400, answers)
        begun(server)
        body = {"prompt": "hello", "max_tokens": 400, "stream": True}
        with httpx.stream("POST", f"{server.url}/completions", json=body, timeout=60) as stream:
            lines = stream.iter_lines()
            next(lines)
            server.process.send_signal(signal.SIGTERM)
            *_, last = [line for line in lines if line]
        assert json.loads(last.removeprefix("data: "))["error"]["code"] == "draining"
        assert server.process.wait(timeout=30) == 0
        thread.join()
    assert answers[0].status_code == 503


@pytest.mark.slow
def test_a_second_signal_ends_it_at_once() -> None:
    with serving(seconds=0.1) as server:
        body = {"prompt": "hello", "max_tokens": 400, "stream": True}
        with httpx.stream("POST", f"{server.url}/completions", json=body, timeout=60) as stream:
            next(stream.iter_lines())
            begin = time.monotonic()
            for _ in range(2):
                server.process.send_signal(signal.SIGTERM)
                time.sleep(0.5)
            assert server.process.wait(timeout=30) in (0, -signal.SIGTERM)
            assert time.monotonic() - begin < 20, "400 steps take 40 seconds"


@pytest.mark.slow
def test_its_trace_is_one_that_can_be_read(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    with serving("--trace", str(trace), "--served-model-name", "a", "b") as server:
        for model in ("a", "b"):
            answer = httpx.post(f"{server.url}/completions", json={"model": model, "prompt": "hello", "max_tokens": 9})
            assert (answer.json()["model"], answer.json()["choices"][0]["text"]) == ("a", whole(9))
        # It can be followed: what happened is there before the server ends.
        deadline = time.monotonic() + 10
        while not any(b"request_finished" in file.read_bytes() for file in trace.glob("*.steps.jsonl")):
            assert time.monotonic() < deadline, "nothing was written"
            time.sleep(0.1)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(timeout=30) == 0
    outcome = call("report", str(trace), "--json", cwd=tmp_path)
    assert outcome.code == 0, outcome.stderr
    report = json.loads(outcome.stdout)
    assert report["header"]["model"] == "a"
    assert report["requests"] == 2


@pytest.mark.slow
def test_a_restart_leaves_the_trace_of_the_start_before(tmp_path: Path) -> None:
    places = []
    for number in range(2):
        with serving("--trace", str(tmp_path / "trace"), stderr=subprocess.PIPE) as server:
            assert server.process.stdout is not None
            places.append(server.process.stdout.readline().split()[-1])
            httpx.post(f"{server.url}/completions", json={"prompt": "hello", "max_tokens": 3 + number})
            server.process.send_signal(signal.SIGTERM)
            said = server.process.communicate(timeout=30)[1]
        assert ("holds the trace of an earlier run" in said) == bool(number)
    assert places == [str(tmp_path / "trace"), str(tmp_path / "trace-2")]
    for number, place in enumerate(places):
        (steps,) = Path(place).glob("*.steps.jsonl")
        start, *records = [json.loads(line) for line in steps.read_text().splitlines()]
        assert start["bytes_per_block"] == 4096
        (finished,) = [each for each in records if each["event"] == "request_finished"]
        assert finished["num_output_tokens"] == 3 + number


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    for flags, said in (
        (("--port", "99999"), "--port = 99999"),
        (("--shutdown-timeout", "-1"), "--shutdown-timeout = -1"),
        (("--request-timeout-s", "0"), "--request-timeout-s = 0"),
    ):
        outcome = call("serve", "nowhere", *flags, cwd=tmp_path)
        assert outcome.code == 2
        assert said in outcome.stderr
        assert "Traceback" not in outcome.stderr


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    return port


def can_connect(port: int) -> bool:
    with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False


@contextmanager
def loading(port: int, seconds: float) -> Iterator[subprocess.Popen[str]]:
    """A server that loads its model for so long."""
    command = [sys.executable, "-m", "tests.support.toy_serve", "toy", "--port", str(port)]
    environment = {**os.environ, "TOY_LOADING": str(seconds)}
    with subprocess.Popen(
        command, cwd=REPO, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def is_taken(port: int) -> bool:
    """Whether no other server could have the port, also while no server listens there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


def wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


@pytest.mark.slow
def test_nobody_can_connect_before_the_model_is_loaded() -> None:
    port = free_port()
    with loading(port, 6) as process:
        wait_until(lambda: is_taken(port))
        assert not can_connect(port), "a TCP probe would call it ready"
        assert process.stdout is not None
        assert "is served at" in process.stdout.readline()
        assert can_connect(port)
        assert httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200
        with loading(port, 0) as other:
            assert other.wait(timeout=60) == 2
            assert other.stderr is not None
            assert "is in use" in other.stderr.read()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals are of POSIX")
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_who_is_told_to_end_while_loading_ends_with_a_code_of_its_own(sent: signal.Signals, code: int) -> None:
    port = free_port()
    with loading(port, 60) as process:
        wait_until(lambda: is_taken(port))
        for _ in range(3):
            process.send_signal(sent)
            time.sleep(0.01)
        assert process.wait(timeout=30) == code
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals are of POSIX")
def test_signals_on_the_last_stretch_do_not_kill_it() -> None:
    """The first one ends an idle server at once, and the handlers of its event loop are gone then."""
    with serving() as server:
        server.process.send_signal(signal.SIGTERM)
        while server.process.poll() is None:
            with suppress(ProcessLookupError):
                server.process.send_signal(signal.SIGTERM)
            time.sleep(0.002)
        assert server.process.returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals are of POSIX")
@pytest.mark.parametrize("ends", [signal.SIGKILL, signal.SIGTERM])
def test_the_viewer_has_a_key_and_ends_with_its_server(tmp_path: Path, ends: signal.Signals) -> None:
    with serving("--view", "--trace", str(tmp_path / "trace"), "--api-key", "sesame") as server:
        stdout = server.process.stdout
        assert stdout is not None
        said = ""
        while "The viewer is at" not in said:
            line = stdout.readline()
            assert line, said
            said += line
        found = re.search(r"The viewer is at (http://127\.0\.0\.1:(\d+)/)(\?key=\S+?)(#\S+)?\s", said)
        assert found is not None, said
        url, port = found[1], int(found[2])
        assert httpx.get(url).status_code == 401
        assert httpx.get(f"{url}api/traces").status_code == 401
        with httpx.Client(follow_redirects=True) as client:
            assert client.get(f"{url}{found[3]}").status_code == 200
            assert client.get(f"{url}api/traces").status_code == 200
        server.process.send_signal(ends)
        server.process.wait(timeout=30)
        wait_until(lambda: not can_connect(port))
