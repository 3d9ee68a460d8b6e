"""The second half of a step: sampled tokens become output, stops are found, blocks are sealed."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tokenyard.core.arrays import IntArray
from tokenyard.core.kv.manager import KVCacheManager
from tokenyard.core.request import FinishReason, Request, RequestStatus
from tokenyard.core.rows import Int64s, Numbers
from tokenyard.core.sched.context import SchedulerContext
from tokenyard.core.sched.features.ahead import Placeholders, Speculation
from tokenyard.core.sched.features.encoder import EncoderInputs
from tokenyard.core.sched.features.grammars import GrammarGate
from tokenyard.core.sched.features.per_slot import RoutedExperts
from tokenyard.core.sched.in_flight import StepInFlight
from tokenyard.core.sched.outputs import (
    NO_AUX,
    EngineOutputs,
    ModelAuxOutput,
    ModelOutput,
    RequestAuxOutput,
    TokenLogprobs,
)
from tokenyard.core.sched.repetition import repeats
from tokenyard.core.sched.step_rows import Names

# ---------------------------------------------------------------------------------------------------------------------
# The rule of stops.


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


# ---------------------------------------------------------------------------------------------------------------------
# From the extras of a model's answer to those of its requests' outputs, and the end of pooling requests.


def _cut(logprobs: TokenLogprobs, count: int) -> TokenLogprobs:
    """Keep those of the accepted tokens alone: a stop may come before the last one."""
    return TokenLogprobs(logprobs.token_ids[:count], logprobs.logprobs[:count], logprobs.ranks[:count])


class AuxUpdate:
    """From the extras of a model's answer to those of outputs."""

    def __init__(self, routing: RoutedExperts | None, *, resets_drop_pooled: bool = False) -> None:
        """``resets_drop_pooled``: a pooler's result in flight when a reset preempts its request is dropped."""
        self._routing: RoutedExperts | None = routing
        self._resets_drop_pooled: bool = resets_drop_pooled

    def run(
        self,
        step: StepInFlight,
        model: ModelOutput,
        counts: IntArray,
        endings: dict[int, RequestStatus],
        lost: Sequence[Request],
    ) -> Mapping[int, RequestAuxOutput]:
        """Return extras by row; pooling requests that have their result are added to ``endings``."""
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


_RUNNING = RequestStatus.RUNNING


