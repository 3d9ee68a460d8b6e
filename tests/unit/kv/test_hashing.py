"""Block hashes: a chain over full blocks in which everything that changes the KV changes the hash."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_128_digest

from tokenyard.core.config import HashAlgo
from tokenyard.core.kv.hashing import BlockHasher, digests
from tokenyard.core.request import MultiModalItem, Request

TOKENS = [11, 12, 13, 14, 21, 22, 23, 24, 31, 32, 33, 34]


def hashes(tokens: Sequence[int] = TOKENS, hasher: BlockHasher | None = None, **fields: Any) -> list[bytes]:
    """Hashes of a fresh request's full blocks, blocks of 4 unless the hasher says else."""
    return digests((hasher or BlockHasher(4)).extend(Request("r", tokens, **fields)))


def image(name: str, offset: int, length: int = 2) -> MultiModalItem:
    return MultiModalItem(mm_hash=name, offset=offset, length=length)


def _sha256(data: bytes) -> bytes:
    return sha256(data).digest()


def test_only_full_blocks_have_a_hash() -> None:
    assert [len(hashes(TOKENS[:n])) for n in (1, 3, 4, 7, 8, 11, 12)] == [0, 0, 1, 1, 2, 2, 3]


def test_equal_prefixes_have_equal_hashes() -> None:
    other = [*TOKENS[:8], 0, 0, 0, 0]
    assert hashes(other)[:2] == hashes()[:2]
    assert hashes(other)[2] != hashes()[2]


def test_a_hash_depends_on_all_blocks_before_it() -> None:
    changed = [99, *TOKENS[1:]]
    assert not set(hashes(changed)) & set(hashes())


def test_equal_blocks_at_different_places_differ() -> None:
    chain = hashes([7, 7, 7, 7] * 5)
    assert len(set(chain)) == 5


def test_tokens_cannot_slide_between_blocks() -> None:
    assert hashes([1, 2, 3, 4, 5, 6, 7, 8])[1] != hashes([5, 6, 7, 8, 1, 2, 3, 4])[0]
    assert not set(hashes([1] * 8, BlockHasher(8))) & set(hashes([1] * 8, BlockHasher(4)))


@pytest.mark.parametrize("algo", list(HashAlgo))
def test_the_first_hash_is_the_digest_of_root_and_tokens(algo: HashAlgo) -> None:
    """Counted by hand, so that another machine and another version find the same KV in a shared store."""
    digest = _sha256 if algo is HashAlgo.SHA256 else xxh3_128_digest
    hasher = BlockHasher(4, algo, "seed")
    stream = digest(b"tokenyard:4:seed")
    assert hasher.root == stream
    for block, found in enumerate(hashes(hasher=hasher)):
        stream += struct.pack("<4i", *TOKENS[block * 4 : block * 4 + 4])
        assert found == digest(stream)


def test_extra_keys_stand_behind_a_number_that_no_token_has() -> None:
    hasher = BlockHasher(4)
    keys = hasher.extra_keys(Request("r", TOKENS, cache_salt="s"), 0)
    stream = hasher.root + struct.pack("<4i", *TOKENS[:4]) + struct.pack("<2i", -1, len(keys)) + keys
    assert hashes(hasher=hasher, cache_salt="s")[0] == _sha256(stream)
    stream += struct.pack("<4i", *TOKENS[4:8])
    assert hashes(hasher=hasher, cache_salt="s")[1] == _sha256(stream)


@pytest.mark.parametrize(("algo", "size"), [(HashAlgo.SHA256, 32), (HashAlgo.XXH3_128, 16)])
def test_algorithms_differ_in_length_and_value(algo: HashAlgo, size: int) -> None:
    chain = hashes(hasher=BlockHasher(4, algo))
    assert [len(each) for each in chain] == [size] * 3
    assert chain == hashes(hasher=BlockHasher(4, algo)), "the same in every run"
    assert chain != hashes(hasher=BlockHasher(4, HashAlgo.SHA256 if size == 16 else HashAlgo.XXH3_128))


@pytest.mark.parametrize("algo", list(HashAlgo))
def test_a_seed_separates_caches(algo: HashAlgo) -> None:
    plain, seeded = (hashes(hasher=BlockHasher(4, algo, seed)) for seed in ("", "other"))
    assert not set(plain) & set(seeded)
    assert seeded == hashes(hasher=BlockHasher(4, algo, "other"))


