"""Flags that were given: words read into values, and what they say to vLLM."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple

from tokenyard.deploy.start_facts import HeaderNote, MeasuredKV
from tokenyard.deploy.vllm_serve.defaults import OBEYED
from tokenyard.deploy.vllm_serve.flags import (
    KNOWN,
    FlagEffect,
    FlagKind,
    FlagTable,
    GivenFlag,
    NamedFlag,
    VLLMFlag,
    dotted_value,
    flag_table,
    read_value,
    written_out,
)
from tokenyard.deploy.vllm_serve.shell import is_unresolved
from tokenyard.errors import ConfigError, NoStartError, NotModelledError
from tokenyard.quick_dataclass import dataclass
from tokenyard.redaction import hidden, hidden_text

# ---------------------------------------------------------------------------------------------------------------------
# From the words of a command line to flags of ``vllm serve`` and their values.

_LEVEL = re.compile(r"-O=?(\w+)")
_A_NUMBER = re.compile(r"-\d")
_NO_OWN: frozenset[str] = frozenset()
_GONE = {"compilation-config": ("level",)}
"""Fields that neither version has any more."""
_MOST_FIELDS_WITHIN = 50
"""Fields within fields of a value, one to a dot."""


class ParsedArgs(NamedTuple):
    """Words, read."""

    given: list[GivenFlag]
    """The flags, in the order in which their names first appear, each with its last value."""
    rest: list[str]
    """Words that are no flag of vLLM's, and no value of one."""


def read_words(words: Sequence[str], *, own: Collection[str] = _NO_OWN) -> ParsedArgs:
    """Take the flags of vLLM, and their values, out of ``words``.

    Names in ``own`` are not vLLM's here, whatever they are called; a mapping says which of them are one flag. As vLLM:
    ``_`` in a name is ``-``, a unique beginning of a long name will do (of a name in ``own`` as well, which is then
    written out), ``--flag.field value`` is a field of a JSON value, ``-O3`` is an optimisation level. Secrets are
    replaced (:mod:`tokenyard.redaction`): no flag that is returned holds one. Raises ConfigError naming the flag for a
    value that is missing or cannot be read, and for a beginning of several names.
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
        meant = own if isinstance(own, Mapping) else {name: name for name in own}
        self._own: dict[str, Hashable] = {name.replace("_", "-"): each for name, each in meant.items()}
        self._table: FlagTable = flag_table()
        self._flags: dict[str, Hashable] = {**self._table.long_names, **self._own}
        self._at = 0
        self._rest: list[str] = []
        self._last_values: dict[str, GivenFlag] = {}
        self._dotted: dict[str, dict[str, Any]] = {}
        self._repeated: dict[str, list[Any]] = {}
        self._known: dict[str, NamedFlag | None] = {}

    def read(self) -> ParsedArgs:
        while self._at < len(self._words):
            word = self._words[self._at]
            self._at += 1
            if not (word.startswith("-") and self._take(word)):
                self._rest.append(self._own_word(word))
        for name, values in (*self._dotted.items(), *self._repeated.items()):
            self._note(self._table[name], values)
        return ParsedArgs(list(self._last_values.values()), self._rest)

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
        if head not in self._known:
            full = written_out(head.replace("_", "-"), self._flags) if head.startswith("--") else None
            self._known[head] = None if full in self._own else self._table.named(full or head, prefixes=False)
        found = self._known[head]
        if found is None:
            return False
        inline = text if equals else None
        if dot:
            self._field(found.flag, name, path, inline)
        else:
            self._whole(found, name, inline)
        return True

    def _own_word(self, word: str) -> str:
        """A word that is no flag of vLLM's: a name in ``own``, or the beginning of one, written out with dashes."""
        head, equals, text = word.partition("=")
        full = written_out(head.replace("_", "-"), self._flags) if head.startswith("--") else None
        return word if full is None else f"{full}{equals}{text}"

    def _field(self, flag: VLLMFlag, spelled: str, path: str, inline: str | None) -> None:
        if flag.kind not in (FlagKind.JSON, FlagKind.JSON_OR_TEXT):
            raise ConfigError(spelled, _printable(inline), f"{flag.flag} has no fields")
        text = self._value(spelled) if inline is None else inline
        is_list = path.endswith("+")
        fields = self._dotted.setdefault(flag.name, {})
        *outer, last = path.removesuffix("+").split(".")
        if len(outer) > _MOST_FIELDS_WITHIN:
            raise ConfigError(f"{flag.flag}.", f"{len(outer) + 1} levels", f"give no more than {_MOST_FIELDS_WITHIN}")
        for key in outer:
            inner = fields.setdefault(key, {})
            fields = inner if isinstance(inner, dict) else {}
        value = dotted_value(text, is_list=is_list)
        known = fields.get(last)
        fields[last] = [*known, *value] if is_list and isinstance(known, list) else value

    def _whole(self, found: NamedFlag, spelled: str, inline: str | None) -> None:
        flag = found.flag
        if not flag.kind.has_value:
            if inline is not None:
                raise ConfigError(spelled, _printable(inline), "takes no value")
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
            if flag.repeats:
                self._repeated.setdefault(flag.name, []).append(value)
            else:
                self._note(flag, value)

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
        value = hidden(flag.name, value)
        replaced = self._last_values.pop(flag.name, None)
        before: tuple[str, ...] = ()
        if replaced is not None:
            _check_replaced(replaced)
            before = replaced.replaced
            if replaced.value in flag.unmodelled and replaced.value != value:
                before = (*before, str(replaced))
        self._last_values[flag.name] = GivenFlag(flag=flag, value=value, words=words_of(flag, value), replaced=before)


