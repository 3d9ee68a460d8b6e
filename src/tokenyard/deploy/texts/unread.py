"""Values of a pasted document that its reading does not depend on: each is taken away, and changed, and read again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, MutableSequence
from typing import Any

from tokenyard.deploy.start_facts import AROUND, NOT_READ, HeaderNote
from tokenyard.deploy.texts.data import KNOWN
from tokenyard.errors import TokenyardError
from tokenyard.redaction import hidden, hidden_beginning

_AROUND: frozenset[str] = frozenset(KNOWN["around_the_engine"])
"""Names in documents that say nothing of how an engine runs."""
_MOST_QUESTIONS = 600
_MOST_NAMED = 12

Read = Callable[[], Any]
"""What a document says, read anew: compared with ==."""


def unread_in(documents: list[Any], read: Read) -> tuple[HeaderNote, ...]:
    """Notes about what stands in ``documents`` and is not read: what may matter by name and value, the rest by name."""
    asked = _Asked(documents, read)
    paths = [leaf for path, value in asked.unread() for leaf in _leaves(path, value)]
    around = {path: name for path, _ in paths if (name := _around(path)) is not None}
    left = [(path, value) for path, value in paths if path not in around]
    notes = []
    if left:
        named = "; ".join(
            f"{path} {hidden_beginning(str(hidden(path.rpartition('.')[2], value)))}"
            for path, value in left[:_MOST_NAMED]
        )
        more = f"; and {len(left) - _MOST_NAMED} more" if len(left) > _MOST_NAMED else ""
        notes.append(HeaderNote(NOT_READ, f"{named}{more}", "nothing here depends on it"))
    if around:
        names = ", ".join(dict.fromkeys(around.values()))
        notes.append(HeaderNote(AROUND, names, "is not about the engine"))
    return tuple(notes)


def _around(path: str) -> str | None:
    """The name in a path that says of it that it is not about the engine."""
    return next((name for part in path.split(".") if (name := part.partition("[")[0]) in _AROUND), None)


class _Asked:
    """Documents that are changed in place, read, and changed back."""

    def __init__(self, documents: list[Any], read: Read) -> None:
        self._documents, self._read = documents, read
        self._left = _MOST_QUESTIONS
        self._as_it_is = self._answer()

    def unread(self) -> Iterator[tuple[str, Any]]:
        """The paths of what is not read, outermost first, and what stands there."""
        for document in self._documents:
            yield from self._within(document, "")

    def _within(self, value: Any, path: str) -> Iterator[tuple[str, Any]]:
        for key in list(value) if isinstance(value, MutableMapping) else range(len(value)):
            each, name = value[key], f"{path}.{key}".strip(".") if isinstance(value, Mapping) else f"{path}[{key}]"
            if self._left <= 0:
                return
            if self._is_unread(value, key):
                yield name, each
            elif isinstance(each, MutableMapping | MutableSequence):
                yield from self._within(each, name)

    def _is_unread(self, holder: Any, key: Any) -> bool:
        """Whether the reading stays as it is without a value, and with another in its place."""
        before = holder.copy()
        try:
            if isinstance(holder, MutableMapping):
                del holder[key]
            else:
                holder[key] = None
            if self._answer() != self._as_it_is:
                return False
            holder[key] = _another(before[key])
            return bool(self._answer() == self._as_it_is)
        finally:
            holder.clear()
            holder.update(before) if isinstance(holder, MutableMapping) else holder.extend(before)

    def _answer(self) -> Any:
        self._left -= 1
        try:
            return self._read()
        except TokenyardError as error:
            return str(error)


def _another(value: Any) -> Any:
    """A value of the same form with every leaf changed."""
    if isinstance(value, Mapping):
        return {name: _another(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_another(each) for each in value]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    return f"{value}1" if isinstance(value, str) else "1"


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """What stands below a path, down to texts and numbers; of a name that is not about the engine, the whole."""
    if _around(path) is not None or not isinstance(value, Mapping | list):
        yield path, value
        return
    for key, each in value.items() if isinstance(value, Mapping) else enumerate(value):
        yield from _leaves(f"{path}.{key}" if isinstance(value, Mapping) else f"{path}[{key}]", each)
