"""Steps are worked out before they end and told when they do; heads of streams come when the engine has been asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

pytest.importorskip("starlette", reason="starlette is not installed (extra: server)")
pytest.importorskip("httpx", reason="httpx is not installed (extra: server)")
pytest.importorskip("prometheus_client", reason="prometheus_client is not installed (extra: server)")

from starlette.types import Message

from tokenyard.core.request import Request
from tokenyard.core.sched.observer import StepObserver
from tokenyard.deploy.deployment import Deployment
from tokenyard.serve.emulate.faults import Fault
from tokenyard.serve.emulate.host import Emulation, emulate
from tokenyard.serve.emulate.live import RECEIVED
from tokenyard.serve.emulate.settings import EmulateSettings
from tokenyard.serve.emulate.surface import make_app
from tokenyard.serve.generation import GenerationParams
from tokenyard.serve.output_processor import Generation
from tokenyard.steptime.scaled import front_end_of

LINE = "vllm serve Qwen/Qwen3-0.6B --max-num-seqs 6 --max-model-len 1024 --no-async-scheduling"


class _Steps(StepObserver):
    """When steps were decided and what they had, and when the engine said that they had ended."""

    def __init__(self) -> None:
        self.decided: list[tuple[float, tuple[str, ...]]] = []
        self.ended: list[float] = []
        self.arrived: dict[str, float] = {}
        self.at_end: Callable[[], None] = lambda: None

    def request_arrived(self, ts: float, request: Request) -> None:
        self.arrived[request.request_id] = request.arrival_time

    def step_decided(self, ts: float, output: Any, outcomes: object, state: object) -> None:
        self.decided.append((ts, tuple(output.req_ids)))

    def step_completed(self, ts: float, output: Any, outputs: object) -> None:
        if output.total_num_scheduled_tokens:
            self.ended.append(ts)
            self.at_end()


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps are worked out so early that a busy machine is in time for it."""
    monkeypatch.setattr("tokenyard.serve.emulate.live.LEAST_AHEAD", 0.05)
    monkeypatch.setattr("tokenyard.serve.emulate.live.MOST_AHEAD", 0.05)


def _run(
    steps: _Steps,
    work: Callable[[Emulation], Any],
    speed: float = 0.2,
    more: str = "",
    front_end_delay: str | None = "0ms",
) -> None:
    async def run() -> None:
        settings = EmulateSettings(speed=speed, front_end_delay=front_end_delay)
        with closing(emulate(Deployment(LINE + more, gpu="h100"), settings, observers=[steps])) as it:
            async with it.fronts[0].llm:
                await work(it)
            it.engines.stop()

    asyncio.run(run())


@pytest.mark.usefixtures("ahead")
def test_a_step_is_worked_out_before_it_ends_and_told_at_its_end() -> None:
    steps, before, told = _Steps(), list[float](), list[float]()

    async def work(emulation: Emulation) -> None:
        wall, llm = emulation.engines.wall, emulation.fronts[0].llm
        steps.at_end = lambda: before.append(wall.seconds_until(steps.ended[-1]))
        params = GenerationParams(max_tokens=10, ignore_eos=True)
        one = llm.begin([7] * 30, params, "one", told=lambda: told.append(wall.seconds_until(steps.ended[-1])))
        while not one.is_finished:
            await asyncio.sleep(0.001)
        llm.leave(one)

    _run(steps, work, speed=0.03)
    assert len(before) == 10
    assert sorted(before)[5] > 0, "half the steps, on a busy machine, are worked out while they still run"
    assert max(told) <= 0, "none is told before it ends"


@pytest.mark.usefixtures("ahead")
def test_a_request_that_comes_while_a_step_is_worked_out_and_runs_is_in_the_next() -> None:
    steps = _Steps()

    async def work(emulation: Emulation) -> None:
        engines, llm = emulation.engines, emulation.fronts[0].llm
        params = GenerationParams(max_tokens=4, ignore_eos=True)
        others = list[Generation]()

        def come() -> None:
            if len(steps.ended) == 2:
                asyncio.get_running_loop().call_soon(
                    lambda: others.append(llm.begin([8] * 30, params, "two", told=nothing))
                )

        def nothing() -> None:
            pass

        steps.at_end = come
        one = llm.begin([7] * 30, params, "one", told=nothing)
        while not one.is_finished or not others or not others[0].is_finished:
            await asyncio.sleep(0.001)
        for each in (one, *others):
            llm.leave(each)
        assert engines.lateness.steps == len(steps.ended)

    _run(steps, work, speed=0.02)
    assert steps.arrived["two"] < steps.ended[1], "it has come before the end of the step that was worked out"
    assert steps.decided[2] == (steps.ended[1], ("one", "two"))


