"""The imports between modules of a package, read from its sources: for the check that no import goes round in a circle.

What stands under ``if TYPE_CHECKING:``, within a function, or in ``import_module("...")`` counts as well: it delays an
import, and the module is still read with the other. A name in a table of names (a printer, a policy) is no import:
which those are, and on which floor they stand, says :func:`modules_in_strings`.
"""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator
from pathlib import Path

__all__ = ["import_cycle", "imports_of", "modules_in_strings"]


def imports_of(package: Path, but: Container[tuple[str, str]] = ()) -> dict[str, set[str]]:
    """Modules of the package in the folder -> those of them that each imports, all by full name.

    ``but``: pairs of importer and imported that do not count.
    """
    sources = {_module_name(path, package.parent): path for path in sorted(package.rglob("*.py"))}
    return {
        name: {
            found
            for found in _imported(ast.parse(path.read_text(encoding="utf-8")), sources)
            if found != name and (name, found) not in but
        }
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


def modules_in_strings(package: Path) -> dict[str, set[str]]:
    """Modules of the package -> those that each names in a string, ``tokenyard.files:read_input``, to load them."""
    sources = {_module_name(path, package.parent): path for path in sorted(package.rglob("*.py"))}
    found = {}
    for name, path in sources.items():
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        values = (each.value for each in nodes if isinstance(each, ast.Constant))
        texts = (value.partition(":")[0] for value in values if isinstance(value, str))
        found[name] = {text for text in texts if text in sources and text != package.name} - {name}
    return found


def _module_name(path: Path, root: Path) -> str:
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def _imported(tree: ast.AST, known: dict[str, Path]) -> Iterator[str]:
    """The known modules that imports anywhere in ``tree`` name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                if name in known or node.module in known:
                    yield name if name in known else node.module
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module") and node.args:
            named = getattr(node.args[0], "value", None)
            if named in known:
                yield named
