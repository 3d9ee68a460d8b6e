"""Where logs come from: lines, lists, several files, standard input; what is in them beside requests; which model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tokenyard.errors import ConfigError, WorkloadError
from tokenyard.workload.load import LoadShape, read_workload
from tokenyard.workload.logs.logged import LogOptions
from tokenyard.workload.record import Workload


def _records(count: int = 9, start: float = 1_795_183_200.0, **more: Any) -> list[dict[str, Any]]:
    return [
        {"request_id": f"{start:.0f}-{i}", "timestamp": start + i * i / 7, "prompt_tokens": 90 + 7 * i}
        | {"completion_tokens": 5 + i}
        | more
        for i in range(count)
    ]


def _lines(path: Path, records: list[Any]) -> Path:
    path.write_text("".join(json.dumps(each) + "\n" for each in records))
    return path


def _codes(workload: Workload) -> set[str]:
    return {each.code for each in workload.remarks}


def test_a_request_id_makes_no_log_one_of_ours(tmp_path: Path) -> None:
    workload = read_workload(_lines(tmp_path / "a.jsonl", _records()))
    assert workload.kind == "jsonl"
    assert [each.num_prompt_tokens for each in workload] == [90 + 7 * i for i in range(9)]
    assert workload.notes[0].startswith("read as jsonl: arrival_time from timestamp, prompt_len from prompt_tokens")


def test_a_misspelt_field_of_our_format_is_still_that(tmp_path: Path) -> None:
    row = {"request_id": "a", "prompt_lenght": 9, "max_tokens": 3, "arrival_time": 1}
    with pytest.raises(WorkloadError, match=r"did you mean prompt_len"):
        read_workload(_lines(tmp_path / "a.jsonl", [row]))


@pytest.mark.parametrize("indent", [None, 2])
def test_lists_and_values_one_after_the_other(tmp_path: Path, indent: int | None) -> None:
    for text in (
        json.dumps(_records(), indent=indent),
        json.dumps({"meta": [1, 2], "data": _records()}, indent=indent),
        "\n".join(json.dumps(each, indent=indent) for each in _records()),
    ):
        path = tmp_path / "a.json"
        path.write_text(text)
        assert len(read_workload(path)) == 9


def test_one_line_that_is_nested_too_deeply_is_one_bad_line(tmp_path: Path) -> None:
    path = _lines(tmp_path / "a.jsonl", _records())
    path.write_text(path.read_text() + '{"more": ' + "[" * 5000 + "]" * 5000 + "}\n")
    workload = read_workload(path)
    assert len(workload) == 9
    assert "nested deeper than 100 levels" in workload.notes[-1]
    with pytest.raises(WorkloadError, match=r":10: .*nested deeper"):
        read_workload(path, log=LogOptions(max_bad_lines=0))


def test_several_files_are_one_log(tmp_path: Path) -> None:
    days = [_lines(tmp_path / f"day{i}.jsonl", _records(4, 1_795_183_200.0 + 86_400 * i)) for i in (1, 0)]
    merged = read_workload(days)
    assert [round(each.arrival_time) for each in merged] == [0, 0, 1, 1, 86400, 86400, 86401, 86401]
    assert [each.arrival_time for each in read_workload(str(tmp_path / "day*.jsonl"))] == [
        each.arrival_time for each in merged
    ]
    assert merged.notes[0].startswith("day1.jsonl: read as")
    with pytest.raises(WorkloadError, match="is a pattern that no file fits"):
        read_workload(str(tmp_path / "night*.jsonl"))
    own = _lines(tmp_path / "own.jsonl", _records(4, 0.0))
    with pytest.raises(WorkloadError, match="its times count from its own start"):
        read_workload([days[0], own])
    assert len(read_workload([days[0], own], load=LoadShape(request_rate=1.0))) == 8
    plain = _lines(tmp_path / "plain.jsonl", [{"request_id": "a", "prompt_len": 9, "max_tokens": 3}])
    with pytest.raises(ConfigError, match="format plain, of which one file is a workload"):
        read_workload([days[0], plain])


def test_a_log_of_two_models_is_refused_until_one_is_named(tmp_path: Path) -> None:
    records = [each | {"model": "qwen3-32b" if i % 3 else "llama-70b"} for i, each in enumerate(_records(12))]
    path = _lines(tmp_path / "a.jsonl", records)
    with pytest.raises(WorkloadError, match=r"2 models \('qwen3-32b' 8, 'llama-70b' 4\).*--model-name"):
        read_workload(path)
    workload = read_workload(path, log=LogOptions(model_name="qwen*"))
    assert len(workload) == 8
    assert "models" in _codes(workload)
    assert len(read_workload(path, log=LogOptions(model_name="*"))) == 12
    adapters = read_workload(path, log=LogOptions(columns={"lora_name": "model"}))
    assert {each.lora_name for each in adapters} == {"qwen3-32b", "llama-70b"}
    with pytest.raises(ConfigError, match="no request of this model: it has 'qwen3-32b' 8"):
        read_workload(path, log=LogOptions(model_name="gpt"))


def test_what_the_model_did_not_serve_is_left_out(tmp_path: Path) -> None:
    more = [
        {"timestamp": 1.0, "prompt_tokens": 9, "completion_tokens": 0, "status": 500},
        {"timestamp": 1.0, "prompt_tokens": 0, "completion_tokens": 0},
        {"timestamp": 1.0, "prompt_tokens": 9, "completion_tokens": 3, "cache_hit": "True"},
        {"timestamp": 1.0, "prompt_tokens": 9, "completion_tokens": 0, "call_type": "aembedding"},
        {"timestamp": 1.0, "event": "health check"},
    ]
    workload = read_workload(_lines(tmp_path / "a.jsonl", _records() + more))
    assert len(workload) == 9
    assert list(workload.notes[1:]) == [
        "left out: 2 failed",
        "left out: 1 answered by a cache in front of the model",
        "left out: 1 that generate nothing (embeddings and the like)",
        "ignored, as they say nothing of tokens: 1",
    ]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"prompt_tokens": 512}, "equal_prompts"),
        ({"completion_tokens": 128}, "equal_outputs"),
        ({"total_tokens": 1}, "totals"),
        ({"priority": "high"}, "priority"),
    ],
)
def test_lengths_that_no_service_has_are_doubted(tmp_path: Path, change: dict[str, Any], code: str) -> None:
    workload = read_workload(_lines(tmp_path / "a.jsonl", [each | change for each in _records()]))
    assert [each.code for each in workload.remarks if each.warning] == [code]


def test_lengths_at_a_cap_and_round_ones_are_doubted(tmp_path: Path) -> None:
    cut = [each | {"prompt_tokens": min(each["prompt_tokens"], 100)} for each in _records(12)]
    assert "prompts_cut" in _codes(read_workload(_lines(tmp_path / "a.jsonl", cut)))
    rounded = [each | {"prompt_tokens": 100 * (1 + i % 5)} for i, each in enumerate(_records(12))]
    workload = read_workload(_lines(tmp_path / "a.jsonl", rounded))
    assert (
        "all prompts are multiples of 100: estimates, padding, or buckets, and no counts of tokens?" in workload.notes
    )


@pytest.mark.parametrize(
    ("cell", "tokens"),
    [("168", 168), ("168.0", 168), (" 168 ", 168), ('"1,168"', 1168), ("1.68E+02", 168)],
)
def test_counts_as_exports_write_them(tmp_path: Path, cell: str, tokens: int) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"timestamp,prompt_tokens,completion_tokens\n1795183200.5,{cell},7\n")
    assert read_workload(path).requests[0].num_prompt_tokens == tokens


@pytest.mark.parametrize(
    ("cell", "message"),
    [("168.000", "may be 168 or 168,000"), ("168.5", "give a whole number"), ("many", "give a whole number")],
)
def test_counts_that_may_be_something_else_are_refused(tmp_path: Path, cell: str, message: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"timestamp;prompt_tokens;completion_tokens\n1795183200.5;{cell};7\n")
    with pytest.raises(WorkloadError, match=message):
        read_workload(path)


def test_a_quote_that_is_never_closed_takes_no_rows_away_in_silence(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    rows = [f"179518320{i % 10}.5,{chr(34) if i == 3 else chr(120)},9,7" for i in range(2000)]
    path.write_text("\n".join(["timestamp,prompt,prompt_tokens,completion_tokens", *rows]) + "\n")
    with pytest.raises(WorkloadError, match=r":5: a quote that is opened in this row is not closed within 1,000 lines"):
        read_workload(path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"PAR1\x00\x01", "is a Parquet file: export it as CSV or JSON lines"),
        (b"PK\x03\x04\x00", "a spreadsheet"),
        ("timestamp,prompt_tokens\n".encode("utf-16"), "save it as CSV UTF-8"),
        (b'{"resourceMetrics":[]}\n', "OpenTelemetry's metrics"),
        (b"hello\nworld\n", "is of no known format: Read are azure, .*vllm-log"),
        (b'{"a": 1}\n', "logs of kind burstgpt, csv, .*it has 'a'"),
    ],
)
def test_other_files_are_told_by_name(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "a"
    path.write_bytes(data)
    with pytest.raises(WorkloadError, match=message):
        read_workload(path)
