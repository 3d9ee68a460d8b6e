"""Data that others wrote: YAML documents, values as Python prints them."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from tokenyard.files import packaged

KNOWN: Mapping[str, Any] = msgspec.json.decode(packaged(__package__, "known.json"))
"""Lists of names, as ``known.json`` has them."""

# ---------------------------------------------------------------------------------------------------------------------
# YAML from outside: its documents, never more of them than the text is long.

MOST_CHARACTERS = 1 << 18
"""Most characters of a manifest, or of a file of flags."""

_MOST_BRACKETS_WITHIN = 100
"""Brackets within brackets."""


class YAMLError(ValueError):
    """A text is no YAML, or asks for more than its length."""


def yaml_documents(text: str) -> list[Any]:
    """The documents of ``text``. Raises YAMLError, which quotes nothing of it: it is not known what is secret there.

    An alias is refused: a few of them, one in the other, make a text of gigabytes.
    """
    if len(text) > MOST_CHARACTERS:
        problem = (
            f"has {len(text):,} characters, and no more than {MOST_CHARACTERS:,} are read: give the one that is meant"
        )
        raise YAMLError(problem)
    import yaml  # noqa: PLC0415 - takes time that a plain line need not spend

    class Loader(yaml.SafeLoader):
        def fetch_flow_collection_start(self, *arguments: Any) -> None:
            if self.flow_level >= _MOST_BRACKETS_WITHIN:
                raise YAMLError(
                    f"is not YAML that can be read: it is nested deeper than {_MOST_BRACKETS_WITHIN} levels"
                )
            super().fetch_flow_collection_start(*arguments)

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                event = self.peek_event()  # type: ignore[no-untyped-call]  # PyYAML has no types
                line = event.start_mark.line + 1
                raise YAMLError(f"has an alias (*name, line {line}): write the value in its place")
            return super().compose_node(parent, index)

    try:
        return list(yaml.load_all(text, Loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = "" if mark is None else f" (line {mark.line + 1}, column {mark.column + 1})"
        raise YAMLError(f"is not YAML: {_without_quotes(error.problem)}{where}") from None
    except YAMLError:
        raise
    except RecursionError:
        raise YAMLError("is not YAML that can be read: it is nested too deeply") from None
    except (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        raise YAMLError(f"is not YAML: a value is not what it is said to be ({type(error).__name__})") from None


def _without_quotes(problem: str | None) -> str:
    """What is wrong, without names of anchors and tags that stand in the text."""
    said = (problem or "it cannot be read").split("'")[0].strip()
    return said if len(said) > len("found") else "a character or a tag is out of place"


def at(value: Any, *names: str) -> Any:
    """What stands at a path of mappings; None where there is nothing."""
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def items_at(value: Any, *names: str) -> list[Any]:
    """The list that stands at a path of mappings; empty where there is none."""
    found = at(value, *names)
    return found if isinstance(found, list) else []


# ---------------------------------------------------------------------------------------------------------------------
# Values as Python prints them in a log: literals, dataclasses and enumerations, read without running anything.

_SPACE = re.compile(r"\s*")
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?(?:[eE][+-]?[0-9]{1,3})?|inf|nan)(?![\w.])")
_STRING = re.compile(r"'(?:[^'\\]|\\.)*+'|\"(?:[^\"\\]|\\.)*+\"", re.DOTALL)
_WORD = re.compile(r"[A-Za-z_][\w.]*")
_MEMBER = re.compile(r"<\w+(?:\.\w+)*\.(\w+): [^<>]{0,200}>")
_OBJECT = re.compile(r"<[^<>]{0,500}>")
_CONSTANTS = {"None": None, "True": True, "False": False, "inf": float("inf"), "nan": float("nan")}
_BRACKETS = {"{": "}", "[": "]", "(": ")"}
_PYTHON_REPR_DEEPEST = 40
_MOST = 1 << 16


class ReprError(ValueError):
    """A text is no such value, or more of it than is read."""


def read_repr(text: str, at: int = 0) -> Any:
    """The value that begins at ``at``; what stands behind it does not matter. Raises ReprError.

    A dataclass becomes a mapping of its fields, a member of an enumeration its name, any other object None.
    """
    return _Reader(text[at : at + _MOST]).value(_PYTHON_REPR_DEEPEST)


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def value(self, levels: int) -> Any:
        if levels == 0:
            raise ReprError("is nested too deeply")
        self._space()
        opening = self._text[self._at : self._at + 1]
        if opening in _BRACKETS and opening:
            self._at += 1
            return self._items(_BRACKETS[opening], levels)
        for pattern in (_NUMBER, _STRING, _MEMBER, _OBJECT, _WORD):
            found = pattern.match(self._text, self._at)
            if found is not None:
                self._at = found.end()
                return self._made(pattern, found, levels)
        raise ReprError(f"cannot be read at character {self._at}")

    def _made(self, pattern: re.Pattern[str], found: re.Match[str], levels: int) -> Any:
        if pattern is _MEMBER:
            return found[1]
        if pattern is _OBJECT:
            return None
        if pattern is not _WORD:
            try:
                return ast.literal_eval(found[0].lstrip("+")) if found[0][-1] not in "fn" else float(found[0])
            except (ValueError, SyntaxError, MemoryError):
                raise ReprError(f"cannot be read at character {found.start()}") from None
        if self._text.startswith("(", self._at):
            self._at += 1
            return self._items(")", levels)
        return _CONSTANTS.get(found[0], found[0])

    def _items(self, closing: str, levels: int) -> Any:
        """A list, or a mapping where there are keys (``'a': 1``) or names (``a=1``)."""
        fields: dict[Any, Any] = {}
        items: list[Any] = []
        while True:
            self._space()
            if self._text.startswith(closing, self._at):
                self._at += 1
                return fields if fields or closing == "}" else items
            item = self.value(levels - 1)
            self._space()
            if self._text[self._at : self._at + 1] in (":", "="):
                self._at += 1
                fields[item if isinstance(item, str | int | float) else str(item)] = self.value(levels - 1)
                self._space()
            else:
                items.append(item)
            if self._text.startswith(",", self._at):
                self._at += 1
            elif not self._text.startswith(closing, self._at):
                raise ReprError(f"cannot be read at character {self._at}")

    def _space(self) -> None:
        found = _SPACE.match(self._text, self._at)
        assert found is not None
        self._at = found.end()
