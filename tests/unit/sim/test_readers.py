"""Every file format: what it yields, and one clear error for each way to be wrong."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tokenyard.errors import ConfigError, WorkloadError
from tokenyard.workload.load import GENERATORS, STARTS_ARE_DRAWN, read_workload
from tokenyard.workload.logs.logged import LogOptions
from tokenyard.workload.logs.reading import what_it_holds
from tokenyard.workload.readers.plain import FORMATS
from tokenyard.workload.record import Workload

Writer = Callable[..., Path]

MOONCAKE = {"timestamp": 1500, "input_length": 1100, "output_length": 7, "hash_ids": [0, 5, 6]}
AZURE_HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"
PLAIN: dict[str, Any] = {"request_id": "a", "prompt_len": 10, "max_tokens": 3}
LMCACHE: dict[str, Any] = {
    "suite": "s",
    "session": "x",
    "timestamp": 0,
    "input_length": 130,
    "output_length": 9,
    "hash_ids": [0, 1],
}


def prompts(workload: Workload) -> list[list[int]]:
    return [each.prompt.tokens().tolist() for each in workload]


@pytest.mark.parametrize("name", ["w.jsonl", "w.jsonl.gz"])
def test_mooncake(write_lines: Writer, name: str) -> None:
    later = {**MOONCAKE, "timestamp": 3000, "hash_ids": [0, 5, 9], "output_length": 0}
    workload = read_workload(write_lines(MOONCAKE, "", later, name=name))
    first, second = workload
    assert (first.arrival_time, first.num_prompt_tokens, first.max_tokens, first.after) == (1.5, 1100, 7, ())
    assert (second.arrival_time, second.max_tokens) == (3.0, 1)
    a, b = prompts(workload)
    assert a[:1024] == b[:1024]
    assert a[1024:] != b[1024:]
    assert first.output_seed != second.output_seed


def test_the_same_seed_gives_the_same_tokens(write_lines: Writer) -> None:
    path = write_lines(MOONCAKE)
    assert prompts(read_workload(path)) == prompts(read_workload(str(path)))
    assert prompts(read_workload(path)) != prompts(read_workload(path, seed=1))


def test_azure(write_lines: Writer) -> None:
    path = write_lines(
        AZURE_HEADER,
        "2023-11-16 18:17:03.9799600,40,10",
        "2023-11-16 18:17:04.0319600,0,0",
        "2023-11-16 19:17:04.0319601,40,1",
        name="azure.csv",
    )
    workload = read_workload(path)
    assert [each.arrival_time for each in workload] == pytest.approx([0.0, 0.052, 3600.0520001])
    assert [(each.num_prompt_tokens, each.max_tokens) for each in workload] == [(40, 10), (1, 1), (40, 1)]
    first, _, third = prompts(workload)
    assert first[0] != third[0]


def test_azure_times_may_name_their_offset(write_lines: Writer) -> None:
    """The traces of 2024 do."""
    rows = ("2024-05-10 00:00:00.009930+00:00,9,1", "2024-05-10T00:00:01.5Z,9,1", "2024-05-10 02:00:02+02:00,9,1")
    workload = read_workload(write_lines(AZURE_HEADER, *rows, name="azure.csv"))
    assert [each.arrival_time for each in workload] == [0.0, 1.49007, 1.99007]


def test_servegen_text_and_multimodal(write_lines: Writer) -> None:
    text = write_lines("t_s,client,input_tokens,output_tokens,reason_ratio", "0.25,3,20,5,0.9", name="a.csv")
    modal = write_lines("t_s,client,text_tokens,image_tokens,image_count,output_tokens", "1,7,5,0,0,2", name="b.csv")
    (a,), (b,) = read_workload(text), read_workload(modal)
    assert (a.arrival_time, a.num_prompt_tokens, a.max_tokens) == (0.25, 20, 5)
    assert (b.arrival_time, b.num_prompt_tokens, b.max_tokens) == (1.0, 5, 2)


def test_lmcache_sessions_are_chains(write_lines: Writer) -> None:
    rows = [
        LMCACHE,
        {**LMCACHE, "session": "y", "timestamp": 10},
        {**LMCACHE, "timestamp": 2500, "hash_ids": [0, 1, 4], "input_length": 192},
        {**LMCACHE, "timestamp": 9000, "input_length": 0, "hash_ids": [], "output_length": 0},
    ]
    workload = read_workload(write_lines(*rows), session_rate=2.0)
    x0, x1, x2, y0 = workload
    assert [each.request_id for each in workload] == ["s_x_t0", "s_x_t1", "s_x_t2", "s_y_t0"]
    assert (x0.arrival_time, x0.after, x0.is_last_step) == (0.0, (), False)
    assert (x1.after, x1.spacing, x1.gap) == (("s_x_t0",), 2.5, 0.0)
    assert (x2.after, x2.spacing, x2.is_last_step, x2.job_id) == (("s_x_t1",), 6.5, True, "s_x")
    assert (x2.num_prompt_tokens, x2.max_tokens) == (1, 1)
    assert y0.arrival_time > 0
    assert prompts(workload)[0][:128] == prompts(workload)[1][:128]
    assert len(read_workload(write_lines(*rows), limit=1)) == 3


def test_plain(write_lines: Writer) -> None:
    workload = read_workload(
        write_lines(
            {**PLAIN, "arrival_time": 2.5, "priority": -1, "output_seed": 5},
            {"request_id": "b", "prompt_token_ids": [3, 2, 1], "max_tokens": 1, "after": "a", "gap": 0.5},
            {**PLAIN, "request_id": "c", "hash_ids": [1, 2], "block_size": 5, "after": ["a", "b"], "job_id": "j"},
            {**PLAIN, "request_id": "d", "hash_ids": [1, 3], "block_size": 5, "is_last_step": True},
        )
    )
    a, b, c, d = workload
    assert (a.arrival_time, a.priority, a.output_seed, a.num_prompt_tokens) == (2.5, -1, 5, 10)
    assert (b.after, b.gap, b.prompt.tokens().tolist()) == (("a",), 0.5, [3, 2, 1])
    assert (c.after, c.job_id, d.is_last_step) == (("a", "b"), "j", True)
    assert prompts(workload)[2][:5] == prompts(workload)[3][:5]
    assert prompts(workload)[2][5:] != prompts(workload)[3][5:]


def _format_of(path: Path) -> str:
    return what_it_holds(path, None, LogOptions())[1]


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (MOONCAKE, "mooncake"),
        (LMCACHE, "lmcache"),
        (PLAIN, "plain"),
        ({"id": "s", "block_size": 64, "hash_id_scope": "local", "requests": []}, "weka"),
        (AZURE_HEADER, "azure"),
        ("\ufeff" + AZURE_HEADER, "azure"),
        ("t_s,client,input_tokens,output_tokens", "servegen"),
    ],
)
def test_formats_are_told_by_their_first_line(write_lines: Writer, line: object, name: str) -> None:
    assert _format_of(write_lines("", line)) == name
    assert name in FORMATS


def test_format_can_be_named(write_lines: Writer) -> None:
    path = write_lines({**MOONCAKE, "session": "looks like lmcache", "suite": "so it is taken for that"})
    assert _format_of(path) == "lmcache"
    assert read_workload(path, format="mooncake").requests[0].num_prompt_tokens == 1100
    with pytest.raises(ConfigError, match=r"format = 'moon': use one of: azure, lmcache, mooncake"):
        read_workload(path, format="moon")


def test_limit_and_rate(write_lines: Writer) -> None:
    path = write_lines(*({**MOONCAKE, "timestamp": 1000 * i} for i in range(5)))
    assert [each.arrival_time for each in read_workload(path, limit=3, rate_scale=2)] == [0.0, 0.5, 1.0]


_SESSION: dict[str, Any] = {
    "id": "a",
    "block_size": 64,
    "hash_id_scope": "local",
    "requests": [{"t": 0, "type": "n", "in": 64, "out": 2, "new": [[0, 1]]}],
}


@pytest.mark.parametrize(
    ("name", "lines", "said"),
    [
        ("a.csv", [AZURE_HEADER, *(f"2023-11-16 18:17:0{i}.0,9,1" for i in range(3))], "2 of 3 requests"),
        ("s.csv", ["t_s,client,input_tokens,output_tokens", *(f"{i},c,9,1" for i in range(3))], "2 of 3 requests"),
        ("m.jsonl", [MOONCAKE] * 3, "2 of 3 requests"),
        ("p.jsonl", [{**PLAIN, "request_id": i} for i in "abc"], "2 of 3 requests"),
        ("p.jsonl", [*({**PLAIN, "request_id": i} for i in "ab"), "[" * 5000], "2 of at least 3 requests"),
        ("l.jsonl", [{**LMCACHE, "session": i} for i in "abbca"], "2 of 3 sessions"),
        ("w.jsonl", [{**_SESSION, "id": i} for i in "abc"], "2 of 3 sessions"),
    ],
)
def test_a_limit_says_what_it_leaves_out(write_lines: Writer, name: str, lines: list[object], said: str) -> None:
    path = write_lines(*lines, name=name)
    workload = read_workload(path, limit=2)
    assert f"limit: the first {said}; the others were left out" in [each.text for each in workload.remarks]
    if "least" not in said:
        assert "limit" not in {each.code for each in read_workload(path, limit=3).remarks}


@pytest.mark.parametrize(
    ("option", "value"), [("limit", 0), ("limit", "3"), ("seed", -1), ("session_rate", 0), ("rate_scale", 0)]
)
def test_options_out_of_range_are_named(write_lines: Writer, option: str, value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        read_workload(write_lines(MOONCAKE), **{option: value})  # type: ignore[arg-type]
    assert caught.value.field == option


@pytest.mark.parametrize("name", sorted({*FORMATS, *GENERATORS} - set(STARTS_ARE_DRAWN)))
def test_a_session_rate_without_effect_is_refused(write_lines: Writer, name: str) -> None:
    built_in = name in GENERATORS
    with pytest.raises(ConfigError, match=f"session_rate = 2.5: {name} says itself .* lmcache and weka") as caught:
        read_workload(name if built_in else write_lines(PLAIN), format=None if built_in else name, session_rate=2.5)
    assert caught.value.field == "session_rate"


def test_sessions_start_at_the_session_rate(write_lines: Writer) -> None:
    path = write_lines(LMCACHE, {**LMCACHE, "session": "y"})
    usual, faster = (read_workload(path, session_rate=rate).requests[1].arrival_time for rate in (None, 0.5))
    assert 0 < faster == pytest.approx(usual / 10)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({**MOONCAKE, "input_length": 0}, "input_length = 0: give a whole number from 1 to 2147483647"),
        ({**MOONCAKE, "input_length": -5}, "input_length = -5: give a whole number from 1"),
        ({**MOONCAKE, "output_length": "7"}, "output_length = '7': give a whole number from 0"),
        ({**MOONCAKE, "output_length": 10**30}, "output_length = 1000000000000000000000000000000: give a whole"),
        ({**MOONCAKE, "timestamp": -1}, "timestamp = -1: give a number from 0 to 1e+09"),
        ({**MOONCAKE, "hash_ids": [0, 1, 2, 3]}, "4 hash ids for 1100 tokens: blocks of 512 allow at most 3"),
        ({**MOONCAKE, "hash_ids": [7, -1]}, "hash_ids[1] = -1: give a whole number from 0"),
        ({**MOONCAKE, "hash_ids": 7}, "hash_ids = 7: give a list"),
        ([1, 2], "the line = [1, 2]: give a JSON object"),
        ('{"timestamp": 1e999}', "timestamp: give a number from 0"),
        ({"timestamp": 0, "input_length": 3}, "output_length is missing: give a whole number from 0"),
        ('{"timestamp": 0, "inp', "is not JSON: Input data was truncated"),
        ("hello", "is not JSON"),
        ('{"timestamp": NaN}', "is not JSON"),
        ('{"more": ' + "[" * 100_000, "nested deeper"),
        ("\udcff".encode("utf-8", "surrogateescape").decode("latin-1"), "is not JSON: invalid character"),
    ],
)
def test_bad_mooncake_lines(write_lines: Writer, line: object, message: str) -> None:
    path = write_lines(MOONCAKE, line)
    with pytest.raises(WorkloadError) as caught:
        read_workload(path)
    assert str(caught.value).startswith(f"{path}:2: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompt_length": 3}, "prompt_length = 3: there is no such field; did you mean prompt_len?"),
        ({"zzz": "x" * 999}, "xxx...: there is no such field; use some of: request_id, max_tokens, limit, "),
        ({"images": [{"width": 1280}]}, "images[0].width = 1280: there is no such field; use some of: tokens, offset"),
        ({"max_tokens": 0}, "max_tokens = 0: give a whole number from 1 to 2147483647"),
        ({"max_tokens": 3.5}, "max_tokens = 3.5: give a whole number from 1"),
        ({"request_id": ""}, "request_id = '': give a text that is not empty"),
        ({"request_id": "first"}, "request_id = 'first': occurs twice"),
        ({"prompt_len": None}, "give either prompt_token_ids or prompt_len"),
        ({"prompt_token_ids": [1]}, "give either prompt_token_ids or prompt_len"),
        ({"prompt_len": None, "prompt_token_ids": []}, "give at least one token id"),
        (
            {"prompt_len": None, "prompt_token_ids": [2**31]},
            "prompt_token_ids[0] = 2147483648: give a whole number from 0",
        ),
        (
            {"prompt_len": None, "prompt_token_ids": [1], "hash_ids": [1]},
            "hash_ids and block_size belong to prompt_len",
        ),
        ({"hash_ids": [1]}, "hash_ids and block_size must be given together"),
        ({"hash_ids": [1, 2], "block_size": 16}, "2 hash ids for 10 tokens"),
        ({"after": "zzz"}, "after = 'zzz': no earlier line has this request_id"),
        ({"after": "first", "arrival_time": 3}, "give either arrival_time or after"),
        ({"gap": 3}, "gap belongs to after"),
        ({"after": "first", "gap": -3}, "gap = -3: give a number from 0"),
        ({"arrival_time": 1e300}, "arrival_time = 1e+300: give seconds since the start"),
        ({"output_seed": 2**63}, "output_seed = 9223372036854775808: give a whole number from -9223372036854775808 to"),
        ({"after": 7}, "after = 7: give a text or a list"),
        ({"is_last_step": 1}, "is_last_step = 1: give true or false"),
        ({"meta": 5}, "meta = 5: give a JSON object"),
        ({"request_id": "b", "after": "y" * 999}, "yyy...: no earlier line"),
    ],
)
def test_bad_plain_lines(write_lines: Writer, change: dict[str, Any], message: str) -> None:
    path = write_lines({**PLAIN, "request_id": "first"}, {**PLAIN, **change})
    with pytest.raises(WorkloadError) as caught:
        read_workload(path)
    assert str(caught.value).startswith(f"{path}:2: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("rows", "line", "message"),
    [
        (["TIMESTAMP,ContextTokens"], 1, "the header has no column 'GeneratedTokens'"),
        ([AZURE_HEADER, "2023-11-16 18:17:03,5"], 2, "has 2 columns, the header has 3"),
        ([AZURE_HEADER, "yesterday,5,5"], 2, "TIMESTAMP = 'yesterday': give a date and time"),
        ([AZURE_HEADER, ",5,5"], 2, "TIMESTAMP = '': give a date and time"),
        *(
            ([AZURE_HEADER, f"{moment},5,5"], 2, f"TIMESTAMP = '{moment}': give a date and time")
            for moment in ("now", "today", "17", "2147483648", "-5", "2023-11-16", "2023-02-30 18:17:03")
        ),
        ([AZURE_HEADER, "2023-11-16 18:17:03,5,5", "9999-01-01 00:00:00,5,5"], 3, "is decades after the first row"),
        ([AZURE_HEADER, "2023-11-16 18:17:03,-5,5"], 2, "ContextTokens = '-5': give a whole number from 0"),
        ([AZURE_HEADER, "2023-11-16 18:17:03,5,many"], 2, "GeneratedTokens = 'many': give a whole number from 0"),
        ([AZURE_HEADER, "2023-11-16 18:17:03,5,5", "2023-11-16 18:17:02,5,5"], 3, "is earlier than the row before"),
        (["t_s,client,output_tokens", "0,1,2"], 1, "the header has neither 'input_tokens'"),
        (["t_s,client,input_tokens,output_tokens", "-1,1,2,3"], 2, "t_s = '-1': give a number of seconds"),
        (["t_s,client,input_tokens,output_tokens", "nan,1,2,3"], 2, "t_s = 'nan': give a number of seconds"),
        (["t_s,client,input_tokens,output_tokens", "soon,1,2,3"], 2, "t_s = 'soon': give a number of seconds"),
        (["", "", "[" * 100_000], 3, "nested deeper"),
        ([AZURE_HEADER, "2023-11-16 18:17:03,1_000,5"], 2, "ContextTokens = '1_000': give a whole number from 0"),
        ([AZURE_HEADER, f"2023-11-16 18:17:03,{'9' * 5000},5"], 2, "999...: give a whole number from 0"),
        (["", "a,b,c"], 2, "is of no known format: Read are azure"),
    ],
)
def test_bad_csv(write_lines: Writer, rows: list[str], line: int, message: str) -> None:
    path = write_lines(*rows, name="w.csv")
    with pytest.raises(WorkloadError) as caught:
        read_workload(path)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert message in str(caught.value)


@pytest.mark.parametrize("mark_at", [0, 1])
def test_a_byte_order_mark_is_no_part_of_a_line(tmp_path: Path, mark_at: int) -> None:
    lines = [json.dumps({**PLAIN, "request_id": name}).encode() for name in "ab"]
    lines[mark_at] = b"\xef\xbb\xbf" + lines[mark_at]
    path = tmp_path / "w.jsonl"
    path.write_bytes(b"\r\n".join(lines))
    assert [each.request_id for each in read_workload(path)] == ["a", "b"]


def test_json_that_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "w.jsonl"
    path.write_bytes(b'{"request_id": "\xe9", "prompt_len": 1, "max_tokens": 1}\n')
    with pytest.raises(WorkloadError, match=r"w\.jsonl:1: is not UTF-8 text"):
        read_workload(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes are Unix's")
def test_what_is_read_more_than_once_is_a_file(tmp_path: Path) -> None:
    """Otherwise the first look at it, which tells the format, would take lines away, or wait for ever."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(WorkloadError, match=r"pipe: is no file on a disk: .*save it to a file"):
        read_workload(tmp_path / "pipe")


