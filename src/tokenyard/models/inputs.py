"""Which inputs have to be forbidden for a model's encoders to be left out, as vLLM's classes say.

``scripts/record_limits.py`` has asked them: ``inputs.json``.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from tokenyard.models.spec import EncoderSpec, ModelSpec


@cache
def _recorded() -> dict[str, dict[str, list[str]]]:
    content: dict[str, dict[str, list[str]]] = json.loads(Path(__file__).with_name("inputs.json").read_text())
    return content


def inputs_of(model: ModelSpec, encoder: EncoderSpec) -> frozenset[str]:
    """What one of a model's encoders is loaded for, by vLLM's words: ``audio``, ``image``, ``video``, ``vision_chunk``.

    Nothing where it is loaded in any case. Where vLLM was not asked about the architecture, a vision tower reads
    images, and videos if it is of a "VL" model.
    """
    known = _recorded().get(model.architecture)
    if known is None:
        return frozenset({"audio"} if encoder.kind == "audio" else _of_name(model.architecture))
    return frozenset(known[encoder.kind])


def _of_name(architecture: str) -> set[str]:
    return {"image", "video"} if "VL" in architecture else {"image"}
