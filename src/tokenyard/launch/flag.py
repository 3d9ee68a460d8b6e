"""A flag of ``vllm serve``: how it is written, and what it means to a replay."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

__all__ = ["Effect", "FlagKind", "GivenFlag", "VLLMFlag"]


class Effect(StrEnum):
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


class VLLMFlag(msgspec.Struct, frozen=True, kw_only=True):
    """One flag."""

    name: str
    """Without the dashes in front: ``max-num-seqs``."""
    kind: FlagKind
    effect: Effect
    why: str
    """What it does, in a few words of ours."""
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
    neutral: tuple[Any, ...] = ()
    """Further values with which a flag that is not modelled changes nothing."""
    unmodelled: tuple[Any, ...] = ()
    """Values with which a flag that is used otherwise is not modelled."""
    needs: tuple[str, ...] = ()
    """Names of flags of which one has to be given beside it."""
    versions: tuple[str, ...] = ()
    """Versions, of those recorded, that have it; none: it is older."""

    @property
    def flag(self) -> str:
        """As it is written: ``--max-num-seqs``."""
        return f"--{self.name}"

    @property
    def field(self) -> str:
        """As a setting: ``max_num_seqs``."""
        return self.name.replace("-", "_")


class GivenFlag(msgspec.Struct, frozen=True, kw_only=True):
    """A flag that somebody gave, and its value as it was read."""

    flag: VLLMFlag
    value: Any
    """bool, int, float, text, a JSON value, or a list of such for a flag that takes several."""
    words: tuple[str, ...]
    """The same flag and value as a command line has them."""

    @property
    def effect(self) -> Effect:
        """What it does with this value."""
        return Effect.NOT_MODELLED if self.value in self.flag.unmodelled else self.flag.effect

    @property
    def changes_nothing(self) -> bool:
        """Whether vLLM would do the same without it."""
        default = self.flag.default
        if default is None and self.flag.kind in (FlagKind.SWITCH, FlagKind.PAIR):
            default = False
        return self.value == default or self.value in self.flag.neutral

    def __str__(self) -> str:
        return " ".join(self.words)
