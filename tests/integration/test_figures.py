"""Figures in the prose of the documents are those of what prints or holds them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.integration.documents import blocks_of

from tokenyard.sim.named_routers import router_names
from tokenyard.steptime.constants import shipped_constants
from tokenyard.steptime.known_error import LEFT_OUT, QUANTITIES

REPO = Path(__file__).resolve().parents[2]
UNITS = r"(?:ms|s|µs|%|steps|requests/s)"
FIGURE = re.compile(rf"(?<![\w.,])(\d[\d,]*(?:\.\d+)?) ({UNITS})(?![\w/])")
PRINTED = ("README.md", "docs/tutorial.md", "docs/why.md", "docs/continuum.md", "docs/tasks/stuck.md")
"""Documents that speak of what their own examples print."""
NOT_PRINTED = {
    "README.md": {"33,680 steps", "2.4 %", "8.7 %", "7.0 %", "21.0 %", "46 s"},
    "docs/tutorial.md": {"60 ms"},
    "docs/why.md": {"100 steps"},
    "docs/continuum.md": {"2 s"},
}
"""Figures there that are settings, rules, or held by a test of their own."""


def _text(name: str) -> str:
    return (REPO / name).read_text(encoding="utf-8")


def _prose(document: str) -> str:
    for block in sorted(blocks_of(document), key=lambda each: each.span, reverse=True):
        document = document[: block.span[0]] + document[block.span[1] :]
    return " ".join(document.split())


@pytest.mark.parametrize("name", PRINTED)
def test_figures_in_prose_are_printed_by_the_examples_of_the_page(name: str) -> None:
    document = _text(name)
    shown = "\n".join(block.text for block in blocks_of(document))
    numbers = set(re.findall(r"\d[\d,]*(?:\.\d+)?", shown))
    told = {f"{number} {unit}": number for number, unit in FIGURE.findall(_prose(document))}
    assert {figure for figure, number in told.items() if number not in numbers} <= NOT_PRINTED.get(name, set())


def test_recordings_are_as_many_as_the_readme_says() -> None:
    steps = [
        json.loads((REPO / "conformance" / "vectors" / version / "manifest.json").read_text())["steps"]
        for version in ("0.22", "0.33")
    ]
    scenarios, sums = sum(map(len, steps)), sum(sum(each.values()) for each in steps)
    counts = f"{scenarios:,} recordings of vLLM 0.22.1 and 0.33.0, {sums:,} steps"
    assert counts in _text("README.md")


def test_the_speed_that_is_told_is_that_of_the_table() -> None:
    table = _text("docs/architecture.md").partition("## Why it is fast")[2]
    rows = re.findall(r"^\| decode step, .* \| .* ms \| ([\d.]+) x \| [\d.]+ x \|", table, re.MULTILINE)
    compiled = [float(row) for row in rows]
    faq = _text("docs/faq.md")
    assert f"1/{min(compiled):.0f} to 1/{max(compiled):.0f} of the CPU time" in faq
    mix = re.search(r"^\| a step of a prefill mix \| .* ms \| ([\d.]+) x \|", table, re.MULTILINE)
    assert mix is not None
    assert f"1/{mix[1]} in a step of a prefill mix" in faq


def test_routers_are_as_many_as_the_comparison_says() -> None:
    words = {10: "ten", 11: "eleven", 12: "twelve"}
    shipped = [
        line for line in _text("docs/parallel.md").splitlines() if re.match(r"\| `[a-z-]+`(?: \(default\))? \|", line)
    ]
    assert {name for line in shipped for name in re.findall(r"^\| `([a-z-]+)`", line)} >= set(router_names())
    assert f"[{words[len(router_names())]} routers](parallel.md" in _text("docs/comparison.md")


def test_errors_that_are_told_are_those_of_the_constants() -> None:
    errors = {quantity: shipped_constants().errors(quantity) for quantity in ("tpot", "ttft")}
    page = _text("docs/accuracy.md")
    for kind in ("load", "layout", "pair", "version", "gpu", "precision", "model"):
        both = [errors[quantity][kind] for quantity in ("tpot", "ttft")]
        cells = [f"{each['median']:.1%} | {each['p90']:.1%} | {each['p99']:.1%}" for each in both]
        assert f"| {LEFT_OUT[kind]} | {both[0]['n']} | {' | '.join(cells)} |" in page


def test_errors_of_what_is_printed_are_those_of_the_constants() -> None:
    """Kept by lab/fit_latency.py: predictions of rows that nothing was fitted to, as run prints them."""
    printed, left_out = shipped_constants().data["printed"], shipped_constants().errors("tpot")["load"]
    page = _text("docs/accuracy.md")
    for quantity, own in printed.items():
        cells = " | ".join(f"{own[name]:.1%}" for name in ("median", "p90", "p99"))
        assert f"| {quantity.upper()} | {own['n']} | {cells} | {own['held']:.0%} |" in page
    tpot, ttft = (f"{share * 100:.1f} %" for share in (left_out["median"], printed["ttft"]["median"]))
    assert f"**{tpot} of TPOT, {ttft} of TTFT**" in _text("README.md")
    assert all(figure in _text("docs/faq.md") for figure in (f"{tpot} of TPOT", f"{ttft} of TTFT"))


def test_ranges_that_are_told_to_hold_are_those_of_the_constants() -> None:
    """Each kind of folds tells how many of its points a range held that did not know them, and how wide it was."""
    page = _text("docs/accuracy.md")
    for kind, held in shipped_constants().data["held"].items():
        cells = [f"{held[quantity]['held']:.0%} | {held[quantity]['width']:.2f}" for quantity in QUANTITIES]
        assert f"| {LEFT_OUT[kind]} | {held['tpot']['n']} | {' | '.join(cells)} |" in page
