"""What the executor without a model tells beside tokens has the shapes that vLLM reads, and keeps to masks."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("vllm", reason="needs vLLM: make test-vllm")

from tokenyard.vllm.emulated.executor import (
    Wanted,
    allowed,
    keep_to_grammars,
    logprobs_of,
    pooled,
    prompt_logprobs_of,
)

_WORDS = 4
"""Words of a mask of 128 tokens."""


def _mask(*tokens: int) -> np.ndarray:
    bits = np.zeros(_WORDS * 32, np.uint8)
    bits[list(tokens)] = 1
    return np.packbits(bits, bitorder="little").view(np.int32)


def test_each_asks_for_its_own_and_gets_it_from_the_rows_of_all() -> None:
    assert logprobs_of([5, 6], [Wanted(), Wanted()], 100) is None
    rows = logprobs_of([5, 99, 7], [Wanted(2), Wanted(), Wanted(0)], 100)
    assert rows is not None
    one = rows.slice_request(1, 1)
    assert one.logprob_token_ids.tolist() == [[99, 99, 0]], "the token, then the likeliest"
    assert one.sampled_token_ranks.tolist() == [1]
    assert np.exp(np.unique(rows.logprobs)).sum() <= 1.2
    assert (np.diff(rows.logprobs[:, 1:]) < 0).all()


def test_a_prompt_has_them_from_its_second_token_on() -> None:
    told = prompt_logprobs_of([4, 5, 6], 1, 100)
    assert told.logprob_token_ids.tolist() == [[5, 5], [6, 6]]
    assert tuple(told.logprobs.shape) == (2, 2)


def test_a_token_that_a_grammar_does_not_allow_is_replaced_and_the_end_comes_when_it_may() -> None:
    assert allowed(7, _mask(7), None) == 7
    assert {allowed(token, _mask(3, 40, 127), 9) for token in range(50)} == {3, 40, 127}
    assert allowed(7, _mask(3, 9, 40), 9) == 9
    sampled = [[50], [50], []]
    grammar = SimpleNamespace(
        structured_output_request_ids=["b", "c", "gone"], grammar_bitmask=np.stack([_mask(1)] * 3)
    )
    keep_to_grammars(sampled, {"a": 0, "b": 1, "c": 2}, grammar, [None] * 3)
    assert sampled == [[50], [1], []]


@pytest.mark.parametrize(("task", "shape"), [("embed", (16,)), ("token_embed", (3, 16))])
def test_the_same_prompt_has_the_same_vector_of_length_one(task: str, shape: tuple[int, ...]) -> None:
    first, again, other = (pooled(0, prompt, task, 16) for prompt in ([1, 2, 3], [1, 2, 3], [1, 2, 4]))
    assert tuple(first.shape) == shape
    assert (first == again).all()
    assert not (first == other).all()
    assert np.allclose(np.linalg.norm(first.numpy(), axis=-1), 1.0, atol=1e-5)
