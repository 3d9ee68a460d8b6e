"""Grammars in a step: drafts that become known late, and what workers are told to sample."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from tests.support.toy_engine import ToyEngine

from tokenyard.core.config import SpeculativeConfig
from tokenyard.core.profiles import decision_profile
from tokenyard.core.sched.outputs import DraftTokens
from tokenyard.errors import GrammarError

DRAFTS = SpeculativeConfig(num_speculative_tokens=3)


class Below:
    """A compiled grammar that allows the tokens below a limit, one of 32."""

    is_ready = True

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def accept_tokens(self, tokens: Sequence[int]) -> bool:
        return all(token < self.limit for token in tokens)

    def validate_tokens(self, tokens: Sequence[int]) -> list[int]:
        stop = next((i for i, token in enumerate(tokens) if token >= self.limit), len(tokens))
        return list(tokens[:stop])


class Masked(Below):
    def bitmask(self, drafts: Sequence[int]) -> npt.NDArray[np.int32]:
        return np.full((1 + len(drafts), 1), (1 << self.limit) - 1, np.int32)


def test_drafts_are_made_known_before_the_step_runs() -> None:
    toy = ToyEngine(async_scheduling=True, speculative=DRAFTS)
    toy.add("free", max_tokens=20)
    toy.add("bound", max_tokens=20, structured_output=Below(10))
    toy.update(toy.schedule(), {"free": [1], "bound": [1]})
    output = toy.schedule()
    assert output.scheduled_spec_decode_tokens == {"free": [-1] * 3, "bound": [-1] * 3}
    output = toy.scheduler.update_draft_token_ids_in_output(output, DraftTokens.from_lists([[5, 50, 5], [5, 50, 5]]))
    assert output.scheduled_spec_decode_tokens == {"free": [5, 50, 5], "bound": [5, -1, -1]}
    result = toy.update(output, {"free": [5, 50, 5, 6], "bound": [5, 6]})
    stats = result.scheduler_stats.spec_decoding_stats
    assert stats is not None
    assert (stats.num_drafts, stats.num_draft_tokens, stats.num_accepted_tokens) == (2, 4, 4)


def test_drafts_that_become_known_are_cut_to_what_was_scheduled() -> None:
    toy = ToyEngine(async_scheduling=True, speculative=DRAFTS, max_num_batched_tokens=6)
    toy.add("a", max_tokens=20)
    toy.add("b", 2, max_tokens=20)
    toy.update(toy.schedule(), {"a": [1], "b": [1]})
    output = toy.schedule()
    assert {name: len(drafts) for name, drafts in output.scheduled_spec_decode_tokens.items()} == {"a": 3, "b": 1}
    output = toy.scheduler.update_draft_token_ids_in_output(output, DraftTokens.from_lists([[1], [2, 3, 4]]))
    assert output.scheduled_spec_decode_tokens == {"a": [1, -1, -1], "b": [2]}


def test_drafts_of_a_request_that_ended_meanwhile_stay_unknown() -> None:
    toy = ToyEngine(async_scheduling=True, speculative=DRAFTS)
    toy.add("a", max_tokens=20)
    toy.update(toy.schedule())
    output = toy.schedule()
    toy.abort("a")
    output = toy.scheduler.update_draft_token_ids_in_output(output, DraftTokens.from_lists([[1, 2, 3]]))
    assert output.scheduled_spec_decode_tokens == {"a": [-1] * 3}


def test_a_step_without_drafts_takes_none() -> None:
    toy = ToyEngine(async_scheduling=True, speculative=DRAFTS)
    toy.add("a")
    output = toy.schedule()
    output = toy.scheduler.update_draft_token_ids_in_output(output, DraftTokens.from_lists([[1, 2, 3]]))
    assert output.scheduled_spec_decode_tokens == {}
    plain = ToyEngine()
    with pytest.raises(ValueError, match="SpeculativeConfig"):
        plain.scheduler.update_draft_token_ids_in_output(plain.schedule(), DraftTokens.from_lists([]))


def test_the_bitmask_has_a_row_per_position() -> None:
    toy = ToyEngine(speculative=DRAFTS, max_num_batched_tokens=16)
    toy.add("free", max_tokens=20)
    toy.add("a", max_tokens=20, structured_output=Masked(4))
    output = toy.schedule()
    assert list(output.num_scheduled_tokens) == ["a", "free"]  # who waited for a grammar is tried first
    toy.update(output, {"free": [1], "a": [1]})
    toy.scheduler.update_draft_token_ids(output, DraftTokens.from_lists([[2, 3], [2]]))
    toy.add("long", 30, structured_output=Masked(5))  # its prompt is not complete in this step
    mask = toy.scheduler.get_grammar_bitmask(toy.schedule())
    assert mask is not None
    assert mask.structured_output_request_ids == ["a"]
    assert mask.grammar_bitmask.tolist() == [[15]] * 3


def test_nobody_samples_by_a_grammar() -> None:
    toy = ToyEngine()
    toy.add("a")
    output = toy.schedule()
    assert toy.scheduler.get_grammar_bitmask(output) is None
    assert not output.has_structured_output_requests


def test_a_grammar_without_a_bitmask_says_so() -> None:
    toy = ToyEngine()
    toy.add("a", structured_output=Below(4))
    output = toy.schedule()
    assert toy.scheduler.get_grammar_bitmask(output) is None
    (news,) = toy.update(output, {"a": [1]})
    assert news.finish_reason == "error"
    assert "request 'a': bitmask raised AttributeError: 'Below' object has no" in str(news.error)


def test_readiness_is_not_asked_again_once_it_runs() -> None:
    class Counted(Masked):
        asked = 0

        @property
        def is_ready(self) -> bool:  # type: ignore[override]
            Counted.asked += 1
            return True

    toy = ToyEngine()
    toy.add("a", max_tokens=5, structured_output=Counted(20))
    for _ in range(4):
        output = toy.schedule()
        assert toy.scheduler.get_grammar_bitmask(output) is not None
        toy.update(output, {"a": [5]})
    assert Counted.asked == 1


class Failing(Masked):
    """One method raises, or answers something else, from some call on."""

    def __init__(self, method: str, answer: object) -> None:
        super().__init__(20)
        self.method, self.answer, self.is_armed = method, answer, False

    def fails(self, method: str) -> bool:
        if self.is_armed and method == self.method and isinstance(self.answer, type):
            raise self.answer(method)
        return self.is_armed and method == self.method

    def accept_tokens(self, tokens: Sequence[int]) -> bool:
        return self.answer if self.fails("accept_tokens") else super().accept_tokens(tokens)  # type: ignore[return-value]

    def validate_tokens(self, tokens: Sequence[int]) -> list[int]:
        return self.answer if self.fails("validate_tokens") else super().validate_tokens(tokens)  # type: ignore[return-value]

    def bitmask(self, drafts: Sequence[int]) -> npt.NDArray[np.int32]:
        return self.answer if self.fails("bitmask") else super().bitmask(drafts)  # type: ignore[return-value]


FAILURES = [
    *(("accept_tokens", answer) for answer in (KeyError, None, "yes")),
    *(("validate_tokens", answer) for answer in (KeyError, None, [5, 6, 7, 8], [9])),
    *(("bitmask", answer) for answer in (KeyError, None, np.ones((3, 1), np.int32), np.ones((2, 1), np.int64))),
]


@pytest.mark.parametrize(("method", "answer"), FAILURES, ids=str)
def test_whoever_has_a_grammar_that_fails_ends_and_nobody_else(method: str, answer: object) -> None:
    toy = ToyEngine(speculative=SpeculativeConfig(num_speculative_tokens=1), profile=decision_profile("0.33"))
    grammar = Failing(method, answer)
    toy.add("bound", max_tokens=8, structured_output=grammar)
    toy.add("other", max_tokens=8, structured_output=Masked(20))
    toy.add("free", max_tokens=8)
    scheduler, told = toy.scheduler, dict.fromkeys(("bound", "other", "free"), 0)
    reasons: dict[str, object] = {}
    errors: dict[str, GrammarError] = {}
    for step in range(20):
        if not scheduler.has_requests():
            break
        grammar.is_armed = step >= 2
        output = toy.schedule()
        mask = scheduler.get_grammar_bitmask(output)
        if mask is not None:
            drafts = output.scheduled_spec_decode_tokens
            rows = sum(1 + len(drafts.get(name, ())) for name in mask.structured_output_request_ids)
            assert mask.grammar_bitmask.shape == (rows, 1)
        answers = toy.model(output, {name: [5] for name in told})
        outputs = scheduler.update_from_output(output, answers)
        scheduler.check_invariants()
        errors |= outputs.errors
        for news in outputs:
            told[news.request_id] += len(news.new_token_ids)
            reasons[news.request_id] = news.finish_reason
        proposed = DraftTokens.from_lists([[5]] * len(output.req_ids))
        if output.req_ids:
            scheduler.update_draft_token_ids(output, proposed)
    assert {name: error.method for name, error in errors.items()} == {"bound": method}
    assert told["other"] == told["free"] == 8
    assert reasons == {"bound": "error", "other": "length", "free": "length"}
    assert toy.free == 100


def test_masks_of_several_widths_make_one() -> None:
    class Wide(Masked):
        def bitmask(self, drafts: Sequence[int]) -> npt.NDArray[np.int32]:
            return np.full((1 + len(drafts), 3), 7, np.int32)

    toy = ToyEngine()
    toy.add("narrow", structured_output=Masked(2))
    toy.add("wide", structured_output=Wide(2))
    mask = toy.scheduler.get_grammar_bitmask(toy.schedule())
    assert mask is not None
    assert mask.grammar_bitmask.tolist() == [[3, 0, 0], [7, 7, 7]]


def test_a_bitmask_may_have_to_wait_for_the_step_before() -> None:
    toy = ToyEngine(async_scheduling=True)
    toy.add("a", structured_output=Masked(4))
    first, second = toy.schedule(), toy.schedule()
    assert first.has_structured_output_requests
    assert not first.pending_structured_output_tokens
    assert second.pending_structured_output_tokens
