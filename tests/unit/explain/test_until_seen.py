"""The time before the first step that sees a request: on its way, behind a step that runs, or between two."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenyard.explain.why.waits import until_seen
from tokenyard.trace.reader import ingress_of

TIMES = st.integers(0, 50)


def pieces(
    sent: int, seen: int, *, before: int | None, over: int | None, taken_in: int | None
) -> list[tuple[str, int]]:
    found = until_seen(ingress_of(sent, seen, before=before, over=over, taken_in=taken_in))
    return [(cause.reason, end - begin) for cause, begin, end in found if end > begin]


@pytest.mark.parametrize(
    ("before", "over", "taken_in", "expected"),
    [
        (None, 10, None, [("between_steps", 30)]),
        (None, 10, 35, [("front_end", 25), ("between_steps", 5)]),
        (5, 20, None, [("step_in_progress", 10), ("between_steps", 20)]),
        (15, 20, None, [("front_end", 5), ("step_in_progress", 5), ("between_steps", 20)]),
        (15, 20, 38, [("front_end", 5), ("step_in_progress", 5), ("front_end", 18), ("between_steps", 2)]),
        (5, 8, 38, [("front_end", 28), ("between_steps", 2)]),
        (15, 40, None, [("front_end", 5), ("step_in_progress", 25)]),
        (15, None, 38, [("front_end", 5), ("step_in_progress", 25)]),
    ],
    ids=[
        "first step of a trace",
        "first step, taken in late",
        "a step ran",
        "the step before had not seen it",
        "and then nothing ran until it came",
        "nothing ran at all",
        "the step went on until this one",
        "nobody recorded the step's end",
    ],
)
def test_arrived_at_10_and_seen_at_40(
    before: int | None, over: int | None, taken_in: int | None, expected: list[tuple[str, int]]
) -> None:
    assert pieces(10, 40, before=before, over=over, taken_in=taken_in) == expected


@given(TIMES, TIMES, st.none() | TIMES, st.none() | TIMES, st.none() | TIMES)
def test_the_pieces_cover_it_without_a_gap(
    start: int, length: int, before: int | None, over: int | None, taken_in: int | None
) -> None:
    seen = start + length
    way = ingress_of(start, seen, before=before, over=over, taken_in=taken_in)
    found = until_seen(way)
    assert sum(end - begin for cause, begin, end in found if cause.reason == "front_end") == way.on_its_way
    assert [begin for _, begin, _ in found] == [start, *(end for _, _, end in found)][:-1]
    assert found[-1][2] == seen
    assert all(begin <= end for _, begin, end in found)
