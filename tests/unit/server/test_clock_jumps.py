"""The time of day is set while a server answers: what it measures is measured with a clock that only goes on."""

from __future__ import annotations

import itertools
import re
import time
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

pytest.importorskip("uvicorn", reason="uvicorn is not installed (extra: server)")
pytest.importorskip("prometheus_client", reason="prometheus_client is not installed (extra: server)")
pytest.importorskip("tokenizers", reason="tokenizers is not installed")

from tests.unit.server.edge_servers import edge_server
from tests.unit.server.openai.api_server import serving_api

from tokenyard.serve.openai.assembly import unix_clock

HOUR = 3600.0


@pytest.fixture
def jumping(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of day is an hour early, then right, then an hour late, then right, and so on."""
    right, errors = time.time, itertools.cycle([-HOUR, 0.0, HOUR, 0.0])
    monkeypatch.setattr(time, "time", lambda: right() + next(errors))


@pytest.mark.parametrize("kind", ["serve", "emulate"])
@pytest.mark.usefixtures("jumping")
def test_no_duration_is_longer_than_an_hour_or_less_than_nothing(kind: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        if kind == "serve":
            url = stack.enter_context(serving_api(clock=unix_clock())).url
        else:
            url = f"http://127.0.0.1:{stack.enter_context(edge_server(kind, tmp_path)).port}"
        for stream in (False, True, False, True):
            body = {"model": "toy", "prompt": "hello", "max_tokens": 5, "ignore_eos": True, "stream": stream}
            assert httpx.post(f"{url}/v1/completions", json=body, timeout=60).status_code == 200
        told = httpx.get(f"{url}/metrics", timeout=60).text
    sums = re.findall(r"^(vllm:\w+_seconds)_sum\{[^}]*\} (\S+)$", told, re.MULTILINE)
    assert {"vllm:e2e_request_latency_seconds", "vllm:time_to_first_token_seconds"} <= {name for name, _ in sums}
    assert all(0 <= float(seconds) < HOUR / 2 for _, seconds in sums), sums


def test_the_clock_of_a_trace_goes_on_as_the_machine_does(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = unix_clock()
    for error in (-HOUR, HOUR):
        before, set_to = clock(), time.time() + error
        monkeypatch.setattr(time, "time", lambda now=set_to: now)
        assert 0 <= clock() - before < HOUR / 2
