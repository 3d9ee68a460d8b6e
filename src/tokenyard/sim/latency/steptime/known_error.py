"""How well a deployment's step times are known: what was measured like it, and how far predictions lay off there.

familiarity        error measured by
measured           leaving out a fifth of the points at a time: the model was measured on this GPU
other_gpu          leaving out one GPU at a time: the model was measured, on another GPU
other_model        leaving out one model at a time: the GPU was measured, with other models
unknown            both of the two, added as independent errors
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from tokenyard.kv.sizing.gpus import GPU
from tokenyard.models.spec import ModelSpec
from tokenyard.sim.latency.steptime.constants import Constants, shipped_constants

__all__ = ["Familiarity", "KnownError", "Spread", "known_error"]


class Familiarity(StrEnum):
    """What was measured of a deployment's kind."""

    MEASURED = "measured"
    OTHER_GPU = "other_gpu"
    OTHER_MODEL = "other_model"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Spread:
    """How far measured values lay from predictions."""

    median: float
    """Of the absolute relative error."""
    low: float
    """Measured over predicted: 5 % of the points lay below."""
    high: float
    """Measured over predicted: 5 % of the points lay above."""

    def around(self, value: float) -> tuple[float, float]:
        """The range in which nine measured values of ten would lie."""
        return value * self.low, value * self.high


@dataclass(frozen=True, slots=True)
class KnownError:
    """What is known of a prediction."""

    familiarity: Familiarity
    tpot: Spread
    ttft: Spread
    sentence: str
    """For the header of a report."""


def known_error(spec: ModelSpec, gpu: GPU, constants: Constants | None = None) -> KnownError:
    """How well the step times of a model on a GPU are known."""
    constants = constants or shipped_constants()
    familiarity = _familiarity(spec, gpu, constants)
    measured = spec if familiarity is Familiarity.MEASURED else None
    tpot, ttft = (_spread(constants, quantity, familiarity, measured) for quantity in ("tpot", "ttft"))
    return KnownError(familiarity, tpot, ttft, _sentence(spec, gpu, familiarity, tpot, ttft))


def _familiarity(spec: ModelSpec, gpu: GPU, constants: Constants) -> Familiarity:
    if constants.measured_together(spec, gpu):
        return Familiarity.MEASURED
    if constants.measured_model(spec, gpu):
        return Familiarity.OTHER_GPU
    return Familiarity.OTHER_MODEL if constants.measured_gpu(gpu) else Familiarity.UNKNOWN


def _spread(constants: Constants, quantity: str, familiarity: Familiarity, measured: ModelSpec | None) -> Spread:
    if familiarity is not Familiarity.UNKNOWN:
        found = constants.error(quantity, familiarity, measured)
        return Spread(found["median"], found["low"], found["high"])
    parts = [constants.error(quantity, kind) for kind in (Familiarity.OTHER_GPU, Familiarity.OTHER_MODEL)]
    low, high = (math.hypot(*(math.log(part[end]) for part in parts)) for end in ("low", "high"))
    return Spread(math.hypot(*(part["median"] for part in parts)), math.exp(-low), math.exp(high))


def _sentence(spec: ModelSpec, gpu: GPU, familiarity: Familiarity, tpot: Spread, ttft: Spread) -> str:
    what = {
        Familiarity.MEASURED: f"{spec.name} was measured on {gpu.name}",
        Familiarity.OTHER_GPU: f"{spec.name} was measured, but not on {gpu.name}",
        Familiarity.OTHER_MODEL: f"{gpu.name} was measured, but not with {spec.name}",
        Familiarity.UNKNOWN: f"neither {spec.name} nor {gpu.name} was measured",
    }[familiarity]
    if familiarity is Familiarity.MEASURED:
        return f"{what}: median error {tpot.median:.0%} of TPOT, {ttft.median:.0%} of TTFT"
    return (
        f"{what}: take TPOT as a range, {tpot.low:.2f} to {tpot.high:.2f} times what is shown, and TTFT,"
        f" {ttft.low:.2f} to {ttft.high:.2f} times"
    )
