"""``tokenyard watch``: which trace it shows, and what it refuses."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from tokenyard.cli.support.flags import WatchCommand
from tokenyard.cli.watch import execute, newest_trace, state_of
from tokenyard.errors import ConfigError

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


def test_the_page_follows_it_and_counts_the_last_minutes() -> None:
    assert parse_qs(state_of("/t/a b.steps.jsonl", 300.0)) == {
        "trace": ["/t/a b.steps.jsonl"],
        "live": ["1"],
        "tab": ["overview"],
        "last": ["300"],
    }


@pytest.mark.parametrize(
    ("source", "last", "said"),
    [
        ("nowhere", 300.0, "no such directory"),
        (".", 300.0, "holds no"),
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


def test_the_dashboard_asks_for_metrics_that_there_are() -> None:
    """Those of our server, which have vLLM's names, and those of the tracing class inside vLLM."""
    prometheus = pytest.importorskip("prometheus_client")
    from tokenyard.serve.metrics import MetricsObserver  # noqa: PLC0415 - an extra
    from tokenyard.vllm.tracing.lost_time import LostTime  # noqa: PLC0415

    registry = prometheus.CollectorRegistry()
    MetricsObserver(registry)
    inside = prometheus.CollectorRegistry()
    LostTime("model", "0", inside)
    known = {family.name for each in (registry, inside) for family in each.collect()}
    board = json.loads((REPO / "examples" / "grafana" / "tokenyard.json").read_text())
    asked = {
        re.sub(r"_(total|bucket)$", "", name)
        for panel in board["panels"]
        for target in panel["targets"]
        for name in re.findall(r"(?:vllm|tokenyard):\w+", target["expr"])
    }
    assert asked
    assert asked <= known
    assert all("${__from}" in link["url"] for panel in board["panels"] for link in panel["links"])
