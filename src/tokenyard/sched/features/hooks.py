"""Step hooks: the moments of a step at which optional features have something to do, in their order.

Like the limits of admission, a feature is asked where it may matter and nowhere by name: it overrides the moments that
concern it, and a moment that concerns no configured feature costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tokenyard.request import Request
from tokenyard.sched.limits.candidate import Candidate
from tokenyard.sched.steps.in_flight import StepInFlight

__all__ = ["StepHook", "StepHooks"]


class StepHook:
    """A feature's part in the life of requests and steps: override what concerns it."""

    def check_request(self, request: Request) -> None:
        """A request is about to be added. Raises RequestError, before anything has changed, if it cannot be served."""

    def request_added(self, now: float, request: Request) -> None:
        """A request waits, or a session got its next input."""

    def request_admitted(self, now: float, candidate: Candidate) -> None:
        """A request has joined the running list."""

    def request_preempted(self, now: float, request: Request) -> None:
        """A running request has lost its blocks."""

    def request_aborted(self, request: Request) -> None:
        """A request was ended from outside: nobody is told of it any more."""

    def request_reset(self, request: Request, in_flight: Iterable[StepInFlight]) -> None:
        """A request starts over, or goes on with other input: what steps in flight bring for it is worthless."""

    def step_planned(self, step: StepInFlight) -> None:
        """A step is decided; ``step.plan`` may be replaced by one that says more."""


class StepHooks:
    """Per moment, the calls of those features that it concerns."""

    __slots__ = (
        "check_request",
        "request_aborted",
        "request_added",
        "request_admitted",
        "request_preempted",
        "request_reset",
        "step_planned",
    )

    def __init__(self, features: Sequence[StepHook]) -> None:
        self.check_request: Sequence[Callable[[Request], None]] = _calls(features, "check_request")
        self.request_added: Sequence[Callable[[float, Request], None]] = _calls(features, "request_added")
        self.request_admitted: Sequence[Callable[[float, Candidate], None]] = _calls(features, "request_admitted")
        self.request_preempted: Sequence[Callable[[float, Request], None]] = _calls(features, "request_preempted")
        self.request_aborted: Sequence[Callable[[Request], None]] = _calls(features, "request_aborted")
        self.request_reset: Sequence[Callable[[Request, Iterable[StepInFlight]], None]] = _calls(
            features, "request_reset"
        )
        self.step_planned: Sequence[Callable[[StepInFlight], None]] = _calls(features, "step_planned")


def _calls(features: Sequence[StepHook], moment: str) -> Sequence[Callable[..., Any]]:
    default = getattr(StepHook, moment)
    return tuple(getattr(each, moment) for each in features if getattr(type(each), moment) is not default)
