"""Lines that wait as templates, numbers and pieces, and are put together later."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenyard.record.templates import GAP, NUMBER, merge_gaps, more_fields, template_of
from tokenyard.record.writer import Lines


class Record(msgspec.Struct):
    """Something to write."""

    name: str
    first: Any
    second: Any
    count: Any
    last: Any


def text(lines: Lines) -> str:
    return b"".join(lines.render()).decode()


NAMES = st.text(st.sampled_from('a%sb"\\\x00\x01é'), max_size=6)
LISTS = st.lists(st.text("ab%", max_size=2), max_size=3)


@pytest.mark.slow
@given(rows=st.lists(st.tuples(NAMES, LISTS, LISTS, st.integers(), st.floats(allow_nan=False, allow_infinity=False))))
def test_what_is_put_together_decodes_to_the_record(
    rows: list[tuple[str, list[str], list[str], int, float]],
) -> None:
    lines = Lines()
    for name, first, second, count, last in rows:
        template, between = merge_gaps(template_of(Record(name, GAP, GAP, NUMBER, NUMBER)), 2)
        assert between == [b',"second":']
        lines.templates.append(template + more_fields(more=None, extra=7))
        lines.pieces.append(json.dumps(first).encode() + between[0] + json.dumps(second).encode())
        lines.numbers += (count, last)
        lines.append(msgspec.json.encode({"plain": name}))
    found = [json.loads(line) for line in text(lines).splitlines()]
    expected: list[dict[str, Any]] = []
    for name, first, second, count, last in rows:
        record = Record(name, first, second, count, last)
        expected += (msgspec.to_builtins(record) | {"extra": 7}, {"plain": name})
    assert found == expected


def test_numbers_of_numpy_are_numbers_and_what_is_none_is_null() -> None:
    lines = Lines()
    lines.templates.append(b'{"a":%b,"b":%b,"c":%b}\n')
    lines.numbers += (float(np.float64(0.1)), np.int64(3).item(), math.nan)
    assert json.loads(text(lines)) == {"a": 0.1, "b": 3, "c": None}
    numbers: list[Any] = [np.float64(0.1), np.int64(3), np.float32(0.5)]
    lines.numbers[:] = numbers
    assert json.loads(text(lines)) == {"a": 0.1, "b": 3, "c": 0.5}


def test_nothing_is_left_where_lines_were_taken() -> None:
    lines = Lines()
    lines.append(b"{}")
    taken = lines.take()
    assert (text(lines), lines.num_bytes) == ("", 0)
    assert (text(taken), taken.num_bytes) == ("{}\n", 3)
    lines.append(b"[]")
    assert text(taken) == "{}\n", "what was taken grows no more"


def test_an_interrupt_while_a_line_is_added_costs_that_line_alone() -> None:
    template = b'{"100%%b":%b,"list":' + b"\0}\n"
    for stage in range(3):
        lines = Lines()
        for number in range(4):
            interrupted = number == 2
            if lines.is_open:
                lines.drop_unfinished()
            lines.is_open = True
            if not interrupted or stage >= 1:
                lines.numbers += (number,)
            if not interrupted or stage >= 2:
                lines.pieces.append(b"[]")
            if interrupted:
                continue
            lines.templates.append(template)
            lines.is_open = False
        lines.append(b'{"last":1}')
        lines.is_open = True
        lines.numbers += (9,)
        found = [json.loads(line) for line in text(lines.take()).splitlines()]
        assert found == [*({"100%b": number, "list": []} for number in (0, 1, 3)), {"last": 1}]
