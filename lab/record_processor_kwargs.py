"""Records how large images and videos are with ``--mm-processor-kwargs``: vLLM's answers, of Qwen's families.

vLLM's own processing classes are asked, beside transformers' own image and video processors, made with those arguments
as vLLM makes them. Run it with the Python of an environment that has vLLM 0.33 in it:

    PYTHONPATH=src:lab nice python lab/record_processor_kwargs.py
"""

from __future__ import annotations

import json
from copy import deepcopy
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from ask_vllm import MODELS, ask_vllm, pretend

OUT = MODELS / "processor_kwargs.json"
LENGTH = 131_072
SHOWN = (3000, 2000, 8)
"""Width and height in pixels, and frames, of what is shown to it."""
FAMILIES = {
    "Qwen2VLForConditionalGeneration": ("qwen2_vl", "Qwen2VL", "qwen2_vl", "Qwen2VLConfig"),
    "Qwen2_5_VLForConditionalGeneration": ("qwen2_5_vl", "Qwen2_5_VL", "qwen2_vl", "Qwen2_5_VLConfig"),
    "Qwen3VLForConditionalGeneration": ("qwen3_vl", "Qwen3VL", "qwen3_vl", "Qwen3VLConfig"),
    "Qwen3VLMoeForConditionalGeneration": ("qwen3_vl_moe", "Qwen3VLMoe", "qwen3_vl", "Qwen3VLMoeConfig"),
    "Qwen3_5ForConditionalGeneration": ("qwen3_5", "Qwen3_5", "qwen3_vl", "Qwen3_5Config"),
    "Qwen3_5MoeForConditionalGeneration": ("qwen3_5", "Qwen3_5Moe", "qwen3_vl", "Qwen3_5MoeConfig"),
}
"""By architecture: vLLM's module and class, the module of the video processor, and the configuration's class."""
SIZE = {"shortest_edge": 4096, "longest_edge": 2_000_000}
SAID: list[dict[str, Any]] = [
    {},
    {"max_pixels": 1_003_520},
    {"max_pixels": 777_777, "min_pixels": 50_176},
    {"min_pixels": 200_704},
    {"size": SIZE},
    {"size": {"longest_edge": 1_310_720}},
    {"size": SIZE, "max_pixels": 640_000},
    {"size": {"shortest_edge": 65_536, "longest_edge": 16_777_216}},
    {"fps": 1},
]


def stored(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What files of a published checkpoint say of images and of videos."""
    if FAMILIES[name][2] == "qwen2_vl":
        both = {"size": {"shortest_edge": 3136, "longest_edge": 12_845_056}}
        return both, deepcopy(both)
    image = {"size": {"shortest_edge": 65_536, "longest_edge": 16_777_216}, "patch_size": 16}
    return image, {"size": {"shortest_edge": 4096, "longest_edge": 25_165_824}}


def asked(name: str, said: dict[str, Any]) -> list[int] | str:
    """Embeddings of the largest image and video, and of an image and a video of one size; or how it is refused."""
    context = import_module("vllm.multimodal.processing.context")
    module, prefix, video_module, config_class = FAMILIES[name]
    config = getattr(import_module("transformers"), config_class)()
    videos = "Qwen2VLVideoProcessor" if video_module == "qwen2_vl" else "Qwen3VLVideoProcessor"
    image_module = import_module("transformers.models.qwen2_vl.image_processing_qwen2_vl")
    of_videos = getattr(import_module(f"transformers.models.{video_module}.video_processing_{video_module}"), videos)
    image_file, video_file = stored(name)
    try:
        image = image_module.Qwen2VLImageProcessor.from_dict(image_file, **deepcopy(said))
        video = of_videos.from_dict(video_file, **deepcopy(said))
    except Exception as error:  # noqa: BLE001 - whatever the class raises keeps vLLM from starting
        return f"{type(error).__name__}: {error}"
    if video_module == "qwen3_vl":  # without torchvision vLLM has a stand-in for it, and takes a video for an image
        import_module("vllm.model_executor.models.qwen3_vl").Qwen3VLVideoProcessor = of_videos  # type: ignore[attr-defined]
    info_class = getattr(import_module(f"vllm.model_executor.models.{module}"), f"{prefix}ProcessingInfo")
    info = info_class(SimpleNamespace(get_hf_config=lambda *_: config, model_config=SimpleNamespace()))
    info.ctx.get_hf_processor = lambda *_, **__: SimpleNamespace(image_processor=image, video_processor=video)
    info.ctx.get_merged_mm_kwargs = lambda kwargs, **routed: context._resolve_mm_processor_kwargs(  # noqa: SLF001
        {**deepcopy(said), **kwargs}, **routed
    )
    info.__dict__["supported_mm_processor_kwargs"] = {
        "images_kwargs": set(image.valid_kwargs.__annotations__),
        "videos_kwargs": set(video.valid_kwargs.__annotations__),
    }
    try:
        planned = info.get_mm_max_tokens_per_item(LENGTH, {"image": 1, "video": 1})
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"
    one = {"image_width": SHOWN[0], "image_height": SHOWN[1], "mm_kwargs": {}}
    of_image = info.get_num_image_tokens(**one, image_processor=image)
    of_video = info.get_num_video_tokens(**one, image_processor=video, num_frames=SHOWN[2])
    return [int(each) for each in (planned["image"], planned["video"], of_image, of_video)]


def main() -> None:
    """Ask, and write what was said."""
    pretend()
    cases = [
        {"name": name, "files": stored(name), "said": said, "planned": ask_vllm(asked, name=name, said=said)}
        for name in FAMILIES
        for said in SAID
    ]
    if lost := [case for case in cases if isinstance(case["planned"], dict)]:
        raise SystemExit(f"not answered: {lost}")
    OUT.write_text("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")
    print(f"{len(cases)} cases")


if __name__ == "__main__":
    main()
