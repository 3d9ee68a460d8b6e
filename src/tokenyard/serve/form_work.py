"""How much work a form of an answer asks for: a schema, a regular expression, a grammar. Counted before it is compiled.

A few bytes can ask for gigabytes: `a{1000000000}`, or `minItems` within `minItems`. What is counted here is what a
library would have to build, not what it builds: libraries differ by release, and these bounds hold with any of them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from typing import Any, Generic, TypeVar

from tokenyard.errors import ConfigError
from tokenyard.files import is_nested_deeper

MOST_EXPANDED = 100_000
"""Characters of a regular expression with its repetitions written out; the same of a Lark grammar, and of all counts
and patterns of a schema together.
"""
MOST_ITEMS = 10_000
"""The largest count of items or properties in a schema."""
MOST_LEAST = 1_000_000
"""Characters of the smallest value that keeps to a schema."""
_LONG = 4_000
"""Characters."""
_DEEPEST = 64
"""Levels of a schema, and of groups in an expression."""

_OF_ITEMS = ("minItems", "maxItems", "minProperties", "maxProperties", "minContains", "maxContains")
_OF_LENGTH = ("minLength", "maxLength")
_SCHEMAS_BY_NAME = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_T = TypeVar("_T")
_VALUES = ("const", "enum", "default", "examples")
"""Keywords that hold no schemas."""


def is_long(value: Any) -> bool:
    """Whether a form is better looked at in a thread: others are answered meanwhile."""
    return len(value if isinstance(value, str) else json.dumps(value)) > _LONG


def check_form(kind: str, value: Any, max_bytes: int) -> None:
    """Raise ConfigError for a form that asks too much; ``kind`` is ``json``, ``regex``, ``choice`` or ``grammar``."""
    if kind == "choice" and (isinstance(value, str) or not value or not all(isinstance(v, str) for v in value)):
        raise ConfigError("structured_outputs.choice", value, "give a list of texts")
    if kind in ("regex", "grammar") and not isinstance(value, str):
        raise ConfigError(f"structured_outputs.{kind}", value, "give a text")
    text = (value if isinstance(value, str) else json.dumps(value)).encode(errors="replace")
    if len(text) > max_bytes:
        fix = f"has {len(text)} bytes: give at most {max_bytes} (max_grammar_bytes)"
        raise ConfigError(f"structured_outputs.{kind}", value, fix)
    problem = None
    if kind == "json":
        problem = _problem_of_schema(value, text)
    elif kind in ("regex", "grammar"):
        problem = _counted(value)[1]
    if problem is not None:
        raise ConfigError(f"structured_outputs.{kind}", value, problem)


# ---------------------------------------------------------------------------------------------------------------------
# Regular expressions, and grammars, whose rules repeat things in the same way.

_TOKENS = re.compile(
    r"""
    \\[pPxuUoN]\{[^}]{0,64}\} | \\. | \[\^?\]?[^\]\\]{0,256}+(?:\\.[^\]\\]{0,64}+){0,64}+\]  # a letter
    | (?P<open>\((?:\?(?:P?<[^>=!]{0,64}>|[a-zA-Z-]{0,9}:|[=!>]|<[=!])?)?)  # a group
    | (?P<close>\))
    | \{\s?(?P<least>\d*+)\s?(?P<comma>,?)\s?(?P<most>\d*+)\s?\}            # a repetition
    | ~\s{0,9}(?P<times>\d++)(?:\s{0,9}\.\.\s{0,9}(?P<up_to>\d++))?        # the same in Lark
    | .
    """,
    re.VERBOSE | re.DOTALL,
)
"""What is bounded here is looked for no further: a text of brackets alone takes no longer than another."""
_COUNT = re.compile(r'"(?:(?:min|max)(?:Items|Length|Properties)|multipleOf)"\s*:\s*(\d+)')
"""A count of a schema within a grammar (``%json``)."""
_BEYOND = 10**12
"""Stands for any number that is larger."""


def _number(digits: str | None) -> int:
    return 0 if not digits else int(digits) if len(digits) <= 12 else _BEYOND


def _counted(text: str) -> tuple[int, str | None]:
    """Characters of an expression, or a grammar, with its repetitions written out, and what is wrong with it."""
    size, depth = _expanded(text)
    size += sum(_number(each) for each in _COUNT.findall(text))
    if size > MOST_EXPANDED:
        return size, f"has {_told(size)} characters with its repetitions written out: at most {MOST_EXPANDED:,}"
    if depth > _DEEPEST:
        return size, f"nests groups {depth:,} deep: at most {_DEEPEST}"
    return size, None


def _expanded(text: str) -> tuple[int, int]:
    """Characters with all repetitions written out, and levels of groups."""
    outer, total, last, deepest = list[int](), 0, 0, 0
    for token in _TOKENS.finditer(text):
        kind = token.lastgroup
        if kind is None:
            total, last = total + last, 1
        elif kind == "open":
            outer.append(total + last)
            total = last = 0
            deepest = max(deepest, len(outer))
        elif kind == "close":
            last = max(1, total + last)
            total = outer.pop() if outer else 0
        else:
            names = ("least", "most", "times", "up_to")
            last = min(_BEYOND, last * max(1, *(_number(token[each]) for each in names)))
    return min(_BEYOND, sum(outer) + total + last), deepest


def _told(number: int) -> str:
    return "very many" if number >= _BEYOND else f"{number:,}"


# ---------------------------------------------------------------------------------------------------------------------
# Schemas.


def _problem_of_schema(given: Any, text: bytes) -> str | None:
    if is_nested_deeper(text, _DEEPEST):
        return f"nests deeper than {_DEEPEST} levels"
    try:
        schema = json.loads(given) if isinstance(given, str) else given
    except ValueError as error:
        return f"is no JSON schema: {error}"
    problem = _problem_of_counts(schema)
    if problem is not None:
        return problem
    try:
        least, step = _Least(schema).of(schema), _Step(schema)
        remainders = max((_remainders(step.of(each)) for each in _schemas(schema)), default=0)
    except RecursionError:
        return "its references lead too far"
    if remainders > MOST_EXPANDED:
        return f"multipleOf of what holds together tells {MOST_EXPANDED:,} remainders apart and more"
    if least > MOST_LEAST:
        return f"the smallest value that keeps to it has {_told(least)} characters: at most {MOST_LEAST:,}"
    return None


def _problem_of_counts(schema: Any) -> str | None:
    total, steps = 0, set[Fraction]()
    for each in _schemas(schema):
        for name in (*_OF_ITEMS, *_OF_LENGTH):
            count = each.get(name)
            if isinstance(count, bool) or not isinstance(count, int | float):
                continue
            most = MOST_ITEMS if name in _OF_ITEMS else MOST_EXPANDED
            if not count <= most:
                return f"{name} = {count}: at most {most:,}"
            total += int(count)
        step = _step(each)
        if _remainders(step) > MOST_EXPANDED:
            return f"multipleOf = {each['multipleOf']} tells {MOST_EXPANDED:,} remainders apart and more"
        steps.add(step)
        for pattern in (each.get("pattern"), *_named(each, "patternProperties")):
            size, problem = _counted(pattern) if isinstance(pattern, str) else (0, None)
            if problem is not None:
                return f"its pattern {problem}"
            total += size
    total += sum(map(_remainders, steps))
    return None if total <= MOST_EXPANDED else f"its counts and patterns add up to {total:,}: at most {MOST_EXPANDED:,}"


def _step(schema: Mapping[str, Any]) -> Fraction:
    """``multipleOf``, exactly; 0 where there is none, or one that no number is a multiple of."""
    step = schema.get("multipleOf")
    is_number = isinstance(step, int | float) and not isinstance(step, bool)
    if not is_number or (isinstance(step, float) and not math.isfinite(step)):
        return _NO_STEP
    return abs(Fraction(Decimal(repr(step))))


_NO_STEP = Fraction(0)


def _remainders(step: Fraction) -> int:
    """Remainders that have to be told apart to see whether a decimal number is a multiple of ``step``."""
    digits, rest = step.numerator, step.denominator
    while rest > 1:
        common = math.gcd(10, rest)
        digits, rest = digits * 10 // common, rest // common
    return digits


def _schemas(root: Any) -> Iterator[Mapping[str, Any]]:
    """A schema and all within it."""
    left = [root]
    while left:
        schema = left.pop()
        if isinstance(schema, list):
            left += schema
        elif isinstance(schema, Mapping):
            yield schema
            for name, value in schema.items():
                if name in _SCHEMAS_BY_NAME and isinstance(value, Mapping):
                    left += value.values()
                elif name not in _VALUES:
                    left.append(value)


class _Folded(Generic[_T]):
    """What all parts of a schema that hold together come to, references followed."""

    nothing: _T
    """What a schema that says nothing comes to; so does one within itself."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._known: dict[int, _T] = {}

    def of(self, schema: Any) -> _T:
        if not isinstance(schema, Mapping):
            return self.nothing
        known = self._known.get(id(schema))
        if known is None:
            self._known[id(schema)] = self.nothing
            known = self._known[id(schema)] = self._own(schema)
        return known

    def _own(self, schema: Mapping[str, Any]) -> _T:
        raise NotImplementedError

    def _whole(self, schema: Mapping[str, Any]) -> list[_T]:
        """Return the work of what holds beside it: what it refers to, all of ``allOf``."""
        found = [self.of(each) for each in _listed(schema, "allOf")]
        if isinstance(schema.get("$ref"), str):
            found.append(self.of(self._at(schema["$ref"])))
        return found

    def _at(self, reference: str) -> Any:
        found = self._root
        for part in reference.removeprefix("#").split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, Mapping) else None
        return found


