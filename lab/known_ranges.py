"""From predictions of points that a fit did not see: errors, ranges, and whether stated ranges hold what was measured.

A range is what nine measured values of ten lie within, as measured over predicted. What was left out is off as a whole,
besides the spread of its points, and how far is known from as many samples as there are folds: few folds make a wide
range. It is widened further until it holds nine points of ten of a fold that had no say in it. The check goes all the
way: for every fold, what :func:`known_error` says with the fold's points forgotten, by errors that do not know them
either.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from left_out import LeftOut
from tokenyard.questions.accuracy.comparison import load_sent
from tokenyard.questions.accuracy.points import Point
from tokenyard.steptime.constants import FEWEST_POINTS, Constants, minor_version, model_key
from tokenyard.steptime.formula import generation
from tokenyard.steptime.known_error import AskedDeployment, known_error, plain_kv_dtype

__all__ = ["Held", "deployments_of", "errors_of", "errors_of_models", "held", "summary"]

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Groups = npt.NDArray[np.str_]
Table = dict[str, Any]

COVERED = 0.9
"""Share of the points of groups that had no say in it which a range has to hold."""
QUANTITIES = ("tpot", "ttft")
LOADS = {"users": "users", "prompts": "input_tokens", "outputs": "output_tokens"}
"""Kind of a load that is left out -> the points' field."""
STUDENT = (6.314, 2.920, 2.353, 2.132)
"""Student's t, 95 % one-sided, of 1 to 4 degrees of freedom."""
MANY = 5
"""Folds whose own spread is taken as it is."""
_LEAST = 1.01
"""Least end of a range: one that is 1 could not be widened."""


class Held(NamedTuple):
    """What one fold says: which of the judged points lay within the range that was stated without them."""

    kind: str
    group: str
    inside: dict[str, Mask]
    """By quantity."""
    width: dict[str, float]
    """High over low of the stated ranges, the median."""


def summary(ratios: Floats) -> Table:
    """Quantiles of the absolute error, from measured over predicted."""
    errors = abs(1 / ratios - 1)
    median, p90, p99 = (round(float(each), 4) for each in np.quantile(errors, (0.5, 0.9, 0.99)))
    return {"median": median, "p90": p90, "p99": p99, "n": len(ratios)}


def errors_of(points: Sequence[Point], left: Sequence[LeftOut], known: Mask | None = None) -> dict[str, Table]:
    """Quantity -> kind -> errors and range, of the points in ``known`` (of all)."""
    found: dict[str, Table] = {}
    for quantity in QUANTITIES:
        measured = np.array([getattr(point, quantity) for point in points])
        for kind in dict.fromkeys(each.fold.kind for each in left):
            own = _left_of(kind, quantity, measured, left, known)
            if len(own.ratios):
                found.setdefault(quantity, {})[kind] = summary(own.ratios) | _range(own)
    apart = {"version": _versions_apart(points, left)} | {kind: _loads_apart(kind, points, left) for kind in LOADS}
    for each in found.values():
        for kind, mean in apart.items():
            if kind in each:
                each[kind]["apart"] = round(mean, 2)
    return found


def errors_of_models(points: Sequence[Point], left: Sequence[LeftOut], known: Mask | None = None) -> dict[str, Table]:
    """Model -> quantity -> errors of its loads that were left out; of models with points enough."""
    found: dict[str, Table] = {}
    keys = np.array([_key(point) for point in points])
    for quantity in QUANTITIES:
        measured = np.array([getattr(point, quantity) for point in points])
        for key in sorted(set(keys.tolist())):
            seen = (keys == key) if known is None else (keys == key) & known
            own = _left_of("load", quantity, measured, left, seen)
            if len(own.ratios) >= FEWEST_POINTS:
                one = np.full(len(own.ratios), key)
                found.setdefault(key, {})[quantity] = summary(own.ratios) | _range(_Left(own.ratios, one))
    return found


