"""``/api/traces``: what there is, and what it says about itself."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

from tests.unit.server.conftest import STEPS, lines_of, steps_text
from tests.unit.server.web_client import client_of

from tokenyard.server.web import catalog, trace_summary


def listed(*paths: Path) -> list[dict[str, Any]]:
    response = client_of(paths).get("/api/traces")
    assert response.status_code == 200
    found: list[dict[str, Any]] = response.json()
    return found


def test_a_pair_with_its_facts(folder: Path, steps: Path) -> None:
    (trace,) = listed(folder)
    requests = steps.with_name("sched_trace.fcfs.requests.jsonl")
    assert trace["name"] == "run1"
    assert (trace["steps"], trace["requests"]) == ([str(steps)], [str(requests)])
    assert (trace["steps_bytes"], trace["requests_bytes"]) == (steps.stat().st_size, requests.stat().st_size)
    assert (trace["gpu"], trace["model"], trace["policy"], trace["host"]) == ("l4", "toy", "fcfs", "replay")
    assert (trace["total_blocks"], trace["first_step"], trace["last_step"]) == (99, 0, STEPS - 1)
    assert trace["annotations"] is None
    assert len(trace["date"]) == len("2026-04-19 16:02")


def test_newest_first_and_named_by_folder(folder: Path) -> None:
    for i, name in enumerate(("b", "a/deeper")):
        path = folder / name / "sched_trace.x.steps.jsonl"
        path.parent.mkdir(parents=True)
        path.write_bytes(steps_text(2))
        os.utime(path, (i, i))
    assert [trace["name"] for trace in listed(folder)] == ["run1", "a/deeper", "b"]


def test_several_traces_of_one_folder_are_told_apart(folder: Path, steps: Path) -> None:
    steps.with_name("sched_trace.lifo.steps.jsonl").write_bytes(steps_text(2))
    assert {trace["name"] for trace in listed(folder)} == {"run1/sched_trace.fcfs", "run1/sched_trace.lifo"}


def test_the_same_trace_in_several_packings_is_one(folder: Path, steps: Path) -> None:
    steps.with_name(steps.name + ".gz").write_bytes(gzip.compress(steps.read_bytes()))
    (trace,) = listed(folder)
    assert (trace["steps"], trace["format"]) == ([str(steps)], "jsonl")


def test_facts_are_read_anew_when_a_file_changes(folder: Path, steps: Path) -> None:
    client = client_of([folder])
    assert client.get("/api/traces").json()[0]["last_step"] == STEPS - 1
    with steps.open("ab") as file:
        file.write(lines_of({"event": "step_snapshot", "step": 77}) + b'{"event":"step_snapshot","st')
    assert client.get("/api/traces").json()[0]["last_step"] == 77


def test_what_cannot_be_read_is_listed_without_facts(folder: Path, steps: Path) -> None:
    steps.write_bytes(b"\x00garbage\n[[[[\n")
    steps.with_name("x.steps.jsonl.gz").write_bytes(b"no gzip")
    steps.with_name("y.steps.parquet").write_bytes(b"no parquet")
    traces = listed(folder)
    assert len(traces) == 3
    assert {trace["last_step"] for trace in traces} == {None}


def test_traces_of_other_emitters_say_less(folder: Path, steps: Path) -> None:
    steps.write_bytes(
        lines_of({"event": "step_snapshot", "step": 3, "policy": "cpu_offload", "max_num_running_reqs": 5})
    )
    (trace,) = listed(folder)
    assert (trace["policy"], trace["max_num_seqs"], trace["gpu"], trace["model"]) == ("cpu_offload", 5, None, None)


def test_hidden_folders_and_deep_ones_are_left_alone(folder: Path) -> None:
    for name in (".git", "node_modules", "/".join("abcdefghij")):
        path = folder / name / "t.steps.jsonl"
        path.parent.mkdir(parents=True)
        path.write_bytes(steps_text(1))
    assert [trace["name"] for trace in listed(folder)] == ["run1"]


def test_a_name_that_is_no_text_is_left_out(folder: Path) -> None:
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff.steps.jsonl")).write_bytes(steps_text(1))
    assert [trace["name"] for trace in listed(folder)] == ["run1"]


def test_a_line_without_end_is_not_read_whole(folder: Path, steps: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(trace_summary, "_LONGEST", 100)
    steps.write_bytes(
        b'{"event":"trace_start","config":{"x":"' + b"y" * 5000 + b'"}}\n' + steps_text(2).split(b"\n", 1)[1]
    )
    assert (listed(folder)[0]["first_step"], listed(folder)[0]["gpu"]) == (0, None)


def test_the_search_ends(folder: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(catalog, "_ENTRIES", 10)
    many = folder / "zz"
    many.mkdir()
    for i in range(20):
        (many / f"{i}.steps.jsonl").touch()
    assert [trace["name"] for trace in listed(folder)] == ["run1"]


def test_hostile_names_come_as_they_are(folder: Path) -> None:
    name = "<img src=x onerror=alert(1)>\u202e"
    (folder / name).mkdir()
    (folder / name / "t.steps.jsonl").write_bytes(steps_text(1))
    assert name in {trace["name"] for trace in listed(folder)}
    response = client_of([folder]).get("/api/traces")
    assert response.headers["content-type"] == "application/json"
