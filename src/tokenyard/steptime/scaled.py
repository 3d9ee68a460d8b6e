"""Step times of another model times two factors: of what decodes take, and of what prompts add to a step."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from tokenyard.errors import ConfigError
from tokenyard.steptime.calibrated import CalibratedLatency
from tokenyard.steptime.front_end import FrontEndTime
from tokenyard.steptime.known_error import KnownError, SentLoad
from tokenyard.steptime.model import (
    LatencyModel,
    StepShape,
    TransferDirection,
    host_seconds,
    ranks_seconds,
    step_seconds,
    transfer_seconds,
)

_LEAST, _MOST = 1e-3, 1e3


class StepTimeFactors(msgspec.Struct, frozen=True):
    """What step times are multiplied by."""

    decode: float
    """Factor of what decodes take; what the host does beside the GPU stays as it is."""
    prefill: float
    """Factor of the time that prompts add to a step."""

    def __str__(self) -> str:
        return f"decodes x {self.decode:.4g}, prompts x {self.prefill:.4g}"


def read_factors(text: str) -> StepTimeFactors:
    """``"1.2,0.9"``, or one number for both. Raises ConfigError naming ``step_time_factors``."""
    fix = f"give one or two numbers from {_LEAST:g} to {_MOST:g}, of decodes and of prompts: 1.2,0.9"
    try:
        decode, prefill = ([float(part) for part in text.split(",")] * 2)[:2] if text.count(",") < 2 else (0.0, 0.0)
    except ValueError:
        decode = prefill = 0.0
    if not (_LEAST <= decode <= _MOST and _LEAST <= prefill <= _MOST):
        raise ConfigError("step_time_factors", text, fix)
    return StepTimeFactors(decode, prefill)


class ScaledLatency:
    """``model`` with its step times scaled; transfers, and the host's part of a step, are the model's own."""

    def __init__(self, model: LatencyModel, factors: StepTimeFactors, *, decode_tokens: int = 1) -> None:
        """``decode_tokens``: most new tokens of a request that decodes: one, and its drafts."""
        self.model, self.factors, self._decode_tokens = model, factors, decode_tokens
        # A model that does not answer for many steps at once is not asked to, nor one that knows nothing of ranks.
        if hasattr(model, "decode_seconds"):
            self.decode_seconds = self._decode_seconds
        if hasattr(model, "ranks_seconds"):
            self.ranks_seconds = self._ranks_seconds

    def __repr__(self) -> str:
        return f"<ScaledLatency: {self.model!r}, {self.factors}>"

    @property
    def host_seconds(self) -> float:
        return host_seconds(self.model)

    def step_seconds(self, shape: StepShape) -> float:
        """Seconds of one step: its decodes, and what its prompts add to them, each times its factor."""
        decoding = self._decoding(shape)
        alone = 0.0 if decoding is None else step_seconds(self.model, decoding)
        whole = alone if decoding is shape else step_seconds(self.model, shape)
        return self._scaled(whole, alone)

    def transfer_seconds(self, num_bytes: int, direction: TransferDirection) -> float:
        return transfer_seconds(self.model, num_bytes, direction)

    def _decode_seconds(self, num: int, context: int, steps: int) -> Sequence[float]:
        """Seconds of ``steps`` steps in which the same ``num`` requests decode, as the model says them at once."""
        model: CalibratedLatency = self.model  # type: ignore[assignment]  # or another that has the method
        return [self._scaled(each, each) for each in model.decode_seconds(num, context, steps)]

    def _ranks_seconds(self, shapes: Sequence[StepShape | None]) -> float:
        """Seconds of a step that ranks take together; those without a decode take part with a dummy batch."""
        decoding = [None if shape is None else self._decoding(shape) for shape in shapes]
        alone = ranks_seconds(self.model, decoding) if any(each is not None for each in decoding) else 0.0
        return self._scaled(ranks_seconds(self.model, shapes), alone)

    def _scaled(self, whole: float, alone: float) -> float:
        """A step of ``whole`` seconds whose decodes would take ``alone`` by themselves; 0: it has none."""
        host = min(host_seconds(self.model), whole)
        decode = max(min(alone, whole) - host, 0.0)
        return host + self.factors.decode * decode + self.factors.prefill * (whole - host - decode)

    def _decoding(self, shape: StepShape) -> StepShape | None:
        """The step without its prompts: itself where it has none, None where it has nothing else."""
        decodes = shape.num_new_tokens <= self._decode_tokens
        count = int(np.count_nonzero(decodes))
        if count == len(decodes):
            return shape
        new = shape.num_new_tokens[decodes]
        return StepShape(new, shape.num_computed[decodes], count, int(new.sum())) if count else None


def known_error_of(latency: LatencyModel, load: SentLoad | None = None) -> KnownError | None:
    """How well step times are known, scaled or not; None of a model that does not say.

    What scaled them was measured on one deployment under one load: how far off others are is not known better for it.
    """
    model = latency.model if isinstance(latency, ScaledLatency) else latency
    return model.known_error(load) if isinstance(model, CalibratedLatency) else None


def front_end_of(latency: LatencyModel) -> FrontEndTime | None:
    """What lies between clients and scheduler, whatever steps are scaled by; None of a model that does not say."""
    model = latency.model if isinstance(latency, ScaledLatency) else latency
    return model.front_end if isinstance(model, CalibratedLatency) else None


def error_in_words(latency: LatencyModel, load: SentLoad | None = None) -> str | None:
    """The same for the header of a report, with the factors; None of a model that does not say."""
    known = known_error_of(latency, load)
    if not isinstance(latency, ScaledLatency):
        return None if known is None else known.sentence
    before = "" if known is None else f"; before that {known.sentence}"
    return f"scaled, {latency.factors}{before}"
