"""Kinds of rules by which models turn the size of an image into a number of embeddings.

A rule is data: sizes in pixels, grids of patches, limits. What fills it for an architecture stands in
:mod:`~tokenyard.models.images.table`. Every count was compared with vLLM's own (``lab/record_image_tokens.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from math import ceil, floor, inf, isqrt, sqrt
from struct import pack, unpack
from typing import Literal

from tokenyard.errors import ConfigError
from tokenyard.quick_dataclass import dataclass

MAX_EDGE = 1 << 20
"""Pixels along an edge of an image in the question."""


class ImageRule:
    """A rule. Of most no image has more embeddings than the one that vLLM takes for the largest."""

    __slots__ = ()

    def num_tokens(self, width: int, height: int) -> int:
        """Embeddings of an image that is ``width`` by ``height`` pixels, which its placeholder has in the prompt."""
        raise NotImplementedError  # every rule has its own

    @property
    def largest(self) -> tuple[int, int]:
        """Width and height in pixels of the picture that vLLM takes for the largest: it is made to measure with.

        Of a rule by which they do not matter those of the largest question.
        """
        return MAX_EDGE, MAX_EDGE

    @property
    def planned(self) -> int:
        """Embeddings of that: what its encoder may compute and keep at least."""
        return self.num_tokens(*self.largest)

    @property
    def bound(self) -> int:
        """Embeddings that no image exceeds."""
        return self.planned

    def _first_largest(self, sizes: Iterable[tuple[int, int]]) -> tuple[int, int]:
        return max(sizes, key=lambda size: self.num_tokens(*size))


@dataclass(frozen=True, slots=True)
class FixedCount(ImageRule):
    """Every image is scaled to one size."""

    count: int

    def num_tokens(self, width: int, height: int) -> int:
        return self.count


# ---------------------------------------------------------------------------------------------------------------------
# Images that keep their shape: scaled until their area lies within bounds, cut into squares.


_MOST_ELONGATED = 200
HUGE = 9_999_999
"""Pixels along the edges of the image that vLLM takes for the largest."""


def _narrowest(count: int) -> float:
    """How elongated the least elongated rectangle of so many squares is."""
    wide = next(wide for wide in range(isqrt(count), 0, -1) if count % wide == 0)
    return count // wide / wide


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedArea(ImageRule):
    """Sides are rounded to multiples of ``side``; an area out of bounds scales both (Qwen-VL and its kin)."""

    side: int
    """Pixels along an edge of what becomes one embedding: patch times merge."""
    least: int
    most: int
    """Pixels of an image."""
    depth: int = 1
    """Frames that an image counts as where bounds are of a volume (GLM-4V: 2)."""
    scaled: int = 0
    """Frames by which it is scaled, where that is another number: of a video whose last frame has no pair."""
    small: Literal["", "cut", "rounded"] = ""
    """How an image with an edge below ``side`` is enlarged first, if it is: its other edge cut off, or rounded."""
    floors: bool = True
    """A scaled edge is at least ``side`` long."""
    searched: Literal["factors", "square", "root", "whole"] = "factors"
    """How vLLM finds the image with the most: by a rectangle's squares, near a square's, in one, or by a huge one."""
    shortens: bool = False
    """An image that is too elongated is cut short instead of refused (ERNIE 4.5)."""
    one_at_least: bool = False
    """An edge is rounded to one side where it would be none."""
    most_elongated: float = _MOST_ELONGATED
    planned_edge: int = 0
    """Pixels along the edges of the image that vLLM takes for the largest, where its class has a number of its own."""

    def num_tokens(self, width: int, height: int) -> int:
        wide, high = self.grid(width, height)
        return wide * high

    def grid(self, width: int, height: int) -> tuple[int, int]:
        """Embeddings along both edges."""
        side = self.side
        width, height = self._enlarged(width, height)
        if max(width, height) / min(width, height) > self.most_elongated:
            if not self.shortens:
                fix = f"one edge is more than {_MOST_ELONGATED} times the other, which the model's processor refuses"
                raise ConfigError("image", f"{width}x{height}", fix)
            width, height = self._shortened(width, height)
        wide, high = round(width / side), round(height / side)
        if self.one_at_least:
            wide, high = max(wide, 1), max(high, 1)
        volume, frames = self.depth * wide * high * side * side, self.scaled or self.depth
        if volume > self.most:
            scale = sqrt(frames * height * width / self.most)
            least = 1 if self.floors else 0
            return max(least, floor(width / scale / side)), max(least, floor(height / scale / side))
        if volume < self.least:
            scale = sqrt(self.least / (frames * height * width))
            return ceil(width * scale / side), ceil(height * scale / side)
        return wide, high

    def _shortened(self, width: int, height: int) -> tuple[int, int]:
        short = max(self.side, round(min(width, height) / self.side) * self.side)
        long = short * _MOST_ELONGATED // self.side * self.side
        return (short, long) if height > width else (long, short)

    def _enlarged(self, width: int, height: int) -> tuple[int, int]:
        side = self.side
        if self.small == "cut" and min(width, height) < side:
            scale = max(side / height, side / width)
            return int(width * scale), int(height * scale)
        if self.small == "rounded":
            if height < side:
                width, height = round(width * side / height), side
            if width < side:
                width, height = side, round(height * side / width)
        return width, height

    @property
    def planned(self) -> int:
        if self.searched == "whole" or self.planned_edge:
            edge = self.planned_edge or HUGE
            return self.num_tokens(edge, edge)
        if self.searched == "root":
            edge = max(isqrt(self.most) // self.side, 1) * self.side
            return self.num_tokens(edge, edge)
        most = self.most // (self.side * self.side)
        if self.searched == "square":
            return most - most % isqrt(most)
        return next(count for count in range(most, 0, -1) if _narrowest(count) <= _MOST_ELONGATED)

    @property
    def bound(self) -> int:
        return self.most // (self.depth * self.side * self.side)

    @property
    def largest(self) -> tuple[int, int]:
        if self.searched == "whole" or self.planned_edge:
            edge = self.planned_edge or HUGE
            wide, high = self.grid(edge, edge)
            return wide * self.side, high * self.side
        if self.searched == "root":
            edge = max(isqrt(self.most) // self.side, 1) * self.side
            return edge, edge
        high = next(count for count in range(isqrt(self.planned), 0, -1) if self.planned % count == 0)
        return self.planned // high * self.side, high * self.side


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedEdge(ImageRule):
    """An image is scaled down until no edge exceeds ``most``, and padded to whole squares (Pixtral, Mistral 3)."""

    side: int
    most: int

    def num_tokens(self, width: int, height: int) -> int:
        ratio = max(width / self.most, height / self.most)
        if ratio > 1:
            width, height = floor(width / ratio), floor(height / ratio)
        return ((width - 1) // self.side + 1) * ((height - 1) // self.side + 1)

    @property
    def largest(self) -> tuple[int, int]:
        return self.most, self.most


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedPatches(ImageRule):
    """An image is scaled down until it has at most so many patches, and padded to whole squares (Kimi)."""

    patch: int
    merge: int
    most: int
    """Patches before they are merged."""
    along_an_edge: int = 0
    """Most patches along an edge (Kimi K2.5); 0: no bound, and thin images are not looked at (Kimi-VL)."""

    def num_tokens(self, width: int, height: int) -> int:
        columns, rows = width // self.patch, height // self.patch
        if self.along_an_edge:
            longest = self.along_an_edge * self.patch
            scale = min(1.0, sqrt(self.most / (max(columns, 1) * max(rows, 1))), longest / width, longest / height)
            width, height = min(max(1, int(width * scale)), longest), min(max(1, int(height * scale)), longest)
        elif columns * rows > self.most:
            scale = sqrt(self.most / (columns * rows))
            width, height = int(width * scale), int(height * scale)
        side = self.patch * self.merge
        return -(-width // side) * -(-height // side)

    @property
    def largest(self) -> tuple[int, int]:
        edge = 3000 if self.along_an_edge else 1024
        return edge, edge

    @property
    def bound(self) -> int:
        return self.most // self.merge**2 + self.most // self.merge + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledArea(ImageRule):
    """An image is scaled, up or down, to as many squares as it may have, rounded down (Gemma 4)."""

    side: int
    most: int
    """Embeddings."""

    def num_tokens(self, width: int, height: int) -> int:
        scale = sqrt(self.most * self.side * self.side / (width * height))
        wide, high = max(floor(width * scale / self.side), 1), max(floor(height * scale / self.side), 1)
        return min(wide * high, self.most)

    @property
    def planned(self) -> int:
        return self.most


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainPatches(ImageRule):
    """An image as it is, cut into patches, with bounds on their number if there are any."""

    patch: int
    merge: int = 1
    least: int = 0
    most: int = 1 << 50

    def num_tokens(self, width: int, height: int) -> int:
        patches = (width // self.patch) * (height // self.patch) // (self.merge * self.merge)
        return max(min(max(patches, 1 if self.least else 0), self.most), self.least)

    @property
    def planned(self) -> int:
        return self.most

    @property
    def largest(self) -> tuple[int, int]:
        edge = isqrt(self.most) * self.patch * self.merge
        return edge, edge


# ---------------------------------------------------------------------------------------------------------------------
# Images that are cut into tiles of one size, most often with the whole image, made small, beside them.


def nearest_shape(width: int, height: int, tile: int, shapes: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """The shape whose ratio of edges is nearest to the image's; the larger of two, if the image has half its area."""
    best, nearest = (1, 1), inf
    for wide, high in shapes:
        distance = abs(width / height - wide / high)
        if distance < nearest or (distance == nearest and width * height > 0.5 * tile * tile * wide * high):
            best, nearest = (wide, high), min(distance, nearest)
    return best


