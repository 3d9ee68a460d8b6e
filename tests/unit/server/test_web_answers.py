"""``/api/answer``: what the terminal says of a trace, over all its engines, of all steps or of some."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.bare import Engine, write_bare
from tests.unit.explain.test_bare import chat
from tests.unit.server.web_client import Client, client_of, refused

import tokenyard as ty
from tokenyard.cli.main import main

SECONDS = 60.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_bare(tmp_path / "stuck", Engine(stuck_from=30), chat(3, until=SECONDS), SECONDS)
    for rank, rate in enumerate((4, 1)):
        write_bare(tmp_path / "two" / f"rank-{rank}", Engine(seats=8), chat(rate, until=SECONDS), SECONDS)
    return tmp_path


@pytest.fixture
def client(folder: Path) -> Client:
    return client_of([folder])


def ask(client: Client, path: Path, **params: Any) -> dict[str, Any]:
    response = client.get("/api/answer", params={"path": str(path), **params})
    assert response.status_code == 200, response.text
    return dict(response.json())


def test_it_is_what_the_library_and_the_terminal_say(
    client: Client, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = next((folder / "stuck").iterdir())
    found = ask(client, steps)
    assert found == {"answer": msgspec.to_builtins(ty.answer(steps)), "engines": 1}
    assert main(["report", str(steps), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["answer"] == found["answer"]
    assert found["answer"]["sentence"].startswith("No token since 16:00:30 UTC")
    assert str(ty.answer(steps)).startswith(found["answer"]["sentence"])


def test_some_steps_alone(client: Client, folder: Path) -> None:
    steps = next((folder / "stuck").iterdir())
    before = ask(client, steps, **{"from": 100, "to": 400})["answer"]
    assert (before["code"], before["causes"]) == ("idle", [])
    assert before == msgspec.to_builtins(ty.answer(steps, first_step=100, last_step=400))
    after = ask(client, steps, **{"from": 600})["answer"]
    assert after["code"] == "stuck"
    assert after["unfinished"] == ask(client, steps)["answer"]["unfinished"], "whoever came before is there, too"


def test_all_engines_of_a_run(client: Client, folder: Path) -> None:
    found = ask(client, next((folder / "two" / "rank-1").iterdir()))
    assert (found["engines"], found["answer"]["causes"][0]["code"]) == (2, "hot_engine")
    assert found["answer"]["causes"][0]["rank"] == 0


def test_what_is_not_served_is_not_answered(client: Client, folder: Path) -> None:
    steps = next((folder / "stuck").iterdir())
    refused(client.get("/api/answer", params={"path": "/etc/passwd"}), 403, "path")
    refused(client.get("/api/answer", params={"path": str(steps), "from": "-1"}), 400, "from")
    alone = client_of([folder / "two" / "rank-0"])
    found = ask(alone, next((folder / "two" / "rank-0").iterdir()))
    assert found["engines"] == 1, "the other engine is not in what this server shows"


def test_a_page_to_mail_holds_it(folder: Path, tmp_path: Path) -> None:
    steps = next((folder / "stuck").iterdir())
    assert main(["export", str(steps), "--html", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text("utf-8")
    held = re.search(r'<script type="application/json" id="tokenyard-answer">(.*?)</script>', page)
    assert held is not None
    assert json.loads(held[1]) == msgspec.to_builtins(ty.answer(steps))
