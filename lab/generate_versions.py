#!/usr/bin/env python3
"""Writes docs/versions.md: what is known of each version of vLLM, and by which check. ``--check`` only compares.

Vectors are counted where they lie; the other figures are those that the checks noted (``lab/noted.json``).
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from noted import noted
from tokenyard.core.outside import outside
from tokenyard.core.profiles import PROFILES
from tokenyard.core.releases import RELEASES, Release
from tokenyard.deploy.vllm_serve.flags import recorded_flags
from tokenyard.parity.comparison import recordings
from tokenyard.parity.vector import GoldenVector, unsupported_features

__all__ = ["document"]

ROOT = Path(__file__).resolve().parents[1]
PATH = ROOT / "docs" / "versions.md"
TEMPLATE = ROOT / "lab" / "pages" / "versions.md"


def document() -> str:
    """The page."""
    found = json.loads((ROOT / "conformance" / "results.json").read_text(encoding="utf-8"))
    return TEMPLATE.read_text(encoding="utf-8").format(
        versions="\n".join(_table()),
        outside="\n".join(_outside()),
        followed="\n".join(_follows()),
        simulated=found["vllm"],
        simulators="\n".join(_simulators(found["simulators"])),
    )


def _table() -> Iterator[str]:
    known = noted()
    for release in RELEASES:
        version = release.version
        lockstep = known.get(version, {}).get("lockstep")
        yield _row(
            version,
            len(release.switches),
            len(release.facts),
            len(recorded_flags(version)),
            _vectors(version),
            _lockstep(lockstep),
            "-" if lockstep is None else f"{lockstep['refused']:,}",
            _plans(version),
            _checked(known.get(version, {}).get("config"), "cases"),
            _inside(release, known.get(version, {}).get("inside")),
        )


def _row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _vectors(version: str) -> str:
    folder = ROOT / "conformance" / "vectors" / version
    if not folder.exists():
        return "-"
    headers = [GoldenVector(each.path, each.vllm).header for each in recordings(folder)]
    left_out = {header.name for header in headers if unsupported_features(header)}
    steps: dict[str, int] = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["steps"]
    compared = {name: count for name, count in steps.items() if name not in left_out}
    text = f"{len(compared):,}, {sum(compared.values()):,} steps: 0 differ"
    return f"{text}; {len(left_out)} outside" if left_out else text


def _checked(figures: dict[str, Any] | None, what: str) -> str:
    if figures is None:
        return "-"
    return f"{figures[what]:,} of {figures['release']}: {figures['different']:,} differ"


def _lockstep(figures: dict[str, Any] | None) -> str:
    if figures is None:
        return "-"
    return (
        f"{figures['scenarios']:,} of {figures['release']}, {figures['steps']:,} steps: {figures['different']:,} differ"
    )


def _plans(version: str) -> str:
    """Counts over all files of answers that this version's planner gave."""
    files = (ROOT / "tests" / "unit" / "models").glob("kv_plans*.json.gz")
    answers = [json.loads(gzip.decompress(file.read_bytes())) for file in files]
    own = [each for each in answers if each["versions"]["vllm"].startswith(f"{version}.")]
    count = sum(len(case["plans"]) for each in own for case in each["plans"])
    return f"{count:,}: 0 differ" if count else "-"


def _inside(release: Release, figures: dict[str, Any] | None) -> str:
    if figures is None:
        return f"{release.tested}, models" if release.ran_models else release.tested
    return f"{figures['release']}: {figures['passed']:,} passed, {figures['failed']:,} failed"


def _outside() -> Iterator[str]:
    rows = [f"| {v} | `{feature}` | {what} |" for v in PROFILES for feature, what in outside(v).items()]
    head = "| vLLM | feature | what a replay does |\n| --- | --- | --- |"
    nothing = (
        "Nothing that a setting asks for and that is not refused by name; [limits](limits.md) has what none models."
    )
    yield from (head, *rows) if rows else (nothing,)


def _follows() -> Iterator[str]:
    for each in (checks["follow"] for checks in noted().values() if "follow" in checks):
        missed = ", ".join(f"`{name}`" for name in each["missed"]) or "-"
        counts = (each[name] for name in ("scenarios", "proposed", "known", "right"))
        yield _row(each["release"], each["after"], *counts, missed, each["unmended"])


def _simulators(found: dict[str, Any]) -> Iterator[str]:
    """Others than ours, as far as they can be driven step by step."""
    for name, each in found.items():
        ends = ", ".join(f"{why} {count}" for why, count in each["first_differences"].items()) or "-"
        yield _row(
            name,
            each["scenarios"],
            each["run"],
            each["equal_to_the_end"],
            f"{each['steps']:,}",
            f"{each['steps_before_the_first_difference']:,}",
            ends,
        )


def main() -> int:
    """Write the page, or compare it."""
    if "--check" not in sys.argv[1:]:
        PATH.write_text(document(), encoding="utf-8")
        return 0
    if PATH.is_file() and PATH.read_text(encoding="utf-8") == document():
        return 0
    print("docs/versions.md is out of date: run lab/generate_versions.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
