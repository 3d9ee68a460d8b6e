"""API keys: who has none of them is told nothing but whether the server is well."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from tokenyard.errors import ConfigError
from tokenyard.server.openai.errors import ApiError

__all__ = ["ApiKeys"]

_OPEN = frozenset(("/health",))


class ApiKeys:
    """ASGI middleware. Keys are compared in constant time, and all of them every time."""

    def __init__(self, app: ASGIApp, keys: Sequence[str]) -> None:
        for key in keys:
            if not key.strip() or not key.isascii():
                raise ConfigError("api_key", "an empty key" if not key.strip() else "a key", "give ASCII characters")
        self._app = app
        self._digests = [_digest(key.encode()) for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, or pass on."""
        if scope["type"] != "http" or scope["path"] in _OPEN or self._is_known(Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        error = ApiError(
            401,
            "the request has no valid API key: send  Authorization: Bearer KEY",
            code="invalid_api_key",
            headers={"WWW-Authenticate": "Bearer"},
        )
        await error.response()(scope, receive, send)

    def _is_known(self, headers: Headers) -> bool:
        kind, _, key = headers.get("authorization", "").partition(" ")
        digest = _digest(key.strip().encode(errors="replace"))
        found = [hmac.compare_digest(digest, each) for each in self._digests]
        return kind.lower() == "bearer" and any(found)


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
