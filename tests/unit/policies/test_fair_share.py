"""Fair share: users are given tokens in proportion to their weights, and idleness earns nothing."""

from __future__ import annotations

import pytest
from tests.support.toy_engine import ToyEngine, make_request

from tokenyard.errors import ConfigError
from tokenyard.policies.fair import FairShare, UserQueue, user_of


def test_who_the_user_is() -> None:
    assert user_of(make_request("r", job_id="alice/task-7", client_index=2)) == (2, "alice")
    assert user_of(make_request("r", job_id="job")) == (0, "job")
    assert user_of(make_request("r")) == (0, "")


def served(policy: FairShare, rounds: int) -> list[str]:
    """Order of admission when alice has much to do and bob asks for little, one seat."""
    toy = ToyEngine(policy_object=policy, max_num_seqs=1)
    for i in range(rounds):
        toy.add(f"a{i}", 8, max_tokens=1, job_id=f"alice/{i}")
    for i in range(rounds):
        toy.add(f"b{i}", 8, max_tokens=1, job_id=f"bob/{i}")
    order = []
    for _ in range(rounds):
        order += [request_id[0] for request_id in toy.step().req_ids]
    return order


def test_equal_users_take_turns_whoever_came_first() -> None:
    assert sorted(served(FairShare(), 8)) == ["a"] * 4 + ["b"] * 4


def test_a_user_of_weight_three_gets_three_times_as_much() -> None:
    assert served(FairShare({"bob": 3.0}), 12).count("b") == 9


def test_one_pass_does_not_admit_a_user_s_whole_line() -> None:
    toy = ToyEngine(policy_object=FairShare(), max_num_seqs=4)
    for name in ("a0", "a1", "a2", "b0", "b1"):
        toy.add(name, 8, job_id=f"{name[0]}/x")
    toy.step()
    assert sorted(toy.running) == ["a0", "a1", "b0", "b1"]


def test_idleness_earns_no_credit() -> None:
    policy = FairShare()
    toy = ToyEngine(policy_object=policy, max_num_seqs=1)
    for i in range(4):
        toy.add(f"a{i}", 8, max_tokens=1, job_id="a/x")
    toy.steps(3)
    toy.add("b0", 8, job_id="b/x")
    assert policy.given[0, "b"] == policy.given[0, "a"] == 28.0


def test_whoever_comes_when_nobody_waits_starts_where_the_last_one_stood() -> None:
    policy = FairShare()
    toy = ToyEngine(policy_object=policy)
    toy.add("a0", 8, max_tokens=1, job_id="a/x")
    toy.drain()
    toy.add("b0", 8, job_id="b/x")
    assert policy.given[0, "b"] == 8.0


def test_everything_drains_with_preemptions_and_aborts() -> None:
    toy = ToyEngine(policy_object=FairShare(), num_gpu_blocks=9)
    for i in range(12):
        toy.add(f"r{i}", 4 + i, max_tokens=8, job_id=f"user{i % 3}/x")
    toy.steps(3)
    toy.abort("r11", "r0")
    toy.drain()
    assert sum(request.num_preemptions for request in toy.requests.values()) == 5


def test_the_queue_keeps_lines_in_order() -> None:
    counters = {(0, "a"): 5.0, (0, "b"): 1.0}
    popped: list[str] = []
    queue = UserQueue(lambda user: counters[user], lambda request: popped.append(request.request_id))
    a0, a1, b0 = (make_request(name, job_id=f"{name[0]}/x") for name in ("a0", "a1", "b0"))
    for request in (a0, a1, b0):
        queue.add(request)
    assert [request.request_id for request in queue] == ["b0", "a0", "a1"]
    assert queue.pop() is b0
    queue.prepend(b0)
    assert queue.discard(a0)
    assert not queue.discard(a0)
    queue.prepend_all([a0])
    assert [request.request_id for request in queue] == ["b0", "a0", "a1"]
    assert (queue.get("a1"), queue.get("x"), len(queue), popped) == (a1, None, 3, ["b0"])


def test_weights_are_checked() -> None:
    with pytest.raises(ConfigError, match="bob"):
        FairShare({"bob": 0.0})
