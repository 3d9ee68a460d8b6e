"""Bypass: the small go past a head that memory refuses, until it has waited or been passed enough."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.yard import Yard

from tokenyard.errors import ConfigError
from tokenyard.policies.bypass import Bypass
from tokenyard.sched.steps.outcomes import OutcomeKind, Reason


def blocked(policy: Bypass, **settings: Any) -> Yard:
    """``runs`` holds 5 of 10 blocks for long; ``head`` needs 8; small ones wait behind it."""
    yard = Yard(policy_object=policy, num_gpu_blocks=11, **settings)
    yard.add("runs", 16, max_tokens=4)
    yard.step()
    yard.add("head", 32, max_tokens=2)
    for i in range(3):
        yard.add(f"small{i}", 4, max_tokens=1)
    return yard


def test_the_small_go_past_the_head() -> None:
    yard = blocked(Bypass())
    yard.step()
    assert set(yard.requests) - set(yard.scheduler.requests) == {"small0", "small1", "small2"}
    assert (yard.running, yard.skipped) == (["runs"], ["head"])
    refusal = yard.outcomes.skipped[0]
    assert (refusal.kind, refusal.reason, refusal.request_id, refusal.num_requests) == (
        OutcomeKind.SKIPPED,
        Reason.KV_FULL_SEQUENCE,
        "head",
        1,
    )
    assert yard.admission.reason is Reason.QUEUES_EMPTY


def test_the_head_is_tried_first_again() -> None:
    yard = blocked(Bypass())
    yard.until(lambda: "runs" not in yard.scheduler.requests)
    yard.add("late", 4)
    yard.step()
    assert yard.running[0] == "head"


def test_patience_ends() -> None:
    yard = blocked(Bypass(patience=5.0))
    yard.step()
    yard.now = 5.0
    yard.add("small3", 4, max_tokens=1)
    yard.step()
    assert (yard.running, yard.admission.request_id) == (["runs"], "head")
    assert [*yard.skipped, *yard.waiting] == ["head", "small3"]


def test_so_many_and_no_more_go_past() -> None:
    yard = blocked(Bypass(limit=2), max_num_batched_tokens=8)
    passed = []
    for _ in range(3):
        yard.step()
        passed.append(sum(f"small{i}" not in yard.scheduler.requests for i in range(3)))
    assert passed[-1] == 2
    yard.drain()


def test_a_step_looks_at_so_many() -> None:
    yard = blocked(Bypass(looks=2))
    for i in range(3):
        yard.add(f"big{i}", 32, max_tokens=1)
    yard.step()
    assert [each.request_id for each in yard.outcomes.skipped] == ["head", "big0"]
    assert yard.admission.request_id == "big1"


def test_whoever_aborts_while_blocked_is_forgotten() -> None:
    policy = Bypass(looks=1)
    yard = blocked(policy)
    for i in range(9):
        yard.step()
        yard.abort("head" if i == 0 else f"big{i - 1}")
        yard.add(f"big{i}", 32)
        if "runs" not in yard.scheduler.requests:
            yard.add(f"runs{i}", 16)
    assert len(policy._blocked) <= 5


@pytest.mark.parametrize("options", [{"patience": -1.0}, {"limit": -1}, {"looks": 0}])
def test_bounds_are_checked(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        Bypass(**options)  # type: ignore[arg-type]
