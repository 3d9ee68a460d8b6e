"""Write a .pxd beside each module that is compiled, from its annotations (`make lint`: `--check` only compares).

    python scripts/write_pxd.py [--check] [--tell] [--root FOLDER]

    class Queue:                                      @cython.final
        size: int                                     cdef class Queue:
        def pop(self) -> Request | None:                  cdef public long long size
            request: Request = ...                        @cython.locals(request='Request')
                                                          cpdef Request pop(self)

`[tool.tokenyard]` in pyproject.toml lists the modules (`compiled`), the classes that Python code may derive from
(`open`; others are final), and types beyond those of Python (`c-types`). A class becomes one of C unless it has a
decorator, a keyword or a base of another kind; C calls a function unless it has something that C cannot say. `--tell`
names what stays Python, and why. docs/compiling.md has the rules that the text keeps.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

from tokenyard.compiled import prefer_text

__all__ = ["Module", "Package", "declarations", "main", "read_package"]

ROOT = Path(__file__).resolve().parent.parent
NUMBERS = {"int": "long long", "bool": "bint", "float": "double"}
CONTAINERS = {"list", "dict", "set", "frozenset", "tuple", "bytes", "bytearray"}
ORDERS = {"__lt__", "__le__", "__gt__", "__ge__"}
_CLOSURES = (ast.Lambda, ast.GeneratorExp, ast.FunctionDef, ast.ClassDef, ast.Yield, ast.YieldFrom, ast.Await)


@dataclass
class Module:
    """A module that is compiled."""

    name: str
    path: Path
    tree: ast.Module
    imported: dict[str, tuple[str, str]]
    """Name -> its module, and its name there."""
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    """Those that become classes of C."""
    functions: dict[str, ast.FunctionDef] = field(default_factory=dict)
    """Those that C calls."""


@dataclass
class Package:
    """All modules that are compiled, and what is known of them together."""

    c_types: dict[str, str]
    """Names of types -> types of C."""
    is_open: set[str]
    """Classes that are not final."""
    modules: dict[str, Module] = field(default_factory=dict)
    stays: dict[tuple[str, str], str] = field(default_factory=dict)
    """The class that declares a method first, and the method -> why only Python calls it."""
    told: list[str] = field(default_factory=list)
    """What stays Python, and why."""

    def home(self, name: str, module: Module) -> tuple[Module, ast.ClassDef] | None:
        """The module and the class of C that a name in ``module`` stands for."""
        where, original = module.imported.get(name, (module.name, name))
        found = self.modules.get(where)
        return (found, found.classes[original]) if found and original in found.classes else None

    def first(self, node: ast.ClassDef, module: Module, method: str) -> tuple[Module, ast.ClassDef, ast.FunctionDef]:
        """Where a method of a class of C is declared first: there, or in a base."""
        home = self.home(ast.unparse(node.bases[0]), module) if node.bases else None
        try:
            return self.first(home[1], home[0], method) if home else (module, node, _methods(node)[method])
        except KeyError:
            return module, node, _methods(node)[method]


def read_package(root: Path) -> Package:
    """Read the modules that pyproject.toml lists."""
    settings = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["tool"]["tokenyard"]
    package = Package(NUMBERS | settings.get("c-types", {}), set(settings.get("open", ())))
    for name in settings["compiled"]:
        path = root / "src" / f"{name.replace('.', '/')}.py"
        tree = ast.parse(path.read_text("utf-8"))
        package.modules[name] = module = Module(name, path, tree, _imported(tree))
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and (why := _why_python(node)) is None:
                module.functions[node.name] = node
            elif isinstance(node, ast.FunctionDef):
                package.told.append(f"{name}.{node.name}: {why}")
    while sum(_adopt(module, package) for module in package.modules.values()):
        pass  # a base may stand in a module further down
    for module in package.modules.values():
        module.classes = dict(sorted(module.classes.items(), key=lambda each: each[1].lineno))
        _note_classes(module, package)
    package.told += [f"{first}.{name}: {why}" for (first, name), why in package.stays.items()]
    return package


def _imported(tree: ast.Module) -> dict[str, tuple[str, str]]:
    of_types = [node for node in tree.body if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)]
    nodes = [*tree.body, *(each for node in of_types for each in node.body)]
    froms = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    return {each.asname or each.name: (node.module or "", each.name) for node in froms for each in node.names}


def _adopt(module: Module, package: Package) -> bool:
    """Find further classes of C; say whether there are."""
    found = {
        node.name: node
        for node in module.tree.body
        if isinstance(node, ast.ClassDef) and not node.decorator_list and not node.keywords and len(node.bases) <= 1
        if node.name not in module.classes and all(package.home(ast.unparse(each), module) for each in node.bases)
    }
    module.classes |= found
    return bool(found)


def _note_classes(module: Module, package: Package) -> None:
    """Note which classes are not final, and which stay Python's."""
    for node in (each for each in module.tree.body if isinstance(each, ast.ClassDef)):
        for base in node.bases:
            if (home := package.home(ast.unparse(base), module)) is not None:
                package.is_open.add(f"{home[0].name}.{home[1].name}")
        if node.name in module.classes:
            _note_methods(node, module, package)
        else:
            package.told.append(f"{module.name}.{node.name}: a class of Python")