@pytest.mark.parametrize("algo", list(HashAlgo))
def test_extra_keys_use_the_same_algorithm(algo: HashAlgo) -> None:
    chain = hashes(hasher=BlockHasher(4, algo), lora_name="x")
    assert {len(each) for each in chain} == {len(hashes(hasher=BlockHasher(4, algo))[0])}


# ---- extra keys


def test_a_lora_adapter_enters_every_block() -> None:
    assert not set(hashes(lora_name="one")) & set(hashes())
    assert not set(hashes(lora_name="one")) & set(hashes(lora_name="two"))
    hasher, request = BlockHasher(4), Request("r", TOKENS, lora_name="one")
    assert hasher.extra_keys(request, 0) == hasher.extra_keys(request, 2) != b""


def test_a_salt_enters_the_first_block_alone_and_the_chain_carries_it_on() -> None:
    hasher, request = BlockHasher(4), Request("r", TOKENS, cache_salt="s")
    assert hasher.extra_keys(request, 0) != b""
    assert hasher.extra_keys(request, 1) == b""
    assert not set(hashes(cache_salt="s")) & set(hashes())
    assert not set(hashes(cache_salt="s")) & set(hashes(cache_salt="t"))


def test_an_empty_name_is_no_name() -> None:
    assert hashes(lora_name="", cache_salt="") == hashes()


def test_a_picture_enters_the_blocks_it_overlaps() -> None:
    hasher, request = BlockHasher(4), Request("r", TOKENS, mm_features=[image("cat", 3, 3)])
    assert [hasher.extra_keys(request, block) != b"" for block in range(3)] == [True, True, False]
    touching = Request("r", TOKENS, mm_features=[image("cat", 4, 4)])
    assert [hasher.extra_keys(touching, block) != b"" for block in range(3)] == [False, True, False]


def test_a_prefix_before_the_picture_is_shared() -> None:
    cat, dog = (hashes(mm_features=[image(name, 5)]) for name in ("cat", "dog"))
    assert cat[0] == dog[0] == hashes()[0]
    assert not {cat[1], cat[2]} & {dog[1], dog[2]}


def test_the_place_of_a_picture_matters() -> None:
    """Placeholder tokens are all alike: only (hash, offset) tells where the picture stands."""
    assert hashes([0] * 8, mm_features=[image("cat", 0)]) != hashes([0] * 8, mm_features=[image("cat", 1)])


def test_the_order_in_which_pictures_are_given_does_not_matter() -> None:
    one, two = image("cat", 0), image("dog", 2)
    assert hashes(mm_features=[one, two]) == hashes(mm_features=[two, one])
    swapped = [image("dog", 0), image("cat", 2)]
    assert hashes(mm_features=swapped) != hashes(mm_features=[one, two])


def test_a_block_that_output_fills_is_another_than_the_same_block_of_a_prompt_if_pictures_overlap_it() -> None:
    """vLLM 0.22.1 leaves all but the last picture out of such a block, so prompts that repeat it miss it there."""
    hasher = BlockHasher(4)
    one, two = image("cat", 4, 1), image("dog", 5, 1)
    for pictures, same in (([one, two], False), ([two], True), ([], True)):
        filled = Request("r", TOKENS[:6], mm_features=pictures)
        repeated = Request("r", TOKENS[:9], mm_features=pictures)
        assert (hasher.extra_keys(filled, 1) == hasher.extra_keys(repeated, 1)) is same
    swapped = Request("r", TOKENS[:6], mm_features=[image("bird", 4, 1), two])
    assert hasher.extra_keys(swapped, 1) != hasher.extra_keys(Request("r", TOKENS[:6], mm_features=[one, two]), 1)


def test_prompt_embeddings_enter_the_blocks_of_the_prompt() -> None:
    embeds = np.arange(12 * 2, dtype=np.float32).reshape(12, 2)
    other = embeds.copy()
    other[5, 1] += 1
    first, second = hashes(prompt_embeds=embeds), hashes(prompt_embeds=other)
    assert first[0] == second[0]
    assert not {first[1], first[2]} & {second[1], second[2]}
    assert not set(first) & set(hashes())


def test_blocks_of_output_alone_have_no_embeddings() -> None:
    request = Request("r", TOKENS[:4], prompt_embeds=np.ones((4, 2), np.float32))
    hasher = BlockHasher(4)
    assert hasher.extra_keys(request, 0) != b""
    assert hasher.extra_keys(request, 1) == b""


