"""What memory is measured with where a line limits sizes: by vLLM, as recorded, and by ``tokenyard``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenyard.errors import ConfigError
from tokenyard.models.images.largest import LARGEST, frames_of, limited_tokens, limited_video
from tokenyard.models.images.processors import Processors
from tokenyard.models.images.rules import ImageRule
from tokenyard.models.images.table import image_rule


def compared(name: str, case: Mapping[str, Any]) -> list[tuple[int | None, int | None]]:
    """For every drawn size, the embeddings that ``tokenyard`` counts and those of vLLM."""
    rule = image_rule({**case["config"], "architectures": [name]}, case["processor"])
    return [(_tokens(rule, wide, high), theirs) for wide, high, _, _, theirs in case.get("limited", ())]


def compared_videos(name: str, case: Mapping[str, Any]) -> list[tuple[int | None, int | None]]:
    """The same of videos, without an image beside them."""
    config = {**case["config"], "architectures": [name]}
    return [
        (_video(config, Processors(case["processor"], case["video"]), length, sizes), theirs)
        for length, sizes, _, theirs in case.get("videos", ())
    ]


def _video(config: Mapping[str, Any], processors: Processors, length: int, sizes: Mapping[str, int]) -> int | None:
    name = config["architectures"][0]
    try:
        limited = limited_video(name, config, processors, sizes)
    except ConfigError:
        return None
    image, frames = image_rule(config, processors.image).planned, frames_of(config, processors)
    return LARGEST[name].num_tokens(image, length, has_images=False, frames=frames, limited=limited)


def _tokens(rule: ImageRule, wide: int | None, high: int | None) -> int | None:
    try:
        return limited_tokens(rule, wide, high)
    except ConfigError:
        return None
