"""Compile the modules that every step passes, from the very text that runs interpreted (`make compile`).

    python scripts/compile_core.py [FOLDER]

They go to src/tokenyard/_compiled, or to FOLDER, with a checksum of what they were made from; src/tokenyard/compiled.py
says when they are used. Needs Cython and a C compiler; the package runs without either.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from core_types import declarations, fields_of, read_sources

__all__ = ["PACKAGE", "compile_core", "main", "missing"]

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "tokenyard"

# Types stand in the .pxd alone, which core_types.py makes where there is none: a replay's numbers pass for the hashes
# that annotations say. A None where a request is due is an AttributeError, as interpreted, and no read of foreign
# memory; that costs little (`make bench`).
CYTHON = ("-m", "cython", "-3", "-X", "annotation_typing=False", "-X", "nonecheck=True")
OPTIMIZED = ("-g0", "-O2", "-w")


def missing() -> str | None:
    """What is needed and not there."""
    if find_spec("Cython") is None:
        return "Cython"
    compiler = (_flags("CC") or ["no compiler is known"])[0]
    return None if shutil.which(compiler) else f"a C compiler ({compiler})"


def compile_core(package: Path = PACKAGE, folder: Path | None = None, *, flags: Sequence[str] = OPTIMIZED) -> Path:
    """Compile the modules of ``package`` into ``folder``, which is emptied, or its own one; returns that.

    ``flags`` are the C compiler's: without its optimisations it takes half the time, for the same decisions.
    """
    sys.path.insert(0, str(package.parent))
    compiled = import_module("tokenyard.compiled")
    folder = folder or package / "_compiled"
    sysconfig.get_config_vars()  # read before the threads ask: a second one would find them half read
    shutil.rmtree(folder, ignore_errors=True)
    with TemporaryDirectory() as scratch, ThreadPoolExecutor(os.cpu_count()) as at_once:
        text = _with_types(package, Path(scratch), compiled.MODULES)
        cores = min(os.cpu_count() or 1, len(compiled.MODULES))
        list(at_once.map(lambda first: _to_c(text, compiled.MODULES[first::cores]), range(cores)))
        list(at_once.map(lambda module: _compile(text, module, folder, flags), compiled.MODULES))
    (folder / compiled.MADE_FROM).write_text(compiled.checksums(package), encoding="utf-8")
    return folder


def _with_types(package: Path, scratch: Path, modules: tuple[str, ...]) -> Path:
    """A copy of the modules with a .pxd beside each."""
    copy = scratch / package.name
    sources = read_sources(package, modules)
    context = fields_of(package / "core/sched/context.py", "SchedulerContext")
    for module, source in zip(modules, sources, strict=True):
        into = copy / f"{module}.py"
        into.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(package / f"{module}.py", into)
        own = package / f"{module}.pxd"
        text = own.read_text(encoding="utf-8") if own.exists() else declarations(source, sources, context)
        into.with_suffix(".pxd").write_text(text, encoding="utf-8")
        for parent in into.relative_to(copy).parents:
            (copy / parent / "__init__.py").touch()
    return copy


def _to_c(copy: Path, modules: Sequence[str]) -> None:
    """One process for several: most of what Cython takes for one is its own start and the declarations of all."""
    _call(sys.executable, *CYTHON, "-I", str(copy.parent), *[str(copy / f"{module}.py") for module in modules])


def _compile(copy: Path, module: str, folder: Path, flags: Sequence[str]) -> None:
    source = copy / f"{module}.py"
    into = folder / (module + sysconfig.get_config_vars()["EXT_SUFFIX"])
    into.parent.mkdir(parents=True, exist_ok=True)
    c, o = source.with_suffix(".c"), source.with_suffix(".o")
    include = [f"-I{folder}" for folder in (sysconfig.get_path("include"), np.get_include())]
    _call(*_flags("CC"), *_flags("CFLAGS"), *_flags("CCSHARED"), *flags, *include, "-c", str(c), "-o", str(o))
    _call(*_flags("LDSHARED"), str(o), "-o", str(into))


def _flags(variable: str) -> list[str]:
    """What this Python was built with, and extensions are."""
    return shlex.split(str(sysconfig.get_config_var(variable) or ""))


def _call(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{shlex.join(command)}\n{done.stdout}{done.stderr}")


def main(arguments: list[str]) -> int:
    """Compile, and say where it went."""
    lacking = missing()
    if lacking is not None:
        print(f"compile_core: needs {lacking}; the core goes on interpreted", file=sys.stderr)
        return 1
    print(compile_core(folder=Path(arguments[0]).resolve() if arguments else None))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
