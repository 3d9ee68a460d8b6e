"""pyarrow, imported when it is needed: it belongs to the extra ``analysis``."""

from __future__ import annotations

from typing import Any

from tokenyard.files.arrow import arrow

__all__ = ["arrow", "parquet"]


def parquet() -> Any:
    """The module ``pyarrow.parquet``; MissingExtraError without it."""
    arrow()
    import pyarrow.parquet as pq  # noqa: PLC0415 - an extra

    return pq
