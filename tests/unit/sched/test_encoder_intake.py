"""Multi-modal items that no step could ever compute are refused when they arrive."""

from __future__ import annotations

from typing import Any

import pytest

from tokenyard.config import CacheConfig, SchedulerConfig, SpeculativeConfig, SpeculativeMethod
from tokenyard.errors import RequestError
from tokenyard.request import MultiModalItem, Request, SamplingParams
from tokenyard.sched.scheduler import Scheduler
from tokenyard.sched.steps.model_output import ModelOutput


def _scheduler(*, eagle: bool, **settings: Any) -> Scheduler:
    return Scheduler(
        SchedulerConfig(
            **{
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
