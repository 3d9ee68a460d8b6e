"""KV in CPU memory: what was stored for a prefix comes back, and the model reads the right bytes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.connector_engine import ConnectorEngine
from tests.support.toy_engine import prompt_of

from tokenyard.connectors.tier_worker import HostMemory, TierWorker
from tokenyard.connectors.tiered import TieredConnector
from tokenyard.connectors.tiers import CPUTier
from tokenyard.core.config import CacheConfig, GroupKind, KVCacheGroup
from tokenyard.core.kv.events import BlockRemoved, BlockStored
from tokenyard.core.request import RequestStatus
from tokenyard.core.sched.outcomes import Reason
from tokenyard.core.sched.outputs import ModelOutput
from tokenyard.errors import ConfigError, RequestError


def engine(num_cpu_blocks: int = 100, *, threads: int = 0, **options: Any) -> ConnectorEngine:
    """An engine of 20 GPU blocks with a CPU tier."""
    settings = {name: options.pop(name) for name in ("store_on", "load_async") if name in options}
    return ConnectorEngine(
        lambda cache: TieredConnector(cache, CPUTier(num_cpu_blocks, events=True), **settings),
        lambda memory: TierWorker(memory, HostMemory(num_cpu_blocks), num_threads=threads),
        **options,
    )


def flush(site: ConnectorEngine) -> None:
    """Push everything out of the GPU's prefix cache."""
    site.serve("flush", 60, max_tokens=4)
    site.serve("flush again", 17)


def looked_up(site: ConnectorEngine) -> tuple[str, int, int]:
    """Request, local and external tokens of the last lookup that an observer was told of."""
    *_, request_id, local, external = [call for call in site.watcher.calls if call[0] == "prefix_looked_up"][-1]
    return request_id, local, external


@pytest.mark.parametrize("load_async", [False, True])
@pytest.mark.parametrize("store_on", ["finish", "eviction"])
@pytest.mark.parametrize("threads", [0, 2])
def test_what_left_the_gpu_comes_back(store_on: str, load_async: bool, threads: int) -> None:
    site = engine(store_on=store_on, load_async=load_async, threads=threads)
    prompt = prompt_of("shared", 40)
    site.serve("first", prompt)
    flush(site)
    second = site.serve("second", prompt)
    assert second.num_external_computed_tokens == 36, "all but the block with the last token"
    assert second.num_cached_tokens == 36
    assert site.is_quiet
    assert (Reason.ASYNC_KV_LOAD_STARTED in site.reasons) is load_async
    assert looked_up(site) == ("second", 0, 36)
    site.mover.shutdown()


def test_a_local_hit_is_continued_from_the_tier() -> None:
    site = engine()
    prompt = prompt_of("shared", 40)
    site.serve("first", prompt)
    flush(site)
    site.serve("half", prompt[:20])
    whole = site.serve("whole", prompt)
    assert (whole.num_external_computed_tokens, whole.num_cached_tokens) == (16, 36)
    assert looked_up(site) == ("whole", 20, 16)


def test_output_is_kept_as_well() -> None:
    site = engine()
    first = site.serve("first", 20, max_tokens=12)
    conversation = first.all_token_ids
    flush(site)
    second = site.serve("second", [*conversation, 1, 2, 3])
    assert second.num_external_computed_tokens == 28, "of 31 computed tokens: the last one sampled never was"


def test_while_a_load_waits_the_reasons_say_so() -> None:
    site = engine(threads=1)
    prompt = prompt_of("shared", 40)
    site.serve("first", prompt)
    flush(site)
    site.reasons.clear()
    site.serve("second", prompt)
    assert site.reasons[0] is Reason.ASYNC_KV_LOAD_STARTED
    assert set(site.reasons[1:]) <= {Reason.WAITING_REMOTE_KV}
    site.mover.shutdown()


def test_a_prefix_being_written_is_asked_for_again() -> None:
    site = engine(num_gpu_blocks=41)
    prompt = prompt_of("shared", 20)
    site.serve("first", prompt)
    tier = site.connector.tier  # type: ignore[attr-defined]  # not every connector has one
    assert tier.reset()
    site.scheduler.reset_prefix_cache()
    tier.reserve(site.requests["first"].block_hashes[0])
    site.add("second", prompt)
    site.step()
    assert site.reasons[-1] is Reason.CONNECTOR_UNDECIDED
    tier.complete(site.requests["first"].block_hashes[0])
    site.run()
    assert site.requests["second"].num_external_computed_tokens == 4


