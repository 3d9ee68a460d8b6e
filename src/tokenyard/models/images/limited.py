"""The picture and the video that vLLM measures memory with where a line limits their sizes.

``--limit-mm-per-prompt '{"image": {"count": 2, "width": 512}}'``: neither edge is longer than the line says, nor than
that of the picture that vLLM takes for the largest. ``lab/record_limited_items.py`` has asked vLLM's own builders.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tokenyard.models.images.largest import LARGEST, MOST_FRAMES, MOST_OF_GLM, PAIR, LimitedVideo, whole_pair
from tokenyard.models.images.processors import Processors
from tokenyard.models.images.rules import (
    BoundedArea,
    FilledArea,
    FixedCount,
    ImageRule,
)
from tokenyard.models.images.table import RULES, ImageFields
from tokenyard.models.images.videos import VideoRule
from tokenyard.models.recorded import recorded
from tokenyard.models.spec import ModelSpec, first_seeing, with_changed


def knows_its_budget(architecture: str) -> bool:
    """Whether the class says how large the largest item is, so that sizes of a line leave the budget as it is."""
    return architecture in recorded("limits")["own_budgets"]


def heeds_frames(architecture: str) -> bool:
    """Whether a class that knows its budget makes it for no more frames of a video than a line says (Gemma 4)."""
    video = LARGEST.get(architecture)
    return video is not None and video.per_frame > 0


def heeds_sizes(architecture: str) -> bool | None:
    """Whether the class heeds sizes of pictures that a line says; None where vLLM was not asked."""
    found: bool | None = recorded("limits")["heeding"].get(architecture)
    return found


def limited_tokens(rule: ImageRule, width: int | None, height: int | None) -> int:
    """Embeddings of the picture that memory is measured with, where a line says one of its edges or both.

    ConfigError for a picture that the model's processor refuses: vLLM does not start.
    """
    widest, highest = rule.largest
    return rule.num_tokens(min(width or widest, widest), min(height or highest, highest))


def with_limited_picture(
    model: ModelSpec, raw: Mapping[str, Any], processors: Processors, sizes: Mapping[str, int]
) -> ModelSpec | None:
    """The model, whose first encoder that sees has the picture that ``width`` and ``height`` of a line leave.

    As it is where sizes change nothing; None where vLLM was not asked what they change. ConfigError for a picture that
    the model's processor refuses. ``raw`` is its ``config.json``.
    """
    seeing = first_seeing(model.encoders)
    if seeing is None or model.architecture not in RULES:
        return None
    rule = RULES[model.architecture](ImageFields(raw, processors.image, processors.image_from))
    heeded = False if isinstance(rule, FixedCount | FilledArea) else heeds_sizes(model.architecture)
    if not heeded:
        return model if heeded is not None else None
    tokens = limited_tokens(rule, sizes.get("width"), sizes.get("height"))
    return replace(model, encoders=with_changed(model.encoders, seeing, limited_tokens_per_item=tokens))


def limited_video(
    architecture: str, raw: Mapping[str, Any], processors: Processors, sizes: Mapping[str, int]
) -> LimitedVideo:
    """What ``num_frames``, ``width`` and ``height`` of a line leave of the largest video.

    ``raw`` is the model's ``config.json``. ConfigError for a video that its processor refuses.
    """
    fields = ImageFields(raw, processors.image, processors.image_from)
    video = ImageFields(raw, processors.video, processors.video_from)
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
        _, most = video.pixels(1, MOST_OF_GLM)
        made = VideoRule(area=replace(rule, most=most), whole=True)
        size, counts = rule.largest, dict[int, int]()
        for count in range(2, MOST_FRAMES + 1):
            counts.setdefault(made.num_tokens(*size, count), count)
        fewer = {tokens: max(min(count, frames or count), 2) for tokens, count in counts.items()}
        return LimitedVideo(among=tuple(made.num_tokens(*within(size), fewer[tokens]) for tokens in sorted(fewer)))
    if not largest.tokens:
        return LimitedVideo(rule.num_tokens(*within(rule.largest)), frames)
    made, size = whole_pair(fields, video)
    return LimitedVideo(made.num_tokens(*within(size), PAIR))


def with_limited_video(
    model: ModelSpec, raw: Mapping[str, Any], processors: Processors, sizes: Mapping[str, int]
) -> ModelSpec | None:
    """The model, whose first encoder that sees has the video that sizes of a line leave; None where vLLM was not asked.

    ConfigError for a video that the model's processor refuses.
    """
    seeing = first_seeing(model.encoders)
    if seeing is None or model.architecture not in recorded("limits")["heeding_videos"]:
        return None
    if LARGEST[model.architecture].chosen and not seeing.planned_videos:
        return None  # GLM-4.6V's processor knows a number by itself, and its frames were not asked for
    left = limited_video(model.architecture, raw, processors, sizes)
    said = {"limited_tokens_per_frame": left.tokens, "limited_frames": left.frames, "limited_videos": left.among}
    return replace(model, encoders=with_changed(model.encoders, seeing, **said))
