"""An emulated server that has ended can be started again at its port, whatever connections it had."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time

import pytest

pytest.importorskip("uvicorn", reason="uvicorn is not installed (extra: server)")
pytest.importorskip("prometheus_client", reason="prometheus_client is not installed (extra: server)")

import httpx

COMMAND = [sys.executable, "-m", "tokenyard", "emulate", "vllm serve Qwen/Qwen3-0.6B", "--gpu", "h100", "--port"]


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def test_a_port_is_free_as_soon_as_its_server_has_ended() -> None:
    port = _free_port()
    for _ in range(2):
        server = subprocess.Popen([*COMMAND, str(port)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
                until = time.monotonic() + 60
                while True:
                    assert server.poll() is None, server.stdout.read() if server.stdout else ""
                    try:
                        assert client.get("/health").status_code == 200
                        break
                    except httpx.ConnectError:
                        assert time.monotonic() < until
                        time.sleep(0.1)
                server.send_signal(signal.SIGINT)  # the connection is open: it is the server that closes it
                assert server.wait(30) == 0
        finally:
            server.kill()
            server.wait()
            if server.stdout is not None:
                server.stdout.close()
