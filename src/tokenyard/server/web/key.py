"""A viewer with a key: whoever opens the address that was printed gets a cookie, and everybody else nothing."""

from __future__ import annotations

import hashlib
import hmac

from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from tokenyard.server.web.problems import RefusedError

__all__ = ["Key"]


class Key:
    """ASGI middleware. ``/?key=KEY`` answers with a cookie and leads to the page without the key in its address."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app = app
        self._key = key
        # Cookies are shared by all ports of a host: each viewer has one of its own.
        self._cookie = f"tokenyard-{hashlib.sha256(key.encode()).hexdigest()[:12]}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, or pass on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        app: ASGIApp = self._app
        if scope["path"] == "/" and self._is_right(request.query_params.get("key", "")):
            answer = RedirectResponse("/", status_code=303)
            answer.set_cookie(self._cookie, self._key, httponly=True, samesite="lax")
            app = answer
        elif not self._is_right(request.cookies.get(self._cookie, "")):
            fix = "open the address that the server has printed, which holds its key"
            app = RefusedError(401, "key", "none, or another one", fix).response()
        await app(scope, receive, send)

    def _is_right(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(errors="replace"), self._key.encode())
