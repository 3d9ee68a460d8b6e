"""Prefill on one engine, decode on another: bytes arrive, nothing is freed too early, nothing is kept too long."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from tests.support.connector_engine import ConnectorEngine

from tokenyard.connectors.prefill_decode import OfferExchange, PrefillDecodeConnector, PrefillDecodeWorker
from tokenyard.connectors.tier_worker import ArrayMemory
from tokenyard.core.config import CacheConfig, GroupKind, KVCacheGroup
from tokenyard.core.request import FinishReason, RequestStatus
from tokenyard.core.sched.outcomes import Reason
from tokenyard.errors import ConfigError, RequestError


class Pair:
    """A prefill and a decode engine on one clock."""

    def __init__(self, *, threads: int = 0, **options: Any) -> None:
        self.now = 0.0
        self.exchange = OfferExchange()
        self.prefill, self.decode = (self._engine(name, threads, options) for name in ("prefill", "decode"))

    def _engine(self, engine_id: str, threads: int, options: Mapping[str, Any]) -> ConnectorEngine:
        def clock() -> float:
            return self.now

        return ConnectorEngine(
            lambda cache: PrefillDecodeConnector(cache, engine_id, clock),
            lambda memory: PrefillDecodeWorker(memory, self.exchange, engine_id, clock, num_threads=threads),
            **options,
        )

    def prefilled(self, request_id: str, prompt: int, **options: Any) -> Mapping[str, Any]:
        """Run a prefill; returns what its client is told. Its offer does not stand yet."""
        options = {"max_tokens": 1, "kv_transfer_params": {"do_remote_decode": True}, **options}
        self.prefill.add(request_id, prompt, **options)
        while request_id in self.prefill.scheduler.requests:
            self.prefill.step()
        params = self.prefill.news[-1].kv_transfer_params
        return params if params is not None else {}

    def both(self, number: int = 1) -> None:
        for _ in range(number):
            self.prefill.step()
            self.decode.step()

    @property
    def is_quiet(self) -> bool:
        return self.prefill.is_quiet and self.decode.is_quiet


@pytest.mark.parametrize("length", [1, 3, 4, 5, 16, 37])
@pytest.mark.parametrize("threads", [0, 2])
def test_the_decode_engine_computes_only_the_last_token(length: int, threads: int) -> None:
    pair = Pair(threads=threads)
    params = pair.prefilled("a", length)
    assert not pair.prefill.is_quiet
    request = pair.decode.add("a", length, max_tokens=5, kv_transfer_params=params)
    computed = 0
    while pair.decode.scheduler.has_requests():
        pair.prefill.step()
        output, _ = pair.decode.step()
        computed += output.num_scheduled_tokens.get("a", 0)
    assert computed == 5, "the prompt's last token and four of the answer: the model has checked the others' KV"
    assert request.num_output_tokens == 5
    assert request.num_external_computed_tokens == length - 1
    pair.prefill.run()
    assert pair.is_quiet
    for site in (pair.prefill, pair.decode):
        site.mover.shutdown()


def test_what_the_client_is_told() -> None:
    pair = Pair()
    params = pair.prefilled("a", 10)
    assert params == {
        "do_remote_prefill": True,
        "do_remote_decode": False,
        "remote_engine_id": "prefill",
        "remote_request_id": "a",
        "remote_block_ids": [1, 2, 3],
    }


def test_the_load_waits_beside_other_requests_and_says_so() -> None:
    pair = Pair()
    params = pair.prefilled("a", 20)
    pair.decode.add("other", 8, max_tokens=4)
    request = pair.decode.add("a", 20, max_tokens=2, kv_transfer_params=params)
    output, _ = pair.decode.step()
    assert output.num_scheduled_tokens == {"other": 8}
    assert request.status is RequestStatus.WAITING_FOR_REMOTE_KVS
    assert pair.decode.reasons == [Reason.ASYNC_KV_LOAD_STARTED]
    pair.decode.step()
    assert pair.decode.reasons[1:] == [Reason.WAITING_REMOTE_KV], "the prefill engine has not opened its offer"
    pair.both(3)
    assert request.num_output_tokens == 2


def test_only_what_is_not_cached_here_is_fetched() -> None:
    pair = Pair()
    first = pair.prefilled("a", 20)
    pair.decode.add("a", 20, max_tokens=1, kv_transfer_params=first)
    pair.both(4)
    prompt = [*pair.decode.requests["a"].prompt_token_ids, *range(9)]
    pair.prefill.add("b", prompt, max_tokens=1, kv_transfer_params={"do_remote_decode": True})
    pair.prefill.step()
    second = pair.prefill.news[-1].kv_transfer_params
    request = pair.decode.add("b", prompt, max_tokens=1, kv_transfer_params=second)
    output = pair.decode.scheduler.schedule()
    plan: Any = output.kv_connector_metadata
    assert [len(load.blocks) for load in plan.loads] == [3], "5 of 8 blocks are here"
    pair.decode.finish_step(output)
    pair.both(4)
    assert (request.num_cached_tokens, request.num_external_computed_tokens) == (28, 8)
    assert pair.is_quiet


@pytest.mark.parametrize("params", [None, {}, {"do_remote_decode": False}])
def test_requests_without_parameters_are_served_as_usual(params: Any) -> None:
    pair = Pair()
    pair.prefill.serve("a", 20, max_tokens=3, kv_transfer_params=params)
    assert pair.prefill.news[-1].kv_transfer_params is None
    assert pair.is_quiet


def test_an_answer_that_has_ended_is_not_offered() -> None:
    pair = Pair()
    # The model's place, taken by one that says the stop token at once.
    pair.prefill.sample = lambda name, drafts: [7]  # type: ignore[method-assign]  # a stand-in
    assert pair.prefilled("a", 20, max_tokens=3, stop_token_ids=(7,)) == {}
    assert pair.is_quiet


def test_an_offer_that_nobody_claims_ends_with_its_lease() -> None:
    pair = Pair()
    pair.prefilled("a", 20)
    pair.prefill.step()
    pair.now = 29.0
    pair.prefill.step()
    assert not pair.prefill.is_quiet
    pair.now = 30.0
    pair.prefill.step()
    assert pair.is_quiet
    assert not pair.prefill.scheduler.has_requests()


def test_a_claim_outlives_the_lease() -> None:
    pair = Pair(max_num_seqs=1)
    params = pair.prefilled("a", 20)
    pair.decode.add("busy", 8, max_tokens=10)
    request = pair.decode.add("a", 20, max_tokens=2, kv_transfer_params=params)
    pair.both(2)
    pair.now = 1000.0
    pair.both(12)
    assert request.num_external_computed_tokens == 19
    assert pair.is_quiet


@pytest.mark.parametrize("policy", ["recompute", "fail"])
def test_an_offer_that_has_ended_is_a_failed_load(policy: str) -> None:
    pair = Pair(kv_load_failure_policy=policy)
    params = pair.prefilled("a", 20)
    pair.prefill.step()
    pair.now = 40.0
    pair.prefill.step()
    assert pair.prefill.is_quiet
    request = pair.decode.add("a", 20, max_tokens=2, kv_transfer_params=params)
    pair.decode.step()
    pair.now = 50.0  # its patience is over
    while pair.decode.scheduler.has_requests():
        pair.decode.step()
    if policy == "recompute":
        assert request.num_output_tokens == 2
        assert request.num_external_computed_tokens == 0
    else:
        assert [news.finish_reason for news in pair.decode.news] == [FinishReason.ERROR]
    assert pair.is_quiet


@pytest.mark.parametrize("moment", ["before the step", "while it loads", "while it decodes"])
def test_an_abort_on_the_decode_side_frees_both_sides(moment: str) -> None:
    pair = Pair()
    params = pair.prefilled("a", 20)
    pair.decode.add("a", 20, max_tokens=9, kv_transfer_params=params)
    if moment != "before the step":
        pair.decode.step()
    if moment == "while it decodes":
        pair.both(4)
        assert pair.decode.requests["a"].num_output_tokens
    pair.decode.scheduler.finish_requests("a")
    pair.both(4)
    assert pair.is_quiet


def test_an_abort_on_the_prefill_side_offers_nothing() -> None:
    pair = Pair(max_num_batched_tokens=8)
    pair.prefill.add("a", 20, max_tokens=1, kv_transfer_params={"do_remote_decode": True})
    pair.prefill.step()
    pair.prefill.scheduler.finish_requests("a")
    pair.prefill.run()
    assert pair.is_quiet


def test_a_request_preempted_after_its_load_is_computed_here() -> None:
    pair = Pair(num_gpu_blocks=12, policy="priority", scheduler_reserve_full_isl=False)
    params = pair.prefilled("a", 20)
    request = pair.decode.add("a", 20, max_tokens=8, kv_transfer_params=params, priority=5)
    pair.both(4)
    pair.decode.add("urgent", 20, max_tokens=8, priority=0)
    pair.both(30)
    assert request.num_preemptions
    assert request.num_output_tokens == 8
    assert pair.is_quiet


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"remote_engine_id": None}, "remote_engine_id"),
        ({"remote_request_id": 3}, "remote_request_id"),
        ({"remote_block_ids": [1]}, "remote_block_ids"),
        ({"remote_block_ids": ["1", "2", "3", "4", "5"]}, "remote_block_ids"),
    ],
)
def test_parameters_that_cannot_work_are_refused(change: Mapping[str, Any], field: str) -> None:
    pair = Pair()
    params = {**pair.prefilled("a", 20), **change}
    with pytest.raises(RequestError, match=field):
        pair.decode.add("a", 20, kv_transfer_params=params)
    assert not pair.decode.scheduler.has_requests()


def test_statistics_count_blocks() -> None:
    pair = Pair()
    params = pair.prefilled("a", 20)
    pair.decode.add("a", 20, max_tokens=1, kv_transfer_params=params)
    pair.decode.scheduler.schedule()
    assert pair.decode.scheduler.make_stats().kv_connector_stats == {"fetched_blocks": 5, "offered_blocks": 0}


def test_one_full_attention_group_is_required() -> None:
    window = KVCacheGroup(kind=GroupKind.SLIDING_WINDOW, window=8)
    with pytest.raises(ConfigError, match="one full-attention"):
        PrefillDecodeConnector(CacheConfig(num_gpu_blocks=10_318, groups=(window,)), "0", lambda: 0.0)


def connector(settings: dict[str, Any]) -> PrefillDecodeConnector:
    return PrefillDecodeConnector(
        CacheConfig(num_gpu_blocks=10_318), **{"engine_id": "0", "clock": lambda: 0.0, **settings}
    )


def worker(settings: dict[str, Any]) -> PrefillDecodeWorker:
    memory = ArrayMemory({"layer.0": np.zeros((2, 16), np.float16)})
    return PrefillDecodeWorker(
        memory, OfferExchange(), **{"engine_id": "0", "clock": lambda: 0.0, "patience": 0.0, **settings}
    )


@pytest.mark.parametrize(
    ("make", "settings", "message"),
    [
        (connector, {"engine_id": 7}, "engine_id = 7: give a text"),
        (connector, {"lease_seconds": "30"}, "lease_seconds = '30': give a number above 0"),
        (worker, {"engine_id": ""}, "engine_id = '': give a text"),
        (worker, {"patience": -1}, "patience = -1: give a number from 0"),
        (worker, {"num_threads": -1}, "num_threads = -1: give a whole number from 0"),
    ],
)
def test_settings_that_cannot_work_are_refused(make: Callable[..., object], settings: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make(settings)
    make({})
