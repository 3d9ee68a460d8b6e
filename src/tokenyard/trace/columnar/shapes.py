"""The shapes that values of a trace have: which values fit one, and how Arrow holds and gives them back.

A value that does not fit exactly is not bent until it does; it is kept as JSON beside the columns. So every shape gives
back what it took, to the last bit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import chain, pairwise
from typing import Any

import msgspec

__all__ = ["Flag", "Json", "ListOf", "MapOf", "Number", "Record", "Shape", "Text", "Whole"]


class Shape(ABC):
    """One kind of value."""

    @abstractmethod
    def arrow_type(self, pa: Any) -> Any:
        """Its Arrow type."""

    @abstractmethod
    def fits(self, values: Sequence[Any]) -> bool:
        """Whether every one of ``values`` is exactly of this shape; a null is not."""

    def to_arrow(self, values: list[Any]) -> list[Any]:
        """What Arrow is to be given for ``values``, each of which fits or is None."""
        return values

    @abstractmethod
    def from_arrow(self, array: Any) -> list[Any]:
        """The values of an Arrow array of this type, which has no nulls at the top."""


class _Plain(Shape):
    """A value that NumPy gives back as Python's own."""

    kind: type

    def fits(self, values: Sequence[Any]) -> bool:
        return _all_of(values, self.kind)

    def from_arrow(self, array: Any) -> list[Any]:
        values: list[Any] = array.to_numpy(zero_copy_only=False).tolist()
        return values


class Text(_Plain):
    """A string."""

    kind = str

    def arrow_type(self, pa: Any) -> Any:
        return pa.string()


class Number(_Plain):
    """A number with a fraction, or a time."""

    kind = float

    def arrow_type(self, pa: Any) -> Any:
        return pa.float64()


class Flag(_Plain):
    """True or false."""

    kind = bool

    def arrow_type(self, pa: Any) -> Any:
        return pa.bool_()


class Whole(_Plain):
    """A whole number of 32 or 64 bits."""

    kind = int

    def __init__(self, bits: int = 32) -> None:
        self.bits = bits
        self._bound = 1 << (bits - 1)

    def arrow_type(self, pa: Any) -> Any:
        return pa.int32() if self.bits == 32 else pa.int64()

    def fits(self, values: Sequence[Any]) -> bool:
        return super().fits(values) and (not values or (min(values) >= -self._bound and max(values) < self._bound))


class Json(Shape):
    """An object of any content, held as JSON text."""

    def arrow_type(self, pa: Any) -> Any:
        return pa.string()

    def fits(self, values: Sequence[Any]) -> bool:
        return _all_of(values, dict)

    def to_arrow(self, values: list[Any]) -> list[Any]:
        return [None if value is None else msgspec.json.encode(value).decode() for value in values]

    def from_arrow(self, array: Any) -> list[Any]:
        return [msgspec.json.decode(text) for text in array.to_pylist()]


class ListOf(Shape):
    """A list; its items may be null if ``nullable``."""

    def __init__(self, item: Shape, *, nullable: bool = False) -> None:
        self._item = item
        self._nullable = nullable

    def arrow_type(self, pa: Any) -> Any:
        return pa.list_(self._item.arrow_type(pa))

    def fits(self, values: Sequence[Any]) -> bool:
        if not _all_of(values, list):
            return False
        items = list(chain.from_iterable(values))
        if self._nullable:
            items = [item for item in items if item is not None]
        return self._item.fits(items)

    def from_arrow(self, array: Any) -> list[Any]:
        # Only text is nullable, and NumPy gives its nulls back as None.
        (items,), bounds = _children(array, array.values)
        return _cut(self._item.from_arrow(items), bounds)


class MapOf(Shape):
    """An object whose keys are ids or names, in their order."""

    def __init__(self, item: Shape) -> None:
        self._item = item

    def arrow_type(self, pa: Any) -> Any:
        return pa.map_(pa.string(), self._item.arrow_type(pa))

    def fits(self, values: Sequence[Any]) -> bool:
        return _all_of(values, dict) and self._item.fits(list(chain.from_iterable(each.values() for each in values)))

    def to_arrow(self, values: list[Any]) -> list[Any]:
        return [None if value is None else list(value.items()) for value in values]

    def from_arrow(self, array: Any) -> list[Any]:
        (keys, items), bounds = _children(array, array.keys, array.items)
        pairs = list(zip(Text().from_arrow(keys), self._item.from_arrow(items), strict=True))
        return [dict(each) for each in _cut(pairs, bounds)]


class Record(Shape):
    """An object with known fields, in their order; a field that is missing is null, so none may be null itself."""

    def __init__(self, fields: Mapping[str, Shape]) -> None:
        self._fields = dict(fields)
        self._order = {name: place for place, name in enumerate(fields)}

    def arrow_type(self, pa: Any) -> Any:
        return pa.struct([(name, shape.arrow_type(pa)) for name, shape in self._fields.items()])

    def fits(self, values: Sequence[Any]) -> bool:
        return _all_of(values, dict) and all(self._fits(value) for value in values)

    def _fits(self, value: dict[str, Any]) -> bool:
        places = [self._order.get(name, -1) for name in value]
        # One that has no field at all would come back as a null.
        return (
            bool(places)
            and places[0] >= 0
            and all(a < b for a, b in pairwise(places))
            and all(self._fields[name].fits((item,)) for name, item in value.items())
        )

    def from_arrow(self, array: Any) -> list[Any]:
        return [_without_nulls(value) for value in array.to_pylist()]


def _all_of(values: Sequence[Any], kind: type) -> bool:
    return set(map(type, values)) <= {kind}


def _children(array: Any, *children: Any) -> tuple[list[Any], list[int]]:
    """The parts of ``children`` that an array of lists covers, and where each of its lists begins and ends in them."""
    offsets = array.offsets.to_numpy()
    start, end = int(offsets[0]), int(offsets[-1])
    return [child.slice(start, end - start) for child in children], (offsets - start).tolist()


def _cut(items: list[Any], bounds: list[int]) -> list[list[Any]]:
    return [items[start:end] for start, end in pairwise(bounds)]


def _without_nulls(value: Any) -> Any:
    """A record as it was: what Arrow filled up is left out again."""
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    return value
