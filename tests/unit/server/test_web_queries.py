"""``/api/query``: one SELECT over a trace, and nothing else of the machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.server.conftest import STEPS
from tests.unit.server.web_client import Client, client_of, refused

from tokenyard.trace.query import QueryLimits
from tokenyard.web import queries

pytest.importorskip("duckdb")


@pytest.fixture
def client(folder: Path) -> Client:
    return client_of([folder])


def ask(client: Client, path: Path, sql: str) -> dict[str, Any]:
    response = client.get("/api/query", params={"path": str(path), "sql": sql})
    assert response.status_code == 200, response.text
    return dict(response.json())


@pytest.mark.slow
def test_both_tables_are_there(client: Client, steps: Path) -> None:
    answer = ask(client, steps, "SELECT count(*) AS n, max(step) AS last FROM snapshots")
    assert [column["name"] for column in answer["columns"]] == ["n", "last"]
    assert answer["rows"] == [[STEPS, STEPS - 1]]
    assert ask(client, steps, "SELECT count(*) FROM requests")["rows"] == [[STEPS]]


def test_rows_are_limited(client: Client, steps: Path) -> None:
    answer = ask(client, steps, "SELECT * FROM range(5000)")
    assert (len(answer["rows"]), answer["truncated"]) == (1_000, True)


@pytest.mark.parametrize(
    "sql", ["COPY steps TO 'x.csv'", "SELECT 1; SELECT 2", "SELECT * FROM no_such_table", "SET threads = 1"]
)
def test_only_one_select(client: Client, steps: Path, sql: str) -> None:
    refused(client.get("/api/query", params={"path": str(steps), "sql": sql}), 422, "sql")


@pytest.mark.slow
def test_other_files_cannot_be_read(client: Client, steps: Path, folder: Path) -> None:
    for path in (folder / "run1" / "notes.txt", folder.parent / "secret.steps.jsonl"):
        asked = {"path": str(steps), "sql": f"SELECT * FROM read_text('{path}')"}
        response = client.get("/api/query", params=asked)
        refused(response, 422, "sql")
        assert "hunter2" not in response.text
    secret = {"path": str(folder.parent / "secret.steps.jsonl"), "sql": "SELECT 1"}
    refused(client.get("/api/query", params=secret), 403, "path")


@pytest.mark.slow
def test_a_question_has_an_end(client: Client, steps: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "QUERY_LIMITS", QueryLimits(seconds=1.0, memory_mb=512, rows=10))
    endless = (
        "SELECT count(*) FROM range(100000) a, range(100000) b, range(1000) c WHERE a.range * b.range % 7 = c.range"
    )
    asked = {"path": str(steps), "sql": endless}
    assert "longer than 1 s" in refused(client.get("/api/query", params=asked), 422, "sql")
    refused(client.get("/api/query", params={"path": str(steps), "sql": " "}), 400, "sql")


def test_a_large_file_is_not_converted(client: Client, steps: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "MOST_CONVERTED", 10)
    asked = {"path": str(steps), "sql": "SELECT 1"}
    assert "tokenyard convert" in refused(client.get("/api/query", params=asked), 422, "path")
