"""The emulation is the replay, live: a replay of a live run's arrivals takes the same decisions, step by step."""

from __future__ import annotations

import asyncio
import random

import pytest

pytest.importorskip("starlette", reason="starlette is not installed (extra: server)")
pytest.importorskip("httpx", reason="httpx is not installed (extra: server)")
pytest.importorskip("prometheus_client", reason="prometheus_client is not installed (extra: server)")

from emulate_live import KINDS, requests_of
from tokenyard.core.request import Request, RequestStatus
from tokenyard.core.sched.observer import StepObserver
from tokenyard.core.sched.scheduler_output import SchedulerOutput
from tokenyard.deploy.deployment import Deployment
from tokenyard.serve.emulate.host import emulate
from tokenyard.serve.emulate.settings import EmulateSettings
from tokenyard.serve.generation import GenerationParams, Turn
from tokenyard.sim.replay import replay
from tokenyard.workload.record import Workload, WorkloadRequest
from tokenyard.workload.tokens import ListedTokens

LINE = (
    "vllm serve Qwen/Qwen3-0.6B --max-num-seqs 6 --max-model-len 1024 --max-num-batched-tokens 256"
    " --num-gpu-blocks-override 120"
)

_LIMIT = 100
"""``max_tokens`` where answers end by themselves, most of them above it."""


class Decisions(StepObserver):
    """Keeps who was scheduled when, and with how many tokens."""

    def __init__(self) -> None:
        self.steps: list[tuple[float, tuple[str, ...], tuple[int, ...], tuple[str, ...]]] = []
        self.requests: dict[str, Request] = {}

    def request_arrived(self, ts: float, request: Request) -> None:
        self.requests[request.request_id] = request

    def step_decided(self, ts: float, output: SchedulerOutput, outcomes: object, state: object) -> None:
        if output.total_num_scheduled_tokens:
            new = tuple(output.num_new_tokens.tolist())
            self.steps.append((round(ts, 9), tuple(output.req_ids), new, tuple(output.preempted_req_ids)))


@pytest.mark.parametrize("by_itself", [False, True], ids=["by length", "by itself"])
@pytest.mark.parametrize("extra", ["", " --no-async-scheduling", " --scheduling-policy priority", " -pp 2"])
def test_live_decisions_are_those_of_the_replay(extra: str, by_itself: bool) -> None:
    chance = random.Random(7)
    shared = [chance.randrange(1000, 5000) for _ in range(64)]
    prompts = [
        shared[: chance.choice((0, 32, 64))] + chance.choices(range(1000, 5000), k=chance.randint(5, 300))
        for _ in range(40)
    ]
    lengths = [chance.randint(1, 60) for _ in prompts]
    priorities = [chance.randrange(3) if "priority" in extra else 0 for _ in prompts]
    deployment = Deployment(LINE + extra, gpu="h100")
    live = Decisions()

    async def run() -> None:
        emulation = emulate(deployment, EmulateSettings(speed=5), observers=[live])
        async with emulation.fronts[0].llm as llm:

            async def one(i: int) -> None:
                await asyncio.sleep(chance.random() * 0.1)
                params = GenerationParams(max_tokens=_LIMIT if by_itself else lengths[i], ignore_eos=not by_itself)
                tokens = 0
                async for output in llm.generate(prompts[i], params, str(i), turn=Turn(priority=priorities[i])):
                    tokens = len(output.outputs[0].token_ids)
                assert tokens <= _LIMIT if by_itself else tokens == lengths[i]

            await asyncio.gather(*(one(i) for i in range(len(prompts))))
            emulation.engines.stop()

    asyncio.run(run())
    again, resolved = Decisions(), deployment.resolve()
    seen = live.requests
    ended = {name for name, each in seen.items() if each.status is RequestStatus.FINISHED_STOPPED}
    assert (1 < len(ended) < len(seen)) is by_itself
    requests = [
        WorkloadRequest(
            request_id=str(i),
            prompt=ListedTokens(prompts[i]),
            max_tokens=seen[str(i)].num_output_tokens,
            limit=_LIMIT if str(i) in ended else None,
            arrival_time=seen[str(i)].arrival_time,
            priority=priorities[i],
        )
        for i in sorted(range(len(prompts)), key=lambda i: seen[str(i)].arrival_time)
    ]
    replay(
        Workload("live", requests),
        resolved.scheduler,
        resolved.cache,
        resolved.latency,
        observer=again,
        policy=resolved.policy,
    )
    assert len(live.steps) > 20
    for ours, theirs in zip(live.steps, again.steps, strict=True):
        assert ours == theirs


def test_clients_are_told_before_the_next_step_is_decided_and_first_tokens_before_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    live, told = Decisions(), list[tuple[str, int]]()
    """The callers that were notified, and how many steps had been decided by then."""

    async def run() -> None:
        deployment = Deployment(f"{LINE} --no-async-scheduling", gpu="h100")
        emulation = emulate(deployment, EmulateSettings(), observers=[live])
        monkeypatch.setattr(emulation.engines.wall, "seconds_until", lambda _: 0.0)  # all is due, and in time
        async with emulation.fronts[0].llm as llm:
            params = GenerationParams(max_tokens=20, ignore_eos=True)
            first = llm.begin([7] * 30, params, "first", told=lambda: told.append(("first", len(live.steps))))
            while len(told) < 3:
                await asyncio.sleep(0)
            second = llm.begin([8] * 30, params, "second", told=lambda: told.append(("second", len(live.steps))))
            while not (first.is_finished and second.is_finished):
                await asyncio.sleep(0)
            await asyncio.sleep(0)
            for each in (first, second):
                llm.leave(each)
            emulation.engines.stop()

    asyncio.run(run())
    assert [steps for name, steps in told if name == "first"] == list(range(1, 21))
    together = [name for name, steps in told if told.count(("first", steps)) and told.count(("second", steps))]
    assert together[:2] == ["second", "first"]


def test_the_shortest_run_has_a_request() -> None:
    (request,) = requests_of(KINDS["long"], 0.2, 0.001)
    assert request["at"] > 0
    assert len(requests_of(KINDS["chat"], 3, 20)) > 1
