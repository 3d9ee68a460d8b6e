"""Calls read out of answers: cut anywhere, a stream says what the whole answer says."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenyard.errors import ConfigError
from tokenyard.serve.openai.tool_calls.parsers import (
    PARSERS,
    Hermes,
    Llama3Json,
    ToolCall,
    ToolCallParser,
    parser_named,
)

Told = tuple[str, list[ToolCall]]

WEATHER = '{"name": "weather", "arguments": {"city": "Köln", "days": 2}}'
CALL = ToolCall("weather", '{"city": "Köln", "days": 2}')


def told(make: Callable[[], ToolCallParser], *pieces: str) -> Told:
    parser, content = make(), ""
    calls: list[ToolCall] = []
    for found in (*(parser.add(piece) for piece in pieces), parser.end()):
        content += found.content
        calls += found.calls
    return content, calls


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hello", ("hello", [])),
        ("  hello \n", ("  hello \n", [])),
        ("", ("", [])),
        (f"<tool_call>{WEATHER}</tool_call>", ("", [CALL])),
        (f"\n<tool_call>\n{WEATHER}\n</tool_call>\n", ("", [CALL])),
        (f"I look.\n<tool_call>{WEATHER}</tool_call>", ("I look.", [CALL])),
        (f"<tool_call>{WEATHER}</tool_call>\n<tool_call>{WEATHER}</tool_call>", ("", [CALL, CALL])),
        (f"a <tool_call>{WEATHER}</tool_call> b <tool_call>{WEATHER}</tool_call> c", ("abc", [CALL, CALL])),
        (f"<tool_call>{WEATHER}", ("", [CALL])),
        ("<tool_call>{broken</tool_call> more", ("<tool_call>{broken</tool_call> more", [])),
        (
            '<tool_call>{"name": 3, "arguments": {}}</tool_call>',
            ('<tool_call>{"name": 3, "arguments": {}}</tool_call>', []),
        ),
        ("<tool_call>{brok", ("<tool_call>{brok", [])),
        ("1 < 2 <tool", ("1 < 2 <tool", [])),
        (f"<tool_call>oops</tool_call><tool_call>{WEATHER}</tool_call>", ("<tool_call>oops</tool_call>", [CALL])),
        ("<tool_call>" + "[" * 100_000 + "</tool_call>", ("<tool_call>" + "[" * 100_000 + "</tool_call>", [])),
    ],
)
def test_hermes(text: str, expected: Told) -> None:
    assert told(Hermes, text) == expected


ONE = '{"name": "weather", "parameters": {"city": "Köln", "days": 2}}'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hello", ("hello", [])),
        (ONE, ("", [CALL])),
        (WEATHER, ("", [CALL])),
        (f"<|python_tag|>{ONE}", ("", [CALL])),
        (f"  {ONE}; {ONE}\n", ("", [CALL, CALL])),
        (f"{ONE}\n{ONE}", ("", [CALL, CALL])),
        ('{"a": 1}', ('{"a": 1}', [])),
        (f"{ONE} and more", (f"{ONE} and more", [])),
        ("{", ("{", [])),
        ("<|python", ("<|python", [])),
        (f"so: {ONE}", (f"so: {ONE}", [])),
        ("{" * 100_000, ("{" * 100_000, [])),
    ],
)
def test_llama3_json(text: str, expected: Told) -> None:
    assert told(Llama3Json, text) == expected


PIECES = st.lists(
    st.sampled_from(
        [
            "<tool_call>",
            "</tool_call>",
            WEATHER,
            ONE,
            "{",
            "}",
            ";",
            " ",
            "\n",
            "text",
            "<",
            "<|python_tag|>",
            '{"name": "f"}',
        ]
    ),
    max_size=8,
).map("".join)


@pytest.mark.parametrize("make", PARSERS.values(), ids=PARSERS)
@given(text=PIECES, cuts=st.lists(st.integers(0, 400), max_size=12))
def test_however_it_is_cut_the_same_is_told(make: Callable[[], ToolCallParser], text: str, cuts: list[int]) -> None:
    ends = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    pieces = [text[begin:end] for begin, end in pairwise(ends)]
    whole = told(make, text)
    assert told(make, *pieces) == whole
    assert told(make, *text) == whole
    for call in whole[1]:
        assert isinstance(json.loads(call.arguments), dict)
    if not whole[1]:
        assert whole[0] == text, "nothing is lost"


def test_both_flags_or_none() -> None:
    assert parser_named(None, enabled=False) is None
    assert parser_named("hermes", enabled=True) is Hermes
    for name, enabled, field in (
        ("best", True, "tool_call_parser"),
        (None, True, "enable_auto_tool_choice"),
        ("hermes", False, "tool_call_parser"),
    ):
        with pytest.raises(ConfigError) as caught:
            parser_named(name, enabled=enabled)
        assert caught.value.field == field
