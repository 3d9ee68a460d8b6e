"""A latency model fitted to the step times that a trace recorded.

A step can be used if the trace tells how long it took and, of every request in it, how many tokens it computed and how
many were in the cache before. The latter stands in the per-request records; without them it is followed from
``prefix_cache_lookup`` on, until a request is preempted.

Duration of a step: the time to the next step's snapshot, if that step was already running something (between idle
steps an engine waits for work); what ``step_completed`` says where nothing follows, or where the next step began before
this one had ended (several in flight).
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenyard.errors import TraceError
from tokenyard.sim.latency.fitted import FEATURES, FittedLatency, fit, step_features
from tokenyard.sim.latency.model import StepShape, StepWork
from tokenyard.sim.latency.pace import Pace
from tokenyard.trace.read.reader import TraceReader
from tokenyard.trace.read.step_joiner import Step

__all__ = ["MeasuredStep", "StepTimes", "fit_steps", "fit_trace", "measured_pace", "predicted_by_features"]

Floats = npt.NDArray[np.float64]

_STRETCH = 64
"""Steps in a row whose durations together say how fast the machine was."""
_EVEN = 0.01
"""A machine whose stretches all lie within this share of its mean ran evenly."""


class MeasuredStep(NamedTuple):
    """What a step computed, and how long it took."""

    features: tuple[float, ...]
    """One row of :data:`~tokenyard.sim.latency.fitted.FEATURES`."""
    seconds: float
    ts: float
    """When it began, on the trace's clock."""
    work: StepWork | None = None
    """The same as a model of step times takes it: where drafts are verified, a request that does counts as decode."""
    ahead: bool = False
    """It was prepared while the step before ran: ``seconds`` are those of the device alone."""


class StepTimes:
    """Takes the steps of a trace in order, and keeps those that tell what they computed and how long they took."""

    def __init__(self, drafts: int = 0, stages: int = 1) -> None:
        """``drafts``: how many a request may have verified in one step. ``stages`` of a pipeline: with several, steps
        that ran beside others do not tell how long they took.
        """
        self._measured: list[MeasuredStep] = []
        self._beside_others: list[MeasuredStep] = []
        """Steps of a pipeline that ran while others did."""
        self._drafts = drafts
        self._is_staged = stages > 1
        self._contexts = _Contexts()
        self._ended_at: float | None = None
        """When the step before the last one had ended."""
        self._last: tuple[Step, StepShape, bool] | None = None
        """The step before, if it can be used, and whether another one ran when it began."""

    def add(self, step: Step) -> None:
        """Take one step."""
        shape = self._contexts.shape_of(step)
        self._measure(step)
        ahead = self._ended_at is not None and step.ts is not None and step.ts < self._ended_at
        self._last = None if shape is None else (step, shape, ahead)
        completed = step.completed
        self._ended_at = completed.ts if completed is not None else None

    def end(self) -> None:
        """No step follows."""
        self._measure(None)
        self._last = None

    def _measure(self, following: Step | None) -> None:
        if self._last is None:
            return
        step, shape, ahead = self._last
        seconds = _seconds(step, following)
        if seconds is not None and seconds > 0:
            work = StepWork.verifying(shape, self._drafts) if self._drafts else StepWork.of(shape)
            kept = self._beside_others if ahead and self._is_staged else self._measured
            kept.append(MeasuredStep(step_features(shape), seconds, step.ts or 0.0, work, ahead))

    @property
    def measured(self) -> list[MeasuredStep]:
        """The steps, in order; those of a pipeline that ran beside others only where there is little else."""
        if len(self._measured) >= len(FEATURES):
            return self._measured
        return sorted((*self._measured, *self._beside_others), key=lambda step: step.ts)


def _seconds(step: Step, following: Step | None) -> float | None:
    """How long a step took, with what the host does between it and the next, if there is work for a next one."""
    completed = step.completed
    snapshot = following.snapshot if following is not None else None
    until = following.ts if following is not None and snapshot is not None and snapshot.num_running else None
    if completed is None:
        return until - step.ts if until is not None and step.ts is not None else None
    if until is None or completed.ts is None or until < completed.ts or step.ts is None:
        return completed.step_seconds
    follows_at_once = following is not None and following.number == step.number + 1
    return until - step.ts if follows_at_once else completed.step_seconds


def fit_trace(path: str | PathLike[str]) -> FittedLatency:
    """Fit the coefficients to a trace (a file of the pair, or its directory).

    Raises TraceError if there is no trace, or too few of its steps say what they computed and how long they took.
    """
    times = StepTimes()
    for step in TraceReader(str(path)).steps():
        times.add(step)
    times.end()
    return fit_steps(times.measured, str(path))