def _methods(node: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    """Those that C might call: Python alone calls special ones."""
    return {each.name: each for each in node.body if isinstance(each, ast.FunctionDef) and each.name[:2] != "__"}


def _note_methods(node: ast.ClassDef, module: Module, package: Package) -> None:
    """Note which methods only Python can call: one of a base and those that override it are alike."""
    for name, method in _methods(node).items():
        home, first, model = package.first(node, module, name)
        why = _why_python(method)
        if why is None and len(model.args.args) != len(method.args.args):
            why = "takes other arguments"
        if why is not None:
            key = (f"{home.name}.{first.name}", name)
            package.stays.setdefault(key, why if first is node else f"{why}, in {node.name}")
    names = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
    if names & ORDERS and not names & {"__eq__", "__hash__"}:
        raise SystemExit(f"write_pxd: {module.name}.{node.name} has an order, and no __hash__, which C takes away")


def _why_python(node: ast.FunctionDef) -> str | None:
    """Why only Python can call a function; None if C can, too."""
    given = node.args
    if given.kwonlyargs or given.vararg or given.kwarg or given.posonlyargs:
        return "arguments by keyword alone, or any number"
    if node.decorator_list:
        return f"@{ast.unparse(node.decorator_list[0])}"
    inner = [each for line in node.body for each in ast.walk(line)]
    if any(isinstance(each, _CLOSURES) for each in inner):
        return "a generator, lambda or function within"
    is_super = any(isinstance(each, ast.Call) and ast.unparse(each) == "super()" for each in inner)
    return "super(), which C does not know there" if is_super else None


def declarations(module: Module, package: Package) -> str:
    """The .pxd of a module."""
    lines = [f"# From {module.path.name}, by scripts/write_pxd.py.", "", "cimport cython"]
    for name, (home, original) in sorted(module.imported.items(), key=lambda each: each[1]):
        found = package.modules.get(home)
        if found is not None and (original in found.classes or original in found.functions):
            lines.append(f"from {home} cimport {original}{'' if name == original else f' as {name}'}")
    constants = sorted(_constants(module, package).items())
    lines += ["", *[f"cdef {kind} {name}" for name, kind in constants]] if constants else []
    lines += ["", *[f"cdef class {name}" for name in module.classes]] if module.classes else []
    for node in module.classes.values():
        is_final = not node.bases and f"{module.name}.{node.name}" not in package.is_open  # Cython: nor with a base
        lines += ["", *["@cython.final"] * is_final, *_class(node, module, package)]
    for function in module.functions.values():
        lines += ["", *_function(function, function, module, module, package)]
    return "\n".join(lines) + "\n"


def _constants(module: Module, package: Package) -> dict[str, str]:
    """Numbers in capitals that become C's: those that are imported, and private ones of its own."""
    names = {each.id for each in ast.walk(module.tree) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)}
    found = {}
    for name, value in vars(import_module(module.name)).items():
        kind = NUMBERS.get(type(value).__name__) if name.isupper() and name in names else None
        if kind and (name in module.imported or name.startswith("_")):
            found[name] = kind
        elif kind:
            package.told.append(f"{module.name}.{name}: a public number, used where it is set")
    return found


