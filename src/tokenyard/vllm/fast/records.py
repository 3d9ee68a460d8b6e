"""Our plan of a step and what came of it as vLLM's records: SchedulerOutput, EngineCoreOutputs, statistics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from vllm.v1.core.sched.output import CachedRequestData, SchedulerOutput
from vllm.v1.engine import EngineCoreEvent, EngineCoreEventType, EngineCoreOutput, EngineCoreOutputs, FinishReason
from vllm.v1.metrics import stats as theirs
from vllm.v1.spec_decode import metrics as their_drafts

from tokenyard.core.kv.allocation import NO_LOOKUPS, Blocks, PrefixCacheStats
from tokenyard.core.kv.manager import KVCacheManager
from tokenyard.core.sched import scheduler_output
from tokenyard.core.sched.in_flight import StepInFlight
from tokenyard.core.sched.outcomes import SchedulerStats, SpecDecodingStats
from tokenyard.core.sched.outputs import EngineOutputs
from tokenyard.vllm import versions
from tokenyard.vllm.fast.inputs import FastRequest, refresh_session

# ---------------------------------------------------------------------------------------------------------------------
# Our plan of a step as vLLM's ``SchedulerOutput``.


class PlanTranslation:
    """Knows what every plan of one engine says alike."""

    def __init__(self, vllm_config: Any, *, num_drafts: int, num_lookahead_tokens: int) -> None:
        self._second_runner = bool(vllm_config.use_v2_model_runner)
        self._new_record = versions.new_request_maker(vllm_config)
        self._always = versions.plan_fields(num_drafts)
        self._says_common_prefix = versions.wants_common_prefix()
        self._may_skip_drafts = self._second_runner and num_lookahead_tokens > 0 and versions.skips_drafts()

    def translated(self, step: StepInFlight) -> Any:
        """vLLM's record; its lists and dictionaries are its own."""
        plan = step.plan
        more = dict(self._always)
        if self._may_skip_drafts:
            more["skip_drafts"] = not _drafts_needed(step)
        if self._says_common_prefix:
            more["num_common_prefix_blocks"] = list(plan.num_common_prefix_blocks)
        return SchedulerOutput(
            scheduled_new_reqs=self._new(step) if plan.num_running < len(plan.req_ids) else [],
            scheduled_cached_reqs=self._cached(plan),
            num_scheduled_tokens=plan.num_scheduled_tokens,
            total_num_scheduled_tokens=plan.total_num_scheduled_tokens,
            scheduled_spec_decode_tokens=plan.scheduled_spec_decode_tokens,
            scheduled_encoder_inputs=dict(plan.scheduled_encoder_inputs),
            finished_req_ids=set(plan.finished_req_ids),
            free_encoder_mm_hashes=list(plan.free_encoder_mm_hashes),
            preempted_req_ids=set(plan.preempted_req_ids),
            has_structured_output_requests=plan.has_structured_output_requests,
            pending_structured_output_tokens=plan.pending_structured_output_tokens,
            new_block_ids_to_zero=None if plan.new_block_ids_to_zero is None else list(plan.new_block_ids_to_zero),
            **more,
        )

    def _new(self, step: StepInFlight) -> list[Any]:
        """Requests that the workers do not know: to the second model runner those that are resumed as well."""
        plan = step.plan
        rows = [*plan.new_requests, *(plan.admitted_resumed if self._second_runner else ())]
        blocks = plan.blocks_by_row
        return [self._new_record_of(step, row, blocks[row]) for row in rows]

    def _new_record_of(self, step: StepInFlight, row: int, block_ids: tuple[list[int], ...]) -> Any:
        request = cast("FastRequest", step.requests[row])
        if request.resumable:
            refresh_session(request)
        theirs = request.theirs
        theirs.num_computed_tokens = int(step.plan.num_computed[row])
        known = request.token_slice(0, int(step.plan.num_known[row])).tolist() if self._second_runner else None
        return self._new_record(theirs, block_ids, known)

    def _cached(self, plan: scheduler_output.SchedulerOutput) -> Any:
        ours = plan.scheduled_cached_reqs
        if not self._second_runner:
            return CachedRequestData(
                req_ids=ours.req_ids,
                resumed_req_ids=set(ours.resumed_req_ids),
                new_token_ids=[],
                all_token_ids=ours.all_token_ids,
                new_block_ids=ours.new_block_ids,
                num_computed_tokens=ours.num_computed_tokens,
                num_output_tokens=ours.num_output_tokens,
            )
        count = plan.num_running
        return CachedRequestData(
            req_ids=ours.req_ids[:count],
            resumed_req_ids=set(),
            new_token_ids=[],
            all_token_ids={},
            new_block_ids=ours.new_block_ids[:count],
            num_computed_tokens=ours.num_computed_tokens[:count],
            num_output_tokens=ours.num_output_tokens[:count],
        )


