"""Texts that keep to a form: of a JSON schema, of a regular expression. They are made piece by piece, so that no more
is made than is wanted, and within a bound of work: a form may ask for a text without end, or for much work and no text.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from tokenyard.errors import ConfigError

try:
    from re import _constants as ops  # type: ignore[attr-defined]
    from re import _parser  # type: ignore[attr-defined]
except ImportError:  # pragma: no cover - another Python than those that are supported
    _parser = ops = None

_DEEPEST = 12
_MOST_ITEMS = 3
_WORDS = ("alpha", "bravo", "cedar", "delta", "ember", "field", "grove", "harbor", "island", "jasper")
_FORMATS = {
    "date": "2025-01-15",
    "date-time": "2025-01-15T09:30:00Z",
    "time": "09:30:00Z",
    "email": "ada@example.com",
    "uuid": "3f2b8c1e-5d4a-4b6c-8e7f-9a0b1c2d3e4f",
    "uri": "https://example.com/a",
    "ipv4": "192.0.2.7",
    "ipv6": "2001:db8::7",
    "hostname": "example.com",
    "duration": "PT5M",
}


MOST_WORK = 200_000
"""Pieces that are made for one text, and what is looked at without one."""


class Work:
    """What may still be done. Raises ConfigError when it is used up."""

    def __init__(self, most: int = MOST_WORK) -> None:
        self.most, self._left = most, most

    def __call__(self, times: int = 1) -> None:
        """Do it."""
        self._left -= times
        if self._left < 0:
            raise WorkError("structured_outputs", "a form", f"takes more than {self.most:,} pieces to make a text of")


class WorkError(ConfigError):
    """A form that takes more work than is done for it."""


def made_up_json(schema: Mapping[str, Any] | bool, chance: random.Random, work: Work | None = None) -> Any:
    """A value that the schema takes. Raises ConfigError for one that says what cannot be made up."""
    return json.loads(wholly(lambda work: "".join(json_pieces(schema, chance, work)), work or Work()))


def json_pieces(schema: Mapping[str, Any] | bool, chance: random.Random, work: Work) -> Iterator[str]:
    """Pieces of the text of such a value. Raises ConfigError."""
    try:
        yield from _Maker(schema, chance, work).pieces(schema, 0)
    except RecursionError:
        raise ConfigError("json", "$ref", "the schema requires itself: no value keeps to it") from None
    except (TypeError, ValueError, AttributeError, LookupError, OverflowError) as error:
        raise ConfigError("json", "a schema", f"no value can be made up for it: {error}") from None


class _Maker:
    def __init__(self, root: Any, chance: random.Random, work: Work) -> None:
        self._root, self._chance, self._work = root, chance, work
        self._sizes: dict[int, int] = {}

    def pieces(self, schema: Any, depth: int) -> Iterator[str]:
        self._work()
        if not isinstance(schema, Mapping):
            yield json.dumps(self._chance.choice(_WORDS))
            return
        schema = self._resolved(schema)
        if "const" in schema:
            yield json.dumps(schema["const"])
            return
        if schema.get("enum"):
            yield json.dumps(self._chance.choice(list(schema["enum"])))
            return
        for name in ("anyOf", "oneOf"):
            if schema.get(name):
                rest = {key: value for key, value in schema.items() if key != name}
                options = sorted(schema[name], key=self._size) if depth > _DEEPEST // 2 else list(schema[name])
                self._work(len(options))
                chosen = options[0] if depth > _DEEPEST // 2 else self._chance.choice(options)
                yield from self.pieces(_merged(rest, self._resolved(chosen)), depth + 1)
                return
        yield from self._typed(schema, depth)

    def _size(self, schema: Any) -> int:
        known = self._sizes.get(id(schema))
        if known is None:
            known = self._sizes[id(schema)] = len(json.dumps(schema, default=str))
        return known

    def _resolved(self, schema: Any) -> Mapping[str, Any]:
        seen = 0
        while isinstance(schema, Mapping) and ("$ref" in schema or "allOf" in schema):
            seen += 1
            self._work()
            if seen > 100:
                raise ConfigError("json", "$ref", "leads in a circle: no value keeps to it")
            if "$ref" in schema:
                rest = {key: value for key, value in schema.items() if key != "$ref"}
                schema = _merged(self._at(str(schema["$ref"])), rest)
            else:
                rest = {key: value for key, value in schema.items() if key != "allOf"}
                for each in schema["allOf"]:
                    self._work(len(rest))
                    rest = dict(_merged(rest, self._resolved(each)))
                schema = rest
        return schema if isinstance(schema, Mapping) else {}

    def _at(self, reference: str) -> Any:
        found = self._root
        for part in reference.lstrip("#").strip("/").split("/"):
            name = part.replace("~1", "/").replace("~0", "~")
            if name:
                if not isinstance(found, Mapping) or name not in found:
                    raise ConfigError("json", reference, "there is no such definition in the schema")
                found = found[name]
        return found

    def _typed(self, schema: Mapping[str, Any], depth: int) -> Iterator[str]:
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = next((each for each in kind if each != "null"), "null") if depth < _DEEPEST else kind[-1]
        if kind is None:
            kind = next((kind for kind, words in _TELL.items() if any(word in schema for word in words)), "string")
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            return self._array(schema, depth)
        if kind in ("integer", "number"):
            return iter((json.dumps(self._number(schema, whole=kind == "integer"), allow_nan=False),))
        if kind == "boolean":
            return iter((json.dumps(self._chance.random() < 0.5),))
        return iter(("null",)) if kind == "null" else self._string(schema)

    def _object(self, schema: Mapping[str, Any], depth: int) -> Iterator[str]:
        properties = schema.get("properties") or {}
        required = set(schema.get("required") or ())
        if depth > 3 * _DEEPEST:
            raise ConfigError("json", "required", "the schema requires itself: no value keeps to it")
        self._work(len(properties) + len(required))
        more = schema.get("additionalProperties")
        wanted = {name: properties[name] for name in properties if name in required or depth < _DEEPEST // 2}
        wanted |= dict.fromkeys(sorted(required - wanted.keys()), more)
        before = "{"
        for name, value in wanted.items():
            yield f"{before}{json.dumps(name)}: "
            yield from self.pieces(value, depth + 1)
            before = ", "
        for number in range(len(wanted), int(schema.get("minProperties") or 0)):
            yield f"{before}{json.dumps(f'key{number}')}: "
            yield from self.pieces(more, depth + 1)
            before = ", "
        yield "{}" if before == "{" else "}"

    def _array(self, schema: Mapping[str, Any], depth: int) -> Iterator[str]:
        least = int(schema.get("minItems") or 0)
        most = int(schema.get("maxItems", max(least, _MOST_ITEMS)))
        first = list(schema.get("prefixItems") or ())
        wanted = least if depth >= _DEEPEST // 2 else max(least, min(most, self._chance.randint(1, _MOST_ITEMS)))
        items = schema.get("items", True)
        before = "["
        for each in first[: max(wanted, len(first) if items is False else 0)]:
            yield before
            yield from self.pieces(each, depth + 1)
            before = ", "
        made = len(first[:wanted])
        values = self._different(items, depth) if schema.get("uniqueItems") else None
        while made < wanted and items is not False:
            if values is None:
                yield before
                yield from self.pieces(items, depth + 1)
            else:
                value = next(values, None)
                if value is None:
                    if made < least:
                        raise ConfigError("json", "uniqueItems", "there are not as many different values as it needs")
                    break
                yield before + value
            before, made = ", ", made + 1
        yield "[]" if before == "[" else "]"

    def _different(self, schema: Any, depth: int) -> Iterator[str]:
        """Texts of values that differ, as long as some are found."""
        seen, tries = set[str](), 0
        while tries <= 200:
            value = "".join(self.pieces(schema, depth + 1))
            tries += 1
            if value not in seen:
                seen.add(value)
                tries = 0
                yield value

    def _number(self, schema: Mapping[str, Any], *, whole: bool) -> float:
        step = schema.get("multipleOf") or (1 if whole else None)
        low, high = schema.get("minimum"), schema.get("maximum")
        nudge = step or 1e-3
        if isinstance(schema.get("exclusiveMinimum"), int | float) and not isinstance(schema["exclusiveMinimum"], bool):
            low = max(schema["exclusiveMinimum"] + nudge, schema["exclusiveMinimum"] if low is None else low)
        if isinstance(schema.get("exclusiveMaximum"), int | float) and not isinstance(schema["exclusiveMaximum"], bool):
            high = min(schema["exclusiveMaximum"] - nudge, schema["exclusiveMaximum"] if high is None else high)
        low = (min(0, high) if high is not None else 0) if low is None else low
        high = max(low, low + 100) if high is None else high
        if step:
            first, last = -(-low // step), high // step
            if first > last:
                raise ConfigError("json", "minimum", "no number lies between it and the maximum")
            made = self._chance.randint(int(first), int(last)) * step
            return int(made) if whole else made
        return round(self._chance.uniform(low, high), 2) if high - low > 1 else self._chance.uniform(low, high)

    def _string(self, schema: Mapping[str, Any]) -> Iterator[str]:
        yield '"'
        if "pattern" in schema:
            for piece in match_pieces(str(schema["pattern"]), self._chance, self._work):
                yield json.dumps(piece)[1:-1]
        elif schema.get("format") in _FORMATS:
            yield _FORMATS[schema["format"]]
        else:
            least, most = int(schema.get("minLength") or 0), schema.get("maxLength")
            length, piece = 0, self._chance.choice(_WORDS)
            while True:
                self._work()
                yield piece if most is None else piece[: max(0, int(most) - length)]
                length += len(piece)
                if length >= least:
                    break
                piece = " " + self._chance.choice(_WORDS)
        yield '"'


_TELL = {
    "object": ("properties", "required", "additionalProperties"),
    "array": ("items", "prefixItems", "minItems"),
    "number": ("minimum", "maximum", "multipleOf"),
}
"""Words of a schema without a type that tell which it is."""


def _merged(first: Any, second: Any) -> Mapping[str, Any]:
    if not isinstance(first, Mapping):
        return second if isinstance(second, Mapping) else {}
    made = dict(first)
    for name, value in (second or {}).items():
        if name == "properties":
            made[name] = {**(made.get(name) or {}), **value}
        elif name == "required":
            made[name] = [*(made.get(name) or ()), *value]
        else:
            made[name] = value
    return made


# ---------------------------------------------------------------------------------------------------------------------
# A text that a regular expression takes, from what Python's own parser makes of it. It keeps to the expression as it
# is made: to look at it afterwards could take for ever.


def made_up_match(pattern: str, chance: random.Random, work: Work | None = None) -> str:
    """A text that ``pattern`` takes, all of it. Raises ConfigError."""
    return wholly(lambda work: "".join(match_pieces(pattern, chance, work)), work or Work())


_Made = TypeVar("_Made")


def wholly(make: Callable[[Work], _Made], work: Work) -> _Made:
    """What ``make`` gives back, which may find at the end of a text that a choice before was wrong."""
    for _ in range(20):
        try:
            return make(work)
        except _NoMatchError:
            continue
    raise ConfigError("regex", "a pattern", "no text was found that it takes")


def match_pieces(pattern: str, chance: random.Random, work: Work) -> Iterator[str]:
    """Pieces of such a text. Raises ConfigError; what calls it goes through :func:`wholly`."""
    try:
        yield from _Match(pattern, chance, work).pieces()
    except (re.error, RecursionError, ValueError, OverflowError, LookupError) as error:
        raise ConfigError("regex", pattern, f"no text can be made up for it: {error}") from None


class _NoMatchError(Exception):
    """What was made is not what the expression takes: ``$`` with something behind it."""


class _Match:
    """One text."""

    def __init__(self, pattern: str, chance: random.Random, work: Work) -> None:
        self._chance, self._work = chance, work
        self._parsed = _parser.parse(pattern)
        self._keeps_groups = _BACK.search(pattern) is not None
        self._groups: dict[int, str] = {}
        self._last = ""
        """The character made last."""
        self._is_over = False
        """Nothing may follow."""
        self._edges: list[bool] = []
        """For what comes next: whether a word must begin or end here, or must not."""

    def pieces(self) -> Iterator[str]:
        yield from self._all(self._parsed)
        self._meet("")

    def _meet(self, letter: str) -> str:
        """A character is next, or the end: does it suit what was asked for before?"""
        if letter and self._is_over:
            raise _NoMatchError
        is_edge = _is_of_word(self._last) != _is_of_word(letter)
        if any(each != is_edge for each in self._edges):
            raise _NoMatchError
        self._edges.clear()
        self._last = letter
        return letter

    def _of(self, token: Any) -> Iterator[str]:
        self._work()
        kind, value = token
        letter = _letter(kind, value, self._chance)
        if letter is not None:
            yield self._meet(letter)
        elif kind in (ops.MAX_REPEAT, ops.MIN_REPEAT):
            least, most, inner = value
            for _ in range(self._chance.randint(least, min(most, least + 3))):
                yield from self._all(inner)
        elif kind is ops.BRANCH:
            yield from self._all(self._chance.choice(value[1]))
        elif kind is ops.SUBPATTERN:
            yield from self._group(value[0], value[3])
        elif kind is ops.GROUPREF:
            yield from map(self._meet, self._groups[value])
        elif kind is ops.AT:
            self._place(value)
        else:
            raise ValueError(f"{kind} is not made up here")

    def _all(self, inner: Any) -> Iterator[str]:
        self._work()
        for each in inner:
            yield from self._of(each)

    def _group(self, number: int | None, inner: Any) -> Iterator[str]:
        made = self._all(inner)
        if number is None or not self._keeps_groups:
            yield from made
            return
        self._groups[number] = "".join(made)
        yield self._groups[number]

    def _place(self, place: Any) -> None:
        if place in (ops.AT_BEGINNING, ops.AT_BEGINNING_STRING):
            if self._last:
                raise _NoMatchError
        elif place in (ops.AT_END, ops.AT_END_STRING):
            self._is_over = True
        else:
            self._edges.append(place is ops.AT_BOUNDARY)


def _letter(kind: Any, value: Any, chance: random.Random) -> str | None:
    """The character that a token stands for; None: it is none."""
    if kind is ops.LITERAL:
        return chr(value)
    if kind is ops.ANY:
        return "x"
    if kind is ops.NOT_LITERAL:
        return "y" if value in (ord("x"), ord("X")) else "x"
    return _one_of(value, chance) if kind is ops.IN else None


_BACK = re.compile(r"\\[1-9]|\(\?P=|\(\?\(")
"""What an earlier group is referred to by."""


def _is_of_word(letter: str) -> bool:
    return letter.isalnum() or letter == "_"


_CATEGORIES = {"CATEGORY_DIGIT": "0123456789", "CATEGORY_WORD": "abcdefghij", "CATEGORY_SPACE": " "}
_OTHERS = "abcXYZ019-_ .,:"


def _one_of(choices: Sequence[Any], chance: random.Random) -> str:
    def takes(letter: str) -> bool:
        return any(_takes(each, letter) for each in choices if each[0] is not ops.NEGATE)

    if choices[0][0] is ops.NEGATE:
        free = [each for each in _OTHERS if not takes(each.lower()) and not takes(each.upper())]
        if not free:
            raise ValueError("a set that leaves out this much is not made up here")
        return free[0]
    kind, value = chance.choice(choices)
    if kind is ops.LITERAL:
        return chr(value)
    if kind is ops.RANGE:
        return chr(chance.randint(value[0], min(value[1], value[0] + 25)))
    known = _CATEGORIES.get(str(value))
    return chance.choice(known) if known else next((each for each in _OTHERS if _takes((kind, value), each)), "~")


def _takes(choice: Any, letter: str) -> bool:
    kind, value = choice
    if kind is ops.LITERAL:
        return bool(ord(letter) == value)
    if kind is ops.RANGE:
        return bool(value[0] <= ord(letter) <= value[1])
    name = str(value)
    is_kind = {"DIGIT": letter.isdigit(), "WORD": letter.isalnum() or letter == "_", "SPACE": letter.isspace()}
    return is_kind[name.rpartition("_")[2]] != ("NOT" in name)
