"""Who imports whom in a package, read from its sources: for the check that no import goes round in a circle.

What stands under ``if TYPE_CHECKING:`` is no import; one within a function is, since it only hides the circle.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

__all__ = ["import_cycle", "imports_of"]


def imports_of(package: Path) -> dict[str, set[str]]:
    """Modules of the package in the folder -> those of them that each imports, all by full name."""
    sources = {_module_name(path, package.parent): path for path in sorted(package.rglob("*.py"))}
    return {
        name: {found for found in _imported(ast.parse(path.read_text(encoding="utf-8")), sources) if found != name}
        for name, path in sources.items()
    }


def import_cycle(imports: dict[str, set[str]]) -> list[str]:
    """The first circle of imports, its first module once more at its end; empty if there is none."""
    done: set[str] = set()

    def search(module: str, path: list[str]) -> list[str]:
        if module in path:
            return [*path[path.index(module) :], module]
        if module in done:
            return []
        for imported in sorted(imports[module]):
            if found := search(imported, [*path, module]):
                return found
        done.add(module)
        return []

    return next(filter(None, (search(module, []) for module in sorted(imports))), [])


def _module_name(path: Path, root: Path) -> str:
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def _imported(tree: ast.AST, known: dict[str, Path]) -> Iterator[str]:
    """The known modules that the import statements below ``tree`` name."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                if name in known or node.module in known:
                    yield name if name in known else node.module
        elif not isinstance(node, ast.expr):
            yield from _imported(node, known)
