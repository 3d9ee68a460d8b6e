"""Records the picture and the video that vLLM measures memory with where a line limits their sizes.

``--limit-mm-per-prompt '{"image": {"count": 2, "width": 512}}'`` makes the picture smaller that a class builds to
measure with. vLLM's own builders of such pictures and videos, and its own processing classes, are asked about drawn
sizes, beside the stand-ins of ``record_image_tokens.py``, as which this is run:

    PYTHONPATH=src:lab nice python lab/record_limited_items.py [ARCHITECTURE ...]

Its last lines say how often ``tokenyard`` takes as large a picture and a video. ``limits.json`` names the classes that
know the largest item by themselves, whose budgets stay as they are whatever a line says; and those that were asked,
which heed sizes or do not.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from random import Random
from types import SimpleNamespace
from typing import Any

from ask_vllm import MODELS, RECORDED, names_given, write_answers
from planner.limited import compared, compared_videos
from record_image_tokens import CASES, FAMILIES, LISTED, Asked, asked_case, class_called, record_families
from tokenyard.models.images.table import image_rule

OUT = MODELS / "limited_items.json.gz"
SIZES = 40
"""Drawn for each case of a family."""


def main() -> int:
    """Ask about every family, and write the answers and the table."""
    names = names_given(__doc__, sorted(FAMILIES))
    known = record_families(
        OUT, names, cases, lambda found: (found[0].get("heeded"), found[0].get("videos", [])[:2]), drop=True
    )
    write_answers(OUT, known, "families")
    table = {
        "own_budgets": sorted(_own_budgets()),
        "heeding": {name: found[0]["heeded"] for name, found in sorted(known.items()) if "heeded" in found[0]},
        "heeding_videos": sorted(name for name, found in known.items() if found[0].get("videos")),
    }
    (RECORDED / "limits.json").write_text(json.dumps(table, indent=1) + "\n")
    pairs = [pair for name, found in known.items() for case in found for pair in compared(name, case)]
    same = [ours == theirs for ours, theirs in pairs]
    print(f"{sum(same):,} of {len(same):,} limited pictures of {len(known)} families are vLLM's")
    pairs = [pair for name, found in known.items() for case in found for pair in compared_videos(name, case)]
    same = [ours == theirs for ours, theirs in pairs]
    print(f"{sum(same):,} of {len(same):,} limited videos of {len(table['heeding_videos'])} families are vLLM's")
    return 0


def cases(name: str, default: dict[str, Any]) -> list[dict[str, Any]]:
    """All cases of a family. No picture is made: some are as large as ten million pixels along an edge."""
    import vllm.multimodal.processing.dummy_inputs as building

    building.np = SimpleNamespace(full=lambda shape, *_, **__: _Frames(shape), uint8=None, zeros=lambda *_: None)
    building.Image = SimpleNamespace(new=lambda _mode, size, **_: SimpleNamespace(size=size), Image=object)
    return [_case(name, case, default) for case in range(CASES)]


class _Frames:
    """What stands in for the frames of a video: its shape."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape

    def copy(self) -> _Frames:
        return self


def _own_budgets() -> Iterator[str]:
    """Architectures whose class says how many embeddings the largest item has, rather than to build one."""
    from vllm.model_executor.models.registry import _MULTIMODAL_MODELS
    from vllm.multimodal.processing import BaseProcessingInfo

    for name in _MULTIMODAL_MODELS:
        try:
            info = class_called(name)._processor_factory.info  # noqa: SLF001
        except Exception as error:  # noqa: BLE001 - whatever a module does when it is imported
            print(f"{name}: {type(error).__name__}: {str(error)[:100]}", flush=True)
            continue
        if inspect.isfunction(info):  # LLaVA's and Mistral's, which choose among classes that build one
            continue
        asked = info.get_mm_max_tokens_per_item
        if asked is not BaseProcessingInfo.get_mm_max_tokens_per_item and "return None" not in inspect.getsource(asked):
            yield name


def _case(name: str, number: int, default: Mapping[str, Any]) -> dict[str, Any]:
    random = Random(f"{name} {number} limits")
    asked, raw, settings, count, _ = asked_case(
        name, number, default, FAMILIES[name], Random(f"{name} {number} fields")
    )
    videos = _videos(name, number, asked, raw, settings) if name in VIDEOS else {}
    if name.startswith("Gemma4"):  # pictures are filled up whatever their size, and a file of its processor is needed
        return {"config": {**raw, "architectures": [name]}, "processor": settings, **videos}
    heeded, build = _builder(name, asked)
    limited = []
    for _ in range(SIZES if heeded else 0):
        sizes = {edge: random.choice((1, 64, 224, 500, 512, 1000, 1024, 1999, 4096, 20_000)) for edge in _edges(random)}
        picture = build(sizes)
        try:
            tokens = count(*picture)
        except (ValueError, ZeroDivisionError):  # vLLM does not start
            tokens = None
        limited.append([sizes.get("width"), sizes.get("height"), *picture, tokens])
    kept = {"config": {**raw, "architectures": [name]}, "processor": settings, **videos}
    return {**kept, "heeded": heeded, "limited": limited}


def _edges(random: Random) -> tuple[str, ...]:
    return random.choice((("width",), ("height",), ("width", "height"), ("width", "height")))


