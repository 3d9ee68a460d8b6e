"""Room for several steps of decodes at once: each answer is what step by step comes to."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.memory import Memory
from tests.support.toy_engine import make_request, prompt_of

from tokenyard.core.request import Request

LENGTHS = (5, 8, 10)
MOST = 14


def _decoding(num_gpu_blocks: int, *, enable_prefix_caching: bool = True) -> tuple[Memory, list[Request]]:
    """Three requests that hold eight blocks of four tokens."""
    memory = Memory(num_gpu_blocks, enable_prefix_caching=enable_prefix_caching)
    return memory, [memory.admit(f"r{length}", prompt_of(f"r{length}", length)) for length in LENGTHS]


def _one_by_one(memory: Memory, rows: list[Request]) -> list[list[int]]:
    """The blocks that each further step takes, up to the one that not all rows find room for."""
    steps: list[list[int]] = []
    held = {row: len(memory.blocks(row)) for row in rows}
    for step in range(1, MOST + 1):
        if memory.grow({row: length + step for row, length in zip(rows, LENGTHS, strict=True)}) < len(rows):
            break
        steps.append([block for row in rows for block in memory.blocks(row)[held[row] :]])
        held = {row: len(memory.blocks(row)) for row in rows}
    return steps


@pytest.mark.parametrize("num_gpu_blocks", range(9, 21))
def test_as_many_steps_fit_as_do_one_by_one(num_gpu_blocks: int) -> None:
    memory, rows = _decoding(num_gpu_blocks)
    slots = np.array([row.slot for row in rows])
    fits = memory.kv.steps_that_fit(slots, np.array(LENGTHS), MOST)
    assert fits == len(_one_by_one(*_decoding(num_gpu_blocks)))
    grown = memory.kv.grow_steps(slots, np.array(LENGTHS), fits, [])
    taken = [grown.blocks[grown.at == step].tolist() for step in range(1, fits + 1)]
    assert taken == _one_by_one(*_decoding(num_gpu_blocks))
    memory.kv.check_invariants()


def test_what_takes_no_block_is_one_empty_column_for_all() -> None:
    memory, rows = _decoding(17)
    slots = np.array([row.slot for row in rows])
    grown = memory.kv.grow_steps(slots, np.array(LENGTHS), 0, [])
    assert not len(grown.blocks)
    assert not grown.blocks.flags.writeable


@pytest.mark.parametrize("place", range(8))
def test_steps_end_before_the_first_that_takes_a_hit(place: int) -> None:
    memory, rows = _decoding(17)
    slots, reach = np.array([row.slot for row in rows]), np.array(LENGTHS)
    most = memory.kv.steps_that_fit(slots, reach, MOST)
    hit = list(memory.kv.pool.free_queue)[place]
    steps = _one_by_one(*_decoding(17))[:most]
    before = next((at for at, blocks in enumerate(steps) if hit in blocks), most)
    assert memory.kv.steps_before_evicting({hit}, slots, reach, most) == before
    assert memory.kv.steps_before_evicting(set(), slots, reach, most) == most


@pytest.mark.parametrize("caches", [True, False])
def test_blocks_that_several_steps_fill_are_found_where_there_is_a_cache(*, caches: bool) -> None:
    memory, rows = _decoding(20, enable_prefix_caching=caches)
    slots = np.array([row.slot for row in rows])
    tokens = np.arange(300, 300 + 4 * len(rows)).reshape(len(rows), 4)
    memory.kv.grow_steps(slots, np.array(LENGTHS), 4, memory.table.append_steps(slots, tokens))
    said = [*prompt_of("r5", 5), *tokens[0].tolist()]
    assert list(rows[0].all_token_ids) == said
    assert memory.kv.get_computed_blocks(make_request("again", [*said, 7])).num_tokens == (8 if caches else 0)
    assert sum(each is not None for each in memory.kv.pool.hash_of) == (8 if caches else 0)
    memory.kv.check_invariants()
