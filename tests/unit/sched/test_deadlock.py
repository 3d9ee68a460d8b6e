"""Nothing runs, the head of the queue does not fit, and the missing blocks are held by requests that wait behind it."""

from __future__ import annotations

from tests.support.toy_engine import ToyEngine

from tokenyard.core.request import Request, SamplingParams
from tokenyard.core.sched.connector import KVConnector, Match
from tokenyard.core.sched.outcomes import OutcomeKind, Reason
from tokenyard.core.sched.outputs import ConnectorOutput


class Loads(KVConnector):
    """Brings so many tokens of the requests it knows, later."""

    def __init__(self, **tokens: int) -> None:
        self.tokens = tokens

    def get_num_new_matched_tokens(self, request: Request, num_computed_tokens: int) -> Match:
        return Match(self.tokens.pop(request.request_id, 0), is_async=True)


def report(toy: ToyEngine, *loaded: str) -> None:
    """A step in which loads are reported complete."""
    output = toy.schedule()
    answer = toy.model(output, {})
    answer.connector = ConnectorOutput(finished_receiving=frozenset(loaded))
    toy.scheduler.update_from_output(output, answer)
    toy.scheduler.check_invariants()


def session(toy: ToyEngine, name: str, length: int) -> None:
    """It has answered with one token and holds the blocks of its prompt."""
    toy.add(name, length, max_tokens=1, resumable=True, ignore_eos=True)
    toy.step()
    assert name in toy.skipped


def feed(toy: ToyEngine, name: str, length: int) -> None:
    more = Request(name, list(range(length)), SamplingParams(max_tokens=1), resumable=True, arrival_time=9.0)
    toy.scheduler.add_request(more)


def test_sessions_that_hold_what_each_other_needs_go_on_one_after_the_other() -> None:
    toy = ToyEngine(num_gpu_blocks=13, max_model_len=48)
    for name in ("a", "b"):
        session(toy, name, 16)
    for name in ("a", "b"):
        feed(toy, name, 20)
    first = toy.step()
    assert first.num_scheduled_tokens == {"a": 20}, "b gave its blocks back"
    assert toy.step().num_scheduled_tokens.keys() == set(), "now a holds them, and waits for its user"
    assert toy.admission.reason is Reason.KV_FULL_SEQUENCE
    toy.abort("a")
    assert toy.step().num_scheduled_tokens == {"b": 24}, "a took one block of its history, the rest was cached"
    assert not toy.running


def test_a_loaded_request_goes_on_although_a_better_one_does_not_fit() -> None:
    toy = ToyEngine(policy="priority", num_gpu_blocks=11, max_model_len=40, kv_connector=Loads(low=24))
    toy.add("low", 32, max_tokens=2, priority=5)
    report(toy)
    assert toy.free == 4
    toy.add("high", 20, max_tokens=2, priority=0)
    report(toy, "low")
    assert not toy.running, "the load was reported after the step was made"
    output = toy.step()
    assert output.num_scheduled_tokens == {"low": 8}
    refused = toy.outcomes.skipped[0]
    assert (refused.request_id, refused.kind, refused.reason) == ("high", OutcomeKind.SKIPPED, Reason.KV_FULL_SEQUENCE)
    assert toy.drain() == 4


def test_loads_that_fill_the_pool_are_dropped_one_by_one() -> None:
    toy = ToyEngine(
        num_gpu_blocks=11, max_model_len=40, scheduler_reserve_full_isl=False, kv_connector=Loads(a=16, b=16)
    )
    for name in ("a", "b"):
        toy.add(name, 32, max_tokens=2)
    report(toy)
    assert toy.free == 2, "both loads were admitted, and neither prompt fits beside the other"
    toy.step()
    assert [each.reason for each in toy.outcomes.skipped] == [Reason.WAITING_REMOTE_KV] * 2, (
        "the loads are on their way: time will help"
    )
    report(toy, "a", "b")
    output = toy.step()
    assert output.num_scheduled_tokens == {"a": 16}, "a computes what was not loaded"
    assert toy.drain() == 4


