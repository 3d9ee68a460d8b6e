"""pyarrow, imported when it is needed: it belongs to the extra ``analysis``."""

from __future__ import annotations

from typing import Any

from tokenyard.errors import MissingExtraError

__all__ = ["arrow"]


def arrow() -> Any:
    """The module ``pyarrow`` with ``pyarrow.compute`` loaded; MissingExtraError without it."""
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra
        import pyarrow.compute  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError("pyarrow", "analysis") from None
    return pa
