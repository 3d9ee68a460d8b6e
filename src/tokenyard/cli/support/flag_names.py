"""What the library says, in the words of the command line."""

from __future__ import annotations

import re

__all__ = ["as_flags"]

_SETTING = re.compile(r"\bnum_gpu_blocks\b")


def as_flags(message: str) -> str:
    """The message with the flag in the place of the one setting whose flag goes by another name."""
    return _SETTING.sub("--num-gpu-blocks-override", message)