def test_the_head_waits_while_a_load_may_still_free_its_blocks() -> None:
    toy = ToyEngine(policy="priority", num_gpu_blocks=11, max_model_len=40, kv_connector=Loads(low=24))
    toy.add("low", 32, max_tokens=2, priority=5)
    report(toy)
    toy.add("high", 20, max_tokens=2, priority=0)
    toy.step()
    assert toy.admission.reason is Reason.KV_FULL_SEQUENCE
    assert toy.admission.request_id == "high"
    assert toy.blocks("low"), "no request took what is being loaded into"


def test_nothing_is_dropped_while_somebody_runs() -> None:
    toy = ToyEngine(num_gpu_blocks=13, max_model_len=48)
    session(toy, "a", 16)
    toy.add("runs", 8, max_tokens=20)
    toy.step()
    feed(toy, "a", 24)
    held = toy.blocks("a")
    toy.add("late", 24)
    toy.step()
    assert toy.running == ["runs"]
    assert toy.blocks("a") == held


def crowded(prompt: int, arrived: tuple[str, ...] = ("a", "b", "c")) -> ToyEngine:
    """Eight blocks; three loads of low priority hold six, have ``arrived``, and ``high`` starts with what is left."""
    toy = ToyEngine(
        policy="priority",
        num_gpu_blocks=9,
        max_num_batched_tokens=8,
        max_model_len=32,
        scheduler_reserve_full_isl=False,
        kv_connector=Loads(a=8, b=8, c=8),
    )
    for name in ("a", "b", "c"):
        toy.add(name, 12, max_tokens=2, priority=5)
    report(toy)
    toy.add("high", prompt, max_tokens=2, skip_reading_prefix_cache=True)
    report(toy, *arrived)
    return toy


def decided(toy: ToyEngine, steps: int) -> list[dict[str, int]]:
    """Tokens of each of the next steps."""
    return [dict(toy.step().num_scheduled_tokens) for _ in range(steps)]


def test_a_request_that_preempts_itself_does_not_take_turns_for_ever() -> None:
    """It is admitted with the two free blocks, needs a third and has no other to take it from."""
    toy = crowded(12)
    assert toy.running == ["high"]
    assert decided(toy, 3) == [{}, {"high": 8}, {}], "as in vLLM; but the second time was as the first"
    assert decided(toy, 1) == [{"a": 4, "b": 4}], "those whose loads have come are tried"
    refused = toy.outcomes.skipped[0]
    assert (refused.request_id, refused.reason) == ("high", Reason.KV_FULL_SEQUENCE)
    assert refused.kv is not None
    assert (refused.kv.needed, refused.kv.free) == (3, 2)
    assert toy.drain() < 12


def test_what_a_request_lacks_may_be_freed_meanwhile() -> None:
    toy = crowded(12)
    toy.steps(3)
    toy.abort("c")
    assert decided(toy, 1) == [{"high": 8}], "c held what it lacked"
    assert decided(toy, 1) == [{"high": 4, "a": 4}]
    assert toy.drain() < 12


def test_a_request_that_preempts_itself_waits_for_loads_under_way() -> None:
    toy = crowded(12, arrived=("a", "b"))
    assert decided(toy, 5) == [{}, {"high": 8}, {}, {"high": 8}, {}], "as in vLLM, which the load may help"
    report(toy, "c")
    assert toy.drain() < 14


def test_a_session_goes_on_although_the_request_before_it_preempts_itself() -> None:
    toy = ToyEngine(
        num_gpu_blocks=9,
        max_num_batched_tokens=8,
        max_model_len=32,
        scheduler_reserve_full_isl=False,
        enable_prefix_caching=False,
    )
    toy.add("talk", 20, max_tokens=1, resumable=True, ignore_eos=True)
    feed(toy, "talk", 4)
    toy.add("late", 16, max_tokens=2)
    toy.step()
    toy.step()
    assert decided(toy, 2) == [{"talk": 4, "late": 4}, {"late": 8}]
    assert toy.waiting == ["talk"]
    assert len(toy.blocks("talk")) == 5, "the session has its next input, and late needs one block more than is left"
    assert decided(toy, 4) == [{}, {"late": 8}, {}, {"talk": 4}]
    toy.abort("talk")
    assert toy.drain() < 6
