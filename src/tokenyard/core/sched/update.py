"""The second half of a step: sampled tokens become output, stops are found, blocks are sealed."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec
import numpy as np

from tokenyard.core.columns import IntArray, all_ones, counting, either, frozen, int64s, rows_above
from tokenyard.core.request import FinishReason, Request, RequestStatus
from tokenyard.core.sched.context import SchedulerContext
from tokenyard.core.sched.features.per_slot import RoutedExperts
from tokenyard.core.sched.outputs import NO_AUX, ModelAuxOutput, ModelOutput, RequestAuxOutput, TokenLogprobs
from tokenyard.core.sched.repetition import Repetitions, repeats
from tokenyard.core.sched.scheduler_output import SchedulerOutput, StepInFlight
from tokenyard.core.table import NO_TOKEN
from tokenyard.core.table_rows import gather, rows_among, rows_from

# ---------------------------------------------------------------------------------------------------------------------
# Acceptance of sampled tokens: append, seal full blocks, find who stops.
#
# One stroke takes at most one token per request; a step that sampled several (accepted drafts) takes several strokes,
# each over the requests that go on.


def stop_status(
    request: Request, token: int, num_tokens: int, max_model_len: int, *, min_tokens_bar_stops: bool = True
) -> RequestStatus | None:
    """The status in which ``token``, which made the request ``num_tokens`` long, ends it; None if it goes on.

    Order of the questions as in vLLM: min_tokens (or only before the last of them), end of sequence, stop tokens,
    length, repetition. Where a recorded answer ended is asked where vLLM looks at tokens.
    """
    params = request.sampling_params
    num_output = num_tokens - request.num_prompt_tokens
    below_min = num_output < params.min_tokens
    if below_min and min_tokens_bar_stops:
        return None
    if token == params.eos_token_id and not params.ignore_eos:
        return RequestStatus.FINISHED_STOPPED
    if token in params.stop_token_ids:
        request.stop_reason = token
        return RequestStatus.FINISHED_STOPPED
    if request.ends_after is not None and num_output >= request.ends_after:
        return RequestStatus.FINISHED_STOPPED
    if num_tokens >= max_model_len or num_output >= params.max_tokens:
        return RequestStatus.FINISHED_LENGTH_CAPPED
    if below_min:
        return None
    if params.repetition_detection is not None and repeats(request, num_tokens, params.repetition_detection):
        request.stop_reason = "repetition_detected"
        return RequestStatus.FINISHED_REPETITION
    return None


class Acceptance:
    """Writes tokens into the request table."""

    def __init__(self, context: SchedulerContext) -> None:
        self._table = context.table
        self._stop_status = partial(
            stop_status,
            max_model_len=context.config.max_model_len,
            min_tokens_bar_stops=context.config.profile.min_tokens_bar_stops,
        )
        self._repetitions = Repetitions(context.table)
        self._on_seal = context.kv.on_seal
        """Notified of blocks that have just become full, with their tokens (to hash them)."""

    def stroke(self, slots: IntArray, tokens: IntArray) -> list[tuple[int, RequestStatus]]:
        """Append ``tokens[i]`` to the request in ``slots[i]``; returns rows that stop, with their status."""
        table = self._table
        num_tokens, full = table.append(slots, tokens)
        if len(full):
            self._on_seal(table.seal(gather(slots, full)))
        # A superset of the rows that stop, by columns; stop_status has the rule.
        may_stop = rows_from(num_tokens, table.stop_at, slots)
        if table.num_with_eos:
            may_stop = either(may_stop, rows_among(tokens, table.eos, slots))
        if table.num_with_stop_ids:
            may_stop = either(may_stop, rows_among(tokens, table.stop_ids, slots))
        if table.num_any_may_stop:
            rows = table.any_may_stop[slots].nonzero()[0]
            may_stop = either(may_stop, self._repetitions.may_stop(rows, slots, tokens, num_tokens))
        return self._stopped(may_stop, slots, tokens, num_tokens) if len(may_stop) else []

    def _stopped(
        self, rows: IntArray, slots: IntArray, tokens: IntArray, num_tokens: IntArray
    ) -> list[tuple[int, RequestStatus]]:
        stopped = []
        for row, request in zip(rows.tolist(), self._table.tenants(slots[rows]), strict=True):
            status = self._stop_status(request, int(tokens[row]), int(num_tokens[row]))
            if status is not None:
                stopped.append((row, status))
        return stopped

    def append_detached(self, request: Request, token: int) -> RequestStatus | None:
        """The same for a request that lost its slot while the step was in flight."""
        request.append_token(token)
        return self._stop_status(request, token, request.num_tokens)


# ---------------------------------------------------------------------------------------------------------------------
# From the extras of a model's answer to those of its requests' outputs, and the end of pooling requests.


def _cut(logprobs: TokenLogprobs, count: int) -> TokenLogprobs:
    """Keep those of the accepted tokens alone: a stop may come before the last one."""
    return TokenLogprobs(logprobs.token_ids[:count], logprobs.logprobs[:count], logprobs.ranks[:count])


class AuxUpdate:
    """From the extras of a model's answer to those of outputs; a step without any pays for two questions."""

    def __init__(self, routing: RoutedExperts | None, *, resets_drop_pooled: bool = False) -> None:
        """``resets_drop_pooled``: a pooler's result in flight when a reset preempts its request is dropped."""
        self._routing = routing
        self._resets_drop_pooled = resets_drop_pooled

    def run(
        self,
        step: StepInFlight,
        model: ModelOutput,
        counts: IntArray,
        endings: dict[int, RequestStatus],
        lost: Sequence[Request],
    ) -> Mapping[int, RequestAuxOutput]:
        """Extras by row; pooling requests that have their result are added to ``endings``."""
        if model.extras is None and self._routing is None:
            return NO_AUX
        given = model.extras if model.extras is not None else ModelAuxOutput()
        pooled = self._end_pooled(step.requests, given, endings, lost) if given.pooler_output else {}
        experts = self._routing.arrived(step, given.routed_experts, counts) if self._routing is not None else {}
        nans = given.num_nans_in_logits
        corrupt = {row for row in counts.nonzero()[0].tolist() if step.requests[row].request_id in nans} if nans else ()
        logprobs = {row: _cut(each, int(counts[row])) for row, each in given.logprobs.items() if counts[row]}
        prompts = {row: each for row, each in given.prompt_logprobs.items() if counts[row]}
        return {
            row: RequestAuxOutput(
                pooled.get(row),
                experts.get(row),
                nans.get(step.requests[row].request_id, 0),
                logprobs=logprobs.get(row),
                prompt_logprobs=prompts.get(row),
            )
            for row in sorted({*pooled, *experts, *corrupt, *logprobs, *prompts})
        }

    def _end_pooled(
        self,
        requests: Sequence[Request],
        given: ModelAuxOutput,
        endings: dict[int, RequestStatus],
        lost: Sequence[Request],
    ) -> dict[int, object]:
        """Results of pooling requests, by row: each ends with its result."""
        pooled = {}
        for row, (request, result) in enumerate(zip(requests, given.pooler_output, strict=True)):
            if request.pooling_params is None or result is None or request.status.is_finished or request in lost:
                continue
            if request.async_steps_to_discard:
                request.async_steps_to_discard -= 1
                if self._resets_drop_pooled:  # made before the reset: with weights that may have changed
                    continue
            pooled[row] = result
            endings[row] = RequestStatus.FINISHED_STOPPED
        return pooled


