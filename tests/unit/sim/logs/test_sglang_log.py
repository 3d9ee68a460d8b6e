"""SGLang's log of requests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenyard.workload.load import read_workload
from tokenyard.workload.record import Workload


def _read(tmp_path: Path, *lines: str) -> Workload:
    path = tmp_path / "server.log"
    path.write_text("".join(f"{line}\n" for line in lines))
    return read_workload(path)


def _facts(workload: Workload) -> list[tuple[float, int, int]]:
    return [(each.arrival_time, each.num_prompt_tokens, each.max_tokens) for each in workload]


def _received(second: int, rid: str) -> str:
    return f"[2026-11-20 14:00:{second:02d}] Receive: obj=GenerateReqInput(rid='{rid}', text='Hello')"


def _finished(second: int, rid: str, prompt: int, output: int, *, text: str = "Yes.", latency: float = 2.0) -> str:
    meta = f"'id': '{rid}', 'prompt_tokens': {prompt}, 'completion_tokens': {output}, 'e2e_latency': {latency}"
    obj = f"obj=GenerateReqInput(rid='{rid}', text={text!r})"
    return f"[2026-11-20 14:00:{second:02d} TP0] Finish: {obj}, out={{'text': {text!r}, 'meta_info': {{{meta}}}}}"


def test_a_request_arrives_when_it_is_received(tmp_path: Path) -> None:
    lines = [_received(1, "a"), _received(4, "b"), _finished(6, "b", 12, 5), _finished(9, "a", 30, 7)]
    workload = _read(tmp_path, "INFO: some line", *lines, 'INFO:  10.0.0.1:4 - "POST /generate HTTP/1.1" 200 OK')
    assert workload.kind == "sglang"
    assert _facts(workload) == [(0.0, 30, 7), (3.0, 12, 5)]


def test_of_one_that_is_only_finished_the_latency_is_subtracted(tmp_path: Path) -> None:
    workload = _read(tmp_path, _finished(6, "b", 12, 5, latency=1.5), _finished(9, "a", 30, 7, latency=4.0))
    assert _facts(workload) == [(0.0, 12, 5), (0.5, 30, 7)]


def test_what_a_client_wrote_is_not_taken_for_counts(tmp_path: Path) -> None:
    text = "'meta_info': {'id': 'x', 'prompt_tokens': 9999, 'completion_tokens': 9999}"
    assert _facts(_read(tmp_path, _received(1, "a"), _finished(2, "a", 30, 7, text=text))) == [(0.0, 30, 7)]


def test_as_json(tmp_path: Path) -> None:
    def line(event: str, second: float, rid: str, **more: Any) -> str:
        when = f"2026-11-20T14:00:{second:06.3f}"
        return json.dumps({"timestamp": when, "event": f"request.{event}", "rid": rid, "obj": {"text": "Hi"}, **more})

    meta = {"id": "a", "prompt_tokens": 30, "completion_tokens": 7, "cached_tokens": 16, "e2e_latency": 2.0}
    out = {"out": {"text": "Yes.", "meta_info": meta}}
    lines = [line("received", 1.25, "a"), line("received", 2.0, "gone"), line("finished", 3.25, "a", **out)]
    workload = _read(tmp_path, *lines, line("finished", 9.25, "b", **out))
    assert workload.kind == "sglang"
    assert _facts(workload) == [(0.0, 30, 7), (6.0, 30, 7)]
