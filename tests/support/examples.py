"""How many examples a property test draws: all of them, or the share that the hypothesis profile asks for."""

from __future__ import annotations

from hypothesis import settings

__all__ = ["ALL", "examples"]

ALL = 100
"""Examples of a test that names no number, in the profile ``all``; other profiles are a share of it."""


def examples(number: int) -> int:
    """``number`` in the profile ``all``, a quarter of it in ``quick``, a sixteenth in ``few``; at least one."""
    profile = settings.default
    assert profile is not None
    return max(1, number * profile.max_examples // ALL)
