"""Hold the hot functions free of Python objects: what `cython -a` draws yellow in them is a failure (`make lint`).

    python scripts/check_hot.py [--root FOLDER]

`[tool.tokenyard]` in pyproject.toml names them (`hot`). Looked at are calls of Python's C API, in each line below the
head of a function. Counting references, adding to a list and raising an error are allowed; whatever makes an object,
looks up a name or calls by one is not, unless the line ends with `# cold`: it is seldom passed.
"""

from __future__ import annotations

import ast
import html
import os
import re
import runpy
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

__all__ = ["main", "yellow_lines"]

ROOT = Path(__file__).resolve().parent.parent
_LINE = re.compile(
    r'<pre class="cython line score-\d+"[^>]*>.(?:<span class="">)?(\d+)</span>: .*?</pre>\n'
    r"(?:<pre class='cython code score-\d+ '>(.*?)</pre>)?",
    re.DOTALL,
)
_CALL = re.compile(r"<span class='(?:py|pyx)_(?:c|macro)_api'>(\w+)</span>")
_ALLOWED = re.compile(
    r"PyErr_(?:Format|SetString|Occurred)"  # None, bounds, overflow, an error that passes through
    r"|__Pyx_(?:Raise\w*|X?(?:INCREF|DECREF)(?:_SET)?|NewRef|TypeTest|AddTraceback|UNARY_NEG_WOULD_OVERFLOW)"
    r"|__Pyx_(?:PyList_(?:Append|GET_SIZE|GET_ITEM_REF|Pop)|(?:Get|Set|Del)ItemInt_List|PyList_SET_ITEM)"
    r"|__Pyx_Py(?:List|Tuple|Dict|Set)_GET_SIZE|PyList_(?:New|SetSlice)|__Pyx_MemoryView_Len|__PYX_(?:INC|XCLEAR)_MEMVIEW"
)


def yellow_lines(annotated: Path, text: str, names: set[str]) -> Iterator[str]:
    """Line, call and function, of each call that is not allowed in the functions of these names in a module."""
    lines = text.splitlines()
    inside: dict[int, str] = {}
    tree = ast.parse(text)
    found = {each.name: each for each in tree.body if isinstance(each, ast.FunctionDef)}
    for owner in (each for each in tree.body if isinstance(each, ast.ClassDef)):
        found |= {f"{owner.name}.{each.name}": each for each in owner.body if isinstance(each, ast.FunctionDef)}
    for name in names:
        if name not in found:
            yield f"there is no {name}"
            continue
        node = found[name]
        inside |= dict.fromkeys(range(node.body[0].lineno, (node.end_lineno or 0) + 1), name)
    for number, code in _LINE.findall(annotated.read_text("utf-8")):
        line = int(number)
        if line in inside and not lines[line - 1].endswith("# cold"):
            calls = {each for each in _CALL.findall(html.unescape(code)) if not _ALLOWED.fullmatch(each)}
            yield from (f"{line}: {call} in {inside[line]}" for call in sorted(calls))


def main(arguments: list[str]) -> int:
    """Annotate the modules and look at the hot functions."""
    root = Path(arguments[arguments.index("--root") + 1]).resolve() if "--root" in arguments else ROOT
    os.chdir(root)
    settings = tomllib.loads(Path("pyproject.toml").read_text("utf-8"))["tool"]["tokenyard"]
    hot: dict[str, set[str]] = {}
    for function in settings.get("hot", ()):
        home = next((each for each in settings["compiled"] if function.startswith(f"{each}.")), None)
        if home is None:
            raise SystemExit(f"check_hot: {function} is in no module that is compiled")
        hot.setdefault(home, set()).add(function.removeprefix(f"{home}."))
    if not hot:
        return 0
    setup = runpy.run_path("setup.py", run_name="setup")
    extensions = [setup["extension"](name) for name in (*sorted(hot), setup["SHARED"])]
    setup["in_c"](extensions, build_dir="build/annotated", annotate=True, quiet=True)
    found = []
    for module, names in sorted(hot.items()):
        path = Path("src", f"{module.replace('.', '/')}.py")
        annotated = Path("build/annotated", path).with_suffix(".html")
        found += [f"{path}:{each}" for each in yellow_lines(annotated, path.read_text("utf-8"), names)]
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
