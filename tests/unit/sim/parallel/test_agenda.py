"""What engines do next is looked up, not asked of all of them: the same events, at a cost that does not grow."""

from __future__ import annotations

from typing import Any

import pytest

import tokenyard as ty
from tokenyard.sim.loop import Agenda

SMALL: dict[str, Any] = {"model": "Qwen/Qwen3-8B", "gpu": "l4", "max_model_len": 8192}
SETTINGS: dict[str, dict[str, Any]] = {
    "one": {},
    "many": {"data_parallel_size": 5, "max_num_seqs": 3},
    "stages": {"data_parallel_size": 2, "pipeline_parallel_size": 2, "async_scheduling": False},
    "replicas": {"autoscale": "1..4", "max_num_seqs": 2, "scale_target": 2, "startup": "2s"},
    "a router of KV": {"data_parallel_size": 4, "router": "dynamo"},
    "offloading": {"data_parallel_size": 2, "kv_offloading_size": 4.0, "num_gpu_blocks_override": 1200},
}


def _run(settings: dict[str, Any]) -> ty.RunResult:
    arrivals: dict[str, Any] = {"limit": 3, "rate_scale": 60, "client_timeout": "20s", "retries": 1}
    return ty.run("chat", ty.Deployment(**SMALL | settings), **arrivals)


QUICK = ("one", "many")


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in SETTINGS]
)
def test_events_are_those_of_all_engines_asked_every_time(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = _run(SETTINGS[name])
    monkeypatch.setattr("tokenyard.sim.loop.Agenda", lambda ranks: None)
    asked = _run(SETTINGS[name])
    assert found.report.to_dict() == asked.report.to_dict()
    for ours, theirs in ((found.requests, asked.requests), (found.steps, asked.steps), (found.waits, asked.waits)):
        assert list(ours) == list(theirs)
    assert len(found.steps) > 500


def test_an_event_costs_as_much_with_many_engines_as_with_few(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    look = Agenda.look

    def looked(agenda: Agenda) -> None:
        looks.extend(agenda.touched)
        look(agenda)

    monkeypatch.setattr(Agenda, "look", looked)

    def looks_per_step(engines: int) -> float:
        looks.clear()
        run = ty.run("chat", ty.Deployment(**SMALL, data_parallel_size=engines), limit=4, rate_scale=60)
        return len(looks) / len(run.steps)

    assert looks_per_step(12) < 1.5 * looks_per_step(3)
