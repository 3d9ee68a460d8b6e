"""Logs of services as workloads."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from tokenyard.errors import ConfigError, WorkloadError
from tokenyard.questions.settings import TrafficSettings
from tokenyard.questions.traffic import workload_facts
from tokenyard.workload.load import LoadShape, pauses_in, read_workload
from tokenyard.workload.logs.logged import LogOptions, Stamp, columns_from
from tokenyard.workload.logs.moments import Clock, TimeUnit
from tokenyard.workload.readers.plain import workload_lines, write_plain
from tokenyard.workload.record import Workload


def _file(tmp_path: Path, text: str, name: str = "log") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def _lines(*records: dict[str, Any]) -> str:
    return "".join(json.dumps(each) + "\n" for each in records)


def _facts(workload: Workload) -> list[tuple[float, int, int]]:
    return [(round(r.arrival_time, 6), r.num_prompt_tokens, r.max_tokens) for r in workload]


def _said(workload: Workload) -> list[str]:
    """All but what it was read as."""
    return [each.text for each in workload.remarks if each.code != "kind"]


def _codes(workload: Workload) -> set[str]:
    return {each.code for each in workload.remarks}


def _usage(prompt: int, output: int, cached: int = 0) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (1_764_000_000, 1.764e9),
        (1_764_000_000_500, 1_764_000_000.5),
        (1_764_000_000_500_000, 1_764_000_000.5),
        (1_764_000_000_500_000_000, 1_764_000_000.5),
        ("1764000000.5", 1_764_000_000.5),
        ("2025-11-24T16:00:00Z", 1_764_000_000.0),
        ("2025-11-24T16:00:00.123456789+00:00", 1_764_000_000.123456),
        ("2025-11-24 17:00:00.5+01:00", 1_764_000_000.5),
        (12.5, 12.5),
    ],
)
def test_times_are_read_as_logs_write_them(value: object, seconds: float) -> None:
    assert Clock().moment(value) == pytest.approx(seconds, abs=1e-6)


@pytest.mark.parametrize("value", [None, True, "yesterday", "", -1, float("nan"), "inf", [1]])
def test_what_is_no_time_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="is no time: give one like"):
        Clock().moment(value)


def _timed(tmp_path: Path, first: float, step: float, name: str = "timestamp") -> Path:
    records = [{name: first + i * step + 0.01 * (i % 3), "usage": _usage(50 + i, 3 + i % 5)} for i in range(20)]
    return _file(tmp_path, _lines(*records))


def test_the_flag_takes_every_unit_that_messages_name() -> None:
    (annotated, *_) = get_args(get_type_hints(TrafficSettings, include_extras=True)["time_unit"])
    units = {unit for each in get_args(annotated) for unit in get_args(each)}
    assert units == {str(unit) for unit in TimeUnit}


def test_minutes_since_1970_are_no_seconds(tmp_path: Path) -> None:
    path = _timed(tmp_path, 29_400_000, 0.5)
    with pytest.raises(WorkloadError, match=r"look like minutes since 1970: .*--time-unit min"):
        read_workload(path)
    said = read_workload(path, log=LogOptions(time_unit=TimeUnit.MINUTES))
    assert said.requests[-1].arrival_time == pytest.approx(60 * (19 * 0.5 + 0.01))
    seconds = read_workload(path, log=LogOptions(time_unit=TimeUnit.SECONDS))
    assert seconds.requests[-1].arrival_time == pytest.approx(19 * 0.5 + 0.01)
    assert (
        len(
            read_workload(
                _timed(tmp_path, 29_400_000, 0.5, "time_s"), log=LogOptions(columns={"arrival_time": "time_s"})
            )
        )
        == 20
    )


@pytest.mark.parametrize(("first", "unit"), [(490_000.2, "h"), (20_415.3, "d"), (45_985.5, "d")])
def test_hours_and_days_are_doubted(tmp_path: Path, first: float, unit: str) -> None:
    workload = read_workload(_timed(tmp_path, first, 0.5))
    (doubt,) = [each for each in workload.remarks if each.code == "coarse_times"]
    assert doubt.warning
    assert doubt.text.endswith(f"(--time-unit {unit})")
    said = read_workload(_timed(tmp_path, first, 0.5), log=LogOptions(time_unit=TimeUnit(unit)))
    assert not [each for each in said.remarks if each.code == "coarse_times"]


@pytest.mark.parametrize("first", [0.0, 12.5, 9_000.0, 1_764_000_000.0, 1_764_000_000_500.0])
def test_other_times_are_not(tmp_path: Path, first: float) -> None:
    workload = read_workload(_timed(tmp_path, first, 700.5))
    assert not [each for each in workload.remarks if each.code == "coarse_times"]


def test_openai_usage(tmp_path: Path) -> None:
    path = _file(
        tmp_path,
        _lines(
            {"id": "b", "created": 1_764_000_003, "usage": _usage(1200, 64, 1024)},
            {"id": "a", "created": 1_764_000_000, "usage": _usage(1100, 32)},
            {"id": "c", "created": 1_764_000_005, "response": {}, "usage": {"input_tokens": 7, "output_tokens": 0}},
        ),
    )
    workload = read_workload(path)
    assert [r.request_id for r in workload] == ["a", "b", "c"]
    assert _facts(workload) == [(0, 1100, 32), (3, 1200, 64), (5, 7, 1)]


def test_recorded_hits_come_back_as_shared_blocks(tmp_path: Path) -> None:
    path = _file(
        tmp_path,
        _lines(
            {"created": 1, "user": "x", "usage": _usage(100, 1, 40)},
            {"created": 2, "user": "x", "usage": _usage(100, 1, 70)},
            {"created": 3, "user": "y", "usage": _usage(100, 1, 70)},
        ),
    )
    first, second, other = (request.prompt.tokens().tolist() for request in read_workload(path))
    assert first[:32] == second[:32], "whole blocks of 16 of the recorded 40"
    assert first[32:] != second[32:]
    assert second[:16] != other[:16], "another user's"


def test_completions_less_durations_are_arrivals(tmp_path: Path) -> None:
    records = [
        {"timestamp": "2025-11-24T16:00:10Z", "duration_ms": 9000, "usage": _usage(5, 2)},
        {"timestamp": "2025-11-24T16:00:11Z", "duration_ms": 500, "usage": _usage(6, 2)},
    ]
    path = _file(tmp_path, _lines(*records))
    workload = read_workload(path, log=LogOptions(stamped=Stamp.COMPLETION))
    assert _facts(workload) == [(0, 5, 2), (9.5, 6, 2)]
    assert _said(workload) == ["arrivals are completions less durations"]
    path = _file(tmp_path, _lines(*records, {"timestamp": 1_764_000_000, "usage": _usage(5, 2)}))
    with pytest.raises(WorkloadError, match="1 of 3 requests say no duration"):
        read_workload(path, log=LogOptions(stamped=Stamp.COMPLETION))


def test_any_csv_by_its_columns(tmp_path: Path) -> None:
    path = _file(tmp_path, 'When,"In, tokens",Out\n1500,10,2\n500,20,3\n', "any.csv")
    columns = columns_from("arrival_time=when,prompt_len=In, tokens".replace(", ", "; "))
    assert columns == {"arrival_time": "when", "prompt_len": "In; tokens"}
    options = LogOptions(
        columns={"arrival_time": "When", "prompt_len": "in, tokens", "max_tokens": "Out"},
        time_unit=TimeUnit.MILLISECONDS,
    )
    assert _facts(read_workload(path, log=options)) == [(0, 20, 3), (1, 10, 2)]
    with pytest.raises(WorkloadError, match="the header has no column 'Nope'"):
        read_workload(path, format="csv", log=LogOptions(columns={"prompt_len": "Nope"}))


def test_burstgpt(tmp_path: Path) -> None:
    path = _file(
        tmp_path,
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,ChatGPT,472,18,490,Conversation log\n45,ChatGPT,1087,230,1317,Conversation log\n",
    )
    assert _facts(read_workload(path)) == [(0, 472, 18), (40, 1087, 230)]


def test_vllm_log(tmp_path: Path) -> None:
    path = _file(
        tmp_path,
        "(APIServer pid=9) INFO 11-22 03:17:52 [logger.py:63] Received request cmpl-1: params: "
        "SamplingParams(n=1, max_tokens=64, min_tokens=0), lora_request: None.\n"
        "(APIServer pid=9) DEBUG 11-22 03:17:52 [logger.py:55] Request cmpl-1 details: prompt: 'x', "
        "prompt_token_ids: [1, 2, 3], prompt_embeds shape: None.\n"
        "INFO 11-22 03:17:53 [loggers.py:248] Engine 000: Avg prompt throughput: 0.0 tokens/s\n"
        "INFO 11-22 03:17:55 [logger.py:39] Received request cmpl-2: prompt: 'hi', params: SamplingParams(n=1, "
        "max_tokens=9), prompt_token_ids: [4, 5], lora_request: None.\n"
        "INFO 11-22 03:17:56 [logger.py:70] Generated response cmpl-1: output: 'y', output_token_ids: [7, 8], "
        "finish_reason: stop\n"
        "INFO 11-22 03:17:57 [logger.py:63] Received request cmpl-3: params: SamplingParams(max_tokens=5), x\n",
    )
    workload = read_workload(path)
    assert _facts(workload) == [(0, 3, 2), (3, 2, 2)], "the second one's answer is as long as the first one's"
    assert any("request cmpl-3: its prompt's length is not logged" in note for note in workload.notes)


def test_vllm_log_with_a_day_that_there_is_not(tmp_path: Path) -> None:
    line = "INFO {} 03:17:55 [logger.py:39] Received request {}: params: SamplingParams(max_tokens=9), "
    line += "prompt_token_ids: [4]\n"
    path = _file(tmp_path, "".join(line.format(day, f"r{i}") for i, day in enumerate(("11-22", "31-22", "02-30"))))
    workload = read_workload(path)
    assert _facts(workload) == [(0, 1, 9)]
    assert any("'31-22 03:17:55' is no day and time" in note for note in workload.notes)
    with pytest.raises(WorkloadError, match=":2: '31-22 03:17:55' is no day and time"):
        read_workload(path, log=LogOptions(max_bad_lines=0))


def test_vllm_bench(tmp_path: Path) -> None:
    result = {"date": "x", "total_input_tokens": 5, "request_throughput": 1.0}
    with pytest.raises(WorkloadError, match="--save-detailed"):
        read_workload(_file(tmp_path, json.dumps(result)))
    result |= {"input_lens": [10, 20, 30], "output_lens": [3, 4, 0], "start_times": [100.5, 100.25, 101.0]}
    workload = read_workload(_file(tmp_path, json.dumps(result, indent=1)))
    assert _facts(workload) == [(0, 20, 4), (0.25, 10, 3)]
    assert _said(workload) == ["left out: 1 failed"]
    del result["start_times"]
    path = _file(tmp_path, json.dumps(result))
    with pytest.raises(WorkloadError, match="give --request-rate"):
        read_workload(path)
    drawn = read_workload(path, load=LoadShape(request_rate=2.0))
    assert [r.arrival_time > 0 for r in drawn] == [False, True]


def test_guidellm_sharegpt_and_spans(tmp_path: Path) -> None:
    requests = [{"request_start_time": 5.0, "prompt_tokens": 8, "output_tokens": 2}]
    report = {"benchmarks": [{"requests": {"successful": requests, "errored": [{"prompt_tokens": 1}]}}]}
    assert _facts(read_workload(_file(tmp_path, json.dumps(report, indent=1)))) == [(0, 8, 2)]

    talk = [{"from": "human", "value": "a" * 40}, {"from": "gpt", "value": "b" * 20}]
    path = _file(tmp_path, json.dumps([{"id": "1", "conversations": talk}, {"id": "2", "conversations": talk[:1]}]))
    workload = read_workload(path, load=LoadShape(request_rate=float("inf")))
    assert _facts(workload) == [(0, 10, 5)]
    assert "lengths_estimated" in _codes(workload)

    def attribute(key: str, value: int) -> dict[str, Any]:
        return {"key": key, "value": {"intValue": str(value)}}

    span = {
        "spanId": "s1",
        "startTimeUnixNano": "1764000000500000000",
        "endTimeUnixNano": "1764000001000000000",
        "attributes": [attribute("gen_ai.usage.input_tokens", 11), attribute("gen_ai.usage.output_tokens", 3)],
    }
    other = {"spanId": "s2", "startTimeUnixNano": "1", "endTimeUnixNano": "2", "attributes": []}
    spans = {"resourceSpans": [{"scopeSpans": [{"spans": [span, other]}]}]}
    assert _facts(read_workload(_file(tmp_path, json.dumps(spans)))) == [(0, 11, 3)]
    odd: Any
    for odd in (["s", "1"], {"s": 1}, None, 7):
        span["spanId"] = odd
        assert _facts(read_workload(_file(tmp_path, json.dumps(spans)))) == [(0, 11, 3)]


def test_what_a_bad_line_holds_is_told_without_its_keys(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    good = {"timestamp": 1.0, "prompt_tokens": 3, "completion_tokens": 2}
    rows = [good, good | {"prompt_tokens": "sk-live-key0123456"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (bad,) = [each.text for each in read_workload(path).remarks if each.code == "bad_lines"]
    assert "sk-live" not in bad
    assert "***" in bad


def test_bad_lines_are_counted_and_too_many_refused(tmp_path: Path) -> None:
    good = {"created": 1, "usage": _usage(5, 1)}
    half = {"created": 2, "usage": {"prompt_tokens": 5}}
    path = _file(tmp_path, _lines(good) + "nonsense\n" + _lines(half, {"created": 2}) + _lines(good))
    workload = read_workload(path)
    assert len(workload) == 2
    passed_over, bad = _said(workload)
    assert passed_over == "ignored, as they say nothing of tokens: 1"
    assert bad.startswith("2 lines were left out; the first is line 2: ")
    with pytest.raises(WorkloadError, match="2 lines cannot be read, and --max-bad-lines allows 1; line 2"):
        read_workload(path, log=LogOptions(max_bad_lines=1))
    with pytest.raises(WorkloadError, match="holds no request"):
        read_workload(_file(tmp_path, _lines({"usage": {}})), format="openai")


@pytest.mark.parametrize("pace", [250, 1.5])
def test_what_may_be_milliseconds_is_doubted_in_our_own_format_too(tmp_path: Path, pace: float) -> None:
    rows = [{"request_id": f"r{i}", "arrival_time": i * pace, "prompt_len": 9, "max_tokens": 2} for i in range(9)]
    path = _file(tmp_path, _lines(*rows))
    assert "9 requests in" in read_workload(path).notes[0]
    assert "say --time-unit ms" in read_workload(path).notes[0]
    workload = read_workload(path, log=LogOptions(time_unit=TimeUnit.MILLISECONDS))
    assert workload.notes == ()
    assert workload.requests[-1].arrival_time == pytest.approx(8 * pace / 1000)
    assert read_workload(path, load=LoadShape(request_rate=2.0)).notes == ()


def test_a_busy_service_is_not_doubted(tmp_path: Path) -> None:
    text = "arrival_time,prompt_tokens,completion_tokens\n" + "".join(f"{i * 0.9},9,2\n" for i in range(9))
    assert "time_unit" not in _codes(read_workload(_file(tmp_path, text)))


@pytest.mark.parametrize("name", ["time_ms", "Timestamp (ms)", "startMillis", "sent at [msec]"])
def test_the_name_of_a_column_says_its_unit(tmp_path: Path, name: str) -> None:
    text = f"{name},prompt_tokens,completion_tokens\n" + "".join(f"{i * 33},9,2\n" for i in range(9))
    workload = read_workload(_file(tmp_path, text, "log.csv"), log=LogOptions(columns={"arrival_time": name}))
    assert workload.requests[-1].arrival_time == pytest.approx(0.264)
    assert "time_unit" not in _codes(workload)
    said = LogOptions(columns={"arrival_time": name}, time_unit=TimeUnit.SECONDS)
    assert read_workload(_file(tmp_path, text, "log.csv"), log=said).requests[-1].arrival_time == 264


def test_a_log_whose_columns_have_known_names_needs_none_named(tmp_path: Path) -> None:
    text = "timestamp,prompt_tokens,completion_tokens\n0.5,10,2\n1.0,20,3\n"
    assert _facts(read_workload(_file(tmp_path, text, "log.csv"))) == [(0, 10, 2), (0.5, 20, 3)]
    path = _file(tmp_path, _lines({"timestamp": 3.5, "input_tokens": 7, "output_tokens": 2}))
    assert _facts(read_workload(path)) == [(0, 7, 2)]
    with pytest.raises(WorkloadError, match=r"of no known format.*--columns.*it has 'a', 'b'"):
        read_workload(_file(tmp_path, "a,b\n1,2\n", "log.csv"))


def test_durations_in_milliseconds(tmp_path: Path) -> None:
    text = "time,prompt_tokens,completion_tokens,latency\n" + "".join(f"{9 + i},9,2,{4000 + i}\n" for i in range(4))
    path = _file(tmp_path, text, "log.csv")
    notes = read_workload(path, log=LogOptions(stamped=Stamp.COMPLETION)).notes
    assert any("2,001 s per output token" in note for note in notes)
    path = _file(tmp_path, text.replace("latency", "latency_ms"), "log.csv")
    workload = read_workload(path, log=LogOptions(stamped=Stamp.COMPLETION))
    assert not any("per output token" in note for note in workload.notes)
    assert workload.requests[-1].arrival_time == pytest.approx(3 - 0.003)


def test_flags_of_logs_are_refused_where_a_format_says_it_itself(tmp_path: Path) -> None:
    row = {"request_id": "a", "arrival_time": 1, "prompt_len": 9, "max_tokens": 2}
    path = _file(tmp_path, _lines(row))
    with pytest.raises(ConfigError, match="stamped = 'completion': it is for logs of services"):
        read_workload(path, log=LogOptions(stamped=Stamp.COMPLETION))
    with pytest.raises(ConfigError, match="columns = 'duration': it is for logs of services"):
        read_workload(path, format="plain", log=LogOptions(columns={"duration": "x"}))
    mooncake = {"timestamp": 1, "input_length": 512, "output_length": 2, "hash_ids": [1]}
    with pytest.raises(ConfigError, match="mooncake says the unit of its times itself"):
        read_workload(_file(tmp_path, _lines(mooncake)), log=LogOptions(time_unit=TimeUnit.SECONDS))


def test_milliseconds_that_look_like_seconds_are_doubted(tmp_path: Path) -> None:
    text = "arrival_time,prompt_tokens,completion_tokens\n" + "".join(f"{i * 250},9,2\n" for i in range(9))
    path = _file(tmp_path, text)
    assert any("say --time-unit ms" in note for note in read_workload(path, format="csv").notes)
    workload = read_workload(path, format="csv", log=LogOptions(time_unit=TimeUnit.MILLISECONDS))
    assert "time_unit" not in _codes(workload)
    assert workload.requests[-1].arrival_time == 2.0


def test_what_is_read_can_be_written_in_our_own_format(tmp_path: Path) -> None:
    path = _file(
        tmp_path, _lines(*({"id": str(i), "created": i, "usage": _usage(100 + i, 3, 16 * i)} for i in range(4)))
    )
    workload = read_workload(path)
    copy = tmp_path / "copy.jsonl.gz"
    copy.write_bytes(gzip.compress(b"".join(workload_lines(workload))))
    again = read_workload(copy)
    assert _facts(again) == _facts(workload)
    first, second = (request.prompt.tokens().tolist() for request in again.requests[2:])
    assert first[:32] == second[:32]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    workload = read_workload("chat", limit=2)
    for target in (tmp_path / "no" / "x.jsonl", tmp_path):
        with pytest.raises(ConfigError, match=r"path = .*: cannot be written: "):
            workload.save(target)
    assert list(tmp_path.iterdir()) == []


def test_options_are_checked() -> None:
    with pytest.raises(ConfigError, match="columns = 'prompt'"):
        LogOptions(columns={"prompt": "x"})
    with pytest.raises(ConfigError, match="give FIELD=COLUMN pairs"):
        columns_from("prompt_len")
    with pytest.raises(ConfigError, match="request_rate = 0"):
        read_workload("random", limit=2, load=LoadShape(request_rate=0))
    with pytest.raises(ConfigError, match="turns that follow each other"):
        read_workload("agentic", limit=2, load=LoadShape(request_rate=1))
    with pytest.raises(ConfigError, match="max_concurrency = 0"):
        read_workload("random", limit=2, load=LoadShape(max_concurrency=0))


@pytest.mark.parametrize(
    ("name", "data", "problem"),
    [
        ("spans.json", b'{"resourceSpans": true}', "holds no request"),
        (
            "spans.json",
            b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"attributes": [{"key": "gen_ai.usage.input_tokens",'
            b' "value": {"intValue": "%b"}}]}]}]}]}' % (b"9" * 5000),
            "says nothing of max_tokens",
        ),
        (
            "spans.json",
            b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"attributes": ["x"]}]}]}]}',
            "holds no request",
        ),
        (
            "usage.jsonl",
            b'{"created": 1' + b"1" * 400 + b', "usage": {"prompt_tokens": 1, "completion_tokens": 1}}',
            "is no time",
        ),
        ("odd.csv", b"a\rb,c\n1,2\n", "is of no known format"),
        ("moon.jsonl", b'{"timestamp": 1, "x": "\xff", "input_length": 1, "hash_ids": []}', "UTF-8"),
        ("report.json", b'{"benchmarks": [{"requests": {"successful": 7}}]}', "holds no request"),
    ],
)
def test_hostile_logs_get_one_error(name: str, data: bytes, problem: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(WorkloadError, match=problem):
        read_workload(path, log=LogOptions(max_bad_lines=0))


def test_a_duration_of_hundreds_of_digits_is_none(tmp_path: Path) -> None:
    line = '{"created": 1764000000, "prompt_tokens": 5, "completion_tokens": 2, "latency": 1' + "0" * 400 + "}\n"
    (only,) = read_workload(_file(tmp_path, line))
    assert (only.num_prompt_tokens, only.max_tokens) == (5, 2)


def test_a_time_of_0_among_unix_times_is_none(tmp_path: Path) -> None:
    """A gateway that was told no time writes 0: the others would come half a century later."""
    workload = read_workload(_file(tmp_path, _lines(*({"created": at, "usage": _usage(5, 2)} for at in (0, 1.764e9)))))
    assert _facts(workload) == [(0.0, 5, 2)]
    assert "1 requests without a time were left out" in _said(workload)


def test_times_that_lie_decades_apart_are_refused(tmp_path: Path) -> None:
    rows = [
        {"time": at, "id": at[:4], "usage": _usage(5, 2)} for at in ("0001-01-01T00:00:00Z", "2026-01-01T00:00:00Z")
    ]
    with pytest.raises(WorkloadError, match=r"2,025 years lie between two requests \('0001' and '2026'\): one of them"):
        read_workload(_file(tmp_path, _lines(*rows)))


def test_ids_that_are_made_are_none_of_the_log(tmp_path: Path) -> None:
    given = ["openai_000002", "x", "x", None, "openai_000002~"]
    rows = [{"id": each, "created": 1.764e9 + i, "usage": _usage(5 + i, 2)} for i, each in enumerate(given)]
    ids = [each.request_id for each in read_workload(_file(tmp_path, _lines(*rows)))]
    assert ids == ["openai_000002", "x", "openai_000002~~", "openai_000003", "openai_000002~"]


def test_of_columns_of_one_name_the_first_is_read_and_that_is_said(tmp_path: Path) -> None:
    text = "timestamp,prompt_tokens,,completion_tokens,prompt_tokens,\n1764000000,5,a,2,999,b\n"
    workload = read_workload(_file(tmp_path, text))
    assert _facts(workload) == [(0.0, 5, 2)]
    assert "the header has the column 'prompt_tokens' more than once: the first one is read" in _said(workload)


@pytest.mark.parametrize("text", ["a" + " " * 200_000 + "b", "1" * 200_000 + "x"])
def test_a_time_as_long_as_a_book_is_refused_at_once(text: str) -> None:
    with pytest.raises(ValueError, match="is no time"):
        Clock().moment(text)


def test_a_name_as_long_as_a_book_says_no_unit(tmp_path: Path) -> None:
    rows = {"created": 1.764e9, "usage": _usage(5, 2), "per" + " " * 200_000 + "x": 1, "[" + " " * 200_000: 2}
    assert _facts(read_workload(_file(tmp_path, _lines(rows)))) == [(0.0, 5, 2)]


# ---- pauses, and what a limit leaves out


def _busy(tmp_path: Path, *starts: float, each: int = 60) -> Path:
    """A log of busy stretches: ``each`` requests, some seconds apart, from every start on."""
    moments = [start + 3.0 * i + (i * i) % 5 for start in starts for i in range(each)]
    usage = (_usage(100 + i % 37, 10 + i % 11) for i in range(len(moments)))
    return _file(
        tmp_path, _lines(*({"created": 1.764e9 + at, "usage": one} for at, one in zip(moments, usage, strict=True)))
    )


def test_hours_without_requests_are_said_beside_the_rate(tmp_path: Path) -> None:
    workload = read_workload(_busy(tmp_path, 0, 6 * 3600))
    told = next(each for each in workload.remarks if each.code == "pauses")
    assert told.warning
    assert told.text.startswith("nothing arrives for 5 h 57 min, from 2 min 58 s on, of 6 h 02 min in all")
    facts = workload_facts(workload)
    assert facts["requests_per_second"] == pytest.approx(120 / float(facts["seconds"]))
    assert facts["requests_per_second_between_pauses"] == pytest.approx(1 / 3, rel=0.05)
    copied = tmp_path / "copied.jsonl"
    write_plain(workload, copied)
    assert [each.code for each in read_workload(copied).remarks].count("pauses") == 1


def test_several_nights_are_pauses_and_a_quiet_log_has_none(tmp_path: Path) -> None:
    nights = read_workload(_busy(tmp_path, 0, 40_000, 80_000, 120_000, each=9))
    assert [round(each.lasts / 3600) for each in pauses_in(nights)] == [11, 11, 11]
    assert "nothing arrives in 3 pauses, 33 h 18 min of 33 h 20 min in all" in " ".join(_said(nights))
    quiet = [{"created": 1.764e9 + 700 * i + (i * i) % 5, "usage": _usage(100 + i % 37, 10)} for i in range(60)]
    assert "pauses" not in _codes(read_workload(_file(tmp_path, _lines(*quiet))))
    drawn = read_workload(_busy(tmp_path, 0, 6 * 3600), load=LoadShape(request_rate=2.0))
    assert "pauses" not in _codes(drawn)


def test_a_limit_says_how_much_of_a_log_it_leaves_out(tmp_path: Path) -> None:
    log = _busy(tmp_path, 0, 6 * 3600)
    workload = read_workload(log, limit=60)
    assert len(workload) == 60
    assert "limit: the first 60 of 120 requests, 2 min 58 s of 6 h 02 min; what comes later was left out" in _said(
        workload
    )
    assert "pauses" not in _codes(workload), "it is in what was left out"
    assert "limit" not in _codes(read_workload(log, limit=120))
