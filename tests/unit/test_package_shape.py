"""What `make lint` asks of the package's shape is found where it is broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from check_tree import private_names, versions_named
from import_graph import import_cycle, imports_of


def package(folder: Path, **modules: str) -> Path:
    """A package named house with these modules."""
    house = folder / "house"
    house.mkdir()
    for name, source in {"__init__": "", **modules}.items():
        (house / f"{name}.py").write_text(source, encoding="utf-8")
    return house


def test_who_imports_whom(tmp_path: Path) -> None:
    house = package(
        tmp_path,
        roof="import json\nfrom house.walls import door\nfrom house import cellar\nimport house",
        walls="def door() -> None:\n    import house.cellar",
        cellar="TILES = 'house.roof'",
    )
    assert imports_of(house) == {
        "house": set(),
        "house.roof": {"house", "house.walls", "house.cellar"},
        "house.walls": {"house.cellar"},
        "house.cellar": set(),
    }
    assert import_cycle(imports_of(house)) == []


@pytest.mark.parametrize(
    "closing",
    [
        "def stairs() -> None:\n    from house.roof import tiles",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from house import roof",
        "def stairs() -> None:\n    import_module('house.roof').tiles()",
    ],
)
def test_a_circle_is_found_however_its_import_is_delayed(tmp_path: Path, closing: str) -> None:
    house = package(
        tmp_path,
        attic="from house import roof",
        cellar=closing,
        roof="from house.walls import door",
        walls="import house.cellar",
    )
    assert import_cycle(imports_of(house)) == ["house.roof", "house.walls", "house.cellar", "house.roof"]
    assert import_cycle(imports_of(house, {("house.cellar", "house.roof")})) == []


def test_modules_of_the_command_line_are_short() -> None:
    """A command that is longer holds what a library's function should."""
    folder = Path(__file__).resolve().parents[2] / "src" / "tokenyard" / "cli"
    lines = {path: path.read_text(encoding="utf-8").splitlines() for path in folder.glob("*.py")}
    long = {
        str(path): len(code)
        for path, text in lines.items()
        if len(code := [each for each in text if each.strip()]) > 200
    }
    assert len(lines) > 20
    assert not long


def test_versions_that_code_names_are_found_and_those_that_text_tells_are_not() -> None:
    told = '"""As vLLM 0.33."""\n# since 0.24\nshare = 0.25\ndef f() -> str:\n    """0.22 does."""\n'
    assert list(versions_named(told)) == []
    named = 'a = "until 0.27.1"\nb = VLLM_0_22\nc = version < (0, 28)\nd = f"{a} 0.30"\n'
    assert [line for line, _ in versions_named(named)] == [1, 2, 3, 4]
    assert list(versions_named('size = "10.25"\naddress = "127.0.0.30"\npair = (0, 2)\n')) == []


def test_private_names_in_tests_are_found() -> None:
    used = (
        "from tokenyard.files import _locked, arrow\n"
        'monkeypatch.setattr("tokenyard.files._LONGEST", 3)\n'
        'setattr(files, "_LONGEST", 3)\n'
        'getattr(files, "__name__")\n'
        'monkeypatch.setattr(files, "MIB", "_none")\n'
        "from other import _theirs\n"
    )
    assert list(private_names(used)) == [
        (1, "_locked"),
        (2, "tokenyard.files._LONGEST"),
        (3, "_LONGEST"),
    ]
