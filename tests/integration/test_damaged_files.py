"""Every command with every kind of damaged or hostile file: one clear error, no traceback, and nothing waited for."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.command import Outcome, call, tokenyard

pa = pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")

MIB = 1 << 20
SMALL = {"TOKENYARD_MAX_LINE_MB": "1", "TOKENYARD_MAX_UNPACKED_MB": "1"}
"""Bounds that a test reaches quickly."""
COMMANDS: dict[str, list[str]] = {
    "run": ["run", "{}"],
    "run --latency": ["run", "chat", "--limit", "1", "--latency", "fitted:{}"],
    "run --model": ["run", "chat", "--limit", "1", "--model", "{}.json"],
    "split": ["split", "{}"],
    "compare": ["compare", "{}"],
    "compare A B": ["compare", "{}", "{}"],
    "report": ["report", "{}"],
    "why": ["why", "{}"],
    "whatif": ["whatif", "{}"],
    "why ID": ["why", "{}", "a"],
    "export --chrome": ["export", "{}", "--chrome", "out.json"],
    "export --html": ["export", "{}", "--html", "out.html"],
    "convert": ["convert", "{}", "--output", "out.{other}"],
    "query": ["query", "{}", "select * from steps"],
    "parity": ["parity", "{}"],
}


def pipe(path: Path) -> None:
    os.mkfifo(path)


def one_line(path: Path) -> None:
    path.write_bytes(b'{"a":"' + b"x" * 2 * MIB + b'"}')


def one_line_packed(path: Path) -> None:
    with pa.CompressedOutputStream(str(path), "zstd") as out:
        out.write(b'{"a":"' + bytes(8 * MIB))


def many_lines_packed(path: Path) -> None:
    with pa.CompressedOutputStream(str(path), "zstd") as out:
        out.write(b"\n" * 4 * MIB)


def cut_gzip(path: Path) -> None:
    path.write_bytes(gzip.compress(os.urandom(1000))[:500])


KINDS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "absent": ("a.steps.jsonl", lambda path: None),
    "directory": ("a.steps.jsonl", lambda path: path.mkdir()),
    "empty": ("a.steps.jsonl", lambda path: path.touch()),
    "pipe": ("a.steps.jsonl", pipe),
    "pipe.gz": ("a.steps.jsonl.gz", pipe),
    "pipe.zst": ("a.steps.jsonl.zst", pipe),
    "pipe.parquet": ("a.steps.parquet", pipe),
    "device": ("a.steps.jsonl", lambda path: path.symlink_to("/dev/zero")),
    "one line": ("a.steps.jsonl", one_line),
    "one line, packed": ("a.steps.jsonl.zst", one_line_packed),
    "many lines, packed": ("a.steps.jsonl.zst", many_lines_packed),
    "cut": ("a.steps.jsonl.gz", cut_gzip),
    "no gzip": ("a.steps.jsonl.gz", lambda path: path.write_bytes(b"text\n")),
    "no zstd": ("a.steps.jsonl.zst", lambda path: path.write_bytes(b"text\n")),
    "no parquet": ("a.steps.parquet", lambda path: path.write_bytes(b"text\n")),
    "parquet without a footer": ("a.steps.parquet", lambda path: path.write_bytes(b"PAR1" + bytes(100) + b"PAR1")),
    "deep": ("a.steps.jsonl", lambda path: path.write_bytes(b'{"a":' * 100_000)),
    "deep and whole": ("a.steps.jsonl", lambda path: path.write_bytes(b"[" * 990 + b"]" * 990 + b"\n")),
    "no text": ("a.steps.jsonl", lambda path: path.write_bytes(b'{"request_id":"\xff\xfe"}\n\xff\n')),
    "zeros": ("a.steps.jsonl", lambda path: path.write_bytes(bytes(1000))),
    "escapes": ("a.\x1b[31mred\x9b1m\N{RIGHT-TO-LEFT OVERRIDE}.steps.jsonl", lambda path: path.touch()),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("command", COMMANDS)
def test_one_clear_error(command: str, kind: str, tmp_path: Path) -> None:
    name, make = KINDS[kind]
    if command == "run --model":
        name += ".json"
    make(tmp_path / name)
    other = "jsonl" if name.endswith(".parquet") else "parquet"
    path = name.removesuffix(".json") if command == "run --model" else name
    words = [word.replace("{}", path).replace("{other}", other) for word in COMMANDS[command]]
    outcome = call(*words, cwd=tmp_path, env=SMALL)
    if command == "convert" and outcome.code == 0:
        assert kind not in {"absent", "directory", "pipe", "device", "one line", "one line, packed"}
        return  # what can be read is kept as it is, bad lines too
    assert outcome.code == 2, outcome
    assert outcome.stdout == "" or command == "parity"
    assert "tokenyard: " in outcome.stderr
    assert len(outcome.stderr) < 1_500
    assert_steers_nothing(outcome)


def assert_steers_nothing(outcome: Outcome) -> None:
    assert all(char.isprintable() or char == "\n" for char in outcome.stdout + outcome.stderr)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_a_pipe_is_not_waited_for_by_the_viewer(tmp_path: Path) -> None:
    pipe(tmp_path / "a.steps.jsonl")
    tokenyard("view", "a.steps.jsonl", "--port", "0", "--no-browser", cwd=tmp_path).refused("is no file on a disk")


SQL = "select req_id, job_id, policy from steps"
HOSTILE = "\x1b[31mred\x1b]0;title\x07\x9b2J\N{RIGHT-TO-LEFT OVERRIDE}\r"


def hostile_trace(path: Path) -> None:
    """A trace whose ids and texts would steer a terminal."""
    records = [
        {"event": "trace_start", "policy": HOSTILE, "gpu": HOSTILE, "model": HOSTILE, "host": HOSTILE},
        {
            "event": "request_arrived",
            "step": 0,
            "ts": 0.0,
            "req_id": HOSTILE,
            "job_id": HOSTILE,
            "num_prompt_tokens": 9,
        },
        {"event": "step_snapshot", "step": 0, "ts": 0.0, "waiting_req_ids": [HOSTILE], "total_blocks": 9},
        {"event": "admission_outcome", "step": 0, "ts": 0.0, "reason": HOSTILE, "req_id": HOSTILE, "num_requests": 1},
        {"event": "step_snapshot", "step": 1, "ts": 1.0, "waiting_req_ids": [HOSTILE], "total_blocks": 9},
        {"event": HOSTILE, "step": 1},
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


@pytest.mark.parametrize("json_too", [[], ["--json"]])
@pytest.mark.parametrize(
    "words",
    [
        ["report", "{}"],
        ["why", "{}"],
        ["why", "{}", HOSTILE],
        ["why", "{}", "nobody"],
        ["compare", "{}", "{}"],
        ["query", "{}", SQL],
        ["query", "{}", f"select 1 as \"{HOSTILE.replace(chr(13), '')}\", chr(27) || '[2J' as b"],
        ["query", "{}", f"select '{HOSTILE}' from nowhere"],
    ],
)
def test_ids_and_results_steer_no_terminal(words: list[str], json_too: list[str], tmp_path: Path) -> None:
    name = "\x1b[2J.steps.jsonl"
    hostile_trace(tmp_path / name)
    outcome = call(*[word.replace("{}", name) for word in words], *json_too, cwd=tmp_path)
    assert outcome.code in (0, 2)
    assert_steers_nothing(outcome)
    if json_too and outcome.code == 0:
        json.loads(outcome.stdout)


@pytest.mark.parametrize(
    "sql",
    [
        "select interval '1000000000 days'",
        "select map([[1, 2]], [3])",
        "select map([interval '1 day'], [3])",
        "select map([{'a': 1}], [map([1.5], [2])])",
        "select '\\xff'::blob",
        "select 'infinity'::timestamp, 'nan'::float",
    ],
)
@pytest.mark.parametrize("json_too", [[], ["--json"]])
def test_values_that_python_has_no_words_for(sql: str, json_too: list[str], tmp_path: Path) -> None:
    (tmp_path / "a.steps.jsonl").write_text('{"event":"step_snapshot","step":1}\n')
    outcome = call("query", "a.steps.jsonl", sql, *json_too, cwd=tmp_path)
    assert outcome.code in (0, 2), outcome
    if outcome.code == 0 and json_too:
        json.loads(outcome.stdout)


@pytest.mark.parametrize("value", ["1e308", "-1e308", "1e999", "NaN", "9e15"])
@pytest.mark.parametrize("command", ["report", "why", "export --chrome", "run --latency"])
def test_times_that_are_none(command: str, value: str, tmp_path: Path) -> None:
    hostile_trace(tmp_path / "a.steps.jsonl")
    lines = (tmp_path / "a.steps.jsonl").read_text()
    finished = '{"event":"request_finished","step":1,"ts":T,"req_id":"a","arrival_time":T,"finished_time":T}\n'
    first = '{"event":"request_arrived","step":0,"ts":T,"req_id":"a","arrival_time":T}\n'
    text = lines.replace('"ts": 1.0', '"ts": T') + finished
    (tmp_path / "a.steps.jsonl").write_text((first + text).replace("T", value))
    outcome = call(*[word.replace("{}", "a.steps.jsonl") for word in COMMANDS[command]], cwd=tmp_path)
    assert outcome.code in (0, 2), outcome


@pytest.mark.parametrize(
    "words",
    [
        ["report", "{}", "--json"],
        ["compare", "{}", "{}", "--json"],
        ["export", "{}", "--chrome", "out.json", "--html", "out.html"],
        ["export", "{}", "--perfetto", "out.pftrace"],
    ],
    ids=lambda words: " ".join(words[:1] + words[2:3]),
)
def test_a_name_that_is_no_utf8_is_a_name(words: list[str], tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"of\xff.steps.jsonl")
    try:
        path.write_text('{"event":"trace_start","policy":"fcfs"}\n{"event":"step_snapshot","step":0,"ts":0}\n')
    except OSError:
        pytest.skip("this file system takes no such name")
    outcome = call(*(word.format(path) for word in words), cwd=tmp_path)
    assert "Traceback" not in outcome.stderr
    assert outcome.code == 0, outcome.stderr
