"""A leading underscore says what is private to a module; others take what it defines and offers, nothing else.

Read from the source, so that modules of extras that are not installed are looked at as well.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"
_BEGINNINGS = (
    r"(?:(?:Of|(?:By|At|In|On|From|To|For|With) (?:which|whom|whose)|Whose|Whom?|Those)\b"
    r"|(?:So many|As (?:many|it|they)|That it)\b)"
)
_PERSONS = r"\b(?:nobody|whoever|somebody)\b"
_RIDDLES = re.compile(rf"\A{_BEGINNINGS}|{_PERSONS}", re.IGNORECASE)
"""Beginnings of a docstring that leave out what it is about, and words for vague persons."""
_MAYBE_RIDDLES = re.compile(rf"[\"']{_BEGINNINGS}|{_PERSONS}", re.IGNORECASE)
"""What is in the text of every file with one of them: the others need not be parsed."""
_MOST_CLI_LINES = 200


class Module(NamedTuple):
    """A source file, parsed."""

    name: str
    is_package: bool
    tree: ast.Module
    exported: list[str]
    """What ``__all__`` says, where it re-exports; else every name of its own without an underscore."""


@cache
def modules() -> dict[str, Module]:
    """All modules of the package, by name."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found[name] = Module(name, is_package, tree, _exported(tree) or sorted(_own(tree)))
    return found


def _exported(tree: ast.Module) -> list[str] | None:
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if isinstance(node, ast.Assign | ast.AnnAssign) and "__all__" in map(ast.unparse, filter(None, targets)):
            assert node.value is not None
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


def _own(tree: ast.Module) -> set[str]:
    """Names without an underscore that the top level defines itself, also below an ``if`` or ``try``."""
    names: set[str] = set()
    for node in _top_level(tree.body):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {each.id for target in node.targets for each in ast.walk(target) if isinstance(each, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return {name for name in names if not name.startswith("_") or name == "__version__"}


def _top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        if isinstance(node, ast.If | ast.Try | ast.With):
            for part in ("body", "orelse", "finalbody"):
                yield from _top_level(getattr(node, part, []))
            for handler in getattr(node, "handlers", []):
                yield from _top_level(handler.body)
        else:
            yield node


def test_the_package_is_typed() -> None:
    assert (SOURCE / "tokenyard" / "py.typed").is_file()


def _wrong_with_offers(module: Module) -> Iterator[str]:
    if module.is_package and len(module.tree.body) <= 1:
        return
    if not ast.get_docstring(module.tree):
        yield "has no docstring"
    listed = _exported(module.tree) or []
    if len(set(listed)) < len(listed):
        yield "__all__ names something twice"
    for name in sorted(set(listed) - _bound(module.tree)):
        yield f"offers {name}, which is not there"
    for name in listed:
        if name.startswith("_") and name != "__version__":
            yield f"offers {name}, which is private"


def _silent(module: Module) -> Iterator[str]:
    for node in module.tree.body:
        if (
            isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and node.name in set(module.exported)
            and not ast.get_docstring(node)
        ):
            yield f"{node.name} is offered and has no docstring"


def _taken_unoffered(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.ImportFrom) or node.module not in modules():
            continue
        taken = modules()[node.module]
        submodules = {each.name for each in node.names if f"{node.module}.{each.name}" in modules()}
        for each in node.names:
            if each.name not in set(taken.exported) | _in_stub(taken) | submodules:
                yield f"takes {node.module}.{each.name}, which it does not define, or keeps to itself"


def _riddled(module: Module) -> Iterator[str]:
    """Docstrings are plain sentences: subject and verb, and vague persons are named."""
    yield from _riddles(module.tree)


def _riddles(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        said = node.value if isinstance(node, ast.Expr) else None
        if isinstance(said, ast.Constant) and isinstance(said.value, str) and (found := _RIDDLES.search(said.value)):
            yield f"line {said.lineno}: a docstring with {found.group()!r}"


def _long_command(module: Module) -> Iterator[str]:
    """The module of a command is argv, one call and print; what reads the words is longer."""
    lines = max((getattr(node, "end_lineno", 0) for node in module.tree.body), default=0)
    is_command = module.name.startswith("tokenyard.cli.") and not module.name.startswith("tokenyard.cli.support.")
    if is_command and lines > _MOST_CLI_LINES:
        yield f"has {lines} lines: what it decides belongs into the library"


@cache
def _stub(name: str) -> frozenset[str]:
    path = SOURCE.joinpath(*name.split("."), "__init__.pyi")
    return frozenset(_bound(ast.parse(path.read_text(encoding="utf-8")))) if path.exists() else frozenset()


def _in_stub(module: Module) -> frozenset[str]:
    """Names that a package loads when they are asked for."""
    return _stub(module.name) if module.is_package else frozenset()


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrong_with",
    [_wrong_with_offers, _silent, _taken_unoffered, _riddled, _long_command],
    ids=["offers", "docstrings", "imports", "riddles", "cli"],
)
def test_modules_say_what_they_offer_and_take_only_that(wrong_with: Callable[[Module], Iterator[str]]) -> None:
    assert len(modules()) > 250
    found = [f"{module.name} {problem}" for module in modules().values() for problem in wrong_with(module)]
    assert not found, "\n".join(found)


@pytest.mark.slow
def test_tests_and_scripts_speak_as_plainly() -> None:
    folders = [ROOT / name for name in ("tests", "scripts", "lab", "benchmarks", "conformance", "examples")]
    files = [file for folder in folders for file in sorted(folder.rglob("*.py"))]
    assert len(files) > 300
    read = {file: text for file in files if _MAYBE_RIDDLES.search(text := file.read_text(encoding="utf-8"))}
    found = [f"{file.relative_to(ROOT)} {said}" for file, text in read.items() for said in _riddles(ast.parse(text))]
    assert not found, "\n".join(found)


def _module(source: str, name: str = "tokenyard.made_up") -> Module:
    tree = ast.parse(source)
    return Module(name, False, tree, _exported(tree) or sorted(_own(tree)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "wrong_with", "problems"),
    [
        ("x = 1", _wrong_with_offers, ["has no docstring"]),
        ("'A.'\n__all__ = ['a', 'a']\na = 1", _wrong_with_offers, ["__all__ names something twice"]),
        ("'A.'\n__all__ = ['_c', 'a']\n_c = 1", _wrong_with_offers, ["offers a, which is not", "offers _c, which"]),
        ("'A.'\n__all__ = ['a']\ndef a(): ...\ndef b(): ...", _silent, ["a is offered and has no docstring"]),
        (
            "from tokenyard.errors import FileError, os",
            _taken_unoffered,
            ["takes tokenyard.errors.os, which it does not define"],
        ),
        (
            "from tokenyard.files import _limit",
            _taken_unoffered,
            ["takes tokenyard.files._limit, which it does not define, or keeps to itself"],
        ),
        ("'Of a.'\ndef a():\n    'Whoever calls.'", _riddled, ["line 1: a docstring with 'Of'", "line 3: a docstring"]),
        ("'A.'\ndef a(): ...\ndef _b(): ...", _silent, ["a is offered and has no docstring"]),
    ],
)
def test_what_is_wrong_with_a_module_is_found(
    source: str, wrong_with: Callable[[Module], Iterator[str]], problems: list[str]
) -> None:
    found = list(wrong_with(_module(source)))
    assert (wrong_with is _riddled) <= bool(_MAYBE_RIDDLES.search(source))
    assert [problem[: len(said)] for problem, said in zip(found, problems, strict=True)] == problems
