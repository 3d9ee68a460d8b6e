"""Which tool an answer calls, as logs say it: by name, by the calls, by why the answer ended, or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tokenyard.core.params import SOME_TOOL
from tokenyard.errors import ConfigError
from tokenyard.workload.load import read_workload
from tokenyard.workload.logs.logged import LogOptions
from tokenyard.workload.record import Workload

_CALL = {"type": "function", "function": {"name": "grep", "arguments": "{}"}}
_ENDED = {"finish_reason": "stop"}


def workload_of(path: Path, *rows: dict[str, Any], **options: Any) -> Workload:
    """Turns of one session, a second apart, with what else each says."""
    lines = [
        {"timestamp": at, "session_id": "s", "prompt_tokens": 100 * (at + 1), "completion_tokens": 10, **row}
        for at, row in enumerate(rows)
    ]
    path = path / "log.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return read_workload(path, log=LogOptions(**options))


@pytest.mark.parametrize(
    ("row", "tool"),
    [
        ({"tool": "bash"}, "bash"),
        ({"this_func_call": "bash"}, "bash"),
        ({"tool_calls": ["bash", "grep"]}, "bash+grep"),
        ({"tool_calls": [_CALL]}, "grep"),
        ({"tool_calls": json.dumps([_CALL])}, "grep"),
        ({"tool_calls": [{"id": "1"}]}, SOME_TOOL),
        ({"finish_reason": "tool_calls"}, SOME_TOOL),
        ({"stop_reason": "tool_use"}, SOME_TOOL),
        ({"gen_ai.response.finish_reasons": ["tool_calls"]}, SOME_TOOL),
        ({"choices": [{"finish_reason": "tool_calls", "message": {"tool_calls": [_CALL]}}]}, "grep"),
        ({"response": {"choices": [{"finish_reason": "tool_calls"}]}}, SOME_TOOL),
        ({"response": json.dumps({"choices": [{"message": {"tool_calls": [_CALL]}}]})}, "grep"),
        ({"content": [{"type": "text", "text": "."}, {"type": "tool_use", "name": "sed", "input": {}}]}, "sed"),
        ({"output": {"role": "assistant", "content": None, "tool_calls": [_CALL]}}, "grep"),
        ({"output": [{"type": "function_call", "name": "sed", "arguments": "{}"}]}, "sed"),
        ({"vllm_xargs": {"this_func_call": "ls"}}, "ls"),
    ],
)
def test_a_tool_is_read_however_a_log_says_it(tmp_path: Path, row: dict[str, Any], tool: str) -> None:
    first, last = workload_of(tmp_path, row, _ENDED)
    assert (first.this_func_call, last.this_func_call) == (tool, "")


def test_a_column_of_any_name_can_be_the_tool_s(tmp_path: Path) -> None:
    first, _ = workload_of(tmp_path, {"action": "make"}, {}, columns={"tool": "action"})
    assert first.this_func_call == "make"


def test_a_turn_that_ends_without_a_call_calls_none_where_others_call_some(tmp_path: Path) -> None:
    workload = workload_of(tmp_path, _ENDED, {"tool_calls": ["bash"]}, _ENDED)
    assert [each.this_func_call for each in workload] == ["", "bash", ""]


@pytest.mark.parametrize("row", [{}, _ENDED])
def test_where_no_answer_calls_a_tool_nothing_is_known(tmp_path: Path, row: dict[str, Any]) -> None:
    """Agents that write commands into their text end every answer in the same way."""
    assert [each.this_func_call for each in workload_of(tmp_path, row, row, row)] == [None, None, None]


def test_the_remark_says_where_it_was_found(tmp_path: Path) -> None:
    workload = workload_of(tmp_path, {"tool_calls": ["bash"]}, _ENDED)
    assert any("tool from tool_calls" in note for note in workload.notes)


def test_a_column_that_is_not_known_is_refused() -> None:
    with pytest.raises(ConfigError, match="tool"):
        LogOptions(columns={"tools": "x"})
