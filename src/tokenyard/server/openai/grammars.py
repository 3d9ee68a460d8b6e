"""What an answer must look like: ``response_format``, or vLLM's ``structured_outputs``."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import msgspec

from tokenyard.engine.grammars import Grammar, GrammarKind
from tokenyard.errors import ConfigError
from tokenyard.server.openai.context import ServerContext
from tokenyard.server.openai.errors import bad_field
from tokenyard.server.openai.fields import GenerationRequest, StructuredOutputs

__all__ = ["compiled"]

_OBJECT = '{"type": "object"}'


class _Asked(NamedTuple):
    """A grammar, as it was sent."""

    field: str
    kind: GrammarKind
    source: str


async def compiled(context: ServerContext, request: GenerationRequest) -> Grammar | None:
    """The grammar that a request asks for, compiled while others are answered; None if it asks for none.

    Raises ApiError.
    """
    asked = _asked(request)
    if asked is None:
        return None
    if context.grammars is None:
        fix = "this server has no grammars (llguidance is not installed, or there is no tokenizer): leave it out"
        raise bad_field(asked.field, asked.source, fix, code="unsupported_field")
    try:
        return await asyncio.to_thread(context.grammars.compile, asked.kind, asked.source)
    except ConfigError as error:
        raise bad_field(asked.field, error.value, error.fix) from None


def _asked(request: GenerationRequest) -> _Asked | None:
    both = request.response_format, request.structured_outputs
    wanted, other = both
    if wanted is not None and wanted.type != "text":
        if other is not None:
            raise bad_field("structured_outputs", "...", "response_format says the same: give one of them")
        if wanted.type == "json_object":
            return _Asked("response_format", GrammarKind.JSON_SCHEMA, _OBJECT)
        if wanted.json_schema is None:
            raise bad_field("response_format.json_schema", None, 'give it, or the type "json_object"')
        schema = msgspec.json.encode(wanted.json_schema.schema).decode()
        return _Asked("response_format.json_schema.schema", GrammarKind.JSON_SCHEMA, schema)
    return None if other is None else _of_vllm(other)


def _of_vllm(asked: StructuredOutputs) -> _Asked | None:
    json = asked.json if asked.json is None or isinstance(asked.json, str) else msgspec.json.encode(asked.json).decode()
    given = {
        "json": None if json is None else _Asked("structured_outputs.json", GrammarKind.JSON_SCHEMA, json),
        "regex": None if asked.regex is None else _Asked("structured_outputs.regex", GrammarKind.REGEX, asked.regex),
        "choice": None if asked.choice is None else _choice(asked.choice),
        "grammar": None
        if asked.grammar is None
        else _Asked("structured_outputs.grammar", GrammarKind.GRAMMAR, asked.grammar),
        "json_object": _Asked("structured_outputs.json_object", GrammarKind.JSON_SCHEMA, _OBJECT)
        if asked.json_object
        else None,
    }
    found = [each for each in given.values() if each is not None]
    if len(found) > 1:
        raise bad_field("structured_outputs", [each.field for each in found], "give one of them")
    return found[0] if found else None


def _choice(choices: list[str]) -> _Asked:
    if not choices or not all(choices):
        raise bad_field("structured_outputs.choice", choices, "give texts that are not empty")
    return _Asked("structured_outputs.choice", GrammarKind.CHOICE, msgspec.json.encode(choices).decode())
