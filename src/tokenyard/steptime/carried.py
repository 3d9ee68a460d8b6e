"""Step times carried over: to larger steps, and to another deployment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from typing import NamedTuple

import msgspec
import numpy as np

from tokenyard.steptime.fitted import FEATURES, FittedLatency, MeasuredStep
from tokenyard.steptime.model import (
    LatencyModel,
    MappedLatency,
    StepShape,
    StepWork,
    TransferDirection,
    host_seconds,
    step_seconds,
    transfer_seconds,
)

# ---------------------------------------------------------------------------------------------------------------------
# Fitted step times that follow a model of the deployment where nothing was measured.
#
# A trace that never had more than eight decodes in a step does not say what two hundred cost. Steps within its reach
# take what is fitted. A larger one takes what is fitted for the largest within reach that is like it, and what the
# model has for the difference between the two, times how much longer than the model the measured steps took.

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
        """The context of measured steps; zeros if there are none."""
        if not steps:
            return cls(0, 0, 0)
        most = np.array([step.features for step in steps]).max(axis=0)
        return cls(*(int(most[FEATURES.index(name)]) for name in cls._fields))

    def covers(self, work: StepWork) -> bool:
        """Whether steps of this size, or nearly, were measured."""
        asked = (work.prefill_tokens, work.num_prefills, work.num_decodes)
        return all(ours <= _NEARLY * seen for ours, seen in zip(asked, self, strict=True))

    def uncovered(self, most: Reach) -> Iterator[tuple[str, int, int]]:
        """What ``most`` has more of: its name, how many ``most`` has, and how many were seen."""
        for what, asked, seen in zip(("prompt tokens", "prefills", "decodes"), most, self, strict=True):
            if asked > _NEARLY * seen:
                yield what, asked, seen


class ExtrapolatedLatency:
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


class Extrapolation(msgspec.Struct, frozen=True):
    """Step times, and how far their model is from the measured ones."""

    latency: ExtrapolatedLatency
    error: float
    """Half of the measured steps are within this share of what the scaled model says."""


def extrapolate(fitted: FittedLatency, steps: Sequence[MeasuredStep], model: LatencyModel) -> Extrapolation | None:
    """``fitted``, the fit to ``steps``, and ``model`` for larger ones; None if the model is too far off to be used."""
    compared = steps[:: max(len(steps) // _COMPARED, 1)]
    measured = np.array([step.seconds for step in compared])
    modelled = np.array([step_seconds(model, _shape_like(step.features)) for step in compared])
    if not len(compared) or not (modelled > 0).all():
        return None
    scale = float(measured.sum() / modelled.sum())
    error = float(np.median(np.abs(measured / (modelled * scale) - 1)))
    return Extrapolation(ExtrapolatedLatency(fitted, Reach.of(steps), model, scale), error) if error <= _CLOSE else None


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


# ---------------------------------------------------------------------------------------------------------------------
# Measured step times carried over to another deployment, by the ratio that a model of both gives.
#
# What a model gets wrong of both alike, the engine's own overhead for example, cancels out of the ratio.

_SAME = 1e-9
"""Two prices that differ by less of themselves differ by rounding."""
_DECODES = ((1, 1), (1, 4000), (4, 500), (8, 16_000), (33, 1), (64, 1000), (256, 300), (256, 8000), (700, 1500))
"""Requests that decode, and the tokens that each has in the cache."""
_PROMPTS = ((1, 16, 0), (1, 100, 2000), (1, 512, 0), (3, 700, 500), (1, 2048, 30_000), (1, 8192, 0), (8, 1024, 0))
"""Requests that compute a prompt, the tokens of each, and those before them in the cache."""


class Ratios(NamedTuple):
    """How much longer steps take with one model than with another."""

    least: float
    most: float

    @property
    def are_one(self) -> bool:
        """Whether no step takes longer, or shorter."""
        return self.least == self.most == 1.0


def ratios(before: LatencyModel, after: LatencyModel) -> Ratios:
    """Over a fixed set of steps: decodes of several sizes and contexts, prompts, and both together; and over those that
    fill the largest CUDA graph of either, from which the other may not run them.
    """
    shapes = [*_priced(), *(_shape([(1, size, 0)]) for size in {_graph(before), _graph(after)} if size)]
    found = [_ratio(step_seconds(before, shape), step_seconds(after, shape)) for shape in shapes]
    host = _ratio(host_seconds(before), host_seconds(after))
    if host != 1.0:  # a step as long as before that leaves less of it to be hidden is another step
        found.append(host)
    return Ratios(min(found), max(found))


def _graph(model: LatencyModel) -> int:
    """Tokens of its largest CUDA graph; 0 if there is none, or it knows of none."""
    size = getattr(model, "capture_size", 0)
    return size if isinstance(size, int) else 0


def _ratio(before: float, after: float) -> float:
    if abs(after - before) <= _SAME * before:
        return 1.0
    return after / before if before > 0 else inf


def _priced() -> Iterator[StepShape]:
    for decodes in (*_DECODES, None):
        for prompts in (*_PROMPTS, None):
            parts = [] if decodes is None else [(decodes[0], 1, decodes[1])]
            parts += [] if prompts is None else [prompts]
            if parts:
                yield _shape(parts)


def _shape(parts: Sequence[tuple[int, int, int]]) -> StepShape:
    """A step of requests: how many, the tokens that each computes, and those before them."""
    new = np.repeat([tokens for _, tokens, _ in parts], [count for count, _, _ in parts])
    computed = np.repeat([before for _, _, before in parts], [count for count, _, _ in parts])
    return StepShape(new, computed, len(new), int(new.sum()))


def scaled(measured: LatencyModel, before: LatencyModel, after: LatencyModel) -> LatencyModel:
    """``measured`` of a step, times what ``after`` takes for it over what ``before`` does: ``before`` is the model of
    the deployment that was measured, ``after`` that of the one in the question.

    What the host does before the GPU begins is carried over by itself: it is hidden where steps are prepared ahead.
    """

    def host(own: float) -> float:
        was, now = host_seconds(before), host_seconds(after)
        return own * now / was if own > 0 and was > 0 else now

    def change(seconds: float, shape: StepShape) -> float:
        own = host_seconds(measured)
        was = step_seconds(before, shape) - host_seconds(before)
        now = step_seconds(after, shape) - host_seconds(after)
        return max(seconds - own, 0.0) * (max(now, 0.0) / was if was > 0 else 1.0) + host(own)

    return MappedLatency(measured, change, host, links=after)


def stretched(modelled: LatencyModel, *, prefill: float, decode: float) -> LatencyModel:
    """``modelled`` step times, each multiplied by one of two factors: ``prefill`` for a step in which any
    prompt is computed, ``decode`` for a step that only decodes.
    """

    def change(seconds: float, shape: StepShape) -> float:
        return seconds * (decode if shape.num_tokens == len(shape.num_new_tokens) else prefill)

    return MappedLatency(modelled, change, lambda own: own * min(prefill, decode))
