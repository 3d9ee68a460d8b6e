"""Step times scaled to what a workload's input has measured: the deployment that was measured, replayed a few times.

Two factors are looked for, by replays of the measured requests at their own arrivals:

    decode    until the mean TPOT is the measured one; without a TTFT, until E2E is
    prefill   until TTFT is, in the median of requests that did not queue: fewer requests were under way than there are
              places when they came, as measured, and in the replay they were in a step as soon as one could begin

How long others queued follows from both, and is left to the replay. What the factors rest on is part of the answer. A
difference that is within the chance of so few requests moves nothing.
"""

from __future__ import annotations

import math
from dataclasses import replace

import msgspec
import numpy as np
import numpy.typing as npt

from tokenyard.deploy.spec import ReplaySpec
from tokenyard.errors import ConfigError
from tokenyard.explain.measured import MISLEADS, Calibration, Floats, RequestTimes
from tokenyard.questions.measured import ReplayedTimes, measured_beside, measured_times, seats_of
from tokenyard.questions.replaying import Engines, Watching
from tokenyard.questions.scenario import Bars, Scenario, replay_spec, without_trace
from tokenyard.questions.settings import TrafficSettings
from tokenyard.steptime.model import StepShape, step_seconds
from tokenyard.steptime.scaled import ScaledLatency, StepTimeFactors

_MOST_REPLAYS = 8
_MOST_REQUESTS = 1000
"""Requests that are replayed, the first ones: more tell no more of two factors."""
_SETTLED = 0.02
"""Share by which what is replayed may differ from what was measured."""
_HOPELESS = MISLEADS - 1
"""Share by which means may differ at the end."""
_LARGEST_CHANGE = math.log(2)
"""Logarithm of the most by which a factor changes from one replay to the next: a queue answers more than in proportion.
"""
_BOUNDS = 0.02, 50.0
_FEWEST = 10
"""Requests below which nothing is scaled, and below which the factor of prompts is the one of decodes."""
_SENT_OTHERWISE = (
    "request_rate",
    "burstiness",
    "rate_scale",
    "max_concurrency",
    "client_timeout",
    "retries",
    "retry_wait",
)
"""Settings by which requests are sent otherwise than they were when they were measured."""
_SLACK = 1.1


def calibrated(scenario: Scenario, bars: Bars) -> tuple[Scenario, Calibration]:
    """The scenario with its step times scaled to what its workload's input measured, and what that rests on.

    Raises ConfigError for an input that has measured too little, or another deployment; TokenyardError for what cannot
    be replayed.
    """
    usual = TrafficSettings()
    as_sent = {name: getattr(usual, name) for name in _SENT_OTHERWISE}
    hardware = replace(scenario.hardware, step_time_factors=None)
    measured = replace(scenario, arrivals=replace(scenario.arrivals, **as_sent), hardware=hardware)
    spec = replay_spec(without_trace(measured))
    spec = replace(spec, workload=spec.workload.with_requests(spec.workload.requests[:_MOST_REQUESTS]))
    found = _Search(spec, skip_refused=scenario.arrivals.skip_refused, bars=bars).found()
    return replace(scenario, hardware=replace(hardware, step_time_factors=found.setting)), found


class _Told(msgspec.Struct, frozen=True):
    """What one replay says of a factor."""

    ratio: float
    """Measured over replayed, of the figure that it rests on."""
    chance: float
    """Share by which the ratio may differ from 1 by the choice of requests."""
    requests: int

    @property
    def off(self) -> float:
        """By what share it differs from what was measured; 0 where that may be chance."""
        off = max(self.ratio, 1 / self.ratio) - 1
        return 0.0 if off <= self.chance else off


class _Fit(msgspec.Struct, frozen=True):
    """What one replay says of its factors."""

    factors: StepTimeFactors
    decode: _Told
    prefill: _Told | None
    """None: too few requests tell it."""
    apart: float
    """By what share the means of all that was measured differ, of the one that is furthest off."""

    @property
    def is_near(self) -> bool:
        """Whether there is nothing left to change."""
        told = [self.decode, *([] if self.prefill is None else [self.prefill])]
        return self.apart <= _SETTLED or all(each.off <= _SETTLED for each in told)


class _Factor:
    """One factor on its way: it is changed in proportion, and by half as much whenever that went too far."""

    def __init__(self) -> None:
        self.value, self._pace, self._before = 1.0, 1.0, 0.0

    def move(self, told: _Told) -> None:
        """Bring it nearer to what one replay says."""
        way = 0.0 if not told.off else math.log(told.ratio)
        if way * self._before < 0:
            self._pace /= 2
        self._before = way or self._before
        changed = self.value * math.exp(max(-_LARGEST_CHANGE, min(way, _LARGEST_CHANGE)) * self._pace)
        self.value = min(max(changed, _BOUNDS[0]), _BOUNDS[1])


