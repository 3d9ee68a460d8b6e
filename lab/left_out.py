"""What is left out of the fit to learn how far off it is where something was not measured: folds, by kind.

kind         what a fold leaves out                      what is judged
load         a fifth of the loads                        all of it
model        a model, in all its precisions              all of it
precision    a model in one precision                    where another precision was measured on the generation
generation   a model on one generation of GPUs           where it was measured on another generation
gpu          a GPU                                       models that were measured on another one of its generation
pair         a model on one GPU                          where both were measured, but not together: the same models
layout       one layout of every model on every GPU      where another layout was measured: all of it
kv_dtype     a model on a GPU with one KV format         where another format was measured
version      a model on a generation with one vLLM       where another vLLM was measured of the same layout and KV
users        the largest, and the smallest, loads        all of it: what lies outside of what was measured
prompts      the longest, and the shortest, prompts      the same: what lengthens a prompt moves TTFT far more than
outputs      the longest, and the shortest, answers      what lengthens an answer, so that each is learnt by itself
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from step_time_fit import Fit, Target
from tokenyard.questions.accuracy.points import Point
from tokenyard.steptime.constants import MeasuredDeployment, model_key
from tokenyard.steptime.formula import generation

__all__ = ["Fold", "LeftOut", "folds_of", "left_out", "load_of"]

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

LOAD_FOLDS = 5
ROUNDS = 8
"""Most rounds of the fit without a fold, which begins at the fit to everything, and ends where little is gained."""
EXTREMES = {
    "users": ((64, 128), (4, 8)),
    "prompts": ((4000, 8000), (1024, 2000)),
    "outputs": ((2000, 8000), (128, 512)),
}
"""Kind -> from how many on they are left out, and up to how many: more than one of each, so that what lies beyond the
largest of all is judged by others that lay beyond what stayed in the same direction."""


class Fold(NamedTuple):
    """Points that a fit does not see."""

    kind: str
    group: str
    out: Mask
    judged: Mask
    """The points whose case the kind is."""


class LeftOut(NamedTuple):
    """A fold, and what the fit without it says of every point."""

    fold: Fold
    target: Target
    logs: Floats
    """The fit itself."""


def load_of(point: Point) -> Hashable:
    """Points of one load on one deployment, by any source and with any version."""
    key = model_key(point.spec), point.gpu.name, point.parallel
    return (*key, point.input_tokens, point.output_tokens, point.users)


def folds_of(points: Sequence[Point]) -> Iterator[Fold]:
    """All folds, kind by kind."""
    rng = np.random.default_rng(0)
    fold_of: dict[Hashable, int] = {}
    loads = [fold_of.setdefault(load_of(point), int(rng.integers(LOAD_FOLDS))) for point in points]
    key = [model_key(point.spec) for point in points]
    shape = [each.partition(":")[0] for each in key]
    gpu = [point.gpu.name for point in points]
    age = [generation(point.gpu) for point in points]
    layout = [_layout(point) for point in points]
    kv = [point.recipe.kv_cache_dtype or "auto" for point in points]
    everywhere = [""] * len(points)
    yield from _folds("load", [f"fold {each}" for each in loads], remains=everywhere)
    yield from _folds("model", [point.model for point in points], remains=everywhere)
    yield from _folds("precision", _joined(key), remains=_joined(shape, age))
    yield from _folds("generation", _joined(key, age), remains=key)
    yield from _folds("gpu", gpu, remains=_joined(key, age))
    yield from _folds("pair", _joined(key, gpu), remains=_joined(key, age))
    yield from _layouts(_joined(key, gpu), layout)
    yield from _folds("kv_dtype", _joined(key, gpu, kv), remains=_joined(key, gpu))
    version = [point.version for point in points]
    # Elsewhere another vLLM had another layout as well, and what that adds is a gap of its own.
    yield from _folds("version", _joined(key, age, version), remains=_joined(key, gpu, layout, kv))
    yield from _extremes(points)


def _layouts(places: Sequence[str], layouts: Sequence[str]) -> Iterator[Fold]:
    """The first layout of every place, the second, and so on, where there are several: fewer fits than one for each."""
    known: dict[str, list[str]] = {}
    for place, layout in sorted(set(zip(places, layouts, strict=True))):
        known.setdefault(place, []).append(layout)
    number = np.array([known[place].index(layout) for place, layout in zip(places, layouts, strict=True)])
    several = np.array([len(known[place]) > 1 for place in places])
    for each in range(number.max() + 1):
        out = several & (number == each)
        yield Fold("layout", f"number {each + 1} of each", out, out)


def _layout(point: Point) -> str:
    sizes = point.parallel
    return MeasuredDeployment.layout_in_words(sizes.tensor, sizes.data, sizes.pipeline, sizes.expert)


def _extremes(points: Sequence[Point]) -> Iterator[Fold]:
    """Judged are all: a fit without the largest loads has to say something of larger loads than it knows."""
    sizes = {
        "users": np.array([point.users for point in points]),
        "prompts": np.array([point.input_tokens for point in points]),
        "outputs": np.array([point.output_tokens for point in points]),
    }
    for kind, (least, most) in EXTREMES.items():
        ends = {f"{size:,} and more": sizes[kind] >= size for size in least}
        ends |= {f"{size:,} and fewer": sizes[kind] <= size for size in most}
        for name, out in ends.items():
            if out.any() and not out.all():
                yield Fold(kind, name, out, out)


def _joined(*parts: Sequence[str]) -> list[str]:
    return ["/".join(each) for each in zip(*parts, strict=True)]


def _folds(kind: str, groups: Sequence[str], *, remains: Sequence[str]) -> Iterator[Fold]:
    """One per group; judged are points of which, by ``remains``, something is left in the fit."""
    group, left = np.array(groups), np.array(remains)
    for each in sorted(set(groups)):
        out = group == each
        judged = out & np.isin(left, left[~out])
        if judged.any():
            yield Fold(kind, each, out, judged)


def left_out(fit: Fit, logs: Floats, kept: Path | None = None, kinds: Sequence[str] | None = None) -> Iterator[LeftOut]:
    """Every fold (of ``kinds``), with what the fit without it says. ``kept``: a file (.npz) of fits, read and added
    to.
    """
    known: dict[str, Floats] = {}
    if kept is not None and kept.exists():
        with np.load(kept) as found:
            known = dict(found)
    for fold in folds_of(fit.points):
        if kinds is not None and fold.kind not in kinds:
            continue
        name = f"{fold.kind} {fold.group}"
        if name not in known:
            known[name] = fit.solve(~fold.out, start=logs, rounds=ROUNDS)
            if kept is not None:
                np.savez_compressed(kept, **known)  # type: ignore[arg-type]
        yield LeftOut(fold, fit.predict(known[name]), known[name])
