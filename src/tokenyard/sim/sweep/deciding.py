"""Ending a replay early: what is certain of its end before it is there.

A bound on a percentile is missed for certain once so many requests are beyond it that the percentile of all must be,
whatever the rest do. Requests under way count as soon as they are beyond it already. Nothing here is an estimate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import floor, inf
from typing import NamedTuple

from tokenyard.explain.report.slo import SLO
from tokenyard.request import FinishReason, Request
from tokenyard.sched.observer import StepObserver
from tokenyard.sim.workload.record import Workload

__all__ = ["Decided", "Rival", "SLOWatch"]

_PERCENTS = {"p50": 50, "p90": 90, "p95": 95, "p99": 99, "max": 100}


class Decided(Exception):  # noqa: N818 - it ends a replay, and nothing is wrong
    """How a replay ends is certain."""

    def __init__(
        self,
        why: str,
        *,
        met: bool | None = None,
        at_least: float | None = None,
        bound: str | None = None,
        was_replayed: bool = True,
    ) -> None:
        super().__init__(why)
        self.why = why
        self.met = met
        self.at_least = at_least
        """More than so many times its bound is what the figure of ``bound`` would be at the end."""
        self.bound = bound
        self.was_replayed = was_replayed


class Rival(NamedTuple):
    """A variant that has been replayed to its end within the bounds."""

    figure: str
    """``goodput`` in requests per second, ``throughput`` in output tokens per second, ``cost`` of an hour, ``gpus``."""
    value: float
    cost: float | None
    gpus: int | None

    def costs_no_more_than(self, cost: float | None, gpus: int | None) -> bool:
        """Whether it is as cheap as a variant of this cost and number of GPUs."""
        if self.cost is not None and cost is not None:
            return self.cost <= cost
        return self.gpus == gpus or (self.gpus is not None and gpus is not None and self.gpus <= gpus)

    def makes_pointless(self, cost: float | None, gpus: int | None) -> bool:
        """Whether a variant need not be replayed at all, because it costs more."""
        own = {"cost": cost, "gpus": gpus}.get(self.figure)
        return own is not None and own > self.value


class SLOWatch(StepObserver):
    """Counts requests that are beyond the bounds, on one engine or several."""

    def __init__(self, slos: Sequence[SLO], workload: Workload, *, slack: float = 1.0) -> None:
        """``slack``: bounds are missed only beyond so many times their value; infinity: none ever is."""
        countable = [slo for slo in slos if slo.statistic in (None, *_PERCENTS) and slo.figure != "itl"]
        self._slack = slack
        self._slos = countable if workload.clients is None else []
        """None where requests are sent again: nobody knows of how many attempts a percentile will be."""
        self._num_requests = len(workload)
        self._num_tokens = workload.num_output_tokens
        self._all_end = workload.first_impatient is None
        """No client goes away: who has come will end whole."""
        self._most_tokens = {request.request_id: request.max_tokens for request in workload}
        self._live: dict[str, Request] = {}
        self._beyond = dict.fromkeys(self._slos, 0)
        """Requests that have ended beyond each bound."""
        self._bad = 0
        """Requests that have ended beyond any bound."""

    def request_arrived(self, ts: float, request: Request) -> None:
        self._live[request.request_id] = request

    def request_finished(self, ts: float, request: Request) -> None:
        self._live.pop(request.request_id, None)
        is_whole = FinishReason.of(request.status) not in (FinishReason.ABORT, FinishReason.ERROR)
        beyond = [
            slo for slo in self._slos if self._at_least(request, slo, ts) > slo.bound_ms * self._slack and is_whole
        ]
        for slo in beyond:
            self._beyond[slo] += 1
        self._bad += bool(beyond)

    def decide(self, now: float, rivals: Iterable[Rival] = ()) -> None:
        """Raise Decided if a bound is missed for certain by now, or one of ``rivals`` cannot be reached."""
        beyond, bad = dict(self._beyond), self._bad
        for request in self._live.values() if self._all_end else ():
            late = [slo for slo in self._slos if self._at_least(request, slo, now) > slo.bound_ms * self._slack]
            for slo in late:
                beyond[slo] += 1
            bad += bool(late)
        for slo, number in beyond.items():
            allowed = self._allowed(slo)
            if number > allowed:
                times = "" if self._slack == 1 else f" by more than {self._slack:.4g} times"
                why = f"{slo} is missed{times} for certain after {now:.0f} s: {number:,} requests are beyond it"
                raise Decided(why, met=False, at_least=self._slack, bound=slo.name)
        if now > 0:
            most = {"goodput": (self._num_requests - bad) / now, "throughput": self._num_tokens / now}
            for rival in rivals:
                if most.get(rival.figure, inf) < rival.value:
                    raise Decided(f"cannot reach the best {rival.figure} so far, {rival.value:,.2f}, any more")

    def _allowed(self, slo: SLO) -> float:
        """Requests that may be beyond a bound while it can still hold."""
        if slo.statistic is None:
            return inf
        position = floor(_PERCENTS[slo.statistic] / 100 * (self._num_requests - 1))
        return self._num_requests - position - 1

    def _at_least(self, request: Request, slo: SLO, now: float) -> float:
        """Milliseconds that a request's latency has already, or had at its end."""
        times = request.times
        if slo.figure == "tpot":
            further = self._most_tokens.get(request.request_id, 0) - 1
            if times.first_token is None or further < 1:
                return 0.0
            return 1e3 * ((times.finished or now) - times.first_token) / further
        moment = {"ttft": times.first_token, "queue": times.first_scheduled, "e2e": times.finished}[slo.figure]
        return 1e3 * ((now if moment is None else moment) - request.arrival_time)
