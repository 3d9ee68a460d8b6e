"""Measured step times carried over to another deployment, by the ratio that a model of both gives.

What a model gets wrong of both alike, the engine's own overhead for example, cancels out of the ratio.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import numpy as np

from tokenyard.sim.latency.model import LatencyModel, StepShape, TransferDirection
from tokenyard.sim.latency.pricing import host_seconds, step_seconds, transfer_seconds

__all__ = ["Ratios", "ScaledLatency", "StretchedLatency", "ratios"]

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
    """Over a fixed set of steps: decodes of several sizes and contexts, prompts, and both together."""
    found = [_ratio(step_seconds(before, shape), step_seconds(after, shape)) for shape in _priced()]
    host = _ratio(host_seconds(before), host_seconds(after))
    if host != 1.0:  # a step as long as before that leaves less of it to be hidden is another step
        found.append(host)
    return Ratios(min(found), max(found))


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
    """Of requests, the tokens that each computes, and those before them."""
    new = np.repeat([tokens for _, tokens, _ in parts], [count for count, _, _ in parts])
    computed = np.repeat([before for _, _, before in parts], [count for count, _, _ in parts])
    return StepShape(new, computed, len(new), int(new.sum()))


@dataclass(frozen=True, slots=True)
class ScaledLatency:
    """``measured`` of a step, times what ``after`` takes for it over what ``before`` does.

    What the host does before the GPU begins is carried over by itself: it is hidden where steps are prepared ahead.
    """

    measured: LatencyModel
    before: LatencyModel
    """The model of the deployment that was measured."""
    after: LatencyModel
    """The model of the one that is asked about."""

    @property
    def host_seconds(self) -> float:
        own, before, after = (host_seconds(each) for each in (self.measured, self.before, self.after))
        return own * after / before if own > 0 and before > 0 else after

    def step_seconds(self, shape: StepShape) -> float:
        device = step_seconds(self.measured, shape) - host_seconds(self.measured)
        before = step_seconds(self.before, shape) - host_seconds(self.before)
        after = step_seconds(self.after, shape) - host_seconds(self.after)
        return max(device, 0.0) * (max(after, 0.0) / before if before > 0 else 1.0) + self.host_seconds

    def transfer_seconds(self, num_bytes: int, direction: TransferDirection) -> float:
        return transfer_seconds(self.after, num_bytes, direction)


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
        return host_seconds(self.modelled) * min(self.prefill, self.decode)

    def step_seconds(self, shape: StepShape) -> float:
        only_decodes = shape.num_tokens == len(shape.num_new_tokens)
        return step_seconds(self.modelled, shape) * (self.decode if only_decodes else self.prefill)

    def transfer_seconds(self, num_bytes: int, direction: TransferDirection) -> float:
        return transfer_seconds(self.modelled, num_bytes, direction)
