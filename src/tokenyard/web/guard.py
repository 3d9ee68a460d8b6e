"""Which clients a server admits, and with which key: the same rules for view, serve and emulate."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import socket
from collections.abc import Callable, Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tokenyard.errors import ConfigError
from tokenyard.web.connections import RefusedError

# ---------------------------------------------------------------------------------------------------------------------
# Which clients the server admits: programs of this machine, and pages that the server itself gave out.
#
# A page of another site must not reach it through the visitor's browser: not by a request across origins (``Origin``,
# ``Sec-Fetch-Site``), and not by a name of its own that it lets point to 127.0.0.1 ("DNS rebinding", ``Host``).

_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


_READING = frozenset(("GET", "HEAD"))
"""Methods of requests that change nothing: links of other pages make them."""
_HOST = re.compile(r"(\[(?P<six>[0-9A-Fa-f:.]*)\]|(?P<name>[^:\[\]]*))(:[0-9]{0,5})?", re.ASCII)
"""A ``Host`` header."""


class Guard:
    """ASGI middleware. ``bound`` is the address on which the server listens; ``refuse`` makes a refusal.

    Pages of ``origins`` may call it as well; ``*`` stands for all.
    """

    def __init__(
        self,
        app: ASGIApp,
        bound: str,
        refuse: Callable[[RefusedError], Response] = RefusedError.response,
        *,
        origins: Sequence[str] = (),
    ) -> None:
        self._app = app
        self._refuse = refuse
        self._origins = frozenset(origins)
        self._only_loopback = is_loopback(bound)
        self._names = {bound.lower().strip("[]"), "localhost"}
        if not self._only_loopback:
            self._names.add(socket.gethostname().lower())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, or pass on; every answer gets the headers that keep other sites out."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refusal = self.refusal(scope)
        await (self._app if refusal is None else refusal)(scope, receive, send_guarded)

    def refusal(self, scope: Scope) -> Response | None:
        """What a request is answered with that is not admitted; None: it is."""
        problem = self._problem(scope)
        return None if problem is None else self._refuse(problem)

    def _problem(self, scope: Scope) -> RefusedError | None:
        host, hosts, is_named = "", 0, False
        asked = {b"host", b"origin", b"sec-fetch-site"}
        found = [(name, value.decode("latin-1")) for name, value in scope["headers"] if name in asked]
        for name, value in found:
            if name == b"host":
                host, hosts = value, hosts + 1
        if hosts > 1 or not self._is_ours(_without_port(host)):
            return RefusedError(403, "Host", host, "must be an address of this machine: open the URL that was printed")
        for name, value in found:
            if name == b"origin":
                is_named = not self._origins.isdisjoint((value, "*"))
                if not is_named and value not in (f"http://{host}", f"https://{host}"):
                    return RefusedError(403, "Origin", value, "only pages of this server may call it")
        is_looked_at = not is_named and (scope["path"].startswith("/api/") or scope["method"] not in _READING)
        for name, value in found:
            if name == b"sec-fetch-site" and is_looked_at and value not in ("same-origin", "none"):
                return RefusedError(403, "Sec-Fetch-Site", value, "only pages of this server may call it")
        return None

    def _is_ours(self, name: str) -> bool:
        # Rebinding needs a name: an address cannot be made to point elsewhere.
        if name.lower() in self._names:
            return True
        return is_loopback(name) or (not self._only_loopback and _is_address(name))


def is_loopback(name: str) -> bool:
    """An address, or the name, by which only this machine is reached."""
    return name.lower() == "localhost" or (_is_address(name) and ipaddress.ip_address(name.strip("[]")).is_loopback)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _without_port(host: str) -> str:
    """The name or address; nothing where what follows it is no port."""
    matched = _HOST.fullmatch(host)
    return "" if matched is None else matched["six"] or matched["name"]


# ---------------------------------------------------------------------------------------------------------------------
# A viewer with a key: a browser that opens the address that was printed gets a cookie, any other nothing.


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


# ---------------------------------------------------------------------------------------------------------------------
# API keys: a client without one gets nothing but the server's health.


class ApiKeys:
    """ASGI middleware. Keys are compared in constant time, and all of them every time."""

    def __init__(
        self,
        app: ASGIApp,
        keys: Sequence[str] | None,
        *,
        refuse: Callable[[], Response],
        is_open: Callable[[Scope], bool] = lambda scope: scope["path"] == "/health",
    ) -> None:
        """``keys``: those that are right; None: any is, but there has to be one. ``is_open``: none is asked for."""
        for key in keys or ():
            if not key.strip() or not key.isascii():
                raise ConfigError("api_key", "an empty key" if not key.strip() else "a key", "give ASCII characters")
        self._app = app
        self._refuse, self._is_open = refuse, is_open
        self._digests = None if keys is None else [_digest(key.encode()) for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, or pass on."""
        is_admitted = scope["type"] != "http" or self._is_open(scope) or self.is_known(Headers(scope=scope))
        await (self._app if is_admitted else self._refuse())(scope, receive, send)

    def is_known(self, headers: Headers) -> bool:
        """Whether there is a key that is right."""
        kind, _, key = headers.get("authorization", "").partition(" ")
        if self._digests is None:
            return kind.lower() == "bearer" and bool(key.strip())
        digest = _digest(key.strip().encode(errors="replace"))
        found = [hmac.compare_digest(digest, each) for each in self._digests]
        return kind.lower() == "bearer" and any(found)


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
