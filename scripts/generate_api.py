"""Write docs/api.md from the docstrings of the front door (part of `make lint`: `--check` only compares).

Grouped as `tokenyard.OFFERED` is, and then by `tokenyard.NAMESPACES`. Of each name: what it is called with, the first
paragraphs of its docstring, and of a class its fields, attributes, properties and methods.
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Annotated, Any, ForwardRef, get_args, get_origin, get_type_hints, is_typeddict

if __name__ == "__main__":
    os.environ["TOKENYARD_INTERPRETED"] = "1"  # compiled classes do not tell their signatures

import tokenyard
from tokenyard.cli.support.field_docs import attribute_docs, field_docs
from tokenyard.core.basics import cached_attribute
from tokenyard.deploy.settings import Help, SameAs, Settings
from tokenyard.vocabulary import REASONS, Reason

__all__ = ["main", "page", "public_names"]

TARGET = Path(__file__).resolve().parent.parent / "docs" / "api.md"
WIDTH = 110
_DRAWN = re.compile(r"^ |\S  +\S", re.MULTILINE)
HEAD = """# API

All that programs may rely on: what `import tokenyard` offers (`from tokenyard import Scheduler, SchedulerConfig`), and
what a few of its packages offer for those who look closer (`from tokenyard.connectors import Match`). Everything else
is private, whatever its name. A name has one place, and is loaded when it is first asked for.

This page is written by `scripts/generate_api.py` from the docstrings; `make lint` checks that it is up to date.
"""


ALIASES = {
    "IntArray": "tokenyard.core.arrays",
    "Int32Array": "tokenyard.core.arrays",
    "TokenIds": "tokenyard.core.params",
    "Blocks": "tokenyard.core.kv.allocation",
    "KVEvent": "tokenyard.core.kv.events",
    "ExpertIds": "tokenyard.core.sched.outputs",
    "Address": "tokenyard.connectors.plan",
    "Tensors": "tokenyard.connectors.tier_worker",
    "Key": "tokenyard.policies.simple",
    "PolicyMaker": "tokenyard.policies.named",
}
"""Short names for types in signatures, which programs write out."""


class _Verbatim:
    """Prints as the text it holds."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def public_names(namespace: str) -> tuple[str, ...]:
    """What one of `tokenyard.NAMESPACES` offers, in the order of the document."""
    module = import_module(namespace)
    if hasattr(module, "OFFERED"):
        return tuple(name for group in module.OFFERED.values() for names in group.values() for name in names)
    classes = [name for name, each in inspect.getmembers(module, inspect.isclass) if each.__module__ == namespace]
    return tuple(name for name in classes if name not in tokenyard.__all__ and not name.startswith("_"))


def _sections() -> Iterator[tuple[str, dict[str, Any]]]:
    """Heading -> the names below it, with what they stand for."""
    for purpose, modules in tokenyard.OFFERED.items():
        yield purpose, {name: getattr(tokenyard, name) for names in modules.values() for name in names}
    for namespace, purpose in tokenyard.NAMESPACES.items():
        module = import_module(namespace)
        yield f"`{namespace}`: {purpose}", {name: getattr(module, name) for name in public_names(namespace)}


SECTIONS = list(_sections())
PUBLIC = {name: value for _, names in SECTIONS for name, value in names.items()}


def page() -> str:
    """The whole document."""
    parts = [HEAD, *_contents()]
    for heading, names in SECTIONS:
        parts.append(f"\n## {heading}\n")
        parts += ["\n".join(_entry(name, value)) for name, value in names.items()]
    parts += [
        "\n## Short names in signatures\n",
        "Not to be imported: write them out.\n",
        "| name | is |\n| --- | --- |",
    ]
    parts += [f"| `{name}` | `{_cell(_written_as(name, module))}` |" for name, module in ALIASES.items()]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts)).rstrip("\n") + "\n"


def _written_as(name: str, module: str) -> str:
    """What an alias stands for, as its source says it."""
    for node in ast.parse(inspect.getsource(import_module(module))).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return ast.unparse(node.value)
    raise LookupError(f"{module} declares no {name}")


def _contents() -> Iterator[str]:
    """A table of the names by purpose."""
    yield "| for | names |\n| --- | --- |"
    for heading, names in SECTIONS:
        links = (f"[{_title(name)}](#{_anchor(name)})" for name in names)
        yield f"| {heading} | {', '.join(links)} |"


