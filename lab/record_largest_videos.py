"""Records the largest video that vLLM plans an encoder for, of families whose frames have embeddings of their own.

vLLM's own processing classes are asked how many frames there are and what each becomes, with stand-ins for the image
and video processors of a checkpoint, for several contexts, with and without images. Run it as
``record_image_tokens.py``, of whose questions these are:

    PYTHONPATH=src:lab nice python lab/record_largest_videos.py [ARCHITECTURE ...]

Its last line says how often ``tokenyard`` plans as large a video.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

from ask_vllm import MODELS, names_given, write_answers
from planner.largest import compared
from record_image_tokens import CASES, FAMILIES, LISTED, Asked, Family, asked_case, record_families
from tokenyard.models.images.table import image_rule

OUT = MODELS / "largest_videos.json.gz"
LENGTHS = (1024, 2048, 4096, 8000, 20_000, 25_088, 32_768, 131_072, 262_144, 1_048_576)
_LEFT_OUT = ("audio_config", "sound_config", "talker_config")
_WORD = "<|video_pad|>"

_NO_IMAGES: Family = ("", lambda *_: None, {})

Question = Callable[[int, dict[str, int]], int]
"""Longest context and how many images and videos a prompt has -> embeddings of a video."""

# ---------------------------------------------------------------------------------------------------------------------
# How vLLM is asked, by family.


def _by_itself(asked: Asked, _: Mapping[str, Any]) -> Question:
    asked.context.model_config.get_multimodal_config = lambda: SimpleNamespace(limit_per_prompt={})
    return lambda length, counts: int(asked.info.get_mm_max_tokens_per_item(length, counts)["video"])


def _of_video(asked: Asked, _: Mapping[str, Any]) -> Question:
    return lambda length, counts: int(asked.info.get_max_video_tokens(length, counts))


def _minicpm(asked: Asked, video: Mapping[str, Any]) -> Question:
    asked.processor.video_processor = SimpleNamespace(**video)
    return _of_video(asked, video)


def _internvl_chat(asked: Asked, _: Mapping[str, Any]) -> Question:
    """The text that its own processor puts in a video's place, as long as it is, without the tokenizer."""
    processing: Any = import_module("vllm.transformers_utils.processors.internvl")
    processing.cached_encode = lambda _, text, **__: [1] * text.count(_WORD)
    tokenizer = MagicMock()
    tokenizer.get_vocab.return_value = {_WORD: 1}
    tokenizer.convert_tokens_to_ids.return_value = 1
    asked.info.get_tokenizer = lambda: tokenizer
    vars(asked.info).pop("ctx_video_token", None)  # looked up before, with a tokenizer that has no words
    if not asked.info.ctx_video_token:
        return lambda _length, _counts: 0
    processor = asked.info.get_hf_processor()
    asked.info.get_hf_processor = lambda **_: processor
    return lambda length, counts: len(
        processor.get_video_repl(asked.info.get_num_frames_with_most_features(length, counts)).full
    )


def _internvl(asked: Asked, video: Mapping[str, Any]) -> Question:
    asked.processor = SimpleNamespace(**video)
    asked.info.get_hf_processor = lambda **_: asked.processor
    asked.info.get_max_image_tokens = lambda: asked.image  # needs the tower's size, which stands elsewhere in the file
    each = asked.processor.image_seq_length
    return lambda length, counts: int(asked.info.get_num_frames_with_most_features(length, counts) * each)


