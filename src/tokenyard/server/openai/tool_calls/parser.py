"""The seam: a parser takes in text as it comes, and gives out content and calls, each as soon as it is certain.

What is not a call stays content, to the letter; only the white space beside calls is dropped. So a stream says what the
whole answer says, and nothing that the model said is lost.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["Parsed", "ToolCall", "ToolCallParser", "call_of"]


class ToolCall(NamedTuple):
    """A function, and its arguments as JSON."""

    name: str
    arguments: str


class Parsed(NamedTuple):
    """What has become certain."""

    content: str = ""
    calls: tuple[ToolCall, ...] = ()


class ToolCallParser(ABC):
    """Of one answer."""

    finish_reason = "tool_calls"
    """Of an answer that the model ended, and that has calls."""
    shows_special_tokens = False
    """What it looks for may be special tokens, which have no text otherwise."""

    @abstractmethod
    def add(self, text: str) -> Parsed:
        """Take in what the model has said next."""

    @abstractmethod
    def end(self) -> Parsed:
        """The answer has ended: what was held back."""


def call_of(value: Any) -> ToolCall | None:
    """The call that a JSON value is: ``name``, and ``arguments`` or ``parameters``; None if it is none."""
    if not isinstance(value, Mapping) or not isinstance(value.get("name"), str):
        return None
    arguments = value["arguments"] if "arguments" in value else value.get("parameters")
    if not isinstance(arguments, Mapping):
        return None
    return ToolCall(value["name"], json.dumps(arguments, ensure_ascii=False))
