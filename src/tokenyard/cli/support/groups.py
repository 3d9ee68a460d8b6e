"""Groups of settings for tyro: what stands beside a type becomes tyro's words for the same."""

from __future__ import annotations

from dataclasses import MISSING, Field, fields
from functools import cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import tyro.conf
from tyro.constructors import ConstructorRegistry, StructConstructorSpec, StructFieldSpec, StructTypeInfo

from tokenyard.cli.support.field_docs import field_docs
from tokenyard.cli.support.numbers import number_rule
from tokenyard.deploy.same_as import NO_SETTING, OFF_UNLESS_NAMED, Help, SameAs, Settings

__all__ = ["registry"]

_OFF: Any = tyro.conf.FlagCreatePairsOff
_HIDDEN: Any = tyro.conf.Suppress
_FIXED: Any = tyro.conf.Fixed
"""Markers, which take types that are known only later."""


def registry() -> ConstructorRegistry:
    """How tyro reads numbers, and groups of settings."""
    rules = ConstructorRegistry()
    rules.primitive_rule(number_rule)
    rules.struct_rule(_settings_rule)
    return rules


def _settings_rule(info: StructTypeInfo) -> StructConstructorSpec | None:
    kind = info.type
    if not (isinstance(kind, type) and issubclass(kind, Settings)):
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
                helptext=texts[each.name],
            )
            for each in fields(kind)  # type: ignore[arg-type]  # every group is a dataclass
        ),
    )


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


@cache
def _texts(kind: type) -> dict[str, str]:
    """What is said of each setting: below its field, or below that of the configuration that it is like."""
    texts = field_docs(kind)
    for name, hint in get_type_hints(kind, include_extras=True).items():
        for said in _said(hint):
            if isinstance(said, SameAs):
                texts[name] = field_docs(said.config)[name]
    return texts


def _said(hint: Any) -> tuple[Any, ...]:
    return get_args(hint)[1:] if get_origin(hint) is Annotated else ()


def _tyros(hint: Any) -> Any:
    """The type of a flag, with tyro's words beside it."""
    said = _said(hint)
    kind: Any = get_args(hint)[0] if said else hint
    for each in said:
        if isinstance(each, Help):
            otherwise = None if each.otherwise is None else f"(default: {each.otherwise})"
            kind = Annotated[kind, tyro.conf.arg(metavar=each.metavar, help_behavior_hint=otherwise)]
        elif each is OFF_UNLESS_NAMED:
            kind = _OFF[kind]
        elif each is NO_SETTING:
            kind = Annotated[_HIDDEN[_FIXED[kind]], tyro.conf.arg(help="")]
        elif not isinstance(each, SameAs):
            kind = Annotated[kind, each]  # tyro's own
    return kind
