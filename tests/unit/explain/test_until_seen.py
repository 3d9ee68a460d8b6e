"""The time before the first step that sees a request: on its way, behind a step that runs, or between two."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenyard.explain.why.until_seen import until_seen

TIMES = st.integers(0, 50)


def pieces(*args: int, before: int | None, over: int, taken_in: int | None) -> list[tuple[str, int]]:
    found = until_seen(*args, before=before, over=over, taken_in=taken_in)
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
    ],
    ids=[
        "first step of a trace",
        "first step, taken in late",
        "a step ran",
        "the step before had not seen it",
        "and then nothing ran until it came",
        "nothing ran at all",
        "the step went on until this one",
    ],
)
def test_arrived_at_10_and_seen_at_40(
    before: int | None, over: int, taken_in: int | None, expected: list[tuple[str, int]]
) -> None:
    assert pieces(10, 40, before=before, over=max(over, 10), taken_in=taken_in) == expected


@given(TIMES, TIMES, st.none() | TIMES, TIMES, st.none() | TIMES)
def test_the_pieces_cover_it_without_a_gap(
    start: int, length: int, before: int | None, over: int, taken_in: int | None
) -> None:
    seen = start + length
    found = until_seen(start, seen, before=before, over=min(max(over, start), seen), taken_in=taken_in)
    assert [begin for _, begin, _ in found] == [start, *(end for _, _, end in found)][:-1]
    assert found[-1][2] == seen
    assert all(begin <= end for _, begin, end in found)
