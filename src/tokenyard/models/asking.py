"""How many embeddings an image or a video becomes when a model reads it, by the model's name or folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenyard.arguments import suggests_keywords
from tokenyard.core.config import require_int
from tokenyard.models.images.processor_kwargs import processors_told
from tokenyard.models.images.processors import processors_beside
from tokenyard.models.images.rules import MAX_EDGE
from tokenyard.models.images.table import image_rule
from tokenyard.models.images.videos import video_rule
from tokenyard.models.named import config_called

MAX_FRAMES = 1 << 20


@suggests_keywords()
def image_tokens(model: str, width: int, height: int, *, mm_processor_kwargs: Mapping[str, Any] | None = None) -> int:
    """Embeddings that an image of ``width`` by ``height`` pixels becomes when ``model`` reads it.

    ``model`` is a name or a path, as ``--model`` takes it; what a ``processor_config.json`` or a
    ``preprocessor_config.json`` beside the ``config.json`` says counts, and ``mm_processor_kwargs`` as the flag of that
    name. Tokens around an image and at the ends of its rows are not counted. Raises ConfigError where no rule is known
    for the model, where it refuses such an image, or where no rule reads an argument.
    """
    require_int("width", width, 1, MAX_EDGE)
    require_int("height", height, 1, MAX_EDGE)
    found = config_called(model)
    beside = processors_told(processors_beside(found.where), found.raw, mm_processor_kwargs)
    return image_rule(found.raw, beside.image, beside.image_from).num_tokens(width, height)


@suggests_keywords()
def video_tokens(
    model: str, width: int, height: int, frames: int, *, mm_processor_kwargs: Mapping[str, Any] | None = None
) -> int:
    """Embeddings that a video of so many frames becomes when ``model`` reads it: those that are taken of it, by rate.

    ``model`` is a name or a path, as ``--model`` takes it; what a ``processor_config.json``, else a
    ``video_preprocessor_config.json``, else a ``preprocessor_config.json`` beside the ``config.json`` says counts, and
    ``mm_processor_kwargs`` as vLLM 0.33 hands it on. Tokens around a video, and the times between its frames
    (Qwen3-VL), are not counted. Raises ConfigError where no rule is known for the model, where it refuses such a video,
    or where no rule reads an argument.
    """
    require_int("width", width, 1, MAX_EDGE)
    require_int("height", height, 1, MAX_EDGE)
    require_int("frames", frames, 1, MAX_FRAMES)
    found = config_called(model)
    beside = processors_told(processors_beside(found.where), found.raw, mm_processor_kwargs)
    return video_rule(found.raw, beside.video, beside.video_from).num_tokens(width, height, frames)
