"""Expressions over the fields of a ``config.json``: how a row of the table says which fields fill a piece.

"num_key_value_heads=heads"      the field; where it is missing, what the expression behind ``=`` comes to
"n_embd|hidden_size"             the first of these fields that is there, and an error where none is
"auto(mamba_dt_rank)"            the field as it is, 0 where it is missing or says "auto"
"o_groups!", "part.heads!"       a field that has to be there, perhaps in a section: a whole number from 1
"(i + 1) % 4 == 0 and experts"   arithmetic, comparisons, min, max, sum and len as Python writes them (and those of
                                 the positive numbers of a list: len_positive, sum_positive), over names that the
                                 table has for every model (``hidden``, ``heads``, ...), fields (0 where they are
                                 missing) and what the caller binds (``i``, the number of a layer)
["hidden * heads", "4 * hidden"] the sum of these, for one that is long
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from tokenyard.core.config import MAX_COUNT
from tokenyard.models.fields import Fields

Fill = int | bool | str | tuple[str, ...]
"""What fills a piece: a number, an expression, or the terms of a sum, each an expression."""

_ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.Div: operator.truediv, ast.Pow: operator.pow,
}  # fmt: skip
_COMPARISONS: dict[type, Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.In: lambda item, items: item in _items(items),
    ast.NotIn: lambda item, items: item not in _items(items),
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Any]] = {"min": min, "max": max}
_OF_ITEMS: dict[str, Callable[[Any], int]] = {
    "len": len,
    "sum": lambda items: sum(map(_number, items)),
    "len_positive": lambda items: sum(_number(each) > 0 for each in items),
    "sum_positive": lambda items: sum(max(_number(each), 0) for each in items),
}
_MOST = 1 << 62
"""No count of parameters comes near it."""


def _items(items: Any) -> list[Any]:
    """A list, or the numbers of a text with commas between them."""
    if isinstance(items, str):
        return [int(each) for each in items.split(",") if each.strip().isdecimal()]
    return items if isinstance(items, list) else []


@cache
def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


class Expressions:
    """Evaluates the expressions of one row over the fields of one file."""

    def __init__(self, fields: Fields, names: Mapping[str, str], around: Mapping[str, Any] | None = None) -> None:
        """``names`` says which fields the names mean that every row may use; ``around`` has values of others."""
        self.fields = fields
        self.names = {**names, **dict.fromkeys(around or {}, "")}
        self._known: dict[str, Any] = {f"={name}": value for name, value in (around or {}).items()}
        self._last = "architectures"

    def value(self, fill: Fill, **bound: Any) -> Any:
        """What an expression comes to. Raises ConfigError naming the field that is missing or cannot be used."""
        fill = _whole(fill)
        if not isinstance(fill, str):
            return fill
        if not bound and fill in self._known:
            return self._known[fill]
        try:
            found = self._field(fill, bound) if _is_field(fill) else self._walk(_parsed(fill), bound)
        except (TypeError, ZeroDivisionError):
            raise self.fields.error(self._last, f"does not work in {fill!r}") from None
        if not bound:
            self._known[fill] = found
        return found

    def count(self, fill: Fill, **bound: Any) -> int:
        """A whole number from 0."""
        return self.whole(fill, self.value(fill, **bound))

    def whole(self, fill: Any, found: Any) -> int:
        """What ``fill`` comes to, if it is a whole number from 0. Raises ConfigError."""
        if isinstance(found, float) and found.is_integer():
            found = int(found)
        if not isinstance(found, int) or not 0 <= found < _MOST:
            raise self.fields.error(self._last, f"does not work: {fill} comes to {found!r:.40}")
        return int(found)

    def name(self, name: str) -> Any:
        """What one of the names comes to that every row may use."""
        key = f"={name}"
        if key not in self._known:
            text = self.names[name]
            self._known[key] = (
                self._field(text, {}, is_size=True) if _is_field(text) or text.isidentifier() else self.value(text)
            )
        return self._known[key]

    def _field(self, text: str, bound: Mapping[str, Any], *, is_size: bool = False) -> Any:
        """The first of the fields that has a value, else the default; a size is a number from 1 or from its default."""
        if text.endswith("!"):
            return self._size(*text[:-1].split("."))
        names, has_default, default = text.partition("=")
        name = self.fields.first(*names.split("|"))
        self._last = name
        raw = self.fields.get(name)
        if raw is None and has_default:
            return default == "true" if default in ("true", "false") else self.value(default, **bound)
        if not is_size and isinstance(raw, str | list | bool):
            return self._checked(name, raw)
        return self.fields.count(name, low=int(is_size and default != "0"))

    def _size(self, *path: str) -> int:
        section, self._last = self.fields, path[0]
        for name in path[:-1]:
            inner = section.section(name)
            if inner is None:
                raise section.missing(name, f"give an object with {path[-1]}")
            section = inner
        return section.count(path[-1])

    def _walk(self, node: ast.expr, bound: Mapping[str, Any]) -> Any:
        return getattr(self, f"_{type(node).__name__.lower()}")(node, bound)

    def _constant(self, node: ast.Constant, _bound: Mapping[str, Any]) -> Any:
        return node.value

    def _name(self, node: ast.Name, bound: Mapping[str, Any]) -> Any:
        if node.id in bound:
            return bound[node.id]
        return self.name(node.id) if node.id in self.names else self._raw(node.id)

    def _binop(self, node: ast.BinOp, bound: Mapping[str, Any]) -> Any:
        left, right = self._walk(node.left, bound), self._walk(node.right, bound)
        return _ARITHMETIC[type(node.op)](_number(left), _number(right))

    def _unaryop(self, node: ast.UnaryOp, bound: Mapping[str, Any]) -> Any:
        operand = self._walk(node.operand, bound)
        return not operand if isinstance(node.op, ast.Not) else -_number(operand)

    def _compare(self, node: ast.Compare, bound: Mapping[str, Any]) -> bool:
        return _COMPARISONS[type(node.ops[0])](self._walk(node.left, bound), self._walk(node.comparators[0], bound))

    def _ifexp(self, node: ast.IfExp, bound: Mapping[str, Any]) -> Any:
        return self._walk(node.body if self._walk(node.test, bound) else node.orelse, bound)

    def _call(self, node: ast.Call, bound: Mapping[str, Any]) -> Any:
        assert isinstance(node.func, ast.Name)
        if node.func.id == "auto":
            name = ast.unparse(node.args[0])
            return 0 if self.fields.get(name, "auto") == "auto" else self.fields.count(name)
        if node.func.id in _OF_ITEMS:
            items = self._walk(node.args[0], bound)
            return _OF_ITEMS[node.func.id](items if isinstance(items, dict) else _items(items))
        return _FUNCTIONS[node.func.id](*(_number(self._walk(each, bound)) for each in node.args))

    def _boolop(self, node: ast.BoolOp, bound: Mapping[str, Any]) -> Any:
        found: Any = None
        for value in node.values:
            found = self._walk(value, bound)
            if bool(found) is isinstance(node.op, ast.Or):
                return found
        return found

    def _subscript(self, node: ast.Subscript, bound: Mapping[str, Any]) -> Any:
        """The value in a list with one for every layer, or in an object by the numbers of layers; else one for all."""
        items, index = self._walk(node.value, bound), self._walk(node.slice, bound)
        if isinstance(items, dict):
            return next((value for key, value in items.items() if str(key).isdecimal() and int(key) == index), 0)
        if not isinstance(items, list | tuple):
            return items
        if index >= len(items):
            raise self.fields.error(self._last, f"give a value for layer {index}")
        return items[index]

    def _attribute(self, node: ast.Attribute, bound: Mapping[str, Any]) -> Any:
        """A field of an object; 0 where there is no such object or field, or null."""
        holder = self._walk(node.value, bound)
        value = holder.get(node.attr) if isinstance(holder, dict) else None
        return value if isinstance(value, int | float | str | list | dict) else 0

    def _raw(self, name: str) -> Any:
        self._last = name
        value = self.fields.get(name)
        return 0 if value is None else self._checked(name, value)

    def _checked(self, name: str, value: Any) -> Any:
        """Numbers, texts, lists of them, objects; whatever else stands there is an error."""
        if isinstance(value, dict):
            return value
        if isinstance(value, list):
            return value if value and all(isinstance(each, dict | list) for each in value) else self.fields.items(name)
        if isinstance(value, str) or (isinstance(value, int | float) and abs(value) <= MAX_COUNT):
            return value
        raise self.fields.error(name, f"give a number up to {MAX_COUNT}, or true or false")


def _whole(fill: Fill) -> int | bool | str:
    """The terms of a sum as one expression; anything else as it is."""
    return " + ".join(fill) if isinstance(fill, tuple) else fill


@cache
def _is_field(text: str) -> bool:
    """Whether it names fields, with or without a default."""
    names, found, _ = text.partition("=")
    if text.endswith("!"):
        return True
    return all(each.replace(".", "").isidentifier() for each in names.split("|")) and (bool(found) or "|" in text)


def _number(value: Any) -> Any:
    if not isinstance(value, int | float):
        raise TypeError(value)
    return value
