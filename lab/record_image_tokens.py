"""Records how many embeddings vLLM counts for images of drawn sizes, for every family that has a rule here.

vLLM's own processing classes are asked, with its configuration classes, and with image processors of ``transformers``
or stand-ins that hold the fields which vLLM reads of them. No file of a checkpoint is needed:

    PYTHONPATH=src:lab nice python lab/record_image_tokens.py [ARCHITECTURE ...]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import redirect_stdout
from copy import deepcopy
from functools import cached_property
from importlib import import_module
from io import StringIO
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

from ask_vllm import MODELS, answers_in, ask_vllm, config_of, names_given, pretend, registry_entries, write_answers
from tokenyard.models.images.largest import LARGEST
from tokenyard.models.images.videos import KNOWN as VIDEO_FAMILIES

OUT = MODELS / "image_tokens.json.gz"
SIZES_PER_CASE = 120
CASES = 3
"""Cases of a family: as its classes have it, and with fields drawn by a seed."""
_COMMON = ((640, 480), (1280, 720), (1920, 1080), (1024, 1024), (336, 336), (512, 512), (3840, 2160), (1, 1), (8, 900))
_LEFT_OUT = ("text_config", "llm_config", "language_config", "audio_config", "sound_config", "talker_config")

# ---------------------------------------------------------------------------------------------------------------------
# What is drawn: images, and fields of the files.


def images(name: str, case: int, tile: int) -> list[tuple[int, int]]:
    """Widths and heights: common ones, whole tiles, and others from a few pixels to a few thousand."""
    random = Random(f"{name} {case}")
    drawn = list(_COMMON)
    while len(drawn) < SIZES_PER_CASE:
        kind = random.random()
        if kind < 0.15:
            drawn.append((tile * random.randint(1, 6), tile * random.randint(1, 6)))
        elif kind < 0.25:
            edge = random.randint(8, 4000)
            drawn.append((edge, edge))
        else:
            drawn.append((round(2 ** random.uniform(3, 13)), round(2 ** random.uniform(3, 13))))
    return drawn


def _none(_random: Random, _tile: int) -> _Drawn:
    return {}, {}


def _pixels(random: Random, _: int) -> _Drawn:
    least, most = random.choice((3136, 4096, 65_536, 200_704)), random.choice((401_408, 1_003_520, 12_845_056))
    return {}, {"size": {"shortest_edge": least, "longest_edge": most}}


def _patches(random: Random, _: int) -> _Drawn:
    return {}, {**_KIMI, "in_token_limit": random.choice((1024, 4096, 16_384))}


def _patches_and_edges(random: Random, _: int) -> _Drawn:
    limits = {"in_patch_limit": random.choice((4096, 16_384)), "patch_limit_on_one_side": random.choice((64, 512))}
    return {}, {"media_proc_cfg": {**_KIMI_25, **limits}}


def _tiles(random: Random, _: int) -> _Drawn:
    return {"max_dynamic_patch": random.choice((1, 4, 6, 12, 24)), "use_thumbnail": random.random() < 0.5}, {}


def _edges(random: Random, _: int) -> _Drawn:
    tile = random.choice((364, 384, 512))
    return {}, {"max_image_size": {"longest_edge": tile}, "size": {"longest_edge": tile * random.choice((1, 2, 4))}}


def _canvas(random: Random, _: int) -> _Drawn:
    return {}, {"max_patches": random.choice((1, 5, 16, 24)), "resize_to_max_canvas": random.random() < 0.3}


def _sizes(random: Random, tile: int) -> _Drawn:
    count = random.randint(2, 20)
    return {
        "image_grid_pinpoints": [[tile * random.randint(1, 6), tile * random.randint(1, 6)] for _ in range(count)]
    }, {}


def _candidates(random: Random, _: int) -> _Drawn:
    return {"candidate_resolutions": [[384 * random.randint(1, 5), 384 * random.randint(1, 5)] for _ in range(9)]}, {}


def _margins(random: Random) -> list[int]:
    return [random.randint(0, 6), random.randint(0, 6)]


_Drawn = tuple[dict[str, Any], dict[str, Any]]
"""Fields of the configuration by their path, and of the processor's file."""
CHANGES: dict[str, Callable[[Random, int], _Drawn]] = {
    "area": _pixels,
    "edge": lambda random, _: ({}, {"size": {"longest_edge": random.choice((448, 1024, 1540, 2048))}}),
    "kimi": _patches,
    "kimi 2.5": _patches_and_edges,
    "tiles": _tiles,
    "got": lambda random, _: ({}, {"max_patches": random.choice((1, 4, 12, 16))}),
    "idefics": _edges,
    "llama": _canvas,
    "pinpoints": _sizes,
    "cohere": lambda random, _: ({}, {"max_patches": random.choice((1, 4, 12, 20))}),
    "gemma4": lambda random, _: ({"vision_config.default_output_length": random.choice((70, 140, 560, 1120))}, {}),
    "phi": lambda random, _: ({}, {"dynamic_hd": random.choice((4, 12, 36))}),
    "vl2": _candidates,
    "molmo": lambda random, _: ({}, {"max_crops": random.choice((1, 4, 9, 24)), "overlap_margins": _margins(random)}),
    "molmo2": lambda random, _: (
        {},
        {
            "max_crops": random.choice((1, 4, 12, 24)),
            "overlap_margins": _margins(random),
            "pooling_size": [random.choice((1, 2, 3)), random.choice((1, 2, 3))],
            "image_use_col_tokens": random.random() < 0.5,
            "use_single_crop_col_tokens": random.random() < 0.5,
        },
    ),
    "step": lambda random, _: ({"vision_config.enable_patch": random.random() < 0.5}, {}),
    "lfm": lambda random, _: (
        {},
        {
            "max_tiles": random.choice((4, 6, 10, 16)),
            "max_image_tokens": random.choice((128, 256, 400)),
            "min_image_tokens": random.choice((16, 64, 100)),
            "tile_size": random.choice((256, 384, 512)),
            "max_pixels_tolerance": random.choice((1.0, 1.5, 2.0, 3.0)),
        },
    ),
    "gemma4 unified": lambda random, _: ({"vision_config.num_soft_tokens": random.choice((70, 140, 560, 1120))}, {}),
    "nano": lambda random, _: (
        {"use_thumbnail": random.random() < 0.5, "force_image_size": random.choice((384, 512, 768))},
        {},
    ),
    "minimax": lambda random, _: (
        {},
        random.choice(
            ({"max_pixels": random.choice((200_704, 1_003_520))}, {"max_long_side_pixel": random.choice((1008, 2016))})
        ),
    ),
    "ovis": lambda random, _: ({}, {"size": {"shortest_edge": random.choice((384, 448, 512))}}),
    "h2o": lambda random, tile: ({**_tiles(random, tile)[0], "use_msac": random.random() < 0.7}, {}),
    "nemotron": lambda random, _: (
        {},
        {"max_num_tiles": random.choice((1, 4, 6, 24)), "use_thumbnail": random.random() < 0.5},
    ),
    "slices": lambda random, _: (
        {},
        {
            "max_slice_nums": random.choice((1, 4, 9, 16)),
            "scale_resolution": random.choice((336, 448, 560)),
            "downsample_mode": random.choice(("4x", "16x")),
        },
    ),
}
"""Kind of rule -> fields that are drawn for it; the edge of a tile is given."""

