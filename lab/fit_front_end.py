"""Fit what lies between clients and scheduler, all else held, to replays as ``tokenyard run`` makes them.

    python lab/fit_front_end.py POINTS.csv.gz [--every 4] [--passes 2] [--write]

``fit_latency.py`` fits every constant at once, by schedules that know no times: there a request comes at the end of a
step, and nothing is decided ahead. In a replay it comes while a step runs, and behind async scheduling it waits for one
more. So what that fit says of the front end holds both waits, which a replay has by itself; this one takes them out.
Priors and scatters are those of ``fit_latency.py``. One row of so many is fitted, the next one judged: errors of those,
as ``tokenyard accuracy`` and ``run`` print them, are kept as ``printed``; the front end has not seen these rows, all
other constants have. Without passes they are judged alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fit_latency import PRIORS, TARGET, written
from step_time_fit import TTFT_SCATTER
from tokenyard.questions.accuracy.comparison import Prediction, predict
from tokenyard.questions.accuracy.points import Point, read_points
from tokenyard.steptime.constants import Constants, model_key, shipped_constants
from tokenyard.steptime.formula import generation

Floats = npt.NDArray[np.float64]

NAMES = ("request", "request_token")
_DEGREES, _ROUNDS = 4.0, 60


def main() -> None:
    """Fit, judge, print; write with ``--write``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("points", type=Path)
    parser.add_argument("--every", type=int, default=4, help="fit one row of so many")
    parser.add_argument(
        "--passes", type=int, default=2, help="replays of the rows: when requests come changes a little"
    )
    parser.add_argument("--write", action="store_true", help=f"write {TARGET.name}")
    args = parser.parse_args()
    points, _ = read_points(args.points)
    fitted, judged = points[:: args.every], points[1 :: args.every]
    data: dict[str, Any] = dict(shipped_constants().data)
    for _ in range(args.passes):
        found = list(predict(fitted, constants=Constants(data)))
        print(_line("fitted, so far", found), flush=True)
        data = _with(data, _fit(fitted, found, Constants(data)))
    found = list(predict(judged, constants=Constants(data)))
    print(_line("judged", found), flush=True)
    data["printed"] = {name: _errors(name, found) for name in ("tpot", "ttft")}
    for name in NAMES:
        own = ", ".join(f"{key} {factors[name]:.2f}" for key, factors in data["models"].items())
        print(f"{name}: {data['common'][name]:.4g}; {own}")
    if args.write:
        TARGET.write_text(written(data))


def model_of(point: Point) -> str:
    """The owner of a model's factors."""
    return f"{model_key(point.spec)}/{generation(point.gpu)}"


def _fit(points: Sequence[Point], found: Sequence[Prediction], constants: Constants) -> Mapping[tuple[str, str], float]:
    """(Owner, constant) -> value or factor; the owner "" has the common ones."""
    owners = sorted({model_of(point) for point in points})
    place = {key: i for i, key in enumerate((owner, name) for owner in ("", *owners) for name in NAMES)}
    mean = np.array([np.log(PRIORS.common[name][0]) if not owner else 0.0 for owner, name in place])
    scatter = np.array([PRIORS.model[name] if owner else PRIORS.common[name][1] for owner, name in place])
    tokens = np.array([point.input_tokens * (1 + point.recipe.shortest) / 2 for point in points])
    values = [constants.of(point.spec, point.gpu, point.version or None) for point in points]
    now = np.array([[each[name] for name in NAMES] for each in values]) * np.stack((np.ones(len(points)), tokens), 1)
    engine = np.array([each.ttft for each in found]) - now.sum(axis=1)
    measured = np.array([point.ttft for point in points])
    # What a version's factor makes of a constant stays as it is.
    factors = constants.data["models"]
    own = np.array(
        [
            [constants.data["common"][name] * factors[model_of(point)].get(name, 1.0) for name in NAMES]
            for point in points
        ]
    )
    units = now / own
    where = np.array([[place[model_of(point), name] for name in NAMES] for point in points])
    logs = np.where(mean == 0, 0.0, mean)
    for _ in range(_ROUNDS):
        parts = units * np.exp(logs[: len(NAMES)] + logs[where])
        whole = engine + parts.sum(axis=1)
        off = np.log(whole / measured) / TTFT_SCATTER
        slopes = np.zeros((len(points), len(logs)))
        for i in range(len(NAMES)):
            slope = parts[:, i] / whole / TTFT_SCATTER
            slopes[:, i] += slope
            np.add.at(slopes, (np.arange(len(points)), where[:, i]), slope)
        weights = 1 / (1 + off**2 / _DEGREES)
        bend = slopes.T @ (slopes * weights[:, None]) + np.diag(scatter**-2)
        down = slopes.T @ (weights * off) + (logs - mean) / scatter**2
        logs = logs - 0.5 * np.linalg.solve(bend, down)
    return dict(zip(place, np.exp(logs).tolist(), strict=True))


def _with(data: Mapping[str, Any], values: Mapping[tuple[str, str], float]) -> dict[str, Any]:
    """The constants with these."""
    common, models = dict(data["common"]), {key: dict(own) for key, own in data["models"].items()}
    for (owner, name), value in values.items():
        (models[owner] if owner else common)[name] = float(f"{value:.4g}")
    return {**data, "common": common, "models": models}


def _errors(name: str, found: Sequence[Prediction]) -> dict[str, float]:
    """Quantiles of the absolute error of a quantity, the median error, and the share in the range stated of it."""
    measured = np.array([getattr(each.point, name) for each in found])
    errors = np.array([getattr(each, name) for each in found]) / measured - 1
    low, high = np.array([getattr(each, f"{name}_range") for each in found]).T
    shares = np.quantile(abs(errors), (0.5, 0.9, 0.99)).tolist()
    told = dict(zip(("median", "p90", "p99"), shares, strict=True))
    told |= {"bias": float(np.median(errors)), "held": float(((low <= measured) & (measured <= high)).mean())}
    return {key: round(value, 4) for key, value in told.items()} | {"n": len(found)}


def _line(what: str, found: Sequence[Prediction]) -> str:
    parts = []
    for name in ("tpot", "ttft"):
        own = _errors(name, found)
        said = f"p50 {own['median']:.1%} p90 {own['p90']:.1%} bias {own['bias']:+.1%} in range {own['held']:.0%}"
        parts.append(f"{name.upper()} {said}")
    return f"{what}: {len(found)} points, {'; '.join(parts)}"


if __name__ == "__main__":
    main()
