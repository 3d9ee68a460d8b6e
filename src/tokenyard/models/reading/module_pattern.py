"""Patterns of module names in a stranger's ``config.json``, matched in time that their length bounds.

``re:`` entries are regular expressions, and Python's own would run some of them for ever (``(.*)*Q$``). Here all ways
to read a pattern are followed side by side (Thompson's construction), so that a name costs at most its length times
that of the pattern, and the cost of all of them is counted. What real configurations use is known: characters, ``.``,
sets, groups, ``|``, repetitions, ``^`` and ``$``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import msgspec

MOST_CHARACTERS = 500
"""The longest pattern that is read."""
MOST_WORK = 30_000_000
"""States and characters that are looked at, for all patterns of a configuration: a thousand entries and 60 layers need
about half of it."""
_MOST_STATES = 4_000
_MOST_KEPT = 2_000
_MOST_REPEATS = 100
_MOST_GROUPS_WITHIN = 20
_ESCAPED: dict[str, Callable[[str], bool]] = {
    "d": str.isdecimal,
    "w": lambda c: c.isalnum() or c == "_",
    "s": str.isspace,
    "D": lambda c: not c.isdecimal(),
    "W": lambda c: not (c.isalnum() or c == "_"),
    "S": lambda c: not c.isspace(),
}
_ANCHORS = {"A": "^", "Z": "\\Z"}


class PatternError(ValueError):
    """A pattern is none, or uses what is not followed here."""


class _State(msgspec.Struct, frozen=True):
    """Where a reading of a pattern may be."""

    takes: Callable[[str], bool] | None
    """The character that leads to ``to[0]``; None: nothing is taken, and any of ``to`` is next."""
    to: list[int]
    anchor: str = ""
    """``^``, ``$`` or ``\\Z``: where the name must begin or end for this to be passed."""


class Work:
    """What matching may cost: states that are looked at, of all patterns of a configuration together."""

    def __init__(self, most: int = MOST_WORK) -> None:
        self._left = most

    def spend(self, states: int) -> None:
        """Count them. Raises PatternError where it becomes too much."""
        self._left -= states
        if self._left < 0:
            raise PatternError("asks for more work than the patterns of any known model")


class ModulePattern:
    """A regular expression that is matched from the beginning of a name, as ``re.match`` does.

    What a set of states becomes by a character is kept, since names begin alike.
    """

    def __init__(self, states: list[_State], first: int, last: int) -> None:
        self._states = states
        self._first = frozenset((first,))
        self._last = last
        self._reached: dict[tuple[frozenset[int], bool, bool], frozenset[int]] = {}
        self._next: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def matches(self, name: str, work: Work | None = None) -> bool:
        """Whether the pattern matches at the beginning of ``name``. Raises PatternError for too much ``work``."""
        work = work or Work()
        current = self._first
        for at, character in enumerate(name):
            reached = self._all(current, at == 0, False, work)
            if self._last in reached:
                return True
            current = self._after(reached, character, work)
            if not current:
                return False
        return self._last in self._all(current, not name, True, work)

    def _after(self, reached: frozenset[int], character: str, work: Work) -> frozenset[int]:
        """The states to which a character leads."""
        key = reached, character
        found = self._next.get(key)
        if found is None:
            work.spend(len(reached))
            states = (self._states[i] for i in reached)
            taking = (state for state in states if state.takes is not None and state.takes(character))
            found = frozenset(to for state in taking for to in state.to)
            _keep(self._next, key, found)
        work.spend(1)
        return found

    def _all(self, begun: frozenset[int], is_begin: bool, is_end: bool, work: Work) -> frozenset[int]:
        """These states, and all that can be reached from them without taking a character."""
        key = begun, is_begin, is_end
        found = self._reached.get(key)
        if found is None:
            reached: set[int] = set()
            left = list(begun)
            while left:
                i = left.pop()
                if i in reached:
                    continue
                reached.add(i)
                state = self._states[i]
                if state.takes is None and (not state.anchor or (is_begin if state.anchor == "^" else is_end)):
                    left += state.to
                    work.spend(len(state.to))
            found = frozenset(reached)
            work.spend(len(found))
            _keep(self._reached, key, found)
        return found


def _keep(cache: dict[Any, frozenset[int]], key: Any, value: frozenset[int]) -> None:
    if len(cache) >= _MOST_KEPT:
        cache.clear()
    cache[key] = value


@lru_cache(maxsize=4096)
def module_pattern(text: str) -> ModulePattern:
    """The regular expression ``text``. Raises PatternError."""
    if len(text) > MOST_CHARACTERS:
        raise PatternError(f"has {len(text):,} characters, of {MOST_CHARACTERS} that are read")
    return _Parser(text).pattern()


@lru_cache(maxsize=4096)
def glob_pattern(text: str) -> ModulePattern:
    """A pattern with ``*``, ``?`` and ``[sets]``, which stands for the whole name. Raises PatternError."""
    if len(text) > MOST_CHARACTERS + 2:
        raise PatternError(f"has {len(text):,} characters, of {MOST_CHARACTERS} that are read")
    return _Parser("".join(_of_glob(text)) + "\\Z").pattern()


def _of_glob(text: str) -> Iterator[str]:
    """The same as a regular expression."""
    at = 0
    while at < len(text):
        character = text[at]
        at += 1
        closing = text.find("]", at + 1 + text.startswith("!", at)) if character == "[" else -1
        if closing > 0:
            inner = text[at:closing].replace("\\", "\\\\")
            if inner.startswith("^"):
                inner = f"\\{inner}"
            yield f"[^{inner[1:]}]" if inner.startswith("!") else f"[{inner}]"
            at = closing + 1
        elif character == "*":
            yield ".*"
        else:
            yield (
                "." if character == "?" else character if character.isalnum() or character == "_" else f"\\{character}"
            )


class _Part(msgspec.Struct, frozen=True):
    """A part of a pattern: its first state, and the one behind it."""

    first: int
    last: int


class _Parser:
    """Builds the states of a pattern, from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._states: list[_State] = []

    def pattern(self) -> ModulePattern:
        whole = self._choice(_MOST_GROUPS_WITHIN)
        if self._at < len(self._text):
            raise PatternError("has a ) that closes nothing")
        return ModulePattern(self._states, whole.first, whole.last)

    def _state(self, takes: Callable[[str], bool] | None, *to: int, anchor: str = "") -> int:
        if len(self._states) >= _MOST_STATES:
            raise PatternError("repeats too much")
        self._states.append(_State(takes, list(to), anchor))
        return len(self._states) - 1

    def _choice(self, levels: int) -> _Part:
        if levels == 0:
            raise PatternError(f"has groups more than {_MOST_GROUPS_WITHIN} deep")
        parts = [self._sequence(levels)]
        while self._text.startswith("|", self._at):
            self._at += 1
            parts.append(self._sequence(levels))
        if len(parts) == 1:
            return parts[0]
        last = self._state(None)
        for part in parts:
            self._states[part.last].to.append(last)
        return _Part(self._state(None, *(part.first for part in parts)), last)

    def _sequence(self, levels: int) -> _Part:
        first = last = self._state(None)
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            begin = self._at
            part = self._atom(levels)
            end = self._at
            part = self._repeated(part, begin, end, levels)
            self._states[last].to.append(part.first)
            last = part.last
        return _Part(first, last)

    def _atom(self, levels: int) -> _Part:
        character = self._text[self._at]
        self._at += 1
        if character == "(":
            return self._group(levels)
        if character == "[":
            return self._taking(self._set())
        if character == ".":
            return self._taking(lambda c: c != "\n")
        if character in "^$":
            return self._anchored(character)
        if character in "*+?":
            raise PatternError(f"has a {character} that repeats nothing")
        if character == "\\":
            escape = self._next()
            if escape in _ANCHORS:
                return self._anchored(_ANCHORS[escape])
            return self._taking(_escaped(escape))
        return self._taking(lambda c: c == character)

    def _taking(self, takes: Callable[[str], bool]) -> _Part:
        last = self._state(None)
        return _Part(self._state(takes, last), last)

    def _anchored(self, anchor: str) -> _Part:
        if self._text[self._at : self._at + 1] in ("*", "+", "?"):
            raise PatternError("repeats the beginning or the end of a name")
        last = self._state(None)
        return _Part(self._state(None, last, anchor=anchor), last)

    def _group(self, levels: int) -> _Part:
        if self._text.startswith("?", self._at):
            if not self._text.startswith("?:", self._at):
                raise PatternError("looks ahead or behind, or names a group, (?...): write it as (...) or (?:...)")
            self._at += 2
        part = self._choice(levels - 1)
        if not self._text.startswith(")", self._at):
            raise PatternError("has a ( that nothing closes")
        self._at += 1
        return part

    def _set(self) -> Callable[[str], bool]:
        """``[a-z_]``, behind its bracket."""
        negated = self._text.startswith("^", self._at)
        self._at += negated
        tests: list[Callable[[str], bool]] = []
        while not (tests and self._text.startswith("]", self._at)):
            low = self._next()
            if low == "\\":
                tests.append(_escaped(self._next()))
            elif self._text.startswith("-", self._at) and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                high = self._next()
                if high == "\\" or high < low:
                    raise PatternError("has a range that ends before it begins")
                tests.append(_between(low, high))
            else:
                tests.append(_equal(low))
        self._at += 1
        return lambda c: any(test(c) for test in tests) is not negated

    def _next(self) -> str:
        if self._at >= len(self._text):
            raise PatternError("ends within a set or behind a backslash")
        self._at += 1
        return self._text[self._at - 1]

    def _repeated(self, part: _Part, begin: int, end: int, levels: int) -> _Part:
        """The part as often as what stands behind it says; copies are read from the text again."""
        counts = self._counts()
        if counts is None:
            return part
        least, most = counts
        behind = self._at
        first = last = self._state(None)
        for i in range(max(least, 1) if most is None else most):
            if i:
                self._at = begin
                part = self._atom(levels)
                assert self._at == end
            leaving = self._state(None)
            self._states[last].to.append(part.first)
            if i >= least:
                self._states[last].to.append(leaving)
            self._states[part.last].to.append(leaving)
            if most is None and i >= least - 1:
                self._states[leaving].to.append(part.first)
            last = leaving
        self._at = behind
        return _Part(first, last)

    def _counts(self) -> tuple[int, int | None] | None:
        """What ``*``, ``+``, ``?`` or ``{m,n}`` says; None where nothing repeats."""
        simple = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(self._text[self._at : self._at + 1])
        if simple is not None:
            self._at += 1
        elif self._text.startswith("{", self._at):
            simple = self._braces()
            if simple is None:
                return None
        else:
            return None
        if self._text[self._at : self._at + 1] in ("?", "+"):
            if self._text[self._at] == "+":
                raise PatternError("has a possessive repetition (*+): leave the + out")
            self._at += 1  # as few as possible: the same names match
        if self._text[self._at : self._at + 1] in ("*", "+", "?"):
            raise PatternError("repeats a repetition")
        return simple

    def _braces(self) -> tuple[int, int | None] | None:
        closing = self._text.find("}", self._at)
        low, comma, high = self._text[self._at + 1 : closing].partition(",") if closing > 0 else ("", "", "")
        if not (low.isdecimal() or (comma and not low)) or not (not high or high.isdecimal()) or not (low or high):
            return None  # a brace like any other character
        least = int(low or 0)
        most = least if not comma else int(high) if high else None
        if least > _MOST_REPEATS or (most or 0) > _MOST_REPEATS or (most is not None and most < least):
            raise PatternError(f"repeats more than {_MOST_REPEATS} times, or less than nothing")
        self._at = closing + 1
        return least, most


def _equal(expected: str) -> Callable[[str], bool]:
    return lambda c: c == expected


def _between(low: str, high: str) -> Callable[[str], bool]:
    return lambda c: low <= c <= high


def _escaped(escape: str) -> Callable[[str], bool]:
    known = _ESCAPED.get(escape)
    if known is not None:
        return known
    if escape.isalnum():
        raise PatternError(f"has \\{escape}, which is not followed here")
    return _equal(escape)
