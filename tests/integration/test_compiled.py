"""The compiled core: the same decisions as the interpreted one, from a copy of the package that is compiled here."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from tests.support.examples import ALL, examples

from compile_core import PACKAGE, compile_core, missing
from tokenyard.compiled import checksums

REPO = Path(__file__).resolve().parents[2]
LACKING = missing()
FLAGS = ("-g0", "-O0", "-w")

pytestmark = pytest.mark.skipif(LACKING is not None, reason=f"nothing is compiled here: needs {LACKING}")


def inputs() -> str:
    """A checksum of all that decides what the compiler makes."""
    texts = [path for path in sorted((PACKAGE / "core").rglob("*")) if path.suffix in (".py", ".pxd")]
    texts += [REPO / "scripts" / name for name in ("compile_core.py", "core_types.py")]
    versions = (sys.version, version("cython"), version("numpy"), *FLAGS)
    return hashlib.sha256("".join([*versions, *(path.read_text("utf-8") for path in texts)]).encode()).hexdigest()


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Path:
    """A folder with the package, compiled: a minute of a processor, which is spent again when the core has changed."""
    folder = tmp_path_factory.mktemp("compiled")
    package = folder / "tokenyard"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__", "_compiled", "static"))
    is_kept = pytestconfig.pluginmanager.has_plugin("cacheprovider")
    kept = (pytestconfig.cache.mkdir("compiled-core") if is_kept else folder) / inputs()[:16]
    if kept.is_dir():
        shutil.copytree(kept, package / "_compiled")
    else:
        made = compile_core(package, flags=FLAGS)
        for earlier in kept.parent.glob("????????????????"):
            shutil.rmtree(earlier)
        shutil.copytree(made, kept.with_suffix(".new"))
        kept.with_suffix(".new").rename(kept)
    return folder


def told(folder: Path, *arguments: str, **environment: str) -> str:
    """What the command of that package prints."""
    command = [sys.executable, "-m", "tokenyard.cli.main", *arguments]
    variables = {**os.environ, "PYTHONPATH": str(folder), **environment}
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def core(folder: Path, **environment: str) -> str:
    return told(folder, "--version", **environment).split("core: ")[1].strip()


@pytest.mark.slow
def test_which_core_runs(copy: Path) -> None:
    assert core(copy) == "compiled"
    assert core(copy, TOKENYARD_INTERPRETED="1") == "interpreted (TOKENYARD_INTERPRETED is set)"
    source = copy / "tokenyard" / "core" / "kv" / "block_pool.py"
    text = source.read_text()
    source.write_text(text + "# another\n")
    assert core(copy) == "interpreted (what is compiled was made from another text)"
    source.write_text(text)
    made_from = copy / "tokenyard" / "_compiled" / "made-from.txt"
    assert made_from.read_text() == checksums(PACKAGE)
    made_from.rename(made_from.with_suffix(".old"))
    assert core(copy) == "interpreted (nothing is compiled)"
    made_from.with_suffix(".old").rename(made_from)


@pytest.mark.slow
def test_both_cores_report_the_same(copy: Path) -> None:
    """In leaps, with numbers in place of hashes, and so little memory that requests are preempted."""
    random = "random --num-prompts 24 --random-prefix-len 64 --input-len 240 --output-len 400 --request-rate inf"
    settings = (*random.split(), "--num-gpu-blocks-override", "300", "--max-model-len", "4096")
    one, other = (told(copy, "run", *settings, "--json", TOKENYARD_INTERPRETED=value) for value in ("0", "1"))
    assert one == other
    assert json.loads(one)["preemptions"] > 0


@pytest.mark.slow
def test_both_cores_make_the_same_trace(copy: Path) -> None:
    settings = ("chat", "--limit", "4", "--num-gpu-blocks-override", "300", "--max-model-len", "4096")
    traces = []
    for value in ("0", "1"):
        told(copy, "run", *settings, "--skip-refused", "--trace", f"trace{value}", TOKENYARD_INTERPRETED=value)
        traces.append({path.name: path.read_bytes() for path in (copy / f"trace{value}").iterdir()})
    assert traces[0] == traces[1]


_NONE = """
from tokenyard import CacheConfig, Scheduler, SchedulerConfig
from tokenyard.core.sched.queues import FCFSQueue, PriorityQueue
kv = Scheduler(SchedulerConfig(), CacheConfig(num_gpu_blocks=9)).kv
for call in (kv.num_cached_tokens, kv.get_computed_blocks, FCFSQueue().add, PriorityQueue().discard):
    try:
        call(None)
        print(call, "accepts None")
    except (AttributeError, TypeError):
        pass
"""

_NONE_FOR_A_COLUMN = """
import ast
from importlib import import_module
from itertools import product
import numpy as np
for name in ("columns", "table_rows"):
    module = import_module(f"tokenyard.core.{name}")
    for node in ast.parse(open(f"tokenyard/core/{name}.py").read()).body:
        if not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
            continue
        kinds = [ast.unparse(each.annotation) for each in node.args.args]
        for are_none in product((False, True), repeat=len(kinds)):
            given = [[1] if kind.startswith("list") else 1 if kind == "int" else np.arange(3) for kind in kinds]
            given = [None if is_none else each for is_none, each in zip(are_none, given)]
            print(node.name, are_none, flush=True)
            try:
                answer = getattr(module, node.name)(*given)
            except (AttributeError, IndexError, TypeError, ValueError):
                continue
            assert not all(are_none) or not answer, f"{node.name} of None is {answer}"
print("all")
"""


@pytest.mark.slow
def test_none_for_a_column_reads_no_foreign_memory(copy: Path) -> None:
    """C asks an array for its address and length; a None has neither."""
    variables = {**os.environ, "PYTHONPATH": str(copy), "TOKENYARD_INTERPRETED": "0"}
    command = [sys.executable, "-c", _NONE_FOR_A_COLUMN]
    done = subprocess.run(command, env=variables, cwd=copy, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "all"), done.stdout[-200:] + done.stderr


@pytest.mark.slow
def test_none_for_a_request_is_an_error_and_reads_no_foreign_memory(copy: Path) -> None:
    for value in ("0", "1"):
        variables = {**os.environ, "PYTHONPATH": str(copy), "TOKENYARD_INTERPRETED": value}
        done = subprocess.run([sys.executable, "-c", _NONE], env=variables, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, ""), done.stderr


SUITES = (
    "parity/test_golden.py",
    "unit/kv/test_free_queue.py",
    "property/test_scheduler_machine.py",
    "property/test_leaps.py",
)
COUNTED_ONCE = "not test_most_steps_are_taken_in_leaps"
"""How many steps a leap takes is the same text's doing; that leaps change nothing is asked of the compiled core too."""


@pytest.mark.slow
def test_the_compiled_core_passes(copy: Path) -> None:
    """vLLM's recorded decisions, and random calls with invariants after each, a few where not all are asked for."""
    suites = [str(REPO / "tests" / each) for each in SUITES]
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-k", COUNTED_ONCE, *suites]
    variables = {**os.environ, "PYTHONPATH": str(copy), "TOKENYARD_INTERPRETED": "0"}
    variables["TOKENYARD_EXAMPLES"] = "all" if examples(ALL) == ALL else "few"
    done = subprocess.run(command, cwd=REPO, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    where = [sys.executable, "-c", "import tokenyard.core.table as table; print(table.__file__)"]
    found = subprocess.run(where, cwd=REPO, env=variables, capture_output=True, text=True, check=True).stdout
    assert str(copy / "tokenyard" / "_compiled") in found