class _Step(_Folded[Fraction]):
    """What all numbers that keep to a schema are multiples of; of alternatives, the one that takes most."""

    nothing = _NO_STEP

    def _own(self, schema: Mapping[str, Any]) -> Fraction:
        step = reduce(_common_multiple, self._whole(schema), _step(schema))
        for name in ("anyOf", "oneOf"):
            steps = [_common_multiple(step, self.of(each)) for each in _listed(schema, name)]
            step = max(steps, key=_remainders, default=step)
        return step


def _common_multiple(one: Fraction, other: Fraction) -> Fraction:
    if not one or not other:
        return one or other
    common = Fraction(math.lcm(one.numerator, other.numerator), math.gcd(one.denominator, other.denominator))
    return common if common < _BEYOND else Fraction(_BEYOND)


class _Least(_Folded[int]):
    """Characters of the smallest value that keeps to a schema, roughly and never too many."""

    nothing = 1

    def _own(self, schema: Mapping[str, Any]) -> int:
        found = [1, *self._whole(schema)]
        found += [min(map(self.of, _listed(schema, name)), default=1) for name in ("anyOf", "oneOf")]
        kind = schema.get("type")
        if kind == "string":
            found.append(_count(schema, "minLength"))
        elif kind == "array":
            first = _listed(schema, "prefixItems")
            least = _count(schema, "minItems")
            made = sum(1 + self.of(each) for each in first[:least])
            found.append(made + max(0, least - len(first)) * (1 + self.of(schema.get("items"))))
        elif kind == "object":
            named = _named(schema, "properties")
            required = [each for each in _listed(schema, "required") if isinstance(each, str)]
            found.append(sum(len(each) + self.of(named.get(each)) for each in required))
            found.append(_count(schema, "minProperties"))
        return min(_BEYOND, max(found))


def _listed(schema: Mapping[str, Any], name: str) -> list[Any]:
    value = schema.get(name)
    return value if isinstance(value, list) else []


def _named(schema: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = schema.get(name)
    return value if isinstance(value, Mapping) else {}


def _count(schema: Mapping[str, Any], name: str) -> int:
    value = schema.get(name)
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0