LISTED = json.loads(Path(__file__).with_name("planner").joinpath("families.json").read_text(encoding="utf-8"))
"""Which families are asked about, and how."""
PUBLISHED: dict[str, dict[str, Any]] = LISTED["published"]
"""What no class has by itself and every checkpoint has: as many tiles as published ones, nine at most."""

# ---------------------------------------------------------------------------------------------------------------------
# How vLLM is asked.


def _path(module: str) -> str:
    return module if module.startswith("vllm.") else f"vllm.model_executor.models.{module}"


def class_called(name: str) -> Any:
    """vLLM's model class for an architecture that sees or hears."""
    from vllm.model_executor.models.registry import _MULTIMODAL_MODELS

    module, class_name = _MULTIMODAL_MODELS[name]
    return getattr(import_module(_path(module)), class_name)


class Asked:
    """A processing class of vLLM's beside a configuration, with what stands in for the processor's file."""

    def __init__(self, name: str, config: Any, processor: Mapping[str, Any]) -> None:
        made_by = class_called(name)._processor_factory.info  # noqa: SLF001
        context = SimpleNamespace(
            get_hf_config=lambda *_: config,
            get_merged_mm_kwargs=dict,
            get_hf_processor=lambda *_, **__: self.processor,
            get_hf_image_processor_config=lambda: dict(processor),
            get_tokenizer=MagicMock(),
            tokenizer=MagicMock(),
            model_config=SimpleNamespace(trust_remote_code=False, hf_config=config),
        )
        self.processor: Any = MagicMock()
        self.config = config
        self.image = 0
        """Embeddings of the largest image, for questions that come after."""
        self.planned: Callable[[], int] | None = None
        """What it says of the image with the most, where it says that by itself."""
        self._made_by, self.context = made_by, context
        self._named = name != "DotsOCRForCausalLM"
        """That one asks for the name of the configuration's class."""

    @cached_property
    def info(self) -> Any:
        """The processing class; Kimi K2.5's reads a file when it is made, and is not needed."""
        info = self._made_by(self.context)
        if not self._named:
            info.get_hf_config = lambda: self.config
        info._merge_and_resolve_mm_processor_kwargs = lambda _: {}  # noqa: SLF001
        return info

    def largest(self, count: Callable[[int, int], int]) -> int | None:
        """Embeddings of the image that vLLM takes for the one with the most; None where it cannot say so here."""
        try:
            if self.planned is not None:
                return self.planned()
            size = self.info.get_image_size_with_most_features()
            return count(size.width, size.height)
        except Exception:  # noqa: BLE001 - some read files for it, each in its own way
            return None


