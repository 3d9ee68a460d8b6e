"""Greedy tokens are those of ``transformers.generate``, however the work is cut into steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.engine.drive import generate
from tests.engine.sizes import FAMILIES, VOCABULARY
from tests.engine.tiny_models import Checkpoint

PREFIX = [7, 3, 9, 1, 4, 4, 8, 2, 6, 5, 50, 12, 33, 21, 17, 2]
PROMPTS = [[*PREFIX, 1, 2, 3], [*PREFIX, 9, 9], [5] * 23, [11, 12], [*PREFIX, 1, 2, 3, 60, 59, 58, 57]]


def check(checkpoint: Checkpoint, prompts: Sequence[Sequence[int]], max_tokens: int, **options: Any) -> Any:
    """Serve all prompts at once; whatever they were told is what transformers generates."""
    run = generate(checkpoint, prompts, max_tokens, **options)
    for prompt, tokens in zip(prompts, run.tokens, strict=True):
        assert tokens == checkpoint.greedy(prompt, max_tokens)
    return run


@pytest.mark.smoke
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_one_batch(checkpoint: Checkpoint, is_async: bool) -> None:
    run = check(checkpoint, PROMPTS, 20, async_scheduling=is_async)
    assert run.num_preemptions == 0


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_preempted_requests_go_on_where_they_were(checkpoint: Checkpoint, is_async: bool) -> None:
    prompts = PROMPTS + PROMPTS[::-1]
    run = check(checkpoint, prompts, 30, async_scheduling=is_async, num_gpu_blocks_override=checkpoint.fewest_blocks)
    assert run.num_preemptions > 0


@pytest.mark.parametrize("budget", [1, 2, 3, 5, 7, 11, 13, 19])
def test_chunks_of_every_size(checkpoints: Callable[[str], Checkpoint], budget: int) -> None:
    for family in FAMILIES:
        check(checkpoints(family), PROMPTS[:3], 6, max_num_batched_tokens=budget, max_num_seqs=min(budget, 8))


def test_prefix_hits(checkpoint: Checkpoint) -> None:
    run = check(checkpoint, [*PROMPTS, PROMPTS[0]], 20, max_num_seqs=1)
    assert run.num_cached_tokens > 0


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_draft_model_changes_no_token(
    checkpoint: Checkpoint, checkpoints: Callable[[str], Checkpoint], is_async: bool
) -> None:
    drafter = {"model": str(checkpoints("draft").folder), "num_speculative_tokens": 3}
    run = check(checkpoint, PROMPTS, 25, speculative_config=drafter, async_scheduling=is_async)
    assert run.num_drafts > 0


@pytest.mark.smoke
def test_a_drafter_that_is_the_model_is_always_right(checkpoints: Callable[[str], Checkpoint]) -> None:
    target = checkpoints("llama")
    drafter = {"model": str(target.folder), "num_speculative_tokens": 3}
    run = check(target, PROMPTS, 24, speculative_config=drafter, max_num_batched_tokens=9)
    assert run.num_accepted == run.num_drafts > 0


def test_drafts_from_the_text_change_no_token(checkpoint: Checkpoint) -> None:
    drafter = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 1, "prompt_lookup_max": 3}
    run = check(checkpoint, PROMPTS, 30, speculative_config=drafter)
    assert run.num_drafts > run.num_accepted > 0


@st.composite
def _schedules(draw: st.DrawFn) -> dict[str, Any]:
    """Requests, budgets, memory, drafts: whatever decides how the work is cut into steps."""
    drafts = draw(st.sampled_from([None, "ngram", "draft_model"]))
    # With drafts a step holds a token, its drafts (as padding too) and the draft model's own slot.
    budget = draw(st.integers(1 if drafts is None else 6, 40))
    return {
        "family": draw(st.sampled_from(FAMILIES)),
        "prompts": draw(
            st.lists(
                st.one_of(
                    st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=30),
                    st.integers(1, len(PREFIX)).map(lambda n: PREFIX[:n]),
                    st.lists(st.integers(0, 2), min_size=1, max_size=4).map(lambda rest: PREFIX + rest),
                ),
                min_size=1,
                max_size=6,
            )
        ),
        "max_tokens": draw(st.integers(1, 24)),
        "drafts": drafts,
        "num_drafts": draw(st.integers(1, 4)),
        "arrivals": draw(st.lists(st.integers(0, 12), min_size=6, max_size=6)),
        "max_num_batched_tokens": budget,
        "max_num_seqs": draw(st.integers(1, min(budget, 6))),
        "extra_blocks": draw(st.integers(0, 12)),
        "async_scheduling": draw(st.booleans()) if drafts != "ngram" else False,
        "enable_prefix_caching": draw(st.booleans()),
        "long_prefill_token_threshold": draw(st.sampled_from([0, 3, 9])),
        "offload": draw(st.sampled_from([None, "finish", "eviction"])),
    }


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(drawn=_schedules())
def test_any_schedule(checkpoints: Callable[[str], Checkpoint], drawn: dict[str, Any]) -> None:
    target = checkpoints(drawn.pop("family"))
    drafts, num_drafts, extra = drawn.pop("drafts"), drawn.pop("num_drafts"), drawn.pop("extra_blocks")
    if drafts == "ngram":
        drawn["speculative_config"] = {
            "method": "ngram",
            "num_speculative_tokens": num_drafts,
            "prompt_lookup_min": 1,
            "prompt_lookup_max": 2,
        }
    elif drafts == "draft_model":
        folder = str(checkpoints("draft").folder)
        drawn["speculative_config"] = {"model": folder, "num_speculative_tokens": num_drafts}
    store_on = drawn.pop("offload")
    if store_on and target.family in ("llama", "qwen3", "mixtral", "qwen3_moe") and drawn["enable_prefix_caching"]:
        extra_config = {"cpu_bytes_to_use": 1 << 20, "store_on": store_on}
        drawn["kv_transfer_config"] = {
            "kv_connector": "OffloadingConnector",
            "kv_connector_extra_config": extra_config,
        }
    check(
        target,
        drawn.pop("prompts"),
        drawn.pop("max_tokens"),
        num_gpu_blocks_override=target.fewest_blocks + extra,
        **drawn,
    )
