"""Measured step times carried over to another deployment, by the ratio that a model of both gives.

What a model gets wrong of both alike, the engine's own overhead for example, cancels out of the ratio.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenyard.sim.latency.model import LatencyModel, StepShape, TransferDirection

__all__ = ["ScaledLatency", "StretchedLatency"]


@dataclass(frozen=True, slots=True)
class ScaledLatency:
    """``measured`` of a step, times what ``after`` takes for it over what ``before`` does."""

    measured: LatencyModel
    before: LatencyModel
    """The model of the deployment that was measured."""
    after: LatencyModel
    """The model of the one that is asked about."""

    @property
    def host_seconds(self) -> float:
        return self.after.host_seconds

    def step_seconds(self, shape: StepShape) -> float:
        before = self.before.step_seconds(shape)
        ratio = self.after.step_seconds(shape) / before if before > 0 else 1.0
        return self.measured.step_seconds(shape) * ratio

    def transfer_seconds(self, num_bytes: int, direction: TransferDirection) -> float:
        return self.after.transfer_seconds(num_bytes, direction)


@dataclass(frozen=True, slots=True)
class StretchedLatency:
    """``modelled`` step times, if all of them are as far off as is said; a step in which any prompt is computed is told
    from one that only decodes.
    """

    modelled: LatencyModel
    prefill: float
    """Times as long as modelled, where a prompt is computed."""
    decode: float
    """Times as long as modelled, elsewhere."""

    @property
    def host_seconds(self) -> float:
        return self.modelled.host_seconds * min(self.prefill, self.decode)

    def step_seconds(self, shape: StepShape) -> float:
        only_decodes = shape.num_tokens == len(shape.num_new_tokens)
        return self.modelled.step_seconds(shape) * (self.decode if only_decodes else self.prefill)

    def transfer_seconds(self, num_bytes: int, direction: TransferDirection) -> float:
        return self.modelled.transfer_seconds(num_bytes, direction)
