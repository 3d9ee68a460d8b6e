"""A page that holds its trace: what is in it, and what is not."""

from __future__ import annotations

import base64
import gzip
import json
import random
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from tokenyard.errors import TraceError
from tokenyard.trace.export import page as page_module
from tokenyard.trace.export.page import embed, fitting, without_prompts
from tokenyard.trace.reader import TraceFiles, find_trace

PAGE = "<!doctype html><html><head></head><body><div id='app'></div></body></html>\n"


class Tag(HTMLParser):
    """The tag that the page's own script would find."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.attributes: dict[str, str | None] = {}
        self.text = ""
        self.scripts = 0
        self.feed(page.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        if ("id", "tokenyard-trace") in attrs:
            self.attributes = dict(attrs)

    def handle_data(self, data: str) -> None:
        self.text += data if self.attributes and not self.text else ""

    def parts(self) -> list[bytes]:
        """The unpacked files."""
        return gzip.decompress(base64.b64decode(self.text, validate=True)).split(b"\x1e\n")


def records(text: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_the_page_holds_the_trace_without_prompts(trace: Path) -> None:
    files, out = find_trace(trace), BytesIO()
    assert embed(PAGE, files, out) == 0
    tag = Tag(out.getvalue())
    assert tag.scripts == 1, "nothing of the trace ends the tag"
    assert out.getvalue().count(b"</body>") == 1
    assert tag.attributes["type"] == "application/octet-stream"
    assert tag.attributes["data-name"] == "sched_trace.fcfs"
    assert tag.attributes["data-steps-name"] == "sched_trace.fcfs.steps.jsonl"
    assert tag.attributes["data-requests-name"] == "sched_trace.fcfs.requests.jsonl"
    assert tag.attributes["data-prompts"] == "removed"
    steps, requests = tag.parts()
    assert files.steps is not None
    assert files.requests is not None
    assert records(steps) == records(files.steps.read_bytes())
    whole = records(files.requests.read_bytes())
    private = {"prompt_prefix", "prompt_suffix", "output_tail", "prompt_prefix_text", "output_tail_text"}
    assert [{k: v for k, v in line.items() if k not in private} for line in whole] == records(requests)
    assert any("prompt_prefix" in line for line in whole)


def test_with_prompts_nothing_is_left_out(trace: Path) -> None:
    files, out = find_trace(trace), BytesIO()
    embed(PAGE, files, out, with_prompts=True)
    assert files.requests is not None
    tag = Tag(out.getvalue())
    assert tag.parts()[1] == files.requests.read_bytes()
    assert tag.attributes["data-prompts"] == "kept"


def test_a_name_cannot_end_the_tag(tmp_path: Path) -> None:
    file = tmp_path / '"><script>.steps.jsonl.gz'
    file.write_bytes(gzip.compress(b'{"event":"step_snapshot","step":0}\n'))
    out = BytesIO()
    embed(PAGE, TraceFiles(file, None), out)
    tag = Tag(out.getvalue())
    assert tag.scripts == 1
    assert tag.attributes["data-name"] == '"><script>'
    assert tag.attributes["data-steps-name"] == '"><script>.steps.jsonl'
    assert "data-requests-name" not in tag.attributes


@pytest.mark.slow
def test_a_large_trace_is_joined_from_pieces(tmp_path: Path) -> None:
    rng = random.Random(0)
    lines = [
        json.dumps({"event": "step_snapshot", "step": n, "ts": rng.random()}).encode() + b"\n" for n in range(30_000)
    ]
    file = tmp_path / "a.steps.jsonl"
    file.write_bytes(b"".join(lines))
    out = BytesIO()
    embed(PAGE, TraceFiles(file, None), out)
    (text,) = Tag(out.getvalue()).parts()
    assert records(text) == records(file.read_bytes())


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ({"num_prompt_tokens": 3, "prompt_text": "secret"}, {"num_prompt_tokens": 3}),
        ({"x": {"messages": [{"content": "secret"}], "step": 1}, "ts": 1.5}, {"ts": 1.5}),
        ({"step": 1, "the secret": 1, "secret": None, "y": 1.5}, {"step": 1}),
        ({"a": [{"output_text": "secret"}], "b": "secret", "ids": [1, 2]}, {}),
        (
            {"event": "trace_start", "config": {"a": {"prompt": "secret", "max_prompt": 3, "model": "x"}}},
            {"event": "trace_start", "config": {"a": {"max_prompt": 3, "model": "x"}}},
        ),
        (
            {
                "event": "trace_start",
                "config": {"system": "secret", "b": {"stop": ["secret"], "the secret": 1, "n": [2]}},
            },
            {"event": "trace_start", "config": {"b": {"stop": [], "n": [2]}}},
        ),
        (
            {
                "event": "trace_start",
                "config": {"a": {"model": {"notes": "secret"}, "messages": {"n": 1}}, "\u0074ext": "secret"},
            },
            {"event": "trace_start", "config": {"a": {"model": {}}}},
        ),
        (
            {
                "event": "trace_start",
                "config": {"deployment": {"vllm_version": "0.22", "note": "secret", "kv_groups": ["32 layers full"]}},
            },
            {
                "event": "trace_start",
                "config": {"deployment": {"vllm_version": "0.22", "kv_groups": ["32 layers full"]}},
            },
        ),
        ({"event": "trace_start", "config": {"deployment": "secret"}}, {"event": "trace_start", "config": {}}),
        (
            {"event": "admission_outcome", "step": 1, "skipped": [{"reason": "r", "note": "secret"}], "kv": "secret"},
            {"event": "admission_outcome", "step": 1, "skipped": [{"reason": "r"}]},
        ),
        ({"Prompt": "secret", "req_id": "text"}, {"req_id": "text"}),
    ],
)
def test_what_was_said_is_removed_wherever_it_stands(line: dict[str, Any], kept: dict[str, Any]) -> None:
    cleaned = without_prompts(json.dumps(line).encode())
    assert cleaned is not None
    assert json.loads(cleaned) == kept


@pytest.mark.parametrize(
    "line",
    [
        b"the user said: secret",
        b'"secret"',
        b'["secret"]',
        b'{"step":1,"req_id":"a",',
        b'{"event":"said","x":"secret"}',
        b'{"event":["secret"]}',
        b'{"config":' + b'{"a":' * 5000 + b'"secret"' + b"}" * 5001,
        b'{"req_id":"\xff secret"}',
    ],
)
def test_what_is_no_record_goes_as_a_whole(line: bytes) -> None:
    assert without_prompts(line) is None


@pytest.mark.parametrize(
    "line",
    [
        rb'{"step":1,"pro\u006dpt_prefix_text":"secret"}',
        rb'{"step":1,"\u0070rompt_prefix":[5,6]}',
        b'{"prompt_prefix_text":"secret","step":1,"prompt_prefix_text":1}',
        rb'{"event":"step_decision","step":1,"config":{"\u0074ext":"secret"}}',
    ],
)
def test_no_way_of_writing_a_name_hides_what_was_said(line: bytes) -> None:
    cleaned = without_prompts(line)
    assert cleaned is not None
    assert b"secret" not in cleaned
    assert b"[5,6]" not in cleaned
    assert json.loads(cleaned)["step"] == 1


def test_lines_that_cannot_be_read_may_hold_anything_and_go(tmp_path: Path) -> None:
    file = tmp_path / "a.requests.jsonl"
    file.write_bytes(b'{"step":0,"req_id":"a"}\n{"prompt_text":"secr\n')
    out = BytesIO()
    assert embed(PAGE, TraceFiles(None, file), out) == 1
    assert records(Tag(out.getvalue()).parts()[0]) == [{"step": 0, "req_id": "a"}]


def test_a_page_that_is_none(trace: Path) -> None:
    with pytest.raises(TraceError, match="no </body>"):
        embed("<html>", find_trace(trace), BytesIO())


def test_what_no_browser_reads_is_left_out_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps, requests = tmp_path / "a.steps.jsonl", tmp_path / "a.requests.jsonl"
    steps.write_text("{}\n" * 10)
    requests.write_text("{}\n" * 20)
    both = TraceFiles(steps, requests)
    monkeypatch.setattr(page_module, "MOST_BYTES", 90)
    assert fitting(both) == (both, None)
    monkeypatch.setattr(page_module, "MOST_BYTES", 89)
    files, left_out = fitting(both)
    assert files == TraceFiles(steps, None)
    assert left_out is not None
    assert "request records are left out" in left_out
    monkeypatch.setattr(page_module, "MOST_BYTES", 29)
    with pytest.raises(TraceError, match="tokenyard view"):
        fitting(both)
