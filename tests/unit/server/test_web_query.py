"""``/api/query``: questions are answered, bounded, and reach nothing but the trace."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.server.conftest import STEPS
from tests.unit.server.web_client import Client, refused, running

from tokenyard.trace.columnar.convert import convert
from tokenyard.trace.columnar.query import Limits

pytest.importorskip("pyarrow", reason="pyarrow is not installed (extra: analysis)")
pytest.importorskip("duckdb", reason="duckdb is not installed (extra: analysis)")


@pytest.fixture
def client(folder: Path) -> Iterator[Client]:
    with running([folder], limits=Limits(seconds=1.0, memory_mb=128, rows=100)) as client:
        yield client


def answer(client: Client, path: Path, sql: str) -> dict[str, Any]:
    response = client.ask(path, sql)
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


def test_an_answer(client: Client, steps: Path) -> None:
    body = answer(client, steps, "select count(*) as n, max(ts) as last from snapshots")
    assert [column["name"] for column in body["columns"]] == ["n", "last"]
    assert (body["rows"], body["truncated"]) == ([[STEPS, (STEPS - 1) / 4]], False)


def test_steps_and_requests_together(client: Client, steps: Path) -> None:
    sql = "select count(*) from snapshots join requests using (step)"
    assert answer(client, steps, sql)["rows"] == [[STEPS]]


def test_a_parquet_trace_is_asked_as_it_is(client: Client, steps: Path) -> None:
    twin = steps.with_name("c.steps.parquet")
    convert(steps, twin, "steps")
    assert answer(client, twin, "select max(step) from steps")["rows"] == [[STEPS - 1]]


def test_rows_are_bounded(client: Client, steps: Path) -> None:
    body = answer(client, steps, "select * from range(1000)")
    assert (len(body["rows"]), body["truncated"]) == (100, True)


def test_a_file_that_has_grown_is_read_anew(client: Client, steps: Path) -> None:
    sql = "select max(step) from steps"
    assert answer(client, steps, sql)["rows"] == [[STEPS - 1]]
    with steps.open("ab") as file:
        file.write(b'{"event":"step_snapshot","step":77}\n')
    assert answer(client, steps, sql)["rows"] == [[77]]


@pytest.mark.parametrize(
    "sql",
    [
        "select * from read_text('{secret}')",
        "select * from '{secret}'",
        "attach '{secret}.db'",
        "copy (select 1) to '{secret}'",
        "explain analyze copy (select 1) to '{steps}'",
        "set enable_external_access = true",
        "select 1; select 2",
        "load httpfs",
    ],
)
def test_nothing_else_is_reached(client: Client, folder: Path, steps: Path, sql: str) -> None:
    secret = folder.parent / "secret.steps.jsonl"
    before = steps.read_bytes(), secret.read_bytes()
    response = client.ask(steps, sql.format(secret=secret, steps=steps))
    refused(response, 422, "sql")
    assert "hunter2" not in response.text
    assert (steps.read_bytes(), secret.read_bytes()) == before


def test_time_is_bounded(client: Client, steps: Path) -> None:
    sql = "select sum(a.i * b.i * c.i) from range(9999) a(i), range(9999) b(i), range(9999) c(i)"
    assert "took longer than 1 s" in refused(client.ask(steps, sql), 422, "sql")


def test_memory_is_bounded(client: Client, steps: Path) -> None:
    sql = "select max(len(s)) from (select string_agg(i::varchar, '-') s from range(50000000) t(i))"
    assert "needs more than 128 MB" in refused(client.ask(steps, sql), 422, "sql")


def test_values_that_json_has_no_word_for(client: Client, steps: Path) -> None:
    sql = (
        "select 'nan'::double, 1.50::decimal(4,2), '\\xff'::blob, interval 1 day, [1, null], {{'a': 1}}, 2::hugeint**90"
    )
    assert len(answer(client, steps, sql.replace("{{", "{").replace("}}", "}"))["rows"][0]) == 7


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"path":1,"sql":"select 1"}', b'{"sql":"select 1"}', b"\xff", b"[" * 9999]
)
def test_a_body_that_is_no_question(client: Client, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    refused(client.request("POST", "/api/query", content=body, headers=headers), 400, "body")


def test_a_form_cannot_ask(client: Client, steps: Path) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        response = client.request("POST", "/api/query", content=b"{}", headers={"Content-Type": kind})
        refused(response, 415, "Content-Type")
    refused(client.get("/api/query"), 405, "method")


def test_a_body_is_bounded(client: Client, steps: Path) -> None:
    refused(client.ask(steps, "select 1 -- " + "x" * 70_000), 413, "body")


def test_other_files_cannot_be_asked(client: Client, folder: Path) -> None:
    refused(client.ask(folder.parent / "secret.steps.jsonl", "select * from steps"), 403, "path")
    refused(client.ask(folder / "nothing.steps.jsonl", "select * from steps"), 404, "path")
