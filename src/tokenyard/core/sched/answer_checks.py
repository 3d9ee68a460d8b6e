"""Whether an executor's answer belongs to its step: asked before anything changes, so that a mistake costs nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from tokenyard.core.arrays import IntArray, any_true, are_within, as_whole_numbers
from tokenyard.core.config import MAX_COUNT
from tokenyard.core.request import Request, RequestStatus
from tokenyard.core.sched.context import SchedulerContext
from tokenyard.core.sched.features.grammars import GrammarGate
from tokenyard.core.sched.features.transfers import Transfers
from tokenyard.core.sched.in_flight import StepInFlight, StepsInFlight
from tokenyard.core.sched.outputs import ConnectorOutput, DraftTokens, ModelAuxOutput, ModelOutput
from tokenyard.errors import shown

_KNOWN_TO_WORKERS = -1


class AnswerChecks:
    """Knows what an answer may name."""

    def __init__(self, context: SchedulerContext, requests: Mapping[str, Request]) -> None:
        self._transfers: Transfers | None = context.features.transfers
        self._verifies_drafts: bool = context.features.speculation is not None
        """A step brings the drafts that were accepted and one token more."""
        self._requests: Mapping[str, Request] = requests
        self._grammars: GrammarGate = context.grammars
        self._num_blocks: int = context.cache_config.num_gpu_blocks

    def check(self, step: StepInFlight, model: object) -> None:
        """Raise ValueError unless ``model`` is an answer to ``step``."""
        if not isinstance(model, ModelOutput):
            raise ValueError(f"the answer to step {step.plan.step} is {shown(model)}: give a ModelOutput")
        none_is_missing = _check_tokens(step, model, self._verifies_drafts)
        if model.extras is not None:
            _check_extras(step, model.extras)
        if model.connector is not None and self._transfers is not None:
            self._check_report(model.connector, self._transfers)
        if not none_is_missing:
            self._check_none_is_missing(step, model)

    def _check_none_is_missing(self, step: StepInFlight, model: ModelOutput) -> None:
        """Raise ValueError for a row without a token that has to have one: its request would wait for it for ever."""
        missing = model.num_sampled == 0
        if step.plan.is_prefill_chunk is not None:
            missing &= ~step.plan.is_prefill_chunk
        for row in missing.nonzero()[0].tolist():
            request = step.requests[row]
            if request.pooling_params is None and not self._is_void(request, model, int(step.plan.num_new_tokens[row])):
                sampled = f"no token for request {request.request_id!r}, all of whose known tokens are computed"
                fix = "give at least one, or name it in extras.failed"
                raise ValueError(f"the model returned {sampled} in step {step.plan.step}: {fix}")

    def _is_void(self, request: Request, model: ModelOutput, granted: int) -> bool:
        """Whether nothing that the model samples for the request is taken in: it has ended, or ends or is rewound."""
        if request.status.is_finished or self._grammars.has_failed(request):
            return True
        if model.extras is not None and request.request_id in model.extras.failed:
            return True
        if model.connector is None or self._transfers is None:
            return False
        return self._transfers.relies_on(request, model.connector.invalid_block_ids, granted)

    def _check_report(self, report: ConnectorOutput, transfers: Transfers) -> None:
        """Raise ValueError unless every request and block that the workers' half of a connector names can be meant."""
        if not isinstance(report, ConnectorOutput):
            raise ValueError(f"connector = {shown(report)}: give a ConnectorOutput")
        for request_id in report.finished_receiving:
            request = self._requests.get(request_id)
            if request is not None and request.status is not RequestStatus.WAITING_FOR_REMOTE_KVS:
                raise ValueError(f"finished_receiving names request {request_id!r}, which waits for no load")
            _check_known(request_id, "finished_receiving", request is not None or transfers.knows(request_id))
        for request_id in report.finished_sending:
            _check_known(request_id, "finished_sending", transfers.knows(request_id))
        wrong = _no_block(report.invalid_block_ids, self._num_blocks)
        if wrong is not None:
            raise ValueError(f"invalid_block_ids holds {shown(wrong)}: give block ids from 0 to {self._num_blocks - 1}")


def _check_tokens(step: StepInFlight, model: ModelOutput, verifies_drafts: bool) -> bool:
    """Raise ValueError unless ``model`` has a row per scheduled request, with no more tokens than it can have.

    Returns whether every row has a token that is no prefill chunk's, as nearly always.
    """
    plan, counts = step.plan, model.num_sampled
    if len(counts) != len(step.requests):
        raise ValueError(f"the model returned {len(counts)} rows for {len(step.requests)} scheduled requests")
    if not step.columns.num_chunks:
        are_as_due = model.one_each or bool(np.count_nonzero(counts) == len(counts))
    else:
        are_as_due = not any_true(counts.astype(np.bool_) == plan.is_prefill_chunk)
    if not are_as_due:
        model.check_chunks(plan.req_ids, plan.is_prefill_chunk)
    # Without any of these, tokens beyond the first are known tokens that have still to be computed.
    if model.width > 1 and (verifies_drafts or plan.drafts is not None or plan.is_async):
        wrong = (counts if plan.drafts is None else counts - plan.drafts.counts) > 1
        if any_true(wrong):
            row = int(wrong.argmax())
            drafted = 0 if plan.drafts is None else int(plan.drafts.counts[row])
            sampled = f"{counts[row]} tokens for request {plan.req_ids[row]!r}"
            raise ValueError(f"the model returned {sampled}, with {drafted} drafts: give at most {drafted + 1}")
    return are_as_due


