"""Parsers by vLLM's names."""

from __future__ import annotations

from collections.abc import Callable

from tokenyard.errors import ConfigError
from tokenyard.server.openai.tool_calls.hermes import Hermes
from tokenyard.server.openai.tool_calls.llama3_json import Llama3Json
from tokenyard.server.openai.tool_calls.parser import ToolCallParser

__all__ = ["PARSERS", "parser_named"]

PARSERS: dict[str, Callable[[], ToolCallParser]] = {"hermes": Hermes, "llama3_json": Llama3Json}
"""Each makes a parser for one answer."""


def parser_named(name: str | None, *, enabled: bool) -> Callable[[], ToolCallParser] | None:
    """What makes the parser that was asked for, as ``--tool-call-parser``; None: answers are left as they are.

    Raises ConfigError for a name that nobody knows, and where one of the two flags lacks the other.
    """
    if name is not None and name not in PARSERS:
        raise ConfigError("tool_call_parser", name, f"use one of: {', '.join(PARSERS)}")
    if enabled and name is None:
        raise ConfigError("enable_auto_tool_choice", enabled, f"needs --tool-call-parser: {', '.join(PARSERS)}")
    if not enabled and name is not None:
        raise ConfigError("tool_call_parser", name, "needs --enable-auto-tool-choice")
    return None if name is None else PARSERS[name]
