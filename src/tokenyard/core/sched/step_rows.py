"""The rows of a step: its requests, and a number of each in every column."""

from __future__ import annotations

from array import array

import numpy as np

from tokenyard.core.arrays import IntArray
from tokenyard.core.request import Request
from tokenyard.core.rows import Int64s, Numbers

__all__ = ["COMPUTED", "IN_FLIGHT", "KNOWN", "NEW", "PROMPT", "SAMPLES", "SLOT", "Names", "Rows"]

SLOT, NEW, COMPUTED, KNOWN, PROMPT, SAMPLES, IN_FLIGHT = range(7)
"""Places of the columns in ``Rows.numbers``."""


class Names:
    """The ids of a step's requests, made when they are first asked for; steps of the same requests share them."""

    requests: list[Request]
    ids: tuple[str, ...] | None

    def __init__(self, requests: list[Request]) -> None:
        self.requests = requests
        self.ids = None

    def tuple_of_ids(self) -> tuple[str, ...]:
        """Return them, in scheduling order."""
        if self.ids is None:
            self.ids = tuple([request.request_id for request in self.requests])
        return self.ids


_ZERO = array("q", [0])


class Rows:
    """The rows of a step: its requests, and a number of each in every column.

    ``numbers`` holds the columns one behind the other, ``size`` entries each: slot, tokens of this step, computed
    tokens before it, known tokens, prompt tokens, whether a token is sampled, output tokens in flight.
    """

    requests: list[Request]
    size: int
    numbers: Int64s
    memory: Numbers
    """The array that ``numbers`` looks into."""
    num_chunks: int
    """Rows in which nothing is sampled."""
    context: int
    """Sum of the computed tokens; the sums below are over rows of more than one token alone, which are prompts."""
    num_prompts: int
    prompt_tokens: int
    prompt_context: int
    prompt_products: int
    """Sum of tokens times computed tokens."""
    prompt_squares: int
    """Sum of the squares of tokens."""
    names: Names

    def __init__(self, requests: list[Request], names: Names) -> None:
        self.requests = requests
        self.names = names
        self.size = len(requests)
        self.memory = _ZERO * (7 * self.size)
        self.numbers = self.memory
        self.num_chunks = self.context = 0
        self.num_prompts = self.prompt_tokens = self.prompt_context = self.prompt_products = self.prompt_squares = 0

    def count_prompt(self, tokens: int, computed: int) -> None:
        """Add a row of more than one token to the sums."""
        self.num_prompts += 1
        self.prompt_tokens += tokens
        self.prompt_context += computed
        self.prompt_products += tokens * computed
        self.prompt_squares += tokens * tokens

    def prefill_blocks(self, count: int, block_size: int) -> int:
        """Return how many blocks the rows of more than one token take, of the first ``count``."""
        blocks = 0
        for i in range(count):
            tokens = self.numbers[NEW * self.size + i]
            if tokens > 1:
                blocks += -(-tokens // block_size)
        return blocks

    def column(self, place: int) -> IntArray:
        """Return a column as an array, shape ``[n]``, read-only."""
        whole = np.frombuffer(self.memory, np.int64)
        whole.flags.writeable = False
        return whole[place * self.size : (place + 1) * self.size]
