"""What the source says about the fields of a class: the text that stands below each."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterator
from functools import cache
from itertools import pairwise

__all__ = ["attribute_docs", "field_docs"]


def field_docs(kind: type) -> dict[str, str]:
    """Docstrings of the attributes that the class body declares, by name, each on one line; inherited ones included.

    Empty for classes without a source of their own, such as built-in ones.
    """
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        if declared := _classes_of(each.__module__).get(each.__qualname__):
            found |= _declared(declared)
    return found


@cache
def _classes_of(module: str) -> dict[str, ast.ClassDef]:
    """The classes of a module by their qualified names, read from its source once."""
    try:
        source = inspect.getsource(sys.modules[module])
    except (KeyError, OSError, TypeError):
        return {}
    return dict(_classes_in(ast.parse(source).body))


def _classes_in(body: list[ast.stmt], within: str = "") -> Iterator[tuple[str, ast.ClassDef]]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield within + node.name, node
            yield from _classes_in(node.body, f"{within}{node.name}.")
        elif isinstance(node, ast.FunctionDef):
            yield from _classes_in(node.body, f"{within}{node.name}.<locals>.")


def attribute_docs(kind: type) -> dict[str, tuple[str, str]]:
    """Public attributes that a class's own ``__init__``, and what it calls for that, set and document.

    Each has its annotation, empty without one, and the text.
    """
    return _set_by(kind, "__init__")


def _set_by(kind: type, method: str) -> dict[str, tuple[str, str]]:
    made = vars(kind).get(method)
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
    for each in function.body:
        called = each.value.func if isinstance(each, ast.Expr) and isinstance(each.value, ast.Call) else None
        if isinstance(called, ast.Attribute) and ast.unparse(called.value) == "self":
            found |= _set_by(kind, called.attr)
    return found


def _has_source(made: object) -> bool:
    """False for what a dataclass or a protocol has made itself."""
    try:
        inspect.getsource(made)  # type: ignore[arg-type]  # TypeError is the answer
    except (OSError, TypeError):
        return False
    return getattr(made, "__module__", "typing") != "typing"


def _declared(declared: ast.ClassDef) -> dict[str, str]:
    found = {}
    for statement, text in _documented(declared.body):
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
