"""What the source says about the fields of a class: the text that stands below each."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from itertools import pairwise

__all__ = ["attribute_docs", "field_docs"]


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
