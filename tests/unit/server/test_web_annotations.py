"""``/api/annotations`` and the page."""

from __future__ import annotations

import hashlib
import os
import time
import tracemalloc
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from tests.unit.server.real_server import connected, serving
from tests.unit.server.web_client import ORIGIN, Client, client_of, refused

from tokenyard.web import connections as bodies
from tokenyard.web import queries as notes
from tokenyard.web.queries import MARK

NOTES = b'{"notes": [{"step": 3, "text": "</script><script>alert(1)</script>"}]}'


@pytest.fixture
def client(folder: Path) -> Client:
    return client_of([folder])


def save(client: Client, path: Path | str, body: bytes = NOTES, /, **headers: str | None) -> httpx.Response:
    sent = {MARK: "1", "Content-Type": "application/json", "Origin": ORIGIN} | headers
    sent = {name: value for name, value in sent.items() if value is not None}
    return client.request("PUT", "/api/annotations", params={"path": str(path)}, content=body, headers=sent)


def load(client: Client, path: Path) -> httpx.Response:
    return client.get("/api/annotations", params={"path": str(path)})


def test_notes_are_saved_beside_the_trace(client: Client, steps: Path) -> None:
    assert load(client, steps).json() is None
    response = save(client, steps)
    saved = steps.with_name(steps.name + ".annotations.json")
    assert response.json() == {"saved": str(saved)}
    assert saved.read_bytes() == NOTES
    assert load(client, steps).content == NOTES
    assert client.get("/api/traces").json()[0]["annotations"] == str(saved)
    assert sorted(path.suffix for path in steps.parent.iterdir()) == [".json", ".jsonl", ".jsonl", ".txt"]


def test_a_named_file_alone_can_have_notes(steps: Path) -> None:
    client = client_of([steps])
    assert save(client, steps).status_code == 200
    assert load(client, steps).content == NOTES


def test_notes_that_were_changed_meanwhile_are_not_lost(client: Client, steps: Path) -> None:
    tag = save(client, steps).headers["etag"]
    assert load(client, steps).headers["etag"] == tag
    assert save(client, steps, b"1", **{"If-Match": tag}).status_code == 200
    refused(save(client, steps, b"2", **{"If-Match": tag}), 412, "If-Match")
    assert load(client, steps).content == b"1"


