"""Parsers of tool calls by vLLM's names: Hermes, Llama 3."""

from __future__ import annotations

import json
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from tokenyard.core.request import FinishReason
from tokenyard.errors import ConfigError
from tokenyard.serve.generation import CompletionOutput
from tokenyard.serve.openai.fields import ChatCompletionRequest, NamedToolChoice, bad_field

# ---------------------------------------------------------------------------------------------------------------------
# The seam: a parser takes in text as it comes, and gives out content and calls, each as soon as it is certain.
#
# What is not a call stays content, to the letter; only the white space beside calls is dropped. So a stream says what
# the whole answer says, and no text of the model is lost.


class ToolCall(msgspec.Struct, frozen=True):
    """A function, and its arguments as JSON."""

    name: str
    arguments: str


class Parsed(msgspec.Struct, frozen=True):
    """What has become certain."""

    content: str = ""
    calls: tuple[ToolCall, ...] = ()


class ToolCallParser(ABC):
    """Reads the calls out of one answer."""

    finish_reason = "tool_calls"
    """Reason given for an answer that the model ended, and that has calls."""
    shows_special_tokens = False
    """What it looks for may be special tokens, which have no text otherwise."""

    @abstractmethod
    def add(self, text: str) -> Parsed:
        """Take in the model's next text."""

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


# ---------------------------------------------------------------------------------------------------------------------
# Hermes, Qwen and others: ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``, anywhere in the answer.

_BEGIN, _END = "<tool_call>", "</tool_call>"


class Hermes(ToolCallParser):
    """Text outside of the marks is content; a call is certain at its end mark, or at the end of the answer."""

    shows_special_tokens = True

    def __init__(self) -> None:
        self._held = ""
        """Text that is neither content nor a call yet."""
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
        """Take ``length`` held characters, without white space that follows a call."""
        taken, self._held = self._held[:length], self._held[length:]
        if self._is_after_call:
            taken = taken.lstrip()
            self._is_after_call = not taken
        return taken


# ---------------------------------------------------------------------------------------------------------------------
# Llama 3.1 and later: the whole answer is ``{"name": ..., "parameters": {...}}``, or several with ``;`` between.

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


# ---------------------------------------------------------------------------------------------------------------------
# Parsers by vLLM's names.

PARSERS: dict[str, Callable[[], ToolCallParser]] = {"hermes": Hermes, "llama3_json": Llama3Json}
"""Each makes a parser for one answer."""


def parser_named(name: str | None, *, enabled: bool) -> Callable[[], ToolCallParser] | None:
    """What makes the parser that was requested, as ``--tool-call-parser``; None: answers are left as they are.

    Raises ConfigError for a name that is none of these, and where one of the two flags lacks the other.
    """
    if name is not None and name not in PARSERS:
        raise ConfigError("tool_call_parser", name, f"use one of: {', '.join(PARSERS)}")
    if enabled and name is None:
        raise ConfigError("enable_auto_tool_choice", enabled, f"needs --tool-call-parser: {', '.join(PARSERS)}")
    if not enabled and name is not None:
        raise ConfigError("tool_call_parser", name, "needs --enable-auto-tool-choice")
    return None if name is None else PARSERS[name]


# ---------------------------------------------------------------------------------------------------------------------
# One of the answers to a chat: its text in content and calls, as the API returns them.


class ChoiceNews(msgspec.Struct, frozen=True):
    """What is new of an answer."""

    content: str
    calls: list[dict[str, Any]]
    """The calls with their numbers, as in a stream."""
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


# ---------------------------------------------------------------------------------------------------------------------
# Tools that have to be called: ``tool_choice`` is ``required``, or names one. A grammar sees to it.

_DEFINITIONS = "$defs"


class ForcedCall(msgspec.Struct, frozen=True):
    """What an answer must look like, and how it is read."""

    schema: dict[str, Any]
    parser: Callable[[], ToolCallParser]


def forced_call(request: ChatCompletionRequest) -> ForcedCall | None:
    """None where no tool has to be called. Raises ApiError."""
    choice = request.tool_choice
    if choice is None or choice in ("none", "auto"):
        return None
    functions = _functions(request.tools or [])
    if not functions:
        raise bad_field("tool_choice", choice, "give tools as well, or leave it out")
    if not isinstance(choice, NamedToolChoice):
        return ForcedCall(_one_or_more(functions), _Calls)
    name = choice.function.name
    if name not in functions:
        raise bad_field("tool_choice.function.name", name, f"is none of tools: give one of {', '.join(functions)}")
    return ForcedCall(functions[name], partial(_Arguments, name))


def _functions(tools: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Name -> schema of the parameters."""
    found: dict[str, dict[str, Any]] = {}
    for i, tool in enumerate(tools):
        function = tool.get("function")
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise bad_field(
                f"tools[{i}]", tool, 'give {"type": "function", "function": {"name": ..., "parameters": ...}}'
            )
        parameters = function.get("parameters") or {"type": "object"}
        if not isinstance(parameters, dict):
            raise bad_field(f"tools[{i}].function.parameters", parameters, "give a JSON schema")
        definitions = parameters.get(_DEFINITIONS)
        if definitions is not None and not isinstance(definitions, dict):
            field = f"tools[{i}].function.parameters.{_DEFINITIONS}"
            raise bad_field(field, definitions, "give an object: schemas by their names")
        found[function["name"]] = parameters
    return found


def _one_or_more(functions: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """The schema of a list of calls. Definitions of the functions' schemas move to its root, where references look."""
    calls, definitions = [], dict[str, Any]()
    for name, parameters in functions.items():
        own = parameters.get(_DEFINITIONS) or {}
        for each in own:
            if definitions.get(each, own[each]) != own[each]:
                fix = "two tools define it differently, which one grammar cannot: call it otherwise in one of them"
                raise bad_field(f"tools.function.parameters.{_DEFINITIONS}", each, fix)
        definitions |= own
        rest = {key: value for key, value in parameters.items() if key != _DEFINITIONS}
        calls.append(
            {
                "type": "object",
                "properties": {"name": {"const": name}, "parameters": rest},
                "required": ["name", "parameters"],
                "additionalProperties": False,
            }
        )
    schema: dict[str, Any] = {"type": "array", "minItems": 1, "items": {"anyOf": calls}}
    return {**schema, _DEFINITIONS: definitions} if definitions else schema


class _Whole(ToolCallParser):
    """The whole answer is calls; one that was cut is content."""

    def __init__(self) -> None:
        self._held = ""

    def add(self, text: str) -> Parsed:
        self._held += text
        return Parsed()

    def end(self) -> Parsed:
        try:
            calls = self._read(json.loads(self._held))
        except (ValueError, RecursionError):
            calls = None
        return Parsed(self._held) if not calls else Parsed(calls=calls)

    def _read(self, value: Any) -> tuple[ToolCall, ...] | None:
        raise NotImplementedError


class _Arguments(_Whole):
    """The answer is the arguments of one tool."""

    finish_reason = "stop"

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def _read(self, value: Any) -> tuple[ToolCall, ...] | None:
        return (ToolCall(self._name, self._held.strip()),) if isinstance(value, dict) else None


class _Calls(_Whole):
    """The answer is a list of calls."""

    def _read(self, value: Any) -> tuple[ToolCall, ...] | None:
        calls = [call_of(each) for each in value] if isinstance(value, list) else []
        return None if None in calls else tuple(each for each in calls if each is not None)