def _drafts_needed(step: StepInFlight) -> bool:
    """Whether a request of the step can use drafts proposed after it: it samples, and surely not its last token."""
    plan = step.plan
    in_flight = np.zeros_like(plan.num_known) if plan.num_placeholders is None else plan.num_placeholders
    samples = plan.num_computed + plan.num_new_tokens >= plan.num_known
    surely = plan.num_known - plan.num_prompt + 1 + (in_flight > 0)
    most = np.fromiter((request.max_tokens for request in step.requests), np.int64, len(step.requests))
    return bool((samples & (surely < most)).any())


# ---------------------------------------------------------------------------------------------------------------------
# Our statistics as vLLM's, for its log lines and its metrics.


def translated_stats(ours: SchedulerStats, cudagraph: Any = None) -> Any:
    """vLLM's ``SchedulerStats``."""
    return theirs.SchedulerStats(
        num_running_reqs=ours.num_running_reqs,
        num_waiting_reqs=ours.num_waiting_reqs,
        num_skipped_waiting_reqs=ours.num_skipped_waiting_reqs,
        kv_cache_usage=ours.kv_cache_usage,
        prefix_cache_stats=_lookups(ours.prefix_cache_stats),
        spec_decoding_stats=_drafts(ours.spec_decoding_stats),
        cudagraph_stats=cudagraph,
        **versions.stats_without_connector(),
    )


_LOOKUPS = ("requests", "queries", "hits", "preempted_requests", "preempted_queries", "preempted_hits", "reset")


def _lookups(ours: PrefixCacheStats) -> Any:
    made = theirs.PrefixCacheStats()
    if ours is not NO_LOOKUPS:
        for name in _LOOKUPS:
            setattr(made, name, getattr(ours, name))
    return made


def _drafts(ours: SpecDecodingStats | None) -> Any:
    if ours is None or not ours.num_drafts:
        return None
    made = their_drafts.SpecDecodingStats.new(len(ours.num_accepted_tokens_per_pos))
    made.num_drafts = ours.num_drafts
    made.num_draft_tokens = ours.num_draft_tokens
    made.num_accepted_tokens = ours.num_accepted_tokens
    made.num_accepted_tokens_per_pos = ours.num_accepted_tokens_per_pos.tolist()
    if hasattr(made, "num_draft_tokens_per_pos"):
        made.num_draft_tokens_per_pos = ours.num_draft_tokens_per_pos.tolist()
    return made


class FirstOutput:
    """An admitted request that has had no output so far: its statistics come with the first."""

    __slots__ = ("_held", "_num_preemptions", "num_cached_tokens", "num_prompt_tokens", "request")

    def __init__(self, request: FastRequest) -> None:
        self.request = request
        self.num_prompt_tokens = request.num_prompt_tokens
        self.num_cached_tokens = request.num_hit_tokens
        self._held: Blocks = ()
        self._num_preemptions = 0

    @property
    def is_due(self) -> bool:
        """A step under way brings it. After a reset the request may begin anew, with other blocks, before it comes."""
        return bool(self._held)

    def note_blocks(self, kv: KVCacheManager) -> None:
        """The step that has just been decided brings it: an end frees the blocks before the output is sent."""
        self._held = kv.get_block_ids(self.request)
        self._num_preemptions = self.request.num_preemptions

    def stats(self, kv: KVCacheManager, *, later_hits_count: bool) -> Any:
        """vLLM's ``PrefillStats``; ``later_hits_count``: of the last lookup, which may have been in vain."""
        made = theirs.PrefillStats()
        made.set(
            num_prompt_tokens=self.num_prompt_tokens,
            num_local_cached_tokens=self.request.num_hit_tokens if later_hits_count else self.num_cached_tokens,
            num_external_cached_tokens=0,
        )
        if hasattr(made, "finalize"):
            made.finalize(self._cached_now(kv))
        return made

    def _cached_now(self, kv: KVCacheManager) -> int:
        """What vLLM counts before it gives the blocks of an ended request back.

        The output itself may have made a block findable. No request has taken a block since then.
        """
        request = self.request
        if request.slot >= 0:
            return num_cached(kv, kv.get_block_ids(request))
        ended_running = request.status.is_finished and request.num_preemptions == self._num_preemptions
        return num_cached(kv, self._held) if ended_running else 0


