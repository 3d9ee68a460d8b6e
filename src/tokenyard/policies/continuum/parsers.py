"""Parsers: which tool does a turn's text call? Three by name; ``ToolReader`` takes one of your own.

A parser takes the turn's output text and gives the tool's name, or None if the text calls none. Several calls in one
turn count as one tool of their joined names: the agent waits for all of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tokenyard.errors import ConfigError

__all__ = ["PARSERS", "Parser", "fenced_bash", "json_function_calls", "named_parser", "openai_tool_calls"]

Parser = Callable[[str], str | None]

_BASH = re.compile(r"```(?:bash|sh)[ \t]*\n(.*?)```", re.DOTALL)
_JSON = json.JSONDecoder()


def fenced_bash(text: str) -> str | None:
    """First word of the command in the text's one fenced bash block; None if there is none, or more than one."""
    blocks = _BASH.findall(text)
    words = blocks[0].split(maxsplit=1) if len(blocks) == 1 else []
    return str(words[0]) if words else None


def openai_tool_calls(text: str) -> str | None:
    """Names of the functions in an object's ``tool_calls`` list, as an OpenAI message carries them."""
    return _joined(
        call["function"].get("name")
        for value in _json_values(text)
        if isinstance(value, dict) and isinstance(value.get("tool_calls"), list)
        for call in value["tool_calls"]
        if isinstance(call, dict) and isinstance(call.get("function"), dict)
    )


def json_function_calls(text: str) -> str | None:
    """Names of ``{"name": ..., "arguments" or "parameters": ...}`` objects, alone or in a list."""
    return _joined(
        call["name"]
        for value in _json_values(text)
        for call in (value if isinstance(value, list) else [value])
        if isinstance(call, dict) and "name" in call and ("arguments" in call or "parameters" in call)
    )


def _joined(names: Iterable[object]) -> str | None:
    known = [name for name in names if isinstance(name, str) and name]
    return "+".join(known) if known else None


def _json_values(text: str) -> Iterator[Any]:
    """Every outermost JSON object or array in the text; what is not JSON is passed over."""
    at = 0
    while (start := _next_bracket(text, at)) >= 0:
        try:
            value, at = _JSON.raw_decode(text, start)
        except (json.JSONDecodeError, RecursionError):
            at = start + 1
            continue
        yield value


def _next_bracket(text: str, at: int) -> int:
    """Where the next object or array may begin; -1 if nowhere."""
    return min((i for i in (text.find("{", at), text.find("[", at)) if i >= 0), default=-1)


PARSERS: dict[str, Parser] = {"bash": fenced_bash, "openai": openai_tool_calls, "json": json_function_calls}
"""Parsers by name."""


def named_parser(name: str) -> Parser:
    """The parser of that name; ConfigError if there is none."""
    if name not in PARSERS:
        raise ConfigError("parser", name, f"use one of: {', '.join(PARSERS)}")
    return PARSERS[name]
