"""Every module says what it offers, and offers what others take from it.

Read from the source, so that modules of extras that are not installed are looked at as well.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"


class Module(NamedTuple):
    """A source file, parsed."""

    name: str
    is_package: bool
    tree: ast.Module
    exported: list[str] | None
    """``__all__``; None if there is none."""


@cache
def modules() -> dict[str, Module]:
    """All modules of the package, by name."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found[name] = Module(name, is_package, tree, _exported(tree))
    return found


def _exported(tree: ast.Module) -> list[str] | None:
    for node in tree.body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["__all__"]:
            names: list[str] = ast.literal_eval(node.value)
            return names
    return None


def _bound(tree: ast.Module) -> set[str]:
    """Names that the top level of a module binds."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ImportFrom | ast.Import):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def _order(name: str) -> tuple[int, str]:
    """Constants, then classes, then functions."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


def _needs_exports(module: Module) -> bool:
    """A package's own file may hold its docstring alone."""
    return not module.is_package or len(module.tree.body) > 1


def test_the_package_is_typed() -> None:
    assert (SOURCE / "tokenyard" / "py.typed").is_file()


@pytest.mark.parametrize("name", modules())
def test_a_module_says_what_it_is_and_what_it_offers(name: str) -> None:
    module = modules()[name]
    if _needs_exports(module):
        assert ast.get_docstring(module.tree), f"{name} has no docstring"
        assert module.exported is not None, f"{name} has no __all__"
        assert module.exported == sorted(set(module.exported), key=_order)
        assert not set(module.exported) - _bound(module.tree), "offered, but not there"
        assert not [each for each in module.exported if each.startswith("_") and each != "__version__"]


@pytest.mark.parametrize("name", modules())
def test_what_is_offered_is_documented(name: str) -> None:
    module = modules()[name]
    offered = set(module.exported or ())
    silent = [
        node.name
        for node in module.tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name in offered
        and not ast.get_docstring(node)
    ]
    assert silent == []


@pytest.mark.parametrize("name", modules())
def test_a_module_takes_from_others_only_what_they_offer(name: str) -> None:
    taken = []
    for node in ast.walk(modules()[name].tree):
        if not isinstance(node, ast.ImportFrom) or node.module not in modules():
            continue
        offered = set(modules()[node.module].exported or ())
        submodules = {each.name for each in node.names if f"{node.module}.{each.name}" in modules()}
        taken += [f"{node.module}.{each.name}" for each in node.names if each.name not in offered | submodules]
    assert taken == [], "not in their __all__"
