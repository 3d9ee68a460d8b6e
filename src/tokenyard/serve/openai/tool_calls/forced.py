"""Tools that have to be called: ``tool_choice`` is ``required``, or names one. A grammar sees to it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from tokenyard.serve.openai.fields import ChatCompletionRequest, NamedToolChoice, bad_field
from tokenyard.serve.openai.tool_calls.parsers import Parsed, ToolCall, ToolCallParser, call_of

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