def test_a_head_that_came_before_a_step_ends_is_in_time_however_long_its_body_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps = _Steps()

    async def work(emulation: Emulation) -> None:
        wall, llm = emulation.engines.wall, emulation.fronts[0].llm
        params = GenerationParams(max_tokens=4, ignore_eos=True)
        begun = list[Generation]()

        def told() -> None:
            if not begun:  # the step is told, the next one is not decided
                RECEIVED.set(steps.ended[-1] - 1e-6)
                begun.append(llm.begin([8] * 30, params, "two", told=lambda: None))

        monkeypatch.setattr(wall, "seconds_until", lambda _: 0.0)  # all is due, and in time
        monkeypatch.setattr(wall, "now", lambda: emulation.engines.clock.now() + 1.0)
        one = llm.begin([7] * 30, params, "one", told=told)
        while not one.is_finished or not begun[0].is_finished:
            await asyncio.sleep(0.001)
        for each in (one, *begun):
            llm.leave(each)

    _run(steps, work)
    assert steps.arrived["two"] == steps.ended[0] - 1e-6
    assert steps.decided[1] == (steps.ended[0], ("one", "two"))


@pytest.mark.usefixtures("ahead")
@pytest.mark.parametrize("more", ["", " --data-parallel-size 2"])
def test_a_hang_holds_what_has_been_worked_out(more: str) -> None:
    steps, told = _Steps(), list[int]()

    async def work(emulation: Emulation) -> None:
        engines, llm = emulation.engines, emulation.fronts[0].llm
        params = GenerationParams(max_tokens=5, ignore_eos=True)
        one = llm.begin([7] * 30, params, "one", told=lambda: told.append(len(steps.ended)))
        while len(told) < 2:
            await asyncio.sleep(0.0005)
        emulation.faults.begin(Fault(kind="hang"))
        await asyncio.sleep(0.2)
        assert len(told) == 2
        emulation.faults.end()
        engines.wake()
        while not one.is_finished:
            await asyncio.sleep(0.001)
        llm.leave(one)

    _run(steps, work, speed=0.03, more=more)
    assert 3 <= len(told) <= 5


# ---------------------------------------------------------------------------------------------------------------------
# Heads of streams.


async def _asked(
    emulation: Emulation, deployment: Deployment, body: dict[str, Any], sent: Callable[[Message], None]
) -> None:
    """Ask the application itself: what it sends is told as it is sent."""
    app = make_app(emulation, emulation.fronts[0], deployment, emulation.faults)
    content = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/completions",
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")],
        "state": {},
    }

    async def receive() -> Message:
        if content:
            return content.pop()
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Message) -> None:
        sent(message)

    await app(scope, receive, send)


def _sent(body: dict[str, Any], at: Callable[[Emulation, Message], None] = lambda *_: None) -> list[Message]:
    messages = list[Message]()

    async def run() -> None:
        deployment = Deployment(LINE, gpu="h100")
        with closing(emulate(deployment, EmulateSettings(speed=0.5))) as emulation:

            def sent(message: Message) -> None:
                messages.append(message)
                at(emulation, message)

            async with emulation.fronts[0].llm:
                await _asked(emulation, deployment, {"stream": True, "max_tokens": 3, **body}, sent)
            emulation.engines.stop()

    asyncio.run(run())
    return messages


def test_the_head_of_a_stream_is_sent_before_its_first_token() -> None:
    steps = list[int]()
    messages = _sent({"prompt": "hello"}, lambda emulation, _: steps.append(emulation.engines.lateness.steps))
    assert [each["type"] for each in messages[:2]] == ["http.response.start", "http.response.body"]
    assert steps[0] == 0
    assert steps[1] >= 1
    assert messages[-1]["body"].endswith(b"data: [DONE]\n\n")


def test_what_is_wrong_with_a_request_has_its_own_code() -> None:
    (head, _) = _sent({"prompt": "hello", "max_tokens": 10_000})
    assert head["status"] == 400


def test_what_goes_wrong_after_the_head_is_an_event() -> None:
    def die(emulation: Emulation, message: Message) -> None:
        if message["type"] == "http.response.start":
            emulation.engines.die(RuntimeError("a crash"))

    head, error = _sent({"prompt": "hello"}, die)
    assert head["status"] == 200
    events = error["body"].split(b"\n\n")
    assert json.loads(events[0].removeprefix(b"data: "))["error"]["code"] == 500
    assert events[1:] == [b"data: [DONE]", b""]


def test_the_scheduler_gets_a_request_after_the_front_end() -> None:
    """Its arrival is stamped then, as vLLM's front end does; a client that goes before that holds nothing."""
    settled = Deployment(LINE, gpu="h100").resolve()
    front_end = front_end_of(settled.latency)
    assert front_end is not None
    for given, seconds in ((None, front_end.seconds(30)), ("50ms", 0.05), ("0ms", 0.0)):
        steps = _Steps()

        async def work(emulation: Emulation, steps: _Steps = steps, seconds: float = seconds) -> None:
            engines, llm = emulation.engines, emulation.fronts[0].llm
            params = GenerationParams(max_tokens=2, ignore_eos=True)
            before = engines.wall.now()
            begun = [llm.begin([7] * 30, params, name, told=lambda: None) for name in ("one", "gone")]
            sent = engines.wall.now()
            llm.leave(begun[1])
            while not begun[0].is_finished:
                await asyncio.sleep(0.001)
            llm.leave(begun[0])
            assert before + seconds <= steps.arrived["one"] <= sent + seconds
            while engines.groups[0].ranks[0].scheduler.get_num_unfinished_requests():
                await asyncio.sleep(0.001)

        _run(steps, work, front_end_delay=given)
