"""The fit behind ``fit_latency.py``: damped least squares on the logarithms of times, with priors.

    value of a constant   common x GPU's factor x model's factor x version's factor (their logarithms are fitted)
    residuals             log(predicted / measured) of mean TPOT and mean TTFT, over their expected scatter
                          log(predicted / tabulated) of single steps, for GPUs whose kernels were profiled
                          (logarithm - prior) / scatter of the prior, for every logarithm

A point's mean TTFT and TPOT are sums over the steps of its schedule, with weights that do not depend on step times; so
its steps are condensed into some thirty kinds, once. Large residuals count less (Student's t, four degrees of freedom).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tokenyard.models.gpus import GPU
from tokenyard.models.spec import ModelSpec
from tokenyard.questions.accuracy.comparison import Schedules, loop_of
from tokenyard.questions.accuracy.measured_run import Schedule
from tokenyard.questions.accuracy.points import Point
from tokenyard.steptime.calibrated import StepColumns, columns_of
from tokenyard.steptime.constants import GROUPS, bounded, model_key
from tokenyard.steptime.formula import Parallelism, StepFormula, WorkCounts, generation, work_counts

__all__ = ["Fit", "Priors", "Sheet", "Target"]

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Key = tuple[str, str]
"""The model of the factor ("" for the common constants), and its constant or group."""

TPOT_SCATTER, TTFT_SCATTER, STEP_SCATTER = 0.05, 0.12, 0.05
_KINDS = 30
_DEGREES = 4.0
_MODEL_DEGREES = 2.0
"""Likewise for factors of models: one whose kernels are unlike those of all others does not bend what is common."""
_NUDGE = 1e-3
_NUDGED = float(np.exp(_NUDGE))


@dataclass(frozen=True, kw_only=True)
class Priors:
    """What is expected before anything is measured: means and scatters of logarithms."""

    common: Mapping[str, tuple[float, float]]
    """Constant -> value, scatter of its logarithm."""
    gpu: Mapping[str, float]
    """Constant or group -> scatter of a GPU's factor."""
    profiled_gpu: Mapping[str, float]
    """The same for GPUs that only kernel timings tell of."""
    model: Mapping[str, float]
    version: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """Steps whose duration is tabulated, links between GPUs aside."""

    spec: ModelSpec
    gpu: GPU
    parallel: Parallelism
    work: Floats
    """Columns of StepWork, shape ``[steps, 1, 8]``."""
    seconds: Floats
    capture_size: int = 1 << 20


class Target(NamedTuple):
    """Predictions: TTFT and TPOT of every point, in seconds."""

    ttft: Floats
    tpot: Floats


@dataclass(kw_only=True)
class _Group:
    """Points of one deployment: they share constants."""

    owners: tuple[str, str, str]
    """GPU, model on its generation, version of that."""
    gpu: GPU
    parallel: Parallelism
    counted: WorkCounts
    capture_size: int
    piecewise: bool
    shows_host: bool
    """One step in flight: the host's part is shown."""
    indices: list[int] = field(default_factory=list)
    work: list[Floats] = field(default_factory=list)
    ttft: list[Floats] = field(default_factory=list)
    tpot: list[Floats] = field(default_factory=list)
    segments: list[int] = field(default_factory=list)
    lengths: list[float] = field(default_factory=list)

    all_work: StepColumns = field(init=False)
    tokens: Floats = field(init=False)
    weights: tuple[Floats, Floats] = field(init=False)
    starts: npt.NDArray[np.int64] = field(init=False)
    """Where each point's steps begin."""
    where: npt.NDArray[np.int64] = field(init=False)
    input_tokens: Floats = field(init=False)

    def close(self) -> None:
        """Lay the points' steps end to end."""
        self.all_work = columns_of(np.concatenate(self.work))
        self.tokens = self.all_work.num_tokens.sum(axis=1, keepdims=True)
        self.weights = np.concatenate(self.ttft), np.concatenate(self.tpot)
        self.starts = np.cumsum([0, *self.segments[:-1]])
        self.where = np.array(self.indices)
        self.input_tokens = np.array(self.lengths)