def _builder(name: str, asked: Asked) -> tuple[bool, Callable[[dict[str, int]], tuple[int, int]]]:
    """Whether the class heeds sizes, and width and height of the picture that vLLM builds with them."""
    from vllm.config.multimodal import ImageDummyOptions, MultiModalDummyOptions

    made_by = class_called(name)._processor_factory.dummy_inputs  # noqa: SLF001
    heeded = "overrides" in inspect.getsource(made_by.get_dummy_mm_data)
    builder = made_by(asked.info)

    def build(sizes: dict[str, int]) -> tuple[int, int]:
        options = ImageDummyOptions(**sizes)
        try:
            pictures = builder.get_dummy_mm_data(32_768, {"image": 1}, MultiModalDummyOptions({"image": options}))
            (picture,) = pictures["image"]
        except (AttributeError, TypeError, ImportError):  # it asks for more: for its videos, for a processor's file
            size = asked.info.get_image_size_with_most_features()
            (picture,) = builder._get_dummy_images(  # noqa: SLF001
                width=size.width, height=size.height, num_images=1, overrides=options
            )
        wide, high = picture.size
        if not (isinstance(wide, int) and isinstance(high, int)):
            raise TypeError(f"the largest picture is {wide} by {high}")
        return wide, high

    return heeded, build


# ---------------------------------------------------------------------------------------------------------------------
# Videos.


def _by_frames(asked: Asked, video: Mapping[str, Any]) -> Callable[[int, int, int], int]:
    """Qwen2-VL and its kin, whose frames are as large as pictures, and LLaVA-OneVision's, which are all alike."""
    sized = {"image_processor": asked.processor.image_processor, "mm_kwargs": {}} if "plain" not in video else {}
    return lambda frames, wide, high: int(
        asked.info.get_num_video_tokens(image_width=wide, image_height=high, num_frames=frames, **sized)
    )


def _by_volume(asked: Asked, video: Mapping[str, Any]) -> Callable[[int, int, int], int]:
    """Qwen3-VL and its kin."""
    kind: Any = type("VideoProcessor", (), {"size": video["size"], "temporal_patch_size": 2})
    module: Any = import_module("vllm.model_executor.models.qwen3_vl")
    module.Qwen3VLVideoProcessor = kind
    asked.info.get_video_processor = lambda **_: kind()
    return lambda frames, wide, high: int(
        asked.info.get_num_video_tokens(
            image_width=wide, image_height=high, num_frames=frames, image_processor=kind(), mm_kwargs={}
        )
    )


def _of_glm(asked: Asked, video: Mapping[str, Any]) -> Callable[[int, int, int], int]:
    most = video["size"]["longest_edge"]
    asked.info._get_video_max_pixels = lambda: most  # noqa: SLF001
    return lambda frames, wide, high: int(
        asked.info._get_vision_info(  # noqa: SLF001
            image_width=wide, image_height=high, num_frames=frames, max_image_pixels=most
        )[1]
    )


def _of_gemma(asked: Asked, frames: int) -> list[Any]:
    """What the class says of so many frames: its budget."""
    from vllm.config.multimodal import VideoDummyOptions

    limits = {"video": VideoDummyOptions(num_frames=frames)}
    asked.context.model_config.get_multimodal_config = lambda: SimpleNamespace(limit_per_prompt=limits)
    tokens = int(asked.info.get_mm_max_tokens_per_item(LENGTHS[0], {"video": 1})["video"])
    return [LENGTHS[0], {"num_frames": frames}, [], tokens]


VIDEOS: dict[str, tuple[Any, dict[str, Any]]] = {
    name: (asking and globals()[f"_{asking}"], video) for name, (asking, video) in LISTED["limited videos"].items()
}
"""Architecture -> how a video's embeddings are counted, and what its video processor's file has."""
LENGTHS = (4096, 20_000, 32_768, 131_072)


def _videos(
    name: str, number: int, asked: Asked, raw: Mapping[str, Any], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Contexts, what a line says, frames and edges of the video that vLLM builds, and its embeddings.

    None for embeddings of one that it refuses.
    """
    asking, video = VIDEOS[name]
    if asking is None:
        return {"video": video, "videos": [_of_gemma(asked, frames) for frames in (1, 2, 8, 31, 32, 33, 100)]}
    asked.image = image_rule({**raw, "architectures": [name]}, settings).planned
    count, random = asking(asked, video), Random(f"{name} {number} videos")
    found = []
    for _ in range(SIZES):
        sizes = {edge: random.choice((64, 224, 512, 1000, 4096)) for edge in random.choice(((), *_EDGES))}
        if not sizes or random.random() < 0.5:
            sizes["num_frames"] = random.choice((1, 2, 3, 5, 8, 16, 100))
        length = random.choice(LENGTHS)
        frames, high, wide, _ = _built_video(name, asked, length, sizes).shape
        try:
            tokens = count(frames, wide, high)
        except (ValueError, ZeroDivisionError):  # vLLM does not start
            tokens = None
        found.append([length, sizes, [frames, wide, high], tokens])
    return {"video": video, "videos": found}


_EDGES = (("width",), ("height",), ("width", "height"))


def _built_video(name: str, asked: Asked, length: int, sizes: dict[str, int]) -> Any:
    from vllm.config.multimodal import MultiModalDummyOptions, VideoDummyOptions

    builder = class_called(name)._processor_factory.dummy_inputs(asked.info)  # noqa: SLF001
    options = VideoDummyOptions(**sizes)
    try:
        videos = builder.get_dummy_mm_data(length, {"video": 1}, MultiModalDummyOptions({"video": options}))["video"]
    except AttributeError:  # a model that hears asks for a processor of sound
        size = asked.info.get_image_size_with_most_features()
        frames = asked.info.get_num_frames_with_most_features(length, {"video": 1})
        videos = builder._get_dummy_videos(  # noqa: SLF001
            width=size.width, height=size.height, num_frames=frames, num_videos=1, overrides=options
        )
    (video,) = videos
    return video[0] if isinstance(video, tuple) else video


if __name__ == "__main__":
    sys.exit(main())
