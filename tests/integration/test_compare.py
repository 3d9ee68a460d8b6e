"""``tokenyard compare`` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from tests.integration.command import tokenyard

SMALL = ("agentic", "--limit", "2", "--num-gpu-blocks-override", "2500", "--max-model-len", "32768")


def test_json_has_every_policy_load_and_metric(tmp_path: Path) -> None:
    done = tokenyard(
        "compare",
        *SMALL,
        "--policies",
        "fcfs,continuum-share",
        "--loads",
        "1,4",
        "--seeds",
        "2",
        "--json",
        cwd=tmp_path,
    )
    assert (done.code, done.stderr) == (0, "")
    comparison = json.loads(done.stdout)
    assert (comparison["policies"], comparison["loads"]) == (["fcfs", "continuum-share"], [1.0, 4.0])
    cells = comparison["cells"]
    assert [(cell["policy"], cell["load"]) for cell in cells] == [
        ("fcfs", 1.0),
        ("continuum-share", 1.0),
        ("fcfs", 4.0),
        ("continuum-share", 4.0),
    ]
    for cell in cells:
        assert cell["metrics"]["completion_s"]["mean"] > 0
        assert cell["metrics"]["completion_s"]["half"] > 0
        assert 0 < cell["metrics"]["hit_rate"]["mean"] < 100
    assert cells[0]["speedup"] == {"mean": 1.0, "half": 0.0}


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    arguments = ("compare", *SMALL, "--policies", "fcfs,continuum-ttl", "--json")
    assert tokenyard(*arguments, cwd=tmp_path).stdout == tokenyard(*arguments, cwd=tmp_path).stdout


def test_a_table_and_a_drawing(tmp_path: Path) -> None:
    done = tokenyard("compare", *SMALL, "--policies", "fcfs,bypass", "--plot", "plot.svg", cwd=tmp_path)
    assert (done.code, done.stderr) == (0, "")
    assert "load 1" in done.stdout
    assert [line.split()[:2] for line in done.stdout.splitlines() if line.strip().startswith(("fcfs", "bypass"))] == [
        ["fcfs", "1.00"],
        ["bypass", "1.00"],
    ]
    root = ET.fromstring((tmp_path / "plot.svg").read_text(encoding="utf-8"))
    texts = {element.text for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"fcfs", "bypass", "1"} <= texts


@pytest.mark.parametrize(
    ("flags", "fragments"),
    [
        (("--policies", "fcfs,lifo"), ("policies", "lifo", "continuum-ttl")),
        (("--policies", ","), ("policies", "at least one")),
        (("--policies", "fcfs,fcfs"), ("policies", "twice")),
        (("--loads", "1,x"), ("loads", "1,x")),
        (("--loads", "0"), ("rate_scale",)),
        (("--loads", "1,1"), ("loads", "twice")),
        (("--seeds", "0"), ("seeds",)),
        (("--plot", "nowhere/plot.svg"), ("plot", "nowhere")),
    ],
)
def test_mistakes_are_named(flags: tuple[str, ...], fragments: tuple[str, ...], tmp_path: Path) -> None:
    tokenyard("compare", *SMALL, *flags, cwd=tmp_path).refused(*fragments)


def test_refused_requests_are_mentioned(tmp_path: Path) -> None:
    done = tokenyard(
        "compare",
        "agentic",
        "--limit",
        "2",
        "--max-model-len",
        "3000",
        "--skip-refused",
        "--policies",
        "fcfs",
        cwd=tmp_path,
    )
    assert done.code == 0
    assert "were refused" in done.stderr
