"""The turns of a job: hashing goes on where the last prompt ended, and nobody can tell from the hashes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenyard.core.config import HashAlgo
from tokenyard.core.kv.hashing import REWRITTEN_TOKENS, BlockHasher, Turn, Turns, digests
from tokenyard.core.request import Request

SIZE = 16
HISTORY = [7919 * i % 50_021 for i in range(4 * REWRITTEN_TOKENS)]


def request(tokens: list[int], job_id: str | None = "job", **fields: Any) -> Request:
    return Request("r", tokens, job_id=job_id, **fields)


def afresh(tokens: list[int], algo: HashAlgo = HashAlgo.SHA256, **fields: Any) -> list[bytes]:
    """The hashes of a prompt of nobody's job."""
    return digests(BlockHasher(SIZE, algo).extend(request(tokens, None, **fields)))


def seal(hasher: BlockHasher, of: Request, tokens: list[int]) -> None:
    """The request's output fills one more block."""
    hasher.append(of, np.array(tokens, np.int32).tobytes())


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


@pytest.mark.parametrize("rewritten", [0, 1, REWRITTEN_TOKENS])
def test_what_the_last_prompt_had_is_not_hashed_again(rewritten: int) -> None:
    hasher = BlockHasher(SIZE)
    first = hasher.extend(request(HISTORY[:700]))
    second = hasher.extend(request([*HISTORY[: 700 - rewritten], *range(100)]))
    kept = (700 // SIZE * SIZE - REWRITTEN_TOKENS) // SIZE
    assert all(one is other for one, other in zip(first[:kept], second[:kept], strict=True))
    assert second[kept] is not first[kept]


def test_a_prompt_that_differs_early_is_hashed_whole() -> None:
    hasher = BlockHasher(SIZE)
    first = hasher.extend(request(HISTORY))
    second = hasher.extend(request([HISTORY[0] + 1, *HISTORY[1:]]))
    assert not set(first) & set(second)


def test_a_shorter_prompt_is_hashed_whole() -> None:
    hasher = BlockHasher(SIZE)
    first = hasher.extend(request(HISTORY))
    second = hasher.extend(request(HISTORY[:400]))
    assert second == first[: 400 // SIZE]
    assert second[0] is not first[0]


def test_jobs_are_apart() -> None:
    hasher = BlockHasher(SIZE)
    first = hasher.extend(request(HISTORY, "one"))
    second = hasher.extend(request(HISTORY, "two"))
    assert second == first
    assert second[0] is not first[0]


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


def turn_of(tokens: list[int]) -> tuple[Request, Turn]:
    made = request(tokens)
    hasher = BlockHasher(SIZE)
    hashes = hasher.extend(made)
    assert made.prefix_hash is not None
    return made, Turn(made.token_bytes(0, len(tokens)), hashes, made.prefix_hash)


def test_the_quietest_job_is_forgotten_first() -> None:
    turns = Turns(most_bytes=3 * 4 * SIZE)
    asker, turn = turn_of(HISTORY[:SIZE])
    for job in ("a", "b", "c"):
        turns.remember(job, turn)
    assert turns.begun_by(asker, "a") is turn
    turns.remember("d", turn)
    assert [job for job in "abcd" if turns.begun_by(asker, job) is None] == ["b"]


def test_a_newer_turn_takes_the_place_of_the_last() -> None:
    turns = Turns(most_bytes=3 * 4 * SIZE)
    asker, turn = turn_of(HISTORY[: 2 * SIZE])
    for _ in range(5):
        turns.remember("a", turn)
    turns.remember("b", turn_of(HISTORY[:SIZE])[1])
    assert len(turns) == 2
    assert turns.begun_by(asker, "a") is turn


def test_a_prompt_larger_than_all_the_room_is_not_kept() -> None:
    turns = Turns(most_bytes=4 * SIZE - 1)
    asker, turn = turn_of(HISTORY[:SIZE])
    turns.remember("a", turn)
    assert len(turns) == 0
    assert turns.begun_by(asker, "a") is None
