"""A part that stands for a workload: the busiest stretch, sessions whole."""

from __future__ import annotations

from tests.unit.sim.test_replay import request

from tokenyard.workload.load import busiest_part, read_workload
from tokenyard.workload.record import Workload


def test_it_is_where_most_tokens_arrive_per_second() -> None:
    quiet = [request(f"q{i}", arrival_time=10.0 * i) for i in range(20)]
    busy = [request(f"b{i}", arrival_time=75.0 + 0.1 * i) for i in range(10)]
    part = busiest_part(Workload("w", [*quiet, *busy]), 10)
    assert part is not None
    assert {each.request_id for each in part.workload} == {f"b{i}" for i in range(10)}
    assert (part.first, part.last) == (75.0, 75.9)
    assert min(each.arrival_time for each in part.workload) == 0.0


def test_sessions_stay_whole() -> None:
    workload = read_workload("agentic", limit=30)
    part = busiest_part(workload, 40)
    assert part is not None
    assert 40 <= len(part.workload) < len(workload)
    kept = {each.request_id for each in part.workload}
    for each in workload:
        assert all((before in kept) == (each.request_id in kept) for before in each.after)


def test_a_turn_that_answers_several_joins_their_sessions() -> None:
    requests = [request("a"), request("b"), request("c", after=("a", "b")), request("d", arrival_time=5.0)]
    part = busiest_part(Workload("w", requests), 2)
    assert part is not None
    assert {each.request_id for each in part.workload} == {"a", "b", "c"}


def test_sessions_that_are_joined_begin_with_the_first_of_their_requests() -> None:
    """It may stand behind another one in the list of those that a turn answers to."""
    requests = [request("a", arrival_time=1.0), request("b", arrival_time=5.0), request("c", after=("b", "a"))]
    part = busiest_part(Workload("w", [*requests, request("d", arrival_time=99.0)]), 3)
    assert part is not None
    assert {each.request_id: each.arrival_time for each in part.workload} == {"a": 0.0, "b": 4.0, "c": 0.0}
    assert (part.first, part.last) == (1.0, 1.0)


def test_many_sessions_may_be_joined() -> None:
    """Each join costs as much as the smaller of the two sessions, whichever is named first."""
    requests = [request(f"r{i}", arrival_time=float(i)) for i in range(20_000)]
    turns = [request(f"t{i}", after=(f"r{i}", f"t{i - 1}") if i else ("r0",)) for i in range(20_000)]
    part = busiest_part(Workload("w", [*requests, *turns, request("last", arrival_time=3e4)]), 1)
    assert part is not None
    assert len(part.workload) == 40_000


def test_one_session_cannot_be_parted() -> None:
    assert busiest_part(Workload("w", [request("a"), request("b", after=("a",))]), 1) is None
