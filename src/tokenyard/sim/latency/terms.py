"""Step times that a model of the deployment says, each of its terms as many times as long as measured steps were.

What a step does follows from the model: which experts it reads, which states, how much context, what the host launches.
How long this machine takes for each of it is what its steps tell. Where they do not tell two terms apart (a deployment
that never computed a long prompt), both are as far off as all of them are together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tokenyard.sim.latency.least_squares import Prior, coefficients
from tokenyard.sim.latency.measured import MeasuredStep
from tokenyard.sim.latency.model import HOST, StepShape, StepWork, TermedLatency, TransferDirection
from tokenyard.sim.latency.pricing import host_seconds, transfer_seconds

__all__ = ["ScaledTerms", "fit_terms", "predicted_by_terms"]

Floats = npt.NDArray[np.float64]

_PRIOR = Prior(spread=0.5)


class ScaledTerms:
    """``model``, every term of it times its own scale."""

    def __init__(self, model: TermedLatency, scales: Mapping[str, float]) -> None:
        self.model = model
        self.scales = dict(scales)
        """Term -> times as long as the model says."""

    @property
    def host_seconds(self) -> float:
        return host_seconds(self.model) * self.scales[HOST]

    def step_seconds(self, shape: StepShape) -> float:
        scales = self.scales
        return float(sum(scales[name] * each for name, each in self.model.terms(self.model.work_of(shape)).items()))

    def transfer_seconds(self, num_bytes: int, direction: TransferDirection) -> float:
        return transfer_seconds(self.model, num_bytes, direction)


def fit_terms(model: TermedLatency, steps: Sequence[MeasuredStep]) -> ScaledTerms | None:
    """The scales with which ``model`` says best how long ``steps`` took; None if it cannot say anything of them."""
    known = [step for step in steps if step.work is not None]
    if not known:
        return None
    names, features = _features(model, known)
    seconds = np.array([step.seconds for step in known])
    ahead = np.array([step.ahead for step in known])
    hides_more = ahead & (features.sum(axis=1) < host_seconds(model))  # the host is what such steps wait for
    told = ~hides_more if not hides_more.all() else np.ones(len(known), bool)
    features, seconds = features[told], seconds[told]
    if not np.isfinite(features).all() or features.sum() <= 0:
        return None
    is_prompt = np.array([step.work is not None and step.work.num_prefills > 0 for step in known])[told]
    values = coefficients(features, seconds, is_prompt=is_prompt, prior=_PRIOR)
    return ScaledTerms(model, dict(zip(names, values.tolist(), strict=True)))


def predicted_by_terms(fitted: ScaledTerms, steps: Sequence[MeasuredStep]) -> Floats:
    """What is fitted of measured steps, less what was hidden behind the steps before them."""
    names, features = _features(fitted.model, steps)
    seconds = features @ np.array([fitted.scales[name] for name in names])
    ahead = np.array([step.ahead for step in steps])
    waits: Floats = np.where(ahead, np.maximum(seconds, fitted.host_seconds), seconds)
    return waits


def _features(model: TermedLatency, steps: Sequence[MeasuredStep]) -> tuple[list[str], Floats]:
    """The terms of every step, shape ``[steps, terms]``, and their names."""
    work = StepWork(*np.array([step.work for step in steps], np.float64).T)
    terms = model.terms(work)
    columns = [np.broadcast_to(np.asarray(each, np.float64), len(steps)) for each in terms.values()]
    features = np.stack(columns, axis=1)
    ahead = np.array([step.ahead for step in steps])
    features[ahead, list(terms).index(HOST)] = 0.0
    return list(terms), features
