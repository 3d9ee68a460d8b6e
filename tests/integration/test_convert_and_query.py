"""``tokenyard convert`` and ``query``: a trace as Parquet and back, and questions to it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from tests.integration.command import Outcome, call

pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed (extra: analysis)")
pytest.importorskip("duckdb", reason="duckdb is not installed (extra: analysis)")
CROWDED = [
    *("--gpu", "l4", "--model", "llama-3.2-1b", "--num-gpu-blocks-override", "129", "--max-model-len", "2048"),
    *(
        "--limit",
        "5",
        "--rate-scale",
        "300",
        "--max-num-seqs",
        "3",
        "--skip-refused",
        "--no-scheduler-reserve-full-isl",
    ),
]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pair of files in which requests wait, for a place and for memory."""
    directory = tmp_path_factory.mktemp("trace")
    outcome = call("run", "chat", *CROWDED, "--record-requests", "--trace", directory, cwd=directory)
    assert outcome.code == 0, outcome.stderr
    return directory


@pytest.fixture(scope="module")
def columns(trace: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("columns")
    outcome = call("convert", trace, "--output", directory, cwd=directory)
    assert outcome.code == 0, outcome.stderr
    return directory


def file_of(directory: Path, kind: str) -> Path:
    (path,) = directory.glob(f"*.{kind}.*")
    return path


def asked(trace: Path, sql: str, *flags: str) -> list[list[Any]]:
    outcome = call("query", trace, sql, "--json", *flags, cwd=trace if trace.is_dir() else trace.parent)
    assert outcome.code == 0, outcome.stderr
    rows: list[list[Any]] = json.loads(outcome.stdout)["rows"]
    return rows


@pytest.mark.parametrize("compression", ["zstd", "gzip", "snappy", "none"])
def test_there_and_back_to_the_byte(trace: Path, tmp_path: Path, compression: str) -> None:
    assert call("convert", trace, "--output", "p", "--compression", compression, cwd=tmp_path).code == 0
    assert call("convert", "p", "--output", "j", cwd=tmp_path).code == 0
    for kind in ("steps", "requests"):
        back = file_of(tmp_path / "j", kind)
        assert back.name == file_of(trace, kind).name
        assert back.read_bytes() == file_of(trace, kind).read_bytes()


def test_it_is_much_smaller(trace: Path, columns: Path) -> None:
    for kind in ("steps", "requests"):
        assert file_of(columns, kind).stat().st_size * 15 < file_of(trace, kind).stat().st_size


def test_no_line_of_ours_is_kept_as_it_is(columns: Path) -> None:
    for kind in ("steps", "requests"):
        assert pq.read_table(file_of(columns, kind), columns=["_raw"])["_raw"].null_count == len(
            pq.read_table(file_of(columns, kind), columns=["step"])
        )


def test_the_report_is_the_same(trace: Path, columns: Path) -> None:
    reports = []
    for directory in (trace, columns):
        report = json.loads(call("report", directory, "--json", cwd=directory).stdout)
        del report["header"]["source"]
        reports.append(report)
    assert reports[0] == reports[1]


def test_gzipped_text_both_ways(trace: Path, tmp_path: Path) -> None:
    text = file_of(trace, "steps").read_bytes()
    (tmp_path / "a.steps.jsonl.gz").write_bytes(gzip.compress(text))
    assert call("convert", "a.steps.jsonl.gz", cwd=tmp_path).code == 0
    assert call("convert", "a.steps.parquet", "--output", "b.jsonl.gz", cwd=tmp_path).code == 0
    assert gzip.decompress((tmp_path / "b.jsonl.gz").read_bytes()) == text


def test_what_was_done_as_json(trace: Path, tmp_path: Path) -> None:
    source = file_of(trace, "steps")
    done = json.loads(call("convert", source, "--output", "x.parquet", "--json", cwd=tmp_path).stdout)["files"]
    assert [each["lines"] for each in done] == [source.read_bytes().count(b"\n")]
    assert done[0]["json_bytes"] == done[0]["source_bytes"] == source.stat().st_size


def test_bad_lines_are_counted_and_kept(tmp_path: Path) -> None:
    text = b'{"event":"step_snapshot","step":0}\n{"event":\n\n[1]\n{"event":"step_snapshot","step":1,"tier":{"a":1}}'
    (tmp_path / "a.steps.jsonl").write_bytes(text)
    outcome = call("convert", "a.steps.jsonl", cwd=tmp_path)
    assert outcome.code == 0
    assert "2 lines are no JSON object, the first is line 2; they are kept" in outcome.stderr
    read = [json.loads(call("report", f"a.steps.{end}", "--json", cwd=tmp_path).stdout) for end in ("jsonl", "parquet")]
    notes = [report["reading"] for report in read]
    assert [bad["line"] for bad in notes[1]["first_bad_lines"]] == [2, 4]
    assert [bad["problem"] for bad in notes[0]["first_bad_lines"]] == [
        bad["problem"] for bad in notes[1]["first_bad_lines"]
    ]
    assert call("convert", "a.steps.parquet", "--output", "b.jsonl", cwd=tmp_path).code == 0
    assert (tmp_path / "b.jsonl").read_bytes() == text + b"\n"
    assert asked(tmp_path / "a.steps.parquet", "select step, _extra from snapshots") == [
        [0, None],
        [1, '{"tier":{"a":1}}'],
    ]


def test_a_cut_off_source_is_converted_as_far_as_it_goes(trace: Path, tmp_path: Path) -> None:
    packed = gzip.compress(file_of(trace, "steps").read_bytes())
    (tmp_path / "a.steps.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    outcome = call("convert", "a.steps.jsonl.gz", cwd=tmp_path)
    assert outcome.code == 0
    assert "compressed data is cut off or damaged after line" in outcome.stderr
    assert asked(tmp_path / "a.steps.parquet", "select count(*) > 10 from steps") == [[True]]


def test_a_damaged_twin_is_an_error(columns: Path, tmp_path: Path) -> None:
    whole = file_of(columns, "steps").read_bytes()
    (tmp_path / "cut.steps.parquet").write_bytes(whole[: len(whole) // 2])
    for command in ("report", "convert"):
        call(command, "cut.steps.parquet", cwd=tmp_path).refused("cut.steps.parquet", "no Parquet file")
    call("query", "cut.steps.parquet", "select 1", cwd=tmp_path).refused("cut.steps.parquet", "its end is missing")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cut.steps.parquet"]


def test_a_byte_that_changed_on_the_disk_is_noticed(columns: Path, tmp_path: Path) -> None:
    """The pages have checksums: what was read wrongly is not passed on."""
    twin = file_of(columns, "steps")
    pages = pq.ParquetFile(twin).metadata.row_group(0).column(0)
    changed = bytearray(twin.read_bytes())
    changed[pages.data_page_offset + pages.total_compressed_size // 2] ^= 1
    (tmp_path / "a.steps.parquet").write_bytes(changed)
    call("convert", "a.steps.parquet", cwd=tmp_path).refused("a.steps.parquet", "damaged")
    assert not (tmp_path / "a.steps.jsonl").exists()


def test_a_twin_of_the_first_releases_is_read(trace: Path, columns: Path, tmp_path: Path) -> None:
    """They had one column and some footer keys more, for giving back the spacing of lines that are not ours."""
    table = pq.read_table(file_of(columns, "steps"))
    table = table.append_column("_layout", [range(len(table))])
    footer = {"tokenyard.kind": "steps", "tokenyard.columnar_version": "1", "tokenyard.layouts": '[["compact",[],""]]'}
    pq.write_table(table.replace_schema_metadata(footer), tmp_path / "a.steps.parquet")
    assert call("convert", "a.steps.parquet", cwd=tmp_path).code == 0
    assert (tmp_path / "a.steps.jsonl").read_bytes() == file_of(trace, "steps").read_bytes()


def test_a_newer_version_and_a_damaged_footer_are_refused(columns: Path, tmp_path: Path) -> None:
    table = pq.read_table(file_of(columns, "steps"))
    for version, said in (("2", "columnar_version = 2"), ("two", "footer is damaged")):
        pq.write_table(
            table.replace_schema_metadata({"tokenyard.columnar_version": version}), tmp_path / "a.steps.parquet"
        )
        call("report", "a.steps.parquet", cwd=tmp_path).refused("a.steps.parquet", said)


def test_nothing_is_overwritten_unasked(trace: Path, tmp_path: Path) -> None:
    source = file_of(trace, "steps")
    (tmp_path / "x.parquet").write_text("mine")
    call("convert", source, "--output", "x.parquet", cwd=tmp_path).refused("x.parquet", "--overwrite")
    assert (tmp_path / "x.parquet").read_text() == "mine"
    assert call("convert", source, "--output", "x.parquet", "--overwrite", cwd=tmp_path).code == 0
    call("convert", source, "--output", source, "--overwrite", cwd=tmp_path).refused("is the source itself")
    call("convert", source, "--output", "x.csv", cwd=tmp_path).refused("x.csv", "must end in .parquet")


def test_another_programs_parquet_is_read(columns: Path, tmp_path: Path) -> None:
    """Filtered by pandas, say: without our footer, with other types, without most of the columns."""
    table = pq.read_table(file_of(columns, "steps")).select(["event", "step", "ts", "free_blocks", "num_running"])
    table = table.set_column(1, "step", table["step"].cast("int64")).replace_schema_metadata(None)
    pq.write_table(table, tmp_path / "mine.parquet")
    report = json.loads(call("report", "mine.parquet", "--json", cwd=tmp_path).stdout)
    whole = json.loads(call("report", columns, "--json", cwd=tmp_path).stdout)
    assert (report["steps"], report["running"]) == (whole["steps"], whole["running"])
    sql = "select count(*), max(num_running) from snapshots"
    assert asked(tmp_path / "mine.parquet", sql) == asked(columns, sql)


# ---- query


def answers(trace: Path) -> list[Any]:
    return [
        asked(trace, "select event, count(*) from steps group by all order by event"),
        asked(trace, "select sum(num_requests), max(kv.needed) from outcomes"),
        asked(trace, "select req_id, num_output_tokens from finishes order by all limit 5"),
        asked(trace, "select queue, count(distinct req_id) from requests group by all order by all"),
    ]


def test_text_and_parquet_answer_alike(trace: Path, columns: Path) -> None:
    rows = answers(columns)
    assert rows == answers(trace)
    assert all(value is not None for answer in rows for row in answer for value in row)


def test_an_answer_agrees_with_the_lines(trace: Path, columns: Path) -> None:
    records = [json.loads(line) for line in file_of(trace, "steps").read_text().splitlines()]
    expected = sum(sum(r["num_scheduled_tokens"].values()) for r in records if r["event"] == "step_decision")
    sql = "select sum(list_sum(map_values(num_scheduled_tokens))) from decisions"
    assert asked(columns, sql) == [[expected]]


def test_an_answer_as_a_table(columns: Path) -> None:
    outcome = call("query", columns, "select step, policy from snapshots order by step", "--limit", "2", cwd=columns)
    assert [line.split() for line in outcome.stdout.splitlines()] == [["step", "policy"], ["0", "fcfs"], ["1", "fcfs"]]
    assert "more than 2 rows" in outcome.stderr


def refused(columns: Path, sql: str) -> Outcome:
    return call("query", columns, sql, cwd=columns)


def test_a_wrong_question_is_an_error(columns: Path) -> None:
    refused(columns, "selec 1").refused("sql = 'selec 1'", "syntax error")
    refused(columns, "select 1; select 2").refused("2 statements")
    refused(columns, "").refused("0 statements")
    refused(columns, "select nothing from steps").refused("nothing")


def test_rows_wider_than_the_terminal_stand_below_each_other(columns: Path) -> None:
    outcome = call(
        "query", columns, "select * from snapshots order by step limit 2", cwd=columns, env={"COLUMNS": "80"}
    )
    assert outcome.code == 0, outcome.stderr
    assert "…" not in outcome.stdout
    lines = [line.split() for line in outcome.stdout.splitlines()]
    assert ["row", "2"] in lines
    assert ["step", "1"] in lines
