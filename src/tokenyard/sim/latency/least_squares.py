"""Coefficients of step times: least squares of relative errors, none negative, with little weight for odd steps."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Prior", "coefficients"]

Floats = npt.NDArray[np.float64]

_ROUNDS = 12
"""Fits, each weighted by what the one before predicts."""
_NORMAL = 1.4826
"""Standard deviations in a median of absolute errors, of a normal distribution."""
_ORDINARY = 1.5 * _NORMAL
"""Errors of a normal distribution, in medians, that count in full: one and a half standard deviations."""
_LEAST_ORDINARY = 0.25
"""Of a step: errors that always do."""
_LEAST_SHARE = 1e-3
"""Of the mean step: no prediction counts as shorter, or it alone would be fitted."""
_LEAST_NOISE = 1e-3
"""Relative error of a step that is always reckoned with."""


class Prior(NamedTuple):
    """What the coefficients are where the steps do not tell."""

    spread: float
    """All are alike but for this share, one standard deviation: what is known of a model's terms beside its whole."""


def coefficients(features: Floats, seconds: Floats, *, is_prompt: npt.NDArray[np.bool_], prior: Prior | None) -> Floats:
    """Of ``features`` (``[steps, n]``), so that their sum is ``seconds``.

    Errors count as shares of what is predicted, so that short steps count as much as long ones. (As shares of what was
    measured, a step that took long by chance would count less than one that was quick by chance, and all predictions be
    too short.) Errors that are large beside the median one (of the steps with a prompt, or of the others) count in
    proportion instead of squared (Huber): a step during which the machine did something else says nothing of what its
    tokens cost. Durations add up to the measured ones all the same. A coefficient that would be negative is taken out
    and the rest fitted again; one of a feature that no step has is 0, or with ``prior`` what the others are.
    """
    mean = float(seconds.mean())
    kinds = [kind for kind in (is_prompt, np.logical_not(is_prompt)) if kind.any()]
    # Columns in the size of what is expected: with a prior each coefficient is near 1, else each column's largest is.
    scale = np.maximum(np.abs(features).max(axis=0), 1e-30)
    if prior is not None:
        scale = np.full(features.shape[1], features.sum() / seconds.sum())
    features = features / scale
    values: Floats = np.ones(features.shape[1])
    expected, trust, noise = np.full(len(seconds), mean), np.ones(len(seconds)), 1.0
    if prior is not None:
        expected = _expected(features, values, mean)
    for _ in range(_ROUNDS):
        pull = 0.0 if prior is None else noise / prior.spread
        values = _weighted(features, seconds, trust / expected, pull)
        expected = _expected(features, values, mean)
        errors = np.abs(seconds / expected - 1)
        noise = max(_NORMAL * float(np.median(errors)), _LEAST_NOISE)
        for kind in kinds:
            trust[kind] = _trust(errors[kind])
    found: Floats = values / scale * (seconds.sum() / (features @ values).sum())
    return found


def _expected(features: Floats, values: Floats, mean: float) -> Floats:
    predicted: Floats = np.maximum(features @ values, mean * _LEAST_SHARE)
    return predicted


def _trust(errors: Floats) -> Floats:
    """Weights of steps with these errors, which are shares of what is predicted."""
    ordinary = max(_ORDINARY * float(np.median(errors)), _LEAST_ORDINARY)
    weights: Floats = np.sqrt(ordinary / np.maximum(errors, ordinary))
    return weights


def _weighted(features: Floats, seconds: Floats, weights: Floats, pull: float) -> Floats:
    """Coefficients, none negative, with the least sum of squared weighted errors; ``pull``: towards 1."""
    rows, wanted = features * weights[:, None], seconds * weights
    count = features.shape[1]
    kept = list(range(count)) if pull else np.flatnonzero(features.any(axis=0)).tolist()
    if pull:
        rows = np.vstack((rows, pull * np.eye(count)))
        wanted = np.concatenate((wanted, np.full(count, pull)))
    while True:
        found = np.linalg.lstsq(rows[:, kept], wanted, rcond=None)[0]
        if found.min() >= 0:
            break
        del kept[int(found.argmin())]
    values = np.zeros(count)
    values[kept] = found
    return values
