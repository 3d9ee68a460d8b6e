"""Where fields are found: at any depth, behind prefixes, in cells of CSV; and what a time stands for."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenyard.errors import WorkloadError
from tokenyard.workload.load import read_workload
from tokenyard.workload.logs.logged import KNOWN_NAMES, LogOptions, RecordView
from tokenyard.workload.logs.moments import Clock
from tokenyard.workload.record import Workload

_TIME = {"timestamp": "2026-11-20T14:00:00Z"}


def _read(tmp_path: Path, text: str, log: LogOptions | None = None) -> Workload:
    path = tmp_path / "log"
    path.write_text(text)
    return read_workload(path, log=log)


def _lines(*records: Mapping[str, Any]) -> str:
    return "".join(json.dumps(each) + "\n" for each in records)


def _nested(name: str, value: int) -> dict[str, Any]:
    *outer, last = name.split(".")
    record: dict[str, Any] = {last: value}
    for key in reversed(outer):
        record = {key: record}
    return record


_AROUND = st.lists(st.sampled_from(["attributes", "x", "out", "ai", "my-plugin", "full_response", "input"]), max_size=4)


@given(
    st.sampled_from(["prompt_len", "max_tokens", "cached_tokens", "total_tokens"]).flatmap(
        lambda field: st.tuples(st.just(field), st.sampled_from(KNOWN_NAMES[field]))
    ),
    _AROUND,
)
def test_a_known_name_of_a_count_is_found_at_any_depth(named: tuple[str, str], around: list[str]) -> None:
    field, name = named
    path = ".".join([*around, name])
    assert RecordView(_nested(path, 7)).find(field).value == 7
    assert RecordView({path: 7}).find(field).value == 7


def test_the_outermost_count_is_taken(tmp_path: Path) -> None:
    inner = {"prompt_tokens": 1, "completion_tokens": 1}
    workload = _read(tmp_path, _lines({**_TIME, "a": {"input_tokens": 90, "output_tokens": 9, "b": {"usage": inner}}}))
    assert [(each.num_prompt_tokens, each.max_tokens) for each in workload] == [(90, 9)]


def test_a_model_within_is_told_from_another(tmp_path: Path) -> None:
    def record(model: str) -> dict[str, Any]:
        usage = {"prompt_token": 9, "completion_token": 4}
        return {**_TIME, "ai": {"ai-proxy-advanced": {"usage": usage, "meta": {"request_model": model}}}}

    with pytest.raises(WorkloadError, match="holds requests of 2 models"):
        _read(tmp_path, _lines(record("a"), record("b")))


@pytest.mark.parametrize(
    "prefix",
    ["gateway-1  | ", "[pod/gw-0/gw] ", "2026-11-20T14:00:00.125000000Z stdout F ", "Nov 20 14:00:00 host gw[7]: "],
)
def test_json_behind_a_prefix_is_read(tmp_path: Path, prefix: str) -> None:
    records = [{"ts": 1795183200.5 + i, "prompt_tokens": 9 + i, "completion_tokens": 4} for i in range(3)]
    workload = _read(tmp_path, "".join(f"{prefix}{json.dumps(each)}\n" for each in records))
    assert [each.arrival_time for each in workload] == [0.0, 1.0, 2.0]


def test_a_time_in_front_counts_where_the_record_says_none(tmp_path: Path) -> None:
    text = "".join(
        f'2026-11-20 14:00:{i:02d},250 INFO gw {{"prompt_tokens": {9 + i}, "completion_tokens": 4}}\n' for i in range(3)
    )
    assert [each.arrival_time for each in _read(tmp_path, text)] == [0.0, 1.0, 2.0]


def test_json_in_a_cell_of_csv_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["Date", "Host", "Content"])
        for i in range(3):
            usage = {"usage": {"prompt_tokens": 9 + i, "completion_tokens": 4}}
            rows.writerow([f"2026-11-20T14:00:0{i}Z", "gw", json.dumps(usage)])
    assert [each.num_prompt_tokens for each in read_workload(path)] == [9, 10, 11]


def test_what_nginx_calls_request_time_is_a_duration(tmp_path: Path) -> None:
    lengths = {"prompt_tokens": 9, "completion_tokens": 4}
    ends = [{"time_iso8601": f"2026-11-20T14:00:0{5 + i}+00:00", "request_time": 5 - i, **lengths} for i in range(3)]
    assert [each.arrival_time for each in _read(tmp_path, _lines(*ends))] == [0.0, 2.0, 4.0]
    ends = [{"@timestamp": each["time_iso8601"], **each} for each in ends]
    assert [each.arrival_time for each in _read(tmp_path, _lines(*ends))] == [0.0, 2.0, 4.0]


def test_records_of_azure_are_made_at_the_end(tmp_path: Path) -> None:
    """TotalTime is milliseconds there; without it the end is taken as the arrival, with a warning."""
    head, rows = (
        "TimeGenerated [UTC],PromptTokens,CompletionTokens",
        ["2026-11-20T14:00:10Z,9,2", "2026-11-20T14:00:11Z,9,3"],
    )
    timed = _read(tmp_path, "\n".join([f"{head},TotalTime", f"{rows[0]},10000", f"{rows[1]},500"]))
    assert [each.arrival_time for each in timed.requests] == [0.0, 10.5]
    assert not any("record was made" in note for note in timed.notes)
    bare = _read(tmp_path, "\n".join([head, *rows]))
    assert [each.arrival_time for each in bare.requests] == [0.0, 1.0]
    assert any("TimeGenerated [UTC] is when the record was made" in note for note in bare.notes)
    named = _read(tmp_path, "\n".join([head, *rows]), LogOptions(columns={"arrival_time": "TimeGenerated [UTC]"}))
    assert not any("record was made" in note for note in named.notes)


def test_rates_are_no_lengths(tmp_path: Path) -> None:
    """As a dashboard exports them: tokens a second are not those of a request."""
    rows = "Time,Prompt tokens/s,Completion tokens/s\n2026-11-20 14:00:00,500,100\n2026-11-20 14:00:15,400,90\n"
    with pytest.raises(WorkloadError, match=r"says nothing of|is of no known format|holds no request"):
        _read(tmp_path, rows)


def test_times_of_lines_are_said_to_be_taken_as_arrivals(tmp_path: Path) -> None:
    record = {"@timestamp": "2026-11-20T14:00:00Z", "prompt_tokens": 5, "completion_tokens": 2}
    assert any("@timestamp is when a line was written" in note for note in _read(tmp_path, _lines(record)).notes)


def test_nginx_tells_milliseconds_where_it_writes_msec(tmp_path: Path) -> None:
    lengths = {"prompt_tokens": 9, "completion_tokens": 4}
    ends = [
        {"time_iso8601": "2026-11-20T14:00:05+00:00", "msec": 1795183205.25 + 0.5 * i, "request_time": 1, **lengths}
        for i in range(2)
    ]
    assert [each.arrival_time for each in _read(tmp_path, _lines(*ends))] == [0.0, 0.5]
    # Elsewhere it is how long something took.
    ends = [{**each, "msec": 40, "time_iso8601": f"2026-11-20T14:00:0{i}+00:00"} for i, each in enumerate(ends)]
    assert [each.arrival_time for each in _read(tmp_path, _lines(*ends))] == [0.0, 1.0]


def test_request_time_may_be_a_time(tmp_path: Path) -> None:
    lengths = {"prompt_tokens": 9, "completion_tokens": 4}
    texts = [{"request_time": f"2026-11-20T14:00:0{i}Z", "date": "2026-11-20", **lengths} for i in range(3)]
    assert [each.arrival_time for each in _read(tmp_path, _lines(*texts))] == [0.0, 1.0, 2.0]
    numbers = [{"request_time": float(i), **lengths} for i in range(3)]
    assert [each.arrival_time for each in _read(tmp_path, _lines(*numbers))] == [0.0, 1.0, 2.0]


@pytest.mark.parametrize(
    "said",
    [{"error": "timeout"}, {"success": False}, {"is_success": "False"}, {"status": 503}, {"error": {"code": 500}}],
)
def test_a_failure_without_output_is_left_out(tmp_path: Path, said: dict[str, Any]) -> None:
    record = {**_TIME, "prompt_tokens": 9, "completion_tokens": 0}
    fine = {"error": None, "success": True, "completion_tokens": 4}
    workload = _read(tmp_path, _lines(record | fine, record | said))
    assert len(workload) == 1
    assert "left out: 1 failed" in {each.text for each in workload.remarks}


@pytest.mark.parametrize("said", [{"cached": True}, {"cache_status": "SEMANTIC HIT"}, {"cache_hit": "True"}])
def test_an_answer_of_a_cache_is_left_out(tmp_path: Path, said: dict[str, Any]) -> None:
    record = {**_TIME, "prompt_tokens": 9, "completion_tokens": 4}
    assert len(_read(tmp_path, _lines(record | {"cache_status": "MISS", "cached": False}, record | said))) == 1


def test_thoughts_are_output(tmp_path: Path) -> None:
    usage = {"promptTokenCount": 9, "candidatesTokenCount": 4, "thoughtsTokenCount": 30}
    assert [each.max_tokens for each in _read(tmp_path, _lines({**_TIME, "usageMetadata": usage}))] == [34]


def test_a_conversation_arrives_when_it_says(tmp_path: Path) -> None:
    turns = [{"from": "human", "value": "a" * 40}, {"from": "gpt", "value": "b" * 40}]
    conversations = [{"timestamp": f"2026-11-20T14:00:0{i}Z", "conversations": turns} for i in range(3)]
    assert [each.arrival_time for each in _read(tmp_path, json.dumps(conversations))] == [0.0, 1.0, 2.0]


def test_of_appended_results_of_a_benchmark_the_first_is_read(tmp_path: Path) -> None:
    result = {"request_throughput": 1.0, "input_lens": [9, 8], "output_lens": [4, 5], "start_times": [7.0, 8.0]}
    workload = _read(tmp_path, _lines(result, result | {"start_times": [70.0, 80.0]}))
    assert [each.arrival_time for each in workload] == [0.0, 1.0]
    assert "only the first of 2 results was read" in {each.text for each in workload.remarks}


def test_times_of_dotnet_and_javascript() -> None:
    assert Clock().moment(639_307_800_001_250_000) == pytest.approx(1_795_183_200.125)
    assert Clock().moment("Fri Nov 20 2026 15:00:00 GMT+0100 (Central European Standard Time)") == 1_795_183_200.0
    with pytest.raises(ValueError, match="it says no day"):
        Clock().moment("14:00:00.125")


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ('{"target": "text_generation_router::server", "span": {"total_time": "1s"}}', "is TGI's log"),
        ("prompt eval time =     200.11 ms /   12 tokens (    1.10 ms per token)", "is llama.cpp's log"),
        ('{"time": "x", "category": "RequestResponse", "durationMs": 7}', "is Azure OpenAI's diagnostics"),
        ("[2026-11-20 14:00:00 TP0] Decode batch, #running-req: 3, #token: 70", "is SGLang's log"),
    ],
)
def test_what_says_no_tokens_is_refused_by_name(tmp_path: Path, line: str, what: str) -> None:
    with pytest.raises(WorkloadError, match=f"{what}, which does not say the time and the tokens of single requests"):
        _read(tmp_path, f"{line}\n" * 3)


def test_a_prompt_that_quotes_such_a_log_is_no_such_log(tmp_path: Path) -> None:
    quoted = {**_TIME, "prompt_tokens": 9, "completion_tokens": 4, "prompt": "prompt eval time = 2 ms / 12 tokens"}
    assert len(_read(tmp_path, _lines(quoted))) == 1


def test_embeddings_are_told_by_their_path(tmp_path: Path) -> None:
    lengths = {**_TIME, "prompt_tokens": 9, "completion_tokens": 4}
    paths = (
        "/v1/chat/completions",
        "POST /v1/embeddings HTTP/1.1",
        "https://llm.example/v1/rerank?x=1",
        "/v1/scoreboard",
    )
    requests = _read(tmp_path, _lines(*({**lengths, "path": path} for path in paths)))
    assert len(list(requests)) == 2


def _warned(workload: Workload) -> list[str]:
    return [each.code for each in workload.remarks if each.warning]


def test_milliseconds_that_are_read_as_seconds_are_doubted_wherever_arrivals_come_from_them(tmp_path: Path) -> None:
    lengths = {"prompt_tokens": 9, "completion_tokens": 70}
    lines = [{"completed_at": f"2026-11-20T14:00:{i}0Z", "latency": 2000 + 100 * i, **lengths} for i in range(5)]
    assert "slow_tokens" in _warned(_read(tmp_path, _lines(*lines)))
    assert "slow_tokens" not in _warned(_read(tmp_path, _lines(*({**each, "latency": 2} for each in lines))))


def test_local_times_over_the_end_of_summer_time_are_doubted(tmp_path: Path) -> None:
    lengths = {"prompt_tokens": 9, "completion_tokens": 4}
    times = ["02:59:30.125", "02:59:59.411", "02:00:02.509", "02:00:40.000"]
    local = [{"timestamp": f"2026-10-25 {each}", **lengths} for each in times]
    assert "clock_put_back" in _warned(_read(tmp_path, _lines(*local)))
    in_utc = [{**each, "timestamp": f"{each['timestamp']}Z"} for each in local]
    assert "clock_put_back" not in _warned(_read(tmp_path, _lines(*in_utc)))
    assert "clock_put_back" not in _warned(_read(tmp_path, _lines(*local[:2])))


def test_several_answers_to_one_prompt_are_named(tmp_path: Path) -> None:
    lengths = {"prompt_tokens": 9, "completion_tokens": 40}
    times = [f"2026-11-20T14:00:0{i}Z" for i in range(5)]
    assert "choices" in _warned(_read(tmp_path, _lines(*({"timestamp": each, "n": 2, **lengths} for each in times))))
    numbered = [{"timestamp": each, "n": i + 100, **lengths} for i, each in enumerate(times)]
    assert "choices" not in _warned(_read(tmp_path, _lines(*numbered)))


def test_reasoning_that_is_counted_beside_the_output_is_output(tmp_path: Path) -> None:
    record = {**_TIME, "prompt_tokens": 9, "completion_tokens": 40}
    beside = [record | {"reasoning_tokens": 30}, record | {"completion_tokens": 4, "reasoning_tokens": 300}]
    workload = _read(tmp_path, _lines(*beside))
    assert [each.max_tokens for each in workload] == [70, 304], "the same system counts all of them alike"
    assert any("reasoning_tokens, which is counted beside it" in each.text for each in workload.remarks)


def test_reasoning_within_the_output_is_not_counted_twice(tmp_path: Path) -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 40, "completion_tokens_details": {"reasoning_tokens": 30}}
    assert [each.max_tokens for each in _read(tmp_path, _lines({**_TIME, "usage": usage}))] == [40]
