"""Structured output: a request whose grammar is being compiled waits, and its tokens advance the grammar.

The grammar itself is the engine's (llguidance, xgrammar); the scheduler only knows this protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["MaskedOutput", "StructuredOutput"]


class StructuredOutput(Protocol):
    """A request's grammar, compiled elsewhere and perhaps not ready yet."""

    @property
    def is_ready(self) -> bool:
        """The grammar has been compiled."""

    def accept_tokens(self, tokens: Sequence[int]) -> bool:
        """Advance by sampled tokens; False if the grammar does not allow them."""

    def validate_tokens(self, tokens: Sequence[int]) -> list[int]:
        """The leading draft tokens that the grammar allows, without advancing."""


class MaskedOutput(StructuredOutput, Protocol):
    """A grammar that can also tell workers what to sample; an engine core takes no other."""

    def bitmask(self, drafts: Sequence[int]) -> npt.NDArray[np.int32]:
        """Tokens allowed next, and after each of ``drafts``, as bits; shape ``[1 + len(drafts), ceil(vocab / 32)]``.

        Nothing advances. A draft that is not allowed, and -1, leave the rows after it unrestricted: nobody gets there.
        """
