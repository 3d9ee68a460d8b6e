"""Bypass: the small go past a head that memory refuses, until it has waited or been passed enough."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.toy_engine import ToyEngine

from tokenyard.core.sched.outcomes import OutcomeKind, Reason
from tokenyard.errors import ConfigError
from tokenyard.policies.simple import Bypass


def blocked(policy: Bypass, **settings: Any) -> ToyEngine:
    """``runs`` holds 5 of 10 blocks for long; ``head`` needs 8; small ones wait behind it."""
    toy = ToyEngine(policy_object=policy, num_gpu_blocks=11, **settings)
    toy.add("runs", 16, max_tokens=4)
    toy.step()
    toy.add("head", 32, max_tokens=2)
    for i in range(3):
        toy.add(f"small{i}", 4, max_tokens=1)
    return toy


def test_the_small_go_past_the_head() -> None:
    toy = blocked(Bypass())
    toy.step()
    assert set(toy.requests) - set(toy.scheduler.requests) == {"small0", "small1", "small2"}
    assert (toy.running, toy.skipped) == (["runs"], ["head"])
    refusal = toy.outcomes.skipped[0]
    assert (refusal.kind, refusal.reason, refusal.request_id, refusal.num_requests) == (
        OutcomeKind.SKIPPED,
        Reason.KV_FULL_SEQUENCE,
        "head",
        1,
    )
    assert toy.admission.reason is Reason.QUEUES_EMPTY


def test_the_head_is_tried_first_again() -> None:
    toy = blocked(Bypass())
    toy.until(lambda: "runs" not in toy.scheduler.requests)
    toy.add("late", 4)
    toy.step()
    assert toy.running[0] == "head"


def test_patience_ends() -> None:
    toy = blocked(Bypass(patience=5.0))
    toy.step()
    toy.now = 5.0
    toy.add("small3", 4, max_tokens=1)
    toy.step()
    assert (toy.running, toy.admission.request_id) == (["runs"], "head")
    assert [*toy.skipped, *toy.waiting] == ["head", "small3"]


def test_so_many_and_no_more_go_past() -> None:
    toy = blocked(Bypass(limit=2), max_num_batched_tokens=8)
    passed = []
    for _ in range(3):
        toy.step()
        passed.append(sum(f"small{i}" not in toy.scheduler.requests for i in range(3)))
    assert passed[-1] == 2
    toy.drain()


def test_a_step_looks_at_so_many() -> None:
    toy = blocked(Bypass(looks=2))
    for i in range(3):
        toy.add(f"big{i}", 32, max_tokens=1)
    toy.step()
    assert [each.request_id for each in toy.outcomes.skipped] == ["head", "big0"]
    assert toy.admission.request_id == "big1"


def test_whoever_aborts_while_blocked_is_forgotten() -> None:
    policy = Bypass(looks=1)
    toy = blocked(policy)
    for i in range(9):
        toy.step()
        toy.abort("head" if i == 0 else f"big{i - 1}")
        toy.add(f"big{i}", 32)
        if "runs" not in toy.scheduler.requests:
            toy.add(f"runs{i}", 16)
    assert len(policy.blocked) <= 5


@pytest.mark.parametrize("options", [{"patience": -1.0}, {"limit": -1}, {"looks": 0}])
def test_bounds_are_checked(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        Bypass(**options)  # type: ignore[arg-type]
