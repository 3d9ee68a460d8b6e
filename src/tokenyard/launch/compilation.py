"""``--compilation-config``: its fields that are flags too are taken as those, its defaults are passed over.

What else it says (other modes, passes, backends) changes times and memory in ways that a replay does not know.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tokenyard.errors import ConfigError, NoStartError
from tokenyard.launch.flag import GivenFlag
from tokenyard.launch.flag_table import flag_table
from tokenyard.launch.reading import words_of

__all__ = ["spelled_out"]

_NAME = "compilation-config"
_FLAGS = ("cudagraph-capture-sizes", "max-cudagraph-capture-size")
_DEFAULTS: Mapping[str, tuple[Any, ...]] = {
    "cudagraph_mode": ("FULL_AND_PIECEWISE",),
    "mode": (3, "3", "VLLM_COMPILE"),
    "backend": ("", "inductor"),
    "use_inductor_graph_partition": (False,),
}
"""Values of vLLM 0.22 and 0.33 at optimisation level 2."""


def spelled_out(given: Sequence[GivenFlag]) -> list[GivenFlag]:
    """The flags, with those in the place of the configuration's fields that mean the same.

    Raises NoStartError where a flag and a field are given for one thing, ConfigError for a field of another type.
    """
    config = next((each for each in given if each.flag.name == _NAME), None)
    if config is None or not isinstance(config.value, dict):
        return list(given)
    others = [each for each in given if each is not config]
    rest = {key: value for key, value in config.value.items() if not _is_default(key, value)}
    inside = list(_flags(rest))
    for each in inside:
        if any(other.flag.name == each.flag.name for other in others):
            raise NoStartError(f"{each.flag.flag} and compilation_config.{each.flag.field} exclude each other")
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
