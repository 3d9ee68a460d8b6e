"""Moments, chains, joins and sessions that end early."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenyard.sim.traffic import ArrivalQueue
from tokenyard.workload.record import Workload, WorkloadRequest
from tokenyard.workload.tokens import StreamTokens


def request(name: str, **fields: Any) -> WorkloadRequest:
    return WorkloadRequest(request_id=name, prompt=StreamTokens.unique(1, 4), max_tokens=1, **fields)


def arrivals(*requests: WorkloadRequest) -> ArrivalQueue:
    return ArrivalQueue(Workload("w", requests))


def due(queue: ArrivalQueue, now: float) -> list[tuple[float, str]]:
    return [(moment, each.request_id) for moment, each in queue.due(now)]


def test_moments_in_order_and_ties_as_they_stand() -> None:
    queue = arrivals(request("c", arrival_time=3.0), request("a", arrival_time=1.0), request("b", arrival_time=1.0))
    assert queue.next_moment == 1.0
    assert due(queue, 0.5) == []
    assert due(queue, 1.0) == [(1.0, "a"), (1.0, "b")]
    assert due(queue, 9.0) == [(3.0, "c")]
    assert queue.next_moment is None


def test_a_turn_comes_its_gap_after_the_end() -> None:
    queue = arrivals(request("a"), request("b", after=("a",), gap=2.0))
    assert due(queue, 100.0) == [(0.0, "a")]
    assert queue.next_moment is None
    queue.ended("a", arrived=0.0, now=10.0)
    assert queue.next_moment == 12.0


def test_spacing_counts_from_the_arrival_before() -> None:
    queue = arrivals(request("a"), request("b", after=("a",), spacing=5.0), request("c", after=("b",), spacing=5.0))
    queue.due(0.0)
    queue.ended("a", arrived=0.0, now=1.0)
    assert queue.next_moment == 5.0
    queue.due(5.0)
    queue.ended("b", arrived=5.0, now=30.0)
    assert queue.next_moment == 30.0


def test_a_join_waits_for_the_last() -> None:
    queue = arrivals(request("a"), request("b"), request("c", after=("a", "b"), gap=1.0))
    queue.due(0.0)
    queue.ended("b", arrived=0.0, now=7.0)
    assert queue.next_moment is None
    queue.ended("a", arrived=0.0, now=4.0 + 5.0)
    assert queue.next_moment == 10.0


def test_a_refused_turn_ends_its_session() -> None:
    queue = arrivals(
        request("a"),
        request("b", after=("a",)),
        request("c", after=("b",)),
        request("other"),
        request("join", after=("c", "other")),
        request("free", after=("other",)),
    )
    queue.due(0.0)
    queue.refused("a", now=0.0)
    assert queue.num_left_out == 3
    queue.ended("other", arrived=0.0, now=1.0)
    assert due(queue, 9.0) == [(1.0, "free")]


@pytest.mark.slow
@given(st.data())
def test_every_request_arrives_once_or_is_left_out(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 25))
    requests = []
    for i in range(count):
        parents = data.draw(st.sets(st.integers(0, i - 1), max_size=3)) if i else set()
        fields: dict[str, Any] = (
            {"after": tuple(f"r{p}" for p in sorted(parents)), "gap": data.draw(st.floats(0, 5))}
            if parents
            else {"arrival_time": data.draw(st.floats(0, 50))}
        )
        requests.append(request(f"r{i}", **fields))
    refused = data.draw(st.sets(st.integers(0, count - 1)))
    queue, now, arrived = arrivals(*requests), 0.0, list[str]()
    ran: dict[str, float] = {}
    while queue.next_moment is not None:
        now = max(now, queue.next_moment)
        for moment, each in queue.due(now):
            arrived.append(each.request_id)
            assert moment <= now
            assert all(parent in ran and moment >= ran[parent] for parent in each.after)
            if int(each.request_id[1:]) in refused:
                queue.refused(each.request_id, now=now)
            else:
                now += 1.0
                ran[each.request_id] = now
                queue.ended(each.request_id, arrived=moment, now=now)
    assert len(arrived) == len(set(arrived))
    assert len(arrived) + queue.num_left_out == count


def test_a_closed_loop_sends_the_next_request_when_one_ends() -> None:
    requests = [request(str(i), arrival_time=i / 10) for i in range(5)]
    queue = ArrivalQueue(Workload("w", requests, max_concurrency=2))
    assert due(queue, 9.0) == [(0.0, "0"), (0.1, "1")]
    assert queue.next_moment is None, "there is no room: nothing arrives by itself"
    assert due(queue, 10.0) == []
    queue.ended("0", arrived=0.0, now=11.0)
    assert due(queue, 12.0) == [(11.0, "2")]
    queue.refused("2", now=12.0)
    queue.ended("1", arrived=0.1, now=13.0)
    assert due(queue, 13.0) == [(12.0, "3"), (13.0, "4")]


@given(st.integers(1, 5), st.lists(st.floats(0, 5), min_size=1, max_size=20))
def test_a_closed_loop_never_has_more_under_way(most: int, moments: list[float]) -> None:
    requests = [request(str(i), arrival_time=moment) for i, moment in enumerate(sorted(moments))]
    queue, now, under_way, seen = ArrivalQueue(Workload("w", requests, max_concurrency=most)), 0.0, list[str](), 0
    while seen < len(requests):
        arrived = due(queue, now)
        assert all(moment <= now for moment, _ in arrived)
        under_way += [each for _, each in arrived]
        seen += len(arrived)
        assert len(under_way) <= most
        if under_way:
            now += 1.0
            queue.ended(under_way.pop(0), arrived=0.0, now=now)
        else:
            assert queue.next_moment is not None, "no request is under way: one may come"
            now = max(now, queue.next_moment)


def test_a_request_is_on_its_way_for_a_while() -> None:
    """It waits from when it was sent; the scheduler has it later, its followers' gaps as before."""
    queue = arrivals(request("a", arrival_time=1.0, delay=0.5), request("b", after=("a",), gap=2.0, delay=0.25))
    assert due(queue, 1.4) == []
    assert queue.next_moment == 1.5
    assert due(queue, 1.5) == [(1.0, "a")]
    queue.ended("a", arrived=1.0, now=3.0)
    assert due(queue, 5.2) == []
    assert due(queue, 5.25) == [(5.0, "b")]


