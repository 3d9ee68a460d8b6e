"""Names that a package offers and that are loaded from its modules when they are first asked for (PEP 562)."""

from __future__ import annotations

import sys
from importlib import import_module

TYPE_CHECKING = False  # typing's own costs more to import than this whole module
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

__all__ = ["lazy_names"]


def lazy_names(
    package: str, offered: Mapping[str, tuple[str, ...]], *, submodules: Collection[str] = ()
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of ``package``; ``offered`` says which names come from which module.

    ``submodules`` are loaded when they are asked for as well.
    """
    module_of = {name: module for module, names in offered.items() for name in names}
    namespace = vars(sys.modules[package])

    def load(name: str) -> object:
        """Load an offered name; AttributeError for any other."""
        if f"{package}.{name}" in submodules:
            return import_module(f"{package}.{name}")
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(module_of[name]), name)
        namespace[name] = value
        return value

    def listed() -> list[str]:
        """The offered names, loaded or not."""
        return sorted({*namespace, *module_of})

    return load, listed
