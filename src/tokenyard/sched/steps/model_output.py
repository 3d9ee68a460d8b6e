"""What comes back from the workers: sampled tokens, drafts for the next step, and what a KV connector has done.

Columns over the step's scheduled requests, in scheduling order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenyard.columns import IntArray, anywhere, as_whole_numbers
from tokenyard.config import MAX_COUNT
from tokenyard.errors import shown
from tokenyard.sched.steps.aux_output import ModelAuxOutput

__all__ = ["ConnectorOutput", "DraftTokens", "ModelOutput"]


class DraftTokens(NamedTuple):
    """Drafts that a model runner proposes after a step, aligned with the step's requests."""

    tokens: IntArray
    """Shape ``[n, width]``, width at most num_speculative_tokens."""
    counts: IntArray
    """Drafts per request, shape ``[n]``."""

    @classmethod
    def from_lists(cls, drafts: Sequence[Sequence[int]]) -> DraftTokens:
        """From one list of drafts per scheduled request."""
        return cls(*_padded(drafts))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorOutput:
    """What the workers report after a step."""

    finished_sending: frozenset[str] = frozenset()
    """Requests whose blocks were kept after their end until they had been read: they can be freed."""
    finished_receiving: frozenset[str] = frozenset()
    """Requests whose load is complete, successfully or not."""
    invalid_block_ids: frozenset[int] = frozenset()
    """Blocks whose load failed."""
    completed_jobs: frozenset[int] = frozenset()
    """Jobs of the connector's own metadata that are over, successfully or not."""


class ModelOutput:
    """What the model returned for one step: sampled tokens, aligned with ``SchedulerOutput.req_ids``.

    ``sampled`` has shape ``[n, width]``; row ``i`` holds ``num_sampled[i]`` tokens, then padding. A prefill chunk has
    none. Whole numbers of any width will do; they are kept as int64. Raises ValueError for a token that is no id from 0
    to 2**31 - 1 (padding may hold anything), for a count that is none of its row's, and for what is no array of whole
    numbers.
    """

    __slots__ = ("connector", "extras", "num_sampled", "sampled")

    def __init__(
        self,
        sampled: IntArray,
        num_sampled: IntArray,
        connector: ConnectorOutput | None = None,
        extras: ModelAuxOutput | None = None,
    ) -> None:
        for field, column in (("sampled", sampled), ("num_sampled", num_sampled)):
            if not isinstance(column, np.ndarray) or column.dtype.kind not in "iu":
                raise ValueError(f"{field} = {shown(column)}: give an array of whole numbers")
        # What is asked of columns in every step looks at their bytes: all are of one kind.
        sampled, num_sampled = as_whole_numbers(sampled), as_whole_numbers(num_sampled)
        if sampled.ndim != 2 or num_sampled.shape != sampled.shape[:1]:
            raise ValueError(f"sampled {sampled.shape} and num_sampled {num_sampled.shape} do not belong together")
        _check_counts(num_sampled, sampled.shape[1])
        _check_ids(sampled, num_sampled)
        self.sampled = sampled
        self.num_sampled = num_sampled
        self.connector = connector
        """What the workers' half of a KV connector reports."""
        self.extras = extras
        """What there is beside tokens; None: nothing."""

    @classmethod
    def from_lists(
        cls,
        tokens: Sequence[Sequence[int]],
        connector: ConnectorOutput | None = None,
        extras: ModelAuxOutput | None = None,
    ) -> ModelOutput:
        """From one list of tokens per scheduled request; ValueError for an id below 0 or above 2**31 - 1."""
        sampled, num_sampled = _padded(tokens)
        return cls(sampled, num_sampled, connector, extras)

    def check_chunks(self, req_ids: Sequence[str], is_prefill_chunk: npt.NDArray[np.bool_] | None) -> None:
        """ValueError if a prefill chunk brings a token: what follows its last position is known already."""
        if is_prefill_chunk is None:
            return
        sampled = is_prefill_chunk & (self.num_sampled > 0)
        if anywhere(sampled):
            row = int(sampled.argmax())
            fix = "its prompt is not computed to its end in this step: give no token for it"
            raise ValueError(f"row {row} holds {self.num_sampled[row]} tokens for request {req_ids[row]!r}, but {fix}")


def _padded(lists: Sequence[Sequence[int]]) -> tuple[IntArray, IntArray]:
    """Ragged token lists as a padded array of shape ``[n, width]`` and their lengths."""
    lengths = np.fromiter(map(len, lists), np.int64, len(lists))
    width = int(lengths.max()) if len(lists) else 1
    padded = np.full((len(lists), max(width, 1)), -1, np.int64)
    for row, values in enumerate(lists):
        ids = np.asarray(values)
        if ids.size and (ids.ndim != 1 or ids.dtype.kind not in "iu"):
            raise ValueError(f"row {row} = {shown(values)}: give whole numbers from 0 to {MAX_COUNT}")
        padded[row, : ids.size] = ids
    return padded, lengths


def _check_counts(counts: IntArray, width: int) -> None:
    """ValueError unless every row has room for its tokens."""
    # As in _check_ids: asked in every step, and negative numbers are the largest.
    if not counts.size or 0 <= counts.item(row := int(counts.view(np.uint64).argmax())) <= width:
        return
    raise ValueError(f"num_sampled[{row}] = {counts[row]}: give 0 to {width}, the width of sampled")


def _check_ids(tokens: IntArray, counts: IntArray) -> None:
    """ValueError unless all tokens but the padding can be token ids."""
    # Asked in every step. As unsigned numbers those below 0 are the largest; argmax costs less than max on few entries.
    if not tokens.size or 0 <= tokens.item(tokens.view(np.uint64).argmax()) <= MAX_COUNT:
        return
    wrong = ((tokens < 0) | (tokens > MAX_COUNT)) & (np.arange(tokens.shape[1]) < counts[:, None])
    if anywhere(wrong):
        row, column = np.argwhere(wrong)[0].tolist()
        raise ValueError(f"row {row} holds token {tokens[row, column]}: give ids from 0 to {MAX_COUNT}, or no token")
