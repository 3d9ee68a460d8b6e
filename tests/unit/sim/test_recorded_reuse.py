"""Real traces: the prefix reuse of the token ids is the one that the hash ids record."""

from __future__ import annotations

from pathlib import Path

import pytest
import xxhash

from tokenyard.workload.load import read_workload
from tokenyard.workload.tokens import HashedTokens


def hits(chains: list[list[bytes]]) -> list[int]:
    """Leading blocks of each prompt that an endless cache would hold; blocks are given as bytes."""
    cache: set[int] = set()
    result = []
    for blocks in chains:
        state, found, missed = 0, 0, False
        for block in blocks:
            state = xxhash.xxh3_64_intdigest(block, state)
            missed = missed or state not in cache
            found += not missed
            cache.add(state)
        result.append(found)
    return result


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "block_size", "limit", "shared_blocks"),
    [
        ("mooncake_arxiv_head1000.jsonl.gz", 512, None, 7468),
        ("lmcache_agent_hash64.jsonl.gz", 64, None, 54278),
        ("weka_claude_code_sessions.jsonl.gz", 64, 2, 93028),
    ],
)
def test_tokens_are_shared_as_recorded(
    shared: Path, file: str, block_size: int, limit: int | None, shared_blocks: int
) -> None:
    by_id, by_token = [], []
    for each in read_workload(shared / "data/traces" / file, limit=limit):
        assert isinstance(each.prompt, HashedTokens)
        full = len(each.prompt) // block_size
        ids = each.prompt.hash_ids()[:full]
        tokens = each.prompt.tokens()[: len(ids) * block_size].reshape(-1, block_size)
        session = (each.job_id or "").split("_a")[0].encode() if "weka" in file else b""
        by_id.append([session + int(i).to_bytes(8) for i in ids])
        by_token.append([row.tobytes() for row in tokens])
    recorded = hits(by_id)
    assert sum(recorded) == shared_blocks
    assert hits(by_token) == recorded


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "requests", "prompt_tokens"),
    [
        ("mooncake_conversation.jsonl.gz", 12_031, 144_793_823),
        ("azure2023_code.csv.gz", 8_819, 18_059_974),
        ("azure2023_conv.csv.gz", 19_366, 22_361_870),
        ("servegen_mm-image_draw30min_seed0.csv.gz", 20_002, 22_066_369),
    ],
)
def test_nothing_of_a_trace_is_lost(shared: Path, file: str, requests: int, prompt_tokens: int) -> None:
    workload = read_workload(shared / "data/traces" / file)
    assert (len(workload), workload.num_prompt_tokens) == (requests, prompt_tokens)
