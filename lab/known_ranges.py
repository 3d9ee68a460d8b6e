"""From predictions of points that a fit did not see: errors, ranges, and whether stated ranges hold what was measured.

A range is what nine measured values of ten lie within, as measured over predicted. What was left out is off as a whole,
besides the spread of its points, and how far is known from as many samples as there are folds: few folds make a wide
range. It is widened further until it holds nine points of ten of a fold that had no say in it.

That is what a gap looks like by itself. What a report states joins gaps, by figures that overlap; so what each kind
adds is scaled (:func:`calibrated`) until statements hold nine points of ten of what its folds left out, made for every
fold by :mod:`known_error` with the fold's points forgotten, by errors that do not know them either. How often that
holds is told of folds whose own points had no part in the scale.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from left_out import LeftOut
from step_time_fit import Target
from tokenyard.questions.accuracy.comparison import load_sent
from tokenyard.questions.accuracy.points import Point
from tokenyard.steptime.constants import FEWEST_POINTS, Constants, minor_version, model_key
from tokenyard.steptime.formula import generation
from tokenyard.steptime.known_error import LEFT_OUT, QUANTITIES, AskedDeployment, gaps_of, plain_kv_dtype, widths_of

__all__ = [
    "Held",
    "Stated",
    "calibrated",
    "deployments_of",
    "errors_of",
    "errors_of_models",
    "held",
    "measured_of",
    "predicted_of",
    "stated",
    "summary",
]

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Groups = npt.NDArray[np.str_]
Table = dict[str, Any]

COVERED = 0.9
"""Share of the points of groups that had no say in it which a range has to hold."""
LOADS = {"users": "users", "prompts": "input_tokens", "outputs": "output_tokens"}
"""Kind of a load that is left out -> the points' field."""
STUDENT = (6.314, 2.920, 2.353, 2.132)
"""Student's t, 95 % one-sided, of 1 to 4 degrees of freedom."""
MANY = 5
"""Folds whose own spread is taken as it is."""
_LEAST = 1.01
"""Least end of a range: one that is 1 could not be widened."""
ENOUGH_FOLDS = 5
"""Folds of a kind from which on they are taken together."""
KINDS = tuple(LEFT_OUT)
SCALES: tuple[float, ...] = tuple(np.arange(0.5, 2.5, 0.05).round(2).tolist())
"""What a gap's width may be scaled by: never to less than half, for distance counts."""


class Stated(NamedTuple):
    """What is stated of the judged points of one fold, and one quantity, without them: logarithms."""

    kind: str
    group: str
    quantity: str
    off: Floats
    """Measured over predicted."""
    base: Floats
    """The base's end on the side on which it is off."""
    added: tuple[dict[str, float], ...]
    """What each kind of gap adds there, squared."""

    def needed(self, kind: str, scales: Mapping[str, float]) -> Floats:
        """By what the width of ``kind`` has to be multiplied to hold each point that it is stated of, others as
        ``scales`` say.
        """
        squares = np.array(
            [[some.get(each, 0.0) * scales.get(each, 1.0) ** 2 for each in KINDS] for some in self.added]
        )
        if kind == "load":
            found: Floats = np.sqrt(np.maximum(self.off**2 - squares.sum(axis=1), 0.0)) / self.base
            return found
        own = np.array([some.get(kind, 0.0) for some in self.added])
        known = (self.base * scales["load"]) ** 2 + squares.sum(axis=1) - squares[:, KINDS.index(kind)]
        is_stated = own > 0
        wanted: Floats = np.sqrt(np.maximum(self.off**2 - known, 0.0)[is_stated] / own[is_stated])
        return wanted

    def inside(self, scales: Mapping[str, float]) -> Mask:
        """Which points lie within the range."""
        return abs(self.off) <= self._ends(scales) + 1e-9

    def _ends(self, scales: Mapping[str, float]) -> Floats:
        gaps = [sum(own * scales.get(each, 1.0) ** 2 for each, own in some.items()) for some in self.added]
        ends: Floats = np.sqrt((self.base * scales["load"]) ** 2 + np.array(gaps))
        return ends

    def width(self, scales: Mapping[str, float]) -> float:
        """High over low, the median, if the range were as wide on the other side."""
        return float(np.median(np.exp(2 * self._ends(scales))))


class Held(NamedTuple):
    """How one fold was judged: which points lay within a range that did not know them, and how wide that was."""

    kind: str
    group: str
    quantity: str
    inside: Mask
    width: float


def summary(ratios: Floats) -> Table:
    """Quantiles of the absolute error, from measured over predicted."""
    errors = abs(1 / ratios - 1)
    median, p90, p99 = (round(float(each), 4) for each in np.quantile(errors, (0.5, 0.9, 0.99)))
    return {"median": median, "p90": p90, "p99": p99, "n": len(ratios)}


def errors_of(points: Sequence[Point], left: Sequence[LeftOut], known: Mask | None = None) -> dict[str, Table]:
    """Quantity -> kind -> errors and range, of the points in ``known`` (of all)."""
    found: dict[str, Table] = {}
    for quantity in QUANTITIES:
        for kind in dict.fromkeys(each.fold.kind for each in left):
            own = _left_of(kind, quantity, points, left, known)
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
        for key in sorted(set(keys.tolist())):
            seen = (keys == key) if known is None else (keys == key) & known
            own = _left_of("load", quantity, points, left, seen)
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


