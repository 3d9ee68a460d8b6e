#!/usr/bin/env python3
"""Print what is known of each version of vLLM: a part of the page `parity.md` of the site.

Vectors are counted where they lie; the other figures are those that the checks noted (``lab/noted.json``).
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from generate_parity_map import FOLDER, tables
from noted import noted
from tokenyard.cli.support.flag_table import field_docs
from tokenyard.core.outside import outside
from tokenyard.core.profiles import PROFILES, DecisionProfile
from tokenyard.core.releases import RELEASES, Release
from tokenyard.deploy.vllm_serve.flags import recorded_flags
from tokenyard.parity.comparison import recordings
from tokenyard.parity.vector import GoldenVector, unsupported_features

__all__ = ["document", "switches"]

ROOT = Path(__file__).resolve().parents[1]
HEAD = """\
### What is known of each version, and by which check

* **switches**: decisions that the version changed (below); **facts**: what it changed of
  defaults, checks, memory and front ends; **flags**: those of `vllm serve`, recorded from the version itself.
* **vectors**: recorded scenarios that `tokenyard parity conformance/vectors/*` replays, and their steps; *outside* are
  those that need what the profile does not model (below). The tests replay all of them: none may differ.
* **lockstep**: drawn scenarios that ran through the version's own scheduler and `FastScheduler` call by call, every
  answer compared; *outside* are those that `FastScheduler` refuses by name: mostly what the profile does not model.
  `make differential VLLM=0.27 SCENARIOS=2000 ARGS=--note` runs more and notes them.
* **planner**: plans of the KV cache of known models, for several sizes of memory, that the version's own planner made
  (`lab/record_kv_plans.py`); the tests compare ours, and none may differ.
* **config**: drawn `vllm serve` lines through the version's own configuration and ours, every value compared
  (`make differential-config VLLM=0.27 CASES=250 ARGS=--note`).
* **inside**: the release that Tokenyard's schedulers were run inside, and tests that passed there
  (`make test-vllm VLLM=0.27`); *models*: with tiny models too. These run inside 0.27 to 0.32, whose wheels were made
  with the torch that is there; the wheel of 0.24 asks for a build of torch 2.11.0 that package indexes lack, but its
  kernels load with the one that they have (`make test-vllm VLLM=0.24-kernels`, likewise 0.23, 0.25 and 0.26, which were
  not tried). No wheel for CPUs of 0.33 exists. Inside the others the scheduler was run without a model.

A dash means that the check was not run for that version. A count is that of the run that was noted: what it showed to
differ may have been mended since.
"""


DIFFERENCES = """\
### All that differs between 0.22.1 and 0.33.0

Found by reading the sources of twelve releases. In brackets: the first with the later behaviour. Each line says what
becomes of it here: a **switch** by its name; a **setting** that both have, off by default; **no effect**, since what it
concerns does not happen here; **refused**, by an error that names the flag, field, model or kind of group; **as 0.22**:
not modelled, and no message says so. With a KV connector of either version decisions are those of 0.22.
"""


def document() -> str:
    """The page."""
    parts = (_table(), switches(), _outside(), _follows(), _simulators(), [DIFFERENCES])
    return "\n".join(
        [HEAD, *(line for part in parts for line in (*part, "")), *tables(FOLDER / "vllm_differences.tsv")]
    )


def switches() -> Iterator[str]:
    """Each switch, what it does where it is turned from what 0.22 does, and the versions that turned it."""
    docs, oldest = field_docs(DecisionProfile), next(iter(PROFILES.values()))
    yield "### Switches: decisions that versions changed\n"
    yield "| switch | 0.22 | what it says | turned by |\n| --- | --- | --- | --- |"
    for field in fields(DecisionProfile):
        turns = [f"{each.version}: {each.switches[field.name]}" for each in RELEASES if field.name in each.switches]
        if turns:
            said = " ".join(docs[field.name].split()).replace("``", "`")
            yield _row(f"`{field.name}`", getattr(oldest, field.name), said, ", ".join(turns))


def _table() -> Iterator[str]:
    yield "| vLLM | switches | facts | flags | vectors | lockstep | outside | planner | config | inside |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
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
    yield "### What the profiles do not model as the version has it\n"
    rows = [f"| {v} | `{feature}` | {what} |" for v in PROFILES for feature, what in outside(v).items()]
    head = "| vLLM | feature | what a replay does |\n| --- | --- | --- |"
    nothing = (
        "Nothing that a setting asks for and that is not refused by name; [limits](limits.md) has what none models."
    )
    yield from (head, *rows) if rows else (nothing,)


def _follows() -> Iterator[str]:
    yield """\
### Releases that were followed as if they were unknown

What `make follow VERSION=0.33.0 NEWEST=0.32 ARGS=--note` proposes for a release that is known: it compares scenarios of
its own scheduler with the profile before it, and turns switches until they agree. A switch of which no scenario showed
the difference is missed: `make differential` finds it later. The last column counts differences left over.

| vLLM | after | scenarios | switches proposed | known | proposed and known | missed | no switch mends |
| --- | --- | --- | --- | --- | --- | --- | --- |"""
    for each in (checks["follow"] for checks in noted().values() if "follow" in checks):
        missed = ", ".join(f"`{name}`" for name in each["missed"]) or "-"
        counts = (each[name] for name in ("scenarios", "proposed", "known", "right"))
        yield _row(each["release"], each["after"], *counts, missed, each["unmended"])


def _simulators() -> Iterator[str]:
    """Others than ours, as far as they can be driven step by step."""
    found = json.loads((ROOT / "conformance" / "results.json").read_text(encoding="utf-8"))
    yield "### Other simulators\n"
    yield f"""\
How far others decide as vLLM {found["vllm"]}, by [the conformance suite](../conformance/README.md): scenarios that a
simulator has all settings for, those that agree to the end, and steps before the first difference. `python3 run.py
vectors/0.33 --only scheduled preempted -- python vidur_side.py` in `conformance` prints a row.
"""
    yield "| simulator | scenarios | run | equal to the end | steps | before a difference | what differs first |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for name, each in found["simulators"].items():
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
    yield """
Vidur knows no prefix caching, priorities, adapters, drafts, images, aborts or async scheduling: such scenarios are not
run, but for prefix caching, which is vLLM's default. Dynamo's replay (1.6.1) takes a whole trace and answers with a
report: its Python interface offers no step to drive, so that it cannot be measured in this way. BLIS, Inference Lab,
LLMServingSim and AISimulate have no package that pip installs from the public index, and were not run. The suite asks
for a program that reads and answers lines, in any language."""


if __name__ == "__main__":
    print(document())