@cache
def tile_shapes(least: int, most: int, in_order: bool) -> tuple[tuple[int, int], ...]:
    """Shapes of ``least`` to ``most`` tiles, the smaller ones first; of equal ones as a set has them, or in order."""
    found = [
        (wide, high)
        for count in range(least, most + 1)
        for wide in range(1, count + 1)
        for high in range(1, count + 1)
        if least <= wide * high <= most
    ]
    return tuple(sorted(sorted(set(found)) if in_order else set(found), key=lambda each: each[0] * each[1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class NearestTiles(ImageRule):
    """The number of tiles is that of the shape nearest to the image's (InternVL and its kin)."""

    tile: int
    """Pixels along an edge."""
    tokens: int
    """Embeddings that a tile has."""
    least: int = 1
    most: int = 12
    thumbnail: bool = True
    """The whole image is one more tile, where there are several."""
    in_order: bool = False
    """The narrower one of two shapes that are equally near and large wins; else the one that a set has first."""

    def num_tokens(self, width: int, height: int) -> int:
        wide, high = nearest_shape(width, height, self.tile, tile_shapes(self.least, self.most, self.in_order))
        tiles = wide * high
        return self.tokens * (tiles + 1 if self.thumbnail and tiles != 1 else tiles)

    @property
    def largest(self) -> tuple[int, int]:
        shapes = tile_shapes(self.least, self.most, self.in_order)
        wide, high = max(shapes, key=lambda shape: shape[0] * shape[1])
        return wide * self.tile, high * self.tile


@dataclass(frozen=True, slots=True, kw_only=True)
class NearestPage(ImageRule):
    """Tiles of the nearest shape beside a larger view of the whole (DeepSeek OCR)."""

    tile: int
    tile_grid: int
    """Embeddings along an edge of a tile."""
    page_grid: int
    """The same of the whole."""
    least: int
    most: int
    ends_rows: bool
    """A row of embeddings has one more at its end."""
    planned_shape: tuple[int, int] = (2, 2)
    """Tiles along the width and the height of the image that vLLM takes for the largest."""

    def num_tokens(self, width: int, height: int) -> int:
        end = 1 if self.ends_rows else 0
        whole = self.page_grid * (self.page_grid + end) + 1
        if width <= self.tile and height <= self.tile:
            return whole
        wide, high = nearest_shape(width, height, self.tile, tile_shapes(self.least, self.most, False))
        return whole + high * self.tile_grid * (wide * self.tile_grid + end) * (wide * high > 1)

    @property
    def planned(self) -> int:
        return self.num_tokens(self.planned_shape[0] * self.tile, self.planned_shape[1] * self.tile)

    @property
    def bound(self) -> int:
        end = 1 if self.ends_rows else 0
        shapes = tile_shapes(self.least, self.most, False)
        tiles = max(high * self.tile_grid * (wide * self.tile_grid + end) for wide, high in shapes)
        return self.page_grid * (self.page_grid + end) + 1 + tiles


@dataclass(frozen=True, slots=True, kw_only=True)
class LongestEdge(ImageRule):
    """The longer edge is scaled to ``longest``, and what comes of it is cut into tiles (Idefics 3, SmolVLM)."""

    longest: int
    tile: int
    tokens: int
    splits: bool = True
    edge_limit: int = 4096

    def num_tokens(self, width: int, height: int) -> int:
        if not self.splits:
            return self.tokens
        width, height = self._scaled(width, height)
        wide, high = ceil(width / self.tile), ceil(height / self.tile)
        return self.tokens * (wide * high + 1 if max(wide, high) > 1 else 1)

    def _scaled(self, width: int, height: int) -> tuple[int, int]:
        ratio = width / height
        if width >= height:
            width, height = self.longest, int(self.longest / ratio)
            height += height % 2
        else:
            width, height = int(self.longest * ratio), self.longest
            width += width % 2
        width, height = max(width, 1), max(height, 1)
        ratio = width / height
        if width >= height and width > self.edge_limit:
            return self.edge_limit, max(int(self.edge_limit / ratio), 1)
        if height > width and height > self.edge_limit:
            return max(int(self.edge_limit * ratio), 1), self.edge_limit
        return width, height

    @property
    def planned(self) -> int:
        return self.num_tokens(self.tile, self.tile)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastPadding(ImageRule):
    """The canvas of at most ``most`` tiles that takes the image with the least change of its size (Llama 4)."""

    tile: int
    tokens: int
    most: int = 16
    to_largest: bool = False
    single: bool = True
    """Scales are compared as numbers of 32 bits."""

    def num_tokens(self, width: int, height: int) -> int:
        sizes = [(high, wide) for high in range(1, self.most + 1) for wide in range(1, self.most // high + 1)]
        scales = [min(wide * self.tile / width, high * self.tile / height) for high, wide in sizes]
        if self.single:
            scales = [unpack("f", pack("f", scale))[0] for scale in scales]
        larger = [scale for scale in scales if scale >= 1]
        chosen = (max(larger) if self.to_largest else min(larger)) if larger else max(scales)
        tiles = min(high * wide for (high, wide), scale in zip(sizes, scales, strict=True) if scale == chosen)
        return self.tokens * (tiles + 1 if tiles > 1 else 1)

    @property
    def largest(self) -> tuple[int, int]:
        return self.tile, self.tile * self.most


@dataclass(frozen=True, slots=True, kw_only=True)
class BestResolution(ImageRule):
    """Tiles of the size out of a list that keeps most of the image; embeddings of padding are left out (LLaVA-NeXT)."""

    sizes: tuple[tuple[int, int], ...]
    """Height and width of what may be cut into tiles."""
    tile: int
    grid: int
    """Embeddings along an edge of a tile."""
    whole: int
    """Embeddings of the whole image, made small."""
    most_tiles: int = 0
    """Where more tiles than so many come out, they are scaled down to as many (LLaVA-OneVision: 9)."""
    planned_at: tuple[int, int] | None = None
    """Width and height of the image that vLLM takes for the largest; None: one of ``sizes``."""

    def num_tokens(self, width: int, height: int) -> int:
        full_height, full_width = best_size(width, height, self.sizes)
        high, wide = full_height // self.tile * self.grid, full_width // self.tile * self.grid
        if width / height > wide / high:
            high -= (high - int(round(height * (wide / width), 7))) // 2 * 2
        else:
            wide -= (wide - int(round(width * (high / height), 7))) // 2 * 2
        if self.most_tiles:
            ratio = sqrt(high * wide / (self.most_tiles * self.grid**2))
            if ratio > 1.1:
                high, wide = int(high // ratio), int(wide // ratio)
        return high * (wide + 1) + self.whole

    @property
    def largest(self) -> tuple[int, int]:
        return self.planned_at or self._first_largest((wide, high) for high, wide in self.sizes)

    @property
    def bound(self) -> int:
        highest = max(high // self.tile * self.grid for high, _ in self.sizes)
        most = max(high // self.tile * (wide // self.tile) * self.grid**2 for high, wide in self.sizes)
        if self.most_tiles:
            most = min(most, int(1.21 * self.most_tiles * self.grid**2) + 1)
        return self.whole + most + highest


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddedResolution(ImageRule):
    """Tiles of the size out of a list that keeps most of the image, with all that pads it (DeepSeek-VL2)."""

    sizes: tuple[tuple[int, int], ...]
    """Height and width."""
    tile: int
    grid: int

    def num_tokens(self, width: int, height: int) -> int:
        high, wide = (edge // self.tile for edge in best_size(width, height, self.sizes))
        return self.grid * (self.grid + 1) + high * self.grid * (wide * self.grid + 1) + 1

    @property
    def planned(self) -> int:
        return max(self.num_tokens(wide, high) for high, wide in self.sizes)

    @property
    def largest(self) -> tuple[int, int]:
        return self._first_largest(self.sizes)  # what its processor takes for the width is the height here


def best_size(width: int, height: int, sizes: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Height and width out of ``sizes`` that keep most pixels of an image, and of these the one that wastes least."""
    best, most, least_wasted = sizes[0], 0, inf
    for full_height, full_width in sizes:
        scale = min(full_width / width, full_height / height)
        kept = min(int(width * scale) * int(height * scale), width * height)
        wasted = full_width * full_height - kept
        if kept > most or (kept == most and wasted < least_wasted):
            best, most, least_wasted = (full_height, full_width), kept, wasted
    return best


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpaddedTiles(ImageRule):
    """The number of tiles is that which covers the image, up to a bound; embeddings of padding are left out (Phi-4
    multimodal).
    """

    tile: int
    patch: int
    merge: int
    most: int

    def num_tokens(self, width: int, height: int) -> int:
        wide, high = ceil(width / self.tile), ceil(height / self.tile)
        if wide * high > self.most:
            wide, high = nearest_shape(width, height, self.tile, tile_shapes(1, self.most, False))
        full_width, full_height = wide * self.tile, high * self.tile
        to_width, to_height = full_width / width, full_height / height
        columns, rows = full_width // self.patch, full_height // self.patch
        if to_width < to_height:
            rows -= (full_height - int(height * to_width)) // self.patch
        else:
            columns -= (full_width - int(width * to_height)) // self.patch
        columns, rows = -(-columns // self.merge), -(-rows // self.merge)
        whole = self.tile // self.patch // self.merge
        return whole * (whole + 1) + 1 + rows * (columns + 1)

    @property
    def largest(self) -> tuple[int, int]:
        return self.tile, self.tile * self.most

    @property
    def bound(self) -> int:
        whole = self.tile // self.patch // self.merge
        return (
            whole * (whole + 1)
            + 1
            + max(high * whole * (wide * whole + 1) for wide, high in tile_shapes(1, self.most, False))
        )
