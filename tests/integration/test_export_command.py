"""``tokenyard export`` as a user calls it."""

from __future__ import annotations

import base64
import gzip
import json
import sys
from pathlib import Path

import pytest
from tests.integration.command import call


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export")
    flags = ["--limit", "2", "--max-num-seqs", "2", "--record-requests", "--trace", str(folder / "trace")]
    assert call("run", "agentic", *flags, cwd=folder).code == 0
    return folder / "trace"


def test_files_for_other_tools(trace: Path, tmp_path: Path) -> None:
    pytest.importorskip("perfetto", reason="perfetto is absent")
    (tmp_path / "out").mkdir()
    outcome = call("export", trace, "--perfetto", "out/a.pftrace", "--chrome", "out/a.json", cwd=tmp_path)
    assert outcome.code == 0, outcome.stderr
    assert "out/a.pftrace: " in outcome.stderr
    assert "ui.perfetto.dev" in outcome.stderr
    events = json.loads((tmp_path / "out" / "a.json").read_text())["traceEvents"]
    assert {"M", "X", "C", "s", "f"} == {event["ph"] for event in events}
    assert (tmp_path / "out" / "a.pftrace").stat().st_size > 10_000
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a.json", "a.pftrace"]


@pytest.mark.parametrize("flag", [[], ["--with-prompts"]])
def test_a_page_that_can_be_mailed(trace: Path, tmp_path: Path, flag: list[str]) -> None:
    outcome = call("export", trace, "--html", "a.html", *flag, cwd=tmp_path)
    assert outcome.code == 0, outcome.stderr
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert page.lower().startswith("<!doctype html>")
    packed = page.rpartition('id="tokenyard-trace"')[2].partition(">")[2].partition("</script>")[0]
    _, requests = gzip.decompress(base64.b64decode(packed, validate=True)).split(b"\x1e\n")
    assert (b"prompt_prefix" in requests) == bool(flag)
    assert b"num_prompt_tokens" in requests


def test_nothing_asked_for(trace: Path, tmp_path: Path) -> None:
    call("export", trace, cwd=tmp_path).refused("export", "--perfetto FILE", "--html FILE")


def test_an_address_nobody_listens_at(trace: Path, tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.sdk", reason="opentelemetry is absent")
    call("export", trace, "--otlp", "127.0.0.1:4318", cwd=tmp_path).refused("otlp = '127.0.0.1:4318'", "http://")


def test_a_place_that_cannot_be_written(trace: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    call("export", trace, "--html", "file/a.html", cwd=tmp_path).refused(
        "html = 'file/a.html'", "there is no folder file"
    )


@pytest.mark.parametrize(
    ("missing", "flags", "extra"),
    [
        ("perfetto.protos.perfetto.trace.perfetto_trace_pb2", ["--perfetto", "a"], "tokenyard[perfetto]"),
        ("opentelemetry.sdk.trace", ["--otlp", "http://127.0.0.1:9"], "tokenyard[otel]"),
    ],
)
def test_without_the_extra(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str, flags: list[str], extra: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    call("export", trace, *flags, cwd=tmp_path).refused(f"pip install '{extra}'")
    assert list(tmp_path.iterdir()) == []
