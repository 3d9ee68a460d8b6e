"""What the source says about the fields of a class: the text that stands below each."""

from __future__ import annotations

import ast
import inspect
import textwrap

__all__ = ["field_docs"]


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


def _declared(source: str) -> dict[str, str]:
    (body,) = ast.parse(textwrap.dedent(source)).body
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, text in zip(body.body, body.body[1:], strict=False):
        name = _name(field)
        if name and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            found[name] = " ".join(str(text.value.value).split())
    return found


def _name(statement: ast.stmt) -> str | None:
    """Name of the attribute that a statement declares; None if it does something else."""
    if isinstance(statement, ast.AnnAssign):
        target: ast.expr = statement.target
    elif isinstance(statement, ast.Assign):
        target = statement.targets[0]
    else:
        return None
    return target.id if isinstance(target, ast.Name) else None
