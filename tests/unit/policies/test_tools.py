"""The tool a turn calls: what the client says, else what the text says, else nothing, with one warning if need be."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest
from tests.support.toy_engine import ToyEngine

from tokenyard.core.params import SOME_TOOL
from tokenyard.core.request import Request
from tokenyard.errors import ConfigError
from tokenyard.policies.continuum.policy import continuum_fixed
from tokenyard.policies.continuum.tools import ToolReader
from tokenyard.tokenizer import Decode


def _finished(output: list[int], **fields: str) -> Request:
    request = Request("r", [1, 2, 3], **fields)  # type: ignore[arg-type]
    for token in output:
        request.append_token(token)
    return request


def _characters(name: str) -> Decode:
    assert name == "letters"
    return lambda ids: "".join(map(chr, ids))


def test_the_client_s_word_counts() -> None:
    assert ToolReader().tool_of(_finished([], this_func_call="search")) == "search"


def test_without_a_tokenizer_all_that_is_not_named_is_one_tool() -> None:
    reader = ToolReader()
    assert [reader.tool_of(_finished([each])) for each in (5, 6)] == [SOME_TOOL, SOME_TOOL]
    assert reader.tool_of(_finished([5], this_func_call="")) is None


def test_a_parser_without_a_tokenizer_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"parser = .*give a tokenizer"):
        ToolReader(parser="bash")


def test_the_output_is_read_not_the_prompt() -> None:
    reader = ToolReader("letters", load=_characters)
    assert reader.tool_of(_finished([ord(c) for c in "```bash\nls\n```"])) == "ls"


def test_a_tokenizer_that_cannot_be_loaded_costs_one_warning_and_all_pins(caplog: pytest.LogCaptureFixture) -> None:
    def load(name: str) -> Decode:
        raise OSError(f"no file {name}")

    with caplog.at_level(logging.WARNING, "tokenyard.continuum"):
        toy = ToyEngine(policy_object=continuum_fixed(ToolReader("nowhere.json", load=load)))
        for i in range(3):
            toy.add(f"t{i}", 8, max_tokens=2, job_id=f"j{i}", this_func_call="ls")
        toy.drain()
    assert len(toy.scheduler.pins) == 0
    assert [record.message for record in caplog.records] == [
        "continuum: tokenizer nowhere.json cannot be used, nothing is pinned: no file nowhere.json"
    ]


def test_a_tokenizer_that_fails_later_is_not_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    asked = 0

    def decode(ids: Sequence[int]) -> str:
        nonlocal asked
        asked += 1
        raise ValueError("no such token")

    reader = ToolReader("x", load=lambda name: decode)
    with caplog.at_level(logging.WARNING, "tokenyard.continuum"):
        assert [reader.tool_of(_finished([9])) for _ in range(3)] == [None, None, None]
    assert (asked, len(caplog.records), reader.broken) == (1, 1, True)
