"""``/api/steps`` and ``/api/tail``: the lines of some steps, and the lines that were added."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.unit.server.conftest import STEPS, lines_of, steps_text
from tests.unit.server.web_client import ORIGIN, Client, client_of, refused, running

from tokenyard.server.web import step_index, tail
from tokenyard.trace.columnar.convert import convert


@pytest.fixture
def client(folder: Path) -> Client:
    return client_of([folder])


def lines(client: Client, path: Path, **params: Any) -> tuple[list[dict[str, Any]], httpx.Headers]:
    response = client.get("/api/steps", params={"path": str(path), **params})
    assert response.status_code == 200, response.text
    return [json.loads(line) for line in response.content.splitlines()], response.headers


def numbers(client: Client, path: Path, **params: Any) -> list[int]:
    return [record["step"] for record in lines(client, path, **params)[0]]


def test_some_steps(client: Client, steps: Path) -> None:
    records, headers = lines(client, steps, start=7, end=8)
    assert [(record["step"], record["event"]) for record in records] == [
        (7, "step_snapshot"),
        (7, "step_decision"),
        (8, "step_snapshot"),
        (8, "step_decision"),
    ]
    assert (headers["tokenyard-first-step"], headers["tokenyard-last-step"]) == ("0", str(STEPS - 1))
    assert headers["tokenyard-truncated"] == "0"


def test_what_is_cut_off_goes_on_with_the_next_step(client: Client, steps: Path) -> None:
    seen: list[int] = []
    start: str = "0"
    while start:
        records, headers = lines(client, steps, start=start, limit=7)
        assert len(records) <= 7
        seen += [record["step"] for record in records]
        start = headers["tokenyard-next-start"]
        assert bool(start) == (headers["tokenyard-truncated"] == "1")
    assert seen == [step for step in range(STEPS) for _ in range(2)]


def test_a_step_that_is_too_much_does_not_stop_the_walk(client: Client, steps: Path) -> None:
    _, headers = lines(client, steps, start=5, limit=1)
    assert headers["tokenyard-next-start"] == "6"


def test_requests_of_some_steps(client: Client, steps: Path) -> None:
    assert numbers(client, steps, start=3, end=5, records="requests") == [3, 4, 5]


def test_records_out_of_order_are_found(client: Client, steps: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_index, "_STRETCH", 64)  # many stretches
    steps.write_bytes(lines_of(*({"event": "step_completed", "step": step} for step in (5, 1, 9, 5, 0, 5, 8))))
    assert numbers(client, steps, start=5, end=5) == [5, 5, 5]


def test_bad_lines_and_long_lines_do_no_harm(client: Client, steps: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_index, "_STRETCH", 64)
    long = {"step": 2, "text": "x" * 1000, "inner": {"step": 99}, "quoted": '"step": 7'}
    steps.write_bytes(b"{{{\n\n\xff\xfe\n" + lines_of({"step": 1}, long, {"step": "3"}, {"step": 4}) + b'{"step":5')
    assert numbers(client, steps) == [1, 2, 4]
    assert numbers(client, steps, start=7) == []


def test_a_file_that_grows_or_is_written_anew(client: Client, steps: Path) -> None:
    assert numbers(client, steps, start=STEPS) == []
    with steps.open("ab") as file:
        file.write(lines_of({"step": STEPS}))
    assert numbers(client, steps, start=STEPS) == [STEPS]
    steps.write_bytes(lines_of({"step": 0}))
    assert numbers(client, steps) == [0]
    steps.write_bytes(lines_of({"event": "another"}) + steps_text(2 * STEPS))
    assert numbers(client, steps, start=60, end=60) == [60, 60]


def test_packed_traces_give_the_same_lines(folder: Path, steps: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed (extra: analysis)")
    packed, twin = steps.with_name("b.steps.jsonl.gz"), steps.with_name("c.steps.parquet")
    packed.write_bytes(gzip.compress(steps.read_bytes()))
    convert(steps, twin, "steps")
    with running([folder]) as client:
        expected, _ = lines(client, steps, start=4, end=6)
        for path in (packed, twin):
            records, headers = lines(client, path, start=4, end=6)
            assert records == expected
            assert headers["tokenyard-last-step"] == str(STEPS - 1)


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"start": "x"}, "start"),
        ({"start": "-1"}, "start"),
        ({"start": "1e3"}, "start"),
        ({"start": "\u0663"}, "start"),
        ({"start": "9" * 40}, "start"),
        ({"start": "5", "end": "4"}, "end"),
        ({"limit": "0"}, "limit"),
        ({"limit": "99999999"}, "limit"),
        ({"records": "all"}, "records"),
    ],
)
def test_wrong_questions(client: Client, steps: Path, params: dict[str, str], field: str) -> None:
    refused(client.get("/api/steps", params={"path": str(steps)} | params), 400, field)


def test_no_requests_file(client: Client, steps: Path) -> None:
    steps.with_name("sched_trace.fcfs.requests.jsonl").unlink()
    refused(client.get("/api/steps", params={"path": str(steps), "records": "requests"}), 404, "records")


# ---- tail


class Follower:
    """A client that remembers what the server tells it to send back."""

    def __init__(self, client: Client, path: Path) -> None:
        self.client = client
        self.params: dict[str, Any] = {"path": str(path), "offset": 0}
        self.text = b""

    def look(self, **more: Any) -> bytes:
        response = self.client.get("/api/tail", params=self.params | more)
        assert response.status_code == 200, response.text
        headers = response.headers
        if headers["tokenyard-reset"] == "1":
            self.text = b""
        self.text += response.content
        self.params |= {"offset": headers["tokenyard-offset"], "id": headers["tokenyard-id"]}
        return response.content


def test_following_gives_whole_lines_only(client: Client, steps: Path) -> None:
    text = steps_text(5)
    steps.write_bytes(b"")
    follower = Follower(client, steps)
    for start in range(0, len(text), 37):
        with steps.open("ab") as file:
            file.write(text[start : start + 37])
        assert follower.look()[-1:] in (b"", b"\n")
    assert follower.text == text
    assert follower.look() == b""


def test_a_new_run_in_the_same_file(client: Client, steps: Path) -> None:
    follower = Follower(client, steps)
    follower.look()
    steps.write_bytes(lines_of({"event": "trace_start", "ts": 5.0}) + steps_text(80))
    follower.look()
    assert follower.text == steps.read_bytes()


def test_another_file_under_the_name(client: Client, steps: Path) -> None:
    follower = Follower(client, steps)
    follower.look()
    other = steps.with_name("new")
    other.write_bytes(steps_text(STEPS + 1))
    other.replace(steps)
    follower.look()
    assert follower.text == steps_text(STEPS + 1)


def test_a_file_that_was_cut(client: Client, steps: Path) -> None:
    follower = Follower(client, steps)
    follower.look()
    steps.write_bytes(steps_text(2))
    follower.look()
    assert follower.text == steps_text(2)


def test_a_lot_comes_in_pieces(client: Client, steps: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "_AT_ONCE", 300)
    follower = Follower(client, steps)
    pieces = 0
    while follower.look():
        pieces += 1
    assert pieces > 10
    assert follower.text == steps.read_bytes()


def test_waiting_ends_when_a_line_comes(client: Client, steps: Path) -> None:
    async def follow() -> httpx.Response:
        transport = httpx.ASGITransport(app=client.app)
        async with httpx.AsyncClient(transport=transport, base_url=ORIGIN) as http:
            params: dict[str, Any] = {"path": str(steps), "offset": steps.stat().st_size, "wait": 30}
            waiting = asyncio.create_task(http.get("/api/tail", params=params))
            await asyncio.sleep(0.3)
            assert not waiting.done()
            with steps.open("ab") as file:
                file.write(b'{"step":99}\n')
            return await waiting

    response = asyncio.run(follow())
    assert response.content == b'{"step":99}\n'
    assert response.headers["tokenyard-reset"] == "0"


def test_waiting_ends_without_a_line(client: Client, steps: Path) -> None:
    response = client.get("/api/tail", params={"path": str(steps), "offset": steps.stat().st_size, "wait": 1})
    assert response.status_code == 200
    assert response.content == b""


def test_what_does_not_grow_is_not_followed(client: Client, steps: Path) -> None:
    packed = steps.with_name("b.steps.jsonl.gz")
    packed.write_bytes(gzip.compress(b"{}\n"))
    refused(client.get("/api/tail", params={"path": str(packed)}), 400, "path")
    refused(client.get("/api/tail", params={"path": str(steps), "wait": "31"}), 400, "wait")
    refused(client.get("/api/tail", params={"path": str(steps), "offset": "-1"}), 400, "offset")
