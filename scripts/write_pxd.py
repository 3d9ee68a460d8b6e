"""Write a .pxd beside each module that is compiled, from its annotations (`make lint`: `--check` only compares).

    python scripts/write_pxd.py [--check] [--tell] [--root FOLDER]

    class Queue:                                      @cython.final
        size: int                                     cdef class Queue:
        def pop(self) -> Request | None:                  cdef public long long size
            request: Request = ...                        @cython.locals(request='Request')
                                                          cpdef Request pop(self)

`[tool.tokenyard]` in pyproject.toml lists the modules (`compiled`), the classes that code of others may derive from
(`open`; those that no code in src derives from either are final), and types beyond Python's (`c-types`). A class
becomes one of C unless it has a decorator, a keyword or a base of another kind; C calls a function unless it has
something that C cannot say. `--tell` names what stays Python, and why. docs/compiling.md has the rules that the text
keeps.
"""

from __future__ import annotations

import ast
import re
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
_BASES = re.compile(r"^class \w+\(([^)]*)\)", re.MULTILINE)
_CLOSURES = (ast.Lambda, ast.GeneratorExp, ast.FunctionDef, ast.ClassDef, ast.Yield, ast.YieldFrom, ast.Await)


@dataclass
class Module:
    """A module that is compiled."""

    name: str
    path: Path
    tree: ast.Module
    imported: dict[str, tuple[str, str]]
    """Name -> its module, and its name there."""
    functions: dict[str, ast.FunctionDef]
    """The functions that C calls."""
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    """The classes that become classes of C."""


@dataclass
class Package:
    """All modules that are compiled, and what is known of them together."""

    c_types: dict[str, str]
    """Names of types -> types of C."""
    is_open: set[str]
    """Names of classes that are not final."""
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

    def first(self, node: ast.ClassDef, module: Module, method: str) -> tuple[Module, ast.ClassDef] | None:
        """Where a method of a class of C is declared first: there, or in a base."""
        home = self.home(ast.unparse(node.bases[0]), module) if node.bases else None
        further = self.first(home[1], home[0], method) if home else None
        return further or ((module, node) if method in _methods(node) else None)


def read_package(root: Path) -> Package:
    """Read the modules that pyproject.toml lists."""
    settings = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["tool"]["tokenyard"]
    texts = [path.read_text("utf-8") for path in (root / "src").rglob("*.py")]
    bases = {name for text in texts for each in _BASES.findall(text) for name in re.findall(r"\w+", each)}
    package = Package(
        NUMBERS | settings.get("c-types", {}), bases | {each.rpartition(".")[2] for each in settings.get("open", ())}
    )
    for name in settings["compiled"]:
        path = root / "src" / f"{name.replace('.', '/')}.py"
        tree = ast.parse(path.read_text("utf-8"))
        why = {node: _why_python(node) for node in tree.body if isinstance(node, ast.FunctionDef)}
        functions = {node.name: node for node in why if why[node] is None}
        package.modules[name] = Module(name, path, tree, _imported(tree.body), functions)
        package.told += [f"{name}.{node.name}: {why[node]}" for node in why if why[node]]
    for module in package.modules.values():
        _add_types(module, package)
    while sum(_adopt(module, package) for module in package.modules.values()):
        pass  # a base may stand in a module further down
    for module in package.modules.values():
        module.classes = dict(sorted(module.classes.items(), key=lambda each: each[1].lineno))
        for node in (each for each in module.tree.body if isinstance(each, ast.ClassDef)):
            _note_class(node, module, package)
    package.told += [f"{first}.{name}: {why}" for (first, name), why in package.stays.items()]
    return package


def _imported(nodes: list[ast.stmt]) -> dict[str, tuple[str, str]]:
    froms = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    return {each.asname or each.name: (node.module or "", each.name) for node in froms for each in node.names}


def _add_types(module: Module, package: Package) -> None:
    """Add what only a type checker imports, unless C, which does import it, would go round in a circle."""
    ifs = [node for node in module.tree.body if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)]
    for name, (home, original) in _imported([each for node in ifs for each in node.body]).items():
        reached = [home] if home in package.modules else []
        for each in reached:
            imported = {where for where, _ in package.modules[each].imported.values()}
            reached += sorted(imported & package.modules.keys() - set(reached))
        if module.name in reached:
            package.told.append(f"{module.name}: {name} is any object: {home} imports this module")
        else:
            module.imported[name] = (home, original)


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


