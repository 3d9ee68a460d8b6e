"""One record of a log, looked up by the names that services use."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from tokenyard.sim.workload.logs.names import KNOWN_NAMES, Path, normals, path_of

__all__ = ["Found", "View", "is_absent", "payload_of"]

_ABSENT = frozenset({"", "-", "null", "none", "nan", "n/a", "na", "\\n", "undefined"})
"""What exports write for nothing."""
_ENVELOPES = (
    *("_source", "jsonPayload", "json_payload", "attributes", "tags", "fields", "result", "log_processed", "payload"),
    *("data", "event", "body", "message", "MESSAGE", "log", "msg", "line", "@message", "_raw", "properties", "content"),
    *("raw_response", "response_body", "response", "record"),
)
"""Under which collectors of logs keep what a service wrote: an object, or its text."""
_PATHS: Mapping[str, Sequence[Path]] = {field: tuple(map(path_of, names)) for field, names in KNOWN_NAMES.items()}
_LENGTHS = ("prompt_len", "max_tokens")
_PATHS_WITHIN: Mapping[str, Sequence[Path]] = {
    **{field: _PATHS[field] for field in (*_LENGTHS, "total_tokens", "cached_tokens", "cache_creation", "thoughts")},
    "model": [path for path in _PATHS["model"] if len(path.parts) > 1],
}
"""Fields that are found at any depth, under these names: services put counts wherever they like."""
_DEEPEST = 5


class Found(NamedTuple):
    """A value, and what the record calls it."""

    name: str = ""
    value: object | None = None


class View:
    """A record under normal names."""

    __slots__ = ("_children", "_fields", "_record", "_suffixes")

    def __init__(self, record: Mapping[str, Any]) -> None:
        self._record = record
        self._suffixes: dict[str, tuple[str, object]] | None = None
        self._fields: dict[str, tuple[str, object]] = {}
        self._children: dict[str, View | None] = {}
        bare: list[tuple[str, tuple[str, object]]] = []
        for key, value in record.items():
            exact, *rest = normals(str(key))
            self._fields.setdefault(exact, (str(key), value))
            bare += [(each, (str(key), value)) for each in rest]
        for name, field in bare:
            self._fields.setdefault(name, field)

    def has(self, name: str) -> bool:
        """Whether there is such a field, whatever it holds."""
        return self._at(path_of(name)) is not None

    def find(self, field: str, *, but: str = "") -> Found:
        """What services call ``field``; the first name under which something is. ``but``: a name that is not meant.

        Counts of tokens are looked for within other fields, too, the outermost first; so is a model under a name in
        two parts (``meta.request_model``).
        """
        found = self.first(_PATHS[field], but)
        if found.value is None and field in _PATHS_WITHIN:
            found = self._find_in_dotted(_PATHS_WITHIN[field])
            if found.value is None:
                found = self._find_within(_PATHS_WITHIN[field])
        return found

    def first(self, paths: Sequence[Path], but: str = "") -> Found:
        """The first of some names under which something is, without looking deeper."""
        for path in paths:
            if path.flat == but:
                continue
            if path.flat in self._fields or path.parts[0] in self._fields:
                found = self._at(path)
                if found is not None and not is_absent(found.value):
                    return found
        return Found()

    def _find_within(self, paths: Sequence[Path]) -> Found:
        views = [("", self)]
        for _ in range(_DEEPEST):
            views = [(f"{at}{key}.", child) for at, view in views for key, child in view.within()]
            for at, child in views:
                found = child.first(paths)
                if found.value is not None:
                    return Found(f"{at}{found.name}", found.value)
        return Found()

    def _find_in_dotted(self, paths: Sequence[Path]) -> Found:
        """Of a table whose columns are called by all keys on the way, those that end with a known name."""
        if self._suffixes is None:
            self._suffixes = {}
            for key, value in self._record.items():
                parts = str(key).split(".")
                for i in range(1, len(parts)):
                    for name in normals(".".join(parts[i:])):
                        self._suffixes.setdefault(name, (str(key), value))
        hits = (self._suffixes[path.flat] for path in paths if path.flat in self._suffixes)
        return next((Found(*hit) for hit in hits if not is_absent(hit[1])), Found())

    def within(self) -> Iterator[tuple[str, View]]:
        """The records within this one, by their keys."""
        for key, value in self._record.items():
            if isinstance(value, Mapping):
                yield str(key), View(value)

    def named(self, name: str) -> Found:
        """What a user calls it."""
        found = self._at(path_of(name))
        return Found(name) if found is None or is_absent(found.value) else Found(name, found.value)

    @property
    def has_lengths(self) -> bool:
        """Whether prompt and output have names that are known."""
        return all(self.find(field).value is not None for field in _LENGTHS)

    @property
    def says_a_length(self) -> bool:
        """Whether one of them stands in the record itself, and not deeper."""
        return any(self.first(_PATHS[field]).value is not None for field in _LENGTHS)

    @property
    def has_a_length(self) -> bool:
        """Whether one of them has."""
        return any(self.find(field).value is not None for field in _LENGTHS)

    def _at(self, path: Path) -> Found | None:
        if path.flat in self._fields:
            return Found(*self._fields[path.flat])
        view, keys = self, []
        for part in path.parts[:-1]:
            keys.append(view.key(part))
            child = view.child(part)
            if child is None:
                return None
            view = child
        found = view._fields.get(path.parts[-1])
        return None if found is None else Found(".".join([*keys, found[0]]), found[1])

    def key(self, part: str) -> str:
        """What the record calls a key."""
        return self._fields[part][0] if part in self._fields else part

    def child(self, part: str) -> View | None:
        """The record under a key; None if there is none."""
        if part not in self._children:
            value = _object(self._fields[part][1]) if part in self._fields else None
            self._children[part] = None if value is None else View(value)
        return self._children[part]


def is_absent(value: object) -> bool:
    """Whether a field holds nothing, as exports write it."""
    if isinstance(value, str):
        return value.strip().casefold() in _ABSENT
    return value is None or (isinstance(value, float) and math.isnan(value))


def payload_of(record: Mapping[str, Any], depth: int = 3) -> Mapping[str, Any]:
    """The record with what it carries for a service, if it says no lengths itself and that does."""
    if depth and not View(record).says_a_length:
        for inner in _inner(record):
            within = payload_of(inner, depth - 1)
            if View(within).has_a_length:
                return {**record, **within}
    return record


def _inner(record: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    keys = {str(key).casefold(): key for key in record}
    for name in _ENVELOPES:
        inner = _object(record.get(keys.get(name.casefold(), name)))
        if inner is not None:
            yield inner


def _object(value: object) -> Mapping[str, Any] | None:
    """An object, or the text of one."""
    if isinstance(value, str) and value[:1] == "{":
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
    return value if isinstance(value, Mapping) else None
