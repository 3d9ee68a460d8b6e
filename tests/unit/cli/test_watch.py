"""``tokenyard watch``: which trace it shows, and what it refuses."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from tokenyard.cli.support.flags.traces import WatchCommand
from tokenyard.cli.watch import execute
from tokenyard.errors import ConfigError
from tokenyard.web.newest import following, newest_trace

REPO = Path(__file__).resolve().parents[3]


def test_the_newest_trace_below_a_directory(tmp_path: Path) -> None:
    for age, name in ((100, "old"), (10, "new"), (50, "middle")):
        file = tmp_path / name / "sched_trace.steps.jsonl"
        file.parent.mkdir()
        file.write_text("{}\n")
        os.utime(file, (1e9 - age, 1e9 - age))
    assert newest_trace(tmp_path).parent.name == "new"
    one = tmp_path / "middle" / "sched_trace.steps.jsonl"
    assert newest_trace(one) == one.resolve()


def test_it_waits_for_the_first_trace(tmp_path: Path) -> None:
    """A server makes the directory when it has its first steps: the two may be started at once."""
    file, said = tmp_path / "trace" / "sched_trace.fcfs.steps.jsonl", list[str]()

    def write(sentence: str) -> None:
        said.append(sentence)
        file.parent.mkdir()
        file.write_text("{}\n")

    assert newest_trace(tmp_path / "trace", write) == file.resolve()
    assert len(said) == 1
    assert "waiting for the first steps" in said[0]


def test_the_page_follows_it_and_counts_the_last_minutes() -> None:
    assert parse_qs(following("/t/a b.steps.jsonl", 300.0)) == {
        "trace": ["/t/a b.steps.jsonl"],
        "live": ["1"],
        "tab": ["overview"],
        "last": ["300"],
    }


@pytest.mark.parametrize(
    ("source", "last", "said"),
    [
        ("nowhere/trace", 300.0, "no such directory"),
        (".", 0.0, "above 0"),
        ("ftp://host/", 300.0, "http address"),
        ("http://127.0.0.1:9/", 300.0, "no viewer answers"),
    ],
)
def test_what_cannot_be_watched_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, last: float, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=said):
        execute(WatchCommand(source=source, last=last, browser=False))


SELECTOR = re.compile(r"((?:vllm|tokenyard):\w+)\{([^}]*)\}")
GROUPING = re.compile(r"\bby \(([^)]*)\)")


@pytest.fixture(scope="module")
def dashboard() -> dict[str, Any]:
    board: dict[str, Any] = json.loads((REPO / "examples" / "grafana" / "tokenyard.json").read_text())
    return board


@pytest.fixture(scope="module")
def exposed() -> dict[str, set[str]]:
    """Name of a sample -> its labels, as Prometheus would scrape them: of an emulated server that has answered, and of
    the tracing class inside vLLM.
    """
    prometheus = pytest.importorskip("prometheus_client")
    parser = pytest.importorskip("prometheus_client.parser")
    for extra in ("starlette", "httpx"):
        pytest.importorskip(extra, reason=f"{extra} is not installed (extra: server)")
    from tests.unit.server.emulate.emulated import emulated  # noqa: PLC0415 - extras

    from tokenyard.trace.schema import AdmissionOutcome  # noqa: PLC0415
    from tokenyard.vllm.tracing.lost_time import LostTime  # noqa: PLC0415 - an extra

    with emulated() as server:
        server.chat(max_tokens=3)
        told = [server.client.get("/metrics").text]
    inside = prometheus.CollectorRegistry()
    lost = LostTime("model", "0", inside)
    lost.step_decided(1.0, AdmissionOutcome(step=0, reason="max_num_seqs", num_requests=2))
    lost.step_decided(2.0, None)
    told.append(prometheus.generate_latest(inside).decode())
    found: dict[str, set[str]] = {}
    for text in told:
        for family in parser.text_string_to_metric_families(text):
            for sample in family.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
    return found


def test_the_dashboard_asks_for_metrics_that_servers_expose(
    dashboard: dict[str, Any], exposed: dict[str, set[str]]
) -> None:
    asked = 0
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            selectors = SELECTOR.findall(target["expr"])
            assert len(selectors) == len(re.findall(r"(?:vllm|tokenyard):", target["expr"])), target["expr"]
            grouped = {name.strip() for names in GROUPING.findall(target["expr"]) for name in names.split(",")}
            for metric, conditions in selectors:
                labels = set(re.findall(r"(\w+)\s*[=!]~?", conditions))
                assert metric in exposed, target["expr"]
                assert labels | grouped <= exposed[metric], target["expr"]
                asked += 1
    assert asked > 15
    variables = dashboard["templating"]["list"]
    (models,) = [each["query"] for each in variables if each["type"] == "query"]
    assert set(re.findall(r"vllm:\w+", models)) <= set(exposed)


def test_the_dashboard_links_into_the_viewer_at_its_own_time(dashboard: dict[str, Any]) -> None:
    """Grafana's times are milliseconds since 1970, which the page takes as well as seconds."""
    names = {each["name"] for each in dashboard["templating"]["list"]}
    links = [link["url"] for panel in dashboard["panels"] for link in panel["links"]]
    assert len(links) == len(dashboard["panels"])
    for url in links:
        assert "from=${__from}&to=${__to}" in url
        assert set(re.findall(r"\$\{(\w+)\}", url)) - {"__from", "__to"} <= names
