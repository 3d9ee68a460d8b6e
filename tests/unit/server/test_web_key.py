"""A viewer with a key: nothing is shown without it, whatever is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.server.web_client import Client, client_of, refused

KEY = "a-key-of-some-length"


@pytest.fixture
def client(tmp_path: Path) -> Client:
    (tmp_path / "a.steps.jsonl").write_text('{"event": "nothing"}\n', encoding="utf-8")
    return client_of([tmp_path], key=KEY)


@pytest.mark.parametrize("path", ["/", "/sweep", "/api/traces", "/api/file?path=a", "/api/tail?path=a", "/nowhere"])
@pytest.mark.parametrize("key", [None, "", "a-key", KEY + "x", "\u00e9"])
def test_without_the_key_there_is_nothing(client: Client, path: str, key: str | None) -> None:
    asked = path if key is None else f"{path}{'&' if '?' in path else '?'}key={key}"
    assert "the address that the server has printed" in refused(client.get(asked), 401, "key")
    cookies = {"Cookie": f"tokenyard-0={KEY}; other={KEY}"}
    assert client.get(path, headers=cookies).status_code == 401


def test_whoever_opens_the_address_gets_a_cookie_and_the_page(client: Client) -> None:
    opened = client.get(f"/?key={KEY}")
    assert (opened.status_code, opened.headers["location"]) == (303, "/")
    cookie = opened.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite" in cookie
    known = {"Cookie": cookie.partition(";")[0]}
    assert client.get("/", headers=known).status_code == 200
    assert client.get("/api/traces", headers=known).status_code == 200
    assert KEY not in client.get("/", headers=known).text


def test_the_key_opens_the_page_alone(client: Client) -> None:
    refused(client.get(f"/api/traces?key={KEY}"), 401, "key")


def test_two_viewers_of_a_machine_have_cookies_of_their_own(tmp_path: Path) -> None:
    names = {client_of([tmp_path], key=key).get(f"/?key={key}").headers["set-cookie"].partition("=")[0] for key in "ab"}
    assert len(names) == 2
