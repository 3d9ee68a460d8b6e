"""Least attained service: the program that has been given least goes first, so short programs are not held up by long.

Service is counted over all turns of a job, as in program-level schedulers for agents (Autellix): a new program starts
at nothing, one that has had much waits. Waiting is worth ``ageing`` tokens a second, so nobody starves:
a request that arrives ``s / ageing`` seconds after one with ``s`` tokens more does not go before it.
"""

from __future__ import annotations

from collections import OrderedDict
from math import inf

from tokenyard.errors import ConfigError
from tokenyard.policies.keyed import Key, KeyedPolicy
from tokenyard.policies.service import ServiceMeter
from tokenyard.request import Request
from tokenyard.sched.queues.waiting import WaitingQueues

__all__ = ["AttainedService"]

_MANY_PROGRAMS = 65_536


class AttainedService(KeyedPolicy):
    """Orders by tokens that the request's job has been given, output counted twice; no job, no service."""

    reads_tokens = False

    def __init__(self, ageing: float = 1000.0) -> None:
        if not 0 < ageing < inf:
            raise ConfigError("ageing", ageing, "give a number of tokens per second above 0")
        self._ageing = ageing
        self._given: OrderedDict[str, int] = OrderedDict()
        self._meter = ServiceMeter(self._charge)

    def key(self, request: Request) -> Key:
        """Sorts requests. Whoever arrives later is that much behind, so nobody need be sorted anew."""
        given = self._given.get(request.job_id, 0) if request.job_id is not None else 0
        return given + self._ageing * request.arrival_time, request.arrival_time

    def step_begins(self, now: float, room: WaitingQueues) -> None:
        self._meter.charge_output()

    def request_admitted(self, now: float, request: Request) -> None:
        self._meter.admitted(request)

    def _charge(self, request: Request, tokens: int) -> None:
        if request.job_id is not None:
            self._given[request.job_id] = self._given.get(request.job_id, 0) + tokens
            self._given.move_to_end(request.job_id)
            if len(self._given) > _MANY_PROGRAMS:
                self._given.popitem(last=False)