def test_csv_that_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "w.csv"
    path.write_bytes(AZURE_HEADER.encode() + b"\n\xff\xfe,1,1\n")
    with pytest.raises(WorkloadError, match=r"w\.csv:2: is not UTF-8 text"):
        read_workload(path)


def test_lmcache_time_cannot_run_backwards(write_lines: Writer) -> None:
    path = write_lines({**LMCACHE, "timestamp": 5}, {**LMCACHE, "timestamp": 4})
    with pytest.raises(WorkloadError, match=":2: timestamp = 4: is earlier"):
        read_workload(path)


def test_truncated_gzip(write_lines: Writer) -> None:
    path = write_lines(*(dict(MOONCAKE, timestamp=i * i) for i in range(2000)), name="w.jsonl.gz")
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(WorkloadError, match=r"w.jsonl.gz:\d+: compressed data is cut off or damaged"):
        read_workload(path)


def test_damaged_gzip(write_lines: Writer) -> None:
    path = write_lines(*(dict(MOONCAKE, timestamp=i * i) for i in range(2000)), name="w.jsonl.gz")
    data = bytearray(path.read_bytes())
    data[len(data) // 2 :] = bytes(len(data) - len(data) // 2)
    path.write_bytes(data)
    with pytest.raises(WorkloadError, match=r"w\.jsonl\.gz:"):
        read_workload(path)


@pytest.mark.parametrize(("name", "content"), [("w.jsonl", ""), ("w.jsonl", "\n\n"), ("w.jsonl.gz", "")])
def test_empty_file(write_lines: Writer, name: str, content: str) -> None:
    path = write_lines(content, name=name)
    with pytest.raises(WorkloadError, match=r"w.jsonl(.gz)?: is empty"):
        read_workload(path)


def test_header_alone_is_an_empty_workload(write_lines: Writer) -> None:
    path = write_lines(AZURE_HEADER, name="w.csv")
    with pytest.raises(WorkloadError, match="holds no request"):
        read_workload(path)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="is neither a file nor a built-in workload \\(agentic, chat"):
        read_workload("agentik")
    with pytest.raises(WorkloadError, match="is a directory: name a workload's file"):
        read_workload(tmp_path)
