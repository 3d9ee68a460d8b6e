"""Parsers: which tool a text calls."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenyard.errors import ConfigError
from tokenyard.policies.continuum.tools import (
    PARSERS,
    fenced_bash,
    json_function_calls,
    named_parser,
    openai_tool_calls,
)


@pytest.mark.parametrize(
    ("text", "tool"),
    [
        ("Let us look.\n```bash\nls -la /\n```\n", "ls"),
        ("```sh\n\n  grep -r x .\n```", "grep"),
        ("```bash\n```", None),
        ("```python\nprint(1)\n```", None),
        ("```bash\nls\n```\nand\n```bash\ncat x\n```", None),
        ("```bash\nls", None),
        ("", None),
    ],
)
def test_the_first_word_of_one_bash_block(text: str, tool: str | None) -> None:
    assert fenced_bash(text) == tool


@pytest.mark.parametrize(
    ("text", "tool"),
    [
        ('{"role": "assistant", "tool_calls": [{"type": "function", "function": {"name": "read"}}]}', "read"),
        ('so {"tool_calls": [{"function": {"name": "a"}}, {"function": {"name": "b"}}]} done', "a+b"),
        ('{"tool_calls": []}', None),
        ('{"tool_calls": [{"function": {}}, 3, {"function": "x"}]}', None),
        ('{"tool_calls": [{"function": {"name": "a"}', None),
        ('{"name": "read", "arguments": {}}', None),
    ],
)
def test_openai_tool_calls(text: str, tool: str | None) -> None:
    assert openai_tool_calls(text) == tool


@pytest.mark.parametrize(
    ("text", "tool"),
    [
        ('<tool_call>{"name": "read", "arguments": {"path": "x"}}</tool_call>', "read"),
        ('[{"name": "a", "parameters": {}}, {"name": "b", "arguments": "{}"}]', "a+b"),
        ('{broken {"name": "read", "arguments": {}}', "read"),
        ('{"name": "Ada", "age": 36}', None),
        ("[1, 2]", None),
        ("no call", None),
    ],
)
def test_json_function_calls(text: str, tool: str | None) -> None:
    assert json_function_calls(text) == tool


@pytest.mark.parametrize("name", sorted(PARSERS))
@given(text=st.text(alphabet='`bash{}[]":,nametool_calls \n'))
def test_no_text_breaks_a_parser(name: str, text: str) -> None:
    tool = named_parser(name)(text)
    assert tool is None or tool


def test_an_unknown_parser_is_refused() -> None:
    with pytest.raises(ConfigError, match="bash, openai, json"):
        named_parser("xml")