def stated(points: Sequence[Point], left: Sequence[LeftOut], data: Mapping[str, Any]) -> Iterator[Stated]:
    """Every fold, and what is said when nothing of it is known."""
    for each in left:
        fold = each.fold
        rest = [point for point, is_out in zip(points, fold.out.tolist(), strict=True) if not is_out]
        others = [other for other in left if other.fold is not fold]
        gone = {point.gpu.name for point in points} - {point.gpu.name for point in rest}
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
        yield from _stated(points, each, forgot)


def _stated(points: Sequence[Point], left: LeftOut, constants: Constants) -> Iterator[Stated]:
    where = np.flatnonzero(left.fold.judged).tolist()
    asked = [_asked(points[i]) for i in where]
    gaps = [gaps_of(each, constants) for each in asked]
    for quantity in QUANTITIES:
        off = np.log(measured_of(points, quantity) / predicted_of(points, left.target, quantity))[where]
        base, added = [], []
        for each, (missing, reference), log in zip(asked, gaps, off.tolist(), strict=True):
            widths, side = widths_of(each, constants, quantity, missing, reference), "low" if log < 0 else "high"
            base.append(getattr(widths.base, side))
            sums: dict[str, float] = {}
            for kind, own in widths.gaps:
                sums[kind] = sums.get(kind, 0.0) + getattr(own, side) ** 2
            added.append(sums)
        yield Stated(left.fold.kind, left.fold.group, quantity, off, np.array(base), tuple(added))


def _asked(point: Point) -> AskedDeployment:
    return AskedDeployment(
        spec=point.spec,
        gpu=point.gpu,
        parallel=point.parallel,
        kv_cache_dtype=point.recipe.kv_cache_dtype,
        version=point.version or None,
        load=load_sent(point),
    )


def calibrated(found: Sequence[Stated]) -> dict[str, float]:
    """Kind -> what its width is multiplied by, so that statements of one quantity hold nine points of ten of its folds.

    The base comes first; what others add beside a kind is taken as it is scaled by then, twice round.
    """
    kinds = [kind for kind in dict.fromkeys(each.kind for each in found) if kind != "load"]
    scales = {"load": 1.0}
    for kind in ("load", *kinds, *kinds):
        scales[kind] = _enough(kind, [each.needed(kind, scales) for each in found if each.kind == kind])
    return scales


def _enough(kind: str, needed: Sequence[Floats]) -> float:
    """The scale by which nine points of ten are held; of few folds, nine of ten of each, for they say little of the
    next, unless they are drawn (loads).
    """
    pools = [each for each in needed if len(each)]
    if pools and (kind == "load" or len(needed) >= ENOUGH_FOLDS):
        pools = [np.concatenate(pools)]
    enough = max((float(np.quantile(each, COVERED, method="higher")) for each in pools), default=1.0)
    return min((each for each in SCALES if each >= enough), default=SCALES[-1])


def held(found: Sequence[Stated], scales: Mapping[str, float]) -> Iterator[Held]:
    """Every fold of one quantity, judged by what the other folds of its kind scale that kind by."""
    needed = [each.needed(each.kind, scales) for each in found]
    for one in found:
        others = [own for own, each in zip(needed, found, strict=True) if each.kind == one.kind and each is not one]
        apart = {**scales, one.kind: _enough(one.kind, others)} if others else scales
        yield Held(one.kind, one.group, one.quantity, one.inside(apart), one.width(apart))


def measured_of(points: Sequence[Point], quantity: str) -> Floats:
    """What was measured, in seconds."""
    found = Target(np.array([each.ttft for each in points]), np.array([each.tpot for each in points]))
    return predicted_of(points, found, quantity)


def predicted_of(points: Sequence[Point], target: Target, quantity: str) -> Floats:
    """The same of predictions; a whole answer is its first token and those behind it."""
    if quantity != "e2e":
        times: Floats = getattr(target, quantity)
        return times
    both = zip(points, target.ttft.tolist(), target.tpot.tolist(), strict=True)
    return np.array([point.whole_answer(ttft, tpot) for point, ttft, tpot in both])


def _left_of(kind: str, quantity: str, points: Sequence[Point], left: Sequence[LeftOut], known: Mask | None) -> _Left:
    """What is left of the judged points of one kind's folds."""
    measured = measured_of(points, quantity)
    ratios: list[Floats] = [np.zeros(0)]
    folds: list[str] = []
    for fold, target, _ in left:
        if fold.kind == kind:
            where = fold.judged if known is None else fold.judged & known
            ratios.append((measured / predicted_of(points, target, quantity))[where])
            folds += [fold.group] * int(where.sum())
    return _Left(np.concatenate(ratios), np.array(folds, dtype=np.str_))


def _versions_apart(points: Sequence[Point], left: Sequence[LeftOut]) -> float:
    """Minor versions from what was left out to the nearest that stayed, the mean over points of releases."""
    apart: list[int] = []
    for fold, _, _ in left:
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
    for fold, _, _ in left:
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