def test_of_many_that_save_at_once_one_succeeds(client: Client, steps: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All have seen the same notes: the second would write over the first."""
    replace = notes.replace_file

    def slowly(target: Path, content: bytes) -> None:
        time.sleep(0.02)
        replace(target, content)

    monkeypatch.setattr(notes, "replace_file", slowly)
    for number in range(5):
        tag = save(client, steps, b'"%d"' % number).headers["etag"]
        with ThreadPoolExecutor(8) as pool:
            sent = [b'"%d.%d"' % (number, each) for each in range(8)]
            saved = list(pool.map(lambda body: save(client, steps, body, **{"If-Match": tag}).status_code, sent))  # noqa: B023
        assert sorted(saved) == [200] + [412] * 7
        assert load(client, steps).content == sent[saved.index(200)]


def test_two_servers_do_not_save_at_once(client: Client, steps: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl")
    save(client, steps, b"1")
    monkeypatch.setattr(notes, "SAVING_SECONDS", 0.1)
    other = os.open(steps.parent, os.O_RDONLY)
    try:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert "another server" in refused(save(client, steps, b"2"), 409, "path")
        assert load(client, steps).content == b"1"
    finally:
        os.close(other)
    assert save(client, steps, b"3").status_code == 200


def test_a_file_that_is_too_large_for_notes_is_not_read(client: Client, steps: Path) -> None:
    """One of 3 GB, which takes no room on the disk; nor is it written over."""
    large = steps.with_name(steps.name + ".annotations.json")
    large.touch()
    os.truncate(large, 3_000_000_000)
    tracemalloc.start()
    try:
        assert "3,000,000,000 bytes" in refused(load(client, steps), 422, "path")
        assert "3,000,000,000 bytes" in refused(save(client, steps, **{"If-Match": '"x"'}), 422, "path")
        assert "3,000,000,000 bytes" in refused(save(client, steps), 422, "path")
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()
    assert large.stat().st_size == 3_000_000_000


def test_a_body_that_does_not_come_is_not_waited_for(
    folder: Path, steps: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "BODY_SECONDS", 0.2)
    head = f"PUT /api/annotations?path={steps} HTTP/1.1\r\nHost: 127.0.0.1\r\n{MARK}: 1\r\n"
    half = f"{head}Content-Type: application/json\r\nContent-Length: 100\r\n\r\n[1,"
    with serving(folder) as port, ExitStack() as stack:
        assert connected(stack, port, half.encode()).recv(12) == b"HTTP/1.1 408"


def test_a_forged_request_is_refused(client: Client, steps: Path) -> None:
    refused(save(client, steps, **{MARK: None}), 403, MARK)
    refused(save(client, steps, Origin="http://evil.example"), 403, "Origin")
    refused(save(client, steps, Host="evil.example"), 403, "Host")
    refused(save(client, steps, **{"Content-Type": "text/plain"}), 415, "Content-Type")
    refused(save(client, steps, **{"Sec-Fetch-Site": "cross-site"}), 403, "Sec-Fetch-Site")
    refused(client.request("POST", "/api/annotations", params={"path": str(steps)}), 405, "method")
    assert load(client, steps).json() is None


def test_only_json_of_a_bounded_length(client: Client, steps: Path) -> None:
    for body in (b"", b"{", b"\xff", b"NaN"):
        refused(save(client, steps, body), 400, "body")
    refused(save(client, steps, b'"' + b"x" * (4 << 20) + b'"'), 413, "body")


def test_only_beside_a_trace_that_is_there(client: Client, folder: Path, steps: Path) -> None:
    save(client, steps)
    refused(save(client, folder / "new.steps.jsonl"), 404, "path")
    refused(save(client, folder.parent / "secret.steps.jsonl"), 403, "path")
    refused(save(client, folder / "run1" / "notes.txt"), 403, "path")
    refused(save(client, f"{steps}.annotations.json"), 403, "path")
    assert not (folder.parent / "secret.steps.jsonl.annotations.json").exists()


def test_a_link_in_the_place_of_the_notes_is_not_written_through(client: Client, folder: Path, steps: Path) -> None:
    target = folder.parent / "precious.json"
    target.write_text("mine")
    steps.with_name(steps.name + ".annotations.json").symlink_to(target)
    refused(save(client, steps), 403, "path")
    assert target.read_text() == "mine"
    refused(load(client, steps), 403, "path")


def test_a_folder_that_cannot_be_written(client: Client, steps: Path) -> None:
    steps.with_name(steps.name + ".annotations.json").mkdir()
    refused(save(client, steps), 403, "path")


# ---- the page


def test_without_a_page_it_says_how_to_build_one(folder: Path, tmp_path: Path) -> None:
    response = client_of([folder], page=tmp_path / "none.html").get("/")
    assert response.status_code == 503
    assert "npm --prefix viewer run build" in response.text


def test_the_page_runs_its_own_scripts_alone(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text('<script type="module" crossorigin>let a = 1 < 2 && "é"</script><p>&amp;</p><SCRIPT>b()</SCRIPT>')
    response = client_of([folder], page=page).get("/")
    assert response.text == page.read_text()
    policy = dict(part.split(" ", 1) for part in response.headers["content-security-policy"].split("; "))
    for script in ('let a = 1 < 2 && "é"', "b()"):
        assert f"'sha256-{b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" in policy["script-src"]
    assert "unsafe-inline" not in policy["script-src"]
    assert policy["default-src"] == "'none'"
    assert policy["frame-ancestors"] == "'none'"
    assert policy["connect-src"] == "'self' blob: data:"
