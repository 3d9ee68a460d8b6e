"""A user saw 2, 5 or 7 of 16 prompts in the first step although all fit its budget: the others had not arrived.

16 prompts of 1,024 tokens, budget 16,384, room for all of them.
"""

from __future__ import annotations

import pytest
from tests.support.yard import Yard

from tokenyard.sched.steps.outcomes import OutcomeKind, Reason


@pytest.fixture
def yard() -> Yard:
    return Yard(
        num_gpu_blocks=4000, block_size=16, max_num_seqs=256, max_num_batched_tokens=16_384, max_model_len=32_768
    )


def _arrive(yard: Yard, first: int, last: int) -> None:
    for i in range(first, last):
        yard.add(f"r{i}", 1024, max_tokens=64)


def test_prompts_that_are_all_there_are_all_scheduled(yard: Yard) -> None:
    _arrive(yard, 0, 16)
    output = yard.step()
    assert list(output.num_scheduled_tokens.values()) == [1024] * 16
    assert output.total_num_scheduled_tokens == 16_384
    assert (yard.admission.kind, yard.admission.reason) == (OutcomeKind.LOOP_ENDED, Reason.QUEUES_EMPTY)
    assert yard.admission.budget_left == 0


@pytest.mark.parametrize("early", [2, 5, 7])
def test_prompts_that_trickle_in_are_not_there_to_be_scheduled(yard: Yard, early: int) -> None:
    _arrive(yard, 0, early)
    output = yard.step()
    assert len(output.req_ids) == early
    assert yard.admission.reason is Reason.QUEUES_EMPTY, "nothing held anybody back"
    assert yard.admission.num_requests == 0
    assert yard.admission.budget_left == 16_384 - early * 1024
    _arrive(yard, early, 16)
    output = yard.step()
    decodes, prefills = early, 16 - early
    assert sorted(output.num_scheduled_tokens.values()) == [1] * decodes + [1024] * prefills
    assert yard.admission.reason is Reason.QUEUES_EMPTY


def test_one_prompt_more_has_to_wait_for_the_budget(yard: Yard) -> None:
    _arrive(yard, 0, 17)
    yard.step()
    assert (len(yard.running), yard.waiting) == (16, ["r16"])
    assert (yard.admission.reason, yard.admission.num_requests) == (Reason.TOKEN_BUDGET, 1)


def test_decodes_take_their_share_of_the_budget_first(yard: Yard) -> None:
    """With two decodes running, fourteen whole prompts and a chunk of the next fit."""
    _arrive(yard, 0, 2)
    yard.step()
    _arrive(yard, 2, 18)
    output = yard.step()
    assert sorted(output.num_scheduled_tokens.values()) == [1, 1, 1022] + [1024] * 15
