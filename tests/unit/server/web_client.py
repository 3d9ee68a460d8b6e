"""An HTTP client that speaks to the application in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx
from starlette.applications import Starlette

from tokenyard.web.queries import make_app

__all__ = ["ORIGIN", "Client", "client_of", "refused"]

ORIGIN = "http://127.0.0.1:8642"


class Client:
    """Synchronous, as tests are; every request has an event loop of its own."""

    def __init__(self, app: Starlette) -> None:
        self.app = app

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        return asyncio.run(self._request(method, path, **options))

    async def _request(self, method: str, path: str, **options: Any) -> httpx.Response:
        transport = httpx.ASGITransport(app=self.app)
        async with httpx.AsyncClient(transport=transport, base_url=ORIGIN) as client:
            return await client.request(method, path, **options)

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.request("GET", path, **options)

    def file(self, path: Path | str, **headers: str) -> httpx.Response:
        return self.get("/api/file", params={"path": str(path)}, headers=headers)


def client_of(paths: Iterable[Path], **options: Any) -> Client:
    return Client(make_app(paths, **options))


def refused(response: httpx.Response, status: int, field: str) -> str:
    """Assert that a request was refused as every request is; returns the fix."""
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(error) == {"field", "value", "fix"}
    assert error["field"] == field, error
    return str(error["fix"])
