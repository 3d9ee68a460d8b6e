"""A page that holds its trace: what is in it, and what is not."""

from __future__ import annotations

import base64
import gzip
import json
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from tokenyard.errors import TraceError
from tokenyard.trace.export.page import embed, without_prompts
from tokenyard.trace.files import TraceFiles, find_trace

PAGE = "<!doctype html><html><head></head><body><div id='app'></div></body></html>\n"


def embedded(page: bytes) -> dict[str, Any]:
    """What the page's own script would find."""
    start = page.index(b'<script type="application/json" id="tokenyard-trace">')
    body = page[page.index(b">", start) + 1 : page.index(b"</script>", start)]
    return dict(json.loads(body))


def lines_in(packed: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(base64.b64decode(packed, validate=True)).splitlines()]


def test_the_page_holds_the_trace_without_prompts(trace: Path) -> None:
    files, out = find_trace(trace), BytesIO()
    assert embed(PAGE, files, out) == 0
    page = out.getvalue()
    assert page.count(b"</body>") == 1
    assert page.count(b"<script") == 1, "nothing of the trace ends the tag"
    held = embedded(page)
    assert (held["version"], held["name"]) == (1, "sched_trace.fcfs")
    assert files.steps is not None
    assert files.requests is not None
    assert lines_in(held["steps"]) == [json.loads(line) for line in files.steps.read_bytes().splitlines()]
    requests = lines_in(held["requests"])
    whole = [json.loads(line) for line in files.requests.read_bytes().splitlines()]
    private = {"prompt_prefix", "prompt_suffix", "output_tail", "prompt_prefix_text", "output_tail_text"}
    assert [{k: v for k, v in line.items() if k not in private} for line in whole] == requests
    assert any("prompt_prefix" in line for line in whole)


def test_with_prompts_nothing_is_left_out(trace: Path) -> None:
    files, out = find_trace(trace), BytesIO()
    embed(PAGE, files, out, with_prompts=True)
    assert files.requests is not None
    packed = embedded(out.getvalue())["requests"]
    assert gzip.decompress(base64.b64decode(packed)) == files.requests.read_bytes()


def test_a_name_cannot_end_the_tag(tmp_path: Path) -> None:
    file = tmp_path / "<!--<script>.steps.jsonl"
    file.write_bytes(b'{"event":"step_snapshot","step":0}\n')
    out = BytesIO()
    embed(PAGE, TraceFiles(file, None), out)
    assert b"<!--<script" not in out.getvalue().split(b"id=", 1)[1]
    assert embedded(out.getvalue())["name"] == "<!--<script>"


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ({"num_prompt_tokens": 3, "prompt_text": "secret"}, {"num_prompt_tokens": 3}),
        ({"x": {"messages": [{"content": "secret"}], "step": 1}}, {"x": {"step": 1}}),
        ({"a": [{"output_text": "secret"}]}, {"a": [{}]}),
        ({"Prompt": "secret", "req_id": "text"}, {"req_id": "text"}),
    ],
)
def test_what_was_said_is_removed_wherever_it_stands(line: dict[str, Any], kept: dict[str, Any]) -> None:
    cleaned = without_prompts(json.dumps(line).encode())
    assert cleaned is not None
    assert json.loads(cleaned) == kept


def test_lines_that_cannot_be_read_may_hold_anything_and_go(tmp_path: Path) -> None:
    file = tmp_path / "a.requests.jsonl"
    file.write_bytes(b'{"step":0,"req_id":"a"}\n{"prompt_text":"secr\n')
    out = BytesIO()
    assert embed(PAGE, TraceFiles(None, file), out) == 1
    assert lines_in(embedded(out.getvalue())["requests"]) == [{"step": 0, "req_id": "a"}]


def test_a_page_that_is_none(trace: Path) -> None:
    with pytest.raises(TraceError, match="no </body>"):
        embed("<html>", find_trace(trace), BytesIO())
