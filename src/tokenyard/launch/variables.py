"""Variables of the environment that a replay obeys as vLLM does."""

from __future__ import annotations

import os
from collections.abc import Mapping

__all__ = [
    "ALLOW_LONG_MAX_MODEL_LEN",
    "OBEYED",
    "RAY_V2_EXECUTOR",
    "V2_MODEL_RUNNER",
    "is_on",
]

ALLOW_LONG_MAX_MODEL_LEN = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"
V2_MODEL_RUNNER = "VLLM_USE_V2_MODEL_RUNNER"
RAY_V2_EXECUTOR = "VLLM_USE_RAY_V2_EXECUTOR_BACKEND"
OBEYED: dict[str, tuple[str, ...]] = {
    ALLOW_LONG_MAX_MODEL_LEN: ("0.22", "0.33"),
    V2_MODEL_RUNNER: ("0.33",),
    RAY_V2_EXECUTOR: ("0.22",),
}
"""Each with the versions of vLLM in which it is read and modelled."""


def is_on(name: str, given: Mapping[str, str], *, default: bool = False) -> bool:
    """What a variable says, in front of a pasted line, else in the environment of this very command."""
    text = given.get(name, os.environ.get(name))
    return default if text is None else text.strip().lower() in ("1", "true")
