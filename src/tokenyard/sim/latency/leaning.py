"""Fitted step times that follow a model of the deployment where nothing was measured.

A trace that never had more than eight decodes in a step does not say what two hundred cost. Steps within its reach take
what is fitted. A larger one takes what is fitted for the largest within reach that is like it, and what the model has
for the difference between the two, times how much longer than the model the measured steps took.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tokenyard.sim.latency.fitted import FEATURES, FittedLatency
from tokenyard.sim.latency.measured import MeasuredStep
from tokenyard.sim.latency.model import LatencyModel, StepShape, StepWork, TransferDirection
from tokenyard.sim.latency.pricing import step_seconds, transfer_seconds

__all__ = ["LeaningLatency", "Reach", "lean"]

_COMPARED = 2000
"""Measured steps, evenly spread, that the model is compared with."""
_NEARLY = 1.1
"""Steps that are larger by a tenth are still like those that were measured."""
_CLOSE = 0.25
"""A model is used if half of the measured steps are within this share of what it says, scaled."""


class Reach(NamedTuple):
    """The largest steps that were measured."""

    prefill_tokens: int
    """Most prompt tokens in one step."""
    prefills: int
    """Most requests in one step that compute their prompts."""
    decodes: int
    """Most requests in one step that decode."""

    @classmethod
    def of(cls, steps: Sequence[MeasuredStep]) -> Reach:
        """That of measured steps; zeros if there are none."""
        if not steps:
            return cls(0, 0, 0)
        most = np.array([step.features for step in steps]).max(axis=0)
        return cls(*(int(most[FEATURES.index(name)]) for name in cls._fields))

    def covers(self, work: StepWork) -> bool:
        """Whether steps of this size, or nearly, were measured."""
        asked = (work.prefill_tokens, work.num_prefills, work.num_decodes)
        return all(ours <= _NEARLY * seen for ours, seen in zip(asked, self, strict=True))

    def beyond(self, most: Reach) -> Iterator[tuple[str, int, int]]:
        """Of what ``most`` has more of: what that is, how many it has, and how many were seen."""
        for what, asked, seen in zip(("prompt tokens", "prefills", "decodes"), most, self, strict=True):
            if asked > _NEARLY * seen:
                yield what, asked, seen


class LeaningLatency:
    """``fitted`` within ``reach``; beyond it, what ``model`` times ``scale`` has comes on top."""

    def __init__(self, fitted: FittedLatency, reach: Reach, model: LatencyModel, scale: float) -> None:
        self.fitted = fitted
        self._reach = reach
        self._model = model
        self._scale = scale

    @property
    def host_seconds(self) -> float:
        return self.fitted.host_seconds

    def step_seconds(self, shape: StepShape) -> float:
        work = StepWork.of(shape)
        if self._reach.covers(work):
            return step_seconds(self.fitted, shape)
        within = _largest_like(work, self._reach)
        known = step_seconds(self.fitted, within) if within.num_tokens else 0.0
        modelled = step_seconds(self._model, within) if within.num_tokens else 0.0
        return known + max(step_seconds(self._model, shape) - modelled, 0.0) * self._scale

    def transfer_seconds(self, num_bytes: int, direction: TransferDirection) -> float:
        return transfer_seconds(self.fitted, num_bytes, direction)


class Leaning(NamedTuple):
    """Step times, and how far their model is from the measured ones."""

    latency: LeaningLatency
    error: float
    """Half of the measured steps are within this share of what the scaled model says."""


def lean(fitted: FittedLatency, steps: Sequence[MeasuredStep], model: LatencyModel) -> Leaning | None:
    """Have ``fitted``, the fit to ``steps``, lean on ``model``; None if the model is too far from them to be of use."""
    compared = steps[:: max(len(steps) // _COMPARED, 1)]
    measured = np.array([step.seconds for step in compared])
    modelled = np.array([step_seconds(model, _shape_like(step.features)) for step in compared])
    if not len(compared) or not (modelled > 0).all():
        return None
    scale = float(measured.sum() / modelled.sum())
    error = float(np.median(np.abs(measured / (modelled * scale) - 1)))
    return Leaning(LeaningLatency(fitted, Reach.of(steps), model, scale), error) if error <= _CLOSE else None


def _largest_like(work: StepWork, reach: Reach) -> StepShape:
    """The step within ``reach`` that has as many of the decodes and prompt tokens of ``work`` as it may have."""
    decodes, prefills = min(work.num_decodes, reach.decodes), min(work.num_prefills, reach.prefills)
    context = work.decode_context / work.num_decodes - 1 if decodes else 0.0
    chunk = min(work.prefill_tokens, reach.prefill_tokens) // prefills if prefills else 0
    before = work.prefill_context / work.num_prefills if prefills else 0.0
    return _alike(decodes, context, prefills if chunk else 0, chunk, before)


def _shape_like(features: Sequence[float]) -> StepShape:
    """A step with these features whose decodes are alike, and whose prefills are."""
    known = dict(zip(FEATURES, features, strict=True))
    decodes, prefills = int(known["decodes"]), int(known["prefills"])
    context = known["decode_context"] / decodes - 1 if decodes else 0.0
    chunk = round(known["prefill_tokens"] / prefills) if prefills else 0
    before = known["prefill_pairs"] / (prefills * chunk) - (chunk + 1) / 2 if chunk else 0.0
    return _alike(decodes, context, prefills, chunk, before)


def _alike(decodes: int, context: float, prefills: int, chunk: int, before: float) -> StepShape:
    """A step of equal decodes with ``context`` tokens before them, and equal prefills of ``chunk`` tokens."""
    new = np.array([1] * decodes + [chunk] * prefills, np.int64)
    computed = np.array([max(round(context), 0)] * decodes + [max(round(before), 0)] * prefills, np.int64)
    return StepShape(new, computed, len(new), int(new.sum()))
