"""Reasons that our own scheduler never has: prompts put off by a cadence, and encoder outputs from elsewhere."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import pytest

pytest.importorskip("vllm", reason="needs vLLM: make test-vllm")

from tests.vllm.late_images import LATE_BY

from recorder import host
from recorder.drive import Recording
from recorder.plan import Engine, Plan, Planned, Scenario
from recorder.scenarios import SCENARIOS
from tokenyard.trace.reader import TraceReader
from tokenyard.trace.schema import AdmissionOutcome
from tokenyard.trace.steps import Step
from tokenyard.vllm import AsyncTracingScheduler, TracingScheduler
from tokenyard.vllm.versions import installed_version

pytestmark = pytest.mark.smoke

_VERSION = tuple(map(int, installed_version().split(".")))
_INTERVAL = 4
_CADENCE, _ENCODER = "prefill_cadence", "waiting_encoder_cache"


def _one_by_one(_rng: Random, _engine: Engine) -> Plan:
    """Prompts of two steps come while others decode."""
    requests = [
        Planned(id=f"r{i}", prompt=[(7 * i + j) % 400 for j in range(200)], max_tokens=30, arrival_step=5 * i)
        for i in range(20)
    ]
    return Plan(requests=requests, events=[])


def _run(scenario: Scenario, change: Callable[[Any], None], driven: bool) -> tuple[Any, list[dict[str, Any]]]:
    """vLLM's scheduler with its configuration changed; ``driven``: the engine counts steps, as with data parallel."""
    arguments = host.scheduler_arguments(scenario.engine)
    change(arguments.vllm_config)
    built = host.build_host(scenario.engine, arguments=arguments)
    scheduler = built.scheduler
    if driven:
        decide, calls = scheduler.schedule, iter(range(10**6))
        scheduler.schedule = lambda: decide(next(calls) % _INTERVAL != 0)
    return scheduler, Recording(built, scenario.plan(), scenario).run()


def _traced(
    scenario: Scenario, folder: Path, change: Callable[[Any], None], *, driven: bool = False
) -> tuple[Any, list[Step]]:
    """Run it with vLLM's class and with ours: both decide the same; returns the scheduler and the trace."""
    _, own = _run(scenario, change, driven)
    with (
        patch.multiple(host, Scheduler=TracingScheduler, AsyncScheduler=AsyncTracingScheduler),
        patch.dict(os.environ, SCHED_TRACE_PATH=str(folder)),
    ):
        scheduler, traced = _run(scenario, change, driven)
    assert traced == own
    assert scheduler.tracer.is_open
    scheduler.tracer.close()
    return scheduler, list(TraceReader(folder, requests=False).steps())


def _outcome(step: Step) -> AdmissionOutcome:
    assert step.outcome is not None
    return step.outcome


def _reasons(step: Step) -> list[str]:
    """Reasons of all that were left out in the step, by name or behind the head."""
    if step.outcome is None:
        return []
    outcome = step.outcome
    each = [one.reason for one in (*(outcome.skipped or ()), *(outcome.not_scheduled or ()))]
    return [*each, *[outcome.reason] * (outcome.num_requests or 0)]


def _left_waiting(step: Step) -> int:
    assert step.snapshot is not None
    assert step.decision is not None
    admitted = [*(step.decision.scheduled_new_req_ids or ()), *(step.decision.scheduled_resumed_req_ids or ())]
    return (step.snapshot.num_waiting or 0) - len(admitted) + len(step.decision.preempted_req_ids or ())


def _held(step: Step) -> int:
    if step.outcome is None:
        return 0
    return (step.outcome.num_requests or 0) + sum((step.outcome.skipped_counts or {}).values())


@pytest.mark.parametrize("driven", [True, False], ids=["engine counts", "scheduler counts"])
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_prompts_that_are_put_off(is_async: bool, driven: bool, tmp_path: Path) -> None:
    since = (0, 24) if driven else (0, 33)
    if since > _VERSION:
        pytest.skip("this vLLM has no such cadence")

    def change(config: Any) -> None:
        config.scheduler_config.prefill_schedule_interval = 1 if driven else _INTERVAL

    scenario = Scenario(name="", seed=0, engine=Engine(async_scheduling=is_async), build=_one_by_one)
    _, steps = _traced(scenario, tmp_path, change, driven=driven)
    put_off = [step for step in steps if _CADENCE in _reasons(step)]
    assert len(put_off) > 20
    assert any(each.reason == _CADENCE for step in put_off for each in (_outcome(step).not_scheduled or ()))
    assert any(_outcome(step).reason == _CADENCE for step in put_off)
    for step in put_off:
        assert step.decision is not None
        assert not step.decision.scheduled_new_req_ids, f"step {step.number} admits a request"
        assert not driven or step.number % _INTERVAL, f"step {step.number} is one of those for prompts"
    assert [step.number for step in steps if _left_waiting(step) != _held(step)] == []


def test_images_from_elsewhere(tmp_path: Path) -> None:
    if _VERSION < (0, 32):
        pytest.skip("this vLLM waits for no encoder output")
    from vllm.config import ECTransferConfig

    def change(config: Any) -> None:
        config.ec_transfer_config = ECTransferConfig(
            ec_connector="LateImages", ec_role="ec_consumer", ec_connector_module_path="tests.vllm.late_images"
        )

    scenario = next(each for each in SCENARIOS if each.name == "images")
    scheduler, steps = _traced(scenario, tmp_path, change)
    illustrated = sum(bool(request.mm) for request in scenario.plan().requests)
    in_vain = sum(min(count, LATE_BY) for count in scheduler.ec_connector.asked.values())
    assert in_vain == LATE_BY * illustrated
    assert sum(_reasons(step).count(_ENCODER) for step in steps) == in_vain
    assert [step.number for step in steps if _left_waiting(step) != _held(step)] == []
