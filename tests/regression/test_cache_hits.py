"""Cache hits lost silently: what users of vLLM reported, built here. The table is in docs/regressions.md."""

from __future__ import annotations

from tests.support.yard import Yard, prompt_of

from tokenyard.config import GroupKind, KVCacheGroup, SpeculativeConfig, SpeculativeMethod

EAGLE = SpeculativeConfig(num_speculative_tokens=2, method=SpeculativeMethod.EAGLE)
NGRAM = SpeculativeConfig(num_speculative_tokens=2)
WINDOW = KVCacheGroup(kind=GroupKind.SLIDING_WINDOW, window=8)


def hits(yard: Yard, length: int = 41) -> int:
    """Cached tokens of a prompt that is served a second time."""
    prompt = prompt_of("shared", length)
    for name in ("first", "second"):
        yard.add(name, prompt, max_tokens=2)
        yard.drain()
    return yard.requests["second"].num_cached_tokens


def test_54360_speculation_on_a_hybrid_model_keeps_its_hits() -> None:
    groups = (KVCacheGroup(), WINDOW)
    assert hits(Yard(groups=groups)) == 40
    assert hits(Yard(groups=groups, speculative=NGRAM)) == 40, "drafts without KV of their own cost nothing"
    assert hits(Yard(groups=groups, speculative=EAGLE)) == 36, "one block, not all of them"
    marked = (KVCacheGroup(is_eagle=True), WINDOW)
    assert hits(Yard(groups=marked, speculative=EAGLE)) >= 36


def test_51769_a_head_on_the_target_model_costs_one_block_and_it_is_told() -> None:
    yard = Yard(speculative=EAGLE)
    assert hits(yard) == 36
    looked_up = [call for call in yard.watcher.calls if call[0] == "prefix_looked_up"]
    assert [call[4] for call in looked_up] == [0, 36]
    assert hits(Yard()) == 40


def test_53670_a_preempted_request_finds_its_own_blocks_again() -> None:
    yard = Yard(num_gpu_blocks=9, max_model_len=32, scheduler_reserve_full_isl=False)
    yard.add("old", 11, max_tokens=9)
    yard.add("young", 11, max_tokens=9)
    yard.until(lambda: bool(yard.outcomes.preemptions))
    computed = yard.outcomes.preemptions[0].num_computed_tokens
    assert yard.outcomes.preemptions[0].request_id == "young"
    output = yard.until(lambda: "young" in yard.running)
    recomputed = output.num_scheduled_tokens["young"]
    assert recomputed < computed, "all was computed again"


def test_53670_lookups_of_preempted_requests_do_not_embellish_the_hit_rate() -> None:
    yard = Yard(num_gpu_blocks=9, max_model_len=32, scheduler_reserve_full_isl=False)
    for name in ("old", "young"):
        yard.add(name, 11, max_tokens=9)
    fresh = preempted = 0
    while yard.scheduler.requests:
        stats = yard.update(yard.schedule()).scheduler_stats.prefix_cache_stats
        fresh, preempted = fresh + stats.hits, preempted + stats.preempted_hits
    assert fresh == 0
    assert preempted > 0


def test_40624_tails_are_evicted_before_what_others_share() -> None:
    """Blocks of an ended request return last first, so memory pressure eats the tail and not the system prompt."""
    yard = Yard(num_gpu_blocks=21, max_model_len=64)
    system = prompt_of("system", 16)
    yard.add("a", [*system, *prompt_of("a", 33)], max_tokens=2)
    yard.drain()
    yard.add("stranger", 47, max_tokens=2)
    yard.drain()
    yard.add("b", [*system, *prompt_of("b", 9)], max_tokens=2)
    yard.step()
    assert yard.requests["b"].num_cached_tokens == 16
