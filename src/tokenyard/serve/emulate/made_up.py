"""Values that keep to a form: of a JSON schema, of a regular expression, of a list of choices."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

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


def made_up_json(schema: Mapping[str, Any] | bool, chance: random.Random) -> Any:
    """A value that the schema takes. Raises ConfigError for one that says what cannot be made up."""
    return _Maker(schema, chance).of(schema, 0)


class _Maker:
    def __init__(self, root: Any, chance: random.Random) -> None:
        self._root, self._chance = root, chance

    def of(self, schema: Any, depth: int) -> Any:
        if not isinstance(schema, Mapping):
            return self._chance.choice(_WORDS)
        schema = self._resolved(schema)
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return self._chance.choice(list(schema["enum"]))
        for name in ("anyOf", "oneOf"):
            if schema.get(name):
                rest = {key: value for key, value in schema.items() if key != name}
                options = sorted(schema[name], key=_size) if depth > _DEEPEST // 2 else list(schema[name])
                chosen = options[0] if depth > _DEEPEST // 2 else self._chance.choice(options)
                return self.of(_merged(rest, self._resolved(chosen)), depth + 1)
        return self._typed(schema, depth)

    def _resolved(self, schema: Any) -> Mapping[str, Any]:
        seen = 0
        while isinstance(schema, Mapping) and ("$ref" in schema or "allOf" in schema):
            seen += 1
            if seen > 100:
                raise ConfigError("json", "$ref", "leads in a circle: no value keeps to it")
            if "$ref" in schema:
                rest = {key: value for key, value in schema.items() if key != "$ref"}
                schema = _merged(self._at(str(schema["$ref"])), rest)
            else:
                rest = {key: value for key, value in schema.items() if key != "allOf"}
                for each in schema["allOf"]:
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

    def _typed(self, schema: Mapping[str, Any], depth: int) -> Any:
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
            return self._number(schema, whole=kind == "integer")
        if kind == "boolean":
            return self._chance.random() < 0.5
        return None if kind == "null" else self._made_up_text(schema)

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        properties = schema.get("properties") or {}
        required = set(schema.get("required") or ())
        if depth > 3 * _DEEPEST:
            raise ConfigError("json", "required", "the schema requires itself: no value keeps to it")
        wanted = [name for name in properties if name in required or depth < _DEEPEST // 2]
        made = {name: self.of(properties[name], depth + 1) for name in wanted}
        more = schema.get("additionalProperties")
        for name in sorted(required - set(made)):
            made[name] = self.of(more, depth + 1)
        least = int(schema.get("minProperties") or 0)
        while len(made) < least:
            made[f"key{len(made)}"] = self.of(more, depth + 1)
        return made

    def _array(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        least = int(schema.get("minItems") or 0)
        most = int(schema.get("maxItems", max(least, _MOST_ITEMS)))
        first = list(schema.get("prefixItems") or ())
        wanted = least if depth >= _DEEPEST // 2 else max(least, min(most, self._chance.randint(1, _MOST_ITEMS)))
        items = schema.get("items", True)
        made = [self.of(each, depth + 1) for each in first[: max(wanted, len(first) if items is False else 0)]]
        tries = 0
        while len(made) < wanted and items is not False:
            each = self.of(items, depth + 1)
            tries += 1
            if not (schema.get("uniqueItems") and each in made):
                made.append(each)
            elif tries > 200:
                if len(made) < least:
                    raise ConfigError("json", "uniqueItems", "there are not as many different values as it requires")
                break
        return made

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

    def _made_up_text(self, schema: Mapping[str, Any]) -> str:
        if "pattern" in schema:
            return made_up_match(str(schema["pattern"]), self._chance, anchored=False)
        if schema.get("format") in _FORMATS:
            return _FORMATS[schema["format"]]
        least, most = int(schema.get("minLength") or 0), schema.get("maxLength")
        made = self._chance.choice(_WORDS)
        while len(made) < least:
            made += " " + self._chance.choice(_WORDS)
        return made if most is None else made[: int(most)]


_TELL = {
    "object": ("properties", "required", "additionalProperties"),
    "array": ("items", "prefixItems", "minItems"),
    "number": ("minimum", "maximum", "multipleOf"),
}
"""Words of a schema without a type that tell which it is."""


def _size(schema: Any) -> int:
    return len(json.dumps(schema, default=str))


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
# A text that a regular expression takes, from what Python's own parser makes of it.


def made_up_match(pattern: str, chance: random.Random, *, anchored: bool = True) -> str:
    """A text that ``pattern`` takes, all of it or (not ``anchored``) some of it. Raises ConfigError."""
    for _ in range(20):
        try:
            made = _parsed_match(pattern, chance)
        except (re.error, RecursionError, ValueError, OverflowError) as error:
            raise ConfigError("regex", pattern, f"no text can be made up for it: {error}") from None
        if (re.fullmatch if anchored else re.search)(pattern, made) is not None:
            return made
    raise ConfigError("regex", pattern, "no text was found that it takes")


def _parsed_match(pattern: str, chance: random.Random) -> str:
    groups: dict[int, str] = {}
    return "".join(_of(token, chance, groups) for token in _parser.parse(pattern))


def _of(token: Any, chance: random.Random, groups: dict[int, str]) -> str:
    kind, value = token
    if kind is ops.LITERAL:
        return chr(value)
    if kind in (ops.ANY, ops.NOT_LITERAL):
        return "x" if kind is ops.ANY or value != ord("x") else "y"
    if kind is ops.IN:
        return _one_of(value, chance)
    if kind in (ops.MAX_REPEAT, ops.MIN_REPEAT, getattr(ops, "POSSESSIVE_REPEAT", None)):
        least, most, inner = value
        times = chance.randint(least, min(most, least + 3))
        return "".join(_of(each, chance, groups) for _ in range(times) for each in inner)
    if kind is ops.BRANCH:
        return "".join(_of(each, chance, groups) for each in chance.choice(value[1]))
    if kind is ops.SUBPATTERN:
        number, _, _, inner = value
        made = "".join(_of(each, chance, groups) for each in inner)
        if number is not None:
            groups[number] = made
        return made
    if kind is ops.GROUPREF:
        return groups.get(value, "")
    if kind in (ops.AT, ops.ASSERT, ops.ASSERT_NOT):
        return ""
    raise ValueError(f"{kind} is not made up here")


_CATEGORIES = {"CATEGORY_DIGIT": "0123456789", "CATEGORY_WORD": "abcdefghij", "CATEGORY_SPACE": " "}
_OTHERS = "abcXYZ019-_ .,:"


def _one_of(choices: Sequence[Any], chance: random.Random) -> str:
    def takes(letter: str) -> bool:
        return any(_takes(each, letter) for each in choices if each[0] is not ops.NEGATE)

    if choices[0][0] is ops.NEGATE:
        return next(each for each in _OTHERS if not takes(each))
    kind, value = chance.choice(choices)
    if kind is ops.LITERAL:
        return chr(value)
    if kind is ops.RANGE:
        return chr(chance.randint(value[0], min(value[1], value[0] + 25)))
    known = _CATEGORIES.get(str(value))
    return chance.choice(known) if known else next(each for each in _OTHERS if _takes((kind, value), each))


def _takes(choice: Any, letter: str) -> bool:
    kind, value = choice
    if kind is ops.LITERAL:
        return bool(ord(letter) == value)
    if kind is ops.RANGE:
        return bool(value[0] <= ord(letter) <= value[1])
    name = str(value)
    is_kind = {"DIGIT": letter.isdigit(), "WORD": letter.isalnum() or letter == "_", "SPACE": letter.isspace()}
    return is_kind[name.rpartition("_")[2]] != ("NOT" in name)
