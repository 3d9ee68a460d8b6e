"""How many embeddings a video becomes, of the Qwen-VL families: frames are joined in pairs, each pair cut into squares.

Qwen2-VL and 2.5 bound the area of each frame, as of an image; Qwen3-VL and 3.5 bound the volume of the whole video. The
counts were compared with vLLM's own (``scripts/record_image_tokens.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenyard.core.config import require_int
from tokenyard.errors import ConfigError
from tokenyard.models.hub_names import config_called
from tokenyard.models.images.asking import object_beside
from tokenyard.models.images.rules import MAX_EDGE, BoundedArea
from tokenyard.models.images.table import ImageFields
from tokenyard.quick_dataclass import dataclass

MAX_FRAMES = 1 << 20
_PER_FRAME = ("Qwen2VLForConditionalGeneration", "Qwen2_5_VLForConditionalGeneration")
_WHOLE = (
    "Qwen3VLForConditionalGeneration", "Qwen3VLMoeForConditionalGeneration", "Qwen3_5ForConditionalGeneration",
    "Qwen3_5MoeForConditionalGeneration",
)  # fmt: skip
FAMILIES = (*_PER_FRAME, *_WHOLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoRule:
    """Frames of a video are scaled alike."""

    area: BoundedArea
    """By which a frame is, or all of them together are."""
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


def video_rule(config: Mapping[str, Any], processor: Mapping[str, Any] | None = None) -> VideoRule:
    """The rule of a ``config.json``; ``processor`` is what its ``video_preprocessor_config.json`` holds.

    ConfigError where none is known for its architecture, or a field is missing.
    """
    named = config.get("architectures") or [""]
    architecture = named[0] if isinstance(named, list) else ""
    if architecture not in FAMILIES:
        raise ConfigError("model", architecture, "no rule is known for its videos: give their tokens instead")
    fields = ImageFields(config, processor or {})
    whole = architecture in _WHOLE
    low, high = fields.pixels(4096, 25_165_824) if whole else fields.pixels(3136, 12_845_056)
    side = fields.count("vision_config.patch_size", 16 if whole else 14)
    side *= fields.count("vision_config.spatial_merge_size", 2)
    area = BoundedArea(side=side, least=low, most=high, small="cut" if whole else "")
    return VideoRule(area=area, joined=fields.count("vision_config.temporal_patch_size", 2), whole=whole)


def video_tokens(model: str, width: int, height: int, frames: int) -> int:
    """Embeddings that a video of so many frames becomes when ``model`` reads it: those that are taken of it, by rate.

    ``model`` is a name or a path, as ``--model`` takes it; a ``video_preprocessor_config.json`` beside the
    ``config.json`` counts. Tokens around a video, and the times between its frames (Qwen3-VL), are not counted. Raises
    ConfigError where no rule is known for the model, or where it refuses such a video.
    """
    require_int("width", width, 1, MAX_EDGE)
    require_int("height", height, 1, MAX_EDGE)
    require_int("frames", frames, 1, MAX_FRAMES)
    found = config_called(model)
    where, config = found.where, found.raw
    beside = object_beside(Path(where), "video_preprocessor_config.json")
    return video_rule(config, beside).num_tokens(width, height, frames)


# ---------------------------------------------------------------------------------------------------------------------
# The video that vLLM takes for the largest: where a model reads videos, the encoder's budget and cache are as large as
# one, unless a line forbids them. A layer of its frames is as large as the largest image.


@dataclass(frozen=True, slots=True, kw_only=True)
class LargestVideo:
    """How much of the longest context its frames fill."""

    layers: int = 0
    """Most layers of embeddings; 0: as many as there is room for."""
    beside_image: bool = False
    """Room for an image is left, where the line allows one."""
    fills: bool = False
    """It is as long as the context."""
    tokens: int = 0
    """It has so many, whatever the image: two frames of the area that a whole video may have."""

    def num_tokens(self, image: int, length: int, *, has_images: bool) -> int:
        """Its embeddings, beside a largest ``image`` of so many and a longest context of ``length`` tokens."""
        if self.fills or self.tokens:
            return self.tokens or length
        room = length - image if self.beside_image and has_images else length
        layers = max(room // image, 1) if image else 0
        return image * (min(layers, self.layers) if self.layers else layers)


LARGEST: dict[str, LargestVideo] = {
    **dict.fromkeys(
        (
            "Exaone4_5_ForConditionalGeneration", "OpenPanguVLForConditionalGeneration",
            "Qwen2VLForConditionalGeneration", "Qwen2_5OmniForConditionalGeneration", "Qwen2_5OmniModel",
            "Qwen2_5_VLForConditionalGeneration", "Qwen3OmniMoeForConditionalGeneration",
        ), LargestVideo(layers=7),
    ),
    "Ernie4_5_VLMoeForConditionalGeneration": LargestVideo(beside_image=True),
    **dict.fromkeys(
        (
            "NemotronH_Nano_Omni_Reasoning_V3", "NemotronH_Nano_VL_V2", "NemotronH_Omni_Reasoning_V3",
            "NemotronH_Super_Omni_Reasoning_V3",
        ), LargestVideo(fills=True),
    ),
    **dict.fromkeys(_WHOLE, LargestVideo(tokens=25_165_824 // 2 // (32 * 32))),
}  # fmt: skip
"""By architecture; vLLM was asked (``scripts/record_image_tokens.py``). Of others that read videos their processors'
files would have to be there."""
