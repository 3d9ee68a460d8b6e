"""One of the answers to a chat: its text in content and calls, as the API tells them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

from tokenyard.core.request import FinishReason
from tokenyard.serve.generation import CompletionOutput
from tokenyard.serve.openai.tool_calls.parsers import Parsed, ToolCall, ToolCallParser


class ChoiceNews(NamedTuple):
    """What is new of an answer."""

    content: str
    calls: list[dict[str, Any]]
    """With their numbers, as in a stream."""
    finish_reason: str | None

    def delta(self) -> dict[str, Any]:
        """The fields of a chunk of a stream."""
        return {"content": self.content or None, "tool_calls": self.calls} if self.calls else {"content": self.content}

    def message(self) -> dict[str, Any]:
        """The fields of the message of a whole answer."""
        if not self.calls:
            return {"content": self.content}
        numbered = [{name: value for name, value in call.items() if name != "index"} for call in self.calls]
        return {"content": self.content or None, "tool_calls": numbered}


class CallsOfChoice:
    """Without a parser all of it is content."""

    def __init__(self, parser: Callable[[], ToolCallParser] | None) -> None:
        self._parser = None if parser is None else parser()
        self._num_calls = 0

    def add(self, part: CompletionOutput) -> ChoiceNews:
        """What the engine has brought."""
        if self._parser is None:
            return ChoiceNews(part.text, [], part.finish_reason)
        found = self._parser.add(part.text)
        if part.finished:
            rest = self._parser.end()
            found = Parsed(found.content + rest.content, found.calls + rest.calls)
        calls = [self._numbered(call) for call in found.calls]
        has_called = part.finish_reason == FinishReason.STOP and self._num_calls > 0
        return ChoiceNews(found.content, calls, self._parser.finish_reason if has_called else part.finish_reason)

    def _numbered(self, call: ToolCall) -> dict[str, Any]:
        number = self._num_calls
        self._num_calls += 1
        return {
            "index": number,
            "id": f"call_{uuid.uuid4().hex}",
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
