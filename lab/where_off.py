"""Says where predictions of a model that was left out are off, and how far measurements differ between themselves.

    python lab/where_off.py POINTS.csv.gz --profiles FOLDER ... --kept FILE

FILE holds the fits of ``fit_latency.py --kept``. Every model's error of TPOT is taken apart: its *scale* (the median of
predicted over measured, less 1: the model is off as a whole), and what is left of the error beside it (the *shape*);
then by precision, GPU, layout and users. Last, pairs of points of one load on one deployment, of one version of vLLM
and of two: no prediction that does not know the version can be nearer than those are to each other.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fit_latency import PRIORS, sheet_of
from left_out import left_out, load_of
from step_time_fit import Fit
from tokenyard.questions.accuracy.points import Point, read_points
from tokenyard.steptime.constants import MeasuredDeployment

__all__ = ["main", "scale_and_shape"]

Floats = npt.NDArray[np.float64]

USERS = (8, 32, 128)
"""Users of an engine, by which points are grouped."""


def scale_and_shape(ratios: Floats) -> tuple[float, float]:
    """Predicted over measured: the median less 1, and the median error that is left when it is divided out."""
    middle = float(np.median(ratios))
    return middle - 1, float(np.median(abs(ratios / middle - 1)))


def group_of(point: Point) -> tuple[str, ...]:
    """What a point shares with others, as the table says it."""
    sizes = point.parallel
    layout = MeasuredDeployment.layout_in_words(sizes.tensor, sizes.data, sizes.pipeline, sizes.expert)
    users = point.users / sizes.data
    load = next((f"up to {most} users" for most in USERS if users <= most), f"above {USERS[-1]} users")
    return point.precision, point.gpu.name, layout, load


def pairs(points: Sequence[Point]) -> Iterator[tuple[str, float, float]]:
    """Two measurements of one load: whether one version made both, and how far they lie apart in TPOT and TTFT."""
    by_load: dict[Hashable, list[Point]] = defaultdict(list)
    for point in points:
        by_load[load_of(point)].append(point)
    for some in by_load.values():
        for one, other in combinations(some, 2):
            is_same = one.version == other.version and one.recipe == other.recipe
            apart = abs(np.log([one.tpot / other.tpot, one.ttft / other.ttft]))
            if apart[0] > 0:  # else the table has one measurement twice
                yield ("one version" if is_same else "two versions"), float(apart[0]), float(apart[1])


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("points", type=Path)
    parser.add_argument("--profiles", type=Path, nargs="*", default=[])
    parser.add_argument("--kept", type=Path, required=True)
    args = parser.parse_args()
    points, _ = read_points(args.points)
    fit = Fit(points, [sheet for folder in args.profiles if (sheet := sheet_of(folder)) is not None], PRIORS)
    measured = np.array([point.tpot for point in points])
    for fold, target, _ in left_out(fit, fit.mean, args.kept, kinds=("model",)):
        ratios = target.tpot / measured
        scale, shape = scale_and_shape(ratios[fold.judged])
        print(f"{fold.group}: scale {scale:+.1%}, shape {shape:.1%}")
        groups: dict[tuple[str, ...], list[float]] = defaultdict(list)
        for i in np.flatnonzero(fold.judged).tolist():
            groups[group_of(points[i])].append(float(ratios[i]))
        for group, own in sorted(groups.items()):
            print(f"    {' '.join(group):44} {len(own):4}  {np.median(own) - 1:+.1%}")
    apart: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for name, tpot, ttft in pairs(points):
        apart[name].append((tpot, ttft))
    print("\ntwo measurements of one load")
    for name, each in apart.items():
        middle, most = np.quantile(each, (0.5, 0.9), axis=0)
        said = "  ".join(f"{what} {middle[i]:.1%} apart, p90 {most[i]:.1%}" for i, what in enumerate(("TPOT", "TTFT")))
        print(f"    {name:14} {len(each):4} pairs  {said}")


if __name__ == "__main__":
    main()
