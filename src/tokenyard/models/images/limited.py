"""The picture and the video that vLLM measures memory with where a line limits their sizes.

``--limit-mm-per-prompt '{"image": {"count": 2, "width": 512}}'``: neither edge is longer than the line says, nor than
that of the picture that vLLM takes for the largest. ``scripts/record_limited_items.py`` has asked vLLM's own builders.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, singledispatch
from math import isqrt, sqrt
from pathlib import Path
from typing import Any

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
from tokenyard.models.images.largest import LARGEST, MOST_FRAMES, MOST_OF_GLM, LimitedVideo
from tokenyard.models.images.rules import (
    HUGE,
    BestResolution,
    BoundedArea,
    BoundedEdge,
    BoundedPatches,
    FilledArea,
    FixedCount,
    ImageRule,
    LeastPadding,
    NearestTiles,
    PaddedResolution,
    PlainPatches,
    UnpaddedTiles,
    tile_shapes,
)
from tokenyard.models.images.table import RULES, ImageFields, object_beside
from tokenyard.models.images.videos import VideoRule
from tokenyard.models.spec import ModelSpec

_ANY = (1 << 20, 1 << 20)
"""Of a rule by which the size of a picture does not matter."""


@cache
def _recorded() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(Path(__file__).with_name("limits.json").read_text())
    return content


_PAIR = 2
"""Frames of the video that Qwen3-VL's class measures with, and of a layer of it."""


def knows_its_budget(architecture: str) -> bool:
    """Whether the class says how large the largest item is, so that sizes of a line leave the budget as it is."""
    return architecture in _recorded()["own_budgets"]


def heeds_frames(architecture: str) -> bool:
    """Whether a class that knows its budget makes it for no more frames of a video than a line says (Gemma 4)."""
    video = LARGEST.get(architecture)
    return video is not None and video.per_frame > 0


def heeds_sizes(architecture: str) -> bool | None:
    """Whether the class heeds sizes of pictures that a line says; None where vLLM was not asked."""
    found: bool | None = _recorded()["heeding"].get(architecture)
    return found


def limited_tokens(rule: ImageRule, width: int | None, height: int | None) -> int:
    """Embeddings of the picture that memory is measured with, where a line says one of its edges or both.

    ConfigError for a picture that the model's processor refuses: vLLM does not start.
    """
    widest, highest = largest_size(rule)
    return rule.num_tokens(min(width or widest, widest), min(height or highest, highest))


def with_limited_picture(
    model: ModelSpec, raw: Mapping[str, Any], where: str, sizes: Mapping[str, int]
) -> ModelSpec | None:
    """The model, whose first encoder that sees has the picture that ``width`` and ``height`` of a line leave.

    As it is where sizes change nothing; None where vLLM was not asked what they change. ConfigError for a picture that
    the model's processor refuses. ``raw`` and ``where`` are its ``config.json``.
    """
    seeing = next((i for i, each in enumerate(model.encoders) if each.kind == "vision"), None)
    if seeing is None or model.architecture not in RULES:
        return None
    rule = RULES[model.architecture](ImageFields(raw, object_beside(Path(where), "preprocessor_config.json")))
    heeded = False if isinstance(rule, FixedCount | FilledArea) else heeds_sizes(model.architecture)
    if not heeded:
        return model if heeded is not None else None
    tokens = limited_tokens(rule, sizes.get("width"), sizes.get("height"))
    limited = replace(model.encoders[seeing], limited_tokens_per_item=tokens)
    return replace(model, encoders=(*model.encoders[:seeing], limited, *model.encoders[seeing + 1 :]))


def limited_video(
    architecture: str, fields: ImageFields, video: Mapping[str, Any], sizes: Mapping[str, int]
) -> LimitedVideo:
    """What ``num_frames``, ``width`` and ``height`` of a line leave of the largest video.

    ``video`` is what the file of the model's video processor holds. ConfigError for a video that it refuses.
    """
    largest, frames = LARGEST[architecture], sizes.get("num_frames", 0)
    is_sized = "width" in sizes or "height" in sizes
    if largest.by_frame or (not largest.chosen and not is_sized):
        return LimitedVideo(frames=frames)
    rule = RULES[architecture](fields)
    if not isinstance(rule, BoundedArea):
        return LimitedVideo(frames=frames)

    def within(size: tuple[int, int]) -> tuple[int, int]:
        return min(sizes.get("width", size[0]), size[0]), min(sizes.get("height", size[1]), size[1])

    if largest.chosen:
        _, most = ImageFields({}, video).pixels(1, MOST_OF_GLM)
        made = VideoRule(area=replace(rule, most=most), whole=True)
        size, counts = largest_size(rule), dict[int, int]()
        for count in range(2, MOST_FRAMES + 1):
            counts.setdefault(made.num_tokens(*size, count), count)
        fewer = {tokens: max(min(count, frames or count), 2) for tokens, count in counts.items()}
        return LimitedVideo(among=tuple(made.num_tokens(*within(size), fewer[tokens]) for tokens in sorted(fewer)))
    if not largest.tokens:
        return LimitedVideo(rule.num_tokens(*within(largest_size(rule))), frames)
    least, most = ImageFields({}, video).pixels(4096, 25_165_824)
    area = BoundedArea(side=rule.side, least=least, most=most, small="cut")
    wide, high = replace(area, depth=_PAIR).grid(*largest_size(replace(area, most=most // _PAIR)))
    made = VideoRule(area=area, whole=True)
    return LimitedVideo(made.num_tokens(*within((wide * rule.side, high * rule.side)), _PAIR))


def with_limited_video(
    model: ModelSpec, raw: Mapping[str, Any], where: str, sizes: Mapping[str, int]
) -> ModelSpec | None:
    """The model, whose first encoder that sees has the video that sizes of a line leave; None where vLLM was not asked.

    ConfigError for a video that the model's processor refuses.
    """
    seeing = next((i for i, each in enumerate(model.encoders) if each.kind == "vision"), None)
    if seeing is None or model.architecture not in _recorded()["heeding_videos"]:
        return None
    encoder = model.encoders[seeing]
    if LARGEST[model.architecture].chosen and not encoder.planned_videos:
        return None  # GLM-4.6V's processor knows a number by itself, and its frames were not asked for
    names = ("preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json")
    processor, around, video = (object_beside(Path(where), name) for name in names)
    left = limited_video(model.architecture, ImageFields(raw, processor), {**around, **video}, sizes)
    limited = replace(
        encoder, limited_tokens_per_frame=left.tokens, limited_frames=left.frames, limited_videos=left.among
    )
    return replace(model, encoders=(*model.encoders[:seeing], limited, *model.encoders[seeing + 1 :]))


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