def deployments_of(points: Sequence[Point]) -> list[Table]:
    """What was measured, for ``constants.json``."""
    found: dict[tuple[Any, ...], list[Point]] = {}
    for point in points:
        sizes = point.parallel
        layout = (sizes.tensor, sizes.data, sizes.pipeline, sizes.expert)
        kv_dtype = plain_kv_dtype(point.recipe.kv_cache_dtype, point.spec)
        place = _key(point), point.model, point.precision, point.gpu.name, layout, kv_dtype
        found.setdefault(place, []).append(point)

    def span(values: list[int]) -> list[int]:
        return [min(values), max(values)]

    return [
        {
            **dict(zip(("key", "model", "precision", "gpu", "layout", "kv_dtype"), place, strict=True)),
            "versions": sorted({each.version for each in some}),
            "points": len(some),
            "users": span([each.users for each in some]),
            "input_tokens": span([each.input_tokens for each in some]),
            "output_tokens": span([each.output_tokens for each in some]),
        }
        for place, some in sorted(found.items(), key=lambda each: str(each[0]))
    ]


def held(points: Sequence[Point], left: Sequence[LeftOut], data: Mapping[str, Any]) -> Iterator[Held]:
    """Every fold, judged by what is said when nothing of it is known."""
    for each in left:
        fold = each.fold
        rest = [point for point, is_out in zip(points, fold.out.tolist(), strict=True) if not is_out]
        others = [other for other in left if other.fold is not fold]
        gpus = {point.gpu.name for point in rest}
        gone = {point.gpu.name for point in points} - gpus
        shipped = data["errors"]
        fresh = errors_of(points, others, ~fold.out)
        forgot = Constants(
            {
                **data,
                "errors": {quantity: {**shipped[quantity], **fresh[quantity]} for quantity in QUANTITIES},
                "errors_of_models": errors_of_models(points, others, ~fold.out),
                "deployments": deployments_of(rest),
                "gpus": {name: own for name, own in data["gpus"].items() if name not in gone},
            }
        )
        yield _held(points, each, forgot)


def _held(points: Sequence[Point], left: LeftOut, constants: Constants) -> Held:
    where = np.flatnonzero(left.fold.judged)
    inside: dict[str, list[bool]] = {quantity: [] for quantity in QUANTITIES}
    widths: dict[str, list[float]] = {quantity: [] for quantity in QUANTITIES}
    for i in where.tolist():
        point = points[i]
        asked = AskedDeployment(
            spec=point.spec,
            gpu=point.gpu,
            parallel=point.parallel,
            kv_cache_dtype=point.recipe.kv_cache_dtype,
            version=point.version or None,
            load=load_sent(point),
        )
        known = known_error(asked, constants)
        for quantity in QUANTITIES:
            spread = getattr(known, quantity)
            low, high = spread.around(float(getattr(left.target, quantity)[i]))
            inside[quantity].append(low <= getattr(point, quantity) <= high)
            widths[quantity].append(spread.high / spread.low)
    return Held(
        left.fold.kind,
        left.fold.group,
        {quantity: np.array(each) for quantity, each in inside.items()},
        {quantity: float(np.median(each)) for quantity, each in widths.items()},
    )


def _left_of(kind: str, quantity: str, measured: Floats, left: Sequence[LeftOut], known: Mask | None) -> _Left:
    """What is left of the judged points of one kind's folds."""
    ratios: list[Floats] = [np.zeros(0)]
    folds: list[str] = []
    for fold, target in left:
        if fold.kind == kind:
            where = fold.judged if known is None else fold.judged & known
            ratios.append((measured / getattr(target, quantity))[where])
            folds += [fold.group] * int(where.sum())
    return _Left(np.concatenate(ratios), np.array(folds, dtype=np.str_))


def _versions_apart(points: Sequence[Point], left: Sequence[LeftOut]) -> float:
    """Minor versions from what was left out to the nearest that stayed, the mean over points of releases."""
    apart: list[int] = []
    for fold, _ in left:
        if fold.kind != "version":
            continue
        out = [point for point, is_out in zip(points, fold.out.tolist(), strict=True) if is_out]
        stayed = {
            number
            for point, is_out in zip(points, fold.out.tolist(), strict=True)
            if not is_out and _fitted_alike(point, out[0]) and (number := minor_version(point.version)) is not None
        }
        number = minor_version(out[0].version)
        if number is not None and stayed:
            apart += [min(abs(number - each) for each in stayed)] * len(out)
    return float(np.mean(apart)) if apart else 1.0


def _loads_apart(kind: str, points: Sequence[Point], left: Sequence[LeftOut]) -> float:
    """Doublings from what was left out to the nearest that stayed, the mean over points."""
    sizes = np.array([getattr(point, LOADS[kind]) for point in points], np.float64)
    apart: list[float] = []
    for fold, _ in left:
        if fold.kind == kind:
            stayed = sizes[~fold.out]
            beyond = np.maximum(sizes[fold.judged] / stayed.max(), stayed.min() / sizes[fold.judged])
            apart += np.log2(beyond).tolist()
    return float(np.mean(apart)) if apart else 1.0


