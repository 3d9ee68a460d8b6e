"""Compile the modules that pyproject.toml lists, in place beside their text: all of them, or none and the text runs.

The package's description is README.md, with links that work outside the repository. Without a C compiler a line says
so. TOKENYARD_COMPILE=1 makes that a failure (wheels), =0 asks for none.
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

PROJECT = tomllib.loads(Path("pyproject.toml").read_text("utf-8"))
SETTINGS = PROJECT["tool"]["tokenyard"]
ASKED = os.environ.get("TOKENYARD_COMPILE", "")
MODULES: Sequence[str] = () if ASKED == "0" else SETTINGS["compiled"]
SHARED = f"{MODULES[0].rpartition('.')[0]}._shared" if MODULES else ""
"""What Cython would otherwise put into each module that looks into memory: half of all C."""
FLAGS = os.environ.get("TOKENYARD_CFLAGS", "-g0 -w").split()


class AllOrNone(build_ext):
    """Modules reach into each other's memory: some of them alone would not run."""

    def initialize_options(self) -> None:
        """Use all processors."""
        super().initialize_options()
        self.parallel = os.cpu_count()

    def run(self) -> None:
        """Translate them into C and compile that; where it fails the text runs."""
        try:
            sources = {each.name: each.sources for each in in_c(self.extensions)}
            for each in self.extensions:
                each.sources = sources[each.name]
            super().run()
        except Exception as error:
            if ASKED == "1":
                raise
            self.extensions = []
            print(f"tokenyard: nothing is compiled, the text runs interpreted: {error}", file=sys.stderr)

    def get_source_files(self) -> list[str]:
        """Nothing for the sdist: C is made where it is compiled."""
        return []


def extension(name: str) -> Extension:
    """What is made of a module; one with a hot function is optimised further, which takes twice as long."""
    source = f"src/{name.replace('.', '/')}.{'c' if name == SHARED else 'py'}"
    is_hot = any(each.startswith(f"{name}.") for each in SETTINGS["hot"])
    return Extension(name, [source], extra_compile_args=["-O2" if is_hot else "-O1", *FLAGS])


def in_c(extensions: Sequence[Extension], build_dir: str = "build/c", **options: Any) -> list[Extension]:
    """Translate modules into C."""
    from Cython.Build import cythonize  # noqa: PLC0415 - where nothing is compiled it is not needed

    translated: list[Extension] = cythonize(
        list(extensions),
        build_dir=build_dir,
        nthreads=(os.cpu_count() or 0) if sys.platform == "linux" else 0,  # elsewhere a child starts this file again
        shared_utility_qualified_name=SHARED,
        compiler_directives=SETTINGS["directives"],
        **options,
    )
    return translated


def description() -> str:
    """README.md without its comments, whose links and pictures are those of the repository."""
    place = PROJECT["project"]["urls"]["Repository"]
    text = re.sub(r"<!--.*?-->\n", "", Path("README.md").read_text("utf-8"), flags=re.DOTALL)
    text = re.sub(r"(!\[[^\]]*\]\()(?!https?:)", rf"\1{place}/raw/main/", text)
    return re.sub(r"(?<!!)(\[(?:[^\[\]]|!\[[^\]]*\])*\]\()(?!https?:|#)", rf"\1{place}/blob/main/", text)


if __name__ == "__main__":
    setup(
        long_description=description(),
        long_description_content_type="text/markdown",
        ext_modules=[extension(name) for name in (*MODULES, SHARED) if name],
        cmdclass={"build_ext": AllOrNone},
    )
