"""What a request did wrong, as JSON: the field, its value, and what to do."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tokenyard.errors import TokenyardError

__all__ = ["RefusedError", "json_response", "on_error", "on_problem", "whole_number"]

_SHOWN = 200
"""Characters of a value that are repeated."""


class RefusedError(Exception):
    """A request that is refused."""

    def __init__(self, status: int, field: str, value: object, fix: str) -> None:
        super().__init__(fix)
        self.status = status
        self.field = field
        self.value = value
        self.fix = fix

    def response(self) -> Response:
        """The refusal."""
        text = str(self.value)
        shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
        return json_response({"error": {"field": self.field, "value": shown, "fix": self.fix}}, self.status)


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """``value`` as JSON; what JSON has no words for becomes text."""
    body = msgspec.json.encode(value, enc_hook=str)
    return Response(body, status, headers, media_type="application/json")


def on_problem(_: Request, problem: Exception) -> Response:
    """Answer a :class:`RefusedError`."""
    assert isinstance(problem, RefusedError)
    return problem.response()


def on_error(_: Request, error: Exception) -> Response:
    """Answer a trace that cannot be read, or an extra that is missing."""
    assert isinstance(error, TokenyardError)
    field, value = getattr(error, "field", "path"), getattr(error, "value", "")
    return RefusedError(422, field, value, getattr(error, "fix", None) or str(error)).response()


def whole_number(request: Request, field: str, default: int, *, least: int = 0, most: int = 2**53) -> int:
    """A whole number of the query string. Raises RefusedError if it is none, or out of bounds."""
    text = request.query_params.get(field)
    if text is None:
        return default
    # 17 digits are enough for 2^53, and int() would take those of other scripts.
    if not (text.isascii() and text.isdecimal() and len(text) <= 17 and least <= int(text) <= most):
        raise RefusedError(400, field, text, f"must be a whole number from {least} to {most}")
    return int(text)
