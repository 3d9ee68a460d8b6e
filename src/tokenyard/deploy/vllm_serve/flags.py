"""Flags of vllm serve: the table of all of them, how each is written, abbreviated and read."""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache, cached_property
from types import MappingProxyType
from typing import Any

import msgspec

from tokenyard.core.profiles import PROFILES
from tokenyard.errors import ConfigError
from tokenyard.files import packaged
from tokenyard.patterns import lazy_pattern

KNOWN: Mapping[str, Any] = msgspec.json.decode(packaged(__package__, "known.json"))
"""Lists of names and values, as ``known.json`` has them."""

# ---------------------------------------------------------------------------------------------------------------------
# A flag of ``vllm serve``: how it is written, and what it means to a replay.


class FlagEffect(StrEnum):
    """What a flag does to a replay."""

    USED = "used"
    NO_EFFECT = "no-effect"
    """It changes neither memory, nor time, nor decisions."""
    NOT_MODELLED = "not-modelled"
    """It changes one of them, and a replay does not know how."""


class FlagKind(StrEnum):
    """How the value of a flag is written."""

    SWITCH = "switch"
    """No value: it is named or it is not."""
    PAIR = "pair"
    """No value: one name for on, others for off."""
    INT = "int"
    READABLE_INT = "readable_int"
    """A whole number, or one with k, m, g, t (powers of 1,000) or K, M, G, T (powers of 1,024) after it."""
    READABLE_INT_OR_AUTO = "readable_int_or_auto"
    """The same, or ``auto``, which is -1."""
    FLOAT = "float"
    TEXT = "text"
    JSON = "json"
    """An object, or one field at a time: ``--flag.field value``."""
    JSON_OR_TEXT = "json_or_text"

    @property
    def has_value(self) -> bool:
        """Whether a word follows the name."""
        return self not in (FlagKind.SWITCH, FlagKind.PAIR)


class RecordedFlag(msgspec.Struct, frozen=True, kw_only=True):
    """What lab/record_vllm_flags.py writes of a flag."""

    name: str
    """Without the dashes in front: ``max-num-seqs``."""
    kind: FlagKind
    other_names: tuple[str, ...] = ()
    """Short forms and the like, with their dashes."""
    off_names: tuple[str, ...] = ()
    """What turns a pair off, with their dashes."""
    values: str = ""
    """How many words follow, as argparse writes it: one or more (``+``), or perhaps one (``?``); empty: one."""
    repeats: bool = False
    """It may be named again and again, and every value counts."""
    default: Any = None
    """vLLM's, where it is plain."""
    choices: tuple[str, ...] = ()
    """The values that vLLM lists, where it does."""


class VLLMFlag(RecordedFlag, frozen=True, kw_only=True):
    """One flag, with what it does to a replay."""

    effect: FlagEffect
    why: str
    """What it does, in a few words of ours."""
    neutral: tuple[Any, ...] = ()
    """Further values with which a flag that is not modelled changes nothing."""
    unmodelled: tuple[Any, ...] = ()
    """Values with which a flag that is used otherwise is not modelled."""
    idle_where: tuple[str, ...] = ()
    """What may be so of a deployment, in words, so that a flag that is not modelled changes nothing in it."""
    needs: tuple[str, ...] = ()
    """Names of flags of which one has to be given beside it."""
    versions: tuple[str, ...] = ()
    """Versions, of those recorded, that have it; none: it is older."""

    @property
    def flag(self) -> str:
        """The flag as it is written: ``--max-num-seqs``."""
        return f"--{self.name}"

    @property
    def field(self) -> str:
        """The name of its setting: ``max_num_seqs``."""
        return self.name.replace("-", "_")