class OutputUpdate:
    """Takes in model outputs."""

    kv: KVCacheManager
    max_model_len: int
    hash_size: int
    min_tokens_bar_stops: bool
    is_async: bool
    placeholders: Placeholders | None
    speculation: Speculation | None
    encoder: EncoderInputs | None
    publishes_at_once: bool
    stale_changes_nothing: bool
    takes_back_rest: bool

    def __init__(
        self, context: SchedulerContext, finish: Callable[[list[tuple[Request, RequestStatus]], float], None]
    ) -> None:
        features, profile = context.features, context.config.profile
        self.kv = context.kv
        self.max_model_len = context.config.max_model_len
        self.hash_size = context.kv.hash_size
        self.min_tokens_bar_stops = profile.min_tokens_bar_stops
        self._finish: Callable[[list[tuple[Request, RequestStatus]], float], None] = finish
        self._grammars: GrammarGate = context.grammars
        self.speculation = features.speculation
        self.placeholders = features.placeholders
        self.is_async = features.placeholders is not None
        self.encoder = features.encoder
        self.publishes_at_once = self.is_async or (
            self.speculation is not None and profile.accepted_drafts_publish_at_once
        )
        self.stale_changes_nothing = profile.stale_outputs_change_nothing
        self.takes_back_rest = profile.stops_take_back_rest and self.speculation is not None
        self._routing: RoutedExperts | None = features.routing
        self._aux_update: AuxUpdate = AuxUpdate(
            features.routing, resets_drop_pooled=profile.stale_outputs_change_nothing
        )
        self._awaiting_first: set[Request] = set()

    def expect_first_token(self, request: Request) -> None:
        """The request was admitted; its first output token will be stamped."""
        if request.times.first_token is None:
            self._awaiting_first.add(request)

    def run(self, step: StepInFlight, model: ModelOutput, now: float, lost: Sequence[Request]) -> EngineOutputs:
        """Append tokens, end requests; returns what is new. What was sampled for ``lost`` requests is void."""
        endings: RowEndings = {}
        accepted, news = model.tokens(), model.counts()
        tokens: Int64s = accepted
        counts: Int64s = news
        if step.plan.drafts is not None:
            self._take_back_rejected(step, counts, lost)
        if self.encoder is not None:
            discarded = step.discarded if self.stale_changes_nothing else None
            self.encoder.releases.begin(step.requests, discarded or frozenset())
        num_producing = self.accept(step.requests, tokens, counts, model.width, lost, endings)
        if self._awaiting_first:
            self.stamp_first_tokens(now)
        extras = NO_AUX
        if model.extras is not None or self._routing is not None:
            extras = self._aux_update.run(step, model, np.frombuffer(news, np.int64), endings, lost)
        requests, names, rows = step.requests, step.columns.names, None
        if num_producing < len(requests):
            rows = [row for row in range(len(requests)) if counts[row] or row in extras]
            requests = [requests[row] for row in rows]
            names = Names(requests)
            accepted, news = of_rows(tokens, rows, model.width), of_rows(counts, rows, 1)
            extras = {bisect_left(rows, row): extra for row, extra in extras.items()} if extras else extras
        outputs = EngineOutputs(step.plan.step, requests, names, accepted, news, model.width)
        outputs.extras = extras
        if endings:
            self._end(outputs, endings, rows, now)
        if self.encoder is not None:
            self.encoder.releases.end()
        return outputs

    def _end(self, outputs: EngineOutputs, endings: RowEndings, rows: list[int] | None, now: float) -> None:
        """End the requests of these rows, and say so; ``rows`` are those that ``outputs`` has, None: all."""
        finish_reasons: dict[int, FinishReason] = {}
        stop_reasons: dict[int, int | str] = {}
        ended: list[tuple[Request, RequestStatus]] = []
        for row in sorted(endings):
            at, status = row if rows is None else bisect_left(rows, row), endings[row]
            request, reason = outputs.requests[at], FinishReason.of(status)
            assert reason is not None
            finish_reasons[at] = reason
            if request.stop_reason is not None:
                stop_reasons[at] = request.stop_reason
            ended.append((request, status))
        outputs.finish_reasons, outputs.stop_reasons = finish_reasons, stop_reasons
        self._finish(ended, now)

    def accept(
        self,
        requests: list[Request],
        tokens: Int64s,
        counts: Int64s,
        width: int,
        lost: Sequence[Request],
        endings: RowEndings,
    ) -> int:
        """Append the tokens of each row, as far as its request goes on; ``counts`` becomes what was accepted.

        ``tokens`` has ``width`` places per row. Returns the number of rows with a token.
        """
        num_producing = 0
        has_lost: bool = len(lost) > 0  # cold
        running = _RUNNING  # cold
        for row in range(len(requests)):
            request: Request = requests[row]
            arrived = counts[row]
            if not arrived:
                continue
            if request.status is not running and request.status.is_finished:  # cold
                counts[row] = 0
                continue
            if request.async_steps_to_discard > 0:
                request.async_steps_to_discard -= 1
                counts[row] = 0
                continue
            if has_lost and request in lost:  # cold
                counts[row] = 0
                continue
            taken, status = 0, None
            while taken < arrived and status is None:
                status = self.append(request, tokens[row * width + taken])
                taken += 1
            counts[row] = taken
            num_producing += 1
            self.settle(request, arrived, taken)
            if request.structured_output is not None:
                given = [tokens[row * width + i] for i in range(taken)]  # cold
                if not self._grammars.accepts(request, given):  # cold
                    status = RequestStatus.FINISHED_ERROR  # cold
            if status is not None:
                endings[row] = status  # cold
        return num_producing

    def append(self, request: Request, token: int) -> RequestStatus | None:
        """Append a token; returns the status in which it ends the request, or None."""
        request.appended.append(token)
        request.num_tokens += 1
        num_tokens = request.num_tokens
        if request.slot >= 0 and num_tokens % self.hash_size == 0:
            self.kv.block_is_full(request)
        if (
            num_tokens >= request.stop_at
            or num_tokens >= self.max_model_len
            or token == request.eos
            or request.looks_closer
        ):
            limit, bars = self.max_model_len, self.min_tokens_bar_stops
            return stop_status(request, token, num_tokens, limit, min_tokens_bar_stops=bars)  # cold
        return None

    def settle(self, request: Request, arrived: int, taken: int) -> None:
        """Tokens have come, and those ``taken`` were accepted: they replace placeholders, and blocks can be found."""
        if taken < arrived and self.takes_back_rest:  # tokens behind a stop were computed for nothing
            if request.slot >= 0:
                request.num_computed_tokens -= arrived - taken
            taken = arrived
        if request.slot < 0:
            if self.placeholders is not None:
                self.placeholders.replace_detached(request, taken)  # cold
            return
        if self.is_async:
            request.num_output_placeholders -= taken
        if self.publishes_at_once:
            self.kv.publish_computed(request)

    def _take_back_rejected(self, step: StepInFlight, counts: Int64s, lost: Sequence[Request]) -> None:
        """Positions of rejected drafts were computed for nothing."""
        drafts, speculation = step.plan.drafts, self.speculation
        if drafts is None or speculation is None:
            return
        drafted: list[int] = drafts.counts.tolist()
        invalid = step.plan.num_invalid_spec_tokens
        num_invalid: list[int] = [0] * len(drafted) if invalid is None else invalid.tolist()
        running = _RUNNING
        for row in range(len(step.requests)):
            request: Request = step.requests[row]
            if not counts[row] or request.async_steps_to_discard > 0:
                continue
            if (request.status is not running and request.status.is_finished) or request in lost:
                continue
            rejected = speculation.rejected(drafted[row], counts[row], num_invalid[row])
            if not rejected:
                continue
            if request.slot >= 0:
                request.num_computed_tokens -= rejected
                if self.is_async:
                    request.num_output_placeholders -= rejected
            elif self.placeholders is not None:
                self.placeholders.replace_detached(request, rejected)

    def stamp_first_tokens(self, now: float) -> None:
        """Note the moment of admitted requests that have got their first output token."""
        for request in list(self._awaiting_first):
            if request.num_output_tokens > 0 or request.status.is_finished:
                if request.times.first_token is None and request.num_output_tokens > 0:
                    request.times.first_token = now
                self._awaiting_first.discard(request)


def of_rows(numbers: Int64s, rows: list[int], width: int) -> Numbers:
    """Return the numbers of these rows, ``width`` each."""
    kept = array("q", bytes(8 * width * len(rows)))
    data: Int64s = kept
    at = 0
    for row in rows:
        for i in range(width):
            data[at] = numbers[row * width + i]
            at += 1
    return kept
