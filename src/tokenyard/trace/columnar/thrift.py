"""Structs in Thrift's compact protocol, as Parquet's footer and page headers are: what is wanted is kept.

pyarrow reads them too, but a column of a footer that contradicts itself ends the whole process there (an exception
crosses code that must not throw), and it does not show page headers at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

__all__ = ["BYTES", "I32", "I64", "Keep", "ThriftReader"]

Keep: TypeAlias = Mapping[int, Any]
"""Number of a field to keep -> ``I32``, ``I64``, ``BYTES``, what to keep of the struct that it is, or a list of one of
these."""

I32, I64, BYTES = 5, 6, 8
"""Kinds, as the protocol numbers them. Other readers pass over a field of another kind, or take the first of two: where
they could read something else than this one, nothing is read."""

_TRUE, _FALSE, _BYTE, _DOUBLE, _LIST, _SET, _STRUCT = 1, 2, 3, 7, 9, 10, 12
_INTEGERS = (4, I32, I64)
_MOST_FIELD = 0x7FFF
_MOST_NESTED = 16
_NOTHING: Keep = {}


class ThriftReader:
    """Bytes that begin with a struct. IndexError where they end within it, ValueError where they are none."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0
        """Bytes read."""

    def struct(self, keep: Keep, depth: int = 0) -> dict[int, Any]:
        """Field -> its value, of the type that ``keep`` says, where there is one."""
        if depth > _MOST_NESTED:
            raise ValueError("its metadata is nested too deep")
        kept: dict[int, Any] = {}
        field = 0
        while kind := self._byte():
            step, kind = kind >> 4, kind & 15
            field = field + step if step else self._integer()
            if not 0 <= field <= _MOST_FIELD or field in kept:
                raise ValueError(f"its metadata has field {field} twice, or where none can be")
            if field in keep:
                kept[field] = self._value(kind, keep[field], depth)
            else:
                self._pass_over(kind, depth)
        return kept

    def _value(self, kind: int, wanted: Any, depth: int) -> Any:
        if wanted == kind and kind in _INTEGERS:
            return self._integer()
        if wanted == kind == BYTES:
            return self._bytes()
        if isinstance(wanted, Mapping) and kind == _STRUCT:
            return self.struct(wanted, depth + 1)
        if isinstance(wanted, list) and kind in (_LIST, _SET):
            each, count = self._list()
            return [self._value(each, wanted[0], depth + 1) for _ in range(count)]
        raise ValueError(f"its metadata has a field of kind {kind} where none can be")

    def _pass_over(self, kind: int, depth: int) -> None:
        if kind in _INTEGERS:
            self._unsigned()
        elif kind == BYTES:
            self._bytes()
        elif kind == _STRUCT:
            self.struct(_NOTHING, depth + 1)
        elif kind in (_LIST, _SET):
            each, count = self._list()
            for _ in range(count):
                self._pass_over(_BYTE if each in (_TRUE, _FALSE) else each, depth + 1)
        elif kind in (_BYTE, _DOUBLE):
            self._skip(1 if kind == _BYTE else 8)
        elif kind not in (_TRUE, _FALSE):  # the value is in the kind; Parquet has no maps
            raise ValueError(f"its metadata has a field of kind {kind}")

    def _list(self) -> tuple[int, int]:
        """The kind of the elements, and how many there are; each takes a byte at least."""
        head = self._byte()
        count, each = head >> 4, head & 15
        if count == 15:
            count = self._unsigned()
        if count > len(self._data) - self.at:
            raise IndexError(count)
        return each, count

    def _bytes(self) -> bytes:
        count = self._unsigned()
        self._skip(count)
        return self._data[self.at - count : self.at]

    def _skip(self, count: int) -> None:
        self.at += count
        if self.at > len(self._data):
            raise IndexError(self.at)

    def _byte(self) -> int:
        value = self._data[self.at]
        self.at += 1
        return value

    def _unsigned(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self.at]
            self.at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise ValueError("its metadata holds a number of more than 64 bits")

    def _integer(self) -> int:
        value = self._unsigned()
        return value >> 1 ^ -(value & 1)
