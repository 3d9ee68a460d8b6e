"""Llama 3.1 and later: the whole answer is ``{"name": ..., "parameters": {...}}``, or several with ``;`` between."""

from __future__ import annotations

import json

from tokenyard.server.openai.tool_calls.parser import Parsed, ToolCall, ToolCallParser, call_of

__all__ = ["Llama3Json"]

_MARK = "<|python_tag|>"


class Llama3Json(ToolCallParser):
    """An answer that begins with ``{`` is held until its end; it is calls altogether, or content altogether."""

    def __init__(self) -> None:
        self._held = ""
        self._is_content = False
        """It does not begin as calls do."""

    def add(self, text: str) -> Parsed:
        if self._is_content:
            return Parsed(text)
        self._held += text
        begun = self._held.lstrip()
        begun = begun.removeprefix(_MARK).lstrip()
        if not begun or begun.startswith("{") or _MARK.startswith(begun):
            return Parsed()
        self._is_content = True
        return self._all()

    def end(self) -> Parsed:
        calls = None if self._is_content else _calls(self._held.lstrip().removeprefix(_MARK))
        return self._all() if calls is None else Parsed(calls=calls)

    def _all(self) -> Parsed:
        held, self._held = self._held, ""
        return Parsed(held)


def _calls(text: str) -> tuple[ToolCall, ...] | None:
    """None if the text is anything but calls."""
    decoder, found = json.JSONDecoder(), []
    text = text.strip()
    while text:
        try:
            value, end = decoder.raw_decode(text)
        except (ValueError, RecursionError):
            return None
        call = call_of(value)
        if call is None:
            return None
        found.append(call)
        text = text[end:].lstrip().removeprefix(";").lstrip()
    return tuple(found) or None
