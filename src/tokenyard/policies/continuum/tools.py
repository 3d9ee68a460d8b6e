"""Which tool does a finished turn call? What the client says, or what the text holds."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from tokenyard.core.params import SOME_TOOL
from tokenyard.core.request import Request
from tokenyard.errors import ConfigError
from tokenyard.tokenizer import Decode, load_tokenizer

# ---------------------------------------------------------------------------------------------------------------------
# Parsers: which tool does a turn's text call? Three by name; ``ToolReader`` takes one of your own.
#
# A parser takes the turn's output text and gives the tool's name, or None if the text calls none. Several calls in
# one turn count as one tool of their joined names: the agent waits for all of them.

Parser = Callable[[str], str | None]

_BASH = re.compile(r"```(?:bash|sh)[ \t]*\n(.*?)```", re.DOTALL)
_JSON = json.JSONDecoder()
_BRACKET = re.compile(r"[\[{]")
"""Begins an object or an array, if it is JSON."""


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
    """Every outermost JSON object or array in the text; what is not JSON is ignored."""
    at = 0
    while (bracket := _BRACKET.search(text, at)) is not None:
        try:
            value, at = _JSON.raw_decode(text, bracket.start())
        except (json.JSONDecodeError, RecursionError):
            at = bracket.end()
            continue
        yield value


PARSERS: dict[str, Parser] = {"bash": fenced_bash, "openai": openai_tool_calls, "json": json_function_calls}
"""Parsers by name."""


def named_parser(name: str) -> Parser:
    """The parser of that name; ConfigError if there is none."""
    if name not in PARSERS:
        raise ConfigError("parser", name, f"use one of: {', '.join(PARSERS)}")
    return PARSERS[name]


# ---------------------------------------------------------------------------------------------------------------------
# The tool a finished turn calls: what the client says it is, else what its text says.

_A = TypeVar("_A")
_B = TypeVar("_B")

_log = logging.getLogger("tokenyard.continuum")


class ToolReader:
    """Names the tool of a turn.

    ``this_func_call`` of the request counts if it is given, "" says that no tool is called. Else the ``parser`` reads
    the output with the ``tokenizer``: ``bash``, ``openai``, ``json``, or a function from a turn's text to the name of
    its tool, None if it calls none. Without a tokenizer all that is not named counts as one tool: how long its calls
    take is learnt as of any other, and where a person is next, that is too long for a pin.

    A tokenizer that cannot be loaded, or fails, costs one warning and makes the reader ``broken``: a policy then pins
    nothing, because what it would learn about tools would be wrong.
    """

    def __init__(
        self,
        tokenizer: str | None = None,
        parser: str | Parser | None = None,
        load: Callable[[str], Decode] = load_tokenizer,
    ) -> None:
        if parser is not None and tokenizer is None:
            raise ConfigError("parser", parser, "reads outputs as text: give a tokenizer, too, or leave it out")
        self.broken = False
        parser = parser or "bash"
        self._parse = named_parser(parser) if isinstance(parser, str) else parser
        self._tokenizer = tokenizer
        self._decode = self._trying(load, tokenizer) if tokenizer is not None else None

    def tool_of(self, request: Request) -> str | None:
        """Name of the tool, or None if the turn calls none as far as is known."""
        if request.this_func_call is not None or self.broken:
            return request.this_func_call or None
        if self._decode is None:
            return SOME_TOOL
        text = self._trying(self._decode, request.output_token_ids)
        return None if text is None else self._parse(text)

    def _trying(self, call: Callable[[_A], _B], argument: _A) -> _B | None:
        try:
            return call(argument)
        except Exception as error:  # noqa: BLE001 - a foreign library's: whatever it is, the scheduler goes on
            _log.warning("continuum: tokenizer %s cannot be used, nothing is pinned: %s", self._tokenizer, error)
            self.broken = True
            return None