class _Search:
    """Looks for the factors of one deployment."""

    def __init__(self, spec: ReplaySpec, *, skip_refused: bool, bars: Bars) -> None:
        self._spec, self._skip_refused, self._bars = spec, skip_refused, bars
        self._measured = measured_times(spec.workload)
        self._by = "tpot" if _count(self._measured.tpot) >= _FEWEST else "e2e"
        self._has_place = _had_a_place(self._measured, seats_of(spec))
        known = _count(getattr(self._measured, self._by))
        if known < _FEWEST:
            name = spec.workload.name
            fix = (
                f"{name} has times of {known:,} requests, and {_FEWEST} are needed: leave it out, or name their columns"
            )
            raise ConfigError("calibrate", True, f"{fix} (§columns duration=NAME,ttft=NAME)")

    def found(self) -> Calibration:
        """The factors whose replay is nearest to what was measured, and what they rest on."""
        fits: list[_Fit] = []
        decode, prefill = _Factor(), _Factor()
        while len(fits) < _MOST_REPLAYS and not (fits and fits[-1].is_near):
            fits.append(self._fit(StepTimeFactors(decode.value, prefill.value), len(fits) + 1))
            decode.move(fits[-1].decode)
            prefill.move(fits[-1].prefill or fits[-1].decode)
        best = min(fits, key=lambda each: each.apart)
        if best.apart > _HOPELESS:
            fix = f"no factors of step times give what was measured: the nearest, {best.factors}, leaves means"
            fix += f" {1 + best.apart:.3g} times apart; give the flags, the model and the GPU that were measured"
            raise ConfigError("calibrate", True, fix)
        return Calibration(
            source=self._spec.workload.name,
            gpu=self._spec.settled.gpu.name,
            decode=best.factors.decode,
            prefill=best.factors.prefill,
            decode_from=self._by,
            decode_requests=best.decode.requests,
            prefill_requests=0 if best.prefill is None else best.prefill.requests,
            replays=len(fits),
            off=best.apart,
        )

    def _fit(self, factors: StepTimeFactors, number: int) -> _Fit:
        replayed = self._replay(factors, number)
        ours, theirs = getattr(self._measured, self._by), getattr(replayed.times, self._by)
        counted = ~np.isnan(ours) & ~np.isnan(theirs)
        if counted.sum() < _FEWEST:
            fix = f"{counted.sum():,} of the measured requests were served in the replay, and {_FEWEST} are needed"
            raise ConfigError("calibrate", True, f"{fix}: leave it out, or give the flags of the measured deployment")
        unqueued = self._has_place & (replayed.first_scheduled <= _SLACK * self._longest_step(factors))
        if self._by == "e2e" and (counted & unqueued).sum() >= _FEWEST:
            counted &= unqueued  # how long others queued tells less of steps
        decode = _Told(float(ours[counted].mean() / theirs[counted].mean()), 0.0, int(counted.sum()))
        first = self._measured.ttft / replayed.times.ttft
        told = unqueued & (first > 0)
        has_prefill = self._by == "tpot" and told.sum() >= _FEWEST
        prefill = _median_of(np.log(first[told])) if has_prefill else None
        return _Fit(factors, decode, prefill, _apart(self._measured, replayed.times))

    def _replay(self, factors: StepTimeFactors, number: int) -> ReplayedTimes:
        spec = replace(self._spec, latency=self._scaled(factors))
        times = ReplayedTimes(spec.workload)
        engines = Engines(spec, watching=Watching(times=times))
        with self._bars(len(spec.workload), f"scaling step times, {number}") as on_progress:
            engines.replay(skip_refused=self._skip_refused, on_progress=on_progress)
        if number == 1:
            self._require_same_deployment(times)
        return times

    def _scaled(self, factors: StepTimeFactors) -> ScaledLatency:
        drafts = self._spec.speculation.config.num_speculative_tokens if self._spec.speculation is not None else 0
        return ScaledLatency(self._spec.latency, factors, decode_tokens=1 + drafts)

    def _longest_step(self, factors: StepTimeFactors) -> float:
        """Seconds of a step that computes as many prompt tokens as one may: no wait for the next one is longer."""
        tokens = self._spec.scheduler.max_num_batched_tokens
        shape = StepShape(np.full(1, tokens, np.int64), np.zeros(1, np.int64), 1, tokens)
        return step_seconds(self._scaled(factors), shape)

    def _require_same_deployment(self, times: ReplayedTimes) -> None:
        """Raise ConfigError where what was measured cannot have run on this deployment."""
        found = measured_beside(self._spec, times)
        if found.is_of_another_deployment:
            fix = (
                f"as measured, {found.generating_at_once:,} requests generated at once, and this deployment runs"
                f" {found.seats:,} (§max_num_seqs): give the flags of the deployment that was measured"
            )
            raise ConfigError("calibrate", True, fix)


def _median_of(logarithms: Floats) -> _Told:
    """What the median of some ratios says, and how far chance alone may take it: two standard errors."""
    count = len(logarithms)
    error = 2 * 1.2533 * float(logarithms.std()) / math.sqrt(count)  # of a median, were they normal
    return _Told(math.exp(float(np.median(logarithms))), math.expm1(error), count)


def _apart(measured: RequestTimes, replayed: RequestTimes) -> float:
    """By what share the means of both sides differ, of the latency that is furthest off."""
    ratios = []
    for name in ("ttft", "tpot", "e2e"):
        ours, theirs = getattr(measured, name), getattr(replayed, name)
        both = ~np.isnan(ours) & ~np.isnan(theirs)
        if both.any() and theirs[both].any():
            ratios.append(float(ours[both].mean() / theirs[both].mean()))
    return max(max(each, 1 / each) for each in ratios) - 1


def _count(values: Floats) -> int:
    return int((~np.isnan(values)).sum())


def _had_a_place(measured: RequestTimes, seats: int) -> npt.NDArray[np.bool_]:
    """Which requests came, as measured, when fewer were under way than there are places; all, where moments are not
    known.
    """
    arrived, ends = measured.arrived, measured.arrived + measured.e2e
    known = ~np.isnan(ends)
    if not known.any():
        return np.ones(len(arrived), bool)
    came, left = np.sort(arrived[known]), np.sort(ends[known])
    under_way = np.searchsorted(came, arrived, "left") - np.searchsorted(left, arrived, "right")
    return np.logical_and(known, under_way < seats)
