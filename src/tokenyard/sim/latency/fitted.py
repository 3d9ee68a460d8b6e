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
from tokenyard.sim.latency.least_squares import coefficients
from tokenyard.sim.latency.model import StepShape, StepWork, Transfer, TransferDirection, require_seconds

__all__ = ["FEATURES", "FittedLatency", "fit", "step_features"]

Floats = npt.NDArray[np.float64]

FEATURES = ("constant", "prefill_tokens", "decodes", "decode_context", "prefill_pairs", "prefills")


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

    ``features`` has shape ``[steps, 6]`` (:data:`FEATURES`), ``seconds`` ``[steps]``; how errors count is said at
    :func:`~tokenyard.sim.latency.least_squares.coefficients`. Raises ConfigError if there are fewer steps than features
    or a value cannot be.
    """
    _check(features, seconds)
    has_prefill = features[:, FEATURES.index("prefills")] > 0
    values = coefficients(features, seconds, is_prompt=has_prefill, prior=None)
    constant, prefill_tokens, decodes, decode_context, prefill_pairs, prefills = values.tolist()
    return FittedLatency(
        constant=constant,
        prefill_tokens=prefill_tokens,
        decodes=decodes,
        decode_context=decode_context,
        prefill_pairs=prefill_pairs,
        prefills=prefills,
    )


def _check(features: Floats, seconds: Floats) -> None:
    if features.ndim != 2 or features.shape[1] != len(FEATURES) or seconds.shape != features.shape[:1]:
        raise ConfigError("features", features.shape, f"give one row of {len(FEATURES)} numbers per step")
    if len(seconds) < len(FEATURES):
        raise ConfigError("seconds", len(seconds), f"give at least {len(FEATURES)} steps to fit")
    if not np.isfinite(features).all() or not (np.isfinite(seconds) & (seconds > 0)).all():
        raise ConfigError("seconds", seconds[:4].tolist(), "give finite features, and durations above 0")