def _check_replaced(given: GivenFlag) -> None:
    """vLLM reads a value even where a later one, or fields one by one, take its place: ConfigError if it cannot."""
    fields = given.value if isinstance(given.value, dict) else {}
    for name in _GONE.get(given.flag.name, ()):
        if name in fields:
            fix = "vLLM has no such field, and reads it although another value takes its place: leave it out"
            raise ConfigError(f"{given.flag.flag}.{name}", _printable(str(fields[name])), fix)


def _value(flag: VLLMFlag, text: str, spelled: str) -> Any:
    """The value; of a flag without effect whatever it says, a variable that is not set or a place holder included."""
    try:
        return read_value(flag, text, spelled)
    except ConfigError as error:
        if flag.effect is FlagEffect.NO_EFFECT:
            return text
        said = _printable(text)
        if "$(" in text or "`" in text:
            said = "$(...)"  # what a shell would run may print a secret
            raise ConfigError(spelled, said, "is for a shell to work out: write its value in its place") from None
        if is_unresolved(text):
            raise ConfigError(spelled, said, "is a variable that nothing here sets: write its value") from None
        raise ConfigError(spelled, said, error.marked_fix) from None


def _printable(text: str | None) -> str | None:
    """A value for a message."""
    return None if text is None else hidden_text(text)


def words_of(flag: VLLMFlag, value: Any) -> tuple[str, ...]:
    """The flag with its value, as one would type it: long name, plain numbers."""
    if isinstance(value, bool):
        off = next((name for name in flag.off_names if name.startswith("--no-")), flag.flag)
        return (flag.flag if value else off,)
    values = value if isinstance(value, list) and flag.kind is not FlagKind.JSON else [value]
    return (flag.flag, *(each if isinstance(each, str) else json.dumps(each) for each in values))


# ---------------------------------------------------------------------------------------------------------------------
# What a user gave for vLLM: flags of the command line, of a pasted line and of a file, by what they do.

_OF_THE_PLACE = ("CUDA_VISIBLE_DEVICES", "HF_", "HUGGING", "NCCL_DEBUG", "VLLM_LOGGING", "VLLM_API_KEY", "PYTHON")
"""Beginnings of variables that change nothing in a replay."""


