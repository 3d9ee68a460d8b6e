"""Prefix lookup: how much of a request is cached, and what is counted."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.memory import Memory
from tests.support.toy_engine import make_request, prompt_of

from tokenyard.core.kv.allocation import KVShortage
from tokenyard.core.request import Request, SamplingParams

TEXT = prompt_of("text", 40)


@pytest.mark.parametrize(
    ("cached", "asked", "hit"),
    [
        (8, 8, 4),  # never the whole prompt: the last token is computed for its logits
        (8, 9, 8),
        (8, 7, 4),
        (8, 12, 8),
        (7, 12, 4),  # the second block was never full
        (4, 4, 0),
        (4, 5, 4),
        (3, 12, 0),
        (12, 1, 0),
    ],
)
def test_the_hit_is_at_most_all_tokens_but_one(memory: Memory, cached: int, asked: int, hit: int) -> None:
    memory.finish(memory.admit("first", TEXT[:cached]))
    found = memory.kv.get_computed_blocks(make_request("second", TEXT[:asked]))
    assert found.num_tokens == hit == 4 * len(found.blocks[0])


def test_running_requests_share_too(memory: Memory) -> None:
    first = memory.admit("first", TEXT[:9])
    second = memory.admit("second", TEXT[:10])
    assert memory.blocks(second)[:2] == memory.blocks(first)[:2]
    assert [memory.kv.pool.holders[block] for block in memory.blocks(second)] == [2, 2, 1]


def test_output_is_found_by_the_next_turn(memory: Memory) -> None:
    first = memory.admit("first", TEXT[:6])
    memory.sample(first, *TEXT[6:9])
    memory.grow({first: 8})
    memory.finish(first)
    assert memory.kv.get_computed_blocks(make_request("next", TEXT[:20])).num_tokens == 8


def test_lookup_holds_nothing(memory: Memory) -> None:
    memory.finish(memory.admit("first", TEXT[:8]))
    before = memory.state()
    memory.kv.get_computed_blocks(make_request("second", TEXT[:12]))
    assert memory.state() == before


def test_a_request_may_refuse_to_read(memory: Memory) -> None:
    memory.finish(memory.admit("first", TEXT[:8]))
    request = Request("second", TEXT[:12], SamplingParams(skip_reading_prefix_cache=True))
    assert memory.kv.get_computed_blocks(request) is memory.kv.no_hits
    assert not isinstance(memory.ask(request), KVShortage)
    assert memory.kv.stats.requests == 1, "only the first lookup counts"
    assert len(memory.kv.pool.blocks_with(request.block_hashes[0], 0)) == 2, "it still publishes"


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({"prompt_logprobs": 0}, 0),
        ({"prompt_logprobs": 5}, 0),
        ({"prompt_logprobs": 5, "skip_reading_prefix_cache": False}, 8),
    ],
)
def test_log_probabilities_of_the_prompt_need_all_of_it_computed(
    memory: Memory, settings: dict[str, Any], found: int
) -> None:
    memory.finish(memory.admit("first", TEXT[:8]))
    request = Request("second", TEXT[:12], SamplingParams(**settings))
    assert memory.kv.get_computed_blocks(request).num_tokens == found


def test_without_caching_nothing_is_found_published_or_hashed() -> None:
    memory = Memory(enable_prefix_caching=False)
    first = memory.admit("first", TEXT[:8])
    memory.finish(first)
    assert memory.kv.get_computed_blocks(make_request("second", TEXT[:8])) is memory.kv.no_hits
    assert first.block_hashes == []
    assert memory.num_cached == 0
    assert memory.kv.num_common_prefix_blocks(memory.admit("third", TEXT[:8])) == [0]


def test_the_no_hits_value_is_never_written_to(memory: Memory) -> None:
    request = Request("r", TEXT[:8], SamplingParams(skip_reading_prefix_cache=True))
    memory.ask(request)
    memory.grow({request: 13})
    assert memory.kv.no_hits == (([],), 0, 0)


def test_statistics_count_requests_and_tokens(memory: Memory) -> None:
    memory.admit("first", TEXT[:8])
    memory.admit("second", TEXT[:12])
    again = memory.admit("third", TEXT[:5])
    memory.finish(again)
    again.num_preemptions = 1
    memory.ask(again)
    stats = memory.kv.take_stats()
    assert (stats.requests, stats.queries, stats.hits) == (3, 25, 12)
    assert (stats.preempted_requests, stats.preempted_queries, stats.preempted_hits) == (1, 5, 4)
    assert memory.kv.take_stats().requests == 0, "taking them starts anew"


def test_a_reset_is_reported_once(memory: Memory) -> None:
    first = memory.admit("first", TEXT[:8])
    assert memory.kv.reset_prefix_cache() is False
    assert memory.kv.take_stats().reset is False
    memory.finish(first)
    assert memory.kv.reset_prefix_cache() is True
    assert memory.kv.take_stats().reset is True
    assert memory.kv.take_stats().reset is False
    assert memory.kv.get_computed_blocks(make_request("second", TEXT[:12])).num_tokens == 0


def test_salt_and_adapter_keep_caches_apart(memory: Memory) -> None:
    memory.finish(memory.admit("first", TEXT[:8]))
    for fields in ({"cache_salt": "s"}, {"lora_name": "l"}):
        assert memory.kv.get_computed_blocks(make_request("second", TEXT[:12], **fields)).num_tokens == 0


def test_where_nothing_is_looked_up_nothing_is_cached() -> None:
    """Also in a look-up that admits no request."""
    memory = Memory(enable_prefix_caching=False)
    memory.finish(memory.admit("first", prompt_of("text", 8)))
    assert memory.kv.num_cached_tokens(make_request("again", prompt_of("text", 8))) == 0
