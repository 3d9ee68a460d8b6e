"""``/api/traces``: what there is, and what it says about itself."""

from __future__ import annotations

import asyncio
import gzip
import os
import shutil
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.unit.server.conftest import STEPS, lines_of, steps_text
from tests.unit.server.web_client import ORIGIN, client_of, refused

from tokenyard.trace.convert import convert
from tokenyard.web import catalog
from tokenyard.web import catalog as trace_summary


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


def test_an_interrupted_trace_is_partial_and_a_packed_one_does_not_say(folder: Path, steps: Path) -> None:
    start = {"event": "trace_start", "format_version": 1}
    queues = {"event": "step_snapshot", "step": 5, "num_running": 1, "num_waiting": 1}
    came, ended = ({"event": event, "step": 5, "req_id": "r"} for event in ("request_arrived", "request_finished"))
    whole = lines_of(start, queues, came, ended, ended, ended)
    ends = {
        whole: False,
        lines_of(start, queues, came, ended, ended): True,
        whole[:-9]: True,
        lines_of({**start, "max_steps": 1}, queues, ended, ended): True,
        lines_of(queues): None,
        lines_of(start, {"event": "step_snapshot", "step": 5}): None,
    }
    for data, partial in ends.items():
        steps.write_bytes(data)
        assert [trace["partial"] for trace in listed(folder)] == [partial]
    steps.unlink()
    steps.with_name(steps.name + ".gz").write_bytes(gzip.compress(lines_of(start, queues)))
    assert [trace["partial"] for trace in listed(folder)] == [None]


def test_what_cannot_be_read_is_listed_without_facts(folder: Path, steps: Path) -> None:
    steps.write_bytes(b"\x00garbage\n[[[[\n")
    steps.with_name("x.steps.jsonl.gz").write_bytes(b"no gzip")
    steps.with_name("y.steps.parquet").write_bytes(b"no parquet")
    traces = listed(folder)
    assert len(traces) == 3
    assert {trace["last_step"] for trace in traces} == {None}


