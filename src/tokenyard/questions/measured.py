"""Times of a replay, request by request, beside those that its input has measured."""

from __future__ import annotations

import numpy as np

from tokenyard.core.request import FinishReason, Request
from tokenyard.core.sched.observer import StepObserver
from tokenyard.deploy.spec import ReplaySpec
from tokenyard.explain.measured import Floats, MeasuredBeside, RequestTimes, compared
from tokenyard.workload.record import Workload

_SERVED = (FinishReason.STOP, FinishReason.LENGTH, FinishReason.REPETITION)


class ReplayedTimes(StepObserver):
    """Notes when the requests of a workload got their first token and ended. One object watches all engines."""

    reads_tokens = False

    def __init__(self, workload: Workload) -> None:
        self._places = {each.request_id: i for i, each in enumerate(workload)}
        self.first_scheduled: Floats = np.full(len(workload), np.nan)
        """Seconds from arrival to the first schedule, shape ``[requests]``; NaN: not served."""
        self.times = RequestTimes(*(np.full(len(workload), np.nan) for _ in RequestTimes._fields))

    def request_finished(self, ts: float, request: Request) -> None:
        place = self._places.get(request.request_id)  # a request that was sent again has an id of its own
        if place is None or FinishReason.of(request.status) not in _SERVED:
            return
        moments, arrived, times = request.times, request.arrival_time, self.times
        end = ts if moments.finished is None else moments.finished
        times.arrived[place], times.e2e[place] = arrived, end - arrived
        times.cached[place] = max(request.num_cached_tokens, 0)
        if moments.first_scheduled is not None:
            self.first_scheduled[place] = moments.first_scheduled - arrived
        if moments.first_token is not None:
            times.ttft[place] = moments.first_token - arrived
            if request.num_output_tokens > 1:
                times.tpot[place] = (end - moments.first_token) / (request.num_output_tokens - 1)


def has_measured(workload: Workload) -> bool:
    """Whether a workload's input has measured anything of its requests, or says what the service refused."""
    return any(each.measured is not None for each in workload) or bool(workload.service.not_served)


def measured_times(workload: Workload) -> RequestTimes:
    """What was measured of each request; NaN: nothing."""
    known = [each.measured for each in workload]
    tpots = [None if one is None else one.tpot_s(each.max_tokens) for one, each in zip(known, workload, strict=True)]
    return RequestTimes(
        arrived=_arrivals(workload),
        ttft=_floats([None if each is None else each.ttft_s for each in known]),
        tpot=_floats(tpots),
        e2e=_floats([None if each is None else each.e2e_s for each in known]),
        cached=_floats([None if each is None else each.cached_tokens for each in known]),
    )


def _floats(values: list[float | None]) -> Floats:
    return np.array([np.nan if each is None else each for each in values], np.float64)


def _arrivals(workload: Workload) -> Floats:
    """When requests arrived, as the input says it; NaN where it does not: drawn, or by the answer before."""
    if workload.max_concurrency is not None or any(each.code == "drawn_as_stated" for each in workload.remarks):
        return np.full(len(workload), np.nan)
    return _floats([None if each.after else each.arrival_time for each in workload])


def seats_of(spec: ReplaySpec) -> int:
    """Requests that all engines of a deployment run at once."""
    return spec.scheduler.max_num_seqs * spec.num_engines


def measured_in(workload: Workload) -> MeasuredBeside | None:
    """What a workload's input has measured, beside nothing; None: there is nothing to say."""
    return _compared(workload, None, None) if has_measured(workload) else None


def measured_beside(spec: ReplaySpec, replayed: ReplayedTimes, *, warmup: float = 0.0) -> MeasuredBeside:
    """Both sides; requests that arrived in the first ``warmup`` seconds do not count."""
    times = replayed.times
    if warmup:
        early = np.array([each.arrival_time < warmup and not each.after for each in spec.workload])
        times = RequestTimes(*(np.where(early, np.nan, each) for each in times))
    return _compared(spec.workload, times, seats_of(spec))


def _compared(workload: Workload, replayed: RequestTimes | None, seats: int | None) -> MeasuredBeside:
    return compared(
        measured_times(workload),
        replayed,
        prompt_tokens=np.array([each.num_prompt_tokens for each in workload], np.float64),
        stated_rate=workload.service.requests_per_s,
        seats=seats,
        not_served=workload.service.not_served,
    )
