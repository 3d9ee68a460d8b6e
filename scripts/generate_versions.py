#!/usr/bin/env python3
"""Writes docs/versions.md: what is known of each version of vLLM, and by which check. ``--check`` only compares.

Vectors are counted where they lie; the other figures are those that the checks noted (``scripts/noted.json``).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from noted import noted
from tokenyard.core.outside import outside
from tokenyard.core.profiles import PROFILES, SINCE
from tokenyard.core.releases import FACTS_SINCE
from tokenyard.deploy.vllm_serve.flags import recorded_flags
from tokenyard.parity.comparison import recordings
from tokenyard.parity.vector import GoldenVector, unsupported_features
from tokenyard.vllm.versions import TESTED

__all__ = ["document"]

ROOT = Path(__file__).resolve().parents[1]
PATH = ROOT / "docs" / "versions.md"
HEAD = """\
# Versions of vLLM

What is known of each version, and by which check. This page is made by `scripts/generate_versions.py`.

* **switches**: decisions that the version changed ([which](parity.md#versions-of-vllm)); **facts**: what it changed of
  defaults, checks, memory and front ends; **flags**: those of `vllm serve`, recorded from the version itself.
* **vectors**: recorded scenarios that `tokenyard parity conformance/vectors/*` replays, and their steps; *outside* are
  those that need what the profile does not model (below). The tests replay all of them: none may differ.
* **lockstep**: drawn scenarios that ran through the version's own scheduler and `FastScheduler` call by call, every
  answer compared; *outside* are those that `FastScheduler` refuses by name: mostly what the profile does not model.
  `make differential VLLM=0.27 SCENARIOS=2000 ARGS=--note` runs more and notes them.
* **planner**: plans of the KV cache of known models, for several sizes of memory, as the version's own planner and ours
  make them (`make differential-planner VLLM=0.27 ARGS=--note`).
* **config**: drawn `vllm serve` lines through the version's own configuration and ours, every value compared
  (`make differential-config VLLM=0.27 CASES=250 ARGS=--note`).
* **inside**: the release that Tokenyard's schedulers were run inside, and tests that passed there
  (`make test-vllm VLLM=0.27`). 0.32 alone runs models: the compiled kernels of the other wheels ask for the torch that
  they were built with.

A dash means that the check was not run for that version.
"""


def document() -> str:
    """The page."""
    return "\n".join([HEAD, *_table(), "", *_outside(), ""])


def _table() -> Iterator[str]:
    yield "| vLLM | switches | facts | flags | vectors | lockstep | outside | planner | config | inside |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    known = noted()
    for version in PROFILES:
        lockstep = known.get(version, {}).get("lockstep")
        inside = [release for release in TESTED if release.startswith(f"{version}.")]
        yield _row(
            version,
            len(SINCE[version]),
            len(FACTS_SINCE.get(version, ())),
            len(recorded_flags(version)),
            _vectors(version),
            _lockstep(lockstep),
            "-" if lockstep is None else f"{lockstep['refused']:,}",
            _checked(known.get(version, {}).get("planner"), "plans"),
            _checked(known.get(version, {}).get("config"), "cases"),
            _inside(known.get(version, {}).get("inside"), inside),
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


def _inside(figures: dict[str, Any] | None, tested: list[str]) -> str:
    if figures is None:
        return ", ".join(tested) or "-"
    return f"{figures['release']}: {figures['passed']:,} passed, {figures['failed']:,} failed"


def _outside() -> Iterator[str]:
    yield "## What the profiles do not model as the version has it\n"
    yield "| vLLM | feature | what a replay does |\n| --- | --- | --- |"
    for version in PROFILES:
        yield from (f"| {version} | `{feature}` | {what} |" for feature, what in outside(version).items())


def main() -> int:
    """Write the page, or compare it."""
    if "--check" not in sys.argv[1:]:
        PATH.write_text(document(), encoding="utf-8")
        return 0
    if PATH.is_file() and PATH.read_text(encoding="utf-8") == document():
        return 0
    print("docs/versions.md is out of date: run scripts/generate_versions.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
