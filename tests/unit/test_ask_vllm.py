"""A question in a process of its own: its answer, its error, its end and its silence."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

if not hasattr(os, "fork"):
    pytest.skip("no fork", allow_module_level=True)

from ask_vllm import answers_in, ask_vllm, config_of, registry_entries, write_rows

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")


def _echo(**said: Any) -> dict[str, Any]:
    return {**said, "pid": os.getpid()}


def _fails(why: str) -> None:
    raise ValueError(why)


def _dies() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a command may have run in the process of the tests
    os.kill(os.getpid(), signal.SIGTERM)


def _is_silent() -> None:
    time.sleep(600)


def _asks_again(depth: int) -> Any:
    return depth if depth == 0 else ask_vllm(_asks_again, depth=depth - 1)


def test_an_answer_is_that_of_another_process() -> None:
    answer = ask_vllm(_echo, config={"layers": [1, 2]}, long="x" * 300_000)
    assert answer["pid"] != os.getpid()
    assert answer["config"] == {"layers": [1, 2]}
    assert len(answer["long"]) == 300_000
    assert ask_vllm(_asks_again, depth=2) == 0


def test_what_keeps_from_an_answer_is_told() -> None:
    assert ask_vllm(_fails, why="no\nsuch  model") == {"error": "ValueError: no such model"}
    assert ask_vllm(_dies) == {"error": f"the process ended with {-signal.SIGTERM}"}
    assert ask_vllm(_is_silent, 0.2) == {"error": "no answer within 0.2 s"}


def test_a_question_that_is_no_json_is_not_asked() -> None:
    with pytest.raises(TypeError, match="not JSON serializable"):
        ask_vllm(_echo, config=object())


def test_what_was_recorded_is_read(tmp_path: Path) -> None:
    entries = registry_entries("text")
    assert {each["kind"] for each in entries.values()} == {"text"}
    config = config_of(entries["LlamaForCausalLM"])
    assert config is not None
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config_of(entries["LlamaForCausalLM"], "huge") is None
    assert answers_in(tmp_path / "none.json.gz") == {}
    write_rows(tmp_path / "rows.json", {"a": [1], "b": {}})
    assert json.loads((tmp_path / "rows.json").read_text()) == {"a": [1], "b": {}}
    assert len((tmp_path / "rows.json").read_text().splitlines()) == 4
