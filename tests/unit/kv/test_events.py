"""KV events: a consumer that only sees them knows what the prefix index knows."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.profiles import VLLM_0_22

from tokenyard.core.config import CacheConfig, GroupKind, KVCacheGroup, MambaCacheMode, SchedulerConfig
from tokenyard.core.kv.events import AllBlocksCleared, BlockRemoved, BlockStored, KVEventBatch
from tokenyard.core.kv.hashing import digests
from tokenyard.core.request import Request, SamplingParams
from tokenyard.core.sched.outputs import ModelOutput
from tokenyard.core.sched.scheduler import Scheduler

WINDOWED = (KVCacheGroup(), KVCacheGroup(kind=GroupKind.SLIDING_WINDOW, window=6))


RECURRENT = (KVCacheGroup(), KVCacheGroup(kind=GroupKind.MAMBA))


def make(
    num_gpu_blocks: int = 30,
    groups: tuple[KVCacheGroup, ...] = (KVCacheGroup(),),
    mode: MambaCacheMode = MambaCacheMode.NONE,
) -> Scheduler:
    return Scheduler(
        SchedulerConfig(profile=VLLM_0_22, max_num_seqs=4, max_num_batched_tokens=32, max_model_len=64),
        CacheConfig(
            num_gpu_blocks=num_gpu_blocks,
            block_size=4,
            groups=groups,
            mamba_cache_mode=mode,
            enable_kv_cache_events=True,
        ),
        clock=lambda: 5.0,
    )


def drain(scheduler: Scheduler) -> list[KVEventBatch]:
    """Run until nothing is left; every batch of events on the way."""
    batches = []
    while scheduler.has_requests():
        output = scheduler.schedule()
        chunks = output.is_prefill_chunk
        tokens = [[] if chunks is not None and chunks[i] else [9] for i in range(len(output.req_ids))]
        scheduler.update_from_output(output, ModelOutput.from_lists(tokens))
        if (batch := scheduler.take_kv_events()) is not None:
            batches.append(batch)
    return batches


def ask(request_id: str, tokens: list[int], max_tokens: int = 3) -> Request:
    return Request(request_id, tokens, SamplingParams(max_tokens=max_tokens, ignore_eos=True), lora_name="tuned")


def test_stored_blocks_name_their_tokens_and_their_parent() -> None:
    scheduler = make()
    scheduler.add_request(ask("a", list(range(10)), max_tokens=4))
    first, second = [event for batch in drain(scheduler) for event in batch.events]
    assert isinstance(first, BlockStored)
    assert (first.token_ids, first.parent_block_hash, first.block_size) == ([*range(8)], None, 4)
    assert first.lora_name == "tuned"
    assert isinstance(second, BlockStored)
    assert second.token_ids == [8, 9, 9, 9]
    assert second.parent_block_hash == first.block_hashes[-1]


def test_states_are_stored_under_their_own_kind() -> None:
    scheduler = make(groups=RECURRENT, mode=MambaCacheMode.ALIGN)
    scheduler.add_request(ask("a", list(range(10)), max_tokens=1))
    attention, state = [event for batch in drain(scheduler) for event in batch.events]
    assert isinstance(attention, BlockStored)
    assert isinstance(state, BlockStored)
    assert (attention.kv_cache_spec_kind, len(attention.block_hashes)) == ("full_attention", 2)
    assert (state.kv_cache_spec_kind, state.group_idx) == ("mamba", 1)
    assert state.block_hashes == attention.block_hashes[-1:], "the step kept the state it ended with"


def test_a_reset_clears_everything() -> None:
    scheduler = make()
    scheduler.add_request(ask("a", list(range(10))))
    drain(scheduler)
    assert scheduler.reset_prefix_cache()
    batch = scheduler.take_kv_events()
    assert batch is not None
    assert (batch.ts, batch.events) == (5.0, [AllBlocksCleared()])
    assert scheduler.take_kv_events() is None


def test_the_wire_format_is_an_array_that_begins_with_the_kind() -> None:
    batch = KVEventBatch(1.5, [BlockRemoved([7], "GPU", 0), AllBlocksCleared()])
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(batch)) == [
        1.5,
        [["BlockRemoved", [7], "GPU", 0], ["AllBlocksCleared"]],
        None,
    ]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(batch), type=KVEventBatch) == batch


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(60))
@given(
    prompts=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 30), st.integers(1, 12)), min_size=1, max_size=8),
    blocks=st.integers(14, 40),
    layers=st.sampled_from(["full", "windowed", "all", "align"]),
)
def test_a_consumer_knows_what_the_index_knows(prompts: list[tuple[int, int, int]], blocks: int, layers: str) -> None:
    """Hashes stored and not removed since, per group, are those that lookups can find."""
    if layers == "full":
        scheduler = make(blocks)
    elif layers == "windowed":
        scheduler = make(2 * blocks, WINDOWED)
    else:
        scheduler = make(2 * blocks, RECURRENT, MambaCacheMode(layers))
    for i, (kind, length, max_tokens) in enumerate(prompts):
        scheduler.add_request(ask(f"r{i}", [kind * 100 + at for at in range(length)], max_tokens))
    known: dict[int | None, set[int]] = {0: set(), 1: set()}
    for batch in drain(scheduler):
        for event in batch.events:
            if isinstance(event, BlockStored):
                known[event.group_idx] |= set(event.block_hashes)
            elif isinstance(event, BlockRemoved):
                known[event.group_idx] -= set(event.block_hashes)
    pool = scheduler.kv.pool
    for group in range(pool.num_groups):
        held = [content for content in pool.content if content is not None and pool.find(content, group)]
        really = {int.from_bytes(h, "big") & (2**64 - 1) for h in digests(held)}
        # Of two blocks with one content, the removal of one is told too: a consumer may know less, never more.
        assert known[group] <= really
