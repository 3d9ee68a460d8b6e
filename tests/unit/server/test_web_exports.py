"""``/api/export``: what `tokenyard export` writes, of what the server was started with."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.server.web_client import Client, client_of, refused

PAGE = "<!doctype html><html><body><p>viewer</p></body></html>"


@pytest.fixture
def client(folder: Path, tmp_path: Path) -> Client:
    page = tmp_path / "viewer.html"
    page.write_text(PAGE)
    return client_of([folder], page=page)


def exported(client: Client, path: Path, form: str, **more: str) -> bytes:
    response = client.get("/api/export", params={"path": str(path), "format": form, **more})
    assert response.status_code == 200, response.text
    assert response.headers["content-disposition"].startswith("attachment; filename*=UTF-8''sched_trace.fcfs.")
    return response.content


def test_a_page_holds_the_trace(client: Client, steps: Path) -> None:
    both = exported(client, steps, "html").decode()
    assert both.startswith("<!doctype html><html><body><p>viewer</p><script")
    assert re.search(r'data-requests-name="sched_trace.fcfs.requests.jsonl"', both)
    assert "data-requests-name" not in exported(client, steps, "html", requests="0").decode()
    assert "data-state" not in both
    evil = exported(client, steps, "html", state='step=4&filter="><b>').decode()
    assert 'data-state="step=4&amp;filter=&quot;&gt;&lt;b&gt;"' in evil


@pytest.mark.slow
def test_perfetto_is_what_the_command_writes(client: Client, steps: Path, tmp_path: Path) -> None:
    pytest.importorskip("perfetto")
    there = tmp_path / "command.pftrace"
    command = [sys.executable, "-m", "tokenyard.cli.main", "export", str(steps.parent), "--perfetto", str(there)]
    subprocess.run(command, check=True, capture_output=True)
    assert exported(client, steps, "perfetto") == there.read_bytes()


def test_what_is_refused(client: Client, steps: Path, folder: Path) -> None:
    asked = {"path": str(steps), "format": "docx"}
    assert refused(client.get("/api/export", params=asked), 400, "format") == "must be html or perfetto"
    long = {"path": str(steps), "format": "html", "state": "x" * 8_001}
    assert refused(client.get("/api/export", params=long), 400, "state") == "must be at most 8,000 characters"
    secret = folder.parent / "secret.steps.jsonl"
    refused(client.get("/api/export", params={"path": str(secret), "format": "html"}), 403, "path")
    empty = folder / "empty.steps.jsonl"
    empty.write_text("")
    assert "no record" in refused(client.get("/api/export", params={"path": str(empty), "format": "html"}), 422, "path")


def test_a_link_out_of_the_folder_is_no_requests_file(client: Client, folder: Path, tmp_path: Path) -> None:
    other = folder / "other"
    other.mkdir()
    shutil.copy(folder / "run1" / "sched_trace.fcfs.steps.jsonl", other / "x.steps.jsonl")
    (other / "x.requests.jsonl").symlink_to(tmp_path / "secret.steps.jsonl")
    asked = {"path": str(other / "x.steps.jsonl"), "format": "html"}
    refused(client.get("/api/export", params=asked), 403, "path")


def test_what_the_server_lacks(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = {"duckdb", "perfetto"}
    monkeypatch.setattr("tokenyard.web.queries.find_spec", lambda name: None if name in absent else object())
    assert client.get("/api/lacks").json() == {
        "query": "duckdb is not installed: run  pip install 'tokenyard[analysis]'",
        "perfetto": "perfetto is not installed: run  pip install 'tokenyard[perfetto]'",
    }
    absent.clear()
    assert client.get("/api/lacks").json() == {}
