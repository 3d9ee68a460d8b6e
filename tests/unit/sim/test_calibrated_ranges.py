"""Ranges are scaled until they hold nine of ten of what was left out: on truths that are drawn, and so are known."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

LAB = Path(__file__).resolve().parents[3] / "lab"
SPREAD, PER_DOUBLING = 0.03, 0.08
"""Standard deviations of logarithms: of loads that were measured, and of every doubling beyond, which add up."""
_90 = 1.645


@pytest.fixture(scope="module")
def ranges() -> ModuleType:
    """lab/known_ranges.py."""
    sys.path.insert(0, str(LAB))
    try:
        import known_ranges  # noqa: PLC0415 - the lab is no package
    finally:
        sys.path.remove(str(LAB))
    return known_ranges


def drawn(ranges: ModuleType, kind: str, group: str, doublings: float, seed: int, count: int = 400) -> object:
    """A fold whose predictions are off as the truth has it, stated with widths that are wrong by two on either side."""
    rng = np.random.default_rng(seed)
    off = rng.normal(0.0, np.hypot(SPREAD, PER_DOUBLING * np.sqrt(doublings)), count)
    added = {} if kind == "load" else {kind: (2 * _90 * PER_DOUBLING) ** 2 * doublings}
    return ranges.Stated(kind, group, "tpot", off, np.full(count, 0.5 * _90 * SPREAD), (added,) * count)


def test_ranges_hold_nine_of_ten_and_grow_with_distance(ranges: ModuleType) -> None:
    folds = [drawn(ranges, "load", f"fold {i}", 0, seed=i) for i in range(5)]
    folds += [drawn(ranges, "users", f"{far}", far, seed=100 + far) for far in (1, 2, 4)]
    scales = ranges.calibrated(folds)
    assert scales["load"] == pytest.approx(2.0, rel=0.1), "what was half as wide as the truth"
    assert scales["users"] == pytest.approx(0.5, rel=0.15), "what was twice as wide"
    widths = []
    for far in (0, 1, 2, 4, 8):
        fresh = drawn(ranges, "users" if far else "load", "fresh", far, seed=7000 + far, count=4000)
        assert 0.86 <= fresh.inside(scales).mean() <= 0.94, far  # type: ignore[attr-defined]
        widths.append(fresh.width(scales))  # type: ignore[attr-defined]
    assert widths == sorted(widths)
    assert widths[-1] > 1.5 * widths[1]


def test_folds_are_judged_by_scales_that_they_had_no_part_in(ranges: ModuleType) -> None:
    """One fold is far off: the others do not know, and its own range does not hold it."""
    folds = [drawn(ranges, "load", f"fold {i}", 0, seed=i, count=50) for i in range(8)]
    odd = drawn(ranges, "load", "odd", 40, seed=9, count=50)
    held = {each.group: each.inside.mean() for each in ranges.held([*folds, odd], ranges.calibrated([*folds, odd]))}
    assert held["odd"] < 0.5
    assert np.mean([share for group, share in held.items() if group != "odd"]) > 0.9