def _by_size(asked: Asked, processor: Mapping[str, Any]) -> Callable[[int, int], int]:
    image_processor = SimpleNamespace(size=processor.get("size", processor))
    asked.processor = SimpleNamespace(image_processor=image_processor)
    return lambda wide, high: int(
        asked.info.get_num_image_tokens(
            image_width=wide, image_height=high, image_processor=image_processor, mm_kwargs={}
        )
    )


def _without_arguments(asked: Asked, _: Mapping[str, Any]) -> Callable[[int, int], int]:
    return lambda *_: int(asked.info.get_num_image_tokens())


def _with_its_ends(asked: Asked, _: Mapping[str, Any]) -> Callable[[int, int], int]:
    vision = asked.config.vision_config
    asked.config.vision_config = {name: getattr(vision, name) for name in ("image_size", "patch_size")}
    return lambda *_: int(asked.info.get_num_image_feature_tokens())


def _plain(asked: Asked, processor: Mapping[str, Any]) -> Callable[[int, int], int]:
    asked.processor = SimpleNamespace(image_processor=SimpleNamespace(**processor))
    return lambda wide, high: int(asked.info.get_num_image_tokens(image_width=wide, image_height=high))


def _own_processor(asked: Asked, _: Mapping[str, Any]) -> Callable[[int, int], int]:
    processor = asked.info.get_hf_processor()
    return lambda wide, high: int(
        asked.info.get_num_image_tokens(image_width=wide, image_height=high, processor=processor)
    )


def _one_more_argument(asked: Asked, processor: Mapping[str, Any]) -> Callable[[int, int], int]:
    image_processor = SimpleNamespace(size=processor["size"])
    asked.info.get_image_processor = lambda **_: image_processor
    return lambda wide, high: int(
        asked.info.get_num_image_tokens(image_width=wide, image_height=high, image_processor=image_processor)
    )


def _of_transformers(module: str, class_name: str, tokens: str) -> Callable[..., Callable[[int, int], int]]:
    def asking(asked: Asked, settings: Mapping[str, Any]) -> Callable[[int, int], int]:
        made_by = getattr(import_module(f"transformers.models.{module}"), class_name)
        length = _TOKENS_OF_A_TILE[tokens](asked.config)
        processor = SimpleNamespace(image_processor=made_by(**settings), **{tokens: length})
        return lambda wide, high: int(
            asked.info.get_num_image_tokens(image_width=wide, image_height=high, processor=processor, mm_kwargs={})
        )

    return asking


