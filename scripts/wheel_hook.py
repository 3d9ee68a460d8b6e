"""What hatchling asks while it makes a wheel: with TOKENYARD_COMPILE=1 the wheel has the compiled core, for this
machine and this Python; else it is one for every machine, and the core runs interpreted.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

__all__ = ["CompiledWheel"]


class CompiledWheel(BuildHookInterface):  # type: ignore[type-arg]
    """Compiles the core beside the wheel."""

    def dependencies(self) -> list[str]:
        """What pip installs to build it, where it does so in an environment of its own."""
        return ["cython>=3.1", "numpy>=2.0"] if _is_asked_for() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Before files are collected."""
        if not _is_asked_for() or version == "editable":
            return
        sys.path.insert(0, str(Path(self.root) / "scripts"))
        from compile_core import compile_core, missing  # noqa: PLC0415 - only where it is asked for

        lacking = missing()
        if lacking is not None:
            raise RuntimeError(f"TOKENYARD_COMPILE is set, and compiling the core needs {lacking}")
        folder = compile_core(Path(self.root) / "src" / "tokenyard", Path(self.directory) / "compiled")
        build_data["force_include"][str(folder)] = "tokenyard/_compiled"
        build_data["pure_python"], build_data["infer_tag"] = False, True


def _is_asked_for() -> bool:
    return os.environ.get("TOKENYARD_COMPILE", "0") not in ("", "0")
