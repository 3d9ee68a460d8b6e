"""The second half of a step: sampled tokens become output, stops are found, blocks are sealed."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from tokenyard.core.arrays import IntArray
from tokenyard.core.kv.manager import KVCacheManager
from tokenyard.core.request import FinishReason, Request, RequestStatus
from tokenyard.core.rows import NO_TOKEN, Int64s
from tokenyard.core.sched.context import SchedulerContext
from tokenyard.core.sched.features.ahead import Placeholders, Speculation
from tokenyard.core.sched.features.encoder import EncoderInputs
from tokenyard.core.sched.features.grammars import GrammarGate
from tokenyard.core.sched.features.per_slot import RoutedExperts
from tokenyard.core.sched.outputs import NO_AUX, ModelAuxOutput, ModelOutput, RequestAuxOutput, TokenLogprobs
from tokenyard.core.sched.repetition import repeats
from tokenyard.core.sched.scheduler_output import StepInFlight

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
    """From the extras of a model's answer to those of outputs; a step without any pays for two questions."""

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


_RUNNING = RequestStatus.RUNNING


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


class _News(NamedTuple):
    """What was accepted of a step's tokens."""

    tokens: IntArray
    """Shape ``[n, width]``, a copy: the executor may use its buffer again."""
    counts: IntArray
    """Accepted per row, shape ``[n]``."""
    num_producing: int
    """Rows with a token."""


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
        self._aux_update: AuxUpdate = AuxUpdate(
            features.routing, resets_drop_pooled=profile.stale_outputs_change_nothing
        )
        self._awaiting_first: set[Request] = set()

    def expect_first_token(self, request: Request) -> None:
        """The request was admitted; its first output token will be stamped."""
        if request.times.first_token is None:
            self._awaiting_first.add(request)

    def run(self, step: StepInFlight, model: ModelOutput, now: float, lost: Sequence[Request] = ()) -> Accepted:
        """Append tokens, end requests; see :class:`Accepted`. What was sampled for ``lost`` requests is void."""
        endings: RowEndings = {}
        counts = model.counts()
        if step.plan.drafts is not None:
            self._take_back_rejected(step, counts, lost)
        if self.encoder is not None:
            discarded = step.discarded if self.stale_changes_nothing else None
            self.encoder.releases.begin(step.requests, discarded or frozenset())
        tokens = model.tokens()
        num_producing = self.accept(step.requests, tokens, counts, model.width, lost, endings)
        if self._awaiting_first:
            self.stamp_first_tokens(now)
        news = _News(
            np.frombuffer(tokens, np.int64).reshape(model.sampled.shape),
            np.frombuffer(counts, np.int64),
            num_producing,
        )
        extras = self._aux_update.run(step, model, news.counts, endings, lost)
        accepted = self._collect(step, news, endings, extras, now)
        if self.encoder is not None:
            self.encoder.releases.end()
        return accepted

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
        for row in range(len(requests)):
            request: Request = requests[row]
            arrived = counts[row]
            if not arrived:
                continue
            if request.status is not _RUNNING and request.status.is_finished:
                counts[row] = 0
                continue
            if request.async_steps_to_discard > 0:
                request.async_steps_to_discard -= 1
                counts[row] = 0
                continue
            if lost and request in lost:
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
                given = [tokens[row * width + i] for i in range(taken)]
                if not self._grammars.accepts(request, given):
                    status = RequestStatus.FINISHED_ERROR
            if status is not None:
                endings[row] = status
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
            return stop_status(request, token, num_tokens, limit, min_tokens_bar_stops=bars)
        return None

    def settle(self, request: Request, arrived: int, taken: int) -> None:
        """Tokens have come, and those ``taken`` were accepted: they replace placeholders, and blocks can be found."""
        if taken < arrived and self.takes_back_rest:  # tokens behind a stop were computed for nothing
            if request.slot >= 0:
                request.num_computed_tokens -= arrived - taken
            taken = arrived
        if request.slot < 0:
            if self.placeholders is not None:
                self.placeholders.replace_detached(request, taken)
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
        drafted = drafts.counts.tolist()
        invalid = step.plan.num_invalid_spec_tokens
        num_invalid = [0] * len(drafted) if invalid is None else invalid.tolist()
        for row, request in enumerate(step.requests):
            is_void = request.status.is_finished or request in lost or request.async_steps_to_discard > 0
            if is_void or not counts[row]:
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

    def _collect(
        self,
        step: StepInFlight,
        news: _News,
        endings: RowEndings,
        extras: Mapping[int, RequestAuxOutput],
        now: float,
    ) -> Accepted:
        requests: Sequence[Request] = step.requests
        req_ids: Sequence[str] = step.plan.req_ids
        tokens, counts, num_producing = news
        rows = None
        if num_producing < len(requests):
            producing = counts.nonzero()[0]
            if extras:
                # A pooling request has news without a token.
                producing = np.union1d(producing, list(extras))
            rows = producing.tolist()
            requests, req_ids = [requests[row] for row in rows], [req_ids[row] for row in rows]
            tokens, counts = tokens.take(producing, axis=0), counts[producing]
            extras = {bisect_left(rows, row): extra for row, extra in extras.items()} if extras else extras
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
        tokens.flags.writeable = counts.flags.writeable = False
        return Accepted(requests, req_ids, tokens, counts, finish_reasons, stop_reasons, extras)