class GivenFlag(msgspec.Struct, frozen=True, kw_only=True):
    """A flag that was given, and its value as it was read."""

    flag: VLLMFlag
    value: Any
    """bool, int, float, text, a JSON value, or a list of such for a flag that takes several."""
    words: tuple[str, ...]
    """The same flag and value as a command line has them."""
    replaced: tuple[str, ...] = ()
    """The flag with an earlier value that is not modelled, whose place this one took: vLLM checks that one as well."""

    idle: str = ""
    """Why it changes nothing in the deployment that was settled; empty: that is not known."""

    @property
    def effect(self) -> FlagEffect:
        """What it does with this value."""
        return FlagEffect.NOT_MODELLED if self.value in self.flag.unmodelled else self.flag.effect

    @property
    def changes_nothing(self) -> bool:
        """Whether vLLM would do the same without it."""
        default = self.flag.default
        if default is None and self.flag.kind in (FlagKind.SWITCH, FlagKind.PAIR):
            default = False
        return bool(self.idle) or self.value == default or self.value in self.flag.neutral

    def __str__(self) -> str:
        return " ".join(self.words)


# ---------------------------------------------------------------------------------------------------------------------
# Values of flags, read as vLLM reads them.

_READABLE = lazy_pattern(r"(\d+(?:\.\d+)?)([kKmMgGtT])")
_BARE = lazy_pattern(r"\b\d+(?:\.\d+)?[kKmMgGtT]\b")
_QUOTED = lazy_pattern(r'("(?:[^"\\]|\\.)*"?)', re.DOTALL)
_POWERS = "kmgt"
_NUMBER = "give a whole number, or one such as 8k (8,000) or 8K (8,192)"


def readable_int(text: str) -> int:
    """``8k`` is 8,000, ``8K`` is 8,192, ``1.5k`` is 1,500. ValueError for anything else: ``1.5K``, ``1GiB``.

    As vLLM: the letters k, m, g, t stand for powers of 1,000, K, M, G, T for powers of 1,024 and take no decimals.
    """
    match = _READABLE.fullmatch(text.strip())
    if match is None:
        return int(text)
    number, letter = match[1], match[2]
    power: int = 1 + _POWERS.index(letter.lower())
    if letter.islower():
        return int(float(number) * 1000**power)
    return int(number) * int(1024**power)


def read_value(flag: VLLMFlag, text: str, spelled: str | None = None) -> Any:
    """The value of ``flag`` that ``text`` writes; ConfigError naming the flag as it was ``spelled``."""
    try:
        return _read(flag.kind, text)
    except (ValueError, OverflowError, RecursionError):
        fix = 'give a JSON object: {"KEY": VALUE}' if flag.kind is FlagKind.JSON else _NUMBER
        if flag.kind is FlagKind.INT:
            fix = "give a whole number"
        if flag.kind is FlagKind.FLOAT:
            fix = "give a number"
        raise ConfigError(spelled or flag.flag, text, fix) from None


def _read(kind: FlagKind, text: str) -> Any:
    if kind is FlagKind.INT:
        return int(text)
    if kind is FlagKind.FLOAT:
        return float(text)
    if kind is FlagKind.READABLE_INT_OR_AUTO and text.strip().lower() in ("auto", "-1"):
        return -1
    if kind in (FlagKind.READABLE_INT, FlagKind.READABLE_INT_OR_AUTO):
        return readable_int(text)
    if kind is FlagKind.JSON or (kind is FlagKind.JSON_OR_TEXT and text.strip().startswith("{")):
        return None if text in ("", "None") else json.loads(_expanded(text))
    return text


def _expanded(text: str) -> str:
    """JSON with its bare ``80g`` written out."""
    parts = _QUOTED.split(text)
    parts[::2] = [_BARE.sub(lambda match: str(readable_int(match[0])), part) for part in parts[::2]]
    return "".join(parts)


def dotted_value(text: str, *, is_list: bool) -> Any:
    """The value in ``--flag.field value``, or in ``--flag.field+ a,b`` if it ``is_list``."""
    if is_list:
        return text.split(",")
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        pass
    try:
        return readable_int(text)
    except (ValueError, OverflowError, RecursionError):
        return text


# ---------------------------------------------------------------------------------------------------------------------
# The beginning of a long flag stands for the flag, as in argparse, if it is the beginning of no other.

_SHOWN = 12
"""Flags that are named of those that an abbreviation may mean."""