class Fit:
    """Points, steps and priors; :meth:`solve` finds the logarithms."""

    def __init__(self, points: Sequence[Point], sheets: Sequence[Sheet], priors: Priors) -> None:
        self.points = points
        self._sheets = sheets
        self._priors = priors
        self._place: dict[Key, int] = {}
        self._reach: dict[tuple[str, ...], tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]] = {}
        self._mean: list[float] = []
        self._scatter: list[float] = []
        for name, (value, scatter) in priors.common.items():
            self._add(("", name), np.log(value), scatter)
        self._groups = self._grouped()
        self._sheet_parts = [self._sheet_part(sheet) for sheet in sheets]
        for owner, scatters in self._owners():
            for name, scatter in scatters.items():
                self._add((owner, name), 0.0, scatter)
        self.mean, self.scatter = np.array(self._mean), np.array(self._scatter)
        self._is_model = np.array([owner.startswith("model ") for owner, _ in self._place])
        self._measured = np.log([p.ttft for p in points]), np.log([p.tpot for p in points])

    # ---- parts

    def _add(self, key: Key, mean: float, scatter: float) -> None:
        if key not in self._place:
            self._place[key] = len(self._mean)
            self._mean.append(mean)
            self._scatter.append(scatter)

    def _owners(self) -> list[tuple[str, Mapping[str, float]]]:
        found: dict[str, Mapping[str, float]] = {}
        for group in self._groups:
            gpu, model, version = group.owners
            found[gpu], found[model], found[version] = self._priors.gpu, self._priors.model, self._priors.version
        for sheet in self._sheets:
            found.setdefault(f"gpu {sheet.gpu.name}", self._priors.profiled_gpu)
        return list(found.items())

    def _grouped(self) -> list[_Group]:
        schedules, condensed = Schedules(), {}
        groups: dict[tuple[object, ...], _Group] = {}
        for i, point in enumerate(self.points):
            loop = loop_of(point)
            place = (loop, point.parallel.data)
            if place not in condensed:
                condensed[place] = condense(schedules.of(*place))
            model = f"{model_key(point.spec)}/{generation(point.gpu)}"
            owners = (f"gpu {point.gpu.name}", f"model {model}", f"version {model}/{point.version}")
            recipe = point.recipe
            key = (
                owners,
                point.parallel,
                recipe.kv_cache_dtype,
                recipe.capture_size,
                recipe.piecewise,
                recipe.async_scheduling,
            )
            if key not in groups:
                counted = work_counts(point.spec, point.parallel, recipe.kv_cache_dtype)
                groups[key] = _Group(
                    owners=owners,
                    gpu=point.gpu,
                    parallel=point.parallel,
                    counted=counted,
                    capture_size=recipe.capture_size,
                    piecewise=recipe.piecewise,
                    shows_host=not recipe.async_scheduling,
                )
            group, (work, ttft, tpot) = groups[key], condensed[place]
            group.indices.append(i)
            group.work.append(work)
            group.ttft.append(ttft)
            group.tpot.append(tpot)
            group.segments.append(len(work))
            group.lengths.append(point.input_tokens * (1 + recipe.shortest) / 2)
        for group in groups.values():
            group.close()
        return list(groups.values())

    def _sheet_part(self, sheet: Sheet) -> tuple[Sheet, WorkCounts, StepColumns]:
        return sheet, work_counts(sheet.spec, sheet.parallel), columns_of(sheet.work)

    # ---- predictions

    def constants(self, logs: Floats, owners: Sequence[str]) -> dict[str, float]:
        """Values of all constants for these owners of factors."""
        key = tuple(owners)
        if key not in self._reach:
            self._reach[key] = self._reach_of(key)
        names, places = self._reach[key]
        sums = np.exp(np.bincount(names, logs[places], len(self._priors.common)))
        return bounded(dict(zip(self._priors.common, sums.tolist(), strict=True)))

    def _reach_of(self, owners: Sequence[str]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Numbers of constants, and the logarithms that each is a sum of."""
        number = {name: i for i, name in enumerate(self._priors.common)}
        pairs = [
            (number[name], self._place[owner, group])
            for owner in ("", *owners)
            for group in (*GROUPS, *self._priors.common)
            if (owner, group) in self._place
            for name in GROUPS.get(group, (group,))
        ]
        return np.array(pairs).T[0], np.array(pairs).T[1]

    def predict(self, logs: Floats) -> Target:
        """The prediction for all points."""
        ttft, tpot = np.zeros(len(self.points)), np.zeros(len(self.points))
        for group in self._groups:
            ttft[group.where], tpot[group.where] = _times(self.constants(logs, group.owners), group)
        return Target(ttft, tpot)

    def front_end(self, logs: Floats) -> Floats:
        """The part of every point's TTFT that lies before and behind the engine."""
        seconds = np.zeros(len(self.points))
        for group in self._groups:
            values = self.constants(logs, group.owners)
            seconds[group.where] = values["request"] + values["request_token"] * group.input_tokens
        return seconds

    def _sheet_residuals(self, logs: Floats, part: tuple[Sheet, WorkCounts, StepColumns]) -> Floats:
        return _sheet_residuals(self.constants(logs, (f"gpu {part[0].gpu.name}",)), part)

    def sheet_errors(self, logs: Floats) -> list[tuple[str, Floats]]:
        """Per table of steps: its name, and predicted over tabulated less 1."""
        named = []
        for part in self._sheet_parts:
            scaled = self._sheet_residuals(logs, part) * np.sqrt(len(part[2].num_tokens) / 30) * STEP_SCATTER
            named.append((f"{part[0].spec.name} on {part[0].gpu.name}", np.exp(scaled) - 1))
        return named

    # ---- solving

    def _residuals(self, target: Target) -> Floats:
        ttft, tpot = self._measured
        return np.concatenate(
            ((np.log(target.ttft) - ttft) / TTFT_SCATTER, (np.log(target.tpot) - tpot) / TPOT_SCATTER)
        )

    def _places_of(self, name: str, owners: Sequence[str]) -> list[int]:
        """Logarithms that a constant's is a sum of."""
        names, places = self._reach[tuple(owners)]
        found: list[int] = places[names == list(self._priors.common).index(name)].tolist()
        return found

    def _slopes(self, logs: Floats, keep: Mask) -> tuple[Floats, Floats, Floats]:
        """Jacobian of the points' residuals, residuals of the sheets, and their Jacobian."""
        count = len(self.points)
        slopes = np.zeros((2 * count, len(logs)))
        for group in self._groups:
            if not keep[group.where].any():
                continue
            values = self.constants(logs, group.owners)
            before, *after = zip(*_times(_nudged(values), group), strict=True)
            for name, (ttft, tpot) in zip(values, after, strict=True):
                if (ttft == before[0]).all() and (tpot == before[1]).all():
                    continue
                for place in self._places_of(name, group.owners):
                    slopes[group.where, place] += np.log(ttft / before[0]) / _NUDGE / TTFT_SCATTER
                    slopes[count + group.where, place] += np.log(tpot / before[1]) / _NUDGE / TPOT_SCATTER
        extra, extra_slopes = [np.zeros(0)], [np.zeros((0, len(logs)))]
        for part in self._sheet_parts:
            owners = (f"gpu {part[0].gpu.name}",)
            values = self.constants(logs, owners)
            here, *nudged = _sheet_residuals(_nudged(values), part)
            rows = np.zeros((len(here), len(logs)))
            for name, moved in zip(values, nudged, strict=True):
                for place in self._places_of(name, owners):
                    rows[:, place] += (moved - here) / _NUDGE
            extra.append(here)
            extra_slopes.append(rows)
        return slopes, np.concatenate(extra), np.concatenate(extra_slopes)

    def _cost(self, logs: Floats, keep: Mask) -> tuple[float, Floats]:
        residuals = self._residuals(self.predict(logs))
        both = np.concatenate((keep, keep))
        robust = _DEGREES * np.log1p(residuals[both] ** 2 / _DEGREES)
        sheets = sum(float((self._sheet_residuals(logs, part) ** 2).sum()) for part in self._sheet_parts)
        off = ((logs - self.mean) / self.scatter) ** 2
        priors = np.where(self._is_model, _MODEL_DEGREES * np.log1p(off / _MODEL_DEGREES), off)
        return float(robust.sum()) + sheets + float(priors.sum()), residuals

    def _held(self, logs: Floats) -> Floats:
        """How strongly its prior holds each logarithm: a model's the less, the further off it is."""
        off = ((logs - self.mean) / self.scatter) ** 2
        held: Floats = self.scatter**-2 / np.where(self._is_model, 1 + off / _MODEL_DEGREES, 1.0)
        return held

    def solve(self, keep: Mask, *, start: Floats | None = None, rounds: int = 12) -> Floats:
        """Logarithms that fit the points in ``keep`` and all sheets best."""
        logs = self.mean.copy() if start is None else start.copy()
        damping = 1e-2
        best, residuals = self._cost(logs, keep)
        both = np.concatenate((keep, keep))
        for _ in range(rounds):
            slopes, extra, extra_slopes = self._slopes(logs, keep)
            weights = np.where(both, 1 / (1 + residuals**2 / _DEGREES), 0.0)
            held = self._held(logs)
            bend = slopes.T @ (slopes * weights[:, None]) + extra_slopes.T @ extra_slopes + np.diag(held)
            down = slopes.T @ (weights * residuals) + extra_slopes.T @ extra + (logs - self.mean) * held
            while True:
                moved = logs - np.linalg.solve(bend + damping * np.diag(np.diag(bend)), down)
                cost, moved_residuals = self._cost(moved, keep)
                if cost < best or damping > 1e4:
                    break
                damping *= 6
            if cost >= best:
                break
            gained, logs, residuals, best = best - cost, moved, moved_residuals, cost
            damping = max(damping / 4, 1e-5)
            if gained < 0.2:
                break
        return logs

    def factors(self, logs: Floats) -> dict[str, dict[str, float]]:
        """Owner -> constant or group -> factor; the owner "" has the common constants."""
        found: dict[str, dict[str, float]] = defaultdict(dict)
        for (owner, name), place in self._place.items():
            found[owner][name] = float(f"{np.exp(logs[place]):.4g}")
        return dict(found)


def _nudged(values: Mapping[str, float]) -> dict[str, Floats]:
    """Constants as they are, and then with one of them nudged, each in its turn: columns of a first axis."""
    columns = {name: np.full((1 + len(values), 1, 1), value) for name, value in values.items()}
    for row, column in enumerate(columns.values(), 1):
        column[row] *= _NUDGED
    return columns


def _times(values: Mapping[str, Any], group: _Group) -> Target:
    """Predictions for a group's points, with these constants, or with each row of :func:`_nudged` ones."""
    formula = StepFormula(
        group.counted,
        group.gpu,
        group.parallel,
        values,
        capture_size=group.capture_size,
        piecewise=group.piecewise,
        prepared_ahead=not group.shows_host,
    )
    host, request, request_token = (_flat(values[name]) for name in ("host", "request", "request_token"))
    seconds = formula.seconds(group.all_work, group.tokens).max(axis=-1) + group.shows_host * host
    ttft, tpot = (np.add.reduceat(seconds * weight, group.starts, axis=-1) for weight in group.weights)
    return Target(ttft + request + request_token * group.input_tokens, tpot)


def _sheet_residuals(values: Mapping[str, Any], part: tuple[Sheet, WorkCounts, StepColumns]) -> Floats:
    sheet, counted, work = part
    values = {**values, "all_reduce": 0.0, "link": 1e9}
    formula = StepFormula(counted, sheet.gpu, sheet.parallel, values, capture_size=sheet.capture_size)
    residuals = np.log(formula.seconds(work, work.num_tokens)[..., 0] / sheet.seconds) / STEP_SCATTER
    scaled: Floats = residuals / np.sqrt(residuals.shape[-1] / 30)  # a sheet counts as thirty points
    return scaled


def _flat(value: Any) -> Any:
    """A constant beside the seconds of steps: without the axis of ranks."""
    return value[..., 0] if isinstance(value, np.ndarray) else value


def condense(schedule: Schedule) -> tuple[Floats, Floats, Floats]:
    """A schedule's rows as some thirty kinds of steps: mean work, and the weights of their seconds in the mean TTFT and
    the mean TPOT.
    """
    rows, requests = len(schedule.repeats), len(schedule.tokens)
    waits, paces = np.zeros(rows + 1), np.zeros(rows + 1)
    np.add.at(waits, schedule.arrived + 1, 1 / requests)
    np.add.at(waits, schedule.first + 1, -1 / requests)
    share = 1 / np.maximum(schedule.tokens - 1, 1) / requests
    np.add.at(paces, schedule.first + 1, share)
    np.add.at(paces, schedule.last + 1, -share)
    waits, paces = np.cumsum(waits)[:rows] * schedule.repeats, np.cumsum(paces)[:rows] * schedule.repeats
    weights = waits / max(waits.sum(), 1e-12) + paces / max(paces.sum(), 1e-12)
    total = schedule.work.sum(axis=1)
    order = np.lexsort((total[:, 3], total[:, 2], np.round(total[:, 5] / 256), total[:, 4] > 0))
    order = order[weights[order] > 0]
    kinds = np.minimum(np.cumsum(weights[order]) / weights.sum() * _KINDS, _KINDS - 1).astype(int) * 2 + (
        total[order, 4] > 0
    )
    _, kind = np.unique(kinds, return_inverse=True)
    count = kind.max() + 1
    work = np.zeros((count, *schedule.work.shape[1:]))
    np.add.at(work, kind, schedule.work[order] * weights[order][:, None, None])
    work /= np.bincount(kind, weights[order], count)[:, None, None]
    waits, paces = (np.bincount(kind, each[order], count).astype(np.float64) for each in (waits, paces))
    return work, waits, paces
