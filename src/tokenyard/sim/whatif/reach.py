"""How much of a replay lies in steps that are larger than any in the trace: nobody has measured them."""

from __future__ import annotations

from tokenyard.sim.latency.leaning import Reach
from tokenyard.sim.latency.model import LatencyModel, StepShape, StepWork, TransferDirection
from tokenyard.sim.latency.pricing import host_seconds, step_seconds, transfer_seconds

__all__ = ["WatchedLatency"]

_MUCH = 0.05
"""Of the time in steps: less is not worth a sentence."""


class WatchedLatency:
    """``model``, with an account of the time in steps that ``reach`` does not cover."""

    def __init__(self, model: LatencyModel, reach: Reach) -> None:
        self._model = model
        self._reach = reach
        self._most = Reach(0, 0, 0)
        self._seconds = self._beyond = 0.0

    @property
    def host_seconds(self) -> float:
        return host_seconds(self._model)

    def step_seconds(self, shape: StepShape) -> float:
        seconds = step_seconds(self._model, shape)
        work, most = StepWork.of(shape), self._most
        self._seconds += seconds
        if not self._reach.covers(work):
            self._beyond += seconds
            self._most = Reach(
                max(work.prefill_tokens, most.prefill_tokens),
                max(work.num_prefills, most.prefills),
                max(work.num_decodes, most.decodes),
            )
        return seconds

    def transfer_seconds(self, num_bytes: int, direction: TransferDirection) -> float:
        return transfer_seconds(self._model, num_bytes, direction)

    def doubt(self, leans_on: str | None) -> str | None:
        """What to say of these steps; None if they took next to no time.

        ``leans_on`` is the deployment whose modelled times they have; None: the fit goes on beyond its steps.
        """
        share = self._beyond / self._seconds if self._seconds else 0.0
        if share < _MUCH:
            return None
        larger = [
            f"up to {asked:,} {what} in one, the trace has at most {seen:,}"
            for what, asked, seen in self._reach.beyond(self._most)
        ]
        source = "extrapolated from smaller ones" if leans_on is None else f"those of the model of {leans_on}, scaled"
        return (
            f"{share:.0%} of the time is spent in steps larger than the trace has ({'; '.join(larger)}): their"
            f" durations are {source}"
        )
