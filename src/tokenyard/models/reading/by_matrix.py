"""Formats that a checkpoint names for single matrices of a module: those of attention, of an MLP, of experts.

What a module as a whole weighs is the mean over its matrices. Some files name matrices as vLLM holds them, several in
one (``qkv_proj``), others as the checkpoint does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import replace

from tokenyard.models.fields import Fields
from tokenyard.models.formats import WeightFormat
from tokenyard.models.reading.module_pattern import PatternError, Work, module_pattern

Rule = Callable[[str], WeightFormat]
"""The name of a matrix -> how it is stored."""

_STORED = {
    "attention": (("q_proj", 0.375), ("k_proj", 0.125), ("v_proj", 0.125), ("o_proj", 0.375)),
    "mlp": (("gate_proj", 1 / 3), ("up_proj", 1 / 3), ("down_proj", 1 / 3)),
    "state": (("in_proj", 0.6), ("out_proj", 0.4)),
}
_HELD = {
    "attention": (("qkv_proj", 0.625), ("o_proj", 0.375)),
    "mlp": (("gate_up_proj", 2 / 3), ("down_proj", 1 / 3)),
    "state": (("in_proj", 0.6), ("out_proj", 0.4)),
}
"""A module's kind -> its matrices, and about which share of it each is."""
_WHOLE = "lm_head"
_PLAIN_BITS = 16
"""Number of bits from which on weights are not quantised."""


def matrices(module: str, *, experts: bool, held: bool, experts_in_one: bool) -> Sequence[tuple[str, float]]:
    """The matrices of a module and their shares of it.

    ``held`` names those that vLLM makes of several, ``experts_in_one`` all experts by the module that they are.
    """
    if module == _WHOLE or (experts and experts_in_one):
        return ((module, 1.0),)
    last = module.rpartition(".")[2]
    kind = "mlp"
    if not experts and ("attn" in last or "attention" in last):
        kind = "state" if "linear" in last else "attention"
    elif not experts and last in ("mixer", "mamba", "conv"):
        kind = "state"
    inside = f"{module}.0" if experts else module
    return tuple((f"{inside}.{name}", share) for name, share in (_HELD if held else _STORED)[kind])


def blended(formats: Sequence[tuple[WeightFormat, float]]) -> WeightFormat:
    """The format of matrices that may have different ones, with their shares: their own where it is one."""
    several = [*dict.fromkeys(each for each, _ in formats)]
    if len(several) == 1:
        return several[0]
    most = max(several, key=lambda each: sum(share for other, share in formats if other == each))
    bits = sum(each.bits_per_weight * share for each, share in formats)
    name = " and ".join(each.name for each in several)
    alignment = max(each.alignment for each in several)
    return replace(most, name=name, bits=bits, group_size=0, group_bits=0, alignment=alignment)


def found_in(fields: Fields, field: str, pattern: str, name: str, work: Work, *, anywhere: bool) -> bool:
    """Whether a regular expression of ``field`` is found in a name: at its beginning, or anywhere."""
    text = f".*(?:{pattern})" if anywhere and not pattern.startswith("^") else pattern
    try:
        return module_pattern(text).matches(name, work)
    except PatternError as error:
        raise fields.error(field, f"{pattern!r} {error}; name the modules instead") from None


_JOINED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
"""What vLLM makes of several -> what it is made of."""


def parts_of(name: str) -> tuple[str, ...]:
    """What vLLM holds by this name, and the matrices that it is made of."""
    around, _, last = name.rpartition(".")
    return (name, *(f"{around}.{part}" for part in _JOINED.get(last, ())))


def _has_word(name: str, words: Sequence[str]) -> bool:
    """Whether one of the words is anywhere in the name of what vLLM holds, or of a part of it."""
    return any(word in each for word in words for each in parts_of(name))


def left_alone_rule(words: Sequence[str], stored: WeightFormat, plain: WeightFormat) -> Rule | None:
    """AWQ leaves alone what has one of these words in its name: ``mlp.gate`` means ``mlp.gate_up_proj`` too."""
    return (lambda name: plain if _has_word(name, words) else stored) if words else None


