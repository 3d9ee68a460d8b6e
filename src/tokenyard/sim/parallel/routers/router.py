"""The seam: a router is asked for every request that arrives, and told what the engines tell."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from tokenyard.request import Request
from tokenyard.sched.hook_names import check_hook_names

__all__ = ["EngineReport", "EngineState", "Router"]


class EngineState(Protocol):
    """An engine as it is at this moment."""

    @property
    def rank(self) -> int:
        """Its number, from 0."""

    @property
    def num_waiting(self) -> int:
        """Requests that do not run yet, those included that were sent to it during the step that it takes."""

    @property
    def num_running(self) -> int: ...

    @property
    def kv_usage(self) -> float:
        """Share of its KV blocks in use, from 0 to 1."""

    def num_cached_tokens(self, request: Request) -> int:
        """Leading tokens of the request whose KV it holds."""


class EngineReport(NamedTuple):
    """What an engine tells when its counts have changed: after requests came in, and after a step."""

    rank: int
    num_waiting: int
    num_running: int
    kv_usage: float
    wave: int
    """Of a model whose ranks step together; else 0."""
    step: int
    """Steps in the wave; else 0."""


class Router(ABC):
    """Decides who serves a request, once, when it arrives. Derive from it for one of your own.

    A class with a method that is called almost as one of these is refused when it is made (ConfigError).
    """

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        check_hook_names(cls, "router")

    @abstractmethod
    def choose(self, now: float, request: Request, engines: Sequence[EngineState]) -> int:
        """Index of the engine that gets ``request``; ``now`` is in seconds on the replay's clock."""

    def engine_reported(self, now: float, report: EngineReport) -> None:  # noqa: B027 - most routers need not know
        """An engine's counts have changed."""

    def request_ended(self, now: float, request_id: str, rank: int) -> None:  # noqa: B027
        """A request ended on the engine ``rank``, or was refused by it."""