def _title(name: str) -> str:
    """Heading of a name: `class Why` and `why()` are two."""
    value = PUBLIC[name]
    return f"class {name}" if inspect.isclass(value) else f"{name}()" if inspect.isfunction(value) else f"`{name}`"


def _anchor(name: str) -> str:
    """That which GitHub gives to its heading."""
    return re.sub(r"[^\w ]", "", _title(name).lower()).replace(" ", "-")


def _entry(name: str, value: Any) -> Iterator[str]:
    yield f"\n### {_title(name)}\n"
    if inspect.isclass(value):
        yield from _class(value)
    elif inspect.isfunction(value):
        yield f"```py\n{_signature(name, value)}\n```\n"
        yield _prose(value)
    else:
        yield "The installed version, or `unknown` where it runs from a bare source tree."


def _class(kind: type) -> Iterator[str]:
    fields = _fields(kind)
    bases = [base.__name__ for base in kind.__bases__ if PUBLIC.get(base.__name__) is base]
    if fields or issubclass(kind, Enum | Exception) or getattr(kind, "_is_protocol", False):
        yield f"```py\nclass {kind.__name__}{f'({bases[0]})' if bases else ''}\n```\n"
    else:
        yield f"```py\n{_signature(kind.__name__, kind)}\n```\n"
    yield _prose(kind)
    if bases and not fields:
        yield f"\nDerived from [{_title(bases[0])}](#{_anchor(bases[0])})."
    if fields:
        yield "\n| field | meaning |\n| --- | --- |"
        yield from (f"| `{_cell(declared)}` | {_cell(_markdown(text))} |" for declared, text in fields)
    members = [*_attributes(kind), *_members(kind)]
    if members:
        yield ""
        yield from members


def _fields(kind: type) -> list[tuple[str, str]]:
    """Declared attributes, as they are declared, and what they mean."""
    docs = field_docs(kind)
    if kind is Reason:
        docs = {reason.name: entry.meaning for reason, entry in REASONS.items()}
    if issubclass(kind, Enum):
        return [(f"{each.name} = {each.value!r}", docs.get(each.name, "")) for each in kind]
    if is_typeddict(kind):
        return [(f"{name}: {_text(each)}", docs.get(name, "")) for name, each in kind.__annotations__.items()]
    names = getattr(kind, "__struct_fields__", None) or getattr(kind, "_fields", None)
    names = names or tuple(getattr(kind, "__dataclass_fields__", ()))
    if not names:
        return []
    called_with = _plain_signature(kind).parameters
    if issubclass(kind, Settings):
        return [_setting(kind, called_with[name], docs.get(name, "")) for name in names]
    return [(str(called_with[name]) if name in called_with else name, docs.get(name, "")) for name in names]


def _setting(kind: type, declared: inspect.Parameter, text: str) -> tuple[str, str]:
    """A setting without the marks that a command line reads: they are its meaning, and what counts without it."""
    hint = get_type_hints(kind, include_extras=True)[declared.name]
    if get_origin(hint) is not Annotated:
        return str(declared), text
    for mark in hint.__metadata__:
        if isinstance(mark, SameAs):
            text = field_docs(mark.config)[declared.name]
        elif isinstance(mark, Help) and mark.otherwise is not None:
            text = f"{text} Not given: {mark.otherwise}."
    return str(declared.replace(annotation=_Verbatim(_text(hint.__origin__)))), text


def _attributes(kind: type) -> Iterator[str]:
    """What `__init__` sets and says something about."""
    docs, declared = attribute_docs(kind), inspect.signature(kind).parameters if "__init__" in vars(kind) else {}
    for name, (annotation, text) in docs.items():
        given = _text(declared[name].annotation) if name in declared else ""
        kind_of = annotation or given
        yield f"* `{name}{f': {kind_of}' if kind_of else ''}`: {_markdown(text)}"


def _members(kind: type) -> Iterator[str]:
    """Public methods and properties, its own before those of bases that are not offered themselves."""
    if issubclass(kind, Exception):
        return
    found: dict[str, Any] = {}
    elsewhere = [each for each in kind.__mro__[1:] if PUBLIC.get(each.__name__) is each]
    for each in kind.__mro__:
        if each.__module__.startswith("tokenyard.") and not any(each in other.__mro__ for other in elsewhere):
            inherited = {name: value for name, value in vars(each).items() if not name.startswith("_")}
            found |= {name: value for name, value in inherited.items() if name not in found}
    for name, value in found.items():
        if isinstance(value, property | cached_attribute):
            compute = value.func if isinstance(value, cached_attribute) else value.fget
            assert compute is not None
            returned = _text(inspect.signature(compute).return_annotation)
            yield _bullet(f"{name}: {_filled_in(kind, returned)}", compute)
        elif isinstance(value, FunctionType | classmethod | staticmethod):
            signature = _plain_signature(getattr(kind, name), bound=isinstance(value, FunctionType))
            yield _bullet(f"{name}{_filled_in(kind, str(signature))}", value)


