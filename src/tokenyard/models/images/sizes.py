"""How wide and high the picture is that vLLM takes for the largest, by rule: it is made to measure with."""

from __future__ import annotations

from functools import singledispatch
from math import isqrt, sqrt

from tokenyard.models.images.crops import (
    BoundedSides,
    CoveringTiles,
    FittingTiles,
    OverlappingCrops,
    Slices,
    StretchedArea,
    TilesOfLarge,
    TilesTwice,
    Windows,
)
from tokenyard.models.images.rules import (
    HUGE,
    BestResolution,
    BoundedArea,
    BoundedEdge,
    BoundedPatches,
    ImageRule,
    LeastPadding,
    NearestTiles,
    PaddedResolution,
    PlainPatches,
    UnpaddedTiles,
    tile_shapes,
)

_ANY = (1 << 20, 1 << 20)
"""Edges, in pixels, of a rule by which the size of a picture does not matter."""


@singledispatch
def largest_size(_rule: ImageRule) -> tuple[int, int]:
    """Width and height in pixels of the picture that vLLM takes for the largest by a rule."""
    return _ANY


@largest_size.register
def _(rule: BoundedArea) -> tuple[int, int]:
    if rule.searched == "whole" or rule.planned_edge:
        edge = rule.planned_edge or HUGE
        wide, high = rule.grid(edge, edge)
        return wide * rule.side, high * rule.side
    if rule.searched == "root":
        edge = max(isqrt(rule.most) // rule.side, 1) * rule.side
        return edge, edge
    high = next(count for count in range(isqrt(rule.planned), 0, -1) if rule.planned % count == 0)
    return rule.planned // high * rule.side, high * rule.side


@largest_size.register
def _(rule: BoundedEdge) -> tuple[int, int]:
    return rule.most, rule.most


@largest_size.register
def _(rule: BoundedPatches) -> tuple[int, int]:
    edge = 3000 if rule.along_an_edge else 1024
    return edge, edge


@largest_size.register
def _(rule: PlainPatches) -> tuple[int, int]:
    edge = isqrt(rule.most) * rule.patch * rule.merge
    return edge, edge


@largest_size.register
def _(rule: NearestTiles) -> tuple[int, int]:
    shapes = tile_shapes(rule.least, rule.most, rule.in_order)
    wide, high = max(shapes, key=lambda shape: shape[0] * shape[1])
    return wide * rule.tile, high * rule.tile


@largest_size.register
def _(rule: LeastPadding) -> tuple[int, int]:
    return rule.tile, rule.tile * rule.most


@largest_size.register
def _(rule: BestResolution) -> tuple[int, int]:
    if rule.planned_at is not None:
        return rule.planned_at
    return _first_largest(rule, [(wide, high) for high, wide in rule.sizes])


@largest_size.register
def _(rule: PaddedResolution) -> tuple[int, int]:
    return _first_largest(rule, list(rule.sizes))  # what its processor takes for the width is the height here


@largest_size.register
def _(rule: UnpaddedTiles) -> tuple[int, int]:
    return rule.tile, rule.tile * rule.most


@largest_size.register
def _(rule: OverlappingCrops) -> tuple[int, int]:
    margins = (rule.left + rule.right) * rule.patch
    step = rule.crop * rule.patch - margins
    sizes = [(wide * step + margins, high * step + margins) for high, wide in tile_shapes(1, rule.most, True)]
    return _first_largest(rule, sorted(sizes) if rule.padded else sizes)  # Molmo's are in another order than Molmo 2's


@largest_size.register
def _(rule: Windows) -> tuple[int, int]:
    return rule.longest, rule.longest


@largest_size.register
def _(rule: TilesOfLarge) -> tuple[int, int]:
    edge = int(sqrt(rule.area.most))
    return edge, edge


@largest_size.register(FittingTiles)
@largest_size.register(TilesTwice)
def _(rule: FittingTiles | TilesTwice) -> tuple[int, int]:
    shapes = tile_shapes(1, rule.most, False)
    return _first_largest(rule, [(wide * rule.tile, high * rule.tile) for wide, high in shapes])


@largest_size.register
def _(rule: Slices) -> tuple[int, int]:
    return rule.planned_edge, rule.planned_edge * rule.planned_slices


@largest_size.register(StretchedArea)
@largest_size.register(CoveringTiles)
def _(rule: StretchedArea | CoveringTiles) -> tuple[int, int]:
    return rule.planned_edge, rule.planned_edge


@largest_size.register
def _(rule: BoundedSides) -> tuple[int, int]:
    edge = isqrt(rule.planned) * rule.side
    return edge, edge


def _first_largest(rule: ImageRule, sizes: list[tuple[int, int]]) -> tuple[int, int]:
    return max(sizes, key=lambda size: rule.num_tokens(*size))
