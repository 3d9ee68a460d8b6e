"""The declarations that Cython wants, read off the annotations of the modules that are compiled.

    class RunningList:                                      cdef class RunningList:
        def __init__(self, capacity: int) -> None:              cdef public list requests
            self.requests: list[Request] = []                   cdef public object version
            self.version = 0                                    cpdef Request pop(self, index)
        def pop(self, index: int) -> Request: ...

A class becomes one of C's if it derives from nothing, or from one that does. What is annotated with such a class, or a
list, dict, tuple or set, is declared so, variables of methods as well; everything else stays any object, numbers too,
unless they are annotated as ``Index``: no number can overflow unseen, and a replay's numbers pass for the hashes that
annotations say. A module's functions are called as methods are, from other modules as well. A module with a .pxd of its
own keeps that.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import NamedTuple

__all__ = ["Source", "declarations", "fields_of", "read_sources"]

_NUMBER = "Index"
_NUMBER_IN_C = "Py_ssize_t"
_CONTAINERS = ("list", "dict", "tuple", "set")
_IS_CLASS_OF_C = re.compile(r"^cdef class (\w+)", re.MULTILINE)
_IS_FUNCTION_OF_C = re.compile(r"^cpdef .*?(\w+)\(", re.MULTILINE)
_MAKES_CLOSURE = (ast.Lambda, ast.GeneratorExp, ast.FunctionDef, ast.Yield, ast.YieldFrom)


class Source(NamedTuple):
    """A module that is compiled."""

    name: str
    """The module as it is imported."""
    tree: ast.Module
    classes: dict[str, ast.ClassDef]
    """Classes that become classes of C; of a module with a .pxd, those that it declares."""
    functions: dict[str, ast.FunctionDef]
    """The same of its functions."""
    is_declared: bool
    """It has a .pxd of its own."""


def read_sources(package: Path, modules: tuple[str, ...]) -> list[Source]:
    """The modules (``core/table``), with their classes."""
    sources = []
    for module in modules:
        tree = ast.parse((package / f"{module}.py").read_text(encoding="utf-8"))
        own = package / f"{module}.pxd"
        declared = own.read_text(encoding="utf-8") if own.exists() else None
        classes: dict[str, ast.ClassDef] = {}
        functions: dict[str, ast.FunctionDef] = {}
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and (
                _is_plain(node, classes) if declared is None else node.name in _IS_CLASS_OF_C.findall(declared)
            ):
                classes[node.name] = node
            elif isinstance(node, ast.FunctionDef) and (
                _is_called_by_c(node) if declared is None else node.name in _IS_FUNCTION_OF_C.findall(declared)
            ):
                functions[node.name] = node
        name = f"{package.name}.{module}".replace("/", ".")
        sources.append(Source(name, tree, classes, functions, declared is not None))
    return sources


def _is_plain(node: ast.ClassDef, known: dict[str, ast.ClassDef]) -> bool:
    bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
    return not node.decorator_list and not node.keywords and len(bases) == len(node.bases) and set(bases) <= set(known)


def declarations(source: Source, sources: list[Source], context: dict[str, str]) -> str:
    """The .pxd of a module; ``context`` are the fields of a ``SchedulerContext``, from which much is taken."""
    homes = {name: each.name for each in sources for name in each.classes}
    imported = _imported(source.tree)
    known = {name: home for name, home in homes.items() if home == source.name or imported.get(name) == home}
    parts = {name: kind for name, kind in context.items() if kind in homes} if "SchedulerContext" in imported else {}
    known |= {kind: homes[kind] for kind in parts.values()}
    called = {name: each.name for each in sources for name in each.functions if imported.get(name) == each.name}
    lines = ["import cython"]
    lines += [f"from {home} cimport {name}" for name, home in sorted((known | called).items()) if home != source.name]
    for node in source.classes.values():
        lines += ["", *_class(node, source, known, parts)]
    for function in source.functions.values():
        lines += ["", *_locals(function, known), _call(function, known)]
    return "\n".join(lines) + "\n"


def fields_of(module: Path, name: str) -> dict[str, str]:
    """Field -> annotation, of a record in a module that is not compiled."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    (node,) = [each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == name]
    return {
        each.target.id: ast.unparse(each.annotation)
        for each in node.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }


def _imported(tree: ast.Module) -> dict[str, str]:
    """Name -> module, of what is imported when the module is; not of what only a type checker imports."""
    nodes = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module or "" for node in nodes for alias in node.names if alias.asname is None}


def _class(node: ast.ClassDef, source: Source, known: dict[str, str], parts: dict[str, str]) -> list[str]:
    bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
    inherited = {name for base in bases for name in _attributes(source.classes[base], known, parts)}
    attributes = {name: kind for name, kind in _attributes(node, known, parts).items() if name not in inherited}
    lines = [f"cdef class {node.name}{f'({bases[0]})' if bases else ''}:"]
    lines += [f"    cdef public {kind} {name}" for name, kind in attributes.items()]
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and _is_called_by_c(each):
            lines += [f"    {line}" for line in (*_locals(each, known), _call(each, known, "self"))]
    return lines if len(lines) > 1 else [*lines, "    pass"]


