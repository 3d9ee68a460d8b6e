"""Hermes, Qwen and others: ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``, anywhere in the answer."""

from __future__ import annotations

import json

from tokenyard.server.openai.tool_calls.parser import Parsed, ToolCall, ToolCallParser, call_of

__all__ = ["Hermes"]

_BEGIN, _END = "<tool_call>", "</tool_call>"


class Hermes(ToolCallParser):
    """Text outside of the marks is content; a call is certain at its end mark, or at the end of the answer."""

    shows_special_tokens = True

    def __init__(self) -> None:
        self._held = ""
        """Of the text, what is neither content nor a call yet."""
        self._is_after_call = False
        """White space that follows belongs to the call."""

    def add(self, text: str) -> Parsed:
        self._held += text
        content: list[str] = []
        calls: list[ToolCall] = []
        while True:
            begin = self._held.find(_BEGIN)
            if begin < 0:
                content.append(self._certain())
                break
            end = self._held.find(_END, begin)
            if end < 0:
                # A call may follow or not; what stands before the white space before it is content either way.
                content.append(self._take(len(self._held[:begin].rstrip())))
                break
            self._take_call(begin, end + len(_END), self._held[begin + len(_BEGIN) : end], content, calls)
        return Parsed("".join(content), tuple(calls))

    def end(self) -> Parsed:
        begin = self._held.find(_BEGIN)
        content: list[str] = []
        calls: list[ToolCall] = []
        if begin >= 0:
            self._take_call(begin, len(self._held), self._held[begin + len(_BEGIN) :], content, calls)
        content.append(self._take(len(self._held)))
        return Parsed("".join(content), tuple(calls))

    def _take_call(self, begin: int, end: int, inside: str, content: list[str], calls: list[ToolCall]) -> None:
        """Take in the held text up to ``end``: content, and a call from ``begin`` on, if it is one."""
        try:
            call = call_of(json.loads(inside))
        except (ValueError, RecursionError):
            call = None
        if call is None:
            content.append(self._take(end))
            return
        content.append(self._take(len(self._held[:begin].rstrip())))
        calls.append(call)
        self._held = self._held[self._held.index(_BEGIN) + end - begin :]
        self._is_after_call = True

    def _certain(self) -> str:
        """Take what cannot belong to a call: all but white space, and the beginning of a mark, at the end."""
        length = len(self._held)
        for size in range(min(len(_BEGIN) - 1, length), 0, -1):
            if _BEGIN.startswith(self._held[length - size :]):
                length -= size
                break
        return self._take(len(self._held[:length].rstrip()))

    def _take(self, length: int) -> str:
        """So many held characters, without white space that follows a call."""
        taken, self._held = self._held[:length], self._held[length:]
        if self._is_after_call:
            taken = taken.lstrip()
            self._is_after_call = not taken
        return taken
