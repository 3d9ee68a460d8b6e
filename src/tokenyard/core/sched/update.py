"""The second half of a step: sampled tokens become output, stops are found, blocks are sealed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec
import numpy as np

from tokenyard.core.columns import IntArray, all_ones, counting, either, frozen, rows_among, rows_from
from tokenyard.core.request import FinishReason, Request, RequestStatus
from tokenyard.core.sched.context import SchedulerContext
from tokenyard.core.sched.features.per_slot import RoutedExperts
from tokenyard.core.sched.outputs import NO_AUX, ModelAuxOutput, ModelOutput, RequestAuxOutput, TokenLogprobs
from tokenyard.core.sched.repetition import Repetitions, repeats
from tokenyard.core.sched.scheduler_output import StepInFlight
from tokenyard.core.table import NO_TOKEN

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
            self._on_seal(table.seal(slots[full]))
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
        output, requests = step.plan, step.requests
        endings: RowEndings = {}
        everyone_here = self._table.version == step.table_version
        slots, counts = output.slots, model.num_sampled
        if not everyone_here or lost:
            slots, counts = self._survivors(requests, counts, lost)
        if self._speculation is not None and output.drafts is not None:
            rejected = self._speculation.take_back_rejected(
                slots, output.drafts, model, counts, output.num_invalid_spec_tokens
            )
            if self._placeholders is not None:
                self._replace(requests, slots, rejected, may_lack_slots=not everyone_here)
        self._begin_releases(step)
        producing = counting(len(counts)) if all_ones(counts) else counts.nonzero()[0]
        arrived = counts
        counts = self._accept(requests, slots, model, counts, producing, endings, may_lack_slots=not everyone_here)
        if self._takes_back_rest and endings:
            self._take_back_rest(slots, arrived - counts)
        else:
            arrived = counts
        if self._placeholders is not None:
            self._replace(requests, slots, arrived, may_lack_slots=not everyone_here)
        if self._publishes_at_once:
            everyone = everyone_here and producing.size == len(counts)
            self._kv.publish_computed(slots if everyone else slots[(slots >= 0) & (counts > 0)])
        if self._table.num_with_grammar or not everyone_here:
            self._advance_grammars(requests, model, counts, endings)
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

    @staticmethod
    def _survivors(requests: Sequence[Request], counts: IntArray, lost: Sequence[Request]) -> tuple[IntArray, IntArray]:
        """Some requests ended, were reset, or lost or changed their slot, while the step was in flight."""
        slots = np.fromiter((r.slot for r in requests), np.int64, len(requests))
        counts = np.where([r.status.is_finished or r in lost for r in requests], 0, counts)
        for row in counts.nonzero()[0].tolist():
            if requests[row].async_steps_to_discard > 0:
                requests[row].async_steps_to_discard -= 1
                counts[row] = 0
        return slots, counts

    def _replace(
        self, requests: Sequence[Request], slots: IntArray, arrived: IntArray, *, may_lack_slots: bool
    ) -> None:
        """Placeholders give way to ``arrived`` tokens per row."""
        assert self._placeholders is not None
        if not may_lack_slots:
            self._placeholders.replace(slots, arrived)
            return
        here = slots >= 0
        self._placeholders.replace(slots[here], arrived[here])
        for row in (~here & (arrived > 0)).nonzero()[0].tolist():
            self._placeholders.replace_detached(requests[row], int(arrived[row]))

    def _accept(
        self,
        requests: Sequence[Request],
        slots: IntArray,
        model: ModelOutput,
        counts: IntArray,
        active: IntArray,
        endings: RowEndings,
        *,
        may_lack_slots: bool,
    ) -> IntArray:
        """One stroke per token position over the rows that still go on; returns the tokens accepted per row.

        ``active`` are the rows with a token; each has at least one accepted.
        """
        accepted = counts
        detached = [row for row in active.tolist() if slots[row] < 0] if may_lack_slots else []
        if detached:
            active = active[slots[active] >= 0]
        width = model.sampled.shape[1]
        for column in range(width):
            if not active.size:
                break
            whole = active.size == slots.size
            stopped = self._acceptance.stroke(
                slots if whole else slots[active], model.sampled[:, column] if whole else model.sampled[active, column]
            )
            if stopped:
                accepted = accepted.copy() if accepted is counts else accepted
                for at, status in stopped:
                    row = int(active[at])
                    endings[row] = status
                    accepted[row] = column + 1
            if column + 1 < width:
                active = active[accepted[active] > column + 1]
        for row in detached:
            accepted = accepted.copy() if accepted is counts else accepted
            accepted[row] = self._accept_detached(requests[row], row, model, int(counts[row]), endings)
        return accepted

    def _accept_detached(self, request: Request, row: int, model: ModelOutput, count: int, endings: RowEndings) -> int:
        for column in range(count):
            status = self._acceptance.append_detached(request, int(model.sampled[row, column]))
            if status is not None:
                endings[row] = status
                return column + 1
        return count

    def _take_back_rest(self, slots: IntArray, unwanted: IntArray) -> None:
        """Tokens behind a stop were computed for nothing."""
        here = (slots >= 0) & (unwanted > 0)
        self._table.take_back(slots[here], unwanted[here])

    def _advance_grammars(
        self, requests: Sequence[Request], model: ModelOutput, counts: IntArray, endings: RowEndings
    ) -> None:
        """Sampled tokens advance their grammars; one that the grammar does not allow ends the request as an error."""
        for row in counts.nonzero()[0].tolist():
            if not self._grammars.accepts(requests[row], model.sampled[row, : counts[row]].tolist()):
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
        if not endings and not extras and producing.size == len(requests):
            return Accepted(step.requests, req_ids, _own_copy(model.sampled), _own_copy(counts), {}, {}, extras)
        if extras:
            # A pooling request has news without a token.
            producing = np.union1d(producing, list(extras))
        tokens, position = model.sampled, {row: row for row in endings}
        if producing.size < len(requests):
            rows = producing.tolist()
            position = {row: i for i, row in enumerate(rows) if row in endings or row in extras}
            extras = {position[row]: extra for row, extra in extras.items()}
            requests, req_ids = [requests[i] for i in rows], [req_ids[i] for i in rows]
            tokens, counts = tokens[producing], counts[producing]
        finish_reasons: dict[int, FinishReason] = {}
        stop_reasons: dict[int, int | str] = {}
        ended: list[tuple[Request, RequestStatus]] = []
        for row in sorted(endings):
            at, status = position[row], endings[row]
            request, reason = requests[at], FinishReason.of(status)
            assert reason is not None
            finish_reasons[at] = reason
            if request.stop_reason is not None:
                stop_reasons[at] = request.stop_reason
            ended.append((request, status))
        if ended:
            self._finish(ended, now)
        return Accepted(requests, req_ids, _own_copy(tokens), _own_copy(counts), finish_reasons, stop_reasons, extras)


def _own_copy(column: IntArray) -> IntArray:
    """A copy: the executor may use its buffer again, and observers may look but not write."""
    return frozen(column.copy())
