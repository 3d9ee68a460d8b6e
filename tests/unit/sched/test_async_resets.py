"""Resets while steps are in flight: their outputs are stale, however many there are and whatever drafts they carry."""

from __future__ import annotations

import pytest

from tokenyard.core.config import CacheConfig, SchedulerConfig, SpeculativeConfig
from tokenyard.core.request import Request, SamplingParams
from tokenyard.core.sched.outputs import ModelOutput
from tokenyard.core.sched.scheduler import Scheduler
from tokenyard.core.sched.scheduler_output import SchedulerOutput


def _scheduler(num_drafts: int) -> Scheduler:
    return Scheduler(
        SchedulerConfig(max_num_seqs=4, max_num_batched_tokens=16, max_model_len=64, async_scheduling=True),
        CacheConfig(num_gpu_blocks=60, block_size=4),
        speculative_config=SpeculativeConfig(num_speculative_tokens=num_drafts) if num_drafts else None,
    )


def _sample(output: SchedulerOutput, accepted: int) -> ModelOutput:
    """Token 7 for every finished prompt, and as many more as drafts are accepted."""
    drafts = output.scheduled_spec_decode_tokens
    chunk = output.is_prefill_chunk
    return ModelOutput.from_lists(
        [
            [] if chunk is not None and chunk[row] else [7] * (1 + min(accepted, len(drafts.get(request_id, []))))
            for row, request_id in enumerate(output.req_ids)
        ]
    )


@pytest.mark.parametrize("num_drafts", [0, 3])
@pytest.mark.parametrize("accepted", [0, 1, 3])
@pytest.mark.parametrize("resets", [(2,), (1,), (2, 3), (2, 3, 4), (4, 5, 9), (5, 7, 8, 9)])
def test_every_token_arrives_once_after_resets_in_flight(
    num_drafts: int, accepted: int, resets: tuple[int, ...]
) -> None:
    """vLLM 0.22.1 hangs or fails an assertion of its own in most of these."""
    scheduler = _scheduler(num_drafts)
    requests = [Request(f"q{i}", [i] * (5 + 9 * i), SamplingParams(max_tokens=12)) for i in range(3)]
    for request in requests:
        scheduler.add_request(request)
    in_flight: list[SchedulerOutput] = []
    received = dict.fromkeys((request.request_id for request in requests), 0)
    for tick in range(80):
        if not scheduler.has_requests() and not in_flight:
            break
        in_flight.append(scheduler.schedule())
        if tick in resets:
            assert scheduler.reset_prefix_cache(reset_running_requests=True)
        if len(in_flight) == 2 or not in_flight[-1].req_ids:
            oldest = in_flight.pop(0)
            for news in scheduler.update_from_output(oldest, _sample(oldest, accepted)):
                received[news.request_id] += len(news.new_token_ids)
        scheduler.check_invariants()
    assert received == {"q0": 12, "q1": 12, "q2": 12}
    assert not scheduler.requests