_TOKENS_OF_A_TILE: dict[str, Callable[[Any], int]] = {
    # As processing_idefics3.py has it, from the fields that the model's own class reads.
    "image_seq_len": lambda config: int(
        (config.vision_config.image_size // config.vision_config.patch_size) ** 2 / config.scale_factor**2
    ),
    "image_seq_length": lambda config: int(config.image_seq_length),
}


def _llama(asked: Asked, settings: Mapping[str, Any]) -> Callable[[int, int], int]:
    """What Mllama4MultiModalProcessor does between the processor's answer and the placeholders."""
    import torch
    from transformers.image_utils import SizeDict
    from transformers.models.llama4.image_processing_llama4 import find_supported_resolutions, get_best_fit

    vision = asked.config.vision_config
    tile, each = vision.image_size, asked.info.get_patch_per_chunk(vision)

    def count(wide: int, high: int) -> int:
        found = find_supported_resolutions(settings.get("max_patches", 16), SizeDict(height=tile, width=tile))
        largest = settings.get("resize_to_max_canvas", False)
        best = get_best_fit((high, wide), torch.tensor(found), resize_to_max_canvas=largest)
        tiles = int(best[0] // tile) * int(best[1] // tile)
        return int(each * (1 if tiles == 1 else tiles + 1))

    return count


def _cohere(asked: Asked, settings: Mapping[str, Any]) -> Callable[[int, int], int]:
    from transformers.models.cohere2_vision.image_processing_cohere2_vision import Cohere2VisionImageProcessor as Theirs

    tiles = SimpleNamespace(**{"min_patches": 1, "max_patches": 12, "crop_to_patches": True, **settings})
    tiles.get_number_of_image_patches = lambda *size: Theirs.get_number_of_image_patches(tiles, *size)
    processor = SimpleNamespace(image_processor=tiles)
    return lambda wide, high: (
        256
        * int(  # patch_size**2, as _get_prompt_updates has it
            asked.info.get_num_patches(image_width=wide, image_height=high, processor=processor, mm_kwargs={})
        )
    )


def _gemma4(asked: Asked, _: Mapping[str, Any]) -> Callable[[int, int], int]:
    return lambda wide, high: int(asked.info._compute_num_soft_tokens(wide, high))  # noqa: SLF001


def _kimi_k25(asked: Asked, settings: Mapping[str, Any]) -> Callable[[int, int], int]:
    """vLLM's own copy of what the checkpoint's file does."""
    from vllm.transformers_utils.processors.kimi_k25_vision_fused import navit_resize_image

    limits = settings["media_proc_cfg"]
    return lambda wide, high: int(
        navit_resize_image(
            wide, high, limits["patch_size"], limits["merge_kernel_size"], limits["in_patch_limit"],
            limits["patch_limit_on_one_side"], None,
        )["num_tokens"]
    )  # fmt: skip


def _phi(asked: Asked, settings: Mapping[str, Any]) -> Callable[[int, int], int]:
    from vllm.transformers_utils.processors.internvl import find_closest_aspect_ratio

    # Its checkpoint's file has this function as InternVL's has it.
    def nearest(ratio: float, shapes: Any, wide: int, high: int, size: int) -> Any:
        return find_closest_aspect_ratio(ratio, shapes, width=wide, height=high, image_size=size)

    hd = settings.get("dynamic_hd", 36)
    processor = SimpleNamespace(image_processor=SimpleNamespace(dynamic_hd=hd, find_closest_aspect_ratio=nearest))
    asked.processor = processor
    return lambda wide, high: int(
        asked.info.get_num_image_tokens(image_width=wide, image_height=high, processor=processor)
    )


def _vl2(asked: Asked, _: Mapping[str, Any]) -> Callable[[int, int], int]:
    from vllm.transformers_utils.processors.deepseek_vl2 import DeepseekVLV2Processor

    config = asked.config
    processor = SimpleNamespace(
        image_size=384, patch_size=14, downsample_ratio=2, candidate_resolutions=config.candidate_resolutions
    )
    processor.select_best_resolution = lambda size: DeepseekVLV2Processor.select_best_resolution(processor, size)
    asked.processor = processor
    return lambda wide, high: int(asked.info.get_num_image_tokens(image_width=wide, image_height=high))


def _molmo(asked: Asked, settings: Mapping[str, Any]) -> Callable[[int, int], int]:
    """Only its patches are embeddings: four tokens stand at the ends, and one at the end of every row."""
    fields = SimpleNamespace(**settings)
    asked.processor = SimpleNamespace(image_processor=fields)

    def count(wide: int, high: int) -> int:
        size = {"image_width": wide, "image_height": high, "image_processor": fields}
        _, rows = asked.info.get_patches_grid_size(**size)
        ends = 4 + fields.image_token_length_h + (rows + 1) // 2
        return int(asked.info.get_num_image_tokens(**size)) - int(ends)

    return count


def _molmo2(asked: Asked, settings: Mapping[str, Any]) -> Callable[[int, int], int]:
    rows = ("image_use_col_tokens", "use_single_crop_col_tokens")
    fields = SimpleNamespace(**{name: value for name, value in settings.items() if name not in rows})
    processor = SimpleNamespace(image_processor=fields, **{name: settings.get(name) for name in rows})
    asked.processor = processor
    return lambda wide, high: int(
        asked.info.get_num_image_tokens(image_width=wide, image_height=high, processor=processor)
    )


def _step3(asked: Asked, _: Mapping[str, Any]) -> Callable[[int, int], int]:
    """Only patches are embeddings; the budget has the tokens around them as well."""
    processor = asked.info.get_image_processor()
    asked.planned = lambda: int(asked.info.get_mm_max_tokens_per_item(1, {"image": 1})["image"])

    def count(wide: int, high: int) -> int:
        windows, rows = processor.patcher.get_num_patches(wide, high)
        return int(processor.get_num_image_tokens(wide, high) - 2 * (windows + 1) - rows)

    return count


def _lfm2(asked: Asked, settings: Mapping[str, Any]) -> Callable[[int, int], int]:
    import torch
    from transformers.models.lfm2_vl.image_processing_lfm2_vl import Lfm2VlImageProcessor as Theirs

    names = (
        "downsample_factor", "min_tiles", "max_tiles", "min_image_tokens", "max_image_tokens", "encoder_patch_size",
        "tile_size", "max_pixels_tolerance",
    )  # fmt: skip
    fields = {name: getattr(Theirs, name) for name in names} | dict(settings)
    processor = SimpleNamespace(image_processor=SimpleNamespace(**fields))
    asked.processor = processor
    limits = {name: fields[name] for name in (names[0], *names[3:6])}

    def count(wide: int, high: int) -> int:
        scaled = Theirs.smart_resize(None, high, wide, **limits)
        shapes = torch.tensor([[edge // fields["encoder_patch_size"] for edge in reversed(scaled)]])
        around = {"processor": processor, "mm_kwargs": {}}
        whole, tile = asked.info.get_num_image_tokens(spatial_shapes=shapes, **around)
        grid = asked.info._get_image_feature_grid_size(image_width=wide, image_height=high, **around)  # noqa: SLF001
        tiles = grid[0] * grid[1]
        return int(whole + tiles * tile * (tiles > 1))

    return count


def _ovis25(asked: Asked, _: Mapping[str, Any]) -> Callable[[int, int], int]:
    """What its processor does to an image, without the pixels; all that stands in the prompt is an embedding."""
    from vllm.transformers_utils.processors import ovis2_5

    theirs, vit = ovis2_5.Ovis2_5Processor, asked.config.vit_config
    processor = SimpleNamespace(
        patch_size=vit.patch_size, hidden_stride=vit.hidden_stride, temporal_patch_size=vit.temporal_patch_size
    )
    processor.get_token_value = lambda name: name
    processor.construct_visual_indicators = lambda *given: theirs.construct_visual_indicators(processor, *given)
    asked.processor = MagicMock()

    def count(wide: int, high: int) -> int:
        with redirect_stdout(StringIO()):
            edges = theirs.smart_resize(
                processor, high, wide, vit.patch_size * vit.hidden_stride, ovis2_5.MIN_PIXELS, ovis2_5.MAX_PIXELS
            )
        if 0 in edges:
            raise ValueError(edges)
        grid = [1, *(edge // vit.patch_size for edge in edges)]
        return len(theirs.construct_visual_placeholders(processor, grid))

    return count


def _nemotron(asked: Asked, settings: Mapping[str, Any]) -> Callable[[int, int], int]:
    module: Any = import_module("vllm.model_executor.models.nemotron_vl")
    module.cached_image_processor_from_config = lambda *_, **__: SimpleNamespace(**settings)
    return _own_processor(asked, settings)


def _minicpm46(asked: Asked, settings: Mapping[str, Any]) -> Callable[[int, int], int]:
    from transformers.models.minicpmv4_6.image_processing_pil_minicpmv4_6 import MiniCPMV4_6ImageProcessorPil
    from vllm.multimodal.parse import ImageSize

    asked.processor = SimpleNamespace(image_processor=MiniCPMV4_6ImageProcessorPil(**settings))

    def count(wide: int, high: int) -> int:
        grid, whole, each = asked.info._compute_visual_tokens(ImageSize(width=wide, height=high))  # noqa: SLF001
        return int(whole + grid[0] * grid[1] * each)

    return count


def _nano(asked: Asked, _: Mapping[str, Any]) -> Callable[[int, int], int]:
    from vllm.transformers_utils.processors.nano_nemotron_vl import BaseNanoNemotronVLProcessor as Theirs

    made = type("Processor", (Theirs,), dict.fromkeys(Theirs.__abstractmethods__))
    processor: Any = made(config=asked.config, tokenizer=MagicMock(), max_model_len=131_072)
    asked.info.get_hf_processor = lambda **_: processor
    asked.planned = lambda: int(asked.info.get_max_image_tokens())
    most = processor.max_num_tiles
    return lambda wide, high: int(
        processor.get_num_image_tokens(image_width=wide, image_height=high, max_num_tiles=most)
    )


def _minimax(asked: Asked, settings: Mapping[str, Any]) -> Callable[[int, int], int]:
    from vllm.transformers_utils.processors.minimax_m3 import MiniMaxM3VLImageProcessor as Theirs

    names = (
        "patch_size", "merge_size", "temporal_patch_size", "max_pixels", "max_long_side_pixel", "min_short_side_pixel",
        "max_total_pixels",
    )  # fmt: skip
    fields = SimpleNamespace(**({name: getattr(Theirs, name) for name in names} | dict(settings)))
    asked.processor = SimpleNamespace(image_processor=fields)

    def count(wide: int, high: int) -> int:
        patches = Theirs.get_number_of_image_patches(fields, high, wide)
        size = {"image_width": wide, "image_height": high, "image_processor": fields, "mm_kwargs": {}}
        tokens = int(asked.info.get_num_image_tokens(**size))
        assert tokens == patches // fields.merge_size**2
        return tokens

    return count


class _Picture:
    """An image of a size, without pixels."""

    def __init__(self, wide: int, high: int) -> None:
        self.size = (wide, high)

    def crop(self, box: tuple[int, int, int, int]) -> _Picture:
        return _Picture(box[2] - box[0], box[3] - box[1])


def _ovis(asked: Asked, settings: Mapping[str, Any]) -> Callable[[int, int], int]:
    """What its processor does to an image; all that stands in the prompt is an embedding."""
    import torch
    from vllm.transformers_utils.processors.ovis import OvisProcessor as Theirs

    def scaled(_: Any, size: Mapping[str, int], **__: Any) -> dict[str, Any]:
        if not size["height"] or not size["width"]:
            raise ValueError(size)
        return {"pixel_values": torch.zeros(1, 3, size["height"], size["width"])}

    tokens = {
        name: number for number, name in enumerate(("image_start", "image_atom", "image_prefix", "image_col_sep"))
    }
    processor = SimpleNamespace(
        image_processor=SimpleNamespace(size=settings["size"], preprocess=scaled),
        image_segment_len=asked.info.get_image_segment_len(),
        get_token_value=lambda name: tokens.setdefault(name, len(tokens)),
    )
    processor.get_image_size = lambda: Theirs.get_image_size(processor)
    processor.construct_image_indicators = lambda grid: Theirs.construct_image_indicators(processor, grid)
    processor.construct_image_placeholders = lambda grid: Theirs.construct_image_placeholders(processor, grid)
    asked.processor = processor
    limits = {"max_partition": 9, "covering_threshold": 0.9, "do_convert_rgb": False, "return_tensors": "pt"}
    return lambda wide, high: len(Theirs.preprocess_image(processor, _Picture(wide, high), **limits)[1])


def _named_count(asked: Asked, _: Mapping[str, Any]) -> Callable[[int, int], int]:
    return lambda *_: int(asked.info.get_max_tokens_per_item(1, {"image": 1})["image"])


def _of_config(field: str) -> Callable[..., Callable[[int, int], int]]:
    """Where vLLM takes the processor's number, which the processor takes of this field for any image."""

    def asking(asked: Asked, _: Mapping[str, Any]) -> Callable[[int, int], int]:
        processor = SimpleNamespace(image_seq_length=getattr(asked.config, field), image_processor=MagicMock())
        asked.info.get_num_crops = lambda **_: 0
        return lambda wide, high: int(
            asked.info.get_num_image_tokens(image_width=wide, image_height=high, processor=processor, mm_kwargs={})
        )

    return asking


_got = _of_transformers("got_ocr2.image_processing_pil_got_ocr2", "GotOcr2ImageProcessorPil", "image_seq_length")
_idefics = _of_transformers("idefics3.image_processing_pil_idefics3", "Idefics3ImageProcessorPil", "image_seq_len")
_smol = _of_transformers("smolvlm.image_processing_pil_smolvlm", "SmolVLMImageProcessorPil", "image_seq_len")
_of_tokens_per_image = _of_config("mm_tokens_per_image")
_KIMI_25 = {"in_patch_limit": 16_384, "patch_size": 14, "merge_kernel_size": 2, "patch_limit_on_one_side": 512}
_KIMI = {"in_token_limit": 4096, "patch_size": 14, "merge_kernel_size": [2, 2]}

Family = tuple[str, Any, dict[str, Any]]
FAMILIES: dict[str, Family] = {
    name: (rule, globals()[f"_{asking}"], processor) for name, (rule, asking, processor) in LISTED["images"].items()
}
"""Architecture -> kind of rule, how vLLM is asked, and what its processor's file has."""

# ---------------------------------------------------------------------------------------------------------------------
# Videos, of the families whose rule is known here.

VIDEO_LIMITS = ((3136, 12_845_056), (4096, 25_165_824), (131_072, 786_432))


def _videos(name: str, number: int, config: Any) -> dict[str, Any]:
    """Widths, heights and frames with the embeddings that vLLM counts, None where it refuses the video."""
    least, most = VIDEO_LIMITS[number % len(VIDEO_LIMITS)]
    size = {"shortest_edge": least, "longest_edge": most}
    asked = Asked(name, config, {})
    # Its kind is looked at, and its size is read; transformers makes none where there is no torchvision.
    kind: Any = type("VideoProcessor", (), {"size": size})
    module: Any = import_module("vllm.model_executor.models.qwen3_vl")
    module.Qwen3VLVideoProcessor = kind
    processor = kind()
    random = Random(f"{name} {number} videos")
    found: list[list[int | None]] = []
    for wide, high in images(name, number, 448):
        frames = random.choice((1, 2, 3, 4, 5, 8, 15, 16, 31, 64, 100, 240, 768))
        try:
            count = asked.info.get_num_video_tokens(
                image_width=wide, image_height=high, num_frames=frames, image_processor=processor, mm_kwargs={}
            )
            found.append([wide, high, frames, int(count)])
        except (ValueError, ZeroDivisionError):
            found.append([wide, high, frames, None])
    return {"processor": {"size": size}, "videos": found}


BY_IMAGE = tuple(name for name, rule in LARGEST.items() if not rule.by_frame and not name.startswith("Gemma4"))
"""Families whose largest video is asked for here; record_largest_videos.py asks the others."""
LENGTHS = (2048, 4096, 20_000, 32_768, 131_072, 262_144)


def _planned(asked: Asked) -> list[list[int]]:
    """Longest context, whether images are allowed, and the largest image and video that an encoder is planned for."""
    kind: Any = type(
        "VideoProcessor", (), {"size": {"shortest_edge": 4096, "longest_edge": 25_165_824}, "temporal_patch_size": 2}
    )
    module: Any = import_module("vllm.model_executor.models.qwen3_vl")
    module.Qwen3VLVideoProcessor = kind
    asked.info.get_video_processor = lambda **_: kind()
    found = []
    for length in LENGTHS:
        both, alone = (asked.info.get_mm_max_tokens_per_item(length, {"image": i, "video": 1}) for i in (1, 0))
        found.append([length, 1, int(both["image"]), int(both["video"])])
        found.append([length, 0, int(both["image"]), int(alone["video"])])
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Recording.


def record_families(
    out: Path, names: Iterable[str], asked: Callable[..., Any], shown: Callable[[list[Any]], Any], *, drop: bool = False
) -> dict[str, Any]:
    """Ask about all cases of families, a family in a process; one that cannot be asked stays as it was, or goes."""
    entries, known = registry_entries(), answers_in(out, "families")
    pretend()
    for name in names:
        answer = ask_vllm(asked, 3600, name=name, default=config_of(entries.get(name, {"cases": []})))
        if isinstance(answer, dict):
            print(f"{name}: {answer['error'][:200]}", flush=True)
            if drop:
                known.pop(name, None)
        else:
            known[name] = answer
            print(name, shown(answer), flush=True)
    return known


def main() -> int:
    """Ask about every family, and write the answers."""
    names = names_given(__doc__, sorted(FAMILIES))
    known = record_families(
        OUT, names, cases, lambda found: ([len(each["images"]) for each in found], found[0]["images"][:3])
    )
    write_answers(OUT, {name: each for name, each in known.items() if name in FAMILIES}, "families")
    return 0


def cases(name: str, default: dict[str, Any]) -> list[dict[str, Any]]:
    """All cases of a family."""
    return [_case(name, case, default) for case in range(CASES)]


def set_fields(raw: dict[str, Any], fields: Mapping[str, Any]) -> None:
    """Put fields into a configuration by their path, ``section.field``."""
    for path, value in fields.items():
        *sections, field = path.split(".")
        section = raw
        for each in sections:
            section = section[each]
        section[field] = value


def asked_case(
    name: str,
    number: int,
    default: Mapping[str, Any],
    family: Family,
    random: Random,
    remapped: Callable[[Any], object] | None = None,
) -> tuple[Asked, dict[str, Any], dict[str, Any], Callable[[int, int], int], int]:
    """A case of a family: whom to ask, both files, how an image is counted, and the edge of a tile."""
    from planner.draw import config_class

    rule, asking, processor = family
    raw, settings = deepcopy(dict(default)), deepcopy(processor)
    set_fields(raw, PUBLISHED.get(name, {}))
    edge = (raw.get("vision_config") or {}).get("image_size")
    tile = edge if isinstance(edge, int) else 448
    if number:
        drawn, others = CHANGES.get(rule, _none)(random, tile)
        settings |= others
        set_fields(raw, drawn)
    config = config_class(name)(**{key: deepcopy(value) for key, value in raw.items() if key != "architectures"})
    if remapped is not None:
        remapped(config)
    asked = Asked(name, config, settings)
    return asked, raw, settings, asking(asked, settings), tile


def _case(name: str, number: int, default: Mapping[str, Any]) -> dict[str, Any]:
    random = Random(f"{name} {number} fields")
    asked, raw, settings, count, tile = asked_case(name, number, default, FAMILIES[name], random)
    found: list[list[int | None]] = []
    for wide, high in images(name, number, tile):
        try:
            found.append([wide, high, count(wide, high)])
        except (ValueError, ZeroDivisionError):
            found.append([wide, high, None])
    kept = {key: value for key, value in raw.items() if key not in _LEFT_OUT}
    return {
        **({"video": _videos(name, number, asked.config)} if name in VIDEO_FAMILIES else {}),
        "config": {**kept, "architectures": [name]},
        "processor": settings,
        "images": found,
        "largest": asked.largest(count),
        **({"planned": _planned(asked)} if name in BY_IMAGE else {}),
    }


if __name__ == "__main__":
    sys.exit(main())
