"""Hashes that cover the next token: a full block without one holds the prompt up to a shorter hash (vLLM 0.33)."""

from __future__ import annotations

import pytest

from tokenyard.core.config import (
    CacheConfig,
    GroupKind,
    KVCacheGroup,
    SchedulerConfig,
    SpeculativeConfig,
    SpeculativeMethod,
)
from tokenyard.core.profiles import decision_profile
from tokenyard.core.request import Request, SamplingParams
from tokenyard.core.sched.outputs import ModelOutput
from tokenyard.core.sched.scheduler import Scheduler


def make(version: str = "0.33") -> Scheduler:
    """Full attention in blocks of 8, a window in blocks of 4: hashes are of 4 tokens."""
    return Scheduler(
        SchedulerConfig(max_num_seqs=4, max_num_batched_tokens=64, max_model_len=64, profile=decision_profile(version)),
        CacheConfig(
            num_gpu_blocks=41,
            block_size=4,
            groups=(KVCacheGroup(block_size=8), KVCacheGroup(kind=GroupKind.SLIDING_WINDOW, window=5)),
        ),
        speculative_config=SpeculativeConfig(num_speculative_tokens=2, method=SpeculativeMethod.EAGLE),
    )


def step(scheduler: Scheduler) -> None:
    output = scheduler.schedule()
    scheduler.update_from_output(output, ModelOutput.from_lists([[3] for _ in output.req_ids]))
    scheduler.check_invariants()


@pytest.mark.parametrize(
    ("version", "prompt", "steps", "tail"),
    [
        ("0.33", 7, 2, 4),  # 8 tokens are known, the hash of the second four covers a ninth
        ("0.33", 7, 1, None),  # seven are computed
        ("0.33", 7, 3, None),  # the ninth is known: the block is published whole
        ("0.33", 4, 5, None),  # the prompt has no hash within its first three tokens
        ("0.22", 7, 2, None),
    ],
)
def test_it_goes_to_the_end_of_the_free_queue(version: str, prompt: int, steps: int, tail: int | None) -> None:
    scheduler = make(version)
    request = Request("a", list(range(prompt)), SamplingParams(max_tokens=20, ignore_eos=True))
    scheduler.add_request(request)
    for _ in range(steps - 1):
        step(scheduler)
    scheduler.schedule()
    pool = scheduler.kv.pool
    first = scheduler.kv.get_block_ids(request)[0][0]
    assert pool.prompt_tails == ({} if tail is None else {first: tail})
    scheduler.finish_requests("a")
    scheduler.check_invariants()
    if version == "0.33":
        is_kept = pool.content[first] is not None or tail is not None
        assert (first in pool.free_blocks()[:5]) != is_kept
    again = Request("again", list(range(prompt)))
    assert scheduler.kv.get_computed_blocks(again).num_tokens == 0, "no lookup finds it"
    pool.release(pool.take(pool.num_free))
    assert pool.prompt_tails == {}


def test_a_reset_forgets_it() -> None:
    scheduler = make()
    scheduler.add_request(Request("a", list(range(7)), SamplingParams(max_tokens=20, ignore_eos=True)))
    step(scheduler)
    scheduler.schedule()
    assert scheduler.kv.pool.prompt_tails
    scheduler.finish_requests("a")
    assert scheduler.reset_prefix_cache()
    assert not scheduler.kv.pool.prompt_tails
