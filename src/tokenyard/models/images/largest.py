"""The largest picture and the largest video that vLLM plans an encoder's budget, cache and memory for.

Where a model reads videos, budget and cache are as large as one, unless a line forbids them. Its frames are as large as
the largest picture, or have a number of embeddings of their own; how many there are follows from the longest context.
vLLM's own numbers are recorded by ``lab/record_image_tokens.py``, ``lab/record_largest_videos.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

from tokenyard.errors import ConfigError
from tokenyard.models.images.crops import Slices, StretchedArea
from tokenyard.models.images.processors import Processors
from tokenyard.models.images.rules import (
    HUGE,
    BoundedArea,
    FilledArea,
    FixedCount,
    ImageRule,
    NearestTiles,
)
from tokenyard.models.images.table import FAMILIES, RULES, ImageFields, ProcessorError
from tokenyard.models.images.videos import VideoRule, rule_of_whole
from tokenyard.models.recorded import recorded
from tokenyard.models.spec import EncoderSpec, ModelSpec, first_seeing, with_changed
from tokenyard.quick_dataclass import dataclass

# ---------------------------------------------------------------------------------------------------------------------
# The picture and the video that vLLM measures memory with where a line limits their sizes.
#
# ``--limit-mm-per-prompt '{"image": {"count": 2, "width": 512}}'``: neither edge is longer than the line says, nor than
# that of the picture that vLLM takes for the largest. ``lab/record_limited_items.py`` has asked vLLM's own builders.


def knows_its_budget(architecture: str) -> bool:
    """Whether the class says how large the largest item is, so that sizes of a line leave the budget as it is."""
    return architecture in recorded("limits")["own_budgets"]


def heeds_frames(architecture: str) -> bool:
    """Whether a class that knows its budget makes it for no more frames of a video than a line says (Gemma 4)."""
    video = LARGEST.get(architecture)
    return video is not None and video.per_frame > 0


def heeds_sizes(architecture: str) -> bool | None:
    """Whether the class heeds sizes of pictures that a line says; None where vLLM was not asked."""
    found: bool | None = recorded("limits")["heeding"].get(architecture)
    return found


def limited_tokens(rule: ImageRule, width: int | None, height: int | None) -> int:
    """Embeddings of the picture that memory is measured with, where a line says one of its edges or both.

    ConfigError for a picture that the model's processor refuses: vLLM does not start.
    """
    widest, highest = rule.largest
    return rule.num_tokens(min(width or widest, widest), min(height or highest, highest))


def with_limited_picture(
    model: ModelSpec, raw: Mapping[str, Any], processors: Processors, sizes: Mapping[str, int]
) -> ModelSpec | None:
    """The model, whose first encoder that sees has the picture that ``width`` and ``height`` of a line leave.

    As it is where sizes change nothing; None where vLLM was not asked what they change. ConfigError for a picture that
    the model's processor refuses. ``raw`` is its ``config.json``.
    """
    seeing = first_seeing(model.encoders)
    if seeing is None or model.architecture not in RULES:
        return None
    rule = RULES[model.architecture](ImageFields(raw, processors.image, processors.image_from))
    heeded = False if isinstance(rule, FixedCount | FilledArea) else heeds_sizes(model.architecture)
    if not heeded:
        return model if heeded is not None else None
    tokens = limited_tokens(rule, sizes.get("width"), sizes.get("height"))
    return replace(model, encoders=with_changed(model.encoders, seeing, limited_tokens_per_item=tokens))


def limited_video(
    architecture: str, raw: Mapping[str, Any], processors: Processors, sizes: Mapping[str, int]
) -> LimitedVideo:
    """What ``num_frames``, ``width`` and ``height`` of a line leave of the largest video.

    ``raw`` is the model's ``config.json``. ConfigError for a video that its processor refuses.
    """
    fields = ImageFields(raw, processors.image, processors.image_from)
    video = ImageFields(raw, processors.video, processors.video_from)
    largest, frames = LARGEST[architecture], sizes.get("num_frames", 0)
    is_sized = "width" in sizes or "height" in sizes
    if largest.by_frame or (not largest.chosen and not is_sized):
        return LimitedVideo(frames=frames)
    rule = RULES[architecture](fields)
    if not isinstance(rule, BoundedArea):
        return LimitedVideo(frames=frames)

    def within(size: tuple[int, int]) -> tuple[int, int]:
        return min(sizes.get("width", size[0]), size[0]), min(sizes.get("height", size[1]), size[1])

    if largest.chosen:
        _, most = video.pixels(1, MOST_OF_GLM)
        made = VideoRule(area=replace(rule, most=most), whole=True)
        size, counts = rule.largest, dict[int, int]()
        for count in range(2, MOST_FRAMES + 1):
            counts.setdefault(made.num_tokens(*size, count), count)
        fewer = {tokens: max(min(count, frames or count), 2) for tokens, count in counts.items()}
        return LimitedVideo(among=tuple(made.num_tokens(*within(size), fewer[tokens]) for tokens in sorted(fewer)))
    if not largest.tokens:
        return LimitedVideo(rule.num_tokens(*within(rule.largest)), frames)
    made, size = whole_pair(fields, video)
    return LimitedVideo(made.num_tokens(*within(size), PAIR))


def with_limited_video(
    model: ModelSpec, raw: Mapping[str, Any], processors: Processors, sizes: Mapping[str, int]
) -> ModelSpec | None:
    """The model, whose first encoder that sees has the video that sizes of a line leave; None where vLLM was not asked.

    ConfigError for a video that the model's processor refuses.
    """
    seeing = first_seeing(model.encoders)
    if seeing is None or model.architecture not in recorded("limits")["heeding_videos"]:
        return None
    if LARGEST[model.architecture].chosen and not seeing.planned_videos:
        return None  # GLM-4.6V's processor knows a number by itself, and its frames were not asked for
    left = limited_video(model.architecture, raw, processors, sizes)
    said = {"limited_tokens_per_frame": left.tokens, "limited_frames": left.frames, "limited_videos": left.among}
    return replace(model, encoders=with_changed(model.encoders, seeing, **said))


# ---------------------------------------------------------------------------------------------------------------------

# ---------------------------------------------------------------------------------------------------------------------
# How many frames there are.


class Frames(NamedTuple):
    """Frames of the largest video, where they have a number of embeddings of their own."""

    tokens: int = 0
    """Embeddings of each, or of both of the least video; 0: it is a picture's, or the model reads no videos."""
    most: int = 0
    """0: as many as there is room for."""
    among: tuple[int, ...] = ()
    """Embeddings of the videos to choose of, ascending."""