_MEANT = {
    "qkv_proj": {"qkv_proj", "q_proj", "k_proj", "v_proj"},
    "o_proj": {"o_proj", "out_proj"},
    "gate_up_proj": {"gate_up_proj", "gate_proj", "up_proj", "w1", "w3"},
    "down_proj": {"down_proj", "w2"},
}
"""What vLLM holds -> the names under which files leave it alone."""


def whole_names_rule(entries: Sequence[str], large: Set[str], stored: WeightFormat, plain: WeightFormat) -> Rule | None:
    """FP8 leaves alone matrices by their whole names: what is around them does not count, but for experts.

    A module of other matrices than these is left alone where one of its ``large`` ones is.
    """
    inside: dict[str, set[str]] = {}
    experts = set[str]()
    for entry in entries:
        around, _, last = entry.rpartition(".")
        inside.setdefault(around, set()).add(last)
        before, found, _ = entry.partition("experts")
        if found:
            experts.add(f"{before}experts")
    known = set[str]().union(*_MEANT.values())

    def rule(name: str) -> WeightFormat:
        around, _, last = name.rpartition(".")
        named = inside.get(around, set()) & large
        alone = named & (_MEANT.get(last, named) if named <= known else named)
        return plain if alone or name in experts else stored

    return rule if entries else None


def chosen_rule(fields: Fields, stored: WeightFormat, plain: WeightFormat) -> Rule | None:
    """GPTQ's ``modules_in_block_to_quantize``: nothing else is quantised, except experts."""
    given = fields.get("modules_in_block_to_quantize")
    entries = given if isinstance(given, list) else []
    words = [str(each) for entry in entries for each in (entry if isinstance(entry, list) else [entry])]
    return (lambda name: stored if name.endswith(".experts") or _has_word(name, words) else plain) if words else None


# ---- GPTQModel's ``dynamic``


def dynamic_rule(fields: Fields, stored: Callable[[int, int], WeightFormat], plain: WeightFormat) -> Rule | None:
    """What ``dynamic`` says: expressions with other bits, or with ``-:`` before what is left alone."""
    given = fields.section("dynamic")
    if given is None:
        return None
    bits, size = fields.count(fields.first("bits", "w_bit")), fields.count("group_size", 128, low=-1)
    entries = [(pattern, given.section(pattern)) for pattern in in_order(given)]
    work = Work()

    def rule(name: str) -> WeightFormat:
        for pattern, others in entries:
            if not found_in(
                fields, "dynamic", pattern.removeprefix("-:").removeprefix("+:"), name, work, anywhere=False
            ):
                continue
            if pattern.startswith("-:"):
                return plain
            if others is None:
                break
            return stored(others.count("bits", bits), others.count("group_size", size, low=-1))
        return stored(bits, size)

    return rule


def in_order(section: Fields) -> list[str]:
    """The fields of a section in the order of the file: the first that fits counts."""
    return list(section.unread())


# ---- AutoRound's ``extra_config``

_SPECIAL = frozenset("*+?^$()[]{}|\\")


def extra_rule(fields: Fields, stored: Callable[[int, int], WeightFormat], plain: WeightFormat) -> Rule | None:
    """What ``extra_config`` says of modules by name, by the end of it, or by an expression."""
    given = fields.section("extra_config")
    if given is None:
        return None
    bits, size = fields.count("bits"), fields.count("group_size", 128, low=-1)
    entries = {name: given.section(name) for name in in_order(given)}
    work = Work()

    def of(others: Fields | None) -> WeightFormat:
        if others is None:
            return stored(bits, size)
        number = others.count("bits", bits)
        return plain if number >= _PLAIN_BITS else stored(number, others.count("group_size", size, low=-1))

    def rule(name: str) -> WeightFormat:
        if name in entries:
            return of(entries[name])
        for entry, others in entries.items():
            if name.endswith(f".{entry}"):
                return of(others)
        for entry, others in entries.items():
            if _SPECIAL & {*entry} and found_in(fields, "extra_config", entry, name, work, anywhere=True):
                return of(others)
        return stored(bits, size)

    return rule
