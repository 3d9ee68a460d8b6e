"""Further kinds of rules: images that are cut into windows, crops and slices, beside the whole that is made small.

As in :mod:`~tokenyard.models.images.rules` a rule is data, and every count was compared with vLLM's own.
"""

from __future__ import annotations

from math import ceil, floor, inf, isqrt, log, sqrt
from struct import pack, unpack

from tokenyard.errors import ConfigError
from tokenyard.models.images.rules import MAX_EDGE, BoundedArea, ImageRule, nearest_shape, tile_shapes
from tokenyard.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlappingCrops(ImageRule):
    """Crops that overlap, as many as the image needs at its own size, beside the whole made small (Molmo)."""

    patch: int
    """Pixels along an edge."""
    crop: int
    """Patches along an edge of a crop."""
    left: int
    right: int
    """Patches that a crop shares with its neighbours."""
    pool: tuple[int, int]
    """Patches that become one embedding: along the height, and along the width."""
    most: int
    """Crops."""
    whole: tuple[int, int] | None = None
    """Rows and columns of embeddings of the whole; None: as many as a crop has."""
    padded: bool = False
    """Each crop is padded to whole embeddings (Molmo), not all of them together (Molmo 2)."""
    ends: int = 0
    """Embeddings at the start and the end, of the crops and of the whole each."""
    ends_rows: bool = False
    """A row of embeddings of the crops has one more at its end."""
    ends_whole_rows: bool = False
    """The same of the whole."""

    def num_tokens(self, width: int, height: int) -> int:
        high, wide = self._tiling(width, height)
        return self._whole() + self._crops(high, wide)

    def _whole(self) -> int:
        rows, columns = self.whole or (-(-self.crop // self.pool[0]), -(-self.crop // self.pool[1]))
        return self.ends + rows * (columns + self.ends_whole_rows)

    def _crops(self, high: int, wide: int) -> int:
        rows, columns = self._along(high, self.pool[0]), self._along(wide, self.pool[1])
        return self.ends + rows * (columns + self.ends_rows)

    def _along(self, crops: int, pool: int) -> int:
        window = self.crop - self.left - self.right
        if not self.padded:
            return -(-(crops * window + self.left + self.right) // pool)
        if crops == 1:
            return -(-self.crop // pool)
        ends = -(-(window + self.left) // pool) + -(-(window + self.right) // pool)
        return ends + (crops - 2) * -(-window // pool)

    def _tiling(self, width: int, height: int) -> tuple[int, int]:
        """Crops along the height and the width, by scales in 32 bits; an image may be smaller than what is shared."""
        window = self.patch * (self.crop - self.left - self.right)
        shared = self.patch * (self.left + self.right)
        sizes = [(high, wide) for high, wide in tile_shapes(1, self.most, True)]
        scales = [
            min(_scale(high * window, height - shared), _scale(wide * window, width - shared)) for high, wide in sizes
        ]
        larger = [scale for scale in scales if scale >= 1]
        return sizes[scales.index(min(larger) if larger else max(scales))]

    @property
    def planned(self) -> int:
        return self._whole() + max(self._crops(high, wide) for high, wide in tile_shapes(1, self.most, True))

    @property
    def largest(self) -> tuple[int, int]:
        margins = (self.left + self.right) * self.patch
        step = self.crop * self.patch - margins
        sizes = [(wide * step + margins, high * step + margins) for high, wide in tile_shapes(1, self.most, True)]
        return self._first_largest(sorted(sizes) if self.padded else sizes)  # Molmo's order is another than Molmo 2's


def _scale(pixels: int, edge: int) -> float:
    """The ratio, rounded to 32 bits."""
    return float(unpack("f", pack("f", pixels / edge))[0]) if edge else inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows(ImageRule):
    """Windows as large as the shape of the image asks for, beside the whole made small (Step 3)."""

    tokens: int
    """Embeddings of a window."""
    whole: int
    """Embeddings of the whole image."""
    splits: bool = True
    longest: int = 3024
    """Pixels that an edge is scaled down to."""
    smallest: int = 728
    """An image with no longer edge is cut only if it is elongated."""
    window: int = 504

    def num_tokens(self, width: int, height: int) -> int:
        wide, high = self._windows(width, height)
        return self.whole + wide * high * self.tokens

    def _windows(self, width: int, height: int) -> tuple[int, int]:
        if min(width, height) < 32 and max(width, height) > 4 * min(width, height):
            width = height = max(width, height)
        if max(width, height) > self.longest:
            scale = self.longest / max(width, height)
            width, height = int(width * scale), int(height * scale)
        if not min(width, height):
            raise ConfigError("image", f"{width}x{height}", "an edge is scaled to nothing, where vLLM divides by it")
        window = self._size(max(width, height), min(width, height))
        if not window or not self.splits:
            return 0, 0
        return self._along(width, window), self._along(height, window)

    def _size(self, long: int, short: int) -> int:
        if long < self.smallest:
            return short if long / short > 1.5 else 0
        return min(short, self.window) if long / short > 4 else self.window

    @staticmethod
    def _along(edge: int, window: int) -> int:
        """A fifth of a window that is left over is one more."""
        return max(1, edge // window + (edge / window - edge // window > 0.2))

    @property
    def planned(self) -> int:
        """Beside the embeddings vLLM counts the tokens around the image and its windows, and those between rows."""
        wide, high = self._windows(*self.largest)
        return self.num_tokens(*self.largest) + 2 * (wide * high + 1) + max(high - 1, 0)

    @property
    def bound(self) -> int:
        """Embeddings of an image that is cut into as many windows as it has pixels along an edge."""
        return max(self.planned, self.whole + (self.longest * self.tokens if self.splits else 0))

    @property
    def largest(self) -> tuple[int, int]:
        return self.longest, self.longest


@dataclass(frozen=True, slots=True, kw_only=True)
class TilesOfLarge(ImageRule):
    """An image keeps its shape within bounds; a larger one has tiles of the nearest shape beside it (LFM2-VL)."""

    area: BoundedArea
    tile: int
    tokens: int
    """Embeddings of a tile."""
    least: int
    most: int
    tolerance: float
    """Times the bound that an image may have without being cut."""
    patch: int

    def num_tokens(self, width: int, height: int) -> int:
        small = self.area.num_tokens(width, height)
        side = self.area.side
        wide, high = (max(self.patch, round(edge / side) * side) for edge in (width, height))
        if wide * high <= self.area.most * self.tolerance or self.least == self.most == 1:
            return small
        wide, high = nearest_shape(width, height, self.tile, tile_shapes(self.least, self.most, False))
        return small + wide * high * self.tokens * (wide * high > 1)

    @property
    def largest(self) -> tuple[int, int]:
        edge = int(sqrt(self.area.most))
        return edge, edge

    @property
    def bound(self) -> int:
        """Embeddings of an image that is one row of them, as long as an edge may be."""
        return isqrt(MAX_EDGE * self.area.most) // self.area.side + 1 + self.most * self.tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class FittingTiles(ImageRule):
    """The number of tiles is that of the shape that fits the image best by ratio of edges and area (Nemotron Nano)."""

    tile: int
    tokens: int
    most: int
    thumbnail: bool

    def num_tokens(self, width: int, height: int) -> int:
        ratio, area = width / height, width * height
        best, most = 1, -inf
        for wide, high in tile_shapes(1, self.most, False):
            near = min(wide / high / ratio, ratio / (wide / high))
            fit = min(wide * high * self.tile * self.tile / area, 0.6) * near
            if fit > most:
                best, most = wide * high, fit
        return self.tokens * (best + 1 if self.thumbnail and best > 1 else best)

    @property
    def largest(self) -> tuple[int, int]:
        shapes = tile_shapes(1, self.most, False)
        return self._first_largest((wide * self.tile, high * self.tile) for wide, high in shapes)

    @property
    def bound(self) -> int:
        return self.tokens * (self.most + 1 if self.thumbnail and self.most > 1 else self.most)


@dataclass(frozen=True, slots=True, kw_only=True)
class TilesTwice(ImageRule):
    """Tiles of the nearest shape, and again of the nearest whose edges do not divide that one's (H2OVL)."""

    tile: int
    tokens: int
    most: int

    def num_tokens(self, width: int, height: int) -> int:
        first = nearest_shape(width, height, self.tile, tile_shapes(1, self.most, False))
        others = [each for each in tile_shapes(3, self.most, False) if first[0] % each[0] and first[1] % each[1]]
        second = nearest_shape(width, height, self.tile, others)
        counts = [wide * high for wide, high in (first, second)]
        return self.tokens * (sum(count + 1 if count > 1 else 1 for count in counts) - 1)

    @property
    def largest(self) -> tuple[int, int]:
        shapes = tile_shapes(1, self.most, False)
        return self._first_largest((wide * self.tile, high * self.tile) for wide, high in shapes)

    @property
    def bound(self) -> int:
        return self.tokens * (2 * self.most + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slices(ImageRule):
    """Slices of one area, in the shape nearest to the image's, beside the whole of that area (MiniCPM-V 4.6)."""

    edge: int
    """Pixels along an edge of a square slice."""
    side: int
    """Pixels along an edge of what becomes ``tokens`` embeddings."""
    tokens: int
    most: int
    planned_edge: int
    """Width of the image that vLLM takes for the largest, and ``planned_slices`` times as high."""
    planned_slices: int

    def num_tokens(self, width: int, height: int) -> int:
        shape = self._shape(width, height)
        if shape is None:
            return self._scaled(width, height, True)
        rows, columns = shape
        of_slice = self._scaled(max(round(width / columns), 1), max(round(height / rows), 1), True)
        return self._scaled(width, height, False) + rows * columns * of_slice

    def _scaled(self, width: int, height: int, always: bool) -> int:
        if always or width * height > self.edge * self.edge:
            ratio = width / height
            height = int(self.edge / sqrt(ratio))
            width = int(height * ratio)
        return self.tokens * max(round(width / self.side), 1) * max(round(height / self.side), 1)

    def _shape(self, width: int, height: int) -> tuple[int, int] | None:
        """Rows and columns of slices."""
        count = min(ceil(width * height / (self.edge * self.edge)), self.most)
        if count <= 1:
            return None
        best, nearest = (1, 1), inf
        for slices in (count - 1, count, count + 1):
            if slices == 1 or slices > self.most:
                continue
            for rows in (each for each in range(1, slices + 1) if slices % each == 0):
                off = abs(log(width / height) - log(slices // rows / rows))
                if off < nearest or (off == nearest and rows > best[0]):
                    best, nearest = (rows, slices // rows), off
        return best

    @property
    def largest(self) -> tuple[int, int]:
        return self.planned_edge, self.planned_edge * self.planned_slices

    @property
    def bound(self) -> int:
        return (self.most + 1) * self.tokens * (self.edge * self.edge // self.side + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class StretchedArea(ImageRule):
    """Sides are rounded to multiples of ``side``; thin images are made thicker or cut short first (Ovis 2.5)."""

    side: int
    least: int
    most: int
    """Pixels of an image."""
    ends: int = 2
    """Embeddings at the start and the end."""
    planned_edge: int = 1792

    def num_tokens(self, width: int, height: int) -> int:
        squares = self._squares(width, height)
        if not squares:
            raise ConfigError("image", f"{width}x{height}", "an edge is scaled to nothing, which its processor refuses")
        return squares + self.ends

    def _squares(self, width: int, height: int) -> int:
        side = self.side
        if min(width, height) < side:
            if height < width:
                width, height = round(side / height * width), side
            else:
                width, height = side, round(side / width * height)
        elif max(width, height) / min(width, height) > 200:
            width, height = min(width, 200 * height), min(height, 200 * width)
        wide, high = round(width / side), round(height / side)
        if wide * high * side * side > self.most:
            scale = sqrt(height * width / self.most)
            return floor(width / scale / side) * floor(height / scale / side)
        if wide * high * side * side < self.least:
            scale = sqrt(self.least / (height * width))
            return ceil(width * scale / side) * ceil(height * scale / side)
        return wide * high

    @property
    def largest(self) -> tuple[int, int]:
        return self.planned_edge, self.planned_edge

    @property
    def bound(self) -> int:
        return self.most // (self.side * self.side) + self.ends


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedSides(ImageRule):
    """The longer edge is scaled down to a bound, else the shorter one up to another (MiniMax M3, if so written)."""

    side: int
    longest: int
    shortest: int
    most: int
    """Pixels of an image that is not refused."""

    def num_tokens(self, width: int, height: int) -> int:
        long, short = max(width, height), min(width, height)
        if long / short > 200:
            raise ConfigError("image", f"{width}x{height}", "one edge is more than 200 times the other: it is refused")
        scale = self.longest / long if long > self.longest else max(self.shortest / short, 1.0)
        wide, high = (max(1, round(edge * scale / self.side)) for edge in (width, height))
        if wide * high * self.side * self.side > self.most:
            raise ConfigError(
                "image", f"{width}x{height}", f"it is scaled to more than {self.most} pixels: it is refused"
            )
        return wide * high

    @property
    def planned(self) -> int:
        return max(min(self.longest, isqrt(self.most)) // self.side, 1) ** 2

    @property
    def bound(self) -> int:
        return self.most // (self.side * self.side)

    @property
    def largest(self) -> tuple[int, int]:
        edge = isqrt(self.planned) * self.side
        return edge, edge


@dataclass(frozen=True, slots=True, kw_only=True)
class CoveringTiles(ImageRule):
    """The fewest parts of an image that, made small, keep nine tenths of it, beside the whole (Ovis 2)."""

    tile: int
    tokens: int
    """Embeddings of a part."""
    most: int = 9
    enough: float = 0.9
    """Share of the image's area."""
    planned_edge: int

    def num_tokens(self, width: int, height: int) -> int:
        return self._count(*self._shape(width, height))

    def _count(self, rows: int, columns: int) -> int:
        """Three embeddings are marks around the image; more stand between parts and rows."""
        if rows * columns == 1:
            return self.tokens + 3
        return self.tokens * (rows * columns + 1) + 3 + rows * (columns - 1) + rows - 1

    def _shape(self, width: int, height: int) -> tuple[int, int]:
        if int(min(width, height) / max(width, height) * self.tile) == 0:
            raise ConfigError("image", f"{width}x{height}", "an edge is scaled to nothing, which its processor refuses")
        shapes = [(high, wide) for high in range(1, self.most + 1) for wide in range(1, self.most // high + 1)]
        kept = {shape: self._share_kept(width, height, *shape) for shape in shapes}
        good = [shape for shape in shapes if kept[shape] > self.enough]
        if good:
            return min(good, key=lambda each: (each[0] * each[1], -kept[each]))
        return min(shapes, key=lambda each: (-kept[each], each[0] * each[1]))

    def _share_kept(self, width: int, height: int, rows: int, columns: int) -> float:
        """Share of the image's area that its parts have, made small; the last ones have what is left over."""
        across, down = width // columns, height // rows
        area: float = 0
        for row in range(rows):
            for column in range(columns):
                wide = width - column * across if column == columns - 1 else across
                high = height - row * down if row == rows - 1 else down
                long, short = max(wide, high), min(wide, high)
                area += self.tile * (short / long * self.tile) if long > self.tile else long * short
        return area / (width * height)

    @property
    def largest(self) -> tuple[int, int]:
        return self.planned_edge, self.planned_edge

    @property
    def bound(self) -> int:
        return max(self._count(high, wide) for high, wide in tile_shapes(1, self.most, True))
