"""Grammars in a step: which tokens the workers may sample next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenyard.request import Request
from tokenyard.sched.steps.in_flight import StepInFlight
from tokenyard.structured import MaskedOutput, StructuredOutput

__all__ = ["GrammarOutput", "grammar_bitmask", "grammar_rows"]


class GrammarOutput(NamedTuple):
    """What workers need to sample by the grammars of a step."""

    structured_output_request_ids: list[str]
    """Requests that sample by a grammar, in scheduling order."""
    grammar_bitmask: npt.NDArray[np.int32]
    """One bit per token id. A row per position: each request has one, and one more after each of its drafts."""


def grammar_rows(
    requests: Sequence[Request], chunks: npt.NDArray[np.bool_] | None
) -> list[tuple[int, StructuredOutput]]:
    """Rows of a step that sample by a grammar; ``chunks`` marks those that sample nothing."""
    return [
        (row, request.structured_output)
        for row, request in enumerate(requests)
        if request.structured_output is not None and (chunks is None or not chunks[row])
    ]


def grammar_bitmask(step: StepInFlight) -> GrammarOutput | None:
    """Tokens that grammars allow in this step; None if nobody samples by one.

    TypeError for a grammar without ``bitmask`` (:class:`~tokenyard.structured.MaskedOutput`).
    """
    ids, masks = [], []
    drafts = step.plan.scheduled_spec_decode_tokens
    for row, grammar in grammar_rows(step.requests, step.plan.is_prefill_chunk):
        request_id = step.plan.req_ids[row]
        if not isinstance(grammar, MaskedOutput):
            raise TypeError(f"the grammar of {request_id!r} has no bitmask()")
        ids.append(request_id)
        masks.append(grammar.bitmask(drafts.get(request_id, [])))
    return GrammarOutput(ids, np.concatenate(masks)) if ids else None
