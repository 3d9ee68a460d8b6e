"""Sliding windows with lookahead slots: what is accepted can be served, although admission leaves the slots out."""

from __future__ import annotations

from itertools import product

import pytest
from tests.support.profiles import VLLM_0_22
from tests.support.servable import must_be_accepted, must_be_refused

from tokenyard.core.config import (
    CacheConfig,
    GroupKind,
    KVCacheGroup,
    SchedulerConfig,
    SpeculativeConfig,
    SpeculativeMethod,
)
from tokenyard.core.request import Request, SamplingParams
from tokenyard.core.sched.outputs import DraftTokens, ModelOutput
from tokenyard.core.sched.scheduler import Scheduler
from tokenyard.errors import RequestError


def _serve(scheduler: Scheduler, drafts: int) -> int:
    """Steps until the only request has ended, every draft rejected."""
    steps = 0
    while scheduler.has_requests():
        output = scheduler.schedule()
        chunk = output.is_prefill_chunk
        sampled = [[] if chunk is not None and chunk[row] else [1] for row in range(len(output.req_ids))]
        scheduler.update_from_output(output, ModelOutput.from_lists(sampled))
        scheduler.update_draft_token_ids(output, DraftTokens.from_lists([[1] * drafts for _ in sampled]))
        steps += 1
        assert steps < 60, "it waits for ever"
    return steps


@pytest.mark.slow
@pytest.mark.parametrize("window", [1, 2, 5])
def test_a_window_and_its_lookahead_fit_or_are_refused(window: int) -> None:
    for size, budget, blocks in product((1, 2, 4), (1, 2, 5), range(2, 14)):
        _check_window(window, size, budget, blocks)


def _check_window(window: int, size: int, budget: int, blocks: int) -> None:
    # 0.33 needs room for a token and its drafts in every step.
    config = SchedulerConfig(profile=VLLM_0_22, max_num_seqs=1, max_num_batched_tokens=budget, max_model_len=40)
    group = KVCacheGroup(kind=GroupKind.SLIDING_WINDOW, window=window)
    cache = CacheConfig(num_gpu_blocks=blocks, block_size=size, groups=(group,))
    speculative = SpeculativeConfig(num_speculative_tokens=3, method=SpeculativeMethod.EAGLE)
    scheduler = Scheduler(config, cache, speculative_config=speculative)
    request = Request("a", list(range(9)), SamplingParams(max_tokens=8))
    try:
        scheduler.add_request(request)
    except RequestError:
        assert not must_be_accepted(request, config, cache, speculative)
    else:
        assert not must_be_refused(request, config, cache, speculative)
        assert _serve(scheduler, drafts=3) >= 8