def _ovis(asked: Asked, _: Mapping[str, Any]) -> Question:
    """Frames as many as vLLM takes, through the parts of its own processor that an image of its goes through."""
    from vllm.transformers_utils.processors import ovis2_5

    theirs, vit = ovis2_5.Ovis2_5Processor, asked.config.vit_config
    processor = SimpleNamespace(
        patch_size=vit.patch_size, hidden_stride=vit.hidden_stride, temporal_patch_size=vit.temporal_patch_size
    )
    processor.get_token_value = lambda name: name
    processor.construct_visual_indicators = lambda *given: theirs.construct_visual_indicators(processor, *given)

    def tokens(length: int, counts: dict[str, int]) -> int:
        frames, size = (
            asked.info.get_num_frames_with_most_features(length, counts),
            asked.info.get_image_size_with_most_features(),
        )
        edges = theirs.smart_resize(processor, size.height, size.width, vit.patch_size * vit.hidden_stride)
        grid = [-(-frames // vit.temporal_patch_size), *(edge // vit.patch_size for edge in edges)]
        return len(theirs.construct_visual_placeholders(processor, grid, True))

    return tokens


def _molmo2(asked: Asked, video: Mapping[str, Any]) -> Question:
    fields = SimpleNamespace(**video)
    asked.processor = SimpleNamespace(video_processor=fields, video_use_col_tokens=video["video_use_col_tokens"])

    def tokens(length: int, counts: dict[str, int]) -> int:
        frames = asked.info.get_num_frames_with_most_features(length, counts)
        return int(asked.info.get_num_video_tokens(num_frames=frames, processor=asked.processor))

    return tokens


def _glm(asked: Asked, video: Mapping[str, Any]) -> Question:
    """GLM-4.6V's processor knows a number by itself, and is asked with a tokenizer that has four tokens for a time."""
    tokenizer = MagicMock()
    tokenizer.encode.return_value = [0, 0, 0, 0]
    asked.info.get_tokenizer = lambda: tokenizer
    asked.info._get_processor_class_name = lambda: video["processor_class"]  # noqa: SLF001
    asked.info._get_video_max_pixels = lambda: video["size"]["longest_edge"]  # noqa: SLF001

    def tokens(length: int, counts: dict[str, int]) -> int:
        known = asked.info.get_mm_max_tokens_per_item(length, counts)
        if known is not None:
            return int(known["video"])
        frames = asked.info.get_num_frames_with_most_features(length, counts)
        size = asked.info.get_image_size_with_most_features()
        _, count = asked.info._get_vision_info(  # noqa: SLF001
            image_width=size.width,
            image_height=size.height,
            num_frames=max(frames, 2),
            max_image_pixels=video["size"]["longest_edge"],
        )
        return int(count)

    return tokens


def _llava_next(asked: Asked, _: Mapping[str, Any]) -> Question:
    def tokens(length: int, counts: dict[str, int]) -> int:
        frames = asked.info.get_num_frames_with_most_features(length, counts)
        return int(asked.info.get_num_video_tokens(image_width=336, image_height=336, num_frames=frames))

    return tokens


ASKING: dict[str, tuple[Any, dict[str, Any]]] = {
    name: (globals()[f"_{asking}"], video) for name, (asking, video) in LISTED["largest videos"].items()
}
"""Architecture -> how vLLM is asked, and what its video processor's file has."""
CHANGED: dict[str, Callable[[Random], dict[str, Any]]] = {
    **dict.fromkeys(
        ("Glm4vForConditionalGeneration", "Glm4vMoeForConditionalGeneration", "GlmOcrForConditionalGeneration"),
        lambda random: {
            "size": {"shortest_edge": 12_544, "longest_edge": random.choice((2_007_040, 9_633_792, 100_352_000))},
            "processor_class": random.choice(("Glm4vProcessor", "Glm46VProcessor")),
        },
    ),
    "MiniCPMV4_6ForConditionalGeneration": lambda random: {"max_slice_nums": random.choice((1, 4, 6))},
    "MiniCPMV4_7ForConditionalGeneration": lambda random: {"max_slice_nums": random.choice((1, 4, 6))},
    "Molmo2ForConditionalGeneration": lambda random: {
        "num_frames": random.choice((8, 64, 128)),
        "pooling_size": [random.choice((2, 3, 4)), random.choice((2, 3))],
        "video_use_col_tokens": random.random() < 0.5,
    },
}
"""What is drawn of that file."""

# ---------------------------------------------------------------------------------------------------------------------
# Recording.


def main() -> int:
    """Ask about every family, and write the answers."""
    names = names_given(__doc__, sorted(ASKING))
    known = record_families(OUT, names, cases, lambda found: [each["planned"][-1] for each in found])
    write_answers(OUT, known, "families")
    pairs = [pair for name, every in known.items() for case in every for pair in compared(name, case)]
    same = [ours == theirs for ours, theirs in pairs]
    print(f"{sum(same):,} of {len(same):,} largest videos of {len(known)} families are vLLM's")
    return 0


def cases(name: str, default: dict[str, Any]) -> list[dict[str, Any]]:
    """All cases of a family."""
    return [_case(name, case, default) for case in range(CASES)]


def _case(name: str, number: int, default: Mapping[str, Any]) -> dict[str, Any]:
    from vllm.transformers_utils.config import _maybe_remap_hf_config_attrs

    ask, video = ASKING[name]
    family, random = FAMILIES.get(name, _NO_IMAGES), Random(f"{name} {number} fields")
    asked, raw, settings, count, _ = asked_case(name, number, default, family, random, _maybe_remap_hf_config_attrs)
    video = {**video, **(CHANGED[name](random) if number and name in CHANGED else {})}
    image = asked.largest(count)
    if name in FAMILIES:
        asked.image = image or image_rule({**raw, "architectures": [name]}, settings).planned
    question = ask(asked, video)
    kept = {key: value for key, value in raw.items() if key not in _LEFT_OUT}
    planned = [
        [length, images, question(length, {"image": images, "video": 1})] for length in LENGTHS for images in (1, 0)
    ]
    return {"config": {**kept, "architectures": [name]}, "processor": settings, "video": video, "planned": planned}


if __name__ == "__main__":
    sys.exit(main())
