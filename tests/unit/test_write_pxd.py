"""scripts/write_pxd.py: annotations become types of C, and what C cannot say stays Python's."""

from __future__ import annotations

import sys
from pathlib import Path
from uuid import uuid4

import pytest

from write_pxd import declarations, read_package


class Written:
    """A package of modules, typed."""

    def __init__(self, folder: Path, modules: dict[str, str], settings: str = "") -> None:
        self.name = f"made_{uuid4().hex}"
        place = folder / "src" / self.name
        place.mkdir(parents=True)
        (place / "__init__.py").touch()
        listed = [f'"{self.name}.{each}"' for each in modules if each != "plain"]
        types = '[tool.tokenyard.c-types]\nInt64s = "long long[::1]"\n'
        text = f"[tool.tokenyard]\ncompiled = [{', '.join(listed)}]\n{settings}\n{types}"
        (folder / "pyproject.toml").write_text(text)
        for each, source in modules.items():
            later = "from __future__ import annotations\n"
            (place / f"{each}.py").write_text(later + source.replace("PACKAGE", self.name))
        self.package = read_package(folder)

    def __getitem__(self, module: str) -> list[str]:
        name = f"{self.name}.{module}"
        text = declarations(self.package.modules[name], self.package)
        return [line.strip().replace(self.name, "PACKAGE") for line in text.splitlines() if line.strip()][2:]

    @property
    def told(self) -> list[str]:
        return [each.replace(f"{self.name}.", "") for each in self.package.told]


@pytest.fixture(autouse=True)
def _importable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path / "src"), *sys.path])


def test_annotations_become_types(tmp_path: Path) -> None:
    text = """
from typing import ClassVar, Final

class One:
    size: int
    share: float
    is_on: bool
    data: Int64s
    name: str
    ids: list[int | None] | None
    other: "One | None"
    limit: int | None
    mark: Final[int]
    kind: ClassVar[int] = 3

    def __init__(self, depth: int, names: dict[str, int], *, width: float) -> None:
        self.depth, self.names, self.width = depth, names, width
        self.count = 0
        self.last = None

    def find(self, size: int, other: "One | None" = None, limit: int | None = None) -> bool:
        total: int = 0
        one: One
        return total > size

def make(size: int) -> One: ...
"""
    assert Written(tmp_path, {"one": text})["one"] == [
        "cdef class One",
        "@cython.final",
        "cdef class One:",
        "cdef public long long size",
        "cdef public double share",
        "cdef public bint is_on",
        "cdef public long long[::1] data",
        "cdef public object name",
        "cdef public list ids",
        "cdef public One other",
        "cdef public object limit",
        "cdef readonly long long mark",
        "cdef public long long depth",
        "cdef public dict names",
        "cdef public double width",
        "cdef public long long count",
        "cdef public object last",
        "@cython.locals(total='long long', one='One')",
        "cpdef bint find(self, long long size, One other=*, limit=*)",
        "cpdef One make(long long size)",
    ]


def test_imported_numbers_are_numbers_of_c_and_public_ones_of_its_own_are_not(tmp_path: Path) -> None:
    plain = "from typing import Final\nMOST: Final = 1 << 40\nHALF = 0.5\nUNUSED = 1\nWORD = 'x'\n"
    text = """
from PACKAGE.plain import HALF, MOST, UNUSED, WORD
_LEAST = MOST // 2
OWN = 7

def share() -> float:
    return HALF * MOST + _LEAST + OWN + len(WORD)
"""
    written = Written(tmp_path, {"one": text, "plain": plain})
    assert written["one"][:-1] == ["cdef double HALF", "cdef long long MOST", "cdef long long _LEAST"]
    assert written.told == ["one.OWN: a public number, used where it is set"]


def test_what_c_cannot_say_stays_pythons(tmp_path: Path) -> None:
    text = """
from enum import IntEnum
from typing import NamedTuple

class Kind(IntEnum):
    A = 1

class Pair(NamedTuple):
    a: int

class Base:
    def most(self, sizes: list[int]) -> int:
        return max(sizes)
    def least(self) -> int:
        return 1
    def by_keyword(self, *, size: int) -> int:
        return size
    @property
    def share(self) -> int:
        return 1

class Further(Base):
    def most(self, sizes: list[int]) -> int:
        return max(each for each in sizes)
    def least(self) -> int:
        return super().least()
"""
    written = Written(tmp_path, {"one": text})
    assert [line for line in written["one"] if line.startswith("cpdef")] == []
    assert written.told == [
        "one.Kind: a class of Python",
        "one.Pair: a class of Python",
        "one.Base.by_keyword: arguments by keyword alone, or any number, in Base",
        "one.Base.share: @property, in Base",
        "one.Base.most: a generator, lambda or function within, in Further",
        "one.Base.least: super(), which C does not know there, in Further",
    ]


def test_classes_are_final_unless_somebody_derives_from_them(tmp_path: Path) -> None:
    names = ("Closed", "Open", "Base", "Elsewhere", "Named")
    text = "\n".join([*[f"class {name}: ..." for name in names], "class Own(Base): ..."])
    plain = "from PACKAGE.one import Elsewhere\nclass Mine(Elsewhere): ...\n"
    lines = Written(tmp_path, {"one": text, "plain": plain}, 'open = ["Open", "made.one.Named"]')["one"]
    final = [lines[i + 1] for i, line in enumerate(lines) if line == "@cython.final"]
    assert final == ["cdef class Closed:"]


def test_an_override_has_the_types_of_what_it_overrides(tmp_path: Path) -> None:
    one = "class Base:\n    def fits(self, size: int) -> bool: ...\n"
    two = "from PACKAGE.one import Base\nclass Further(Base):\n    def fits(self, size: int | None) -> bool: ...\n"
    lines = Written(tmp_path, {"one": one, "two": two})["two"]
    assert lines[0] == "from PACKAGE.one cimport Base"
    assert lines[-1] == "cpdef bint fits(self, long long size)"


def test_a_type_from_a_module_further_up_is_any_object(tmp_path: Path) -> None:
    one = """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from PACKAGE.two import Two
class One:
    two: Two
"""
    two = "from PACKAGE.one import One\nclass Two:\n    one: One\n"
    written = Written(tmp_path, {"one": one, "two": two})
    assert "cdef public object two" in written["one"]
    assert "cdef public One one" in written["two"]
    assert len(written.told) == 1


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("class One:\n    def __lt__(self, other): ...\n", "has an order, and no __hash__"),
        ("class One:\n    size: int = 3\n", "set it in __init__, or say ClassVar"),
    ],
)
def test_what_would_mean_something_else_is_refused(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(SystemExit, match=why):
        Written(tmp_path, {"one": text})["one"]