def _class(node: ast.ClassDef, module: Module, package: Package) -> Iterator[str]:
    body = [f"cdef {how} {kind} {name}" for name, (how, kind) in _fields(node, module, package).items()]
    for name, method in _methods(node).items():
        home, first, model = package.first(node, module, name)
        if (f"{home.name}.{first.name}", name) not in package.stays:
            body += _function(method, model, module, home, package)
    yield f"cdef class {node.name}{f'({ast.unparse(node.bases[0])})' if node.bases else ''}:"
    yield from (f"    {line}" for line in body or ["pass"])


def _fields(node: ast.ClassDef, module: Module, package: Package) -> dict[str, tuple[str, str]]:
    """Name -> public or readonly, and its type."""
    found: dict[str, tuple[str, str]] = {}
    for each in (each for each in ast.walk(node) if isinstance(each, ast.AnnAssign)):
        text, target = ast.unparse(each.annotation), ast.unparse(each.target)
        is_declared = each in node.body and not text.startswith("ClassVar")
        if is_declared and each.value is not None:
            raise SystemExit(f"write_pxd: {module.name}.{node.name}.{target}: set it in __init__, or say ClassVar")
        if is_declared or target.startswith("self."):
            is_final = isinstance(each.annotation, ast.Subscript) and text.startswith("Final[")
            kind = _c_type(each.annotation.slice if is_final else each.annotation, module, package)
            found[target.removeprefix("self.")] = ("readonly" if is_final else "public", kind)
    return found


def _c_type(annotation: ast.expr | None, module: Module, package: Package) -> str:
    """The type of C for an annotation; object where there is none."""
    if annotation is None:
        return "object"
    text = annotation.value if isinstance(annotation, ast.Constant) else ast.unparse(annotation)
    text, is_optional = (str(text).removesuffix(" | None"), str(text).endswith(" | None"))
    name, bracket, _ = text.partition("[")
    if " | " in text:
        return "object"
    if package.home(text, module) or name in CONTAINERS:
        return name
    return "object" if is_optional or bracket else package.c_types.get(name, "object")


def _function(
    node: ast.FunctionDef, model: ast.FunctionDef, module: Module, home: Module, package: Package
) -> Iterator[str]:
    """How C calls it; its types are those of ``model`` in module ``home``, where it is declared first."""
    kinds = {
        each.target.id: kind
        for each in ast.walk(node)
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
        if (kind := _c_type(each.annotation, module, package)) != "object"
    }
    if kinds:
        yield f"@cython.locals({', '.join(f'{name}={kind!r}' for name, kind in kinds.items())})"
    first_default = len(node.args.args) - len(node.args.defaults)
    given = []
    for i, (own, each) in enumerate(zip(node.args.args, model.args.args, strict=True)):
        kind = _c_type(each.annotation, home, package)
        given.append(f"{'' if kind == 'object' else f'{kind} '}{own.arg}{'=*' if i >= first_default else ''}")
    kind = _c_type(model.returns, home, package)
    yield f"cpdef {'' if kind == 'object' else f'{kind} '}{node.name}({', '.join(given)})"


def main(arguments: list[str]) -> int:
    """Write them, or compare."""
    root = Path(arguments[arguments.index("--root") + 1]).resolve() if "--root" in arguments else ROOT
    sys.path.insert(0, str(root / "src"))
    prefer_text(str(root / "src"))
    package = read_package(root)
    stale = []
    for module in package.modules.values():
        text, path = declarations(module, package), module.path.with_suffix(".pxd")
        if not path.is_file() or path.read_text("utf-8") != text:
            stale.append(str(path))
            if "--check" not in arguments:
                path.write_text(text, "utf-8")
    if "--tell" in arguments:
        print("\n".join(package.told))
    if stale and "--check" in arguments:
        print(f"write_pxd: run `python scripts/write_pxd.py`; out of date: {', '.join(stale)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
