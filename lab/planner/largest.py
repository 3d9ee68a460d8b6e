"""The largest video that an encoder is planned for: by vLLM, as recorded, and by ``tokenyard``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenyard.models.images.largest import LARGEST, frames_of
from tokenyard.models.images.processors import Processors
from tokenyard.models.images.table import RULES, image_rule


def compared(name: str, case: Mapping[str, Any]) -> list[tuple[int, int]]:
    """For every context, with images and without, the embeddings that ``tokenyard`` plans for and those of vLLM."""
    image = image_rule(case["config"], case["processor"]).planned if name in RULES else 0
    frames = frames_of(case["config"], Processors(case["processor"], case["video"]))
    return [
        (LARGEST[name].num_tokens(image, length, has_images=bool(images), frames=frames), theirs)
        for length, images, theirs in case["planned"]
    ]