def _fitted_alike(one: Point, other: Point) -> bool:
    """Whether both have the factors of one model on one generation of GPUs."""
    return (_key(one), generation(one.gpu)) == (_key(other), generation(other.gpu))


def _key(point: Point) -> str:
    """As :func:`model_key` has it, computed once for a model in a precision."""
    name = point.model, point.precision
    if name not in _KEYS:
        _KEYS[name] = model_key(point.spec)
    return _KEYS[name]


_KEYS: dict[tuple[str, str], str] = {}


# ---- ranges


class _Left(NamedTuple):
    """Measured over predicted of points that fits did not see."""

    ratios: Floats
    folds: Groups
    """What was left out."""

    def where(self, mask: Mask) -> _Left:
        return _Left(self.ratios[mask], self.folds[mask])


def _range(left: _Left) -> Table:
    """Between what nine points of ten lie, also of a fold that had no say in it: it is widened until they do.

    ``covered`` is their share, each fold judged by the range that the others make, widened alike.
    """
    low, high = _ends(left)
    if len(set(left.folds.tolist())) == 1:
        return {"low": round(low, 4), "high": round(high, 4)}
    inside, wider = _inside(left)
    covered = round(float(inside.mean()), 4)
    return {"low": round(low**wider, 4), "high": round(high**wider, 4), "covered": covered}


def _inside(left: _Left) -> tuple[Mask, float]:
    """Which points lie within the range that the other folds make, widened by an exponent until enough do."""
    ends = {fold: _ends(left.where(left.folds != fold), fewest=1) for fold in set(left.folds.tolist())}
    low = np.array([ends[fold][0] for fold in left.folds.tolist()])
    high = np.array([ends[fold][1] for fold in left.folds.tolist()])
    needed = np.log(left.ratios) / np.where(left.ratios < 1, np.log(low), np.log(high))
    enough = np.sort(needed)[math.ceil(COVERED * len(needed)) - 1]
    wider = max(1.0, math.ceil(float(enough) * 100) / 100)
    inside: Mask = needed <= wider
    return inside, wider


def _ends(left: _Left, *, fewest: int = 2) -> tuple[float, float]:
    """What 5 % lie below and 5 % above, a fold counting by the square root of its points, lest one decide. Of few folds
    no less than how far one lies off as a whole, joined with how its points spread; fewer than ``fewest`` say nothing
    of that (the loads of one model are one fold).
    """
    _, fold, counts = np.unique(left.folds, return_inverse=True, return_counts=True)
    logs = np.log(left.ratios)
    weights: Floats = (counts.astype(np.float64) ** -0.5)[fold]
    low, high = _tails(logs, weights)
    if fewest <= len(counts) < MANY:
        centres = np.bincount(fold, logs) / counts
        down, up = _tails(logs - centres[fold], weights)
        whole = _of_a_fold(centres)
        low, high = min(low, -math.hypot(down, whole)), max(high, math.hypot(up, whole))
    return min(math.exp(low), 1 / _LEAST), max(math.exp(high), _LEAST)


def _of_a_fold(centres: Floats) -> float:
    """How far, as a logarithm, the next fold may lie off as a whole, on either side: one of twenty lies beyond.

    Centres are drawn around 0, for predictions have no side: that those that are known lie on one says little of the
    next. Nor do few folds say how far it lies: it is within Student's t for one sample less than there are folds, since
    what they have in common (a generation of GPUs, a table) the next may not have.
    """
    one_more = math.sqrt(1 + 1 / len(centres))
    return float(np.sqrt(np.mean(centres**2))) * STUDENT[max(len(centres) - 2, 0)] * one_more


def _tails(logs: Floats, weights: Floats) -> tuple[float, float]:
    """What 5 % of the weight lies below, and above; each on its own side of 0."""
    if len(logs) == 1:
        return min(0.0, float(logs[0])), max(0.0, float(logs[0]))
    order = np.argsort(logs)
    sums = np.cumsum(weights[order])
    low, high = np.interp((0.05, 0.95), (sums - sums[0]) / (sums[-1] - sums[0]), logs[order])
    return min(0.0, float(low)), max(0.0, float(high))
