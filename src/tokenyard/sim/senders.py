"""Clients under way: when each first sent its request, which attempt is running, and what came of all of them."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tokenyard.explain.report.clients import ClientFigures
from tokenyard.explain.report.percentiles import Series
from tokenyard.sim.workload.clients import Clients, attempt_id
from tokenyard.sim.workload.record import WorkloadRequest

__all__ = ["Senders"]


class _Sending(NamedTuple):
    """A request that a client waits for."""

    request: WorkloadRequest
    """As it was sent this time."""
    name: str
    """What the workload calls it."""
    attempt: int
    first: float
    """When it was sent for the first time, in seconds."""
    sent: float
    """When it was sent this time."""


class Senders:
    """Everybody who waits for an answer."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._waiting: dict[str, _Sending] = {}
        """By the name of the attempt."""
        self._names: dict[str, str] = {}
        """Further attempts -> what the workload calls their requests."""
        self._given_up = self._retried = self._late = 0
        self._answer_seconds: list[float] = []

    def name(self, request_id: str) -> str:
        """What the workload calls the request of an attempt."""
        return self._names.get(request_id, request_id)

    def sent(self, moment: float, request: WorkloadRequest) -> None:
        """A request was sent, for the first time or again."""
        name = self.name(request.request_id)
        earlier = self._waiting.pop(name, None) if name != request.request_id else None
        attempt, first = (1, moment) if earlier is None else (earlier.attempt + 1, earlier.first)
        self._waiting[request.request_id] = _Sending(request, name, attempt, first, moment)

    def hung_up(self, request_id: str) -> WorkloadRequest | None:
        """A client went away before the end: what it sends again; None if it does not."""
        sending = self._waiting.pop(request_id)
        patience = sending.request.patience
        if patience is None or patience < self._clients.timeout:
            return None
        self._given_up += 1
        if sending.attempt > self._clients.retries:
            return None
        self._retried += 1
        again = replace(
            sending.request,
            request_id=attempt_id(sending.name, sending.attempt + 1),
            arrival_time=sending.sent + patience + self._clients.wait,
            after=(),
        )
        self._names[again.request_id] = sending.name
        self._waiting[sending.name] = sending  # until it is sent
        return again

    def answered(self, request_id: str, now: float) -> None:
        """An answer has come whole."""
        sending = self._waiting.pop(request_id)
        self._late += sending.attempt > 1
        self._answer_seconds.append(now - sending.first)

    def figures(self, unanswered: int) -> ClientFigures:
        """What came of it; so many requests were never answered."""
        clients = self._clients
        return ClientFigures(
            timeout_s=clients.timeout,
            retries=clients.retries,
            retry_wait_s=clients.wait,
            given_up=self._given_up,
            retried=self._retried,
            answered_late=self._late,
            unanswered=unanswered,
            answer_ms=Series.of(np.array(self._answer_seconds, np.float64)).latency(),
        )
