"""Why prompt tokens were not in the prefix cache: every token of a prompt has one cause."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.integration.command import call

import tokenyard as ty
from tokenyard.errors import TraceError
from tokenyard.explain.why.prefix import CAUSES, PrefixLook, prefix_misses
from tokenyard.workload.record import Workload, WorkloadRequest
from tokenyard.workload.tokens import StreamTokens

DEPLOYMENT = ty.Deployment(
    model="Qwen/Qwen3-8B", gpu="l40s", max_model_len=4096, enable_prefix_caching=True, long_prefill_token_threshold=512
)


def looks(path: Path, *requests: tuple[float, int, int], blocks: int = 400, **more: str) -> dict[str, PrefixLook]:
    """The looks of ``(moment, seed of its text, tokens)``, by number."""
    made = [
        WorkloadRequest(
            request_id=f"r{number}",
            prompt=StreamTokens.unique(seed, length),
            max_tokens=2,
            arrival_time=moment,
            cache_salt=more.get(f"r{number}"),
        )
        for number, (moment, seed, length) in enumerate(requests)
    ]
    ty.run(
        Workload("w", made),
        DEPLOYMENT.with_(num_gpu_blocks_override=blocks, max_model_len=(blocks - 10) * 16),
        trace=path,
        rows=False,
    )
    found = {each.request_id: each for each in prefix_misses(path).requests}
    for each in found.values():
        assert each.prompt == each.found + sum(getattr(each, cause) for cause in CAUSES)
    return found


def test_a_first_prompt_is_new_and_its_last_part_fills_no_block(tmp_path: Path) -> None:
    first = looks(tmp_path / "t", (0, 1, 100))["r0"]
    assert (first.found, first.new, first.cut, first.like) == (0, 96, 4, None)


def test_the_last_token_of_an_equal_prompt_is_computed_again(tmp_path: Path) -> None:
    again = looks(tmp_path / "t", (0, 1, 96), (5, 1, 96))["r1"]
    assert (again.found, again.cut, again.like, again.shared) == (80, 16, "r0", 96)


def test_a_longer_prompt_is_new_from_where_it_differs(tmp_path: Path) -> None:
    longer = looks(tmp_path / "t", (0, 1, 96), (5, 1, 192))["r1"]
    assert (longer.found, longer.new) == (96, 96)


def test_a_prompt_that_another_request_still_computes(tmp_path: Path) -> None:
    both = looks(tmp_path / "t", (0, 1, 3000), (0, 1, 3000), blocks=800)
    assert both["r1"].found == 512, "a step computes so many of a long prompt, and admits the second one"
    assert both["r1"].not_computed == 2992 - 512


def test_blocks_that_others_took_are_gone(tmp_path: Path) -> None:
    gone = looks(tmp_path / "t", (0, 1, 320), (5, 2, 1500), (10, 3, 1500), (15, 1, 352), blocks=110)["r3"]
    assert (gone.gone, gone.new, gone.like) == (320, 32, "r0")


def test_another_salt_is_new_text(tmp_path: Path) -> None:
    salted = looks(tmp_path / "t", (0, 1, 96), (5, 1, 96), r1="other")["r1"]
    assert (salted.found, salted.new) == (0, 96)


def test_the_command_says_the_most_common_cause_first(tmp_path: Path) -> None:
    looks(tmp_path / "t", (0, 1, 96), (5, 2, 960))
    said = call("why", str(tmp_path / "t"), "--prefix", cwd=tmp_path).stdout
    assert " ".join(said.split()).startswith(
        "0.0 % of the prompt tokens were found in the prefix cache; of 100.0 %, no"
    )
    one = json.loads(call("why", str(tmp_path / "t"), "r1", "--prefix", "--json", cwd=tmp_path).stdout)
    assert [each["request_id"] for each in one["requests"]] == ["r1"]
    with pytest.raises(TraceError, match="no request 'r7'"):
        prefix_misses(tmp_path / "t", "r7")
