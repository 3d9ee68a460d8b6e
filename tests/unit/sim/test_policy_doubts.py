"""A policy that finds nothing in the workload to go by is named, wherever it is asked for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tokenyard.cli.support.asking import scenario_of
from tokenyard.cli.support.parsing import parse
from tokenyard.questions.scenario import replay_spec
from tokenyard.workload.load import doubt_of_policy
from tokenyard.workload.record import Workload, WorkloadRequest
from tokenyard.workload.tokens import StreamTokens

PLAIN = WorkloadRequest(request_id="a", prompt=StreamTokens.unique(1, 20), max_tokens=4)


def pair(**fields: object) -> Workload:
    """Two requests, of which the second has ``fields``."""
    return Workload("pair", [PLAIN, replace(PLAIN, request_id="b", **fields)])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("policy", "word"),
    [("priority", "same priority"), ("fair-share", "one user"), ("continuum-ttl", "no request belongs to a job")],
)
def test_nothing_to_go_by(policy: str, word: str) -> None:
    assert word in (doubt_of_policy(policy, pair()) or "")


@pytest.mark.parametrize(
    ("policy", "fields"),
    [
        ("fcfs", {}),
        ("shortest-remaining", {}),
        ("priority", {"priority": 1}),
        ("fair-share", {"job_id": "alice/1"}),
        ("continuum-share", {"job_id": "j"}),
        ("mine.py:Mine", {}),
    ],
)
def test_something_to_go_by(policy: str, fields: dict[str, object]) -> None:
    assert doubt_of_policy(policy, pair(**fields)) is None


def test_the_header_of_a_run_says_so_instead_of_calling_the_flag_used() -> None:
    deployment = replay_spec(scenario_of(parse(["run", "agentic", "--scheduling-policy", "priority"]))).deployment  # type: ignore[arg-type]
    assert deployment.used == []
    (said,) = deployment.without_effect
    assert said.startswith("--scheduling-policy priority: all requests have the same priority")
