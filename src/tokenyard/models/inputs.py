"""Which inputs a model's encoders are loaded for, how many of each a prompt may have, and whether GPUs may share them
out, as vLLM 0.33's classes say.

``lab/record_limits.py``, ``lab/record_items.py`` and ``lab/record_encoders.py`` record them.
"""

from __future__ import annotations

from functools import cache

from tokenyard.models.recorded import recorded
from tokenyard.models.spec import EncoderSpec, ModelSpec


def inputs_of(model: ModelSpec, encoder: EncoderSpec) -> frozenset[str]:
    """What one of a model's encoders is loaded for, by vLLM's words: ``audio``, ``image``, ``video``, ``vision_chunk``.

    Nothing where it is loaded in any case. Where vLLM's answer for the architecture is not recorded, a vision tower
    reads images, and videos if it is of a "VL" model.
    """
    known = recorded("inputs").get(model.architecture)
    if known is None:
        return frozenset({"audio"} if encoder.kind == "audio" else _of_name(model.architecture))
    return frozenset(known[encoder.kind])


def _of_name(architecture: str) -> set[str]:
    return {"image", "video"} if "VL" in architecture else {"image"}


def known_items() -> dict[str, dict[str, int | None]]:
    """Architecture -> the inputs that its class takes, and the most of each in a prompt; None: as many as allowed."""
    found: dict[str, dict[str, int | None]] = recorded("items")
    return found


def most_items(architecture: str, kind: str) -> int | None:
    """The most of an input that the architecture's class takes in a prompt, 0 where it takes none of it.

    None: as many as are allowed, or vLLM's answer for the architecture is not recorded.
    """
    known = known_items().get(architecture)
    return None if known is None else known.get(kind, 0)


@cache
def sharing_architectures() -> frozenset[str]:
    """Architectures whose classes heed ``--mm-encoder-tp-mode data``."""
    return frozenset(recorded("encoder_modes"))


def may_share_images(architecture: str) -> bool:
    """Whether the architecture's class heeds ``--mm-encoder-tp-mode data``."""
    return architecture in sharing_architectures()


def item_kind(model: ModelSpec) -> str:
    """The kind that an item of a request counts as: a picture, or a sound where a model sees none.

    One model takes pictures and videos as pieces of one kind (Kimi K2.5).
    """
    if "vision_chunk" in known_items().get(model.architecture, {}):
        return "vision_chunk"
    return "image" if any(each.kind == "vision" for each in model.encoders) or not model.encoders else "audio"


def kind_of(model: ModelSpec, modality: str) -> str:
    """The kind whose limits an item of a request counts against: ``modality``, where the model tells kinds apart."""
    usual = item_kind(model)
    return (
        usual if modality == "image" or usual == "audio" or (usual, modality) == ("vision_chunk", "video") else modality
    )