def test_a_request_that_does_not_want_the_cache_gets_nothing_from_the_tier() -> None:
    site = engine()
    prompt = prompt_of("shared", 40)
    site.serve("first", prompt)
    flush(site)
    assert site.serve("second", prompt, skip_reading_prefix_cache=True).num_external_computed_tokens == 0


def test_a_promise_is_withdrawn_when_there_is_no_memory() -> None:
    site = engine(num_gpu_blocks=21)
    prompt = prompt_of("shared", 40)
    site.serve("first", prompt)
    flush(site)
    site.add("runs", 60, max_tokens=4)
    site.step()
    site.add("waits", prompt)
    site.step()
    assert [request.request_id for request in site.scheduler.waiting] == ["waits"]
    assert site.scheduler.reset_connector_cache(), "nothing is held for a request without memory"
    site.run()
    assert site.is_quiet


def test_blocks_stay_until_they_are_stored_and_their_id_is_taken() -> None:
    site = engine()
    site.add("a", 20, max_tokens=1)
    output = site.scheduler.schedule()
    sampled = site.worker.execute(output, lambda name, drafts: [5])
    site.scheduler.update_from_output(output, ModelOutput.from_lists(sampled))
    assert not site.is_quiet
    assert site.scheduler.has_requests()
    with pytest.raises(RequestError, match="still being transferred"):
        site.add("a", 8)
    assert not site.scheduler.reset_connector_cache(), "a store is under way"
    site.run()
    assert site.is_quiet
    site.serve("a", 8)


def test_an_abort_during_a_load_gives_everything_back_when_the_load_is_over() -> None:
    site = engine()
    prompt = prompt_of("shared", 40)
    site.serve("first", prompt)
    flush(site)
    site.add("second", prompt)
    output = site.scheduler.schedule()
    assert site.requests["second"].status is RequestStatus.WAITING_FOR_REMOTE_KVS
    site.scheduler.finish_requests("second")
    assert not site.is_quiet
    assert not site.scheduler.reset_connector_cache(), "the load still reads"
    plan: Any = output.kv_connector_metadata
    site.mover.before_step(plan)
    site.scheduler.update_from_output(output, ModelOutput.from_lists([], site.mover.report()))
    assert site.is_quiet
    assert site.scheduler.reset_connector_cache()


def test_a_small_tier_keeps_the_beginnings() -> None:
    site = engine(num_cpu_blocks=4)
    prompt = prompt_of("shared", 40)
    site.serve("first", prompt)
    site.scheduler.reset_prefix_cache()
    assert site.serve("second", prompt).num_external_computed_tokens == 16
    assert site.scheduler.state.cpu_blocks == (0, 4)


def test_events_of_both_media_and_statistics() -> None:
    site = engine(num_cpu_blocks=5)
    site.add("a", 20, max_tokens=1)
    stats = []
    while site.scheduler.has_requests():
        stats.append(site.step()[1].scheduler_stats)
    assert sum((each.kv_connector_stats or {}).get("cpu_stored_blocks", 0) for each in stats) == 5
    batch = site.scheduler.take_kv_events()
    assert batch is not None
    assert {event.medium for event in batch.events if isinstance(event, BlockStored)} == {"GPU", "CPU"}
    assert site.scheduler.reset_prefix_cache(reset_connector=True)
    batch = site.scheduler.take_kv_events()
    assert batch is not None
    assert [event.medium for event in batch.events if isinstance(event, BlockRemoved)] == ["CPU"]
    assert site.scheduler.make_stats().connector_prefix_cache_stats.reset  # type: ignore[union-attr]  # it has a connector


def test_a_pinned_turn_is_stored_and_stays_pinned() -> None:
    site = engine(policy="continuum-fixed", max_model_len=64)
    request = site.add("turn 1", 20, max_tokens=1, job_id="job", this_func_call="ls")
    site.run()
    assert [pinned.request_id for pinned in site.scheduler.pins] == ["turn 1"]
    assert request.slot >= 0
    assert len(site.connector.tier) == 5  # type: ignore[attr-defined]
    site.scheduler.pins.unpin("job")
    assert site.is_quiet


def test_models_and_settings_it_cannot_serve_are_refused() -> None:
    window = KVCacheGroup(kind=GroupKind.SLIDING_WINDOW, window=8)
    for cache, store_on, message in (
        (CacheConfig(num_gpu_blocks=10_318, groups=(KVCacheGroup(), window)), "finish", "one full-attention"),
        (CacheConfig(num_gpu_blocks=10_318, enable_prefix_caching=False), "finish", "turn it on"),
        (CacheConfig(num_gpu_blocks=10_318), "never", "use one of: finish, eviction"),
    ):
        with pytest.raises(ConfigError, match=message):
            TieredConnector(cache, CPUTier(5), store_on=store_on)