def _methods(node: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    """Return the methods that C might call: Python alone calls special ones."""
    return {each.name: each for each in node.body if isinstance(each, ast.FunctionDef) and each.name[:2] != "__"}


def _note_class(node: ast.ClassDef, module: Module, package: Package) -> None:
    """Note what only Python can call: methods that override each other are alike."""
    if node.name not in module.classes:
        package.told.append(f"{module.name}.{node.name}: a class of Python")
        return
    for name, method in _methods(node).items():
        home, first = package.first(node, module, name) or (module, node)
        is_alike = len(_methods(first)[name].args.args) == len(method.args.args)
        if why := _why_python(method) or (None if is_alike else "takes other arguments"):
            package.stays.setdefault((f"{home.name}.{first.name}", name), f"{why}, in {node.name}")
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
        is_final = not node.bases and node.name not in package.is_open  # Cython lets no final one override
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
        home, first = package.first(node, module, name) or (module, node)
        if (f"{home.name}.{first.name}", name) not in package.stays:
            body += _function(method, _methods(first)[name], module, home, package)
    yield f"cdef class {node.name}{f'({ast.unparse(node.bases[0])})' if node.bases else ''}:"
    yield from (f"    {line}" for line in body or ["pass"])


def _fields(node: ast.ClassDef, module: Module, package: Package) -> dict[str, tuple[str, str]]:
    """Name -> public or readonly, and its type: where it is annotated, else as it is assigned first."""
    home = package.home(ast.unparse(node.bases[0]), module) if node.bases else None
    inherited = _fields(home[1], home[0], package) if home else {}
    found: dict[str, tuple[str, str]] = {}
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and not ast.unparse(each.annotation).startswith("ClassVar"):
            name = ast.unparse(each.target)
            if each.value is not None:
                raise SystemExit(f"write_pxd: {module.name}.{node.name}.{name}: set it in __init__, or say ClassVar")
            how, annotation = "public", each.annotation
            if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Final":
                how, annotation = "readonly", annotation.slice
            found[name] = (how, _c_type(annotation, module, package))
    for method in (each for each in node.body if isinstance(each, ast.FunctionDef)):
        for name, kind in _assigned(method):
            if name not in inherited:
                found.setdefault(name, ("public", _c_type(kind, module, package)))
    return found


def _assigned(method: ast.FunctionDef) -> Iterator[tuple[str, ast.expr | None]]:
    """Attributes that a method sets, and their types: of an annotation, an argument, a literal or a class."""
    given = {each.arg: each.annotation for each in (*method.args.args, *method.args.kwonlyargs)}
    for node in ast.walk(method):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        pairs: list[tuple[ast.expr | None, ast.expr | None]] = [(target, value) for target in targets]
        for target in targets:
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs += zip(target.elts, value.elts, strict=False)
        for target, its in pairs:
            if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
                kind = getattr(node, "annotation", None) or getattr(its, "func", None)
                kind = kind or (given.get(its.id) if isinstance(its, ast.Name) else None)
                if isinstance(its, ast.Constant) and kind is None:
                    kind = ast.Name(type(its.value).__name__)
                yield target.attr, kind


def _c_type(annotation: ast.expr | None, module: Module, package: Package) -> str:
    """The type of C for an annotation; object where there is none."""
    if annotation is None:
        return "object"
    text = annotation.value if isinstance(annotation, ast.Constant) else ast.unparse(annotation)
    text, is_optional = (str(text).removesuffix(" | None"), str(text).endswith(" | None"))
    name, bracket, _ = text.partition("[")
    if " | " in re.sub(r"\[.*\]", "", text):
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
    texts = {module.path.with_suffix(".pxd"): declarations(module, package) for module in package.modules.values()}
    stale = [path for path, text in texts.items() if not path.is_file() or path.read_text("utf-8") != text]
    if "--tell" in arguments:
        print("\n".join(package.told))
    if stale and "--check" in arguments:
        print(
            f"write_pxd: run `python scripts/write_pxd.py`; out of date: {', '.join(map(str, stale))}", file=sys.stderr
        )
        return 1
    for path in stale:
        path.write_text(texts[path], "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
