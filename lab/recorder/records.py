"""What vLLM hands out, as the plain values of a vector file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import EngineCoreOutputs

from recorder.versions import second_queue

__all__ = ["decision", "encoder_decision", "encoder_room", "pairs", "queues", "step_stats"]


def decision(output: SchedulerOutput) -> dict[str, Any]:
    """Everything a step decided."""
    zeroed = {} if output.new_block_ids_to_zero is None else {"zero": list(output.new_block_ids_to_zero)}
    return zeroed | {
        "new": [[new.req_id, new.num_computed_tokens, _lists(new.block_ids)] for new in output.scheduled_new_reqs],
        "cached": _cached(output),
        "nst": pairs(output.num_scheduled_tokens.items()),
        "spec": [[rid, list(drafts)] for rid, drafts in output.scheduled_spec_decode_tokens.items()],
        "preempted": sorted(output.preempted_req_ids or ()),
        "finished": sorted(output.finished_req_ids),
        "ncpb": list(output.num_common_prefix_blocks),
    }


def encoder_decision(output: SchedulerOutput) -> dict[str, Any]:
    """Encoder inputs computed in a step, and outputs that workers drop."""
    return {
        "enc": {rid: sorted(items) for rid, items in output.scheduled_encoder_inputs.items()},
        "enc_free": list(output.free_encoder_mm_hashes),
    }


def encoder_room(scheduler: Scheduler) -> list[int]:
    """Embeddings free, and free or freeable, in the encoder cache."""
    cache = scheduler.encoder_cache_manager
    # An encoder-decoder's cache keeps nothing that could be freed.
    return [cache.num_free_slots, getattr(cache, "num_freeable_slots", cache.num_free_slots)]


def queues(scheduler: Scheduler) -> dict[str, Any]:
    """The queues in order, and free blocks."""
    return {
        "running": [request.request_id for request in scheduler.running],
        "waiting": [request.request_id for request in scheduler.waiting],
        "skipped": [request.request_id for request in second_queue(scheduler)],
        "free": scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
    }


def step_stats(outputs: EngineCoreOutputs) -> dict[str, list[int]]:
    """Prefix-cache and speculation statistics, where this client's outputs carry them."""
    if outputs.scheduler_stats is None:
        return {}
    stats = outputs.scheduler_stats.prefix_cache_stats
    fresh = [stats.requests, stats.queries, stats.hits]
    told = {"pcs": [*fresh, stats.preempted_requests, stats.preempted_queries, stats.preempted_hits]}
    spec = outputs.scheduler_stats.spec_decoding_stats
    if spec is not None:
        told["sds"] = [spec.num_drafts, spec.num_draft_tokens, spec.num_accepted_tokens]
    return told


def pairs(items: Iterable[tuple[str, Any]]) -> list[list[Any]]:
    """JSON has no tuples."""
    return [list(item) for item in items]


def _cached(output: SchedulerOutput) -> list[list[Any]]:
    data = output.scheduled_cached_reqs
    return [
        [
            request_id,
            data.num_computed_tokens[row],
            data.num_output_tokens[row],
            _lists(data.new_block_ids[row]),
            int(request_id in data.resumed_req_ids),
            int(request_id in data.all_token_ids),
        ]
        for row, request_id in enumerate(data.req_ids)
    ]


def _lists(groups: Iterable[Iterable[int]] | None) -> list[list[int]] | None:
    return None if groups is None else [list(group) for group in groups]
