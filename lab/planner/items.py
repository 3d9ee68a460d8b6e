"""Prompts with so many pictures, videos or sounds: does vLLM take them, as recorded, and does ``tokenyard``?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tokenyard.deploy.vllm_serve.models import items_allowed

LINES: tuple[dict[str, Any], ...] = (
    {},
    {"image": 0},
    {"image": 3, "video": 2, "audio": 4},
    {"image": {"count": 2}, "vision_chunk": 1},
    {"video": {"num_frames": 8}, "audio": 1},
    {"image": 5000, "video": 5000, "audio": 5000},
)
"""What ``--limit-mm-per-prompt`` may say."""
COUNTS = (1, 2, 3, 4, 5, 6, 128, 129, 512, 513, 999, 1000, 5001)
"""Items of one kind in a prompt."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt with items of one kind, and whether both take it."""

    architecture: str
    line: str | None
    kind: str
    count: int
    theirs: bool
    ours: bool


def prompts(architectures: dict[str, Any]) -> Iterator[Prompt]:
    """Every prompt that vLLM was asked about, by architecture, line, kind and count."""
    for name, answer in architectures.items():
        for line, kinds in zip(LINES, answer.get("taken", ()), strict=False):
            said = json.dumps(line) if line else None
            for kind, taken in kinds.items():
                allowed = items_allowed(name, kind, said)
                for count, theirs in zip(COUNTS, taken, strict=True):
                    yield Prompt(name, said, kind, count, theirs, count <= allowed)
