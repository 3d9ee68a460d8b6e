"""What went wrong, in the form of the OpenAI API: ``{"error": {"message", "type", "param", "code"}}``."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tokenyard.errors import (
    TOO_LONG,
    EngineDeadError,
    QueueFullError,
    RequestError,
    StuckError,
    TokenyardError,
    shown,
)
from tokenyard.server.web.problems import RefusedError, json_response

__all__ = ["ApiError", "as_api_error", "bad_field", "going_down", "on_api_error", "timed_out"]

_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
_OTHER_NAMES = {("messages", "logprobs"): "top_logprobs"}
"""What chats call a field of the engine's."""
_RETRY_SECONDS = 1
"""Suggested with every 503."""


class ApiError(Exception):
    """A request that is refused, or could not be answered."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.headers = headers or {}

    def record(self) -> dict[str, Any]:
        """The answer's content."""
        kind = _TYPES.get(self.status) or ("invalid_request_error" if self.status < 500 else "server_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> Response:
        """The answer."""
        return json_response(self.record(), self.status, self.headers)

    def event(self) -> bytes:
        """The same within a stream."""
        return b"data: " + msgspec.json.encode(self.record()) + b"\n\n"


def bad_field(field: str, value: object, fix: str, *, code: str | None = None) -> ApiError:
    """A field of the body holds what cannot work."""
    return ApiError(400, f"{field} = {shown(value)}: {fix}", param=field, code=code)


def going_down() -> ApiError:
    """The server ends, and this request with it, or before it has begun."""
    return ApiError(503, "the server is going down", code="draining", headers={"Retry-After": "5"})


def timed_out(seconds: float) -> ApiError:
    """The server's limit of time is over."""
    return ApiError(504, f"the answer took longer than {seconds:g} seconds", code="timeout")


def as_api_error(error: Exception, prompt_field: str = "prompt") -> ApiError:
    """``error`` as a client is told; ``prompt_field`` is what it calls its prompt."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, RefusedError):
        return ApiError(error.status, f"{error.field} = {shown(error.value)}: {error.fix}", param=error.field)
    if isinstance(error, RequestError):
        is_prompt = error.field in ("prompt_token_ids", "prompt")
        field = prompt_field if is_prompt else _OTHER_NAMES.get((prompt_field, error.field), error.field)
        code = "context_length_exceeded" if error.code == TOO_LONG else None
        return bad_field(field, error.value, error.fix, code=code)
    if isinstance(error, QueueFullError):
        return ApiError(503, str(error), code="queue_full", headers={"Retry-After": str(_RETRY_SECONDS)})
    if isinstance(error, StuckError):
        return ApiError(500, str(error), code="engine_stuck")
    if isinstance(error, EngineDeadError):
        return ApiError(500, str(error), code="engine_dead")
    return ApiError(500, str(error) if isinstance(error, TokenyardError) else "an error of the server's own")


def on_api_error(request: Request, error: Exception) -> Response:
    """Answer whatever an endpoint raised."""
    return as_api_error(error, getattr(request.state, "prompt_field", "prompt")).response()
