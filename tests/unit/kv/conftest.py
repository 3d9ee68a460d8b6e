"""A KV-cache manager without a scheduler around it."""

from __future__ import annotations

import pytest
from tests.support.memory import Memory


@pytest.fixture
def memory() -> Memory:
    """Nine usable blocks of four tokens."""
    return Memory()
