"""A user saw 2, 5 or 7 of 16 prompts in the first step although all fit its budget: the others had not arrived.

16 prompts of 1,024 tokens, budget 16,384, room for all of them.
"""

from __future__ import annotations

import pytest
from tests.support.toy_engine import ToyEngine

from tokenyard.core.sched.outcomes import OutcomeKind, Reason
from tokenyard.errors import ConfigError


@pytest.fixture
def toy() -> ToyEngine:
    return ToyEngine(
        num_gpu_blocks=4000, block_size=16, max_num_seqs=256, max_num_batched_tokens=16_384, max_model_len=32_768
    )


def _arrive(toy: ToyEngine, first: int, last: int) -> None:
    for i in range(first, last):
        toy.add(f"r{i}", 1024, max_tokens=64)


def test_prompts_that_are_all_there_are_all_scheduled(toy: ToyEngine) -> None:
    _arrive(toy, 0, 16)
    output = toy.step()
    assert list(output.num_scheduled_tokens.values()) == [1024] * 16
    assert output.total_num_scheduled_tokens == 16_384
    assert (toy.admission.kind, toy.admission.reason) == (OutcomeKind.LOOP_ENDED, Reason.QUEUES_EMPTY)
    assert toy.admission.budget_left == 0


@pytest.mark.parametrize("early", [2, 5, 7])
def test_prompts_that_trickle_in_are_not_there_to_be_scheduled(toy: ToyEngine, early: int) -> None:
    _arrive(toy, 0, early)
    output = toy.step()
    assert len(output.req_ids) == early
    assert toy.admission.reason is Reason.QUEUES_EMPTY, "nothing held anybody back"
    assert toy.admission.num_requests == 0
    assert toy.admission.budget_left == 16_384 - early * 1024
    _arrive(toy, early, 16)
    output = toy.step()
    decodes, prefills = early, 16 - early
    assert sorted(output.num_scheduled_tokens.values()) == [1] * decodes + [1024] * prefills
    assert toy.admission.reason is Reason.QUEUES_EMPTY


def test_one_prompt_more_has_to_wait_for_the_budget(toy: ToyEngine) -> None:
    _arrive(toy, 0, 17)
    toy.step()
    assert (len(toy.running), toy.waiting) == (16, ["r16"])
    assert (toy.admission.reason, toy.admission.num_requests) == (Reason.TOKEN_BUDGET, 1)


def test_decodes_take_their_share_of_the_budget_first(toy: ToyEngine) -> None:
    """With two decodes running, fourteen whole prompts and a chunk of the next fit."""
    _arrive(toy, 0, 2)
    toy.step()
    _arrive(toy, 2, 18)
    output = toy.step()
    assert sorted(output.num_scheduled_tokens.values()) == [1, 1, 1022] + [1024] * 15


@pytest.mark.parametrize("request_", [None, "r0", {"request_id": "r0"}, 7])
def test_what_is_no_request_is_refused_and_changes_nothing(toy: ToyEngine, request_: object) -> None:
    with pytest.raises(ConfigError, match="give a Request"):
        toy.scheduler.add_request(request_)  # type: ignore[arg-type]
    assert toy.scheduler.get_request_counts() == (0, 0)
    _arrive(toy, 0, 1)
    assert len(toy.step().req_ids) == 1


@pytest.mark.parametrize("policy", ["priority", "fcfs", "shortest-remaining", "attained-service"])
def test_who_names_no_arrival_arrives_when_it_is_added(policy: str) -> None:
    toy = ToyEngine(policy=policy, max_num_seqs=1)
    for now, name in enumerate(("zed", "bob", "al"), start=5):
        toy.now = now
        assert toy.add(name, 4, max_tokens=1).arrival_time == now
    order = [toy.step().req_ids for _ in range(3)]
    assert order == [("zed",), ("bob",), ("al",)]


def test_an_arrival_that_is_named_stays() -> None:
    toy = ToyEngine()
    toy.now = 9.0
    assert toy.add("a", 4, arrival_time=0.0).arrival_time == 0.0
