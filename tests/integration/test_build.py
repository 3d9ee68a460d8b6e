"""The build: a small package that is typed, compiled and checked as Tokenyard is (tests/samples/compiled)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
LACKING = "Cython" if find_spec("Cython") is None else None if shutil.which("cc") else "a C compiler"
SUFFIX = str(sysconfig.get_config_var("EXT_SUFFIX"))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(LACKING is not None, reason=f"nothing is compiled here: needs {LACKING}"),
]

EXERCISE = """
import json
from sample import rows, shelf
from sample.rows import row_of

def answer(call, *given, **named):
    try:
        return repr(call(*given, **named))
    except Exception as error:
        return f"{type(error).__name__}: {error}"

class Odd(shelf.Rule):
    def fits(self, size, left=10):
        return size % 2

class Broken(shelf.Rule):
    def fits(self, size, left=10):
        raise KeyError("broken")

class Wide(shelf.Shelf):
    note = "of Python"

one = shelf.Shelf(shelf.Rule(5), weight=2)
wide = Wide(Odd(0))
wide.further = 3
said = {
    "filled": answer(one.fill, row_of([3, 4, 9, 1])),
    "in order": answer(one.in_order),
    "full": answer(one.fill, row_of([1 << 40])),
    "most": answer(one.fill, row_of([1001])),
    "by keyword": answer(shelf.fill, [1, 6, 9], limit=4),
    "asked": one.rule.asked,
    "overridden in Python": answer(wide.fill, row_of([1, 3, 4, 5])),
    "raised in Python": answer(shelf.Shelf(Broken(1)).fill, row_of([1])),
    "raised": answer(one.place_of, 77),
    "found": answer(one.place_of, 4),
    "the last": answer(one.sizes.at, -1),
    "beyond": answer(one.sizes.at, 99).split(":")[0],
    "of None": answer(one.fill, None).split(":")[0],
    "of another kind": answer(one.fill, [1]).split(":")[0] in ("TypeError", "AttributeError"),
    "generator": answer(one.largest),
    "best": one.best([shelf.Rule(1), shelf.Rule(7), shelf.Rule(3)]).limit,
    "none best": answer(one.best, []),
    "sorted": [each.limit for each in sorted([shelf.Rule(3), shelf.Rule(1)])],
    "hash": hash(shelf.Rule(3)),
    "share": one.share,
    "a number, a float, a flag": (one.sizes.size, one.weight, one.is_full),
    "class attribute": shelf.Rule.name,
    "documents": (shelf.__doc__, shelf.Rule.__doc__, shelf.Rule.fits.__doc__),
    "further": wide.further,
}
print(json.dumps({"file": shelf.__file__, "said": said}))
"""


def call(*words: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "PYTHONPATH": f"{cwd / 'src'}:{REPO / 'src'}", "TOKENYARD_CFLAGS": "-O0 -g0 -w"}
    command = [str(word) for word in words]
    return subprocess.run(command, cwd=cwd, env=variables | environment, capture_output=True, text=True, check=False)


def copy_to(folder: Path) -> Path:
    shutil.copytree(REPO / "tests" / "samples" / "compiled", folder)
    shutil.copy(REPO / "setup.py", folder)
    typed = call(sys.executable, REPO / "scripts" / "write_pxd.py", "--root", folder, cwd=folder)
    assert typed.returncode == 0, typed.stderr
    return folder


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = copy_to(tmp_path_factory.mktemp("built") / "sample")
    made = call(sys.executable, "setup.py", "build_ext", "--inplace", cwd=folder, TOKENYARD_COMPILE="1")
    assert made.returncode == 0, made.stdout + made.stderr
    return folder


def compiled(folder: Path) -> list[str]:
    return sorted(path.name.removesuffix(SUFFIX) for path in folder.rglob(f"*{SUFFIX}") if "build" not in path.parts)


def test_one_text_says_the_same_both_ways(built: Path) -> None:
    assert compiled(built) == ["_shared", "rows", "shelf"]
    said = {}
    for value, ending in (("0", SUFFIX), ("1", "shelf.py")):
        done = call(sys.executable, "-c", EXERCISE, cwd=built, TOKENYARD_INTERPRETED=value)
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
        assert answer["file"].endswith(ending)
        said[value] = answer["said"]
    assert said["0"] == said["1"]
    assert said["0"]["raised in Python"] == "KeyError: 'broken'"
    assert said["0"]["in order"] == "[3, 4]"


def test_written_types_are_held(built: Path) -> None:
    check = (sys.executable, REPO / "scripts" / "write_pxd.py", "--check", "--root", built)
    assert call(*check, cwd=built).returncode == 0
    declared = built / "src" / "sample" / "rows.pxd"
    text = declared.read_text()
    declared.write_text(text.replace("long long size", "object size"))
    stale = call(*check, cwd=built)
    declared.write_text(text)
    assert stale.returncode == 1
    assert "rows.pxd" in stale.stderr


def test_a_python_object_in_a_hot_function_is_a_failure(built: Path) -> None:
    check = (sys.executable, REPO / "scripts" / "check_hot.py", "--root", built)
    clean = call(*check, cwd=built)
    assert clean.returncode == 0, clean.stdout
    text = built / "src" / "sample" / "shelf.py"
    before = text.read_text()
    text.write_text(before.replace("self.sizes.append(size)", "self.sizes.append(len([size]))"))
    spoiled = call(*check, cwd=built)
    text.write_text(before.replace("self.sizes.append(size)", "self.sizes.append(len([size]))  # cold"))
    passed_over = call(*check, cwd=built)
    text.write_text(before)
    assert (spoiled.returncode, passed_over.returncode) == (1, 0)
    assert "__Pyx_PyLong_From_PY_LONG_LONG in Shelf.fill" in spoiled.stdout


@pytest.mark.parametrize(("asked", "code"), [("", 0), ("1", 1)])
def test_without_a_compiler_the_text_runs_unless_a_wheel_is_asked_for(tmp_path: Path, asked: str, code: int) -> None:
    folder = copy_to(tmp_path / "sample")
    made = call(sys.executable, "setup.py", "build_ext", "--inplace", cwd=folder, TOKENYARD_COMPILE=asked, CC="false")
    assert (made.returncode != 0) == bool(code)
    assert compiled(folder) == []
    if not code:
        assert "nothing is compiled, the text runs interpreted" in made.stderr
        done = call(sys.executable, "-c", EXERCISE, cwd=folder)
        assert json.loads(done.stdout)["file"].endswith("shelf.py"), done.stderr