NAMES = st.none() | st.text("ab\x00", min_size=1, max_size=3)
ITEMS = st.lists(
    st.builds(image, st.text("ab", min_size=1, max_size=2), st.integers(0, 3), st.integers(1, 3)), max_size=2
).filter(lambda items: len({item.mm_hash for item in items}) == len({(item.mm_hash, item.length) for item in items}))
EMBEDS = st.none() | st.integers(0, 2)


@pytest.mark.slow
@given(a=st.tuples(NAMES, ITEMS, NAMES, EMBEDS), b=st.tuples(NAMES, ITEMS, NAMES, EMBEDS))
def test_different_extra_keys_have_different_encodings(a: tuple[Any, ...], b: tuple[Any, ...]) -> None:
    """(adapter, pictures, salt, embeddings) of a first block; a picture is its hash and place, not its length."""

    def facts(keys: tuple[Any, ...]) -> tuple[Any, ...]:
        lora, items, salt, embeds = keys
        return (lora, [(item.mm_hash, item.offset) for item in sorted(items, key=lambda x: x.offset)], salt, embeds)

    def encoded(keys: tuple[Any, ...]) -> bytes:
        lora, items, salt, embeds = keys
        rows = None if embeds is None else np.full((6, 2), embeds, np.float32)
        request = Request("r", [0] * 6, lora_name=lora, mm_features=items, cache_salt=salt, prompt_embeds=rows)
        return BlockHasher(6).extra_keys(request, 0)

    assert (encoded(a) == encoded(b)) == (facts(a) == facts(b))


# ---- growth

BUILDS = st.fixed_dictionaries(
    {},
    optional={
        "lora_name": st.sampled_from(["one", "two"]),
        "cache_salt": st.just("salt"),
        "mm_features": st.just([image("cat", 1)]),
    },
)


@given(
    prompt=st.lists(st.integers(0, 2**31 - 1), min_size=3, max_size=20),
    output=st.lists(st.integers(0, 2**31 - 1), max_size=30),
    block_size=st.integers(1, 7),
    algo=st.sampled_from(list(HashAlgo)),
    fields=BUILDS,
)
def test_growing_block_by_block_equals_hashing_at_once(
    prompt: list[int], output: list[int], block_size: int, algo: HashAlgo, fields: dict[str, Any]
) -> None:
    hasher = BlockHasher(block_size, algo)
    grown = Request("r", prompt, **fields)
    hasher.extend(grown)
    for token in output:
        grown.append_token(token)
        if grown.num_tokens % block_size == 0:
            hasher.extend(grown)
    assert grown.block_hashes == hashes([*prompt, *output], hasher, **fields)
    once = Request("r", prompt, **fields)
    for token in output:
        once.append_token(token)
    assert hasher.extend(once) == grown.block_hashes


@given(
    tokens=st.lists(st.integers(0, 5), min_size=3, max_size=20),
    more=st.lists(st.integers(0, 5), min_size=3, max_size=12),
    kept=st.integers(0, 7),
    algo=st.sampled_from(list(HashAlgo)),
    fields=BUILDS,
)
def test_hashing_goes_on_where_it_was_cut(
    tokens: list[int], more: list[int], kept: int, algo: HashAlgo, fields: dict[str, Any]
) -> None:
    """The kept blocks keep the keys they were hashed with, even if the request would give others by now."""
    hasher, request = BlockHasher(3, algo), Request("r", tokens, **fields)
    before = list(hasher.extend(request))
    hasher.truncate(request, kept)
    assert request.block_hashes == before[:kept]
    if fields.get("mm_features"):
        request.mm_features = (image("late", 1),)  # in block 0
        fields = fields | {"mm_features": [image("cat" if kept else "late", 1)]}
    request.replace_tokens(np.array([*tokens[: kept * 3], *more], np.int32))
    assert hasher.extend(request) == hashes([*tokens[: kept * 3], *more], hasher, **fields)


def test_extending_twice_adds_nothing() -> None:
    hasher, request = BlockHasher(4), Request("r", TOKENS)
    first = list(hasher.extend(request))
    assert hasher.extend(request) == first


@given(a=st.lists(st.integers(0, 3), max_size=9), b=st.lists(st.integers(0, 3), max_size=9), size=st.integers(1, 3))
def test_hashes_are_equal_exactly_where_whole_blocks_are(a: list[int], b: list[int], size: int) -> None:
    hasher = BlockHasher(size)
    one, two = (hashes([1, *tokens], hasher) for tokens in (a, b))
    for i, (left, right) in enumerate(zip(one, two, strict=False)):
        stop = (i + 1) * size
        assert (left == right) == ([1, *a][:stop] == [1, *b][:stop])
