"""What lies between clients and scheduler, fitted to replays as ``tokenyard run`` makes them; all else is held.

``fit_latency.py`` fits every constant at once, by schedules that know no times: there a request comes at the end of a
step, and nothing is decided ahead. In a replay it comes while a step runs, and behind async scheduling it waits for one
more. So what that fit says of the front end holds both waits, which a replay has by itself; this takes them out. Priors
and scatters are the same. One row of so many is replayed.

What is printed is judged by the same rows, a fifth of the loads at a time: with the front end that the rows of the
other loads make, and by engines whose every constant was fitted without that fifth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from left_out import LeftOut
from step_time_fit import TTFT_SCATTER, Fit, Priors, Target
from tokenyard.questions.accuracy.comparison import load_sent, predict
from tokenyard.questions.accuracy.points import Point
from tokenyard.steptime.calibrated import CalibratedLatency
from tokenyard.steptime.constants import Constants, model_key
from tokenyard.steptime.formula import generation

__all__ = ["EVERY", "replayed", "with_front_end"]

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Values = Mapping[tuple[str, str], float]
"""(Owner, constant) -> value or factor; the owner "" has the common ones."""

EVERY = 8
"""One row of so many is replayed."""
NAMES = ("request", "request_token")
_DEGREES, _ROUNDS = 4.0, 60


def replayed(points: Sequence[Point], data: Mapping[str, Any]) -> Target:
    """TTFT and TPOT of every row as ``run`` prints them, without the front end."""
    found = list(predict(points, constants=Constants(data)))
    return Target(
        np.array([each.ttft for each in found]) - seconds(points, data), np.array([each.tpot for each in found])
    )


def with_front_end(
    fit: Fit, logs: Floats, left: Sequence[LeftOut], data: dict[str, Any], engine: Target, priors: Priors
) -> dict[str, Any]:
    """The constants with the front end that ``engine`` leaves room for, and errors of what is printed."""
    rows = np.arange(0, len(fit.points), EVERY)
    points = fit.points[::EVERY]
    all_of_them = np.ones(len(points), bool)
    whole = _with(data, _fit(points, engine.ttft, data, all_of_them, priors))
    ttft, tpot = np.zeros(len(points)), np.zeros(len(points))
    before, others = fit.predict(logs), fit.front_end(logs)
    for fold, target, own in left:
        if fold.kind != "load":
            continue
        out = fold.out[rows]
        apart = engine.ttft * ((target.ttft - fit.front_end(own)) / (before.ttft - others))[rows]
        forgot = _with(data, _fit(points, apart, data, ~out, priors))
        ttft[out] = (apart + seconds(points, forgot))[out]
        tpot[out] = (engine.tpot * (target.tpot / before.tpot)[rows])[out]
    return {**whole, "printed": _errors(points, Target(ttft, tpot), Constants(whole))}


def seconds(points: Sequence[Point], data: Mapping[str, Any]) -> Floats:
    """What the front end takes of every row."""
    found: Floats = _parts(points, data).sum(axis=1)
    return found


def _parts(points: Sequence[Point], data: Mapping[str, Any]) -> Floats:
    constants = Constants(data)
    values = [constants.of(point.spec, point.gpu, point.version or None) for point in points]
    tokens = np.array([point.input_tokens * (1 + point.recipe.shortest) / 2 for point in points])
    found: Floats = np.array([[each[name] for name in NAMES] for each in values]) * np.stack(
        (np.ones(len(points)), tokens), 1
    )
    return found


def _model_of(point: Point) -> str:
    """The owner of a model's factors."""
    return f"{model_key(point.spec)}/{generation(point.gpu)}"


def _fit(points: Sequence[Point], engine: Floats, data: Mapping[str, Any], keep: Mask, priors: Priors) -> Values:
    """By the rows in ``keep``; a model of which there are none has the common values."""
    owners = sorted({_model_of(point) for point in points})
    place = {key: i for i, key in enumerate((owner, name) for owner in ("", *owners) for name in NAMES)}
    mean = np.array([np.log(priors.common[name][0]) if not owner else 0.0 for owner, name in place])
    scatter = np.array([priors.model[name] if owner else priors.common[name][1] for owner, name in place])
    measured = np.array([point.ttft for point in points])
    # What a version's factor makes of a constant stays as it is.
    factors = data["models"]
    own = np.array(
        [[data["common"][name] * factors[_model_of(point)].get(name, 1.0) for name in NAMES] for point in points]
    )
    units = _parts(points, data) / own
    where = np.array([[place[_model_of(point), name] for name in NAMES] for point in points])
    logs = mean.copy()
    for _ in range(_ROUNDS):
        parts = units * np.exp(logs[: len(NAMES)] + logs[where])
        whole = engine + parts.sum(axis=1)
        off = np.log(whole / measured) / TTFT_SCATTER
        slopes = np.zeros((len(points), len(logs)))
        for i in range(len(NAMES)):
            slope = parts[:, i] / whole / TTFT_SCATTER
            slopes[:, i] += slope
            np.add.at(slopes, (np.arange(len(points)), where[:, i]), slope)
        weights = keep / (1 + off**2 / _DEGREES)
        bend = slopes.T @ (slopes * weights[:, None]) + np.diag(scatter**-2)
        down = slopes.T @ (weights * off) + (logs - mean) / scatter**2
        logs = logs - 0.5 * np.linalg.solve(bend, down)
    return dict(zip(place, np.exp(logs).tolist(), strict=True))


def _with(data: Mapping[str, Any], values: Values) -> dict[str, Any]:
    """The constants with these."""
    common, models = dict(data["common"]), {key: dict(own) for key, own in data["models"].items()}
    for (owner, name), value in values.items():
        (models[owner] if owner else common)[name] = float(f"{value:.4g}")
    return {**data, "common": common, "models": models}


def _errors(points: Sequence[Point], found: Target, constants: Constants) -> dict[str, dict[str, float]]:
    """Quantity -> quantiles of the absolute error, the median error, and the share in the range stated of it."""
    known = [
        CalibratedLatency(
            point.spec,
            point.gpu,
            parallel=point.parallel,
            kv_cache_dtype=point.recipe.kv_cache_dtype,
            version=point.version or None,
            constants=constants,
        ).known_error(load_sent(point))
        for point in points
    ]
    told = {}
    for name in ("tpot", "ttft"):
        measured = np.array([getattr(point, name) for point in points])
        errors = getattr(found, name) / measured - 1
        low, high = np.array([getattr(each, name).around(1.0) for each in known]).T * getattr(found, name)
        own = dict(zip(("median", "p90", "p99"), np.quantile(abs(errors), (0.5, 0.9, 0.99)).tolist(), strict=True))
        own |= {"bias": float(np.median(errors)), "held": float(((low <= measured) & (measured <= high)).mean())}
        told[name] = {key: round(value, 4) for key, value in own.items()} | {"n": len(points)}
    return told
