"""Cache hits lost silently: what users of vLLM reported, built here. The table is threads.tsv."""

from __future__ import annotations

from tests.support.toy_engine import ToyEngine, prompt_of

from tokenyard.core.config import GroupKind, KVCacheGroup, SpeculativeConfig, SpeculativeMethod

EAGLE = SpeculativeConfig(num_speculative_tokens=2, method=SpeculativeMethod.EAGLE)
NGRAM = SpeculativeConfig(num_speculative_tokens=2)
WINDOW = KVCacheGroup(kind=GroupKind.SLIDING_WINDOW, window=8)


def hits(toy: ToyEngine, length: int = 41) -> int:
    """Cached tokens of a prompt that is served a second time."""
    prompt = prompt_of("shared", length)
    for name in ("first", "second"):
        toy.add(name, prompt, max_tokens=2)
        toy.drain()
    return toy.requests["second"].num_cached_tokens


def test_54360_speculation_on_a_hybrid_model_keeps_its_hits() -> None:
    groups = (KVCacheGroup(), WINDOW)
    assert hits(ToyEngine(groups=groups)) == 40
    assert hits(ToyEngine(groups=groups, speculative=NGRAM)) == 40, "drafts without KV of their own cost nothing"
    assert hits(ToyEngine(groups=groups, speculative=EAGLE)) == 36, "one block, not all of them"
    marked = (KVCacheGroup(is_eagle=True), WINDOW)
    assert hits(ToyEngine(groups=marked, speculative=EAGLE)) >= 36


def test_51769_a_head_on_the_target_model_costs_one_block_and_it_is_told() -> None:
    toy = ToyEngine(speculative=EAGLE)
    assert hits(toy) == 36
    looked_up = [call for call in toy.watcher.calls if call[0] == "prefix_looked_up"]
    assert [call[4] for call in looked_up] == [0, 36]
    assert hits(ToyEngine()) == 40


def test_53670_a_preempted_request_finds_its_own_blocks_again() -> None:
    toy = ToyEngine(num_gpu_blocks=9, max_model_len=32, scheduler_reserve_full_isl=False)
    toy.add("old", 11, max_tokens=9)
    toy.add("young", 11, max_tokens=9)
    toy.until(lambda: bool(toy.outcomes.preemptions))
    computed = toy.outcomes.preemptions[0].num_computed_tokens
    assert toy.outcomes.preemptions[0].request_id == "young"
    output = toy.until(lambda: "young" in toy.running)
    recomputed = output.num_scheduled_tokens["young"]
    assert recomputed < computed, "all was computed again"


def test_53670_lookups_of_preempted_requests_do_not_embellish_the_hit_rate() -> None:
    toy = ToyEngine(num_gpu_blocks=9, max_model_len=32, scheduler_reserve_full_isl=False)
    for name in ("old", "young"):
        toy.add(name, 11, max_tokens=9)
    fresh = preempted = 0
    while toy.scheduler.requests:
        stats = toy.update(toy.schedule()).scheduler_stats.prefix_cache_stats
        fresh, preempted = fresh + stats.hits, preempted + stats.preempted_hits
    assert fresh == 0
    assert preempted > 0


def test_40624_tails_are_evicted_before_what_others_share() -> None:
    """Blocks of an ended request return last first, so memory pressure eats the tail and not the system prompt."""
    toy = ToyEngine(num_gpu_blocks=21, max_model_len=64)
    system = prompt_of("system", 16)
    toy.add("a", [*system, *prompt_of("a", 33)], max_tokens=2)
    toy.drain()
    toy.add("stranger", 47, max_tokens=2)
    toy.drain()
    toy.add("b", [*system, *prompt_of("b", 9)], max_tokens=2)
    toy.step()
    assert toy.requests["b"].num_cached_tokens == 16
