"""All flags of ``vllm serve``: what vLLM was asked (recorded/*.json), and what we say of each (flags.toml)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, cached_property
from importlib.resources import files
from typing import Any, NamedTuple

import msgspec

from tokenyard.launch.abbreviations import written_out
from tokenyard.launch.flag import Effect, FlagKind, VLLMFlag

__all__ = ["FlagTable", "Named", "RecordedFlag", "flag_table", "recorded_flags"]

VERSIONS = ("0.22", "0.33")
"""Of vLLM, whose flags are recorded; the last one's say how a value is written."""


class RecordedFlag(msgspec.Struct, frozen=True, kw_only=True):
    """What scripts/record_vllm_flags.py writes of a flag."""

    name: str
    kind: FlagKind
    other_names: tuple[str, ...] = ()
    off_names: tuple[str, ...] = ()
    values: str = ""
    repeats: bool = False
    default: Any = None
    choices: tuple[str, ...] = ()


class _Recorded(msgspec.Struct, frozen=True, kw_only=True):
    vllm: str
    flags: list[RecordedFlag]


class _Earlier(msgspec.Struct, frozen=True, kw_only=True, rename={"effect": "class"}):
    """A flag that no recorded version has."""

    effect: Effect
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
    earlier: dict[str, _Earlier]

    def of(self, name: str) -> tuple[Effect, str]:
        """Class and reason; KeyError for a flag that is not in the table."""
        for effect, flags in (
            (Effect.USED, self.used),
            (Effect.NO_EFFECT, self.no_effect),
            (Effect.NOT_MODELLED, self.not_modelled),
        ):
            if name in flags:
                return effect, flags[name]
        raise KeyError(name)


class Named(NamedTuple):
    """A flag, as a word of a command line names it."""

    flag: VLLMFlag
    is_off: bool = False
    """The word turns it off."""


class FlagTable:
    """The flags, and what names them."""

    def __init__(self, flags: list[VLLMFlag]) -> None:
        self._flags = {flag.name: flag for flag in flags}
        self._names: dict[str, Named] = {}
        for flag in flags:
            for name in (flag.flag, *flag.other_names):
                self._names[name] = Named(flag)
            for name in flag.off_names:
                self._names[name] = Named(flag, is_off=True)

    def __iter__(self) -> Iterator[VLLMFlag]:
        return iter(self._flags.values())

    def __getitem__(self, name: str) -> VLLMFlag:
        """By name without dashes; KeyError if there is none."""
        return self._flags[name]

    @property
    def names(self) -> frozenset[str]:
        """All words that name a flag."""
        return frozenset(self._names)

    @cached_property
    def long_names(self) -> dict[str, tuple[str, bool]]:
        """Each long flag, with dashes; the name of the flag that it is, and whether it turns that off."""
        return {word: (each.flag.name, each.is_off) for word, each in self._names.items() if word.startswith("--")}

    def named(self, word: str, *, prefixes: bool = True) -> Named | None:
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
    text = files(__package__).joinpath("recorded", f"{version}.json").read_bytes()
    return {flag.name: flag for flag in msgspec.json.decode(text, type=_Recorded).flags}


@cache
def flag_table() -> FlagTable:
    """Everything that is known; read once."""
    said = msgspec.toml.decode(files(__package__).joinpath("flags.toml").read_bytes(), type=_Said)
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


def _flag(flag: RecordedFlag, effect: Effect, why: str, said: _Said, versions: tuple[str, ...]) -> VLLMFlag:
    neutral, unmodelled = (tuple(each.get(flag.name, ())) for each in (said.neutral, said.unmodelled))
    known = msgspec.structs.asdict(flag)
    return VLLMFlag(
        **known,
        effect=effect,
        why=why,
        neutral=neutral,
        unmodelled=unmodelled,
        needs=tuple(said.needs.get(flag.name, ())),
        versions=versions,
    )