class LimitedVideo(NamedTuple):
    """What a line leaves of the largest video, which vLLM measures memory with (``--limit-mm-per-prompt``)."""

    tokens: int = 0
    """Embeddings of a layer of it; 0: as many as it has."""
    frames: int = 0
    """At most; 0: as many as it has."""
    among: tuple[int, ...] = ()
    """Embeddings of those that it is chosen of, in their order; empty: as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LargestVideo:
    """How much of the longest context its frames fill."""

    layers: int = 0
    """Most layers of embeddings; 0: as many as there is room for."""
    beside_image: bool = False
    """Room for an image is left, where the line allows one."""
    fills: bool = False
    """It is as long as the context."""
    tokens: int = 0
    """It has so many, whatever the image and the context; those of its ``frames`` where they have any."""
    by_frame: bool = False
    """A frame has a number of its own; where it has none the model reads no videos."""
    chosen: bool = False
    """It is the largest that fits of those that the model's rule for videos makes of one picture (GLM-4V)."""
    counted: int = 1
    """Times its embeddings that vLLM counts for a frame, and for an image, when it shares out the context."""
    joined: int = 1
    """Frames of a layer."""
    in_pairs: bool = False
    """What has no pair is left out (ERNIE 4.5)."""
    per_frame: int = 0
    """Embeddings of each frame of one that has the same number whatever the context."""
    behind: int = 0
    """Embeddings behind the frames, which have to fit the context as well."""
    ends: int = 0
    """Embeddings around the frames, which do not."""

    def num_tokens(
        self,
        image: int,
        length: int,
        *,
        has_images: bool,
        frames: Frames | None = None,
        limited: LimitedVideo | None = None,
    ) -> int:
        """Its embeddings, beside a largest ``image`` of so many and a longest context of ``length`` tokens.

        ``frames``: those that have a number of their own, or the videos that it is chosen of. ``limited``: what a line
        leaves of it.
        """
        limited = limited or LimitedVideo()
        if self.fills or self.tokens:
            most = (frames.tokens if frames else 0) or self.tokens
            return limited.tokens or min(most, self.per_frame * limited.frames or most) or length
        if self.chosen:
            of_two, _, among = frames or Frames()
            room = length - (image if has_images else 0)
            among = among or (of_two,)
            chosen = max((i for i, each in enumerate(among) if each <= room), default=among.index(of_two))
            return (limited.among or among)[chosen]
        each, most = (frames or Frames())[:2] if self.by_frame else (image, self.layers)
        if not each:
            return 0
        of_image = self.counted * each if self.counted > 1 else image
        room = length - self.behind - (of_image if self.beside_image and has_images else 0)
        layers = max(room // (self.counted * each), 1)
        left = limited.frames - limited.frames % self.joined if self.in_pairs else limited.frames
        bounds = (layers, most, -(-max(left, min(limited.frames, 1)) // self.joined))
        return (limited.tokens or each) * min(bound for bound in bounds if bound) + self.behind + self.ends


LARGEST: Mapping[str, LargestVideo] = {
    name: LargestVideo(**family.largest_video) for name, family in FAMILIES.items() if family.largest_video
}
"""Architecture -> rule. Of others that read videos a checkpoint's own processor would have to be there."""

# ---------------------------------------------------------------------------------------------------------------------
# How large a frame is, where it has a number of its own.

_SHOWS_VIDEOS = ("qwen2", "qwen3", "qwen3_moe", "gpt_oss")
"""Decoders of InternVL whose tokenizers have a word for them."""


_FEW = 16
"""Frames at most, by vLLM's code for LLaVA-OneVision and MiniCPM-V."""


def _tile(_fields: ImageFields, rule: ImageRule, _video: ImageFields) -> Frames:
    """A frame is one tile."""
    return Frames(rule.tokens if isinstance(rule, NearestTiles) else 0)


def _tile_if_shown(fields: ImageFields, rule: ImageRule, video: ImageFields) -> Frames:
    decoder = fields.value("llm_config.model_type", fields.value("text_config.model_type"))
    return _tile(fields, rule, video) if decoder in _SHOWS_VIDEOS else Frames()


def _pooled(fields: ImageFields, _rule: ImageRule, _video: ImageFields) -> Frames:
    """One embedding is kept of every so many along an edge."""
    grid = fields.count("vision_config.image_size") // fields.count("vision_config.patch_size")
    return Frames((-(-grid // fields.count("spatial_pool_stride", 2))) ** 2, _FEW)


def _sliced(_fields: ImageFields, rule: ImageRule, video: ImageFields) -> Frames:
    """A frame has as many slices as its processor allows, and is made for that: so many times as high as wide."""
    if not isinstance(rule, Slices):
        return Frames()
    slices = video.limit("max_slice_nums", 9)
    return Frames(replace(rule, most=slices).num_tokens(rule.planned_edge, rule.planned_edge * slices), _FEW)


def _stretched(_fields: ImageFields, rule: ImageRule, _video: ImageFields) -> Frames:
    return Frames(rule.planned - rule.ends if isinstance(rule, StretchedArea) else 0)


def _pooled_whole(_fields: ImageFields, _rule: ImageRule, video: ImageFields) -> Frames:
    """The whole frame, pooled, with its ends; how many frames there may be only the file says."""
    if video.given("num_frames", None) is None:
        return Frames()
    high, wide = video.pair("pooling_size", [3, 3])
    patch, size = video.limit("patch_size", 14), (video.limit("size.height", 378), video.limit("size.width", 378))
    rows, columns = -(-(size[0] // patch) // high), -(-(size[1] // patch) // wide)
    ends_rows = bool(video.given("video_use_col_tokens", False))
    return Frames(2 + rows * (columns + ends_rows), video.limit("num_frames", 0))


MOST_OF_GLM = 28 * 28 * 2 * 30_000
"""Pixels of a whole video of GLM-4V's, where no file of its processor says another number."""
MOST_FRAMES = 600
"""Frames at most, by vLLM's code for GLM-4V."""
_GLM_SECONDS, _SECONDS_TOKENS = 320, 4
"""Pairs of frames of a video of GLM-4.6V, and tokens of the words for a time, which a checkpoint's tokenizer says."""


def _of_volume(_fields: ImageFields, rule: ImageRule, video: ImageFields, *, made_by: str = "Glm4vProcessor") -> Frames:
    """A video of the largest picture is scaled by its volume: more frames are smaller ones.

    GLM-4.6V's processor says by itself how much one may have, with the words for times. ``made_by`` is a processor's
    class where no file names one.
    """
    if not isinstance(rule, BoundedArea):
        return Frames()
    wide, high = rule.grid(HUGE, HUGE)
    _, most = video.pixels(1, MOST_OF_GLM)
    if video.given("processor_class", made_by) != "Glm4vProcessor":
        of_times = _GLM_SECONDS * (2 + _SECONDS_TOKENS) + 2
        return Frames(most // (rule.depth * rule.side**2) + of_times)
    counts = _by_frames(VideoRule(area=replace(rule, most=most), whole=True), wide * rule.side, high * rule.side)
    return Frames(counts[0], among=tuple(sorted(set(counts))))


@lru_cache(64)
def _by_frames(made: VideoRule, width: int, height: int) -> tuple[int, ...]:
    """Embeddings of a video of such frames, of two of them and more."""
    return tuple(made.num_tokens(width, height, frames) for frames in range(2, MOST_FRAMES + 1))


def _pooled_frame(fields: ImageFields, _rule: ImageRule, _video: ImageFields) -> Frames:
    """The budget holds the largest number of frames that fits it."""
    return Frames(_pooled(fields, _rule, _video).tokens)


PAIR = 2
"""Frames of the video that Qwen3-VL's class measures with."""


def whole_pair(fields: ImageFields, video: ImageFields) -> tuple[VideoRule, tuple[int, int]]:
    """How a whole video is bounded, and edges in pixels of two frames that are as large as its bounds allow."""
    made = rule_of_whole(fields, video)
    side, most = made.area.side, made.area.most // video.limit("temporal_patch_size", 2)
    wide, high = replace(made.area, depth=PAIR).grid(*replace(made.area, most=most).largest)
    return made, (wide * side, high * side)


def _whole(fields: ImageFields, _rule: ImageRule, video: ImageFields) -> Frames:
    made, size = whole_pair(fields, video)
    return Frames(made.num_tokens(*size, PAIR))


_MAKERS: dict[str, Callable[..., Frames]] = {
    "of_volume": _of_volume, "pooled": _pooled, "pooled_frame": _pooled_frame, "pooled_whole": _pooled_whole,
    "sliced": _sliced, "stretched": _stretched, "tile": _tile, "tile_if_shown": _tile_if_shown, "whole": _whole,
}  # fmt: skip
_FRAMES: Mapping[str, Callable[[ImageFields, ImageRule, ImageFields], Frames]] = {
    name: partial(
        _MAKERS[family.frames["by"]], **{each: given for each, given in family.frames.items() if each != "by"}
    )
    for name, family in FAMILIES.items()
    if family.frames
}


def frames_of(config: Mapping[str, Any], processors: Processors) -> Frames:
    """Frames of the largest video of a ``config.json``, with what its processors are told."""
    architecture = config["architectures"][0]
    if architecture not in _FRAMES:
        return Frames()
    image, video, image_from, video_from = processors
    fields = ImageFields(config, image, image_from)
    made_by = {"processor_class": image["processor_class"]} if "processor_class" in image else {}
    rule = _rule(architecture, fields)
    return _FRAMES[architecture](fields, rule, ImageFields(config, {**made_by, **video}, video_from))


def _rule(architecture: str, fields: ImageFields, tokens: int = 0) -> ImageRule:
    """How large images are; of a model that reads videos alone so many ``tokens``."""
    return RULES[architecture](fields) if architecture in RULES else FixedCount(tokens)


# ---------------------------------------------------------------------------------------------------------------------
# What an encoder is given of both.


def with_largest_images(
    encoders: tuple[EncoderSpec, ...], architecture: str, raw: Mapping[str, Any], processors: Processors
) -> tuple[EncoderSpec, ...]:
    """The encoders, of which the first that sees has the largest image by the rule; as they are where none is known.

    Raises ProcessorError where a processor is told what cannot be.
    """
    seeing = first_seeing(encoders)
    if seeing is None or (architecture not in RULES and architecture not in _FRAMES):
        return encoders
    fields = ImageFields(raw, processors.image, processors.image_from)
    try:
        rule = _rule(architecture, fields, seeing.max_tokens_per_item)
        most, planned = rule.bound, rule.planned
        frames = frames_of({**raw, "architectures": [architecture]}, processors)
    except ProcessorError:
        raise
    except (ConfigError, TypeError, ValueError, ZeroDivisionError, StopIteration):  # fields that only images need
        return encoders
    return with_changed(
        encoders,
        seeing,
        max_tokens_per_item=most,
        planned_tokens_per_item=planned,
        planned_tokens_per_frame=frames.tokens,
        planned_frames=frames.most,
        planned_videos=frames.among,
    )