def num_cached(kv: KVCacheManager, held: Blocks) -> int:
    """Tokens up to the last block with cached content, of the KV-cache group with the fewest; ``held`` are per group.

    Content that no lookup finds counts as well.
    """
    found = []
    content, tails = kv.pool.content, kv.pool.prompt_tails
    for size, blocks in zip(kv.config.group_block_sizes, held, strict=True):
        last = next((i for i in range(len(blocks) - 1, -1, -1) if blocks[i] and content[blocks[i]] is not None), -1)
        found.append(max((last + 1) * size, *[tails.get(block, 0) for block in blocks if tails], 0))
    return min(found, default=0)


# ---------------------------------------------------------------------------------------------------------------------
# What clients are notified, as vLLM's ``EngineCoreOutputs``.
#
# Nearly every row is an id and a token. Whatever else vLLM reports belongs to few rows, and costs nothing where there
# are none: how a request ended, what happened to it, statistics of its prompt, log-probabilities.


class OutputTranslation:
    """Knows what its requests' outputs hold beside tokens."""

    def __init__(self, kv: KVCacheManager, monotonic: Callable[[float], float], *, include_finished_set: bool) -> None:
        """``kv`` knows what of a request is in the prefix cache, ``monotonic`` what vLLM's clock reads at a time."""
        self._kv = kv
        self._monotonic = monotonic
        self._later_hits_count = versions.counts_later_hits()
        self._particular: dict[str, FastRequest] = {}
        """Requests with log-probabilities or trace headers, whose every output is more than tokens."""
        self._silent: dict[str, FirstOutput] = {}
        """Admitted requests without an output so far."""
        self._num_nans: dict[str, int] = {}
        self._stopped_before: dict[str, int | str] = {}
        """Sessions -> what ended their last answer; vLLM's outputs go on saying it until something else does."""
        self._num_foreign = 0
        """Requests of clients other than number 0."""
        self._finished: dict[int, set[str]] | None = {} if include_finished_set else None

    # ---- the life of a request

    def added(self, request: FastRequest) -> None:
        """A request was added."""
        theirs, params = request.theirs, request.theirs.sampling_params
        told = params is not None and (params.num_logprobs is not None or params.prompt_logprobs is not None)
        if told or theirs.trace_headers is not None:
            self._particular[request.request_id] = request
        self._num_foreign += request.client_index != 0

    def scheduled(self, step: StepInFlight) -> None:
        """A step was decided: of requests without an output so far, note what their first output will tell."""
        plan = step.plan
        if plan.num_running < len(plan.req_ids):
            self._note_admitted(step)
        if not self._silent:
            return
        chunks = plan.is_prefill_chunk
        for row, request_id in enumerate(plan.req_ids):
            first = self._silent.get(request_id)
            if first is not None and (chunks is None or not chunks[row] or first.is_due):
                first.note_blocks(self._kv)

    def _note_admitted(self, step: StepInFlight) -> None:
        plan = step.plan
        for row in range(plan.num_running, len(plan.req_ids)):
            request = cast("FastRequest", step.requests[row])
            if request.theirs.prefill_stats is None:
                continue  # sent already
            if request.request_id not in self._silent or self._later_hits_count:
                self._silent[request.request_id] = FirstOutput(request)

    def ended(self, request: FastRequest) -> None:
        """A request has ended."""
        request_id = request.request_id
        self._particular.pop(request_id, None)
        self._silent.pop(request_id, None)
        self._num_nans.pop(request_id, None)
        self._stopped_before.pop(request_id, None)
        self._num_foreign -= request.client_index != 0
        if self._finished is not None:
            self._finished.setdefault(request.client_index, set()).add(request_id)

    # ---- a step

    def translated(self, result: EngineOutputs, answer: Any, errors: list[tuple[int, Any]]) -> dict[int, Any]:
        """The outputs by client; ``errors`` are further ones, each with its client."""
        records = self._records(result)
        if self._silent or self._particular or self._stopped_before or self._num_nans or answer.num_nans_in_logits:
            self._add_particulars(result, records, answer)
        for row, reason in result.finish_reasons.items():
            records[row].finish_reason = FinishReason[reason.name]
        for row, why in result.stop_reasons.items():
            records[row].stop_reason = why
            if result.requests[row].resumable:
                self._stopped_before[result.req_ids[row]] = why
        for row, extra in result.extras.items():
            records[row].pooling_output = extra.pooling_output
            if extra.events:
                records[row].events = [
                    EngineCoreEvent(EngineCoreEventType(each.type), self._monotonic(each.timestamp))
                    for each in extra.events
                ]
        by_client = self._by_client(result, records)
        for client, output in errors:
            by_client.setdefault(client, []).append(output)
        outputs = {client: EngineCoreOutputs(outputs=each) for client, each in by_client.items()}
        for row in result.finish_reasons:
            if result.requests[row].status.is_finished:
                self.ended(result.requests[row])  # type: ignore[arg-type]  # all of them are ours
        self._tell_finished(outputs)
        return outputs

    @staticmethod
    def _records(result: EngineOutputs) -> list[Any]:
        rows = result.tokens.tolist()
        if result.tokens.shape[1] > 1 or result.finish_reasons or result.extras:
            rows = [row[:count] for row, count in zip(rows, result.num_tokens.tolist(), strict=True)]
        return list(map(EngineCoreOutput, result.req_ids, rows))

    def _by_client(self, result: EngineOutputs, records: list[Any]) -> dict[int, list[Any]]:
        if not records:
            return {}
        if not self._num_foreign:
            return {0: records}
        by_client: dict[int, list[Any]] = {}
        for request, record in zip(result.requests, records, strict=True):
            by_client.setdefault(request.client_index, []).append(record)
        return by_client

    def _add_particulars(self, result: EngineOutputs, records: list[Any], answer: Any) -> None:
        if answer.num_nans_in_logits:
            self._num_nans.update(answer.num_nans_in_logits)
        for row, request_id in enumerate(result.req_ids):
            record = records[row]
            first = self._silent.pop(request_id, None)
            if first is not None:
                record.prefill_stats = first.stats(self._kv, later_hits_count=self._later_hits_count)
                first.request.theirs.prefill_stats = None
            if request_id in self._stopped_before:
                record.stop_reason = self._stopped_before[request_id]
            if request_id in self._num_nans:
                record.num_nans_in_logits = self._num_nans[request_id]
            if request_id in self._particular:
                self._add_wanted(self._particular[request_id], record, answer)

    @staticmethod
    def _add_wanted(request: FastRequest, record: Any, answer: Any) -> None:
        """Log-probabilities, and the headers that come back."""
        theirs = request.theirs
        record.trace_headers = theirs.trace_headers
        params = theirs.sampling_params
        if params is not None and params.num_logprobs is not None and answer.logprobs:
            at = answer.req_id_to_index[request.request_id]
            record.new_logprobs = answer.logprobs.slice_request(at, len(record.new_token_ids))
        record.new_prompt_logprobs_tensors = answer.prompt_logprobs_dict.get(request.request_id)
        scores = getattr(answer, "prompt_token_id_logprobs_dict", {}).get(request.request_id)
        if scores is not None:
            record.prompt_token_id_logprobs = scores

    def _tell_finished(self, outputs: dict[int, Any]) -> None:
        """Ids that have ended since the last outputs, for front ends that count requests."""
        if not self._finished:
            return
        for client, ids in self._finished.items():
            if client not in outputs:
                outputs[client] = EngineCoreOutputs()
            outputs[client].finished_requests = ids
        self._finished = {}
