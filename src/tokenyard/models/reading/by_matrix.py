"""Formats that a checkpoint names for single matrices of a module: those of attention, of an MLP, of experts.

What a module as a whole weighs is the mean over its matrices. Some files name matrices as vLLM holds them, several in
one (``qkv_proj``), others as the checkpoint does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

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


# ---------------------------------------------------------------------------------------------------------------------
# torchao's section of a ``quantization_config``: a kind of configuration for all linear layers, or one for each name.
#
# vLLM gives every linear layer a tensor of torchao's, but for those that the file leaves alone; experts, embeddings and
# output heads stay as they are. What such a tensor holds was seen at torchao 0.18 (``quantize_`` on the meta device).

_EIGHT_BITS = {
    "Float8DynamicActivationFloat8WeightConfig": ("float8", "float8"),
    "Float8StaticActivationFloat8WeightConfig": ("float8", "float8"),
    "Float8WeightOnlyConfig": ("float8", "bfloat16"),
    "Int8DynamicActivationInt8WeightConfig": ("int8", "int8"),
    "Int8WeightOnlyConfig": ("int8", "bfloat16"),
}
"""Kind -> name and arithmetic of weights with a scale for each row."""
_FOUR_BITS = {"Float8DynamicActivationInt4WeightConfig": "float8", "Int4WeightOnlyConfig": "bfloat16"}
"""Kind -> arithmetic of integers with scale and zero point in 16 bits for each group."""
_IN_BYTES = ("Int8DynamicActivationIntxWeightConfig", "IntxWeightOnlyConfig")
"""Integers of a few bits, each of which lies in a byte, with scale and zero point for each group."""
_BY_NAME = ("FqnToConfig", "ModuleFqnToConfig")


def torchao_rule(fields: Fields, plain: WeightFormat) -> tuple[WeightFormat, Rule]:
    """The format of most linear layers, and that of each by its name in vLLM. Raises ConfigError for other kinds."""
    kinds = fields.get("quant_type")
    if not isinstance(kinds, dict) or [*kinds] != ["default"]:
        raise fields.error("quant_type", 'give one kind, as "default": vLLM takes no other form')
    skipped = [str(each) for each in fields.items("modules_to_not_convert")]
    whole = kinds["default"]
    named = _data(whole)
    by_name = next((named[key] for key in ("fqn_to_config", "module_fqn_to_config") if key in named), None)
    if _kind(whole) not in _BY_NAME or not isinstance(by_name, dict):
        stored = _format(fields, whole, plain)
        return stored, lambda name: plain if _stays(name, skipped) else stored
    formats = {key: _format(fields, each, plain) for key, each in by_name.items()}
    skipped += [key for key, each in by_name.items() if each is None]
    default, work = formats.get("_default", plain), Work()

    def rule(name: str) -> WeightFormat:
        if _stays(name, skipped):
            return plain
        if name in formats:
            return formats[name]
        meant = (key for key in formats if key.startswith("re:") and _is_meant(fields, key[3:], name, work))
        return formats[found] if (found := next(meant, None)) is not None else default

    return default, rule


def _stays(name: str, skipped: Sequence[str]) -> bool:
    """Whether vLLM leaves a layer as it is: experts are none of its linear layers."""
    return ".experts" in f".{name}" or any(f".{each}." in f".{name}." for each in skipped)


def _is_meant(fields: Fields, pattern: str, name: str, work: Work) -> bool:
    try:
        return module_pattern(f"(?:{pattern})\\Z").matches(name, work)
    except PatternError as error:
        raise fields.error("quant_type", f"{pattern!r} {error}; name the modules instead") from None


def _kind(entry: Any) -> str:
    return str(entry.get("_type", "")) if isinstance(entry, Mapping) else ""


def _data(entry: Any) -> Mapping[str, Any]:
    data = entry.get("_data") if isinstance(entry, Mapping) else None
    return data if isinstance(data, Mapping) else {}


def _format(fields: Fields, entry: Any, plain: WeightFormat) -> WeightFormat:
    """What a layer of this configuration holds."""
    if entry is None:
        return plain
    kind, data = _kind(entry), _data(entry)
    if kind in _EIGHT_BITS:
        name, compute = _EIGHT_BITS[kind]
        return WeightFormat(name=f"torchao-{name}", bits=8, compute=compute)
    if kind in _FOUR_BITS:
        group = _group(fields, data.get("group_size", 128))
        return WeightFormat(
            name="torchao-int4", bits=4, group_size=group, group_bits=32, compute=_FOUR_BITS[kind], alignment=group
        )
    if kind in _IN_BYTES:
        granularity = data.get("weight_granularity", {"_type": "PerGroup", "_data": {"group_size": 32}})
        size = _data(granularity).get("group_size") if _kind(granularity) == "PerGroup" else None
        group = 0 if size is None else _group(fields, size)
        return WeightFormat(
            name="torchao-intx", bits=8, group_size=group, group_bits=24 if group else 0, alignment=group or 1
        )
    known = ", ".join(sorted((*_EIGHT_BITS, *_FOUR_BITS, *_IN_BYTES)))
    raise fields.error("quant_type", f"what {kind or 'this'} comes to is not modelled: use one of {known}")


def _group(fields: Fields, size: Any) -> int:
    if not isinstance(size, int) or isinstance(size, bool) or not 0 < size <= 1 << 20:
        raise fields.error("quant_type", "give the size of groups as a whole number")
    return size