def fit_steps(steps: Sequence[MeasuredStep], source: str) -> FittedLatency:
    """Fit the coefficients to ``steps``. Raises TraceError if they are too few."""
    if len(steps) < len(FEATURES):
        raise TraceError(
            f"{source}: only {len(steps)} steps tell what they computed and how long they took: a fit needs at least"
            f" {len(FEATURES)}, better hundreds of different sizes"
        )
    return fit(np.array([step.features for step in steps]), np.array([step.seconds for step in steps]))


def predicted_by_features(model: FittedLatency, steps: Sequence[MeasuredStep]) -> Floats:
    """What ``model`` says of measured steps, less what was hidden behind the steps before them."""
    weights = np.array([getattr(model, name) for name in FEATURES])
    seconds: Floats = np.array([step.features for step in steps]) @ weights
    return seconds - model.host_seconds * np.array([step.ahead for step in steps])


def measured_pace(steps: Sequence[MeasuredStep], predicted: Floats, began: float) -> Pace | None:
    """How far stretches of measured steps are from what is ``predicted`` of them; None if the machine ran evenly.

    ``began``: the moment of the first arrival, on the clock of ``steps``.
    """
    if not steps:
        return None
    starts = np.arange(0, len(steps), _STRETCH)
    if len(starts) > 1 and len(steps) - starts[-1] < _STRETCH:
        starts = starts[:-1]
    seconds = np.add.reduceat(np.array([step.seconds for step in steps]), starts)
    expected = np.add.reduceat(predicted, starts)
    factors = np.divide(seconds, expected, out=np.ones(len(starts)), where=expected > 0)
    if np.abs(factors - 1).max() < _EVEN:
        return None
    return Pace(np.array([steps[start].ts for start in starts.tolist()]) - began, factors)


class _Contexts:
    """How many tokens every request has in the cache, as far as the trace has told, and how many there are of it."""

    def __init__(self) -> None:
        self._computed: dict[str, int] = {}
        self._known: dict[str, int] = {}
        """Tokens of its prompt, and those that were sampled."""

    def shape_of(self, step: Step) -> StepShape | None:
        """The step's shape, or None if the trace leaves part of it out or it computed nothing."""
        self._learn(step)
        decision = step.decision
        if decision is None or decision.num_scheduled_tokens is None:
            return None
        for request_id in decision.preempted_req_ids or ():
            self._computed.pop(request_id, None)
        scheduled = decision.num_scheduled_tokens
        before = [self._computed[request_id] for request_id in scheduled if request_id in self._computed]
        sampled = sum(self._samples(request_id, tokens) for request_id, tokens in scheduled.items())
        self._advance(scheduled, step)
        total = sum(scheduled.values())
        if not scheduled or len(before) < len(scheduled) or decision.total_scheduled_tokens not in (None, total):
            return None
        new = np.fromiter(scheduled.values(), np.int64, len(scheduled))
        return StepShape(new, np.array(before, np.int64), sampled, total)

    def _samples(self, request_id: str, tokens: int) -> bool:
        """Whether a step that computes so many tokens of a request ends with one more: it has no chunk left to do."""
        known = self._known.get(request_id)
        if known is None:  # it was there before the trace began
            return tokens == 1
        if self._computed.get(request_id, 0) + tokens < known:
            return False
        self._known[request_id] = known + 1
        return True

    def _learn(self, step: Step) -> None:
        """What the step's records say outright."""
        for arrived in step.arrived:
            if arrived.req_id is not None and arrived.num_prompt_tokens is not None:
                self._known[arrived.req_id] = arrived.num_prompt_tokens
        for lookup in step.lookups:
            if lookup.req_id is not None and lookup.total_hit_tokens is not None:
                self._computed[lookup.req_id] = lookup.total_hit_tokens
        for request in step.requests:
            if request.req_id is not None and request.queue == "running" and request.num_computed_tokens is not None:
                self._computed[request.req_id] = request.num_computed_tokens

    def _advance(self, scheduled: dict[str, int], step: Step) -> None:
        """The step's tokens are in the cache now; who finished with it is forgotten."""
        for request_id, tokens in scheduled.items():
            if request_id in self._computed:
                self._computed[request_id] += tokens
        for finished in step.finished:
            self._computed.pop(finished.req_id or "", None)
            self._known.pop(finished.req_id or "", None)
