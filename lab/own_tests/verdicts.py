"""Which of vLLM's tests apply to our scheduler: a list by version, and what a run of them says against it."""

from __future__ import annotations

import tomllib
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

__all__ = ["Listed", "Outcome", "listed", "outcomes", "table", "written"]

LISTS = Path(__file__).resolve().parent
_WIDTH = 118


class Outcome(NamedTuple):
    """What became of one test."""

    verdict: Literal["passed", "failed", "skipped"]
    reason: str


class Listed(NamedTuple):
    """The list of one version."""

    applies: frozenset[str]
    """Tests that have to pass: ``file::name``."""
    reasons: dict[str, str]
    """Test that does not apply -> why."""
    files: dict[str, str]
    """File of which none applies -> why."""

    def reason_of(self, test: str) -> str | None:
        """Why a test does not apply; None if it does, or is not listed."""
        return self.reasons.get(test, self.files.get(test.partition("::")[0]))


def listed(version: str) -> Listed:
    """The committed list; empty if there is none."""
    path = LISTS / f"{version}.toml"
    if not path.is_file():
        return Listed(frozenset(), {}, {})
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    reasons = {test: reason for reason, tests in content.get("not_applicable", {}).items() for test in tests}
    return Listed(frozenset(content.get("applies", [])), reasons, content.get("files", {}))


def outcomes(report: Path) -> dict[str, Outcome]:
    """Test -> outcome, from pytest's XML."""
    found: dict[str, Outcome] = {}
    for case in ET.parse(report).getroot().iter("testcase"):
        name = f"{case.get('classname', '').rpartition('.')[2]}.py::{case.get('name')}"
        problem = case.find("failure") if case.find("failure") is not None else case.find("error")
        skip = case.find("skipped")
        if problem is not None:
            found[name] = Outcome("failed", (problem.get("message") or "").splitlines()[0])
        elif skip is not None:
            found[name] = Outcome("skipped", skip.get("message") or "")
        else:
            found[name] = Outcome("passed", "")
    return found


def written(version: str, found: Mapping[str, Outcome]) -> str:
    """The list that these outcomes make. Failures keep the reason that is listed, or none, which is for you to find."""
    before = listed(version)
    applies, reasons = list[str](), dict[str, list[str]]()
    for test, outcome in sorted(found.items()):
        if outcome.verdict == "passed":
            applies.append(test)
        else:
            skipped = outcome.reason if outcome.verdict == "skipped" else f"?? {outcome.reason}"
            reasons.setdefault(before.reasons.get(test, skipped), []).append(test)
    lines = [f"# Of vLLM {version}: which of its tests apply to FastScheduler, and why the others do not.", ""]
    lines += ["applies = [", *(f"    {_quoted(test)}," for test in applies), "]", "", "[not_applicable]"]
    for reason, tests in sorted(reasons.items()):
        lines += [f"{_quoted(reason)} = [", *(f"    {_quoted(test)}," for test in tests), "]"]
    lines += ["", "[files]", *(f"{_quoted(name)} = {_quoted(why)}" for name, why in before.files.items())]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def table(version: str, found: Mapping[str, Outcome]) -> tuple[list[str], bool]:
    """Lines to print, and whether every test that applies has passed and every one is listed."""
    known = listed(version)
    files: dict[str, Counter[str]] = {}
    wrong: list[str] = []
    reasons: Counter[str] = Counter()
    for test, outcome in sorted(found.items()):
        kind = _kind(known, test, outcome)
        files.setdefault(test.partition("::")[0], Counter())[kind] += 1
        if kind == "not applicable":
            reasons[known.reason_of(test) or ""] += 1
        elif kind != "passed":
            wrong.append(f"{kind}: {test}: {outcome.reason}"[:_WIDTH])
    wrong += [f"gone: {test}" for test in sorted(known.applies - found.keys())]
    return [*_rows(version, files, known.files), "", *_reasons(reasons), *wrong], not wrong


def _kind(known: Listed, test: str, outcome: Outcome) -> str:
    if test in known.applies:
        return "passed" if outcome.verdict == "passed" else "failed"
    return "not listed" if known.reason_of(test) is None else "not applicable"


def _rows(version: str, files: Mapping[str, Counter[str]], left_out: Mapping[str, str]) -> Iterator[str]:
    kinds = ("passed", "failed", "not applicable", "not listed")
    yield f"| vLLM {version} | {' | '.join(kinds)} |"
    yield "| --- |" + " ---: |" * len(kinds)
    total: Counter[str] = Counter()
    for name, counts in files.items():
        total += counts
        yield f"| {name} | {' | '.join(str(counts[kind]) for kind in kinds)} |"
    yield f"| all | {' | '.join(str(total[kind]) for kind in kinds)} |"
    for name, why in left_out.items():
        yield f"{name}: none applies: {why}"


def _reasons(reasons: Counter[str]) -> Iterator[str]:
    for reason, count in reasons.most_common():
        yield f"{count:>4}  {reason}"
