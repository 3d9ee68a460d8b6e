"""An emulation that does not keep up says so: by each answer, by a metric, at the start; and takes no more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

pytest.importorskip("starlette", reason="starlette is not installed (extra: server)")
pytest.importorskip("uvicorn", reason="uvicorn is not installed (extra: server)")
pytest.importorskip("prometheus_client", reason="prometheus_client is not installed (extra: server)")

from tests.unit.server.emulate.emulated import LINE, Emulated, InTime, emulated

from tokenyard.core.params import SamplingParams
from tokenyard.core.request import Request
from tokenyard.deploy.deployment import Deployment
from tokenyard.errors import ConfigError
from tokenyard.serve.emulate.capacity import Capacity, Unhurried, capacity, tokens_per_second
from tokenyard.serve.emulate.host import emulate
from tokenyard.serve.emulate.listening import server_config
from tokenyard.serve.emulate.live import BOUNDS_OF_LATE, LateRequests, LiveEngines
from tokenyard.serve.emulate.settings import EmulateSettings
from tokenyard.serve.emulate.surface import make_app
from tokenyard.steptime.model import ConstantLatency

ASKED: dict[str, Any] = {"prompt": "hi", "max_tokens": 3, "ignore_eos": True}


class Behind(InTime):
    """A wall on which everything is delivered so many seconds late."""

    seconds = 0.0

    def now(self) -> float:
        return super().now() + self.seconds


@pytest.fixture
def wall() -> Behind:
    return Behind()


@pytest.fixture
def server(wall: Behind) -> Iterator[Emulated]:
    with emulated(wall=wall, max_late_s=5.0) as made:
        yield made


def _metric(server: Emulated, name: str) -> float:
    lines = server.client.get("/metrics").text.splitlines()
    return float(next(line for line in lines if line.startswith(name)).rpartition(" ")[2])


@pytest.mark.parametrize("seconds", [0.0, 0.25, 3.5])
def test_an_answer_says_how_late_it_is(server: Emulated, wall: Behind, seconds: float) -> None:
    wall.seconds = seconds
    answer = server.post("/v1/completions", **ASKED)
    assert float(answer.headers["x-emulated-late"]) == pytest.approx(seconds, abs=1e-6)
    assert _metric(server, "tokenyard:emulated_request_late_seconds_count") == 1
    assert _metric(server, "tokenyard:emulated_request_late_seconds_sum") == pytest.approx(seconds)


def test_so_does_a_stream_as_far_as_it_is_known_at_its_head(server: Emulated, wall: Behind) -> None:
    wall.seconds = 2.5
    for _ in range(2):
        answer = server.post("/v1/completions", stream=True, **ASKED)
        assert float(answer.headers["x-emulated-late"]) >= 0.0
    assert _metric(server, "tokenyard:emulated_request_late_seconds_count") == 2
    assert _metric(server, "tokenyard:emulated_request_late_seconds_sum") == pytest.approx(5.0)
    assert float(server.client.get("/health").headers["x-emulated-late"]) == 0.0, "nothing is under way"


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/v1/messages", "/v1/responses"])
def test_what_is_too_late_takes_no_more(server: Emulated, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    asked = {
        "model": "toy",
        "input": "hi",
        "prompt": "hi",
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 2,
    }
    monkeypatch.setattr(LiveEngines, "late_seconds", 7.2)
    refused = server.post(path, **asked)
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "8")
    assert "7.2 s late" in refused.text
    assert server.client.get("/health").status_code == 200
    monkeypatch.setattr(LiveEngines, "late_seconds", 4.9)
    assert server.post(path, **asked).status_code == 200


def test_that_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LiveEngines, "late_seconds", 1e6)
    with emulated(max_late_s=0.0) as server:
        assert server.post("/v1/completions", **ASKED).status_code == 200


def test_late_is_what_has_not_happened_at_its_moment() -> None:
    wall = Behind()
    wall.speed = 4.0
    with closing(emulate(Deployment(LINE, gpu="h100"), EmulateSettings(front_end_delay="0ms"), wall=wall)) as emulation:
        engines = emulation.engines
        wall.seconds = 8.0
        assert engines.late_seconds == 0.0, "nothing is under way"
        wall.seconds = 0.0
        engines.submit(0, [Request("one", [1, 2], SamplingParams(max_tokens=1))])
        wall.seconds = 8.0
        assert engines.late_seconds == pytest.approx(2.0), "seconds of the wall, of which each is four"
        engines.hold_until = float("inf")
        assert engines.late_seconds == 0.0, "a hang was wanted"


def test_requests_are_counted_by_how_late_they_were() -> None:
    late = LateRequests()
    for seconds in (0.0, 0.001, 0.002, 7.0, 100.0):
        late.add(seconds)
    assert [bound for bound, _ in late.buckets] == [*map(str, BOUNDS_OF_LATE), "+Inf"]
    assert [number for _, number in late.buckets] == [2, 3, 3, 3, 3, 3, 3, 3, 3, 4, 4, 5]
    assert late.seconds == pytest.approx(107.003)


# ---- what it can hold


@pytest.mark.parametrize(
    ("tokens_per_s", "speed", "streams"), [(1000, 1, 8), (1000, 2, 4), (99, 1, 0), (1e9, 1, 256), (1000, 0.1, 80)]
)
def test_streams_are_those_whose_tokens_the_machine_carries(tokens_per_s: float, speed: float, streams: int) -> None:
    """A step takes 10 ms: each stream has 100 tokens a second, of which four fifths are counted on."""
    known = capacity(tokens_per_s, ConstantLatency(seconds=0.01), 256, speed, is_measured=True)
    assert known.streams == streams
    told = "all 256 streams" if streams == 256 else f"{streams} of 256 streams come at their moments, more come late"
    assert told in known.sentence


def test_the_rate_is_measured_by_streams_that_are_answered() -> None:
    deployment, seconds = Deployment(LINE, gpu="h100"), iter((10.0, 12.0))
    with closing(emulate(deployment, EmulateSettings(), wall=Unhurried(), publishes=False)) as small:
        app = make_app(small, small.fronts[0], deployment, small.faults)
        rate = tokens_per_second(small.fronts[0].llm, server_config(app), lambda: next(seconds))
        assert rate == 32 * 32 / 2
        assert small.engines.lateness.late_steps == 0
        assert small.fronts[0].llm.late_requests.buckets[-1] == ("+Inf", 64)


def test_it_is_told_at_the_start() -> None:
    with closing(emulate(Deployment(LINE, gpu="h100"), EmulateSettings())) as emulation:
        assert not any("carries" in line for line in emulation.start_log())
        emulation.capacity = Capacity(12_345.6, 7, 16, is_measured=False)
        (line,) = (line for line in emulation.start_log() if "carries" in line)
        assert line.startswith("WARNING")
        assert "carries about 12,346 tokens a second (given): 7 of 16 streams" in line


@pytest.mark.parametrize("wrong", [{"holds": 0.0}, {"holds": -1.0}, {"max_late_s": -1.0}, {"max_late_s": float("inf")}])
def test_what_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        EmulateSettings(**wrong)
