"""Commands and groups of settings as tyro reads them, with the help that stands in their docstrings."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from functools import cache
from itertools import pairwise
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

from tokenyard.cli.support.flag_names import NUMBERS
from tokenyard.cli.support.flags import COMMANDS, FrontFlags
from tokenyard.cli.support.flags.marks import GROUPED, POSITIONAL, REPEATED, Arg
from tokenyard.deploy.settings import NO_SETTING, OFF_UNLESS_NAMED, Help, Marker, SameAs, Settings

# ---------------------------------------------------------------------------------------------------------------------
# What the source says about the fields of a class: the text that stands below each.


def field_docs(kind: type) -> dict[str, str]:
    """Docstrings of the attributes that the class body declares, by name, each on one line; inherited ones included.

    Empty for classes without a source of their own, such as built-in ones.
    """
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        try:
            source = inspect.getsource(each)
        except (OSError, TypeError):
            continue
        found |= _declared(source)
    return found


def attribute_docs(kind: type) -> dict[str, tuple[str, str]]:
    """Public attributes that a class's own ``__init__`` sets and documents: annotation (empty without one) and text."""
    made = vars(kind).get("__init__")
    if not inspect.isfunction(made) or not _has_source(made):
        return {}
    (function,) = ast.parse(textwrap.dedent(inspect.getsource(made))).body
    assert isinstance(function, ast.FunctionDef)
    found = {}
    for statement, text in _documented(function.body):
        target = statement.target if isinstance(statement, ast.AnnAssign) else statement.targets[0]
        if isinstance(target, ast.Attribute) and not target.attr.startswith("_"):
            annotation = ast.unparse(statement.annotation) if isinstance(statement, ast.AnnAssign) else ""
            found[target.attr] = annotation, text
    return found


def _has_source(made: object) -> bool:
    """False for what a dataclass or a protocol has made itself."""
    try:
        inspect.getsource(made)  # type: ignore[arg-type]  # TypeError is the answer
    except (OSError, TypeError):
        return False
    return getattr(made, "__module__", "typing") != "typing"


def _declared(source: str) -> dict[str, str]:
    (body,) = ast.parse(textwrap.dedent(source)).body
    assert isinstance(body, ast.ClassDef)
    found = {}
    for statement, text in _documented(body.body):
        target = statement.target if isinstance(statement, ast.AnnAssign) else statement.targets[0]
        if isinstance(target, ast.Name):
            found[target.id] = text
    return found


def _documented(body: list[ast.stmt]) -> Iterator[tuple[ast.AnnAssign | ast.Assign, str]]:
    """Assignments with a text below them, which is put on one line."""
    for statement, text in pairwise(body):
        if not isinstance(statement, ast.AnnAssign | ast.Assign) or not isinstance(text, ast.Expr):
            continue
        if isinstance(text.value, ast.Constant) and isinstance(text.value.value, str):
            yield statement, " ".join(text.value.value.split())


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
    if not (isinstance(kind, type) and (issubclass(kind, Settings) or kind in COMMANDS or kind is FrontFlags)):
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
            for each in fields(kind)
        ),
    )


def _default(field: Field[Any]) -> Any:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return tyro.MISSING if field.default is MISSING else field.default


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