def _attributes(node: ast.ClassDef, known: dict[str, str], parts: dict[str, str]) -> dict[str, str]:
    """Attribute -> how it is declared."""
    found: dict[str, str] = {}
    for each in node.body:
        if (
            isinstance(each, ast.AnnAssign)
            and isinstance(each.target, ast.Name)
            and each.value is None
            and "ClassVar" not in ast.unparse(each.annotation)
        ):
            found[each.target.id] = _declared(each.annotation, known)
    for method in node.body:
        if isinstance(method, ast.FunctionDef):
            given = {arg.arg: arg.annotation for arg in (*method.args.args, *method.args.kwonlyargs)}
            for at in ast.walk(method):
                for target, annotation in _assigned(at, given, parts):
                    kind = _declared(annotation, known) if annotation is not None else "object"
                    if found.get(target, "object") == "object":
                        found[target] = kind
    return found


def _assigned(
    node: ast.AST, given: dict[str, ast.expr | None], parts: dict[str, str]
) -> list[tuple[str, ast.expr | None]]:
    """Attributes of ``self`` that a statement assigns, and what is known of their kind."""
    if isinstance(node, ast.AnnAssign):
        name = _of_self(node.target)
        return [(name, node.annotation)] if name else []
    if not isinstance(node, ast.Assign):
        return []
    found: list[tuple[str, ast.expr | None]] = []
    for target in node.targets:
        if isinstance(target, ast.Tuple):
            values = node.value.elts if isinstance(node.value, ast.Tuple) else [None] * len(target.elts)
            found += [
                (name, _kind_of(value, given, parts))
                for each, value in zip(target.elts, values, strict=False)
                if (name := _of_self(each))
            ]
        elif name := _of_self(target):
            found.append((name, _kind_of(node.value, given, parts)))
    return found


def _kind_of(value: ast.expr | None, given: dict[str, ast.expr | None], parts: dict[str, str]) -> ast.expr | None:
    """The annotation of a parameter, the class that is made, or the kind of a part of the context."""
    if isinstance(value, ast.Name):
        return given.get(value.id)
    if isinstance(value, ast.Attribute) and ast.unparse(value.value) == "context":
        return ast.Name(parts.get(value.attr, "object"))
    return value.func if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) else None


def _of_self(node: ast.expr) -> str | None:
    is_own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    return node.attr if is_own and isinstance(node, ast.Attribute) else None


def _declared(annotation: ast.expr | None, known: dict[str, str]) -> str:
    """How something of this annotation is declared."""
    text = "" if annotation is None else ast.unparse(annotation).removesuffix(" | None")
    if text in known:
        return text
    if text == _NUMBER:
        return _NUMBER_IN_C
    head, bracket, _ = text.partition("[")
    return (
        head
        if head in _CONTAINERS and bracket and text.endswith("]") and " | " not in text.split("]")[-1]
        else "object"
    )


def _locals(node: ast.FunctionDef, known: dict[str, str]) -> list[str]:
    """The line above a method that says what its annotated variables are."""
    found = {
        each.target.id: kind
        for each in ast.walk(node)
        if isinstance(each, ast.AnnAssign)
        and isinstance(each.target, ast.Name)
        and (kind := _declared(each.annotation, known)) != "object"
    }
    declared = ", ".join(f"{name}={kind}" for name, kind in found.items())
    return [f"@cython.locals({declared})"] if found else []


def _is_called_by_c(node: ast.FunctionDef) -> bool:
    """Whether C can call the method or function; else only Python can."""
    args = node.args
    if (
        node.name.startswith("__")
        or node.decorator_list
        or args.kwonlyargs
        or args.vararg
        or args.kwarg
        or args.posonlyargs
    ):
        return False
    return not any(isinstance(each, _MAKES_CLOSURE) for statement in node.body for each in ast.walk(statement))


def _call(node: ast.FunctionDef, known: dict[str, str], *first: str) -> str:
    """How C calls it; ``first``: what stands before the arguments that have kinds."""
    args = node.args
    first_default = len(args.args) - len(args.defaults)
    given = list(first)
    for place, arg in enumerate(args.args[len(first) :], len(first)):
        kind = _declared(arg.annotation, known) if arg.annotation is not None else "object"
        kind = "" if kind in (*_CONTAINERS, "object") else f"{kind} "
        given.append(f"{kind}{arg.arg}{'=*' if place >= first_default else ''}")
    returned = _declared(node.returns, known)
    returned = "" if returned in (*_CONTAINERS, "object") else f"{returned} "
    return f"cpdef {returned}{node.name}({', '.join(given)})"
