"""Our plan of a step as vLLM's ``SchedulerOutput``."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from vllm.v1.core.sched.output import CachedRequestData, SchedulerOutput

from tokenyard.sched.steps import scheduler_output
from tokenyard.sched.steps.in_flight import StepInFlight
from tokenyard.vllm import versions
from tokenyard.vllm.fast.requests import FastRequest, refresh_session

__all__ = ["PlanTranslation"]


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
        blocks = plan.new_blocks.by_row()
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