@dataclass(frozen=True, slots=True)
class GivenFlags:
    """Flags and variables, as they were given; a later flag has taken the place of an earlier one."""

    given: tuple[GivenFlag, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that stand in front of a pasted line."""
    named: frozenset[str] = frozenset()
    """Settings that were given, ours included, as fields are called: ``max_num_seqs``, ``gpu``."""
    found: tuple[HeaderNote, ...] = ()
    """What a pasted text says beside flags (its version, GPU, replicas), and what was made of it."""
    logged_kv: MeasuredKV = field(default_factory=MeasuredKV)
    """What a start-up log says of the KV cache."""
    logged: frozenset[str] = frozenset()
    """Settings that a start-up log holds, and that are those of the deployment that wrote it alone."""

    def of(self, effect: FlagEffect) -> list[GivenFlag]:
        """The flags of one class, in their order."""
        return [each for each in self.given if each.effect is effect]

    @property
    def not_modelled(self) -> list[GivenFlag]:
        """Flags that change something which a replay does not know, without those whose value changes nothing."""
        return [each for each in self.of(FlagEffect.NOT_MODELLED) if not each.changes_nothing]

    @property
    def without_effect(self) -> list[str]:
        """Each with its reason, as a header lists them."""
        idle = [each for each in self.of(FlagEffect.NOT_MODELLED) if each.changes_nothing]
        said = [f"{each}: {each.flag.why}" for each in self.of(FlagEffect.NO_EFFECT)]
        return said + [f"{each}: as without it{each.idle and ', as ' + each.idle}" for each in idle]

    def ignored(self, version: str) -> list[str]:
        """What would change something and does not here, each with what it would change."""
        said = [f"{each}: {each.flag.why}" for each in self.not_modelled]
        said += [f"{each}: a later value takes its place" for given in self.given for each in given.replaced]
        return said + [
            f"{name}={value}: variables of the environment are not modelled"
            for name, value in self.environment.items()
            if not name.startswith(_OF_THE_PLACE) and _looks_like_vllm(name) and version not in OBEYED.get(name, ())
        ]

    def require_modelled(self, *, is_settled: bool = False) -> None:
        """Raise NotModelledError naming every flag that is not modelled.

        Until the deployment ``is_settled``, those are passed over that may change nothing in it.
        """
        left = [each for each in self.not_modelled if is_settled or not each.flag.idle_where]
        if left:
            raise NotModelledError([(str(each), each.flag.why) for each in left])

    def require_companions(self) -> None:
        """Raise NoStartError for a flag that needs another which is not given."""
        names = {each.flag.name for each in self.given}
        for each in self.given:
            needs = each.flag.needs
            if needs and not each.changes_nothing and not names.intersection(needs):
                which = f"one of: {', '.join(f'--{name}' for name in needs)}"
                raise NoStartError(f"{each} needs {which}", each.flag.field, each.value, f"give {which}")

    def missing_in(self, version: str) -> list[GivenFlag]:
        """Flags that this version of vLLM does not have."""
        return [each for each in self.given if version not in each.flag.versions]

    def value(self, name: str) -> object:
        """What was given for a flag of vLLM's, by its name without dashes; None if it was not."""
        return next((each.value for each in self.given if each.flag.name == name), None)

    def obeyed(self, version: str) -> list[str]:
        """The variables that a replay takes heed of."""
        return [f"{name}={value}" for name, value in self.environment.items() if version in OBEYED.get(name, ())]

    def says(self, fields: Sequence[str]) -> bool:
        """Whether one of these settings was given."""
        return any(name in self.named for name in fields)


def _looks_like_vllm(name: str) -> bool:
    return name.startswith(("VLLM_", "NCCL_", "TORCH", "PYTORCH_", "CUDA_"))


# ---------------------------------------------------------------------------------------------------------------------
# ``--compilation-config``: its fields that are flags too are taken as those, its defaults are ignored.
#
# What else it says (other modes, passes, backends) changes times and memory in ways that a replay does not know.

_POOLS = ("embed", "embedding", "score", "classify", "reward")
"""Values of the older ``--task`` with which vLLM pools."""
_NAME = "compilation-config"
_FLAGS = ("cudagraph-capture-sizes", "max-cudagraph-capture-size")
_DEFAULTS: Mapping[str, Sequence[Any]] = KNOWN["compilation"]
"""Values of vLLM at optimisation level 2."""


def spelled_out(given: Sequence[GivenFlag]) -> list[GivenFlag]:
    """The flags, with those that older ones and the configuration's fields mean.

    Raises NoStartError where a flag and a field are given for one thing, ConfigError for a field of another type.
    """
    names = {each.flag.name for each in given}
    if "runner" not in names and any(each.flag.name == "task" and each.value in _POOLS for each in given):
        runner = flag_table()["runner"]
        given = [*given, GivenFlag(flag=runner, value="pooling", words=words_of(runner, "pooling"))]
    config = next((each for each in given if each.flag.name == _NAME), None)
    if config is None or not isinstance(config.value, dict):
        return list(given)
    others = [each for each in given if each is not config]
    rest = {key: value for key, value in config.value.items() if not _is_default(key, value)}
    inside = list(_flags(rest))
    for each in inside:
        if any(other.flag.name == each.flag.name for other in others):
            problem = f"{each.flag.flag} and compilation_config.{each.flag.field} exclude each other"
            raise NoStartError(problem, each.flag.field, each.value, "give one of the two")
    left = {key: value for key, value in rest.items() if key.replace("_", "-") not in _FLAGS}
    return [
        *others,
        *inside,
        GivenFlag(flag=config.flag, value=left, words=words_of(config.flag, left or config.value)),
    ]


def _is_default(key: str, value: Any) -> bool:
    return value is None or any(value == default and type(value) is type(default) for default in _DEFAULTS.get(key, ()))


def _flags(fields: Mapping[str, Any]) -> Iterator[GivenFlag]:
    for name in _FLAGS:
        flag = flag_table()[name]
        value = fields.get(flag.field)
        if value is None:
            continue
        numbers = value if flag.values else [value]
        if not isinstance(numbers, list) or not all(type(number) is int for number in numbers):
            fix = "give a list of whole numbers" if flag.values else "give a whole number"
            raise ConfigError(f"compilation_config.{flag.field}", value, fix)
        yield GivenFlag(flag=flag, value=value, words=words_of(flag, value))
