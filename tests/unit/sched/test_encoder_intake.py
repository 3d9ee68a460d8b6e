"""Multi-modal items that no step could ever compute are refused when they arrive."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.profiles import VLLM_0_22, VLLM_0_33

from tokenyard.core.config import CacheConfig, SchedulerConfig, SpeculativeConfig, SpeculativeMethod
from tokenyard.core.kv.encoder_cache import EncoderCache, ItemEncoderCache
from tokenyard.core.profiles import DecisionProfile
from tokenyard.core.request import MultiModalItem, Request, RequestStatus, SamplingParams
from tokenyard.core.sched.outputs import ModelOutput
from tokenyard.core.sched.scheduler import Scheduler
from tokenyard.errors import RequestError


def _scheduler(*, eagle: bool, **settings: Any) -> Scheduler:
    return Scheduler(
        SchedulerConfig(
            **{
                "profile": VLLM_0_22,
                "max_num_batched_tokens": 40,
                "max_model_len": 200,
                "max_num_encoder_input_tokens": 30,
                "encoder_cache_size": 48,
                **settings,
            }
        ),
        CacheConfig(num_gpu_blocks=60, block_size=16),
        speculative_config=SpeculativeConfig(num_speculative_tokens=2, method=SpeculativeMethod.EAGLE)
        if eagle
        else None,
    )


def _request(*places: tuple[int, int]) -> Request:
    items = [MultiModalItem(mm_hash=f"m{i}", offset=at, length=size) for i, (at, size) in enumerate(places)]
    return Request("q", [1] * 120, SamplingParams(max_tokens=2), mm_features=items)


def _run(scheduler: Scheduler, request: Request) -> int:
    """Steps until the request has finished and the last one, which is empty, has said so."""
    scheduler.add_request(request)
    for step in range(40):
        if not scheduler.has_requests():
            return step
        output = scheduler.schedule()
        chunk = output.is_prefill_chunk
        tokens = [[] if chunk is not None and chunk[row] else [3] for row in range(len(output.req_ids))]
        scheduler.update_from_output(output, ModelOutput.from_lists(tokens))
        scheduler.check_invariants()
    raise AssertionError("it hangs")


def test_an_eagle_head_needs_two_adjacent_items_at_once() -> None:
    """vLLM 0.22.1 accepts the request and hangs at the last position of the first item."""
    with pytest.raises(RequestError, match="together with others, 52 embeddings"):
        _scheduler(eagle=True).add_request(_request((12, 28), (40, 24)))


@pytest.mark.parametrize(
    ("eagle", "places", "cache", "steps"),
    [
        (False, ((12, 28), (40, 24)), 48, 5),
        (True, ((12, 28), (41, 24)), 48, 5),
        (True, ((12, 28), (40, 24)), 52, 6),
        (True, ((0, 20), (20, 28), (48, 20), (68, 28)), 48, 7),
    ],
)
def test_items_that_fit_one_after_the_other_are_served(
    eagle: bool, places: tuple[tuple[int, int], ...], cache: int, steps: int
) -> None:
    assert _run(_scheduler(eagle=eagle, encoder_cache_size=cache), _request(*places)) == steps


@pytest.mark.parametrize(
    ("eagle", "settings"),
    [
        (False, {"max_num_batched_tokens": 27}),
        (True, {"max_num_batched_tokens": 28}),
        (True, {"long_prefill_token_threshold": 28}),
    ],
)
def test_a_whole_item_must_fit_the_tokens_of_one_step(eagle: bool, settings: dict[str, int]) -> None:
    with pytest.raises(RequestError, match="never fit the tokens of one step"):
        _scheduler(eagle=eagle, disable_chunked_mm_input=True, **settings).add_request(_request((12, 28)))
    enough = {name: value + 1 for name, value in settings.items()}
    assert _run(_scheduler(eagle=eagle, disable_chunked_mm_input=True, **enough), _request((12, 28))) == 7


@pytest.mark.parametrize(("eagle", "offset", "steps"), [(False, 12, 9), (True, 0, 8)])
def test_a_request_that_has_come_to_an_item_may_compute_part_of_it(eagle: bool, offset: int, steps: int) -> None:
    """As in vLLM 0.22.1: only an item that lies ahead is not cut."""
    scheduler = _scheduler(eagle=eagle, disable_chunked_mm_input=True, long_prefill_token_threshold=20)
    assert _run(scheduler, _request((offset, 28))) == steps


# ---- one content, one size


def _items(*items: tuple[str, int, int], name: str = "q", resumable: bool = False) -> Request:
    given = [MultiModalItem(mm_hash=content, offset=at, length=size) for content, at, size in items]
    return Request(name, [1] * 60, SamplingParams(max_tokens=2), mm_features=given, resumable=resumable)


def test_items_of_one_request_that_disagree_about_a_content() -> None:
    with pytest.raises(RequestError, match="mm_hash = 'cat': items of 4 and of 6 embeddings have this hash"):
        _items(("cat", 0, 4), ("dog", 8, 6), ("cat", 20, 6))


@pytest.mark.parametrize("profile", [VLLM_0_22, VLLM_0_33], ids=["0.22", "0.33"])
@pytest.mark.parametrize("when", ["waiting", "running", "ended"])
def test_items_of_two_requests_that_disagree_about_a_content(when: str, profile: DecisionProfile) -> None:
    scheduler = _scheduler(eagle=False, profile=profile)
    first = _items(("cat", 0, 4), name="first")
    scheduler.add_request(first)
    if when != "waiting":
        while scheduler.has_requests() and (when == "ended" or first.status is RequestStatus.WAITING):
            output = scheduler.schedule()
            chunk = output.is_prefill_chunk
            tokens = [[] if chunk is not None and chunk[row] else [3] for row in range(len(output.req_ids))]
            scheduler.update_from_output(output, ModelOutput.from_lists(tokens))
    other = _items(("dog", 0, 4), ("cat", 8, 6), name="other")
    with pytest.raises(RequestError, match="mm_hash = 'cat': another item with this hash has 4 embeddings, and this"):
        scheduler.add_request(other)
    scheduler.check_invariants()
    scheduler.reset_encoder_cache()
    if when == "ended":
        scheduler.add_request(other)
    else:
        with pytest.raises(RequestError, match="another item with this hash"):
            scheduler.add_request(other)
        scheduler.finish_requests(["first"])
        scheduler.add_request(other)


def test_input_of_a_session_that_disagrees_about_a_content() -> None:
    scheduler = _scheduler(eagle=False, profile=VLLM_0_33)
    scheduler.add_request(_items(("cat", 0, 4), name="s", resumable=True))
    with pytest.raises(RequestError, match="another item with this hash has 4 embeddings"):
        scheduler.add_request(_items(("cat", 0, 6), name="s", resumable=True))
    with pytest.raises(RequestError, match="the item has 40 embeddings and a step can compute and keep 30"):
        scheduler.add_request(_items(("new", 0, 40), name="s", resumable=True))
    scheduler.add_request(_items(("bird", 0, 6), name="s", resumable=True))
    with pytest.raises(RequestError, match="another item with this hash has 6 embeddings"):
        scheduler.add_request(_items(("bird", 0, 5), name="other"))
    scheduler.finish_requests(["s"])
    scheduler.add_request(_items(("bird", 0, 5), ("cat", 10, 7), name="other"))


@pytest.mark.parametrize("make_cache", [EncoderCache, lambda size: ItemEncoderCache(size, VLLM_0_33)])
@given(seed=st.integers(0, 2**32 - 1))
def test_the_books_hold_even_if_sizes_disagree(make_cache: Callable[[int], EncoderCache], seed: int) -> None:
    """Hosts may ask the cache without any check: room is counted by what an output took."""
    random, cache = Random(seed), make_cache(30)
    requests = []
    for i in range(6):
        places = [(str(random.randrange(3)), 10 * place, random.randint(1, 9)) for place in range(3)]
        each = {content: size for content, _, size in places}
        requests.append(_items(*((content, at, each[content]) for content, at, _ in places), name=f"r{i}"))
    for _ in range(60):
        request = random.choice(requests)
        item = random.choice(request.mm_features)
        if random.random() < 0.4:
            cache.free(request)
        elif not cache.refer(request, item) and cache.make_room(item.num_embeds):
            cache.allocate(request, item)
        cache.check_invariants()


@pytest.mark.parametrize("profile", [VLLM_0_22, VLLM_0_33], ids=["0.22", "0.33"])
def test_a_row_that_ends_lets_go_after_the_rows_before_it(profile: DecisionProfile) -> None:
    """Two images are let go in one step: by the first row, which has passed it, and by the second, which ends."""
    limits = {"max_num_batched_tokens": 100, "max_num_encoder_input_tokens": 20, "encoder_cache_size": 20}
    scheduler = _scheduler(eagle=False, profile=profile, **limits)
    requests = {
        name: Request(
            name,
            [7] * 20,
            SamplingParams(max_tokens=most),
            mm_features=[MultiModalItem(mm_hash=name, offset=0, length=8)],
        )
        for name, most in (("goes on", 9), ("ends", 1), ("next", 9))
    }
    for name in ("goes on", "ends"):
        scheduler.add_request(requests[name])
    output = scheduler.schedule()
    assert output.req_ids == ("goes on", "ends")
    scheduler.update_from_output(output, ModelOutput.from_lists([[3], [3]]))
    scheduler.add_request(requests["next"])
    assert list(scheduler.schedule().free_encoder_mm_hashes) == ["goes on"]