def _filled_in(kind: type, declared: str) -> str:
    """The declaration with the types that the class gives to the variables of its generic bases."""
    for base in getattr(kind, "__orig_bases__", ()):
        for variable, given in zip(getattr(get_origin(base), "__parameters__", ()), get_args(base), strict=False):
            declared = re.sub(rf"\b{variable.__name__}\b", _text(given), declared)
    return declared


def _bullet(declared: str, value: object) -> str:
    """A member in a line: how it is declared, and the first paragraph about it."""
    prose = _markdown((inspect.getdoc(value) or "").split("\n\n", maxsplit=1)[0])
    return f"* `{declared}`" + (f": {prose}" if prose else "")


def _plain_signature(value: Callable[..., object], *, bound: bool = False) -> inspect.Signature:
    """The signature, with annotations and defaults as the source writes them; ``bound`` leaves the first one out."""
    signature = inspect.signature(value)
    parameters = [
        each.replace(
            annotation=each.annotation if each.annotation is each.empty else _Verbatim(_text(each.annotation)),
            default=each.default if each.default is each.empty else _Verbatim(_default(each.default)),
        )
        for each in list(signature.parameters.values())[bound:]
    ]
    returned = signature.return_annotation
    shown = returned if returned is signature.empty else _Verbatim(_text(returned))
    return signature.replace(parameters=parameters, return_annotation=shown)


def _signature(name: str, value: Callable[..., object]) -> str:
    """How it is called, a parameter a line where it is long."""
    signature = _plain_signature(value)
    if inspect.isclass(value):
        signature = signature.replace(return_annotation=signature.empty)
    text = f"{name}{signature}"
    if len(text) <= WIDTH:
        return text
    opened, closed = text.split("(", 1)[0], str(signature.replace(parameters=[]))[2:]
    marked = str(signature.replace(return_annotation=signature.empty))[1:-1]
    return f"{opened}(\n    " + ",\n    ".join(_split(marked)) + f",\n){closed}"


def _split(parameters: str) -> list[str]:
    """At the commas that no bracket or quote holds."""
    parts, depth, start, quoted = [], 0, 0, ""
    for at, character in enumerate(parameters):
        if quoted or character in "'\"":
            quoted = "" if character == quoted else quoted or character
        else:
            depth += (character in "([{") - (character in ")]}")
            if character == "," and not depth:
                parts.append(parameters[start:at].strip())
                start = at + 1
    return [*parts, parameters[start:].strip()]


def _text(annotation: object) -> str:
    """An annotation as the source writes it."""
    if isinstance(annotation, ForwardRef):
        annotation = annotation.__forward_arg__
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = re.sub(r"numpy\.ndarray\[[^|]*?numpy\.dtype\[(?:numpy\.)?(\w+)\]\]", r"NDArray[\1]", text)
    return re.sub(r"\b[a-z_]\w*(?:\.[a-z_]\w*)*\.(?=[A-Z])", "", text)


def _default(value: object) -> str:
    if callable(value):
        name = getattr(value, "__name__", "")
        return name if name.isidentifier() else "..."
    return re.sub(r"<(\w+\.\w+): [^>]*>", r"\1", repr(value))


def _prose(value: object) -> str:
    """The docstring; drawings and tables, which have runs of blanks, as they are."""
    paragraphs = (inspect.getdoc(value) or "").split("\n\n")
    return "\n\n".join(
        f"```\n{textwrap.dedent(each)}\n```" if _DRAWN.search(each) else _markdown(each) for each in paragraphs
    )


def _markdown(text: str) -> str:
    """A paragraph on one line, its code marked as Markdown does."""
    text = re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"`\1`", text)
    return " ".join(text.split()).replace("``", "`")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> None:
    """Write the document, or with `--check` exit 1 if it is out of date."""
    text = page()
    if "--check" not in sys.argv:
        TARGET.write_text(text, encoding="utf-8")
    elif not TARGET.exists() or TARGET.read_text(encoding="utf-8") != text:
        sys.exit("docs/api.md is out of date: scripts/generate_api.py writes it anew")


if __name__ == "__main__":
    main()
