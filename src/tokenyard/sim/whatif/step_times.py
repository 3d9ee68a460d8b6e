"""How long the steps of a recorded run took, as a replay of it needs them: the fit that predicts unseen steps best.

Two fits are made where the model of the run's deployment is known:

    features   a constant and a time per token, decode, token of context ... (:mod:`tokenyard.sim.latency.fitted`)
    terms      what that model says, each of its terms scaled (:mod:`tokenyard.sim.latency.terms`)

A mixture of experts, states or CUDA graphs are in the second alone; a machine that is unlike its model is met better by
the first. Stretches of steps in turn are fitted and predicted: the fit whose predictions are closer is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import msgspec
import numpy as np
import numpy.typing as npt

from tokenyard.sim.latency.fitted import FEATURES, FittedLatency
from tokenyard.sim.latency.leaning import lean
from tokenyard.sim.latency.measured import MeasuredStep, fit_steps, measured_pace, predicted_by_features
from tokenyard.sim.latency.model import LatencyModel, TermedLatency
from tokenyard.sim.latency.pace import Pace
from tokenyard.sim.latency.pricing import host_seconds
from tokenyard.sim.latency.terms import fit_terms, predicted_by_terms
from tokenyard.sim.whatif.answer import FitQuality

__all__ = ["StepFit", "fitted_to_features", "fitted_to_model"]

Floats = npt.NDArray[np.float64]
_Fit = Callable[[Sequence[MeasuredStep]], "_Fitted | None"]

_HELD_OUT_STRETCH = 16
"""Steps in a row that are fitted, then as many that are predicted: neighbours are alike."""
_CLOSE = 0.25
"""A model is used if half of the measured steps are within this share of its scaled terms."""
_NO_BETTER = 1e-3
"""Of a step: fits that err less differ in nothing that anybody asks about."""


@dataclass(frozen=True, slots=True)
class _Fitted:
    latency: LatencyModel
    predict: Callable[[Sequence[MeasuredStep]], Floats]


@dataclass(frozen=True, kw_only=True)
class StepFit:
    """Step times of a run."""

    latency: LatencyModel
    pace: Pace | None
    """When the machine was faster or slower than ``latency``; None if it ran evenly."""
    quality: FitQuality


def fitted_to_features(steps: Sequence[MeasuredStep], source: str, began: float, *, is_virtual: bool) -> StepFit:
    """The fit of whoever knows nothing of the deployment. Raises TraceError if there are too few steps.

    ``began``: the moment of the first arrival, on the clock of ``steps``; a virtual machine runs evenly.
    """
    return _finished(
        _by_features(steps, source, 0.0),
        lambda some: _by_features(some, source, 0.0),
        steps,
        began,
        is_virtual=is_virtual,
    )


def fitted_to_model(
    steps: Sequence[MeasuredStep], source: str, began: float, model: LatencyModel, name: str, *, is_virtual: bool
) -> StepFit:
    """The better of both fits; ``name`` says what ``model`` is of. Raises TraceError if there are too few steps."""
    host = host_seconds(model)

    def by_features(some: Sequence[MeasuredStep]) -> _Fitted:
        return _by_features(some, source, host)

    own = _finished(by_features(steps), by_features, steps, began, is_virtual=is_virtual)
    if isinstance(model, TermedLatency):
        scaled = _scaled(model, steps, began, name, is_virtual=is_virtual)
        if scaled is not None and _is_better(scaled, own):
            return scaled
    return _leaning(own, steps, model, name)


def _scaled(
    model: TermedLatency, steps: Sequence[MeasuredStep], began: float, name: str, *, is_virtual: bool
) -> StepFit | None:
    """The model's terms, scaled; None if it cannot say anything of the steps, or is far from them."""
    fitted = fit_terms(model, steps)
    if fitted is None:
        return None

    def by_terms(some: Sequence[MeasuredStep]) -> _Fitted | None:
        found = fit_terms(model, some)
        return None if found is None else _Fitted(found, partial(predicted_by_terms, found))

    whole = _Fitted(fitted, partial(predicted_by_terms, fitted))
    errors = np.abs(whole.predict(steps) / np.array([step.seconds for step in steps]) - 1)
    if float(np.median(errors)) > _CLOSE:
        return None
    fit = _finished(whole, by_terms, steps, began, is_virtual=is_virtual)
    scales = {each: round(scale, 4) for each, scale in fitted.scales.items()}
    return replace(fit, quality=msgspec.structs.replace(fit.quality, terms_of=name, scales=scales))


def _leaning(own: StepFit, steps: Sequence[MeasuredStep], model: LatencyModel, name: str) -> StepFit:
    """The fit to features; larger steps take ``model``'s durations, scaled, unless it is far from those there are."""
    assert isinstance(own.latency, FittedLatency)
    leaning = lean(own.latency, steps, model)
    if leaning is None:
        return own
    quality = msgspec.structs.replace(own.quality, leans_on=name, leans_on_error=leaning.error)
    return replace(own, latency=leaning.latency, quality=quality)


def _by_features(steps: Sequence[MeasuredStep], source: str, host: float) -> _Fitted:
    """``host``: seconds of every step that are the host's, which those prepared ahead hid."""
    whole = [step._replace(seconds=step.seconds + host) if step.ahead else step for step in steps]
    found = fit_steps(whole, source)
    latency = replace(found, host_seconds=min(host, found.constant))
    return _Fitted(latency, partial(predicted_by_features, latency))


def _is_better(scaled: StepFit, own: StepFit) -> bool:
    """Whether the scaled terms of a model are to be preferred to what knows nothing of it."""
    theirs, ours = scaled.quality.mean_error, own.quality.mean_error
    return theirs is None or ours is None or theirs <= max(ours, _NO_BETTER)


def _finished(
    fitted: _Fitted, again: _Fit, steps: Sequence[MeasuredStep], began: float, *, is_virtual: bool
) -> StepFit:
    """With the pace of the machine, and with what predictions of unseen steps are off by."""
    pace = None if is_virtual else measured_pace(steps, fitted.predict(steps), began)
    return StepFit(latency=fitted.latency, pace=pace, quality=_quality(again, steps, pace))


def _quality(fit: _Fit, steps: Sequence[MeasuredStep], pace: Pace | None) -> FitQuality:
    """How well step times are predicted that the fit has not seen: stretches in turn are fitted and predicted."""
    fastest, slowest = (None, None) if pace is None else (float(pace.factors.min()), float(pace.factors.max()))
    stretch = (np.arange(len(steps)) // _HELD_OUT_STRETCH % 2).tolist()
    seen = [step for step, turn in zip(steps, stretch, strict=True) if turn == 0]
    unseen = [step for step, turn in zip(steps, stretch, strict=True) if turn == 1]
    half = fit(seen) if len(seen) >= len(FEATURES) and unseen else None
    if half is None:
        return FitQuality(steps=len(steps), held_out=0, fastest=fastest, slowest=slowest)
    predicted, measured = half.predict(unseen), np.array([step.seconds for step in unseen])
    errors = np.abs(predicted / measured - 1)
    return FitQuality(
        steps=len(steps),
        held_out=len(unseen),
        median_error=float(np.median(errors)),
        p90_error=float(np.percentile(errors, 90)),
        mean_error=float(np.abs(predicted - measured).sum() / measured.sum()),
        total_error=float(predicted.sum() / measured.sum() - 1),
        fastest=fastest,
        slowest=slowest,
    )
