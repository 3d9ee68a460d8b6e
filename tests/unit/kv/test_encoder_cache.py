"""The encoder cache: outputs are shared, kept while a request needs them, and evicted oldest first after that."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from tests.support.profiles import VLLM_0_33
from tests.support.toy_engine import make_request

from tokenyard.core.kv.encoder_cache import EncoderCache, ItemEncoderCache
from tokenyard.core.request import MultiModalItem, Request
from tokenyard.core.sched.features.encoder import EncoderReleases


def image(name: str, length: int = 4, offset: int = 0) -> MultiModalItem:
    return MultiModalItem(mm_hash=name, offset=offset, length=length)


def _request(name: str, *items: MultiModalItem) -> Request:
    return make_request(name, 40, mm_features=items)


@pytest.fixture
def cache() -> EncoderCache:
    return EncoderCache(10)


def _compute(cache: EncoderCache, request: Request, item: MultiModalItem) -> None:
    assert not cache.refer(request, item)
    assert cache.make_room(item.num_embeds)
    cache.allocate(request, item)
    cache.check_invariants()


def test_an_output_takes_room_while_it_is_needed(cache: EncoderCache) -> None:
    cat = image("cat")
    request = _request("a", cat)
    _compute(cache, request, cat)
    assert (cache.num_free, cache.num_reclaimable) == (6, 6)
    assert cache.refer(request, cat)
    cache.release(request, cat)
    assert (cache.num_free, cache.num_reclaimable) == (6, 10), "it stays as long as there is room"
    cache.check_invariants()


def test_an_output_is_shared_by_content(cache: EncoderCache) -> None:
    one, other = _request("a", image("cat")), _request("b", image("cat", offset=8))
    _compute(cache, one, one.mm_features[0])
    assert cache.refer(other, other.mm_features[0])
    cache.free(one)
    assert cache.num_reclaimable == 6, "b still needs it"
    cache.free(other)
    assert cache.num_reclaimable == 10
    cache.check_invariants()


def test_a_forgotten_output_can_be_taken_up_again(cache: EncoderCache) -> None:
    one, other = _request("a", image("cat")), _request("b", image("cat"))
    _compute(cache, one, one.mm_features[0])
    cache.free(one)
    assert cache.refer(other, other.mm_features[0])
    assert (cache.num_free, cache.num_reclaimable) == (6, 6)
    cache.check_invariants()


def test_the_oldest_is_evicted_first_and_told_once(cache: EncoderCache) -> None:
    for name in ("cat", "dog"):
        request = _request(name, image(name))
        _compute(cache, request, request.mm_features[0])
        cache.free(request)
    assert cache.make_room(6)
    assert cache.take_evicted() == ("cat",)
    assert cache.take_evicted() == ()
    assert not cache.refer(_request("x", image("cat")), image("cat"))
    assert cache.refer(_request("y", image("dog")), image("dog"))


def test_nothing_changes_when_there_is_no_room(cache: EncoderCache) -> None:
    used, unused = _request("a", image("cat", 6)), _request("b", image("dog", 3))
    for request in (used, unused):
        _compute(cache, request, request.mm_features[0])
    cache.free(unused)
    assert cache.make_room(5) is False
    assert cache.take_evicted() == ()
    assert (cache.num_free, cache.num_reclaimable) == (1, 4)
    assert cache.make_room(4) is True


def test_outputs_that_the_tokens_have_passed_are_released(cache: EncoderCache) -> None:
    request = _request("a", image("cat", 4, offset=0), image("dog", 4, offset=10))
    for item in request.mm_features:
        _compute(cache, request, item)
    cat, dog = request.mm_features
    releases = EncoderReleases(cache)
    for computed, passed, reclaimable in ((4, [cat], 6), (13, [cat], 6), (14, [cat, dog], 10)):
        request.num_computed_tokens = computed
        assert cache.passed_items(request) == passed
        releases.begin([request], frozenset())
        releases.end()
        assert (cache.num_free, cache.num_reclaimable) == (2, reclaimable)


@pytest.mark.parametrize("make", [EncoderCache, lambda size: ItemEncoderCache(size, VLLM_0_33)])
@pytest.mark.parametrize("ended", [ended for n in range(4) for ended in itertools.combinations(range(3), n)])
def test_rows_let_go_one_after_another(make: Callable[[int], EncoderCache], ended: tuple[int, ...]) -> None:
    """A row that ends lets go of everything before the next row lets go of what it has passed: it is evicted first."""
    cache = make(12)
    rows = [_request(str(i), image(f"passed {i}", 2), image(f"later {i}", 2, offset=8)) for i in range(3)]
    for request in rows:
        for item in request.mm_features:
            _compute(cache, request, item)
        request.num_computed_tokens = 4
    releases = EncoderReleases(cache)
    releases.begin(rows, frozenset())
    for i in ended:
        releases.free(rows[i])
    releases.end()
    cache.make_room(cache.num_reclaimable)
    expected = [[f"passed {i}", f"later {i}"][: 1 + (i in ended)] for i in range(3)]
    assert list(cache.take_evicted()) == list(itertools.chain.from_iterable(expected))


def test_only_placeholders_with_an_embedding_take_room(cache: EncoderCache) -> None:
    item = MultiModalItem(mm_hash="cat", offset=0, length=4, is_embed=(True, False, True, False))
    _compute(cache, _request("a", item), item)
    assert cache.num_free == 8


def test_a_reset_forgets_everything(cache: EncoderCache) -> None:
    request = _request("a", image("cat"))
    _compute(cache, request, request.mm_features[0])
    cache.reset()
    assert (cache.num_free, cache.num_reclaimable) == (10, 10)
    assert not cache.refer(request, request.mm_features[0])
    cache.free(request)
    cache.check_invariants()
