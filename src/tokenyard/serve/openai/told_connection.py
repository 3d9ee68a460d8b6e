"""uvicorn's HTTP by httptools, with what :mod:`tokenyard.serve.openai.connection` passes to an application."""

from __future__ import annotations

import time
from collections.abc import Sequence

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tokenyard.serve.openai.connection import CycleConnection, tell_connection
from tokenyard.web.connections import Bounds


class ToldConnection(Bounds, HttpToolsProtocol):
    """Notes when the head of each request came, for the application."""

    _open: Sequence[CycleConnection] = ()
    """What the application knows its open requests' connections by: those whose answers have not ended."""

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        received_at, scope = time.monotonic(), self.scope
        super().on_headers_complete()
        if self.cycle is not None and self.cycle.scope is scope:
            told = CycleConnection(self.cycle, received_at)
            tell_connection(scope, told)
            self._open = [*(each for each in self._open if not each.is_over), told]

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        super().connection_lost(exc)
        for each in self._open:
            if not each.is_over:
                each.lost()
        self._open = ()
