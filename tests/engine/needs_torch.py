"""The engine's libraries; importing this skips a module of tests where they are not installed.

Tests take them from here: an import of their own could come first, and fail.
"""

from __future__ import annotations

from typing import Any

import pytest

__all__ = ["torch", "transformers"]

_REASON = "the engine needs {}: make test-engine brings it"
torch: Any = pytest.importorskip("torch", reason=_REASON.format("torch"))
transformers: Any = pytest.importorskip("transformers", reason=_REASON.format("transformers"))
