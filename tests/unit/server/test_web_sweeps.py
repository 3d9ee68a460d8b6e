"""``/sweep`` and ``/api/sweeps``: sweeps among the traces."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.server.web_client import Client, client_of, refused

from tokenyard.questions.sweeping.rows import Row

SLOW = Row(
    settings={"max_num_seqs": 1}, figures={"ttft_ms.p90": 900.0}, requests=4, traces=["a1/sched_trace.fcfs.steps.jsonl"]
)
FAST = Row(settings={"max_num_seqs": 8}, figures={"ttft_ms.p90": 90.0}, requests=4)


def sweep(folder: Path, *rows: Row, rest: bytes = b"", **told: Any) -> Path:
    folder.mkdir(parents=True)
    (folder / "sweep.json").write_bytes(msgspec.json.encode({"workload": "chat", **told}))
    (folder / "finished.jsonl").write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows) + rest)
    return folder


def ask(client: Client, path: object) -> Any:
    return client.get("/sweep", params={"path": str(path)})


def test_sweeps_below_the_folders_are_listed(tmp_path: Path) -> None:
    sweep(tmp_path / "b" / "monday", SLOW)
    sweep(tmp_path / "tuesday", SLOW)
    (tmp_path / "none").mkdir()
    assert client_of([tmp_path]).get("/api/sweeps").json() == [
        {"name": "b/monday", "path": str(tmp_path / "b" / "monday")},
        {"name": "tuesday", "path": str(tmp_path / "tuesday")},
    ]
    (only,) = client_of([tmp_path / "tuesday"]).get("/api/sweeps").json()
    assert only["name"] == "tuesday"


def test_the_page_of_a_sweep_leads_to_its_traces_and_runs_its_own_script_alone(tmp_path: Path) -> None:
    folder = sweep(tmp_path / "monday", SLOW, FAST, rest=b'{"settings": {"max_num', workload="<log>")
    answer = ask(client_of([tmp_path]), folder)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'sha256-" in policy
    assert "script-src 'unsafe-inline'" not in policy
    assert "Sweep: &lt;log&gt;" in answer.text
    assert answer.text.count("<tr ") == 2, "a line that is cut off is none yet"
    assert f'data-trace="{folder}/traces/a1/sched_trace.fcfs.steps.jsonl"' in answer.text
    assert answer.text.count("data-trace=") == 1, "the other variant has no trace"


@pytest.mark.parametrize("path", ["", "relative", "/etc", "/", "x\0y"])
def test_folders_outside_are_refused(tmp_path: Path, path: str) -> None:
    sweep(tmp_path / "inside", SLOW)
    refused(ask(client_of([tmp_path / "inside"]), path), 403, "path")
    refused(ask(client_of([tmp_path / "inside"]), f"{tmp_path}/inside/../inside"), 403, "path")


def test_what_is_no_sweep_is_said(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "is no sweep" in refused(ask(client_of([tmp_path]), tmp_path / "empty"), 404, "path")
    broken = sweep(tmp_path / "broken", rest=b'{"settings": 3}\n')
    assert "no row" in refused(ask(client_of([tmp_path]), broken), 422, "path")


def test_a_hostile_sweep_harms_nobody(tmp_path: Path) -> None:
    """Names that would be elements, numbers at the ends of what a float holds, JSON without end."""
    name = "<script>alert(1)</script>\x1b[2J"
    rows = [
        Row(
            settings={name: value},
            figures={"ttft_ms.p90": ttft, "tpot_ms.p90": 1e-320},
            held_by=name,
            traces=[f'"><img src=x>{name}'],
        )
        for value, ttft in ((name, 1.7e308), ("b", -1.7e308), (1e300, None))
    ]
    folder = sweep(tmp_path / "bad", *rows, workload=name)
    text = ask(client_of([tmp_path]), folder).text
    assert text.count("<script>") == 1
    assert "<img" not in text
    assert text.count("<tr ") == 3
    (folder / "sweep.json").write_bytes(b"[" * 100_000)
    assert "no JSON" in refused(ask(client_of([tmp_path]), folder), 422, "path")
    (folder / "finished.jsonl").unlink()
    os.mkfifo(folder / "finished.jsonl")
    refused(ask(client_of([tmp_path]), folder), 404, "path")


def test_links_lead_nowhere_else(tmp_path: Path) -> None:
    secret = sweep(tmp_path / "secret", SLOW)
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "link").symlink_to(secret)
    refused(ask(client_of([inside]), inside / "link"), 403, "path")
    linked = inside / "files"
    linked.mkdir()
    for name in ("sweep.json", "finished.jsonl"):
        (linked / name).symlink_to(secret / name)
    refused(ask(client_of([inside]), linked), 404, "path")
    assert client_of([inside]).get("/api/sweeps").json() == []
