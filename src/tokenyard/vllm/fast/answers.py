"""What vLLM's workers return, as columns in the order of the step."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from tokenyard.sched.steps.aux_output import ModelAuxOutput
from tokenyard.sched.steps.model_output import DraftTokens, ModelOutput

__all__ = ["answer_rows", "translated_answer", "translated_drafts"]

_NOTHING = ModelOutput(np.zeros((0, 1), np.int64), np.zeros(0, np.int64))


def answer_rows(req_ids: Sequence[str], answer: Any) -> list[int] | None:
    """Row of the workers' answer for each request of the step; None: they are the same.

    Workers keep a batch of their own, in which a request stays where it is while others come and go.
    """
    if tuple(answer.req_ids) == tuple(req_ids):
        return None
    row_of = answer.req_id_to_index
    return [row_of[request_id] for request_id in req_ids]


def translated_answer(req_ids: Sequence[str], answer: Any, rows: list[int] | None) -> ModelOutput:
    """A ``ModelRunnerOutput`` for the requests ``req_ids`` of a step."""
    if not req_ids:
        return _NOTHING
    count = len(req_ids)
    lists = answer.sampled_token_ids
    extras = None
    if answer.pooler_output:
        results = answer.pooler_output
        extras = ModelAuxOutput(pooler_output=results if rows is None else [results[row] for row in rows])
    if not lists:
        return ModelOutput(np.full((count, 1), -1, np.int64), np.zeros(count, np.int64), None, extras)
    if rows is not None:
        lists = [lists[row] for row in rows]
    lengths = np.fromiter(map(len, lists), np.int64, count)
    if int(lengths.max()) == int(lengths.min()) == 1:  # a token each: nearly every step
        return ModelOutput(np.fromiter(chain.from_iterable(lists), np.int64, count)[:, None], lengths, None, extras)
    return ModelOutput.from_lists(lists, None, extras)


def translated_drafts(req_ids: Sequence[str], drafts: Any) -> DraftTokens:
    """A ``DraftTokenIds`` for the requests ``req_ids`` of a step; whom it does not name has none."""
    given = dict(zip(drafts.req_ids, drafts.draft_token_ids, strict=True))
    return DraftTokens.from_lists([given.get(request_id, ()) for request_id in req_ids])