def written_out(word: str, flags: Mapping[str, Hashable]) -> str | None:
    """The flag that ``word`` is the beginning of; None if there is none.

    ``flags``: each long flag, with dashes, and what it names; two names of one thing are no two flags. Raises
    ConfigError where it may be one of several.
    """
    if not word.startswith("--") or len(word) <= len("--"):
        return None
    if word in flags:
        return word
    found = {name: meant for name, meant in flags.items() if name.startswith(word)}
    if len(set(found.values())) > 1:
        names = sorted(found)
        more = ", ..." * (len(names) > _SHOWN)
        raise ConfigError("option", word, f"is ambiguous: it could be {', '.join(names[:_SHOWN])}{more}")
    return min(found, key=len, default=None)


# ---------------------------------------------------------------------------------------------------------------------
# All flags of ``vllm serve``: what vLLM was asked (recorded/*.json), and what we say of each (flags.toml).

VERSIONS = tuple(PROFILES)
"""Versions of vLLM whose flags are recorded; the last one's say how a value is written."""


def span_of(versions: Sequence[str]) -> str:
    """Versions that follow each other, in words: ``vLLM 0.26 to 0.29``, ``vLLM 0.24 and later``."""
    first, last = versions[0], versions[-1]
    if last == VERSIONS[-1]:
        return f"vLLM {last}" if first == last else f"vLLM {first} and later"
    return f"vLLM {first}" if first == last else f"vLLM {first} to {last}"


class _Recorded(msgspec.Struct, frozen=True, kw_only=True):
    vllm: str
    flags: list[RecordedFlag]


class _Earlier(msgspec.Struct, frozen=True, kw_only=True, rename={"effect": "class"}):
    """A flag that no recorded version has."""

    effect: FlagEffect
    kind: FlagKind
    why: str
    values: str = ""