# ---------------------------------------------------------------------------------------------------------------------
# The other half of a step: what the model sampled becomes tokens, stops and outputs.

RowEndings = dict[int, RequestStatus]
"""Row of the step -> finished status."""


class Accepted(msgspec.Struct, frozen=True):
    """Requests that produced something in a step, in scheduling order; see ``EngineOutputs``."""

    requests: Sequence[Request]
    req_ids: Sequence[str]
    tokens: IntArray
    num_tokens: IntArray
    finish_reasons: dict[int, FinishReason]
    stop_reasons: dict[int, int | str]
    extras: Mapping[int, RequestAuxOutput] = NO_AUX

    def with_failed(self, failed: Sequence[Request]) -> Accepted:
        """The same with requests that ended as errors, without a token."""
        n, more = len(self.requests), len(failed)
        return Accepted(
            [*self.requests, *failed],
            [*self.req_ids, *[request.request_id for request in failed]],
            np.concatenate((self.tokens, np.full((more, self.tokens.shape[1]), NO_TOKEN, np.int64))),
            np.concatenate((self.num_tokens, np.zeros(more, np.int64))),
            self.finish_reasons | dict.fromkeys(range(n, n + more), FinishReason.ERROR),
            self.stop_reasons,
            self.extras,
        )


class OutputUpdate:
    """Takes in model outputs."""

    def __init__(
        self, context: SchedulerContext, finish: Callable[[list[tuple[Request, RequestStatus]], float], None]
    ) -> None:
        self._kv = context.kv
        self._table = context.table
        self._acceptance = Acceptance(context)
        self._finish = finish
        self._grammars = context.grammars
        features, profile = context.features, context.config.profile
        self._speculation = features.speculation
        self._placeholders = features.placeholders
        self._encoder = features.encoder
        self._publishes_at_once = self._placeholders is not None or (
            self._speculation is not None and profile.accepted_drafts_publish_at_once
        )
        self._stale_changes_nothing = profile.stale_outputs_change_nothing
        self._takes_back_rest = profile.stops_take_back_rest and self._speculation is not None
        self._aux_update = AuxUpdate(features.routing, resets_drop_pooled=profile.stale_outputs_change_nothing)
        self._awaiting_first: set[Request] = set()

    def expect_first_token(self, request: Request) -> None:
        """The request was admitted; its first output token will be stamped."""
        if request.times.first_token is None:
            self._awaiting_first.add(request)

    def run(self, step: StepInFlight, model: ModelOutput, now: float, lost: Sequence[Request] = ()) -> Accepted:
        """Append tokens, end requests; see :class:`Accepted`. What was sampled for ``lost`` requests is void."""
        plan, requests, table = step.plan, step.requests, self._table
        endings: RowEndings = {}
        slots, counts = plan.slots, model.num_sampled
        everyone_here = table.version == step.table_version and not lost
        if not everyone_here:
            slots, counts = self._survivors(requests, counts, lost)
        producing = counting(len(counts)) if all_ones(counts) else rows_above(counts, 0)
        # Nearly always all rows with a token; those whose requests have lost their slot are taken in one by one.
        here = producing if everyone_here else gather(producing, rows_above(_of(producing, slots), -1))
        at, arrived = _of(here, slots), _of(here, counts)
        self._take_back_rejected(at, here, plan, counts)
        self._begin_releases(step)
        counts = self._accept(slots, model, counts, here, endings)
        self._settle(at, arrived, _of(here, counts) if endings else arrived)
        are_apart = len(here) < len(producing)
        if are_apart:
            counts = self._accept_detached(requests, slots, plan, model, counts, producing, endings)
        if table.num_with_grammar or are_apart:
            self._advance_grammars(requests, model, counts, producing, endings)
        if self._awaiting_first:
            self.stamp_first_tokens(now)
        extras = self._aux_update.run(step, model, counts, endings, lost)
        accepted = self._collect(step, model, counts, producing, endings, extras, now)
        if self._encoder is not None:
            self._encoder.releases.end()
        return accepted

    def _begin_releases(self, step: StepInFlight) -> None:
        if self._encoder is not None:
            discarded = step.discarded if self._stale_changes_nothing else None
            self._encoder.releases.begin(step.requests, discarded or frozenset())

    def _survivors(
        self, requests: Sequence[Request], counts: IntArray, lost: Sequence[Request]
    ) -> tuple[IntArray, IntArray]:
        """Some requests ended, were reset, or lost or changed their slot, while the step was in flight."""
        counts = counts.copy()
        slots: list[int] = []
        request: Request
        for row, request in enumerate(requests):
            slots.append(request.slot)
            if request.status.is_finished or request in lost:
                counts[row] = 0
            elif request.async_steps_to_discard > 0 and counts[row]:
                request.async_steps_to_discard -= 1
                counts[row] = 0
        return int64s(slots), counts

    def _rejected(self, rows: IntArray, plan: SchedulerOutput, counts: IntArray) -> IntArray | None:
        """Drafts of these rows, all of which have tokens, that the model has rejected; None: there were none."""
        if self._speculation is None or plan.drafts is None:
            return None
        invalid = plan.num_invalid_spec_tokens
        drafted, sampled = _of(rows, plan.drafts.counts), _of(rows, counts)
        return self._speculation.rejected(drafted, sampled, None if invalid is None else _of(rows, invalid))

    def _take_back_rejected(self, slots: IntArray, rows: IntArray, plan: SchedulerOutput, counts: IntArray) -> None:
        """Positions of rejected drafts were computed for nothing; ``slots`` are those of the rows."""
        rejected = self._rejected(rows, plan, counts)
        if rejected is not None:
            self._table.take_back(slots, rejected)
            if self._placeholders is not None:
                self._placeholders.replace(slots, rejected)

    def _settle(self, slots: IntArray, arrived: IntArray, taken: IntArray) -> None:
        """Tokens have come, and those ``taken`` were accepted: they replace placeholders, and blocks can be found."""
        if taken is not arrived:
            if self._takes_back_rest:  # tokens behind a stop were computed for nothing
                self._table.take_back(slots, arrived - taken)
            else:
                arrived = taken
        if self._placeholders is not None:
            self._placeholders.replace(slots, arrived)
        if self._publishes_at_once:
            self._kv.publish_computed(slots)

    def _accept(
        self, slots: IntArray, model: ModelOutput, counts: IntArray, active: IntArray, endings: RowEndings
    ) -> IntArray:
        """One stroke per token position over the rows that still go on; returns the tokens accepted per row.

        ``active`` are the rows with a token; each has at least one accepted.
        """
        accepted, sampled = counts, model.sampled
        columns = (sampled.reshape(-1),) if len(sampled) == sampled.size else np.ascontiguousarray(sampled.T)
        for column, tokens in enumerate(columns, 1):
            if not len(active):
                break
            stopped = self._acceptance.stroke(_of(active, slots), _of(active, tokens))
            if stopped:
                accepted = accepted.copy() if accepted is counts else accepted
                for at, status in stopped:
                    row = int(active[at])
                    endings[row] = status
                    accepted[row] = column
            if column < len(columns):
                active = gather(active, rows_above(_of(active, accepted), column))
        return accepted

    def _accept_detached(
        self,
        requests: Sequence[Request],
        slots: IntArray,
        plan: SchedulerOutput,
        model: ModelOutput,
        counts: IntArray,
        producing: IntArray,
        endings: RowEndings,
    ) -> IntArray:
        """The same for requests that lost their slot while the step was in flight."""
        accepted = counts.copy()
        rows = producing[slots[producing] < 0]
        rejected = self._rejected(rows, plan, counts)
        for i, row in enumerate(rows.tolist()):
            request, arrived = requests[row], int(counts[row])
            for column in range(arrived):
                status = self._acceptance.append_detached(request, int(model.sampled[row, column]))
                if status is not None:
                    endings[row] = status
                    accepted[row] = column + 1
                    break
            if self._placeholders is not None:
                num_wrong = 0 if rejected is None else int(rejected[i])
                num_taken = arrived if self._takes_back_rest else int(accepted[row])
                self._placeholders.replace_detached(request, num_wrong + num_taken)
        return accepted

    def _advance_grammars(
        self,
        requests: Sequence[Request],
        model: ModelOutput,
        counts: IntArray,
        producing: IntArray,
        endings: RowEndings,
    ) -> None:
        """Sampled tokens advance their grammars; one that the grammar does not allow ends the request as an error."""
        request: Request
        for row in producing.tolist():
            request = requests[row]
            if request.structured_output is not None:
                tokens = model.sampled[row, : counts[row]].tolist()
                if not self._grammars.accepts(request, tokens):
                    endings[row] = RequestStatus.FINISHED_ERROR

    def stamp_first_tokens(self, now: float) -> None:
        """Note the moment of admitted requests that have got their first output token."""
        for request in list(self._awaiting_first):
            if request.num_output_tokens > 0 or request.status.is_finished:
                if request.times.first_token is None and request.num_output_tokens > 0:
                    request.times.first_token = now
                self._awaiting_first.discard(request)

    def _collect(
        self,
        step: StepInFlight,
        model: ModelOutput,
        counts: IntArray,
        producing: IntArray,
        endings: RowEndings,
        extras: Mapping[int, RequestAuxOutput],
        now: float,
    ) -> Accepted:
        requests: Sequence[Request] = step.requests
        req_ids: Sequence[str] = step.plan.req_ids
        if extras:
            # A pooling request has news without a token.
            producing = np.union1d(producing, list(extras))
        tokens, rows = model.sampled, None
        if len(producing) < len(requests):
            rows = producing.tolist()
            requests, req_ids = [requests[row] for row in rows], [req_ids[row] for row in rows]
            tokens, counts = tokens.take(producing, axis=0), gather(counts, producing)
            extras = {bisect_left(rows, row): extra for row, extra in extras.items()} if extras else extras
        if tokens is model.sampled:
            tokens = tokens.copy()  # the executor may use its buffer again
        if counts is model.num_sampled:
            counts = counts.copy()
        finish_reasons: dict[int, FinishReason] = {}
        stop_reasons: dict[int, int | str] = {}
        if endings:
            ended: list[tuple[Request, RequestStatus]] = []
            for row in sorted(endings):
                at, status = row if rows is None else bisect_left(rows, row), endings[row]
                request, reason = requests[at], FinishReason.of(status)
                assert reason is not None
                finish_reasons[at] = reason
                if request.stop_reason is not None:
                    stop_reasons[at] = request.stop_reason
                ended.append((request, status))
            self._finish(ended, now)
        return Accepted(requests, req_ids, frozen(tokens), frozen(counts), finish_reasons, stop_reasons, extras)


def _of(rows: IntArray, column: IntArray) -> IntArray:
    """The entries of these rows of a step, which mostly are all."""
    return column if len(rows) == len(column) else gather(column, rows)
