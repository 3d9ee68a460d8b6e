"""torchao's section of a ``quantization_config``: a kind of configuration for all linear layers, or one for each name.

vLLM gives every linear layer a tensor of torchao's, but for those that the file leaves alone; experts, embeddings and
output heads stay as they are. What such a tensor holds was seen at torchao 0.18 (``quantize_`` on the meta device).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tokenyard.models.fields import Fields
from tokenyard.models.formats import WeightFormat
from tokenyard.models.reading.by_matrix import Rule
from tokenyard.models.reading.module_pattern import PatternError, Work, module_pattern

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
