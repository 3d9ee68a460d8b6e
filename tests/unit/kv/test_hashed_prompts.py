"""Prompts that begin like an earlier one: hashing goes on where they part, and the hashes do not tell."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenyard.core.config import HashAlgo
from tokenyard.core.kv.hashing import BlockHasher, HashedPrompt, HashedPrompts, digests
from tokenyard.core.request import Request

SIZE = 16
MARK = 64 * SIZE
"""Tokens between two places at which hashing can go on."""
HISTORY = [7919 * i % 50_021 for i in range(200 * SIZE)]


def request(tokens: list[int], job_id: str | None = "job", **fields: Any) -> Request:
    return Request("r", tokens, job_id=job_id, **fields)


def afresh(tokens: list[int], algo: HashAlgo = HashAlgo.SHA256, **fields: Any) -> list[bytes]:
    """The hashes of a prompt without a job."""
    return digests(BlockHasher(SIZE, algo).extend(request(tokens, None, **fields)))


def seal(hasher: BlockHasher, of: Request, tokens: list[int]) -> None:
    """The request says a block more than its whole ones: of a prompt that ends within one, the rest is made up."""
    whole = len(of.prompt_token_ids) // SIZE * SIZE
    of.replace_tokens(np.array([*of.prompt_token_ids[:whole], *tokens], np.int32))
    hasher.extend(of)


@pytest.mark.slow
@given(data=st.data(), algo=st.sampled_from(HashAlgo))
def test_hashes_do_not_depend_on_the_turns_before(data: st.DataObject, algo: HashAlgo) -> None:
    """Prompts grow, are cut, begin anew or change at any place; outputs follow each."""
    hasher, length = BlockHasher(SIZE, algo), len(HISTORY)
    for _ in range(data.draw(st.integers(1, 5), label="turns")):
        prompt = HISTORY[: data.draw(st.integers(1, length), label="length")].copy()
        if data.draw(st.booleans(), label="changed"):
            prompt[data.draw(st.integers(0, len(prompt) - 1), label="where")] += 1
        turn = request(prompt, data.draw(st.sampled_from(["job", "other", None]), label="job"))
        assert hasher.extend(turn) == afresh(prompt, algo)
        whole, output = len(prompt) // SIZE * SIZE, list(range(SIZE))
        seal(hasher, turn, output)
        assert turn.block_hashes == afresh(prompt[:whole] + output, algo)


def num_taken_over(first: list[Any], second: list[Any]) -> int:
    return sum(one is other for one, other in zip(first, second, strict=False))


@pytest.mark.parametrize("rewritten", [0, 1, 256])
def test_what_the_last_prompt_had_is_not_hashed_again(rewritten: int) -> None:
    hasher = BlockHasher(SIZE)
    first = hasher.extend(request(HISTORY[: 2 * MARK]))
    second = hasher.extend(request([*HISTORY[: 2 * MARK - rewritten], *range(1, 101)]))
    assert num_taken_over(first, second) == (2 * MARK if not rewritten else MARK) // SIZE


def test_a_prompt_that_differs_early_is_hashed_whole() -> None:
    hasher = BlockHasher(SIZE)
    first = hasher.extend(request(HISTORY))
    second = hasher.extend(request([HISTORY[0] + 1, *HISTORY[1:]]))
    assert not set(first) & set(second)


def test_a_shorter_prompt_takes_over_what_it_has() -> None:
    hasher = BlockHasher(SIZE)
    first = hasher.extend(request(HISTORY))
    second = hasher.extend(request(HISTORY[: MARK + 10 * SIZE]))
    assert second == first[: MARK // SIZE + 10]
    assert num_taken_over(first, second) == MARK // SIZE


def test_jobs_that_begin_alike_share_their_beginning_and_go_on_by_themselves() -> None:
    hasher, system = BlockHasher(SIZE), HISTORY[:MARK]
    whole = [*system, *[1] * MARK]
    first = hasher.extend(request(whole, "one"))
    assert first == afresh(whole)
    for number, job in ((2, "two"), (3, None)):
        other = [*system, *[number] * MARK]
        hashes = hasher.extend(request(other, job))
        assert hashes == afresh(other)
        assert num_taken_over(first, hashes) == MARK // SIZE
    again = hasher.extend(request(whole, "one"))
    assert num_taken_over(first, again) == len(first)


@pytest.mark.parametrize("fields", [{"lora_name": "sql"}, {"cache_salt": "tenant"}])
def test_extra_keys_stay_with_their_request(fields: dict[str, Any]) -> None:
    hasher = BlockHasher(SIZE)
    plain = hasher.extend(request(HISTORY))
    assert hasher.extend(request(HISTORY, **fields)) == afresh(HISTORY, **fields)
    assert hasher.extend(request(HISTORY)) == plain


def test_two_turns_go_on_by_themselves() -> None:
    hasher = BlockHasher(SIZE)
    hasher.extend(request(HISTORY))
    one, other = request(HISTORY), request(HISTORY)
    for turn, output in ((one, [1] * SIZE), (other, [2] * SIZE)):
        hasher.extend(turn)
        seal(hasher, turn, output)
    assert one.block_hashes == afresh([*HISTORY, *[1] * SIZE])
    assert other.block_hashes == afresh([*HISTORY, *[2] * SIZE])


def hashed(tokens: list[int]) -> HashedPrompt:
    made = request(tokens)
    hashes = BlockHasher(SIZE).extend(made)
    assert made.prefix_hash is not None
    return HashedPrompt(np.array(tokens, np.int32), hashes, [], made.prefix_hash)


def test_the_one_is_forgotten_first_that_was_not_begun_by_for_longest() -> None:
    prompts, prompt = HashedPrompts(most_bytes=3 * 4 * SIZE), hashed(HISTORY[:SIZE])
    for first in (b"a", b"b", b"c"):
        prompts.keep(None, first, prompt)
    assert prompts.like(None, b"a") is prompt
    prompts.keep(None, b"d", prompt)
    assert [first for first in (b"a", b"b", b"c", b"d") if prompts.like(None, first) is None] == [b"b"]


def test_a_newer_one_takes_the_place_of_the_jobs_last() -> None:
    prompts, prompt = HashedPrompts(), hashed(HISTORY[: 2 * SIZE])
    prompts.keep("job", b"first", hashed(HISTORY[:SIZE]))
    prompts.keep("job", b"first", prompt)
    assert len(prompts) == 2
    assert prompts.like("job", b"first") is prompt
    assert prompts.like("other", b"first") is not prompt, "the first that began so is still there for other jobs"


def test_a_prompt_larger_than_all_the_room_is_not_kept() -> None:
    prompts = HashedPrompts(most_bytes=4 * SIZE - 1)
    prompts.keep("job", b"first", hashed(HISTORY[:SIZE]))
    assert len(prompts) == 0
    assert prompts.like("job", b"first") is None
