"""Which rule an architecture has for its images, and which fields of its files fill it.

``families.json`` names the rule of each. Fields are those of ``config.json``; limits of pixels and tiles are those of
the image processor, whose file lies beside it. Without that file they are what published checkpoints of the family have
in it, else what the class has that reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from typing import Any, Literal

import msgspec

from tokenyard.errors import ConfigError
from tokenyard.files import packaged
from tokenyard.models.class_defaults import class_defaults
from tokenyard.models.images.crops import (
    BoundedSides,
    CoveringTiles,
    FittingTiles,
    OverlappingCrops,
    Slices,
    StretchedArea,
    TilesOfLarge,
    TilesTwice,
    Windows,
)
from tokenyard.models.images.processors import IMAGE_FILE
from tokenyard.models.images.rules import (
    BestResolution,
    BoundedArea,
    BoundedEdge,
    BoundedPatches,
    FilledArea,
    FixedCount,
    ImageRule,
    LeastPadding,
    LongestEdge,
    NearestPage,
    NearestTiles,
    PaddedResolution,
    PlainPatches,
    UnpaddedTiles,
)

# ---------------------------------------------------------------------------------------------------------------------
# The files' fields.


class ProcessorError(ConfigError):
    """A processor is told what cannot be."""


class ImageFields:
    """A model's ``config.json`` and what a processor is told beside it, in a ``file`` that messages name."""

    def __init__(self, config: Mapping[str, Any], processor: Mapping[str, Any], file: str = IMAGE_FILE) -> None:
        self._config = {**class_defaults(config.get("model_type")), **config}
        self._processor = processor
        self._file = file

    def value(self, path: str, default: Any = None) -> Any:
        """A field of the configuration, ``section.field``; ``default`` where there is none, or null."""
        found: Any = self._config
        for name in path.split("."):
            if not isinstance(found, Mapping):
                return default
            found = {**class_defaults(found.get("model_type")), **found}.get(name)
        return default if found is None else found

    def count(self, path: str, default: int | None = None) -> int:
        """A whole number above 0. Raises ConfigError."""
        return self._checked(path, self.value(path, default))

    def edge(self, path: str) -> int:
        """The same, of a length that files also give twice, for both edges."""
        found = self.value(path)
        return self._checked(path, found[0] if isinstance(found, list) and found else found)

    def limit(self, path: str, default: int) -> int:
        """A whole number of the processor's file: ``size.longest_edge``. Raises ProcessorError."""
        found: Any = self._processor
        for name in path.split("."):
            found = found.get(name) if isinstance(found, Mapping) else None
        return default if found is None else self._whole(path, found)

    def pair(self, name: str, default: Sequence[int], least: int = 1) -> tuple[int, int]:
        """Two whole numbers of it, from ``least``. Raises ProcessorError."""
        found = self.given(name, default)
        if not isinstance(found, list | tuple) or len(found) != 2:
            raise ProcessorError(f"{name} of {self._file}", found, "give two whole numbers: [14, 14]")
        first, second = (self._whole(name, each, least) for each in found)
        return first, second

    def number(self, name: str, default: float) -> float:
        """A number above 0 of it. Raises ProcessorError."""
        found = self.given(name, default)
        if not isinstance(found, int | float) or isinstance(found, bool) or not 0 < found < inf:
            raise ProcessorError(f"{name} of {self._file}", found, "give a number above 0")
        return float(found)

    def _whole(self, name: str, value: Any, least: int = 1) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 1 << 40:
            above = "above 0" if least else "from 0"
            fix = f"give a whole number {above}: tokens of an image follow from it"
            raise ProcessorError(f"{name} of {self._file}", value, fix)
        return value

    def given(self, name: str, default: Any) -> Any:
        """What the processor's file says, whatever it is."""
        found = self._processor.get(name)
        return default if found is None else found

    def pixels(self, least: int, most: int, side: int = 1, frames: int = 1) -> tuple[int, int]:
        """Bounds of an image's area, or a video's volume, by either of the names that files have for them.

        Raises ProcessorError where the upper one leaves no room for one square with edges of ``side`` in each frame.
        """
        low = self.limit("min_pixels", self.limit("size.min_pixels", self.limit("size.shortest_edge", least)))
        high = self.limit("max_pixels", self.limit("size.max_pixels", self.limit("size.longest_edge", most)))
        if high < side * side * frames:
            fix = f"give {side * side * frames} at least: an embedding is made of so many pixels"
            raise ProcessorError(f"max_pixels or size.longest_edge of {self._file}", high, fix)
        return low, high

    @staticmethod
    def _checked(name: str, value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 1 << 40:
            raise ConfigError(name, value, "give a whole number above 0: tokens of an image follow from it")
        return value


Maker = Callable[[ImageFields], ImageRule]

# ---------------------------------------------------------------------------------------------------------------------
# How fields fill the rules.

_MERGE = "vision_config.spatial_merge_size"


def _area(
    fields: ImageFields,
    *,
    patch: int = 14,
    merge: str = _MERGE,
    least: int = 3136,
    most: int = 12_845_056,
    **rule: Any,
) -> ImageRule:
    side = fields.count("vision_config.patch_size", patch) * fields.count(merge, 2)
    low, high = fields.pixels(least, most, side)
    return BoundedArea(side=side, least=low, most=high, **rule)


def _glm(fields: ImageFields, most: int) -> ImageRule:
    """vLLM takes the file's upper bound and the class's lower one."""
    side = fields.count("vision_config.patch_size", 14) * fields.count(_MERGE, 2)
    _, most = fields.pixels(1, most, side, 2)
    return BoundedArea(side=side, least=112 * 112, most=most, depth=2, small="cut", searched="whole")


def _grid(fields: ImageFields) -> int:
    return fields.count("vision_config.image_size") // fields.count("vision_config.patch_size")


def _whole(fields: ImageFields) -> int:
    """Embeddings of an image that is scaled to the tower's size, by the layer's tokens that are taken."""
    if fields.value("vision_config.model_type") == "pixtral":
        raise ConfigError("model", "pixtral", "its images keep their shape")
    classes = 1 if fields.value("vision_config.model_type") == "clip_vision_model" else 0
    strategy = fields.value("vision_feature_select_strategy", "default" if classes else "full")
    return _grid(fields) ** 2 + classes - (1 if strategy == "default" else 0)


def _llava(fields: ImageFields) -> ImageRule:
    if fields.value("vision_config.model_type") == "pixtral":
        return BoundedEdge(side=fields.count("vision_config.patch_size"), most=fields.count("vision_config.image_size"))
    return FixedCount(_whole(fields))


def _square(fields: ImageFields) -> ImageRule:
    return FixedCount(_grid(fields) ** 2)


def _next(fields: ImageFields, most_tiles: int = 0, planned_at: Sequence[int] = ()) -> ImageRule:
    return BestResolution(
        sizes=_sizes(fields, "image_grid_pinpoints"),
        tile=fields.count("vision_config.image_size"),
        grid=_grid(fields),
        whole=_whole(fields),
        most_tiles=most_tiles,
        planned_at=(planned_at[0], planned_at[1]) if planned_at else None,
    )


def _granite(fields: ImageFields) -> ImageRule:
    up, _, down = str(fields.value("downsample_rate", "1/2")).partition("/")
    grid = _grid(fields) * int(up) // int(down or 1)
    tile = fields.count("vision_config.image_size")
    return BestResolution(sizes=_sizes(fields, "image_grid_pinpoints"), tile=tile, grid=grid, whole=grid * grid)


def _sizes(fields: ImageFields, name: str) -> tuple[tuple[int, int], ...]:
    found = fields.value(name)
    if not isinstance(found, list) or not found:
        raise ConfigError(name, found, "give the sizes that images may be cut from: [[height, width], ...]")
    return tuple((int(high), int(wide)) for high, wide in found)


def _tiles(fields: ImageFields, *, forced: bool = False) -> ImageRule:
    """InternVL in its own format: the configuration says it all."""
    tile = fields.edge("vision_config.image_size")
    tile = fields.count("force_image_size", tile) if forced else tile
    ratio = float(fields.value("downsample_ratio", 0.5))
    dynamic = bool(fields.value("dynamic_image_size", True))
    return NearestTiles(
        tile=tile,
        tokens=int((tile // fields.edge("vision_config.patch_size")) ** 2 * ratio**2),
        least=fields.count("min_dynamic_patch", 1) if dynamic else 1,
        most=fields.count("max_dynamic_patch", 12) if dynamic else 1,
        thumbnail=bool(fields.value("use_thumbnail", True)),
    )


def _tiles_of_transformers(fields: ImageFields) -> ImageRule:
    """InternVL in the format of transformers."""
    cropped = bool(fields.given("crop_to_patches", True))
    return NearestTiles(
        tile=fields.limit("size.height", 448),
        tokens=fields.count("image_seq_length", 256),
        least=fields.limit("min_patches", 1),
        most=fields.limit("max_patches", 12) if cropped else 1,
        in_order=True,
    )


def _idefics(fields: ImageFields, tile: int, times: int) -> ImageRule:
    tile = fields.limit("max_image_size.longest_edge", tile)
    tokens = int(_grid(fields) ** 2 / fields.count("scale_factor", 2) ** 2)
    return LongestEdge(
        longest=fields.limit("size.longest_edge", times * tile),
        tile=tile,
        tokens=tokens,
        splits=bool(fields.given("do_image_splitting", True)),
    )


def _edge(fields: ImageFields, *, from_config: bool = False) -> ImageRule:
    side = fields.count("vision_config.patch_size") * fields.count("spatial_merge_size", 2)
    most = fields.count("vision_config.image_size")
    return BoundedEdge(side=side, most=most if from_config else fields.limit("size.longest_edge", most))


def _llama(fields: ImageFields) -> ImageRule:
    shuffle = float(fields.value("vision_config.pixel_shuffle_ratio", 0.5))
    return LeastPadding(
        tile=fields.count("vision_config.image_size"),
        tokens=_grid(fields) ** 2 // round(1 / shuffle**2),
        most=fields.limit("max_patches", 16),
        to_largest=bool(fields.given("resize_to_max_canvas", False)),
    )


def _cohere(fields: ImageFields) -> ImageRule:
    cropped = bool(fields.given("crop_to_patches", True))
    return LeastPadding(
        tile=fields.limit("size.height", fields.count("vision_config.image_size", 512)),
        tokens=fields.limit("patch_size", 16) ** 2,
        most=fields.limit("max_patches", 12) if cropped else 1,
        single=False,
    )


def _gemma4(fields: ImageFields, most: str = "default_output_length") -> ImageRule:
    side = fields.count("vision_config.patch_size", 16) * fields.count("vision_config.pooling_kernel_size", 3)
    return FilledArea(side=side, most=fields.count(f"vision_config.{most}", 280))


def _kimi(fields: ImageFields) -> ImageRule:
    merge, _ = fields.pair("merge_kernel_size", fields.value("vision_config.merge_kernel_size", [2, 2]))
    return BoundedPatches(
        patch=fields.limit("patch_size", fields.count("vision_config.patch_size", 14)),
        merge=merge,
        most=fields.limit("in_token_limit", 4096),
    )


def _kimi_k25(fields: ImageFields) -> ImageRule:
    return BoundedPatches(
        patch=fields.limit("media_proc_cfg.patch_size", fields.count("vision_config.patch_size", 14)),
        merge=fields.limit("media_proc_cfg.merge_kernel_size", 2),
        most=fields.limit("media_proc_cfg.in_patch_limit", 16_384),
        along_an_edge=fields.limit("media_proc_cfg.patch_limit_on_one_side", 512),
    )


def _deepseek_vl2(fields: ImageFields) -> ImageRule:
    # The names are the processor's: it takes each pair for width and height.
    sizes = fields.given("candidate_resolutions", fields.value("candidate_resolutions", [[384, 384]]))
    tile, ratio = fields.count("vision_config.image_size", 384), fields.limit("downsample_ratio", 2)
    return PaddedResolution(
        sizes=tuple((int(high), int(wide)) for wide, high in sizes),
        tile=tile,
        grid=-(-(tile // fields.count("vision_config.patch_size", 14)) // ratio),
    )


def _aria(fields: ImageFields) -> ImageRule:
    queries = fields.value("projector_patch_to_query_dict", {"1225": 128, "4900": 256})
    return FixedCount(max(int(each) for each in queries.values()))


def _molmo(fields: ImageFields) -> ImageRule:
    size, patch = fields.given("base_image_input_size", [336, 336]), fields.limit("image_patch_size", 14)
    left, right = fields.pair("overlap_margins", [4, 4], least=0)
    return OverlappingCrops(
        patch=patch,
        crop=(size if isinstance(size, int) else int(size[0])) // patch,
        left=left,
        right=right,
        pool=(2, 2),
        most=fields.limit("max_crops", 12),
        whole=(fields.limit("image_token_length_h", 12), fields.limit("image_token_length_w", 12)),
        padded=True,
    )


def _molmo2(fields: ImageFields) -> ImageRule:
    """Rows of the whole image have an end where rows of the crops have one, unless the file says otherwise."""
    patch = fields.limit("patch_size", 14)
    left, right = fields.pair("overlap_margins", [4, 4], least=0)
    high, wide = fields.pair("pooling_size", [2, 2])
    ends_rows = bool(fields.given("image_use_col_tokens", True))
    return OverlappingCrops(
        patch=patch,
        crop=fields.limit("size.height", 378) // patch,
        left=left,
        right=right,
        pool=(high, wide),
        most=fields.limit("max_crops", 8),
        ends=2,
        ends_rows=ends_rows,
        ends_whole_rows=bool(fields.given("use_single_crop_col_tokens", ends_rows)),
    )


def _step3(fields: ImageFields) -> ImageRule:
    """vLLM has the sizes in its own processor; the configuration may say that nothing is cut."""
    return Windows(tokens=81, whole=169, splits=bool(fields.value("vision_config.enable_patch", True)))


def _lfm2(fields: ImageFields) -> ImageRule:
    patch, factor = fields.limit("encoder_patch_size", 16), fields.limit("downsample_factor", 2)
    side, tile = patch * factor, fields.limit("tile_size", 512)
    least, most = fields.limit("min_image_tokens", 64), fields.limit("max_image_tokens", 256)
    area = BoundedArea(
        side=side, least=least * side * side, most=most * side * side, one_at_least=True, most_elongated=inf
    )
    return TilesOfLarge(
        area=area,
        tile=tile,
        tokens=(-(-(tile // patch) // factor)) ** 2,
        least=fields.limit("min_tiles", 2),
        most=fields.limit("max_tiles", 10),
        tolerance=fields.number("max_pixels_tolerance", 2.0),
        patch=patch,
    )


def _ovis25(fields: ImageFields) -> ImageRule:
    """Bounds are those of vLLM's own processor, whatever a file says."""
    side = fields.count("vit_config.patch_size", 16) * fields.count("vit_config.hidden_stride", 2)
    return StretchedArea(side=side, least=448 * 448, most=1792 * 1792)


def _h2o(fields: ImageFields) -> ImageRule:
    once = _tiles(fields)
    if not isinstance(once, NearestTiles) or not fields.value("use_msac", True):
        return once
    return TilesTwice(tile=once.tile, tokens=once.tokens, most=once.most)


def _nemotron(fields: ImageFields) -> ImageRule:
    tile, ratio = fields.limit("image_size", 512), float(fields.value("downsample_ratio", 0.5))
    return FittingTiles(
        tile=tile,
        tokens=int((tile // fields.count("vision_config.patch_size", 16)) ** 2 * ratio**2),
        most=fields.limit("max_num_tiles", 12),
        thumbnail=bool(fields.given("use_thumbnail", True)),
    )


def _nano(fields: ImageFields) -> ImageRule:
    """Tiles; other files have bounds of patches, and then vLLM takes the length of a prompt for the largest image."""
    if "min_num_patches" in fields.value("vision_config.args", {}):
        problem = "tokens of an image follow from the length of a prompt where it is given: give the tokens instead"
        raise ConfigError("vision_config.args.min_num_patches", fields.value("vision_config.args"), problem)
    tile, ratio = fields.count("force_image_size", 512), float(fields.value("downsample_ratio", 0.5))
    return NearestTiles(
        tile=tile,
        tokens=int((tile // fields.count("patch_size", 16)) ** 2 * ratio**2),
        thumbnail=bool(fields.value("use_thumbnail", True)),
    )


def _minimax(fields: ImageFields) -> ImageRule:
    side = fields.limit("patch_size", 14) * fields.limit("merge_size", 2)
    if fields.given("max_long_side_pixel", None) is not None:
        longest, most = fields.limit("max_long_side_pixel", 0), fields.limit("max_total_pixels", 3584 * 3584)
        return BoundedSides(side=side, longest=longest, shortest=fields.limit("min_short_side_pixel", 112), most=most)
    most = fields.limit("max_pixels", 672 * 672)
    return BoundedArea(side=side, least=4 * 28 * 28, most=most, one_at_least=True, floors=False, searched="root")


def _ovis(fields: ImageFields) -> ImageRule:
    tower = "visual_tokenizer_config.backbone_config"
    stride = fields.count("visual_tokenizer_config.hidden_stride", 2)
    grid = -(-fields.count(f"{tower}.image_size") // fields.count(f"{tower}.patch_size")) // stride
    tile = fields.limit("size.shortest_edge", fields.limit("size.height", 448))
    return CoveringTiles(tile=tile, tokens=grid * grid, planned_edge=tile * stride * 9)


def _minicpm46(fields: ImageFields) -> ImageRule:
    return Slices(
        edge=fields.limit("scale_resolution", 448),
        side=fields.limit("patch_size", 14) * 4,
        tokens=4 if fields.given("downsample_mode", "16x") == "4x" else 1,
        most=fields.limit("max_slice_nums", 9),
        planned_edge=fields.count("image_size", 448),
        planned_slices=fields.count("slice_config.max_slice_nums", fields.count("max_slice_nums", 9)),
    )


def _omni(fields: ImageFields, patch: int) -> ImageRule:
    """The tower of a Qwen Omni model stands in the part that thinks."""
    section = "thinker_config.vision_config"
    side = fields.count(f"{section}.patch_size", patch) * fields.count(f"{section}.spatial_merge_size", 2)
    low, high = fields.pixels(3136, 12_845_056, side)
    return BoundedArea(side=side, least=low, most=high)


def _phi4(fields: ImageFields) -> ImageRule:
    return PlainPatches(
        patch=fields.count("vision_config.patch_size", 16),
        least=fields.count("min_num_patches", 256),
        most=fields.count("max_num_patches", 3600),
    )


def _phi4_mm(fields: ImageFields) -> ImageRule:
    return UnpaddedTiles(tile=448, patch=14, merge=2, most=fields.limit("dynamic_hd", 36))


def _page(_fields: ImageFields, *, planned_shape: Sequence[int] = (2, 2), **rule: Any) -> ImageRule:
    return NearestPage(planned_shape=(planned_shape[0], planned_shape[1]), **rule)


def _fixed(fields: ImageFields, count: int, field: str = "") -> ImageRule:
    return FixedCount(fields.count(field, count) if field else count)


def _glm4v_9b(fields: ImageFields) -> ImageRule:
    return FixedCount((_grid(fields) // 2) ** 2 + 2)


_MAKERS: dict[str, Callable[..., ImageRule]] = {
    "area": _area, "aria": _aria, "cohere": _cohere, "deepseek_vl2": _deepseek_vl2, "edge": _edge, "fixed": _fixed,
    "gemma4": _gemma4, "glm": _glm, "glm4v_9b": _glm4v_9b, "granite": _granite, "h2o": _h2o, "idefics": _idefics,
    "kimi": _kimi, "kimi_k25": _kimi_k25, "lfm2": _lfm2, "llama": _llama, "llava": _llava, "minicpm46": _minicpm46,
    "minimax": _minimax, "molmo": _molmo, "molmo2": _molmo2, "nano": _nano, "nemotron": _nemotron, "next": _next,
    "omni": _omni, "ovis": _ovis, "ovis25": _ovis25, "page": _page, "phi4": _phi4, "phi4_mm": _phi4_mm,
    "square": _square, "step3": _step3, "tiles": _tiles, "tiles_of_transformers": _tiles_of_transformers,
}  # fmt: skip
"""By the names that ``families.json`` has for them."""


class Family(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How large pictures and videos are that a few architectures read."""

    architectures: tuple[str, ...]
    image: dict[str, Any] = {}
    """The function that makes the rule of a picture (``by``), and what it is given; empty: none is known."""
    videos: Literal["", "per frame", "whole"] = ""
    """Whether pixels are bounded of each frame of a video or of the whole; empty: it is not known."""
    largest_video: dict[str, Any] = {}
    """Fields of :class:`~tokenyard.models.images.largest.LargestVideo`."""
    frames: dict[str, Any] = {}
    """The function there that says how large the frames of the largest video are, and what it is given."""


class _Families(msgspec.Struct, forbid_unknown_fields=True):
    """``families.json``."""

    about: tuple[str, ...]
    families: tuple[Family, ...]


FAMILIES: Mapping[str, Family] = {
    name: family
    for family in msgspec.json.decode(packaged(__package__, "families.json"), type=_Families).families
    for name in family.architectures
}
"""Architecture -> what is known of its pictures and videos."""


def made_by(makers: Mapping[str, Callable[..., Any]], said: Mapping[str, Any]) -> Callable[..., Any]:
    """The function that a family names, with what it is given."""
    return partial(makers[said["by"]], **{name: value for name, value in said.items() if name != "by"})


RULES: Mapping[str, Maker] = {name: made_by(_MAKERS, family.image) for name, family in FAMILIES.items() if family.image}
"""Architecture -> what makes its rule of its fields."""


# ---------------------------------------------------------------------------------------------------------------------
# Asking.


def image_rule(
    config: Mapping[str, Any], processor: Mapping[str, Any] | None = None, file: str = IMAGE_FILE
) -> ImageRule:
    """The rule of a ``config.json``; ConfigError where none is known for its architecture, or a field is missing.

    ``processor`` is what the image processor is told, in ``file``.
    """
    named = config.get("architectures") or [""]
    architecture = named[0] if isinstance(named, list) else ""
    if architecture not in RULES:
        raise ConfigError("model", architecture, "no rule is known for its images: give their tokens instead")
    return RULES[architecture](ImageFields(config, processor or {}, file))
