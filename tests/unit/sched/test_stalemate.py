"""Nothing runs, the head of the queue does not fit, and the missing blocks are held by requests that wait behind it."""

from __future__ import annotations

from tests.support.yard import Yard

from tokenyard.request import Request, SamplingParams
from tokenyard.sched.connector import KVConnector, Match
from tokenyard.sched.steps.model_output import ConnectorOutput
from tokenyard.sched.steps.outcomes import OutcomeKind, Reason


class Loads(KVConnector):
    """Brings so many tokens of the requests it knows, later."""

    def __init__(self, **tokens: int) -> None:
        self.tokens = tokens

    def get_num_new_matched_tokens(self, request: Request, num_computed_tokens: int) -> Match:
        return Match(self.tokens.pop(request.request_id, 0), is_async=True)


def report(yard: Yard, *loaded: str) -> None:
    """A step in which loads are reported complete."""
    output = yard.schedule()
    answer = yard.model(output, {})
    answer.connector = ConnectorOutput(finished_receiving=frozenset(loaded))
    yard.scheduler.update_from_output(output, answer)
    yard.scheduler.check_invariants()


def session(yard: Yard, name: str, length: int) -> None:
    """It has answered with one token and holds the blocks of its prompt."""
    yard.add(name, length, max_tokens=1, resumable=True, ignore_eos=True)
    yard.step()
    assert name in yard.skipped


def feed(yard: Yard, name: str, length: int) -> None:
    more = Request(name, list(range(length)), SamplingParams(max_tokens=1), resumable=True, arrival_time=9.0)
    yard.scheduler.add_request(more)


def test_sessions_that_hold_what_each_other_needs_go_on_one_after_the_other() -> None:
    yard = Yard(num_gpu_blocks=13, max_model_len=48)
    for name in ("a", "b"):
        session(yard, name, 16)
    for name in ("a", "b"):
        feed(yard, name, 20)
    first = yard.step()
    assert first.num_scheduled_tokens == {"a": 20}, "b gave its blocks back"
    assert yard.step().num_scheduled_tokens.keys() == set(), "now a holds them, and waits for its user"
    assert yard.admission.reason is Reason.KV_FULL_SEQUENCE
    yard.abort("a")
    assert yard.step().num_scheduled_tokens == {"b": 24}, "a took one block of its history, the rest was cached"
    assert not yard.running


def test_a_loaded_request_goes_on_although_a_better_one_does_not_fit() -> None:
    yard = Yard(policy="priority", num_gpu_blocks=11, max_model_len=40, kv_connector=Loads(low=24))
    yard.add("low", 32, max_tokens=2, priority=5)
    report(yard)
    assert yard.free == 4
    yard.add("high", 20, max_tokens=2, priority=0)
    report(yard, "low")
    assert not yard.running, "the load was reported after the step was made"
    output = yard.step()
    assert output.num_scheduled_tokens == {"low": 8}
    refused = yard.outcomes.skipped[0]
    assert (refused.request_id, refused.kind, refused.reason) == ("high", OutcomeKind.SKIPPED, Reason.KV_FULL_SEQUENCE)
    assert yard.drain() < 10


def test_loads_that_fill_the_pool_are_dropped_one_by_one() -> None:
    yard = Yard(num_gpu_blocks=11, max_model_len=40, scheduler_reserve_full_isl=False, kv_connector=Loads(a=16, b=16))
    for name in ("a", "b"):
        yard.add(name, 32, max_tokens=2)
    report(yard)
    assert yard.free == 2, "both loads were admitted, and neither prompt fits beside the other"
    yard.step()
    assert [each.reason for each in yard.outcomes.skipped] == [Reason.WAITING_REMOTE_KV] * 2, (
        "the loads are on their way: time will help"
    )
    report(yard, "a", "b")
    output = yard.step()
    assert output.num_scheduled_tokens == {"a": 16}, "a computes what was not loaded"
    assert yard.drain() < 10


def test_the_head_waits_while_a_load_may_still_free_its_blocks() -> None:
    yard = Yard(policy="priority", num_gpu_blocks=11, max_model_len=40, kv_connector=Loads(low=24))
    yard.add("low", 32, max_tokens=2, priority=5)
    report(yard)
    yard.add("high", 20, max_tokens=2, priority=0)
    yard.step()
    assert yard.admission.reason is Reason.KV_FULL_SEQUENCE
    assert yard.admission.request_id == "high"
    assert yard.blocks("low"), "nobody took what is being loaded into"


def test_nothing_is_dropped_while_somebody_runs() -> None:
    yard = Yard(num_gpu_blocks=13, max_model_len=48)
    session(yard, "a", 16)
    yard.add("runs", 8, max_tokens=20)
    yard.step()
    feed(yard, "a", 24)
    held = yard.blocks("a")
    yard.add("late", 24)
    yard.step()
    assert yard.running == ["runs"]
    assert yard.blocks("a") == held
