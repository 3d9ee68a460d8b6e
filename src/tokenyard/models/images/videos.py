"""How many embeddings a video becomes, of the Qwen-VL families: frames are joined in pairs, each pair cut into squares.

Qwen2-VL and 2.5 bound the area of each frame, as of an image; Qwen3-VL and 3.5 bound the volume of the whole video. The
counts were compared with vLLM's own (``lab/record_image_tokens.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tokenyard.errors import ConfigError
from tokenyard.models.images.processors import VIDEO_FILE
from tokenyard.models.images.rules import BoundedArea
from tokenyard.models.images.table import FAMILIES, ImageFields
from tokenyard.quick_dataclass import dataclass

PER_FRAME, WHOLE = (
    frozenset(name for name, family in FAMILIES.items() if family.videos == kind) for kind in ("per frame", "whole")
)
"""Architectures that bound the pixels of each frame, and of a whole video."""
KNOWN = tuple(sorted(PER_FRAME | WHOLE))


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoRule:
    """Frames of a video are scaled alike."""

    area: BoundedArea
    """The area to which a frame is scaled, or all frames together."""
    joined: int = 2
    """Frames that become one layer of embeddings; what is missing in the last is made up."""
    whole: bool = False
    """The bounds are those of the video, not of a frame."""

    def num_tokens(self, width: int, height: int, num_frames: int) -> int:
        """Embeddings of a video. ConfigError for one that the model's processor refuses."""
        layers = -(-num_frames // self.joined)
        if not self.whole:
            return layers * self.area.num_tokens(width, height)
        if num_frames < self.joined:
            raise ConfigError("frames", num_frames, f"give {self.joined} at least: the model's processor refuses fewer")
        counted = round(num_frames / self.joined) * self.joined
        return layers * replace(self.area, depth=counted, scaled=num_frames).num_tokens(width, height)


def video_rule(
    config: Mapping[str, Any], processor: Mapping[str, Any] | None = None, file: str = VIDEO_FILE
) -> VideoRule:
    """The rule of a ``config.json``; ``processor`` is what its video processor is told, in ``file``.

    ConfigError where none is known for its architecture, or a field is missing.
    """
    named = config.get("architectures") or [""]
    architecture = named[0] if isinstance(named, list) else ""
    if architecture not in KNOWN:
        raise ConfigError("model", architecture, "no rule is known for its videos: give their tokens instead")
    fields = ImageFields(config, processor or {}, file)
    if architecture in WHOLE:
        return rule_of_whole(fields, fields)
    side = fields.count("vision_config.patch_size", 14) * fields.count("vision_config.spatial_merge_size", 2)
    low, high = fields.pixels(3136, 12_845_056, side)
    area = BoundedArea(side=side, least=low, most=high)
    return VideoRule(area=area, joined=fields.count("vision_config.temporal_patch_size", 2))


def rule_of_whole(fields: ImageFields, video: ImageFields) -> VideoRule:
    """The rule by which a whole video is bounded: sizes are the model's, bounds those of its ``video`` processor."""
    side = fields.count("vision_config.patch_size", 16) * fields.count("vision_config.spatial_merge_size", 2)
    joined = fields.count("vision_config.temporal_patch_size", 2)
    low, high = video.pixels(4096, 25_165_824, side, joined)
    return VideoRule(area=BoundedArea(side=side, least=low, most=high, small="cut"), joined=joined, whole=True)
