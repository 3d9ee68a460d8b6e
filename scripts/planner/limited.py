"""The picture that memory is measured with where a line limits its size: by vLLM, as recorded, and by ``tokenyard``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenyard.errors import ConfigError
from tokenyard.models.images.limited import limited_tokens
from tokenyard.models.images.rules import ImageRule
from tokenyard.models.images.table import image_rule


def compared(name: str, case: Mapping[str, Any]) -> list[tuple[int | None, int | None]]:
    """For every drawn size, the embeddings that ``tokenyard`` counts and those of vLLM."""
    rule = image_rule({**case["config"], "architectures": [name]}, case["processor"])
    return [(_tokens(rule, wide, high), theirs) for wide, high, _, _, theirs in case["limited"]]


def _tokens(rule: ImageRule, wide: int | None, high: int | None) -> int | None:
    try:
        return limited_tokens(rule, wide, high)
    except ConfigError:
        return None
