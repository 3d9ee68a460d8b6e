"""The thread that steps an engine while others submit requests.

    submit, abort ─► the core's inbox ─► [gather] ─► step ─► StepNews ─► on_news ...
                                            ▲                   │
                                            └───────────────────┘   until stopped, or until a step raises

An error that concerns one request does not end it: one whose grammar raises ends as an error in a step that follows,
and one at which the engine is stuck is aborted.

Requests join at the boundary of a step. An engine without any waits; the first that comes may be given company:
with ``gather_seconds`` the step that it is admitted in waits for others that long.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tokenyard.engine.core import EngineCore
from tokenyard.errors import GrammarError, RequestError, StuckError
from tokenyard.request import Request
from tokenyard.sched.steps.engine_outputs import EngineOutputs

__all__ = ["StepNews", "StepThread"]

_log = logging.getLogger("tokenyard")
_SECONDS_BETWEEN = 0.001
"""Between steps that schedule nobody: somebody waits for a grammar, or for KV from elsewhere."""
_MOST_UNTOLD = 64
"""Steps whose news nobody has taken: then the next one waits."""


class StepNews(NamedTuple):
    """What is new after a step, or at the end."""

    outputs: EngineOutputs | None = None
    refused: Sequence[RequestError | StuckError] = ()
    """Submitted requests that can never be served, and one at which the engine was stuck."""
    error: BaseException | None = None
    """The engine has ended with it: no news will follow."""


class StepThread:
    """``on_news`` is called in the thread, after every step that brought anything; it should return at once.

    Whoever takes the news says so by :meth:`taken`.
    """

    def __init__(self, core: EngineCore, on_news: Callable[[StepNews], None], gather_seconds: float = 0.0) -> None:
        self._core = core
        self._on_news = on_news
        self._gather_seconds = gather_seconds
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._untold = threading.Semaphore(_MOST_UNTOLD)
        self._thread = threading.Thread(target=self._run, name="tokenyard-step", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """It steps, or waits for requests."""
        return self._thread.is_alive()

    def submit(self, requests: Sequence[Request]) -> None:
        """Have requests added, from any thread."""
        for each in requests:
            self._core.submit(each)
        self._wake.set()

    def abort(self, request_ids: Sequence[str]) -> None:
        """Have requests aborted, from any thread."""
        self._core.submit_abort(request_ids)
        self._wake.set()

    def taken(self) -> None:
        """The news of one call have been taken in."""
        self._untold.release()

    def stop(self) -> None:
        """End after the step under way, and wait for that; the core is left as it is then."""
        self._stopping.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join()

    # ---- in the thread

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                if self._core.has_work:
                    self._step()
                else:
                    self._wait_for_requests()
        except BaseException as error:  # noqa: BLE001 - whatever it is, those who wait have to know
            self._on_news(StepNews(refused=self._core.take_refused(), error=error))

    def _wait_for_requests(self) -> None:
        self._wake.wait()
        self._wake.clear()
        if self._gather_seconds and self._core.has_work:
            self._stopping.wait(self._gather_seconds)

    def _step(self) -> None:
        outputs, stuck = self._stepped()
        refused: list[RequestError | StuckError] = [*self._core.take_refused(), *stuck]
        if refused or (outputs is not None and len(outputs)):
            self._tell(StepNews(outputs, refused))
        elif outputs is not None and not self._core.scheduler.running:
            self._wake.wait(_SECONDS_BETWEEN)
            self._wake.clear()

    def _stepped(self) -> tuple[EngineOutputs | None, list[StuckError]]:
        """What a step brought, and the request at which the engine was stuck: it is aborted."""
        try:
            return self._core.step(), []
        except GrammarError as error:
            _log.warning("%s", error, exc_info=error)
            return None, []
        except StuckError as error:
            _log.error("%s", error)
            self._core.abort_requests(error.request_id)
            return None, [error]

    def _tell(self, news: StepNews) -> None:
        while not self._untold.acquire(timeout=0.1):
            if self._stopping.is_set():
                return
        self._on_news(news)
