"""What a side of the comparison of engines is asked, and what it answers."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from side import answer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Setup", "serve", "setup"]


class Setup(NamedTuple):
    """How every side is set up."""

    model: str
    """Folder of the checkpoint."""
    dtype: str
    threads: int
    num_blocks: int
    block_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int


def setup() -> Setup:
    """As the driver has given it."""
    return Setup(**json.loads(sys.argv[1]))


def serve(
    generate: Callable[[Sequence[list[int]], Sequence[int]], list[list[int]]],
    facts: Callable[[], dict[str, Any]] = dict,
) -> None:
    """Answer until stdin ends: the seconds from the first prompt to the last token, and the tokens.

    ``generate`` takes prompts and how many tokens each is continued by; ``facts`` says what else is known of the run.
    """

    def reply(order: dict[str, Any]) -> dict[str, Any]:
        begun = time.perf_counter()
        tokens = generate(order["prompts"], order["max_tokens"])
        return {"seconds": time.perf_counter() - begun, "tokens": tokens, **facts()}

    answer(reply)
