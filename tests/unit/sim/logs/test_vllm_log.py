"""vLLM's own log: of which version, how much of it, and what clients can write into it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tokenyard.errors import WorkloadError
from tokenyard.workload.load import read_workload
from tokenyard.workload.logs.logged import LogOptions
from tokenyard.workload.record import Workload

_PARAMS = "SamplingParams(n=1, stop=[], max_tokens={}, min_tokens=0)"


def _received(name: str, prompt: int, most: int = 4096, second: int = 0, text: str = "hi", lora: str = "None") -> str:
    head = f"(APIServer pid=9) {{}} 11-22 03:17:{second:02} [entrypoints/x.py:55] "
    return (
        head.format("DEBUG") + f"Request {name} details: prompt: {text!r}, prompt_token_ids: "
        f"{list(range(prompt))}, prompt_embeds shape: None.\n"
        + head.format("INFO")
        + f"Received request {name}: params: {_PARAMS.format(most)}, lora_request: {lora}.\n"
    )


def _generated(name: str, output: int, stream: str = "", reason: str = "stop", text: str = "yes") -> str:
    """As 0.33 writes it."""
    return (
        f"DEBUG 11-22 03:17:58 [x.py:113] Generated response {name}{stream} details: output_token_ids: "
        f"{list(range(output))}\n"
        f"INFO 11-22 03:17:58 [x.py:120] Generated response {name}{stream}: output: {text!r}, finish_reason: {reason}\n"
    )


def _read(tmp_path: Path, text: str) -> Workload:
    path = tmp_path / "vllm.log"
    path.write_text(text)
    return read_workload(path)


def _lengths(workload: Workload) -> list[tuple[int, int]]:
    return [(each.num_prompt_tokens, each.max_tokens) for each in workload]


def _warnings(workload: Workload) -> list[str]:
    return [each.code for each in workload.remarks if each.warning]


def test_outputs_of_0_33_are_read(tmp_path: Path) -> None:
    text = _received("chatcmpl-a", 7) + _generated("chatcmpl-a", 193) + _received("cmpl-b-0", 9)
    workload = _read(tmp_path, text + _generated("cmpl-b", 5))
    assert _lengths(workload) == [(7, 193), (9, 5)], "answers of completions are not numbered as their prompts are"
    assert _warnings(workload) == []


@pytest.mark.parametrize("text", ["output: 'a', finish_reason: ", "it's", 'say "hi"', "output: '" * 20_000])
def test_texts_are_as_long_as_they_are_whatever_they_say(tmp_path: Path, text: str) -> None:
    line = f"INFO 11-22 03:17:58 [x.py:120] Generated response a: output: {text!r}{{}}, finish_reason: stop\n"
    for each in (line.format(""), line.format(", output_token_ids: None")):
        assert _lengths(_read(tmp_path, _received("a", 7, most=10**6) + each)) == [
            (7, max(1, (len(repr(text)) - 2) // 4))
        ]


def test_streamed_answers_are_counted_once(tmp_path: Path) -> None:
    text = _received("a", 7) + "".join(_generated("a", 3, " (streaming delta)", "None") for _ in range(4))
    end = "INFO 11-22 03:17:59 [x.py:9] Generated response {} (streaming complete): output: {}, finish_reason: x\n"
    text += end.format("a", "'<streaming_complete: 12 tokens>'")
    text += _received("b", 9) + end.format("b", "'<streaming_complete: 64 tokens>'")
    text += _received("c", 11) + end.format("c", repr("d" * 400))
    workload = _read(tmp_path, text)
    assert _lengths(workload) == [(7, 12), (9, 64), (11, 100)]
    assert _warnings(workload) == ["outputs_estimated"]


@pytest.mark.parametrize(
    "text", ["[" * 101, "[" * 100_000, "{" * 200 + '"', "prompt_token_ids: [1, 2]", "max_tokens=7"]
)
def test_no_prompt_makes_a_log_unreadable_or_changes_it(tmp_path: Path, text: str) -> None:
    log = _received("a", 5) + _received("b", 6, text=text) + _received("c", 7)
    log += "".join(_generated(name, 4, text=text) for name in "abc")
    assert _lengths(_read(tmp_path, log)) == [(5, 4), (6, 4), (7, 4)]


def test_cut_prompts_are_pointed_out(tmp_path: Path) -> None:
    log = "".join(
        _received(f"r{i}", min(100, 40 + 30 * i), second=i * i // 3) + _generated(f"r{i}", 9 + i) for i in range(12)
    )
    workload = _read(tmp_path, log)
    assert _warnings(workload) == ["prompts_cut"]
    assert "10 of 12 prompts are 100 tokens long, and none is longer: looks like --max-log-len 100" in workload.notes[2]
    said = _read(tmp_path, "INFO 11-22 03:17:01 [u.py:1] non-default args: {'max_log_len': 100}\n" + log)
    assert any("vLLM was started with --max-log-len 100" in note for note in said.notes)


def test_cut_prompts_are_what_max_tokens_leaves_of_the_model_where_nobody_asks_for_less(tmp_path: Path) -> None:
    true = [40, 70, 90, 150, 400, 1000, 31_000]
    room = 32_768
    lines = [_received(f"r{i}", min(100, each), room - each) + _generated(f"r{i}", 9) for i, each in enumerate(true)]
    workload = _read(tmp_path, "".join(lines))
    assert [each.num_prompt_tokens for each in workload] == true
    assert "prompts_cut" not in _warnings(workload)
    asked = [_received(f"s{i}", 100, 256) + _generated(f"s{i}", 9) for i in range(4)]
    workload = _read(tmp_path, "".join(lines[:2] + lines[3:] + asked))
    assert "prompts_cut" in _warnings(workload), "two that are whole are no proof"


def test_answers_that_are_cut_and_ended_by_length_are_as_long_as_was_asked(tmp_path: Path) -> None:
    log = "".join(_received(f"r{i}", 100, 300 + i) + _generated(f"r{i}", 100, reason="length") for i in range(9))
    assert [each.max_tokens for each in _read(tmp_path, log)] == [300 + i for i in range(9)]
    log = "".join(_received(f"r{i}", 100, 300 + i) + _generated(f"r{i}", 100) for i in range(9))
    assert "outputs_cut" in _warnings(_read(tmp_path, log))


def test_without_outputs_the_limit_is_taken_and_said(tmp_path: Path) -> None:
    workload = _read(tmp_path, _received("a", 5) + _received("b", 6))
    assert _lengths(workload) == [(5, 4096), (6, 4096)]
    assert _warnings(workload) == ["outputs_assumed"]


def test_adapters_and_colours_and_a_new_year(tmp_path: Path) -> None:
    adapter = "LoRARequest(lora_name='sql', lora_int_id=1, lora_path='/x')"
    log = _received("a", 5, lora=adapter).replace("11-22", "12-31") + _received("b", 6).replace("11-22", "01-01")
    log = log.replace("INFO", "\x1b[32mINFO\x1b[0m") + _generated("a", 2) + _generated("b", 2)
    workload = _read(tmp_path, log)
    assert [each.request_id for each in workload] == ["a", "b"]
    assert [each.lora_name for each in workload] == ["sql", None]
    assert workload.requests[1].arrival_time == 86_400


def test_containers_know_the_time_better(tmp_path: Path) -> None:
    lines = (_received("a", 5) + _generated("a", 2) + _received("b", 6) + _generated("b", 3)).splitlines()
    docker = [{"log": line + "\n", "time": f"2026-11-22T03:17:0{i}.25{i}Z"} for i, line in enumerate(lines)]
    workload = _read(tmp_path, "".join(json.dumps(each) + "\n" for each in docker))
    assert _lengths(workload) == [(5, 2), (6, 3)]
    assert workload.requests[1].arrival_time == pytest.approx(4.004)
    assert "whole_seconds" not in {each.code for each in workload.remarks}


def test_a_log_without_requests_says_what_to_log(tmp_path: Path) -> None:
    line = "INFO 11-22 03:17:01 [loggers.py:248] Engine 000: Avg prompt throughput: 0.0 tokens/s\n"
    with pytest.raises(WorkloadError, match="--enable-log-requests --enable-log-outputs and VLLM_LOGGING_LEVEL=DEBUG"):
        _read(tmp_path, line * 3)
    path = tmp_path / "vllm.log"
    path.write_text("INFO 11-22 03:17:01 [x.py:1] Received request a: params: SamplingParams(max_tokens=5), x\n")
    with pytest.raises(WorkloadError, match="--max-bad-lines allows 0"):
        read_workload(path, log=LogOptions(max_bad_lines=0))
