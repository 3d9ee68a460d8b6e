"""A latency model fitted to the step times that a trace recorded.

A step can be used if the trace tells how long it took and, of every request in it, how many tokens it computed and how
many were in the cache before. The latter stands in the per-request records; without them it is followed from
``prefix_cache_lookup`` on, until a request is preempted.

Duration of a step: what ``step_completed`` says; else the time to the next step's snapshot, if that step was already
running something (between idle steps an engine waits for work).
"""

from __future__ import annotations

from os import PathLike

import numpy as np

from tokenyard.errors import TraceError
from tokenyard.sim.latency.fitted import FEATURES, FittedLatency, fit, step_features
from tokenyard.sim.latency.model import StepShape
from tokenyard.trace.read.reader import TraceReader
from tokenyard.trace.read.step_joiner import Step

__all__ = ["fit_trace"]

_Sample = tuple[tuple[float, ...], float]


def fit_trace(path: str | PathLike[str]) -> FittedLatency:
    """Fit the five coefficients to a trace (a file of the pair, or its directory).

    Raises TraceError if there is no trace, or too few of its steps say what they computed and how long they took.
    """
    reader = TraceReader(str(path))
    contexts = _Contexts()
    samples: list[_Sample] = []
    unfinished: tuple[tuple[float, ...], float] | None = None
    for step in reader.steps():
        if unfinished is not None and step.snapshot is not None and step.snapshot.num_running:
            features, began = unfinished
            samples.append((features, (step.ts or began) - began))
        shape = contexts.shape_of(step)
        unfinished = None
        if shape is not None and step.completed is not None and step.completed.step_seconds is not None:
            samples.append((step_features(shape), step.completed.step_seconds))
        elif shape is not None and step.ts is not None and step.completed is None:
            unfinished = (step_features(shape), step.ts)
    usable = [(features, seconds) for features, seconds in samples if seconds > 0]
    if len(usable) < len(FEATURES):
        raise TraceError(
            f"{path}: only {len(usable)} steps tell what they computed and how long they took: a fit needs at least"
            f" {len(FEATURES)}, better hundreds of different sizes"
        )
    return fit(np.array([features for features, _ in usable]), np.array([seconds for _, seconds in usable]))


class _Contexts:
    """How many tokens every request has in the cache, as far as the trace has told.

    A trace does not tell which chunks were the last of their prompt; no feature of the fit depends on it.
    """

    def __init__(self) -> None:
        self._computed: dict[str, int] = {}

    def shape_of(self, step: Step) -> StepShape | None:
        """The step's shape, or None if the trace leaves part of it out or it computed nothing."""
        self._learn(step)
        decision = step.decision
        if decision is None or decision.num_scheduled_tokens is None:
            return None
        for request_id in decision.preempted_req_ids or ():
            self._computed.pop(request_id, None)
        scheduled = decision.num_scheduled_tokens
        before = [self._computed[request_id] for request_id in scheduled if request_id in self._computed]
        self._advance(scheduled, step)
        total = sum(scheduled.values())
        if not scheduled or len(before) < len(scheduled) or decision.total_scheduled_tokens not in (None, total):
            return None
        new = np.fromiter(scheduled.values(), np.int64, len(scheduled))
        return StepShape(new, np.array(before, np.int64), len(scheduled), total)

    def _learn(self, step: Step) -> None:
        """What the step's records say outright."""
        for lookup in step.lookups:
            if lookup.req_id is not None and lookup.total_hit_tokens is not None:
                self._computed[lookup.req_id] = lookup.total_hit_tokens
        for request in step.requests:
            if request.req_id is not None and request.queue == "running" and request.num_computed_tokens is not None:
                self._computed[request.req_id] = request.num_computed_tokens

    def _advance(self, scheduled: dict[str, int], step: Step) -> None:
        """The step's tokens are in the cache now; who finished with it is forgotten."""
        for request_id, tokens in scheduled.items():
            if request_id in self._computed:
                self._computed[request_id] += tokens
        for finished in step.finished:
            self._computed.pop(finished.req_id or "", None)
