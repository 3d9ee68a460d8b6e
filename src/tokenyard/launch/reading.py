"""From the words of a command line to flags of ``vllm serve`` and their values."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from tokenyard.errors import ConfigError
from tokenyard.launch.flag import Effect, FlagKind, GivenFlag, VLLMFlag
from tokenyard.launch.flag_table import FlagTable, Named, flag_table
from tokenyard.launch.values import dotted_value, read_value

__all__ = ["Reading", "merged", "read_words"]

_LEVEL = re.compile(r"-O=?(\w+)")
_A_NUMBER = re.compile(r"-\d")
_NO_OWN: frozenset[str] = frozenset()


class Reading(NamedTuple):
    """Words, read."""

    given: list[GivenFlag]
    """In the order of their names' first appearance; the last value of each."""
    rest: list[str]
    """Words that are no flag of vLLM's, and no value of one."""


def read_words(words: Sequence[str], *, own: Collection[str] = _NO_OWN) -> Reading:
    """Take the flags of vLLM, and their values, out of ``words``.

    Names in ``own`` are not vLLM's here, whatever they are called. As vLLM: ``_`` in a name is ``-``, a unique
    beginning of a long name will do (not if there are ``own`` names, which it might mean), ``--flag.field value`` is
    a field of a JSON value, ``-O3`` is an optimisation level. Raises ConfigError naming the flag for a
    value that is missing or cannot be read.
    """
    return _Reader(words, own).read()


def merged(*readings: Sequence[GivenFlag]) -> list[GivenFlag]:
    """All flags, the later ones in the place of the earlier."""
    last = {each.flag.name: each for reading in readings for each in reading}
    return list(last.values())


class _Reader:
    """One pass over the words."""

    def __init__(self, words: Sequence[str], own: Collection[str]) -> None:
        self._words = list(words)
        self._own = {name.replace("_", "-") for name in own}
        self._table: FlagTable = flag_table()
        self._at = 0
        self._rest: list[str] = []
        self._plain: dict[str, GivenFlag] = {}
        self._dotted: dict[str, dict[str, Any]] = {}

    def read(self) -> Reading:
        while self._at < len(self._words):
            word = self._words[self._at]
            self._at += 1
            if not (word.startswith("-") and self._take(word)):
                self._rest.append(word)
        for name, fields in self._dotted.items():
            self._note(self._table[name], fields)
        return Reading(list(self._plain.values()), self._rest)

    def _take(self, word: str) -> bool:
        """Note the flag that ``word`` names, with its value; False if it names none."""
        level = _LEVEL.fullmatch(word)
        if level or word == "-O":
            text = level[1] if level else self._value(word)
            self._note(self._table["optimization-level"], text)
            return True
        name, equals, text = word.partition("=")
        head, dot, path = name.partition(".")
        if head.replace("_", "-") in self._own:
            return False
        found = self._table.named(head, prefixes=not self._own)
        if found is None:
            return False
        inline = text if equals else None
        if dot:
            self._field(found.flag, name, path, inline)
        else:
            self._whole(found, name, inline)
        return True

    def _field(self, flag: VLLMFlag, spelled: str, path: str, inline: str | None) -> None:
        if flag.kind not in (FlagKind.JSON, FlagKind.JSON_OR_TEXT):
            raise ConfigError(spelled, inline, f"{flag.flag} has no fields")
        text = self._value(spelled) if inline is None else inline
        is_list = path.endswith("+")
        fields = self._dotted.setdefault(flag.name, {})
        *outer, last = path.removesuffix("+").split(".")
        for key in outer:
            inner = fields.setdefault(key, {})
            fields = inner if isinstance(inner, dict) else {}
        value = dotted_value(text, is_list=is_list)
        known = fields.get(last)
        fields[last] = [*known, *value] if is_list and isinstance(known, list) else value

    def _whole(self, found: Named, spelled: str, inline: str | None) -> None:
        flag = found.flag
        if not flag.kind.has_value:
            if inline is not None:
                raise ConfigError(spelled, inline, "takes no value")
            self._note(flag, not found.is_off)
        elif flag.values == "?" and inline is None and self._next_is_no_value():
            self._note(flag, value=True)
        elif flag.values == "+" and inline is None:
            texts = [self._value(spelled)]
            while not self._next_is_no_value():
                texts.append(self._value(spelled))
            self._note(flag, [_value(flag, text, spelled) for text in texts])
        else:
            text = self._value(spelled) if inline is None else inline
            value = _value(flag, text, spelled)
            known = self._plain.get(flag.name) if flag.repeats else None
            self._note(flag, [*(known.value if known else []), value] if flag.repeats else value)

    def _next_is_no_value(self) -> bool:
        if self._at >= len(self._words):
            return True
        word = self._words[self._at]
        return word.startswith("-") and len(word) > 1 and not _A_NUMBER.match(word)

    def _value(self, spelled: str) -> str:
        if self._next_is_no_value():
            raise ConfigError(spelled, "", "needs a value")
        self._at += 1
        return self._words[self._at - 1]

    def _note(self, flag: VLLMFlag, value: Any) -> None:
        self._plain.pop(flag.name, None)
        self._plain[flag.name] = GivenFlag(flag=flag, value=value, words=_words_of(flag, value))


def _value(flag: VLLMFlag, text: str, spelled: str) -> Any:
    """The value; of a flag without effect whatever it says, a variable that nobody set or a place holder included."""
    try:
        return read_value(flag, text, spelled)
    except ConfigError:
        if flag.effect is not Effect.NO_EFFECT:
            raise
        return text


def _words_of(flag: VLLMFlag, value: Any) -> tuple[str, ...]:
    """The flag with its value, as one would type it: long name, plain numbers."""
    if isinstance(value, bool):
        off = next((name for name in flag.off_names if name.startswith("--no-")), flag.flag)
        return (flag.flag if value else off,)
    values = value if isinstance(value, list) and flag.kind is not FlagKind.JSON else [value]
    return (flag.flag, *(each if isinstance(each, str) else json.dumps(each) for each in values))
