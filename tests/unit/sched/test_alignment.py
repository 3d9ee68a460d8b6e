"""Mamba's cache mode align: prefill ends where blocks do, or not at all."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.toy_engine import ToyEngine

from tokenyard.core.config import GroupKind, KVCacheGroup, MambaCacheMode, SpeculativeConfig, SpeculativeMethod
from tokenyard.core.profiles import PROFILES, decision_profile
from tokenyard.core.request import MultiModalItem
from tokenyard.core.sched.features.per_slot import BlockAlignment
from tokenyard.core.sched.outcomes import OutcomeKind, Reason
from tokenyard.core.sched.outputs import DraftTokens
from tokenyard.errors import ConfigError, RequestError

GROUPS = (KVCacheGroup(), KVCacheGroup(kind=GroupKind.MAMBA))


def toy(**settings: Any) -> ToyEngine:
    return ToyEngine(groups=GROUPS, mamba_cache_mode=MambaCacheMode.ALIGN, **settings)


@pytest.mark.parametrize(
    ("new", "computed", "known", "granted"),
    [
        (13, 0, 30, 12),  # not as far as the last full block: whole blocks
        (3, 0, 30, 0),  # less than one
        (30, 0, 30, 28),  # the last full block ends at 28
        (28, 0, 30, 28),
        (2, 28, 30, 2),  # the rest comes as it is
        (20, 12, 32, 20),
        (3, 0, 3, 3),  # a prompt without a full block
    ],
)
def test_a_prompt_is_split_at_blocks(new: int, computed: int, known: int, granted: int) -> None:
    assert BlockAlignment(4, drops_last_hit=False).split(new, computed, known) == granted


@pytest.mark.parametrize(("new", "computed", "known", "granted"), [(30, 0, 30, 24), (6, 24, 30, 6), (5, 0, 5, 5)])
def test_a_head_that_drops_a_block_has_a_state_before_it(new: int, computed: int, known: int, granted: int) -> None:
    assert BlockAlignment(4, drops_last_hit=True).split(new, computed, known) == granted


def test_the_numbers_of_a_stop_are_those_of_the_moment() -> None:
    there = toy(max_num_batched_tokens=10)
    there.add("a", 8)
    there.add("b", 12)
    there.add("c", 2)
    there.step()
    assert there.running == ["a"]
    stop = there.admission
    assert (stop.reason, stop.kind, stop.request_id) == (Reason.MAMBA_ALIGNMENT, OutcomeKind.STOPPED, "b")
    assert (stop.num_requests, stop.wanted_tokens, stop.budget_left, stop.kv) == (2, 2, 2, None)


def test_a_running_prompt_waits_for_a_block_and_admission_goes_on() -> None:
    """Drafts of others leave three tokens, which do not fill a block; a short prompt can use them."""
    there = toy(max_num_batched_tokens=12, speculative=SpeculativeConfig(num_speculative_tokens=3))
    for name in "abc":
        there.add(name, 1, max_tokens=9)
    there.step()
    there.add("long", 31)
    output = there.step()
    assert output.num_scheduled_tokens["long"] == 8
    there.scheduler.update_draft_token_ids(output, DraftTokens.from_lists([[7] * 3, [7] * 3, [], []]))
    there.add("short", 2)
    output = there.step()
    assert output.num_scheduled_tokens == {"a": 4, "b": 4, "c": 1, "short": 2}
    (left_out,) = there.outcomes.not_scheduled
    assert (left_out.reason, left_out.request_id) == (Reason.MAMBA_ALIGNMENT, "long")
    assert (left_out.wanted_tokens, left_out.budget_left) == (3, 3)


def images(*places: tuple[int, int]) -> list[MultiModalItem]:
    return [MultiModalItem(mm_hash=f"image{at}", offset=at, length=length) for at, length in places]


@pytest.mark.parametrize("places", [((1, 9), (11, 9)), ((2, 5), (8, 9), (15, 4))])
def test_images_of_one_block_that_no_step_computes_are_refused(places: tuple[tuple[int, int], ...]) -> None:
    """vLLM 0.22.1 accepts the request and waits for ever: a rest of a block is never granted."""
    there = toy(block_size=16, max_num_encoder_input_tokens=17)
    with pytest.raises(RequestError, match="needed together with others, 18 embeddings"):
        there.add("a", 40, mm_features=images(*places))
    there = toy(block_size=16, max_num_encoder_input_tokens=18)
    there.add("a", 40, mm_features=images(*places))
    there.drain()


ONE_DRAFT = {
    "speculative": SpeculativeConfig(method=SpeculativeMethod.DRAFT_MODEL, num_speculative_tokens=1),
    "profile": decision_profile("0.29"),
}


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"max_num_batched_tokens": 3}, "max_num_batched_tokens"),
        ({"max_num_batched_tokens": 4, **ONE_DRAFT}, "max_num_batched_tokens"),
        ({"long_prefill_token_threshold": 3}, "long_prefill_token_threshold"),
        ({"enable_chunked_prefill": False}, "enable_chunked_prefill"),
        ({"disable_chunked_mm_input": True}, "disable_chunked_mm_input"),
    ],
)
def test_settings_that_could_never_fill_a_block_are_refused(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        toy(**settings)
    assert refusal.value.field == field


@pytest.mark.parametrize("settings", [{"max_num_batched_tokens": 3}, {"long_prefill_token_threshold": 3}])
def test_versions_that_cut_blocks_take_them(settings: dict[str, Any]) -> None:
    """vLLM asserts it no more since 0.27, whose steps come to the end of a block in parts."""
    there = toy(profile=PROFILES["0.33"], **settings)
    there.add("a", 11, max_tokens=3)
    there.drain()
