"""Grammars in a step: which tokens the workers may sample next."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenyard.sched.steps.scheduler_output import SchedulerOutput
from tokenyard.structured import MaskedOutput, StructuredOutput

__all__ = ["GrammarOutput", "grammar_bitmask", "has_structured_output_requests", "pending_structured_output_tokens"]


class GrammarOutput(NamedTuple):
    """What workers need to sample by the grammars of a step."""

    structured_output_request_ids: list[str]
    """Requests that sample by a grammar, in scheduling order."""
    grammar_bitmask: npt.NDArray[np.int32]
    """One bit per token id. A row per position: each request has one, and one more after each of its drafts."""


def _rows(output: SchedulerOutput) -> list[tuple[int, StructuredOutput]]:
    """Rows that sample by a grammar in this step."""
    chunks = output.is_prefill_chunk
    return [
        (row, request.structured_output)
        for row, request in enumerate(output.requests)
        if request.structured_output is not None and (chunks is None or not chunks[row])
    ]


def has_structured_output_requests(output: SchedulerOutput) -> bool:
    """Whether any request samples by a grammar in this step."""
    return bool(_rows(output))


def pending_structured_output_tokens(output: SchedulerOutput) -> bool:
    """Whether the bitmask has to wait for the output of a step in flight, whose tokens advance a grammar."""
    waits = output.num_placeholders
    return waits is not None and any(waits[row] > 0 for row, _ in _rows(output))


def grammar_bitmask(output: SchedulerOutput) -> GrammarOutput | None:
    """Tokens that grammars allow in this step; None if nobody samples by one.

    TypeError for a grammar without ``bitmask`` (:class:`~tokenyard.structured.MaskedOutput`).
    """
    ids, masks = [], []
    drafts = output.scheduled_spec_decode_tokens
    for row, grammar in _rows(output):
        request_id = output.requests[row].request_id
        if not isinstance(grammar, MaskedOutput):
            raise TypeError(f"the grammar of {request_id!r} has no bitmask()")
        ids.append(request_id)
        masks.append(grammar.bitmask(drafts.get(request_id, [])))
    return GrammarOutput(ids, np.concatenate(masks)) if ids else None
