"""What an answer must look like: ``response_format``, or vLLM's ``structured_outputs``."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from tokenyard.engine.grammars import Grammar
from tokenyard.errors import ConfigError
from tokenyard.server.openai.context import ServerContext
from tokenyard.server.openai.errors import bad_field
from tokenyard.server.openai.fields import GenerationRequest

__all__ = ["compiled"]


class _Asked(NamedTuple):
    """A grammar, as it was sent."""

    field: str | None
    """Where; None: the compiler says it."""
    wanted: dict[str, Any]
    """For the compiler."""


async def compiled(
    context: ServerContext, request: GenerationRequest, num_prompts: int, schema: Mapping[str, Any] | None = None
) -> list[list[Grammar]]:
    """For each prompt a grammar per answer, none if the request asks for none. Raises ApiError.

    ``schema`` is what the answer's JSON must look like because a tool has to be called. It is compiled once and waited
    for, so that what cannot be compiled is refused; whoever is cancelled here gives its turn to others.
    """
    asked = _asked(request)
    if schema is not None:
        if asked is not None:
            raise bad_field(
                "tool_choice", getattr(request, "tool_choice", None), "the answer's form is asked for twice"
            )
        asked = _Asked("tools", {"json": schema})
    if asked is None:
        return [[]] * num_prompts
    if context.grammars is None:
        fix = "there are no grammars (llguidance, a tokenizer or an end-of-sequence token is missing): leave it out"
        raise bad_field(asked.field or "structured_outputs", asked.wanted, fix, code="unsupported_field")
    try:
        grammar = context.grammars.compile(**asked.wanted)
        await asyncio.wrap_future(grammar.compiled)
    except ConfigError as error:
        raise bad_field(asked.field or error.field, error.value, error.fix) from None
    return [[grammar.another() for _ in range(request.n or 1)] for _ in range(num_prompts)]


def _asked(request: GenerationRequest) -> _Asked | None:
    wanted, other = request.response_format, request.structured_outputs
    if wanted is None or wanted.type == "text":
        return None if other is None else _Asked(None, _given(other))
    if other is not None:
        raise bad_field("structured_outputs", _given(other), "response_format says the same: give one of them")
    if wanted.type == "json_object":
        return _Asked("response_format", {"json_object": True})
    if wanted.json_schema is None:
        raise bad_field("response_format.json_schema", None, 'give it, or the type "json_object"')
    return _Asked("response_format.json_schema.schema", {"json": wanted.json_schema.schema})


def _given(outputs: msgspec.Struct) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(outputs).items() if value is not None}
