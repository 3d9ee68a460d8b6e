"""Crashes in bookkeeping: what users of vLLM reported, built here. The table is threads.tsv."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.profiles import VLLM_0_22
from tests.support.toy_engine import ToyEngine

from tokenyard.core.config import SpeculativeConfig
from tokenyard.core.request import FinishReason
from tokenyard.core.sched.connector import KVConnector
from tokenyard.core.sched.outcomes import Reason
from tokenyard.core.sched.outputs import ModelAuxOutput, ModelOutput
from tokenyard.core.sched.scheduler_output import SchedulerOutput
from tokenyard.errors import NestedCallError


def pressed(**settings: Any) -> ToyEngine:
    """Three urgent and less urgent requests that outgrow the pool together."""
    toy = ToyEngine(
        policy="priority", num_gpu_blocks=13, max_model_len=48, scheduler_reserve_full_isl=False, **settings
    )
    for name, priority in (("low", 9), ("middle", 5), ("high", 1)):
        toy.add(name, 3 + priority, max_tokens=24, priority=priority, arrival_time=float(priority))
        toy.step()  # so that the least urgent stands first in the running list
    return toy


@pytest.mark.parametrize("chunked", [True, False])
def test_9342_an_urgent_request_preempts_without_a_crash(chunked: bool) -> None:
    toy = pressed(enable_chunked_prefill=chunked)
    toy.steps(6)
    toy.add("urgent", 12, max_tokens=24, priority=-100)
    preempted: list[str] = []
    while toy.scheduler.requests:
        preempted += toy.step().preempted_req_ids
    assert preempted, "the situation is not one"
    assert "urgent" not in preempted
    assert {request.num_output_tokens for request in toy.requests.values()} == {24}


def test_23347_a_victim_that_was_scheduled_in_this_step_is_taken_out_of_it() -> None:
    toy = pressed()
    rolled_back = 0
    while toy.scheduler.requests:
        running = len(toy.running)
        output = toy.step()
        rolled_back += sum(each.rolled_back_tokens for each in toy.outcomes.preemptions)
        assert output.num_running <= running
        assert not set(output.preempted_req_ids) & set(output.num_scheduled_tokens)
        assert sum(output.num_new_tokens.tolist()) == output.total_num_scheduled_tokens
    assert rolled_back > 0, "the situation is not one"


@pytest.mark.parametrize("drifts", [True, False])
def test_49097_a_request_passed_over_by_index_drift_is_named_or_served(drifts: bool) -> None:
    """A victim that has nothing to compute in this step stands before the request it makes room for."""
    profile = replace(VLLM_0_22, running_index_drifts=drifts)
    toy = ToyEngine(async_scheduling=True, policy="priority", num_gpu_blocks=5, profile=profile)
    toy.add("victim", 4, max_tokens=2, priority=9)
    flights = [toy.schedule()]
    toy.add("grows", 4, priority=0)
    toy.add("behind", 2, priority=1)
    flights.append(toy.schedule())
    passed_over = []
    while flights:
        toy.update(flights.pop(0))
        if toy.scheduler.has_requests():
            flights.append(toy.schedule())
            reasons = {each.request_id: each.reason for each in toy.outcomes.not_scheduled}
            passed_over += [name for name, reason in reasons.items() if reason is Reason.RUNNING_INDEX_DRIFT]
            left_out = set(toy.running) - set(flights[-1].num_scheduled_tokens)
            assert left_out <= set(reasons), "a request was left out without a reason"
    assert passed_over == (["behind"] if drifts else [])
    assert [request.num_output_tokens for request in toy.requests.values()] == [2, 8, 8]


class Impatient(KVConnector):
    """Wants to end a request while its step is still being made, which is refused."""

    def __init__(self) -> None:
        self.toy: ToyEngine | None = None
        self.victim = ""

    def build_connector_meta(self, output: SchedulerOutput) -> object:
        if self.toy is not None and self.victim in self.toy.scheduler.requests:
            with pytest.raises(NestedCallError):
                self.toy.scheduler.finish_requests(self.victim)
        return None


@pytest.mark.parametrize("is_async", [False, True])
def test_42157_a_request_that_ends_while_its_step_is_made(is_async: bool) -> None:
    connector = Impatient()
    drafts = SpeculativeConfig(num_speculative_tokens=2) if is_async else None
    toy = ToyEngine(kv_connector=connector, async_scheduling=is_async, speculative=drafts)
    for name in ("a", "b", "c"):
        toy.add(name, max_tokens=20)
    toy.steps(2)
    connector.toy, connector.victim = toy, "b"
    output = toy.schedule()
    connector.toy = None
    toy.scheduler.finish_requests("b")
    assert [news.request_id for news in toy.update(output)] == ["a", "c"]
    again = toy.add("b", max_tokens=4)
    toy.drain()
    assert again.num_output_tokens == 4


def lose(toy: ToyEngine, name: str) -> dict[str, FinishReason | None]:
    """A step whose output lacks one of its requests."""
    output = toy.schedule()
    answer = toy.model(output, {name: []})
    answer.extras = ModelAuxOutput(failed=frozenset({name}))
    result = toy.scheduler.update_from_output(output, answer)
    toy.scheduler.check_invariants()
    return {news.request_id: news.finish_reason for news in result}


def test_46263_a_request_that_a_later_pipeline_stage_ended_by_itself() -> None:
    toy = ToyEngine()
    for name in ("a", "b"):
        toy.add(name, max_tokens=20)
    toy.steps(3)
    assert lose(toy, "a") == {"a": FinishReason.ERROR, "b": None}
    assert toy.running == ["b"]
    assert toy.schedule().finished_req_ids == {"a"}


@pytest.mark.parametrize("is_async", [False, True])
def test_53799_a_request_missing_from_the_output_fails_alone(is_async: bool) -> None:
    toy = ToyEngine(async_scheduling=is_async, log_stats=True)
    for name in ("a", "b", "c"):
        toy.add(name, 6, max_tokens=20)
    assert lose(toy, "b") == {"a": None, "b": FinishReason.ERROR, "c": None}
    toy.drain()
    assert toy.free == 100
    assert {name: request.num_output_tokens for name, request in toy.requests.items()} == {"a": 20, "b": 0, "c": 20}


def test_53799_an_output_of_another_length_is_refused_and_changes_nothing() -> None:
    toy = ToyEngine()
    toy.add("a")
    output = toy.schedule()
    with pytest.raises(ValueError, match="2 rows for 1 scheduled"):
        toy.scheduler.update_from_output(output, ModelOutput.from_lists([[1], [2]]))
    toy.update(output)
    assert toy.requests["a"].num_output_tokens == 1


def test_43226_an_id_and_a_slot_that_are_used_again_while_a_step_is_in_flight() -> None:
    toy = ToyEngine(async_scheduling=True, max_num_seqs=1)
    old = toy.add("same", 4, max_tokens=9)
    first, second = toy.schedule(), toy.schedule()
    toy.abort("same")
    new = toy.add("same", 4, max_tokens=2)
    third = toy.schedule()
    assert third.slots.tolist() == first.slots.tolist(), "the situation is not one"
    assert list(toy.update(first)) == []
    assert list(toy.update(second)) == []
    assert [news.request_id for news in toy.update(third)] == ["same"]
    toy.drain()
    assert (old.num_output_tokens, new.num_output_tokens) == (0, 2)
    assert toy.free == 100