def test_parquet_traces_say_as_much(folder: Path, steps: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed (extra: analysis)")
    for name in "ab":
        convert(steps, steps.with_name(f"{name}.steps.parquet"), "steps")
    plain, *twins = sorted(listed(folder), key=lambda trace: str(trace["format"]))
    assert [twin["format"] for twin in twins] == ["parquet"] * 2
    facts = ("gpu", "model", "policy", "host", "total_blocks", "first_step", "last_step")
    assert all(twin[fact] == plain[fact] for fact in facts for twin in twins)


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
    monkeypatch.setattr(trace_summary, "LONGEST_LINE", 100)
    steps.write_bytes(
        b'{"event":"trace_start","config":{"x":"' + b"y" * 5000 + b'"}}\n' + steps_text(2).split(b"\n", 1)[1]
    )
    assert (listed(folder)[0]["first_step"], listed(folder)[0]["gpu"]) == (0, None)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs on this system")
@pytest.mark.parametrize("name", ["pipe.steps.jsonl", "sched_trace.fcfs.requests.jsonl.gz", "x.steps.parquet"])
def test_only_regular_files_are_listed(folder: Path, name: str) -> None:
    """To open a FIFO that no process writes to takes for ever."""
    pipe = folder / "run1" / name
    os.mkfifo(pipe)
    assert [trace["name"] for trace in listed(folder, pipe)] == ["run1"]


def names_by_page(*paths: Path) -> list[list[str]]:
    """The names on every page, in the order in which the links lead to them."""
    client, pages, at = client_of(paths), [], "/api/traces"
    while at:
        response = client.get(at)
        assert response.status_code == 200
        pages.append([trace["name"] for trace in response.json()])
        at = response.links.get("next", {}).get("url", "")
    return pages


def test_a_list_that_is_whole_has_no_second_page(folder: Path) -> None:
    assert names_by_page(folder) == [["run1"]]


def test_many_entries_come_page_by_page(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left out without a word, and no page looks at more folders than it may."""
    monkeypatch.setattr(catalog, "MOST_ENTRIES", 10)
    for name in ("a", "run1/below", "zz", "zz/0", "zz/1"):
        (folder / name).mkdir(exist_ok=True)
        for i in range(6):
            (folder / name / f"{i}.steps.jsonl").touch()
    pages = names_by_page(folder)
    assert [len(page) for page in pages] == [6, 7, 6, 6, 6]
    assert sorted(name for page in pages for name in page) == sorted(trace["name"] for trace in all_at_once(folder))


def all_at_once(folder: Path) -> list[dict[str, Any]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalog, "MOST_ENTRIES", 1_000_000)
        patch.setattr(catalog, "TRACES_ON_A_PAGE", 1_000_000)
        return listed(folder)


def test_many_traces_come_page_by_page(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one folder as well, and over several directories; a file that is named besides comes once."""
    monkeypatch.setattr(catalog, "TRACES_ON_A_PAGE", 4)
    (tmp_path / "other").mkdir()
    for i in range(10):
        for kind in ("steps", "requests"):
            (folder / "run1" / f"{i}.{kind}.jsonl").touch()
        (tmp_path / "other" / f"{i}.steps.jsonl").touch()
    (tmp_path / "apart.steps.jsonl").touch()
    pages = names_by_page(folder, tmp_path / "other", folder / "run1" / "3.steps.jsonl", tmp_path / "apart.steps.jsonl")
    assert [len(page) for page in pages] == [4, 4, 4, 4, 4, 2]
    assert tmp_path.name in pages[0]
    names = [name for page in pages for name in page]
    assert len(set(names)) == len(names) == 22


def test_a_page_goes_on_where_things_have_changed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "TRACES_ON_A_PAGE", 2)
    for name in "abcdef":
        (folder / name).mkdir()
        (folder / name / "t.steps.jsonl").touch()
    client = client_of([folder])
    link = client.get("/api/traces").links["next"]["url"]
    shutil.rmtree(folder / "c")  # where the next page begins
    assert {trace["name"] for trace in client.get(link).json()} == {"d", "e"}


@pytest.mark.parametrize("place", ["", "x", "[]", "[-1]", '["0"]', "[0,[],1]", "[[[[", '[0,["..",".."],""]', "[99]"])
def test_a_page_begins_where_a_link_said(folder: Path, place: str) -> None:
    response = client_of([folder]).get("/api/traces", params={"from": place})
    if response.status_code == 200:  # an order of names, never a path
        assert place in ('[0,["..",".."],""]', "[99]", "[]")
        assert {trace["name"] for trace in response.json()} <= {"run1"}
    else:
        assert "Link" in refused(response, 400, "from")


def test_questions_at_the_same_time_share_a_list(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each gets what was there after it asked, and two walks are enough for all of them."""
    walks, page = 0, catalog.Catalog.page

    def counted(*args: Any) -> Any:
        nonlocal walks
        walks += 1
        time.sleep(0.05)
        return page(*args)

    monkeypatch.setattr(catalog.Catalog, "page", counted)
    app = client_of([folder]).app

    async def ask() -> list[int]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=ORIGIN) as client:
            responses = await asyncio.gather(*(client.get("/api/traces") for _ in range(30)))
        return [len(response.json()) for response in responses]

    assert asyncio.run(ask()) == [1] * 30
    assert walks <= 2


def test_hostile_names_come_as_they_are(folder: Path) -> None:
    name = "<img src=x onerror=alert(1)>\u202e"
    (folder / name).mkdir()
    (folder / name / "t.steps.jsonl").write_bytes(steps_text(1))
    assert name in {trace["name"] for trace in listed(folder)}
    response = client_of([folder]).get("/api/traces")
    assert response.headers["content-type"] == "application/json"


def test_the_engines_of_one_run_say_which_they_are(folder: Path) -> None:
    for name in ("dp/rank-0", "dp/rank-1", "dense", "dense/rank-1", "dense/rank-2", "dense/rank-two", "two/rank-1"):
        path = folder / name / "sched_trace.x.steps.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(steps_text(2))
    for name in ("a", "b"):
        (folder / "two" / f"{name}.steps.jsonl").write_bytes(steps_text(2))
    found = {trace["name"]: (trace["run"].rpartition("/")[2], trace["rank"]) for trace in listed(folder)}
    assert found == {
        "run1": ("run1", None),
        "dp/rank-0": ("dp", 0),
        "dp/rank-1": ("dp", 1),
        "dense": ("dense", 0),
        "dense/rank-1": ("dense", 1),
        "dense/rank-2": ("dense", 2),
        "dense/rank-two": ("rank-two", None),
        "two/a": ("two", None),
        "two/b": ("two", None),
        "two/rank-1": ("two", 1),
    }