class _Said(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """flags.toml."""

    used: dict[str, str]
    no_effect: dict[str, str]
    not_modelled: dict[str, str]
    neutral: dict[str, list[Any]]
    unmodelled: dict[str, list[Any]]
    needs: dict[str, list[str]]
    idle: dict[str, list[str]]
    earlier: dict[str, _Earlier]

    def of(self, name: str) -> tuple[FlagEffect, str]:
        """Class and reason; KeyError for a flag that is not in the table."""
        for effect, flags in (
            (FlagEffect.USED, self.used),
            (FlagEffect.NO_EFFECT, self.no_effect),
            (FlagEffect.NOT_MODELLED, self.not_modelled),
        ):
            if name in flags:
                return effect, flags[name]
        raise KeyError(name)


class NamedFlag(msgspec.Struct, frozen=True):
    """A flag, as a word of a command line names it."""

    flag: VLLMFlag
    is_off: bool = False
    """The word turns it off."""


class FlagTable:
    """The flags, and what names them."""

    def __init__(self, flags: list[VLLMFlag]) -> None:
        self._flags = {flag.name: flag for flag in flags}
        self._names: dict[str, NamedFlag] = {}
        for flag in flags:
            for name in (flag.flag, *flag.other_names):
                self._names[name] = NamedFlag(flag)
            for name in flag.off_names:
                self._names[name] = NamedFlag(flag, is_off=True)

    def __iter__(self) -> Iterator[VLLMFlag]:
        return iter(self._flags.values())

    def __getitem__(self, name: str) -> VLLMFlag:
        """The flag of this name, without dashes; KeyError if there is none."""
        return self._flags[name]

    @property
    def names(self) -> frozenset[str]:
        """All words that name a flag."""
        return frozenset(self._names)

    @cached_property
    def long_names(self) -> dict[str, tuple[str, bool]]:
        """Each long flag, with dashes; the name of the flag that it is, and whether it turns that off."""
        return {word: (each.flag.name, each.is_off) for word, each in self._names.items() if word.startswith("--")}

    def named(self, word: str, *, prefixes: bool = True) -> NamedFlag | None:
        """The flag that ``word`` names; as argparse has it, the beginning of one long name will do.

        Raises ConfigError where it is the beginning of several.
        """
        if word.startswith("--"):
            word = word.replace("_", "-")
        found = self._names.get(word)
        if found is not None or not prefixes:
            return found
        full = written_out(word, self.long_names)
        return None if full is None else self._names[full]


@cache
def recorded_flags(version: str) -> dict[str, RecordedFlag]:
    """The flags of one version, by name; KeyError if it is none of those recorded."""
    if version not in VERSIONS:
        raise KeyError(version)
    text = packaged(__package__, f"recorded/{version}.json")
    return {flag.name: flag for flag in msgspec.json.decode(text, type=_Recorded).flags}


@cache
def flag_table() -> FlagTable:
    """Everything that is known; read once."""
    said = msgspec.toml.decode(packaged(__package__, "flags.toml"), type=_Said)
    recorded: dict[str, RecordedFlag] = {}
    versions: dict[str, tuple[str, ...]] = {}
    for version in VERSIONS:
        for name, flag in recorded_flags(version).items():
            recorded[name] = flag
            versions[name] = (*versions.get(name, ()), version)
    flags = [_flag(flag, *said.of(name), said, versions[name]) for name, flag in recorded.items()]
    flags += [
        VLLMFlag(name=name, kind=flag.kind, effect=flag.effect, why=flag.why, values=flag.values)
        for name, flag in said.earlier.items()
    ]
    return FlagTable(flags)


def _flag(flag: RecordedFlag, effect: FlagEffect, why: str, said: _Said, versions: tuple[str, ...]) -> VLLMFlag:
    neutral, unmodelled = (tuple(each.get(flag.name, ())) for each in (said.neutral, said.unmodelled))
    known = msgspec.structs.asdict(flag)
    return VLLMFlag(
        **known,
        effect=effect,
        why=why,
        neutral=neutral,
        unmodelled=unmodelled,
        needs=tuple(said.needs.get(flag.name, ())),
        idle_where=tuple(said.idle.get(flag.name, ())),
        versions=versions,
    )


# ---------------------------------------------------------------------------------------------------------------------
# Flags and values, as a file or a log has them, in the words of a command line.


def flag_words(flag: str, value: Any) -> list[str]:
    """The words that say the same; none for None, and for the false of a flag that nothing turns off.

    As vLLM reads its files: ``true`` names a flag and ``false`` turns it off, lists are several values, and
    objects are JSON.
    """
    if value is None:
        return []
    if isinstance(value, bool):
        off = "--no-" + flag.removeprefix("--")
        return [flag] if value else [off] if flag_table().named(off, prefixes=False) else []
    if isinstance(value, list | tuple):
        return [flag, *map(_flag_word, value)] if value else []
    return [flag, _flag_word(value)]


def _flag_word(value: Any) -> str:
    return json.dumps(value) if isinstance(value, dict | list | tuple) else str(value)


# ---------------------------------------------------------------------------------------------------------------------
# Names of settings: vLLM's flag is the name; configurations call some otherwise, and people abbreviate.

_FIELDS: Mapping[str, str] = MappingProxyType(
    {"num_gpu_blocks_override": "num_gpu_blocks", "scheduling_policy": "policy"}
)
"""A setting -> the field of vLLM's configuration that holds it, where that is called otherwise."""
OTHER_NAMES: Mapping[str, str] = MappingProxyType(
    {
        **{field: setting for setting, field in _FIELDS.items()},
        "method": "speculative_method",
        "acceptance": "acceptance_rates",
        "tp": "tensor_parallel_size",
        "pp": "pipeline_parallel_size",
        "dp": "data_parallel_size",
    }
)
"""Another name -> the setting; every place that reads or says names of settings reads this."""


def setting_name(given: str) -> str:
    """The setting that a user means: dashes are as good as underscores, and other names will do."""
    name = given.strip().removeprefix("--").replace("-", "_")
    return OTHER_NAMES.get(name, name)


def config_field(setting: str) -> str:
    """The field of vLLM's configuration that holds a setting."""
    return _FIELDS.get(setting, setting)
