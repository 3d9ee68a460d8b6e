"""docs/parity-map.md: every counterpart and every test that it names exists."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest

REPO = Path(__file__).resolve().parents[2]
MAP = REPO / "docs" / "parity-map.md"
HEADER = ["vLLM", "Tokenyard", "test"]
_CODE = re.compile(r"`([^`]+)`")


class Row(NamedTuple):
    line: int
    theirs: str
    ours: str
    tests: str

    @property
    def is_absent(self) -> bool:
        return self.ours.startswith("absent: ")


def _rows(text: str) -> list[Row]:
    """Rows of all tables with the map's three columns."""
    rows, in_map = [], False
    for number, line in enumerate(text.splitlines(), 1):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []
        if cells == HEADER:
            in_map = True
        elif not cells:
            in_map = False
        elif in_map and not set(line) <= set("|- "):
            assert len(cells) == len(HEADER), f"line {number} has {len(cells)} cells"
            rows.append(Row(number, *cells))
    return rows


ROWS = _rows(MAP.read_text(encoding="utf-8"))


def _member(owner: Any, name: str) -> Any:
    """An attribute, a declared field, or an attribute that ``__init__`` assigns; AttributeError if there is none."""
    if hasattr(owner, name):
        return getattr(owner, name)
    for each in getattr(owner, "__mro__", ()):
        if name in getattr(each, "__annotations__", {}):
            return None
        own_init = each.__dict__.get("__init__")
        if inspect.isfunction(own_init) and re.search(rf"\bself\.{name}\b[^=\n]*=", inspect.getsource(own_init)):
            return None
    raise AttributeError(f"{owner} has no {name}")


def _resolve(dotted: str) -> None:
    """Find ``sched.scheduler.Scheduler.schedule`` below ``tokenyard``."""
    parts = ["tokenyard", *dotted.split(".")]
    for end in range(len(parts), 0, -1):
        try:
            found: Any = import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for name in parts[end:]:
            found = _member(found, name)
        return


def _defines(path: Path, name: str) -> bool:
    return (
        re.search(rf"^\s*(def|class) {name}\b|^{name}\b.* = ", path.read_text(encoding="utf-8"), re.MULTILINE)
        is not None
    )


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"line {row.line}")
def test_what_the_map_names_exists(row: Row) -> None:
    assert _CODE.findall(row.theirs), "no name of vLLM's"
    if row.is_absent:
        assert len(row.ours) > len("absent: "), "no reason"
        return
    ours, tests = _CODE.findall(row.ours), _CODE.findall(row.tests)
    assert ours, "no counterpart"
    for name in ours:
        _resolve(name)
    assert tests, "no test"
    for named in tests:
        path, _, test = named.partition("::")
        assert (REPO / "tests" / path).exists(), f"no {path}"
        assert not test or _defines(REPO / "tests" / path, test), f"no {test} in {path}"


def test_a_name_that_does_not_exist_is_found() -> None:
    with pytest.raises(AttributeError):
        _resolve("sched.scheduler.Scheduler.no_such_method")
    assert not _defines(Path(__file__), "no_such_test")


def test_no_name_of_vllm_stands_twice() -> None:
    names = [name for row in ROWS for name in _CODE.findall(row.theirs)]
    assert sorted(set(names)) == sorted(names)
