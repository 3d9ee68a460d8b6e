"""uvicorn's HTTP by httptools, with what :mod:`tokenyard.serve.openai.connection` tells an application."""

from __future__ import annotations

import time

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tokenyard.serve.openai.connection import CycleConnection, tell_connection


class ToldConnection(HttpToolsProtocol):
    """As soon as a head is there, its request is told when that was."""

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        received_at, scope = time.monotonic(), self.scope
        super().on_headers_complete()
        if self.cycle is not None and self.cycle.scope is scope:
            tell_connection(scope, CycleConnection(self.cycle, received_at))