def test_who_waited_for_a_place_is_on_the_way_as_long_as_others() -> None:
    """It is sent when a place is free; the scheduler has it later."""
    requests = [request(str(i), delay=each) for i, each in enumerate((5.0, 5.0, 2.0))]
    queue = ArrivalQueue(Workload("w", requests, max_concurrency=1))
    assert due(queue, 4.9) == []
    assert due(queue, 5.0) == [(0.0, "0")]
    queue.ended("0", arrived=0.0, now=7.0)
    assert due(queue, 11.9) == []
    assert due(queue, 12.0) == [(7.0, "1")]
    queue.ended("1", arrived=7.0, now=20.0)
    assert queue.next_moment == 22.0
    assert due(queue, 22.0) == [(20.0, "2")]


@given(st.data())
def test_a_closed_loop_delays_every_request_and_keeps_its_places(data: st.DataObject) -> None:
    """Each is sent once due and a place is free, in the order in which they are due; turns follow others."""
    most, count = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 12))
    delays = st.sampled_from([0.0, 0.25, 1.5])
    requests = [
        request(f"{i}", delay=data.draw(delays), after=(f"{i - 3}",), gap=data.draw(st.sampled_from([0.0, 2.0])))
        if i >= 3 and data.draw(st.booleans())
        else request(f"{i}", delay=data.draw(delays), arrival_time=data.draw(st.sampled_from([0.0, 0.5, 3.0])))
        for i in range(count)
    ]
    queue, now = ArrivalQueue(Workload("w", requests, max_concurrency=most)), 0.0
    ends: list[tuple[float, str, float]] = []
    sent, ended = list[float](), list[float]()
    while ends or queue.next_moment is not None:
        coming = queue.next_moment
        if ends and (coming is None or ends[0][0] <= coming):
            now, name, arrived = ends.pop(0)
            ended.append(now)
            queue.ended(name, arrived=arrived, now=now)
            continue
        assert coming is not None
        now = max(now, coming)
        for moment, each in queue.due(now):
            assert moment + each.delay <= now
            assert moment >= each.arrival_time
            sent.append(moment)
            ends = sorted([*ends, (now + 1.0 + int(each.request_id) % 2, each.request_id, moment)])
    assert len(ended) == count
    assert all(sum(start <= at for start in sent) - sum(end <= at for end in ended) <= most for at in sent)


def test_what_is_sent_again_arrives_at_its_moment_and_leaves_its_place_meanwhile() -> None:
    queue = ArrivalQueue(Workload("w", [request("a"), request("b")], max_concurrency=1))
    assert due(queue, 0.0) == [(0.0, "a")]
    queue.again(request("a~2", arrival_time=3.0), now=2.0)
    assert due(queue, 2.0) == [(2.0, "b")]
    assert due(queue, 9.0) == []
    queue.ended("b", arrived=2.0, now=9.0)
    assert due(queue, 9.0) == [(9.0, "a~2")]
