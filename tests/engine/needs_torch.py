"""Importing this skips a module of tests where the engine's libraries are not installed."""

from __future__ import annotations

import pytest

__all__: list[str] = []

for _library in ("torch", "transformers"):
    pytest.importorskip(_library, reason=f"the engine needs {_library}: make test-engine brings it")
