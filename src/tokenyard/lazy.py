"""Names that a package offers and that are loaded from its modules on first use (PEP 562).

They are listed once, in the stub beside the package (``__init__.pyi``): type checkers read it as it is, and this
module takes from it which name comes from which module.
"""

from __future__ import annotations

import sys
from importlib import import_module

TYPE_CHECKING = False  # typing's own costs more to import than this whole module
if TYPE_CHECKING:
    from collections.abc import Callable, Collection


def _read_stub(package: str) -> dict[str, dict[str, tuple[str, ...]]]:
    """Heading -> module -> names, in the order of the stub: lines of ``from MODULE import NAME as NAME, ...``."""
    spec = sys.modules[package].__spec__
    assert spec is not None
    assert spec.origin is not None
    text = spec.loader.get_data(spec.origin.removesuffix("c") + "i").decode()  # type: ignore[union-attr]
    offered: dict[str, dict[str, tuple[str, ...]]] = {}
    for block in text.split("\n\n"):
        head, *statements = f"\n{block}".split("\nfrom ")
        heading = head.strip("# \n")
        for statement in statements:
            module, _, names = statement.partition(" import ")
            listed = tuple(each.split(" as ")[0].strip() for each in names.strip("()\n").split(",") if each.strip())
            offered.setdefault(heading, {})[module] = listed
    return offered


def _elsewhere(name: str, packages: Collection[str]) -> str:
    """Which of the packages offers the name, for the end of a sentence; empty where none does."""
    for each in packages if name[:1] != "_" else ():
        inside = vars(import_module(each))
        is_made_here = getattr(inside.get(name), "__module__", None) == each
        if name in inside.get("__all__", ()) or is_made_here:
            return f": it is {each}.{name}"
    return ""


def lazy_names(
    package: str, *, submodules: Collection[str] = ()
) -> tuple[dict[str, dict[str, tuple[str, ...]]], list[str], Callable[[str], object], Callable[[], list[str]]]:
    """What ``package`` offers (heading -> module -> names), its ``__all__``, ``__getattr__`` and ``__dir__``.

    ``submodules`` are loaded on first use.
    """
    offered = _read_stub(package)
    module_of = {name: module for group in offered.values() for module, names in group.items() for name in names}
    namespace = vars(sys.modules[package])

    def load(name: str) -> object:
        """Load an offered name; AttributeError for any other."""
        if f"{package}.{name}" in submodules:
            return import_module(f"{package}.{name}")
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}{_elsewhere(name, submodules)}")
        value = getattr(import_module(module_of[name]), name)
        namespace[name] = value
        return value

    def listed() -> list[str]:
        """The offered names, loaded or not, for completion: nothing else that the module has."""
        inside = (each.removeprefix(f"{package}.") for each in submodules if each.startswith(f"{package}."))
        return sorted({*module_of, *inside, *(name for name in namespace if name[:2] == "__")})

    return offered, sorted(module_of), load, listed
