"""An executor's mistakes: one clear error each, nothing changed, and the right answer is taken in afterwards."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest
from tests.support.profiles import VLLM_0_22, VLLM_0_33
from tests.support.toy_connector import ToyConnector
from tests.support.toy_engine import ToyEngine, snapshot

from tokenyard.core.config import CacheConfig, SchedulerConfig, SpeculativeConfig, SpeculativeMethod
from tokenyard.core.params import PoolingParams
from tokenyard.core.profiles import DecisionProfile
from tokenyard.core.request import Request, SamplingParams
from tokenyard.core.sched.connector import KVConnector, Match
from tokenyard.core.sched.outputs import ConnectorOutput, DraftTokens, ModelAuxOutput, ModelOutput
from tokenyard.core.sched.scheduler import Scheduler
from tokenyard.core.sched.scheduler_output import SchedulerOutput
from tokenyard.errors import ConfigError

TOKENS, COUNTS = np.array([[5], [6]]), np.array([1, 1])


def aux(**fields: Any) -> Callable[[], ModelOutput]:
    return lambda: ModelOutput(TOKENS, COUNTS, extras=ModelAuxOutput(**fields))


def report(**fields: Any) -> Callable[[], ModelOutput]:
    return lambda: ModelOutput(TOKENS, COUNTS, ConnectorOutput(**fields))


MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "nothing": (lambda: None, "the answer to step 0 is None: give a ModelOutput"),
    "lists": (lambda: [[5], [6]], "give a ModelOutput"),
    "too few rows": (lambda: ModelOutput(TOKENS[:1], COUNTS[:1]), "1 rows for 2 scheduled requests"),
    "too many rows": (lambda: ModelOutput.from_lists([[5]] * 3), "3 rows for 2 scheduled requests"),
    "no arrays": (lambda: ModelOutput([[5], [6]], [1, 1]), r"sampled = \[\[5\], \[6\]\]: give an array"),  # type: ignore[arg-type]
    "numbers that are not whole": (lambda: ModelOutput(TOKENS / 1.0, COUNTS), "give an array of whole numbers"),  # type: ignore[arg-type]
    "not a number": (lambda: ModelOutput(TOKENS * np.nan, COUNTS), "give an array of whole numbers"),  # type: ignore[arg-type]
    "counts that are no numbers": (lambda: ModelOutput(TOKENS, COUNTS * np.nan), "num_sampled = .*whole numbers"),  # type: ignore[arg-type]
    "another shape": (lambda: ModelOutput(TOKENS[0], COUNTS), "do not belong together"),
    "token -1": (lambda: ModelOutput(np.array([[5], [-1]]), COUNTS), "row 1 holds token -1: give ids from 0"),
    "token 2**40": (lambda: ModelOutput(np.array([[2**40], [6]]), COUNTS), "row 0 holds token 1099511627776"),
    "token 2**40 in a list": (lambda: ModelOutput.from_lists([[2**40], [6]]), "row 0 holds token 1099511627776"),
    "more tokens than columns": (lambda: ModelOutput(TOKENS, np.array([1, 2])), r"num_sampled\[1\] = 2: give 0 to 1"),
    "fewer tokens than none": (lambda: ModelOutput(TOKENS, np.array([-1, 1])), r"num_sampled\[0\] = -1"),
    "no token": (lambda: ModelOutput(TOKENS, np.array([1, 0])), "no token for request 'b', all of whose known tokens"),
    "no token at all": (lambda: ModelOutput(TOKENS, np.array([0, 0])), "no token for request 'a'"),
    "no extras": (lambda: ModelOutput(TOKENS, COUNTS, extras={"a": 1}), "give a ModelAuxOutput"),  # type: ignore[arg-type]
    "one result for two": (aux(pooler_output=[1.0]), "pooler_output has 1 for 2 scheduled requests"),
    "experts of other tokens": (aux(routed_experts=np.zeros((3, 1, 1), np.int8)), "for 8 tokens"),
    "experts without layers": (aux(routed_experts=np.zeros(8, np.int8)), r"shape \(8,\)"),
    "experts that are no numbers": (aux(routed_experts="x"), "give an array of expert numbers"),
    "somebody else failed": (aux(failed={"a", "z"}), r"failed names \['z'\]: step 0 has no such request"),
    "somebody else's logits": (aux(num_nans_in_logits={"z": 1}), "num_nans_in_logits names"),
    "no report": (lambda: ModelOutput(TOKENS, COUNTS, {"a"}), "give a ConnectorOutput"),  # type: ignore[arg-type]
    "a load that nobody waits for": (report(finished_receiving=frozenset("a")), "'a', which waits for no load"),
    "a load of nobody": (report(finished_receiving=frozenset("z")), "finished_receiving names 'z'"),
    "a read of nobody": (report(finished_sending=frozenset("z")), "finished_sending names 'z'"),
    "a block that is none": (report(invalid_block_ids=frozenset([101])), "holds 101: give block ids from 0 to 100"),
    "a block by name": (report(invalid_block_ids=frozenset("b")), "holds 'b'"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("is_async", [False, True])
def test_a_wrong_answer_is_refused_and_the_right_one_taken_in(mistake: str, is_async: bool) -> None:
    toy = ToyEngine(async_scheduling=is_async, kv_connector=Silent(Random(0)))
    toy.add("a", 4)
    toy.add("b", 4)
    plan = toy.schedule()
    before = snapshot(toy.scheduler)
    answer, message = MISTAKES[mistake]
    with pytest.raises(ValueError, match=message):
        toy.scheduler.update_from_output(plan, answer())
    assert snapshot(toy.scheduler) == before
    assert [news.new_token_ids for news in toy.update(plan, {"a": [5], "b": [6]})] == [[5], [6]]
    toy.drain()


@pytest.mark.parametrize("is_async", [False, True])
def test_a_request_of_which_nothing_is_taken_in_may_have_no_token(is_async: bool) -> None:
    """It has ended meanwhile, is lost, or stands on blocks whose load failed."""
    toy = ToyEngine(async_scheduling=is_async, kv_connector=Silent(Random(0)), kv_load_failure_policy="fail")
    for name in "abcd":
        toy.add(name, 4)
    toy.step()
    plan = toy.schedule()
    invalid = ConnectorOutput(invalid_block_ids=frozenset(toy.blocks("c")))
    toy.abort("a")
    answer = ModelOutput.from_lists([[], [], [], [5]], invalid, ModelAuxOutput(failed=frozenset("b")))
    news = toy.scheduler.update_from_output(plan, answer)
    assert {each.request_id: each.finish_reason for each in news} == {"d": None, "b": "error", "c": "error"}
    toy.drain()


@pytest.mark.parametrize("profile", [VLLM_0_22, VLLM_0_33], ids=["0.22", "0.33"])
def test_more_tokens_than_a_step_without_drafts_can_bring(profile: DecisionProfile) -> None:
    """What stands behind a stop token was never computed: it cannot be taken back."""
    toy = ToyEngine(speculative=SpeculativeConfig(num_speculative_tokens=3), profile=profile)
    toy.add("a", 4, max_tokens=9, stop_token_ids=(5,))
    plan = toy.schedule()
    with pytest.raises(ValueError, match="9 tokens for request 'a', with 0 drafts: give at most 1"):
        toy.scheduler.update_from_output(plan, ModelOutput.from_lists([[5] * 9]))
    assert toy.requests["a"].num_computed_tokens == 4
    assert toy.update(plan, {"a": [5]}).finish_reasons == {0: "stop"}


class Silent(ToyConnector):
    """Has nothing."""

    def get_num_new_matched_tokens(self, request: Request, num_computed_tokens: int) -> Match:
        return Match(0)

    def request_finished(self, request: Request, blocks: Any) -> tuple[bool, None]:
        return False, None


def test_a_prompt_that_is_not_complete_samples_nothing() -> None:
    toy = ToyEngine(max_num_batched_tokens=4)
    toy.add("a", 10)
    plan = toy.schedule()
    before = snapshot(toy.scheduler)
    with pytest.raises(ValueError, match="row 0 holds 1 tokens for request 'a', but its prompt is not computed"):
        toy.scheduler.update_from_output(plan, ModelOutput.from_lists([[5]]))
    assert snapshot(toy.scheduler) == before
    toy.update(plan)


@pytest.mark.parametrize("is_async", [False, True])
def test_no_more_tokens_than_drafts_and_one(is_async: bool) -> None:
    toy = speculating(is_async=is_async)
    toy.add("a", 4, max_tokens=20)
    plan = toy.step()
    if not is_async:
        toy.scheduler.update_draft_token_ids(plan, DraftTokens.from_lists([[8, 9]]))
    plan = toy.schedule()
    before = snapshot(toy.scheduler)
    with pytest.raises(ValueError, match="4 tokens for request 'a', with 2 drafts: give at most 3"):
        toy.scheduler.update_from_output(plan, ModelOutput.from_lists([[5, 6, 7, 8]]))
    assert snapshot(toy.scheduler) == before
    toy.update(plan, {"a": [5, 6, 7]})


def speculating(*, is_async: bool) -> ToyEngine:
    method = SpeculativeMethod.NGRAM_GPU if is_async else SpeculativeMethod.NGRAM
    spec = SpeculativeConfig(num_speculative_tokens=2, method=method)
    return ToyEngine(speculative=spec, async_scheduling=is_async)


DRAFTS: dict[str, tuple[Any, str]] = {
    "nothing": (None, "give DraftTokens"),
    "no arrays": (DraftTokens([[1]], [1]), "drafts.tokens = .*give an array of whole numbers"),  # type: ignore[arg-type]
    "not numbers": (DraftTokens(np.array([[np.nan]]), np.array([1])), "give an array of whole numbers"),
    "too many rows": (DraftTokens.from_lists([[1], [1]]), "2 rows of drafts, 2 counts for 1 requests"),
    "too long": (
        DraftTokens.from_lists([[1, 2, 3]]),
        r"3 drafts for request 'a': give 0 to 2 \(num_spec",
    ),
    "more than there are": (DraftTokens(np.array([[1]]), np.array([2])), "2 drafts for request 'a': give 0 to 1"),
    "fewer than none": (DraftTokens(np.array([[1]]), np.array([-1])), "-1 drafts"),
    "no token": (DraftTokens(np.array([[-7]]), np.array([1])), "row 0 drafts token -7"),
    "a huge token": (DraftTokens(np.array([[2**40]]), np.array([1])), "row 0 drafts token 1099511627776"),
}


@pytest.mark.parametrize("mistake", DRAFTS)
def test_wrong_drafts_are_refused(mistake: str) -> None:
    drafts, message = DRAFTS[mistake]
    toy = speculating(is_async=False)
    toy.add("a", 4)
    plan = toy.step()
    before = snapshot(toy.scheduler)
    with pytest.raises(ValueError, match=message):
        toy.scheduler.update_draft_token_ids(plan, drafts)
    assert snapshot(toy.scheduler) == before
    toy.scheduler.update_draft_token_ids(plan, DraftTokens.from_lists([[1, 2]]))
    assert toy.schedule().num_scheduled_tokens == {"a": 3}
    ahead = speculating(is_async=True)
    ahead.add("a", 4)
    ahead.schedule()
    plan = ahead.schedule()
    before = snapshot(ahead.scheduler)
    with pytest.raises(ValueError, match=message):
        ahead.scheduler.update_draft_token_ids_in_output(plan, drafts)
    assert snapshot(ahead.scheduler) == before


def test_outputs_out_of_order_are_refused_and_then_taken_in_in_order() -> None:
    toy = ToyEngine(async_scheduling=True)
    toy.add("a", 4, max_tokens=3)
    first, second = toy.schedule(), toy.schedule()
    before = snapshot(toy.scheduler)
    for wrong, message in (
        (second, "take in that of step 0 first"),
        (None, "give the SchedulerOutput"),
    ):
        with pytest.raises(ValueError, match=message):
            toy.scheduler.update_from_output(wrong, ModelOutput.from_lists([[5]]))  # type: ignore[arg-type]
    assert snapshot(toy.scheduler) == before
    toy.update(first, {"a": [5]})
    with pytest.raises(ValueError, match="taken in already, or never scheduled here; the next is step 1"):
        toy.scheduler.update_from_output(first, ModelOutput.from_lists([[5]]))
    toy.update(second, {"a": [6]})
    assert toy.requests["a"].output_token_ids == [5, 6]


@pytest.mark.parametrize("prompt", [4, 7])
def test_another_schedulers_step_is_refused_whatever_its_requests_are_called(prompt: int) -> None:
    ours, theirs = ToyEngine(), ToyEngine()
    ours.add("a", 5)
    theirs.add("a", prompt)
    plan, foreign = ours.schedule(), theirs.schedule()
    before = snapshot(ours.scheduler)
    with pytest.raises(ValueError, match="it is another scheduler's"):
        ours.scheduler.update_from_output(foreign, ModelOutput.from_lists([[5]]))
    assert snapshot(ours.scheduler) == before
    ours.update(plan)


def test_a_pooling_result_too_many_changes_nothing() -> None:
    toy = ToyEngine()
    request = Request("p", [1, 2, 3], pooling_params=PoolingParams())
    toy.scheduler.add_request(request)
    plan: SchedulerOutput = toy.schedule()
    before = snapshot(toy.scheduler)
    answer = ModelOutput.from_lists([[]], extras=ModelAuxOutput(pooler_output=[1.0, 2.0]))
    with pytest.raises(ValueError, match="pooler_output has 2 for 1"):
        toy.scheduler.update_from_output(plan, answer)
    assert snapshot(toy.scheduler) == before


def test_a_connector_may_report_a_load_and_a_read_of_the_same_request() -> None:
    """It was aborted while it was loaded, and its connector keeps what has come: the first report frees its blocks."""

    class Keeps(KVConnector):
        def get_num_new_matched_tokens(self, request: Request, num_computed_tokens: int) -> Match:
            return Match(4, is_async=True)

        def request_finished(self, request: Request, blocks: Any) -> tuple[bool, None]:
            return True, None

    toy = ToyEngine(kv_connector=Keeps())
    toy.add("a", 8)
    toy.step()
    toy.abort("a")
    sent = ConnectorOutput(finished_sending=frozenset("a"))
    for report_of_both in (ConnectorOutput(finished_receiving=frozenset("a")), sent):
        toy.scheduler.update_from_output(toy.schedule(), ModelOutput.from_lists([], report_of_both))
        toy.scheduler.check_invariants()
        assert toy.free == 100
    with pytest.raises(ValueError, match="finished_sending names 'a'"):
        toy.scheduler.update_from_output(toy.schedule(), ModelOutput.from_lists([], sent))


@pytest.mark.parametrize("row", [[1.9], ["3"], [[1]], [None], [2**70]])
def test_lists_that_hold_no_token_ids_are_refused(row: list[Any]) -> None:
    with pytest.raises(ValueError, match="row 1"):
        ModelOutput.from_lists([[4], row])


def test_an_executor_may_use_its_buffer_again() -> None:
    toy = ToyEngine()
    toy.add("a", 4, max_tokens=3)
    buffer, one, kept = np.zeros((1, 1), np.int64), np.ones(1, np.int64), []
    for token in (11, 12, 13):
        buffer[:] = token
        kept.append(toy.scheduler.update_from_output(toy.schedule(), ModelOutput(buffer, one)))
    buffer[:], one[:] = 99, 0
    assert [next(iter(each)).new_token_ids for each in kept] == [[11], [12], [13]]


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ((CacheConfig(num_gpu_blocks=10_318), SchedulerConfig()), "config"),
        ((SchedulerConfig(), {"num_gpu_blocks": 5}), "cache_config"),
        ((SchedulerConfig(), None), "cache_config"),
    ],
)
def test_arguments_in_another_order_are_named(arguments: tuple[Any, Any], field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        Scheduler(*arguments)
    with pytest.raises(ConfigError, match="clock"):
        Scheduler(SchedulerConfig(), CacheConfig(num_gpu_blocks=5), clock=5)  # type: ignore[arg-type]


@pytest.mark.parametrize("ids", [5, [5], [None, "a"]])
def test_ids_that_are_none(ids: Any) -> None:
    toy = ToyEngine()
    toy.add("a")
    with pytest.raises(ConfigError, match="request_ids"):
        toy.scheduler.finish_requests(ids)
    assert toy.scheduler.get_request_counts() == (0, 1)


WIDTHS = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", ">i2", ">i4", ">i8")


def _told(width: str, *, is_async: bool) -> list[list[tuple[str, list[int]]]]:
    """What a small run tells, in which some rows bring a token and others none, with answers in numbers of a width."""
    drafts = SpeculativeConfig(
        num_speculative_tokens=2, method=SpeculativeMethod.NGRAM_GPU if is_async else SpeculativeMethod.NGRAM
    )
    config = SchedulerConfig(
        max_num_seqs=4, max_num_batched_tokens=8, max_model_len=64, async_scheduling=is_async, profile=VLLM_0_33
    )
    scheduler = Scheduler(config, CacheConfig(num_gpu_blocks=50, block_size=4), speculative_config=drafts)
    for i, length in enumerate((3, 17, 9, 2)):
        scheduler.add_request(Request(f"r{i}", list(range(100 * i, 100 * i + length)), SamplingParams(max_tokens=3)))
    told = []
    for _ in range(50):
        plan = scheduler.schedule()
        chunks = [False] * len(plan.req_ids) if plan.is_prefill_chunk is None else plan.is_prefill_chunk
        answer = ModelOutput.from_lists([[] if chunk else [7] for chunk in chunks])
        given = ModelOutput(answer.sampled.astype(width), answer.num_sampled.astype(width))
        outputs = scheduler.update_from_output(plan, given)
        told.append([(news.request_id, list(news.new_token_ids)) for news in outputs])
        if not is_async and plan.req_ids:
            rows = DraftTokens.from_lists([[1, 2]] * len(plan.req_ids))
            scheduler.update_draft_token_ids(plan, DraftTokens(rows.tokens.astype(width), rows.counts.astype(width)))
        scheduler.check_invariants()
    assert not scheduler.requests
    return told


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("width", WIDTHS)
def test_whole_numbers_of_any_width_say_the_same(width: str, is_async: bool) -> None:
    """Rows without a token once counted as rows with one, where the counts were int32: 1, 0 has the bytes of one 1."""
    right = _told("i8", is_async=is_async)
    assert any(len(step) > 1 for step in right)
    assert _told(width, is_async=is_async) == right
    assert all(tokens for step in right for _, tokens in step)


REPEATS: dict[str, tuple[Any, Any, str]] = {
    "more than there are": (np.full((2, 30), 5), range(30), "moments has 30 entries: give 1 to 7"),
    "none": (np.zeros((2, 0), np.int64), [], "moments has 0 entries: give 1 to 7"),
    "a token that is none": (np.array([[5, 5], [5, -7]]), [1.0, 2.0], "row 1 holds token -7 in repeat 1"),
    "a request too few": (np.full((1, 2), 5), [1.0, 2.0], r"of shape \[requests, steps\], \(2, 2\)"),
    "a moment too few": (np.full((2, 2), 5), [1.0], r"of shape \[requests, steps\], \(2, 1\)"),
    "lists": ([[5], [5]], [1.0], "give an array of whole numbers"),
    "numbers that are not whole": (np.full((2, 1), 0.5), [1.0], "give an array of whole numbers"),
}


@pytest.mark.parametrize("mistake", REPEATS)
def test_a_wrong_answer_to_repeated_steps_changes_nothing(mistake: str) -> None:
    scheduler = Scheduler(SchedulerConfig(), CacheConfig(num_gpu_blocks=400))
    for name in "ab":
        scheduler.add_request(Request(name, [1] * 20, SamplingParams(max_tokens=9)))
    scheduler.update_from_output(scheduler.schedule(), ModelOutput.from_lists([[5], [5]]))
    scheduler.schedule()
    before = snapshot(scheduler)
    tokens, moments, message = REPEATS[mistake]
    with pytest.raises(ValueError, match=message):
        scheduler.repeat(tokens, moments)
    assert snapshot(scheduler) == before
    (plan,) = scheduler.repeat(np.array([[5, 6], [7, 8]], np.int32), [1.0, 2.0])
    scheduler.update_from_output(plan, ModelOutput.from_lists([[9], [9]]))
    scheduler.check_invariants()
    assert [each.output_token_ids for each in scheduler.requests.values()] == [[5, 5, 6, 9], [5, 7, 8, 9]]
    with pytest.raises(ValueError, match="no further step would decide what the last one did"):
        scheduler.repeat(np.array([[5], [7]]), [3.0])
