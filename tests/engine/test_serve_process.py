"""The process of ``tokenyard serve``: it ends when it is told to, whatever is being compiled."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

import httpx
import pytest
import tests.engine.needs_torch  # noqa: F401 - skips where it is not there

PROPERTIES = {f"property{i}": {"type": "string"} for i in range(8_000)}
SCHEMA = {"type": "object", "properties": PROPERTIES, "required": list(PROPERTIES)}


def ask(url: str) -> None:
    body = {"prompt": "a", "structured_outputs": {"json": SCHEMA}}
    with suppress(httpx.HTTPError):
        httpx.post(f"{url}/v1/completions", json=body, timeout=60)


@pytest.mark.skipif(sys.platform == "win32", reason="signals are of POSIX")
def test_a_second_signal_ends_it_while_grammars_are_compiled() -> None:
    command = [sys.executable, "-m", "tokenyard.cli.main", "serve", "demo", "--port", "0"]
    command += ["--max-grammar-bytes", str(10**7)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            assert process.stdout is not None
            said = ""
            while "Ctrl-C" not in said:
                line = process.stdout.readline()
                assert line, said
                said += line
            found = re.search(r"http://\S+?(?=/v1)", said)
            assert found is not None
            clients = [threading.Thread(target=ask, args=(found[0],)) for _ in range(2)]
            for each in clients:
                each.start()
            time.sleep(1.5)
            start = time.monotonic()
            for _ in range(2):
                process.send_signal(signal.SIGTERM)
                time.sleep(0.5)
            assert process.wait(timeout=30) == 0
            assert time.monotonic() - start < 10
            for each in clients:
                each.join()
            assert "Traceback" not in process.stdout.read()
        finally:
            process.kill()
