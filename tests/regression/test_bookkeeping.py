"""Crashes in bookkeeping: what users of vLLM reported, built here. The table is in docs/regressions.md."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.yard import Yard

from tokenyard.config import SpeculativeConfig
from tokenyard.request import FinishReason
from tokenyard.sched.connector import KVConnector
from tokenyard.sched.steps.aux_output import ModelAuxOutput
from tokenyard.sched.steps.model_output import ModelOutput
from tokenyard.sched.steps.outcomes import Reason
from tokenyard.sched.steps.scheduler_output import SchedulerOutput


def pressed(**settings: Any) -> Yard:
    """Three urgent and less urgent requests that outgrow the pool together."""
    yard = Yard(policy="priority", num_gpu_blocks=13, max_model_len=48, scheduler_reserve_full_isl=False, **settings)
    for name, priority in (("low", 9), ("middle", 5), ("high", 1)):
        yard.add(name, 3 + priority, max_tokens=24, priority=priority, arrival_time=float(priority))
        yard.step()  # so that the least urgent stands first in the running list
    return yard


@pytest.mark.parametrize("chunked", [True, False])
def test_9342_an_urgent_request_preempts_without_a_crash(chunked: bool) -> None:
    yard = pressed(enable_chunked_prefill=chunked)
    yard.steps(6)
    yard.add("urgent", 12, max_tokens=24, priority=-100)
    preempted: list[str] = []
    while yard.scheduler.requests:
        preempted += yard.step().preempted_req_ids
    assert preempted, "the situation is not one"
    assert "urgent" not in preempted
    assert {request.num_output_tokens for request in yard.requests.values()} == {24}


def test_23347_a_victim_that_was_scheduled_in_this_step_is_taken_out_of_it() -> None:
    yard = pressed()
    rolled_back = 0
    while yard.scheduler.requests:
        running = len(yard.running)
        output = yard.step()
        rolled_back += sum(each.rolled_back_tokens for each in yard.outcomes.preemptions)
        assert output.num_running <= running
        assert not set(output.preempted_req_ids) & set(output.num_scheduled_tokens)
        assert sum(output.num_new_tokens.tolist()) == output.total_num_scheduled_tokens
    assert rolled_back > 0, "the situation is not one"


@pytest.mark.parametrize("drifts", [True, False])
def test_49097_a_request_passed_over_by_index_drift_is_named_or_served(drifts: bool) -> None:
    """A victim that has nothing to compute in this step stands before the request it makes room for."""
    yard = Yard(async_scheduling=True, policy="priority", num_gpu_blocks=5, running_index_drifts=drifts)
    yard.add("victim", 4, max_tokens=2, priority=9)
    flights = [yard.schedule()]
    yard.add("grows", 4, priority=0)
    yard.add("behind", 2, priority=1)
    flights.append(yard.schedule())
    passed_over = []
    while flights:
        yard.update(flights.pop(0))
        if yard.scheduler.has_requests():
            flights.append(yard.schedule())
            reasons = {each.request_id: each.reason for each in yard.outcomes.not_scheduled}
            passed_over += [name for name, reason in reasons.items() if reason is Reason.RUNNING_INDEX_DRIFT]
            left_out = set(yard.running) - set(flights[-1].num_scheduled_tokens)
            assert left_out <= set(reasons), "somebody was left out without a reason"
    assert passed_over == (["behind"] if drifts else [])
    assert [request.num_output_tokens for request in yard.requests.values()] == [2, 8, 8]


class Impatient(KVConnector):
    """Ends a request while its step is still being made."""

    def __init__(self) -> None:
        self.yard: Yard | None = None
        self.victim = ""

    def build_connector_meta(self, output: SchedulerOutput) -> object:
        if self.yard is not None and self.victim in self.yard.scheduler.requests:
            self.yard.scheduler.finish_requests(self.victim)
        return None


@pytest.mark.parametrize("is_async", [False, True])
def test_42157_a_request_that_ends_while_its_step_is_made(is_async: bool) -> None:
    connector = Impatient()
    drafts = SpeculativeConfig(num_speculative_tokens=2) if is_async else None
    yard = Yard(kv_connector=connector, async_scheduling=is_async, speculative=drafts)
    for name in ("a", "b", "c"):
        yard.add(name, max_tokens=20)
    yard.steps(2)
    connector.yard, connector.victim = yard, "b"
    output = yard.schedule()
    assert [news.request_id for news in yard.update(output)] == ["a", "c"]
    connector.yard = None
    again = yard.add("b", max_tokens=4)
    yard.drain()
    assert again.num_output_tokens == 4


def lose(yard: Yard, name: str) -> dict[str, FinishReason | None]:
    """A step whose output lacks one of its requests."""
    output = yard.schedule()
    answer = yard.model(output, {name: []})
    answer.extras = ModelAuxOutput(failed=frozenset({name}))
    result = yard.scheduler.update_from_output(output, answer)
    yard.scheduler.check_invariants()
    return {news.request_id: news.finish_reason for news in result}


def test_46263_a_request_that_a_later_pipeline_stage_ended_by_itself() -> None:
    yard = Yard()
    for name in ("a", "b"):
        yard.add(name, max_tokens=20)
    yard.steps(3)
    assert lose(yard, "a") == {"a": FinishReason.ERROR, "b": None}
    assert yard.running == ["b"]
    assert yard.schedule().finished_req_ids == {"a"}


@pytest.mark.parametrize("is_async", [False, True])
def test_53799_a_request_missing_from_the_output_fails_alone(is_async: bool) -> None:
    yard = Yard(async_scheduling=is_async, log_stats=True)
    for name in ("a", "b", "c"):
        yard.add(name, 6, max_tokens=20)
    assert lose(yard, "b") == {"a": None, "b": FinishReason.ERROR, "c": None}
    yard.drain()
    assert yard.free == 100
    assert {name: request.num_output_tokens for name, request in yard.requests.items()} == {"a": 20, "b": 0, "c": 20}


def test_53799_an_output_of_another_length_is_refused_and_changes_nothing() -> None:
    yard = Yard()
    yard.add("a")
    output = yard.schedule()
    with pytest.raises(ValueError, match="2 rows for 1 scheduled"):
        yard.scheduler.update_from_output(output, ModelOutput.from_lists([[1], [2]]))
    yard.update(output)
    assert yard.requests["a"].num_output_tokens == 1


def test_43226_an_id_and_a_slot_that_are_used_again_while_a_step_is_in_flight() -> None:
    yard = Yard(async_scheduling=True, max_num_seqs=1)
    old = yard.add("same", 4, max_tokens=9)
    first, second = yard.schedule(), yard.schedule()
    yard.abort("same")
    new = yard.add("same", 4, max_tokens=2)
    third = yard.schedule()
    assert third.slots.tolist() == first.slots.tolist(), "the situation is not one"
    assert list(yard.update(first)) == []
    assert list(yard.update(second)) == []
    assert [news.request_id for news in yard.update(third)] == ["same"]
    yard.drain()
    assert (old.num_output_tokens, new.num_output_tokens) == (0, 2)
    assert yard.free == 100
