"""Where an engine did not move: found in traces, and never where a request gets on or waits for an event."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.support.profiles import VLLM_0_33
from tests.unit.trace.recorded import RecordedYard

from tokenyard.core.request import Request
from tokenyard.core.sched.policy import Policy
from tokenyard.explain.render.why import print_stuck
from tokenyard.explain.why.stuck import LONG, Standstills, standstills
from tokenyard.vocabulary import REASONS, is_event, is_for_good


class Hoarder(Policy):
    """Keeps the blocks of everybody who has ended, and gives none back."""

    def keeps_blocks(self, now: float, request: Request) -> bool:
        return True


class Grammar:
    is_ready = False

    def accept_tokens(self, tokens: Sequence[int]) -> bool:
        return True

    def validate_tokens(self, tokens: Sequence[int]) -> list[int]:
        return list(tokens)


def printed(found: Standstills) -> str:
    text = StringIO()
    print_stuck(found, Console(width=100, file=text))
    return " ".join(text.getvalue().split())


def stuck_yard(path: Path, **settings: Any) -> RecordedYard:
    """The first one has ended and holds the pool; the second waits, and the third behind it."""
    yard = RecordedYard(path, policy_object=Hoarder(), num_gpu_blocks=9, profile=VLLM_0_33, **settings)
    yard.add("first", 20, max_tokens=1, job_id="j")
    yard.steps(3)
    yard.add("second", 20, max_tokens=1)
    yard.add("third", 4, max_tokens=1)
    return yard


def test_a_place_at_which_nothing_moved(tmp_path: Path) -> None:
    yard = stuck_yard(tmp_path)
    yard.steps(LONG + 20)
    yard.abort("second")
    yard.drain()
    yard.writer.close()
    found = standstills(tmp_path)
    (place,) = found.places
    assert found.num_steps == yard.scheduler.step
    assert (place.request_id, place.reason, place.num_steps) == ("second", "kv_full_sequence", LONG + 20)
    assert (place.first_step, place.last_step, place.ends_trace) == (3, LONG + 22, False)
    assert (place.needed_blocks, place.free_blocks, place.num_running, place.num_waiting) == (5, 3, 0, 2)
    assert place.reasons == {"kv_full_sequence": 2}
    text = printed(found)
    assert "Stuck: steps 3 to 122 (120 in a row)" in text
    assert "request second" in text
    assert "reason kv_full_sequence: 5 blocks needed, 3 of 9 free" in text
    assert "none of them will let go (vLLM's issues 45388 and 45414)" in text


def test_a_trace_that_ends_there(tmp_path: Path) -> None:
    yard = stuck_yard(tmp_path)
    yard.steps(3)
    yard.writer.close()
    (place,) = standstills(tmp_path).places
    assert (place.request_id, place.num_steps, place.ends_trace) == ("second", 3, True)


@pytest.mark.parametrize("waits", ["for a grammar", "for memory", "for places", "for nothing"])
def test_where_somebody_gets_on_or_an_event_is_to_come_nothing_is_stuck(waits: str, tmp_path: Path) -> None:
    places = 1 if waits == "for places" else 8
    yard = RecordedYard(tmp_path, num_gpu_blocks=9, max_num_seqs=places, profile=VLLM_0_33)
    grammar = Grammar()
    if waits == "for a grammar":
        yard.add("a", 20, max_tokens=2, structured_output=grammar)
    else:
        for name in "abc":
            yard.add(name, 20 if waits == "for memory" else 4, max_tokens=8)
    yard.steps(LONG + 20)
    grammar.is_ready = True
    yard.drain()
    yard.writer.close()
    found = standstills(tmp_path)
    assert found.places == []
    assert "Nothing is stuck" in printed(found)


def test_every_reason_is_cleared_by_something_or_stays() -> None:
    events = {reason for reason in REASONS if is_event(reason)}
    by_others = {
        reason
        for reason in REASONS
        if is_for_good(reason, others_wait=False) and not is_for_good(reason, others_wait=True)
    }
    assert not events & by_others
    assert {each for each in REASONS if each.startswith("kv_")} <= by_others
    assert {each for each in REASONS if each.startswith("waiting_")} <= events


def equal_requests(path: Path, **settings: Any) -> RecordedYard:
    """Two requests that fit alone and not together, of one priority and one time of arrival."""
    limits = {"max_model_len": 96, "max_num_batched_tokens": 128, "long_prefill_token_threshold": 24}
    pool = {"num_gpu_blocks": 53, "block_size": 2, "enable_prefix_caching": False}
    decides = {"scheduler_reserve_full_isl": False, "profile": VLLM_0_33, "policy": "priority"}
    yard = RecordedYard(path, **{**limits, **pool, **decides, **settings})
    for name in "ab":
        yard.add(name, 72, max_tokens=8, arrival_time=0.0)
    return yard


def test_equal_requests_that_evict_each_other_for_ever_are_named(tmp_path: Path) -> None:
    """vLLM 0.33 decides the same in each of 3,000 steps."""
    yard = equal_requests(tmp_path)
    yard.steps(300)
    yard.writer.close()
    (place,) = standstills(tmp_path).places
    assert (place.kind, place.reason, place.ends_trace) == ("livelock", "kv_blocks", True)
    assert place.num_steps == place.last_step - place.first_step + 1 > 280
    assert sum(place.preempted.values()) > 140
    assert set(place.preempted) == {"a", "b"}
    assert (place.needed_blocks, place.total_blocks) == (12, 53)
    text = printed(standstills(tmp_path))
    assert f"Livelock: steps {place.first_step} to 299" in text
    assert f"evicted a {place.preempted['a']} times" in text
    assert "scheduler_reserve_full_isl" in text


@pytest.mark.parametrize(
    "settings", [{"scheduler_reserve_full_isl": True}, {"num_gpu_blocks": 90}, {"long_prefill_token_threshold": 0}]
)
def test_where_one_of_them_gets_through_there_is_no_livelock(settings: dict[str, Any], tmp_path: Path) -> None:
    yard = equal_requests(tmp_path, **settings)
    yard.drain()
    yard.writer.close()
    assert standstills(tmp_path).places == []


def test_a_livelock_that_an_abort_ends_is_found_all_the_same(tmp_path: Path) -> None:
    yard = equal_requests(tmp_path)
    yard.steps(200)
    yard.abort("b")
    yard.drain()
    yard.writer.close()
    (place,) = standstills(tmp_path).places
    assert (place.kind, place.ends_trace) == ("livelock", False)
    assert yard.requests["a"].num_output_tokens == 8
