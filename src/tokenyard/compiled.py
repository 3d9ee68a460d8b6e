"""The modules that every step passes run compiled where they have been compiled, else interpreted as they are.

    core/table.py              what it does: the only text; its annotations become the types of C
    core/kv/block_pool.pxd     which names are numbers, for Cython alone, where annotations do not do
    _compiled/core/table.*.so  what scripts/compile_core.py makes of them
    _compiled/made-from.txt    and checksums of what it was made from

Either all modules of :data:`MODULES` are compiled or none, and they count only as long as the text beside them is what
they were made from. ``TOKENYARD_INTERPRETED=1`` passes them over: a debugger sees Python then.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES, FileFinder, SourceFileLoader
from pathlib import Path
from zlib import crc32

TYPE_CHECKING = False  # typing's own costs more to import than this whole module
if TYPE_CHECKING:
    from collections.abc import MutableSequence


MODULES: tuple[str, ...] = ()
"""What is compiled, in the folder of the package."""

MADE_FROM = "made-from.txt"
"""Name of the file with the :func:`checksums` of their source, in the folder of compiled modules."""

_PACKAGE = Path(__file__).parent
_IN_PLACE = [_PACKAGE / "core" / f"_shared{suffix}" for suffix in EXTENSION_SUFFIXES]
"""One of these is there where setup.py has compiled modules in place."""
_COMPILED = _PACKAGE / "_compiled"


def checksums(package: Path) -> str:
    """A line for each file that is compiled, with a checksum of its text."""
    files = [name for module in MODULES for name in (f"{module}.py", f"{module}.pxd") if (package / name).exists()]
    return "".join(f"{crc32((package / name).read_bytes()):08x} {name}\n" for name in files)


def _why_interpreted() -> str | None:
    """Why the core is interpreted; None if it is not."""
    if os.environ.get("TOKENYARD_INTERPRETED", "0") not in ("", "0"):
        return "TOKENYARD_INTERPRETED is set"
    if any(each.exists() for each in _IN_PLACE):
        return None
    try:
        made_from = (_COMPILED / MADE_FROM).read_text(encoding="utf-8")
        if made_from != checksums(_PACKAGE):
            return "what is compiled was made from another text"
    except OSError:
        return "nothing is compiled"
    if not all((_COMPILED / (module + EXTENSION_SUFFIXES[0])).exists() for module in MODULES):
        return "what is compiled is for another Python"
    return None


_interpreted_because = _why_interpreted()


def core_is_compiled() -> bool:
    """Whether the modules that every step passes run compiled; decisions are the same either way."""
    return _interpreted_because is None


def which_core() -> str:
    """Which core runs, in words."""
    return "compiled" if _interpreted_because is None else f"interpreted ({_interpreted_because})"


def prefer_text(folder: str) -> None:
    """Have modules below a folder run from their text, whatever was compiled beside it (``sys.path_hooks``)."""

    def find_text(path: str) -> FileFinder:
        if not path.startswith(folder):
            raise ImportError
        return FileFinder(path, (SourceFileLoader, SOURCE_SUFFIXES))

    sys.path_hooks.insert(0, find_text)


def prefer_compiled(folder: str, path: MutableSequence[str]) -> None:
    """Have modules in a folder of the package, whose ``__path__`` this is, looked for among the compiled ones first."""
    if _interpreted_because is None:
        path.insert(0, str(_COMPILED / folder))


def column(value: int, count: int) -> MutableSequence[int]:
    """A column of numbers below 2**31, one per block, in the form that is quick to read and write one by one.

    The interpreter is fastest with a list, compiled code with an array, which it declares as one.
    """
    if _interpreted_because is not None:
        return [value] * count
    from array import array  # noqa: PLC0415 - the interpreter needs none

    return array("i", [value]) * count


def longer(values: MutableSequence[int], value: int, count: int) -> MutableSequence[int]:
    """The numbers of a column, and ``value`` so many times behind them."""
    return values + column(value, count)  # type: ignore[operator,no-any-return]  # both are lists, or both arrays
