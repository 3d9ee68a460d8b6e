"""The clients that the server admits: this machine and the server's own page, not pages of other sites."""

from __future__ import annotations

import hmac
from pathlib import Path

import pytest
from starlette.datastructures import Headers
from starlette.responses import Response
from tests.unit.server.web_client import ORIGIN, Client, client_of, refused

from tokenyard.web.connections import ApiKeys, is_loopback
from tokenyard.web.queries import make_app


@pytest.fixture
def client(folder: Path) -> Client:
    return client_of([folder])


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8642", "127.0.0.1", "localhost:9", "LOCALHOST", "[::1]:8642", "127.1.2.3:1"]
)
def test_names_of_this_machine(client: Client, host: str) -> None:
    assert client.get("/api/traces", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8642",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "",
        "192.168.0.9",
        "[::2]",
        "@",
        "127.0.0.1:evil.example",
        "localhost:80:90",
        "[::1]evil.example",
        "[::1",
        "127.0.0.1:123456",
        "[::1%evil.example]",
    ],
)
@pytest.mark.parametrize("path", ["/", "/api/traces", "/api/file", "/nothing"])
def test_a_name_that_was_made_to_point_here(client: Client, host: str, path: str) -> None:
    refused(client.get(path, headers={"Host": host}), 403, "Host")


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "http://127.0.0.1:9999", "http://localhost:8642", f"{ORIGIN}.evil.example", ""],
)
def test_a_page_of_another_origin(client: Client, origin: str) -> None:
    for method, path in (
        ("GET", "/api/traces"),
        ("POST", "/api/annotations"),
        ("PUT", "/api/annotations"),
        ("OPTIONS", "/api/annotations"),
    ):
        response = client.request(method, path, headers={"Origin": origin})
        refused(response, 403, "Origin")
        assert not [name for name in response.headers if name.startswith("access-control")]


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_an_image_or_script_tag_of_another_site(client: Client, site: str) -> None:
    refused(client.get("/api/traces", headers={"Sec-Fetch-Site": site}), 403, "Sec-Fetch-Site")
    # A link to the page is no harm: what it shows, it does not show the other site.
    assert client.get("/", headers={"Sec-Fetch-Site": site}).status_code in (200, 503)


def test_our_own_page(client: Client) -> None:
    headers = {"Origin": ORIGIN, "Sec-Fetch-Site": "same-origin"}
    assert client.get("/api/traces", headers=headers).status_code == 200


def test_every_answer_is_kept_from_others(client: Client) -> None:
    for path in ("/", "/api/traces", "/nothing"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["referrer-policy"] == "no-referrer"


def test_listening_for_others_takes_addresses_and_its_own_name(folder: Path) -> None:
    client = client_of([folder], host="0.0.0.0")
    for host in ("192.168.0.9:8642", "[2001:db8::1]:1", "localhost"):
        assert client.get("/api/traces", headers={"Host": host}).status_code == 200
    refused(client.get("/api/traces", headers={"Host": "evil.example"}), 403, "Host")


def test_loopback() -> None:
    assert [
        name for name in ("127.0.0.1", "::1", "[::1]", "localhost", "0.0.0.0", "10.0.0.1", "x") if is_loopback(name)
    ] == [
        "127.0.0.1",
        "::1",
        "[::1]",
        "localhost",
    ]


def test_unknown_paths_and_methods(client: Client) -> None:
    refused(client.get("/api/nothing"), 404, "path")
    refused(client.get("/../../etc/passwd"), 404, "path")
    refused(client.request("DELETE", "/api/traces"), 405, "method")


@pytest.mark.parametrize("header", ["Origin", "Sec-Fetch-Site"])
def test_a_second_header_is_looked_at_as_well(client: Client, header: str) -> None:
    good, evil = (ORIGIN, "http://evil.example") if header == "Origin" else ("same-origin", "cross-site")
    for values in ((good, evil), (evil, good)):
        refused(client.get("/api/traces", headers=[(header, value) for value in values]), 403, header)


@pytest.mark.parametrize("given", ["first", "second", "third", "firsX", "Xirst", "f", ""])
def test_every_key_is_compared_in_constant_time_whichever_is_given(
    given: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Digests of one length, all of them: how long it takes tells nothing of a key."""
    compared, compare = list[int](), hmac.compare_digest

    def counted(one: bytes, other: bytes) -> bool:
        compared.append(len(one))
        return compare(one, other)

    monkeypatch.setattr(hmac, "compare_digest", counted)
    keys = ApiKeys(make_app([folder]), ["first", "second", "third"], refuse=Response)
    is_right = given in ("first", "second", "third")
    assert keys.is_known(Headers({"authorization": f"Bearer {given}"})) is is_right
    assert compared == [32, 32, 32]