def _check_extras(step: StepInFlight, extras: ModelAuxOutput) -> None:
    plan = step.plan
    if not isinstance(extras, ModelAuxOutput):
        raise ValueError(f"extras = {shown(extras)}: give a ModelAuxOutput")
    if len(extras.pooler_output) not in (0, len(plan.req_ids)):
        rows = f"{len(extras.pooler_output)} for {len(plan.req_ids)} scheduled requests"
        raise ValueError(f"pooler_output has {rows}: give one result per request, or none at all")
    experts = extras.routed_experts
    if experts is not None and (not isinstance(experts, np.ndarray) or experts.dtype.kind not in "iu"):
        raise ValueError(f"routed_experts = {shown(experts)}: give an array of expert numbers")
    if experts is not None and (experts.ndim != 3 or len(experts) != plan.total_num_scheduled_tokens):
        fix = f"give [tokens, layers, experts per token] for {plan.total_num_scheduled_tokens} tokens"
        raise ValueError(f"routed_experts has shape {experts.shape}: {fix}")
    for field, given in (("logprobs", extras.logprobs), ("prompt_logprobs", extras.prompt_logprobs)):
        if wrong := [row for row in given if not 0 <= row < len(plan.req_ids)]:
            raise ValueError(f"{field} names row {wrong[0]}: step {plan.step} has {len(plan.req_ids)} requests")
    for field, ids in (("failed", extras.failed), ("num_nans_in_logits", extras.num_nans_in_logits)):
        if ids and (unknown := set(ids).difference(plan.req_ids)):
            raise ValueError(f"{field} names {shown(sorted(map(str, unknown)))}: step {plan.step} has no such request")


def _check_known(request_id: str, field: str, known: bool) -> None:
    if not known:
        raise ValueError(f"{field} names {shown(request_id)}: no request of this id has blocks in transfer")


def _no_block(ids: Iterable[object], blocks: int) -> object:
    """The first of the ids that is none of a block; None if all are."""
    for each in ids:
        if not isinstance(each, int) or isinstance(each, bool) or not 0 <= each < blocks:
            return each
    return None


def checked_drafts(step: StepInFlight, drafts: DraftTokens, max_drafts: int) -> DraftTokens:
    """``drafts`` as int64. ValueError unless each scheduled request has a row of at most ``max_drafts`` token ids."""
    if not isinstance(drafts, DraftTokens):
        raise ValueError(f"the drafts after step {step.plan.step} are {shown(drafts)}: give DraftTokens")
    tokens, counts = drafts
    for field, column, dims in (("tokens", tokens, 2), ("counts", counts, 1)):
        if not isinstance(column, np.ndarray) or column.dtype.kind not in "iu" or column.ndim != dims:
            raise ValueError(f"drafts.{field} = {shown(column)}: give an array of whole numbers, {dims}-dimensional")
    tokens, counts = as_whole_numbers(tokens), as_whole_numbers(counts)
    if len(tokens) != len(step.requests) or len(counts) != len(step.requests):
        raise ValueError(f"{len(tokens)} rows of drafts, {len(counts)} counts for {len(step.requests)} requests")
    _check_counts(counts, min(tokens.shape[1], max_drafts), max_drafts, step)
    if are_within(tokens, _KNOWN_TO_WORKERS, MAX_COUNT):
        return DraftTokens(tokens, counts)
    drafted = np.arange(tokens.shape[1]) < counts[:, None]
    if any_true(wrong := drafted & ((tokens < _KNOWN_TO_WORKERS) | (tokens > MAX_COUNT))):
        row, column = np.argwhere(wrong)[0].tolist()
        fix = f"give ids from 0 to {MAX_COUNT}, or {_KNOWN_TO_WORKERS} for a draft that only the worker knows"
        raise ValueError(f"row {row} drafts token {tokens[row, column]}: {fix}")
    return DraftTokens(tokens, counts)


def checked_repeats(steps: StepsInFlight, tokens: IntArray, moments: Sequence[float], most: int) -> IntArray:
    """``tokens`` as int64. ValueError unless there is a token id for each request and moment, and ``most`` at most."""
    if not most:
        raise ValueError("no further step would decide what the last one did: take its output in, and call schedule()")
    if not 1 <= len(moments) <= most:
        raise ValueError(f"moments has {len(moments)} entries: give 1 to {most}, as num_repeats() says")
    *_, newest = steps
    shape = len(newest.requests), len(moments)
    if not isinstance(tokens, np.ndarray) or tokens.dtype.kind not in "iu" or tokens.shape != shape:
        fix = f"give an array of whole numbers of shape [requests, steps], {shape}"
        raise ValueError(f"tokens = {shown(tokens)}: {fix}")
    tokens = as_whole_numbers(tokens)
    if not are_within(tokens, 0, MAX_COUNT):
        row, column = np.argwhere((tokens < 0) | (tokens > MAX_COUNT))[0].tolist()
        wrong = f"row {row} holds token {tokens[row, column]} in repeat {column}"
        raise ValueError(f"{wrong}: give ids from 0 to {MAX_COUNT}")
    return tokens


def _check_counts(counts: IntArray, most: int, max_drafts: int, step: StepInFlight) -> None:
    if not are_within(counts, 0, most):
        row = int(((counts < 0) | (counts > most)).argmax())
        drafted = f"{counts[row]} drafts for request {step.plan.req_ids[row]!r}"
        raise ValueError(f"{drafted}: give 0 to {most} (num_speculative_tokens is {max_drafts})")
