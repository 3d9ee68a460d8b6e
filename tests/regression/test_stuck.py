"""Stuck with idle capacity: what users of vLLM reported, built here. The table is threads.tsv."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.support.profiles import VLLM_0_33
from tests.support.toy_engine import ToyEngine

from tokenyard.core.config import GroupKind, KVCacheGroup
from tokenyard.core.request import Request, SamplingParams
from tokenyard.core.sched.connector import KVConnector, Match
from tokenyard.core.sched.outcomes import Reason
from tokenyard.core.sched.outputs import ConnectorOutput, ModelOutput
from tokenyard.errors import RequestError


class Grammar:
    is_ready = False

    def accept_tokens(self, tokens: Sequence[int]) -> bool:
        return True

    def validate_tokens(self, tokens: Sequence[int]) -> list[int]:
        return list(tokens)


def test_39734_a_request_larger_than_the_pool_blocks_nobody() -> None:
    toy = ToyEngine(num_gpu_blocks=11, max_model_len=200)
    with pytest.raises(RequestError, match="the pool has 10"):
        toy.add("too large", 100)
    for i in range(5):
        toy.add(f"r{i}", 20)
    assert toy.drain() < 60


def test_35541_a_small_block_override_serves_what_fits_and_refuses_the_rest() -> None:
    toy = ToyEngine(num_gpu_blocks=4, max_model_len=64)
    toy.add("fits exactly", 5, max_tokens=8)  # the last token is never computed: 12 places
    with pytest.raises(RequestError):
        toy.add("one more", 6, max_tokens=8)
    toy.add("after it", 3)
    assert toy.drain() < 30
    assert toy.requests["fits exactly"].num_output_tokens == 8


def test_45414_five_waiting_requests_and_an_empty_pool() -> None:
    """A hybrid model: what the full-sequence gate counts must not exceed what was promised at arrival."""
    window = KVCacheGroup(kind=GroupKind.SLIDING_WINDOW, window=8)
    toy = ToyEngine(
        num_gpu_blocks=36, max_model_len=40, groups=(KVCacheGroup(), window, window), max_num_batched_tokens=16
    )
    waiting = 0
    for length in range(10, 39):
        try:
            toy.add(f"r{length}", length, max_tokens=40 - length)
            waiting += 1
        except RequestError:
            break
    assert waiting > 5
    while toy.scheduler.requests:
        assert toy.scheduler.running or toy.step().req_ids, "nothing runs, and no request is admitted"
        toy.step()


def test_53130_deferred_requests_take_no_seat() -> None:
    toy = ToyEngine(max_num_seqs=4)
    grammars = [Grammar() for _ in range(3)]
    for i, grammar in enumerate(grammars):
        toy.add(f"deferred{i}", structured_output=grammar)
    toy.add("runs")
    toy.step()
    assert len(toy.running) + len(toy.skipped) == 4
    for i in range(3):
        toy.add(f"new{i}")
    toy.step()
    assert toy.running == ["runs", "new0", "new1", "new2"]
    for grammar in grammars:
        grammar.is_ready = True
    toy.drain()
    assert all(request.num_output_tokens == 8 for request in toy.requests.values())


class Loads(KVConnector):
    def get_num_new_matched_tokens(self, request: Request, num_computed_tokens: int) -> Match:
        return Match(16 if num_computed_tokens == 0 else 0, is_async=True)


def test_57104_waiting_requests_hold_the_blocks_that_the_head_lacks() -> None:
    """Loads of two requests fill the pool; neither prompt fits beside the other, and nothing runs."""
    toy = ToyEngine(num_gpu_blocks=11, max_model_len=40, scheduler_reserve_full_isl=False, kv_connector=Loads())
    names = ("a", "b")
    for name in names:
        toy.scheduler.add_request(Request(name, [*range(24), *map(ord, name)], SamplingParams(max_tokens=3)))
    loads, done = frozenset(names), 0
    for _ in range(40):
        output = toy.schedule()
        answer = toy.model(output, {})
        loading = [each for each in toy.outcomes.skipped if each.reason is Reason.ASYNC_KV_LOAD_STARTED]
        answer.connector = ConnectorOutput(finished_receiving=loads & {str(each.request_id) for each in loading})
        done += len(toy.scheduler.update_from_output(output, answer).finish_reasons)
        toy.scheduler.check_invariants()
        if not toy.scheduler.requests:
            break
    assert done == 2
    assert toy.free == 10


def test_a_scheduler_that_has_been_idle_admits_at_once() -> None:
    toy = ToyEngine()
    for _ in range(3):
        toy.scheduler.update_from_output(toy.schedule(), ModelOutput.from_lists([]))
    toy.add("a")
    assert toy.step().num_scheduled_tokens == {"a": 4}


def test_prompts_first_lets_those_decode_who_hold_the_memory_that_a_prompt_lacks() -> None:
    """It held decodes for a prompt that lacked their memory, was preempted, admitted again, and so on for ever."""
    window = KVCacheGroup(kind=GroupKind.SLIDING_WINDOW, window=10)
    toy = ToyEngine(
        policy="vllm-v0",
        num_gpu_blocks=28,
        groups=(KVCacheGroup(), window, window),
        max_num_seqs=3,
        max_num_batched_tokens=3,
        scheduler_reserve_full_isl=False,
        profile=VLLM_0_33,
    )
    arrivals = {0: (8, 16), 3: (12, 14), 7: (8, 8)}
    for step in range(100):
        if step in arrivals:
            prompt, most = arrivals[step]
            toy.add(f"at step {step}", prompt, max_tokens=most, ignore_eos=True)
        toy.step()
    assert not toy.scheduler.requests
    assert any(request.num_preemptions for request in toy.requests.values()), "the situation is not one"
