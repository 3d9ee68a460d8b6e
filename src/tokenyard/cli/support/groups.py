"""Commands and groups of settings as tyro reads them, with the help that stands in their docstrings."""

from __future__ import annotations

from dataclasses import MISSING, Field, fields
from functools import cache
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import tyro.conf
from tyro.constructors import (
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    PrimitiveTypeInfo,
    StructConstructorSpec,
    StructFieldSpec,
    StructTypeInfo,
)

from tokenyard.cli.support.field_docs import field_docs
from tokenyard.cli.support.flag_names import NUMBERS
from tokenyard.cli.support.flags import COMMANDS
from tokenyard.cli.support.flags.marks import GROUPED, POSITIONAL, REPEATED, Arg
from tokenyard.deploy.settings import NO_SETTING, OFF_UNLESS_NAMED, Help, Marker, SameAs, Settings

# ---------------------------------------------------------------------------------------------------------------------
# Groups of settings for tyro: what stands beside a type becomes tyro's words for the same.

_WORDS: dict[Marker, Any] = {
    OFF_UNLESS_NAMED: tyro.conf.FlagCreatePairsOff,
    POSITIONAL: tyro.conf.Positional,
    GROUPED: tyro.conf.OmitArgPrefixes,
    REPEATED: tyro.conf.UseAppendAction,
}
"""Markers, which take types that are known only later."""
_HIDDEN: Any = tyro.conf.Suppress
_FIXED: Any = tyro.conf.Fixed


def registry() -> ConstructorRegistry:
    """How tyro reads numbers, and groups of settings."""
    rules = ConstructorRegistry()
    rules.primitive_rule(_number_rule)
    rules.struct_rule(_settings_rule)
    return rules


def _number_rule(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """How tyro reads whole numbers and numbers, also where they may be left out."""
    kinds = [each for each in get_args(info.type) or (info.type,) if each is not NoneType]
    if len(kinds) != 1 or kinds[0] not in NUMBERS:
        return None
    kind: type = kinds[0]
    metavar, read = NUMBERS[kind]
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda texts: read(texts[0]),
        is_instance=lambda value: value is None or isinstance(value, kind),
        str_from_instance=lambda value: [str(value)],
    )


def _settings_rule(info: StructTypeInfo) -> StructConstructorSpec | None:
    kind = info.type
    if not (isinstance(kind, type) and (issubclass(kind, Settings) or kind in COMMANDS)):
        return None
    given = info.default if isinstance(info.default, kind) else None
    texts = _texts(kind)  # type: ignore[arg-type]  # mypy doubts that classes can be hashed
    hints = get_type_hints(kind, include_extras=True)
    return StructConstructorSpec(
        instantiate=kind,
        fields=tuple(
            StructFieldSpec(
                name=each.name,
                type=_tyros(hints[each.name]),
                default=_default(each) if given is None else getattr(given, each.name),
                helptext=texts.get(each.name),
            )
            for each in fields(kind)  # type: ignore[arg-type]  # dataclasses, all of them
        ),
    )


def _default(field: Field[Any]) -> Any:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return tyro.MISSING if field.default is MISSING else field.default


@cache
def _texts(kind: type) -> dict[str, str]:
    """The description of each setting: below its field, or below that of the configuration that it is like."""
    texts = field_docs(kind)
    for name, hint in get_type_hints(kind, include_extras=True).items():
        for said in _annotations(hint):
            if isinstance(said, SameAs):
                texts[name] = field_docs(said.config)[name]
    return texts


def _annotations(hint: Any) -> tuple[Any, ...]:
    return get_args(hint)[1:] if get_origin(hint) is Annotated else ()


def _tyros(hint: Any) -> Any:
    """The type of a flag, with tyro's words beside it."""
    said = _annotations(hint)
    kind: Any = get_args(hint)[0] if said else hint
    for each in said:
        if isinstance(each, Help):
            otherwise = None if each.otherwise is None else f"(default: {each.otherwise})"
            name, aliases = (each.name, each.aliases) if isinstance(each, Arg) else (None, ())
            words = tyro.conf.arg(name=name, aliases=aliases, metavar=each.metavar, help_behavior_hint=otherwise)
            kind = Annotated[kind, words]
        elif each is NO_SETTING:
            kind = Annotated[_HIDDEN[_FIXED[kind]], tyro.conf.arg(help="")]
        elif each in _WORDS:
            kind = _WORDS[each][kind]
        elif not isinstance(each, SameAs):
            kind = Annotated[kind, each]  # tyro's own
    return kind
