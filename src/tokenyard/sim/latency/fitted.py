"""A latency model fitted to measured steps: least squares with coefficients that cannot be negative.

Features of a step (:data:`FEATURES`):

    constant          1
    prefill_tokens    tokens of requests that compute more than one
    decodes           requests that compute one
    decode_context    tokens whose KV the decodes read
    prefill_pairs     (query, key) pairs of the prefills under a causal mask
    prefills          requests that compute more than one: each costs something whatever its length
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tokenyard.errors import ConfigError
from tokenyard.sim.latency.model import StepShape, StepWork, Transfer, TransferDirection, require_seconds

__all__ = ["FEATURES", "FittedLatency", "fit", "step_features"]

Floats = npt.NDArray[np.float64]

FEATURES = ("constant", "prefill_tokens", "decodes", "decode_context", "prefill_pairs", "prefills")


_ROUNDS = 12
"""Fits, each weighted by what the one before predicts."""
_ORDINARY = 1.5 * 1.4826
"""Errors of a normal distribution, in medians, that count in full: one and a half standard deviations."""
_LEAST_ORDINARY = 0.25
"""Of a step: errors that always do."""
_LEAST_SHARE = 1e-3
"""Of the mean step: no prediction counts as shorter, or it alone would be fitted."""


def step_features(shape: StepShape) -> tuple[float, ...]:
    """One row of :data:`FEATURES`."""
    work = StepWork.of(shape)
    return (
        1.0,
        work.prefill_tokens,
        work.num_decodes,
        work.decode_context,
        work.prefill_pairs,
        work.num_prefills,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedLatency:
    """Seconds per unit of each feature, none negative."""

    constant: float = 0.0
    prefill_tokens: float = 0.0
    decodes: float = 0.0
    decode_context: float = 0.0
    prefill_pairs: float = 0.0
    prefills: float = 0.0
    transfer: Transfer = field(default_factory=Transfer)
    host_seconds: float = 0.0
    """Part of ``constant`` that is the host's; step times alone do not tell it."""

    def __post_init__(self) -> None:
        for name in FEATURES:
            require_seconds(name, getattr(self, name))

    def step_seconds(self, shape: StepShape) -> float:
        work = StepWork.of(shape)
        return (
            self.constant
            + self.prefill_tokens * work.prefill_tokens
            + self.decodes * work.num_decodes
            + self.decode_context * work.decode_context
            + self.prefill_pairs * work.prefill_pairs
            + self.prefills * work.num_prefills
        )

    def transfer_seconds(self, num_bytes: int, direction: TransferDirection) -> float:
        return self.transfer.seconds(num_bytes, direction)


def fit(features: Floats, seconds: Floats) -> FittedLatency:
    """The model that fits measured steps best.

    ``features`` has shape ``[steps, 6]`` (:data:`FEATURES`), ``seconds`` ``[steps]``. Errors count as shares of what
    is predicted, so that short steps count as much as long ones. (As shares of what was measured, a step that took long
    by chance would count less than one that was quick by chance, and all predictions be too short.) Errors that are
    large beside the median one (of the steps with a prefill, or of the others) count in proportion instead of squared
    (Huber): a step during which the machine did something else says nothing of what its tokens cost. Durations add up
    to the measured ones all the same. A coefficient that would be negative is taken out and the rest fitted again; one
    of a feature that no step has is 0.
    Raises ConfigError if there are fewer steps than features or a value cannot be.
    """
    _check(features, seconds)
    mean = float(seconds.mean())
    has_prefill = features[:, FEATURES.index("prefills")] > 0
    kinds = [kind for kind in (has_prefill, np.logical_not(has_prefill)) if kind.any()]
    expected, values, trust = np.full(len(seconds), mean), np.zeros(len(FEATURES)), np.ones(len(seconds))
    for _ in range(_ROUNDS):
        values = _weighted(features, seconds, trust / expected)
        expected = np.maximum(features @ values, mean * _LEAST_SHARE)
        errors = np.abs(seconds / expected - 1)
        for kind in kinds:
            trust[kind] = _trust(errors[kind])
    values *= seconds.sum() / (features @ values).sum()
    constant, prefill_tokens, decodes, decode_context, prefill_pairs, prefills = values.tolist()
    return FittedLatency(
        constant=constant,
        prefill_tokens=prefill_tokens,
        decodes=decodes,
        decode_context=decode_context,
        prefill_pairs=prefill_pairs,
        prefills=prefills,
    )


def _trust(errors: Floats) -> Floats:
    """Weights of steps with these errors, which are shares of what is predicted."""
    ordinary = max(_ORDINARY * float(np.median(errors)), _LEAST_ORDINARY)
    return np.sqrt(ordinary / np.maximum(errors, ordinary))


def _weighted(features: Floats, seconds: Floats, weights: Floats) -> Floats:
    """Coefficients, none negative, with the least sum of squared weighted errors."""
    scale = np.maximum(np.abs(features).max(axis=0), 1e-30)
    rows = features / scale * weights[:, None]
    kept = np.flatnonzero(features.any(axis=0)).tolist()
    while True:
        found = np.linalg.lstsq(rows[:, kept], seconds * weights, rcond=None)[0]
        if found.min() >= 0:
            break
        del kept[int(found.argmin())]
    values = np.zeros(len(FEATURES))
    values[kept] = found / scale[kept]
    return values


def _check(features: Floats, seconds: Floats) -> None:
    if features.ndim != 2 or features.shape[1] != len(FEATURES) or seconds.shape != features.shape[:1]:
        raise ConfigError("features", features.shape, f"give one row of {len(FEATURES)} numbers per step")
    if len(seconds) < len(FEATURES):
        raise ConfigError("seconds", len(seconds), f"give at least {len(FEATURES)} steps to fit")
    if not np.isfinite(features).all() or not (np.isfinite(seconds) & (seconds > 0)).all():
        raise ConfigError("seconds", seconds[:4].tolist(), "give finite features, and durations above 0")
