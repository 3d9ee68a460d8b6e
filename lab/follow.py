"""`make follow VERSION=0.34.0`: what a release of vLLM changed, and which switches would make ours decide as it does.

Runs in the environment of the release, which ``scripts/vllm_env.sh`` builds. Structure is compared with the version
before it, as it lies in that one's environment: functions that changed, fields and methods that came or went, defaults,
flags. Then the recorder's scenarios and drawn ones run through the release's own scheduler and ours in lockstep,
decided by the newest profile that is known. Where they differ, switches are turned one by one; those that mend a
scenario are proposed, and what none mends is made small. The report is Markdown. Where nothing differs the version is
taken in: its entry, flags, vectors and plans are written. With ``--newest 0.32`` later profiles are taken to be
unknown: so a known release can be followed.
"""

from __future__ import annotations

import argparse
import ast
import gzip
import json
import logging
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import lockstep  # noqa: F401 - sets the environment that vLLM reads
from noted import note
from tokenyard.core.profiles import NEWEST, PROFILES, DecisionProfile, turned_between
from tokenyard.deploy.vllm_serve.flags import recorded_flags

__all__ = ["main", "structure_of", "with_entry"]

ROOT = Path(__file__).resolve().parents[1]
WATCHED = (
    "v1/core",
    "v1/request.py",
    "v1/outputs.py",
    "v1/kv_cache_interface.py",
    "v1/engine/__init__.py",
    "v1/engine/core.py",
    "v1/engine/coordinator.py",
    "v1/metrics/stats.py",
    "config/scheduler.py",
    "config/cache.py",
    "config/speculative.py",
    "config/vllm.py",
    "distributed/kv_events.py",
    "engine/arg_utils.py",
    "sampling_params.py",
)
"""Files and folders of vLLM that decisions, the plan, interfaces and defaults stand in."""
_MOST_SHOWN = 40
_MOST_SHRUNK = 5
"""Differences that no switch mends and that are made small."""
_MOST_AGREED = 100
"""Scenarios that agreed and are asked again where several switches mend one."""
_MOST_RUNS = 60
"""Runs that making one small takes."""


# ---------------------------------------------------------------------------------------------------------------------
# Structure: what a source tree defines, by name, in a form that ignores comments, docstrings and layout.


class _Defined(NamedTuple):
    kind: str
    """function, field."""
    text: str
    """Its code without docstrings; of a field its type and default."""


def structure_of(root: Path) -> dict[str, _Defined]:
    """``file:Class.name`` -> what it is, of everything watched."""
    found: dict[str, _Defined] = {}
    for name in WATCHED:
        path = root / name
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path] * path.exists():
            tree = ast.parse(file.read_text(encoding="utf-8"))
            found.update(_defined(tree.body, f"{file.relative_to(root)}:"))
    return found


def _defined(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, _Defined]]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + node.name, _Defined("function", _code(node))
        elif isinstance(node, ast.ClassDef):
            yield from _defined(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            default = "" if node.value is None else f" = {ast.unparse(node.value)}"
            yield prefix + node.target.id, _Defined("field", ast.unparse(node.annotation) + default)


def _code(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    first = node.body[0]
    if len(node.body) > 1 and isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        node.body.pop(0)
    return ast.unparse(node)


def _compared(older: Mapping[str, _Defined], newer: Mapping[str, _Defined]) -> Iterator[str]:
    gone, come = sorted(older.keys() - newer.keys()), sorted(newer.keys() - older.keys())
    changed = sorted(name for name in older.keys() & newer.keys() if older[name] != newer[name])
    yield from _listed("fields that came", [f"`{n}`: {newer[n].text}" for n in come if newer[n].kind == "field"])
    yield from _listed("fields that went", [f"`{n}`" for n in gone if older[n].kind == "field"])
    defaults = [f"`{n}`: {older[n].text} -> {newer[n].text}" for n in changed if newer[n].kind == "field"]
    yield from _listed("fields whose type or default changed", defaults)
    yield from _listed("functions that came", [f"`{n}`" for n in come if newer[n].kind == "function"])
    yield from _listed("functions that went", [f"`{n}`" for n in gone if older[n].kind == "function"])
    functions = sorted(
        ((_num_changed(older[n].text, newer[n].text), n) for n in changed if newer[n].kind == "function"), reverse=True
    )
    yield from _listed("functions that changed, most lines first", [f"`{n}`: {lines}" for lines, n in functions])


def _num_changed(older: str, newer: str) -> int:
    one, other = Counter(older.splitlines()), Counter(newer.splitlines())
    return sum((one - other).values()) + sum((other - one).values())


def _listed(title: str, rows: list[str]) -> Iterator[str]:
    yield f"### {len(rows)} {title}\n"
    yield from (f"* {row}" for row in rows[:_MOST_SHOWN])
    if len(rows) > _MOST_SHOWN:
        yield f"* ... and {len(rows) - _MOST_SHOWN} more"
    yield ""


def _flags(newest: str) -> Iterator[str]:
    older = recorded_flags(newest)
    try:
        found = import_module("record_vllm_flags").recorded_flags()
    except SystemExit as error:
        yield f"The flags could not be asked for: {error}.\n"
        return
    newer = {flag["name"]: flag for flag in found["flags"]}
    yield from _listed("flags that came", [f"`--{name}`" for name in sorted(newer.keys() - older.keys())])
    yield from _listed("flags that went", [f"`--{name}`" for name in sorted(older.keys() - newer.keys())])
    moved = [
        f"`--{name}`: {older[name].default!r} -> {newer[name].get('default')!r}"
        for name in sorted(older.keys() & newer.keys())
        if _plain(older[name].default) != _plain(newer[name].get("default"))
    ]
    yield from _listed("flags whose default moved", moved)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


# ---------------------------------------------------------------------------------------------------------------------
# Lockstep with the newest profile, and which switches mend what differs.


class _Lockstep:
    """Runs scenarios with profiles of our choice."""

    def __init__(self, profile: DecisionProfile) -> None:
        self.profile = profile
        asked = vars(import_module("tokenyard.vllm.fast.settings"))
        asked |= {"profile_name": lambda: "followed", "decision_profile": lambda _: self.profile}
        self._scenario: Any = import_module("lockstep.scenario")

    def run(self, scenario: Any, profile: DecisionProfile) -> Any:
        """The outcome of a scenario decided by ``profile``."""
        self.profile = profile
        return self._scenario.run_plan(scenario, scenario.plan())

    def small(self, scenario: Any, outcome: Any, *, shrink: bool) -> list[str]:
        """A difference with all that repeats it, without what it does not need."""
        plan = scenario.plan()
        if shrink:
            plan, outcome = import_module("lockstep.shrink").shrunk(scenario, outcome, _MOST_RUNS)
        return list(import_module("lockstep.report").case_lines(scenario, plan, outcome))


def _turns(profile: DecisionProfile) -> Iterator[dict[str, Any]]:
    """Every switch, turned the other way."""
    for field in fields(profile):
        value = getattr(profile, field.name)
        if isinstance(value, bool):
            yield {field.name: not value}
        elif field.name == "prefix_cache_retention_interval":
            yield {field.name: 0 if value is None else None}


def _mended(runner: _Lockstep, scenario: Any, profile: DecisionProfile, steps: int) -> tuple[list[dict[str, Any]], int]:
    """The turns after which the scenario agrees for longest, and how many steps that is; -1: to its end."""
    best: list[dict[str, Any]] = []
    to_the_end = False
    for turn in _turns(profile):
        outcome = runner.run(scenario, replace(profile, **turn))
        if outcome.refused or (outcome.gave_up and outcome.steps <= steps):
            continue
        if outcome.difference is None:  # to its end, or to where vLLM itself gives up
            best, to_the_end = [*(best if to_the_end else ()), turn], True
        elif not to_the_end and outcome.steps > steps:
            best, steps = [turn], outcome.steps
    return best, -1 if to_the_end else steps


def _least_harm(
    runner: _Lockstep, turns: list[dict[str, Any]], profile: DecisionProfile, agreed: list[Any]
) -> dict[str, Any]:
    """The turn that mends a scenario: of several the one after which most of those that agreed before still do."""

    def broken(turn: dict[str, Any]) -> int:
        return sum(runner.run(scenario, replace(profile, **turn)).difference is not None for scenario in agreed)

    return turns[0] if len(turns) == 1 else min(turns, key=broken)


class _Found(NamedTuple):
    compared: int
    refused: int
    proposed: dict[str, Any]
    """Switch -> its value."""
    unmended: list[str]
    """Differences that no switch mends, with the least that shows them."""
    seen: Counter[str]
    """Which switch mended how many scenarios."""


def _scenarios(first: int, *, named: bool) -> Iterator[Any]:
    """The recorder's named scenarios, which are the vectors of every version, then drawn ones."""
    known = import_module("recorder.scenarios")
    if named:
        yield from (*known.SCENARIOS, *known.LATER)
    yield from map(import_module("lockstep.streams").stream, count(first))


def _followed(profile: DecisionProfile, scenarios: Iterator[Any], most: int, minutes: float) -> _Found:
    runner, began = _Lockstep(profile), time.monotonic()
    proposed: dict[str, Any] = {}
    unmended: list[str] = []
    seen: Counter[str] = Counter()
    agreed: list[Any] = []
    compared = refused = 0
    for scenario in scenarios:
        if compared >= most or time.monotonic() - began > 60 * minutes:
            break
        outcome = runner.run(scenario, replace(profile, **proposed))
        if outcome.refused or outcome.gave_up:
            refused += 1
            continue
        compared += 1
        for _ in range(3):  # several switches may have to be turned, each of which lets it agree for longer
            if outcome.difference is None:
                break
            decided = replace(profile, **proposed)
            turns, steps = _mended(runner, scenario, decided, outcome.steps)
            if not turns:
                break
            turn = _least_harm(runner, turns, decided, agreed)
            proposed |= turn
            seen.update(turn.keys())
            print(f"{scenario.name}: {outcome.difference.where}: {turn} ({steps})", file=sys.stderr, flush=True)
            outcome = runner.run(scenario, replace(profile, **proposed))
        if outcome.difference is None and len(agreed) < _MOST_AGREED:
            agreed.append(scenario)
        if outcome.difference is not None:
            lines = runner.small(scenario, outcome, shrink=len(unmended) < _MOST_SHRUNK)
            unmended.append("\n".join(["```text", *(line[:300] for line in lines), "```"]))
            print("\n".join(lines)[:160], file=sys.stderr, flush=True)
    proposed = {name: value for name, value in proposed.items() if value != getattr(profile, name)}
    return _Found(compared, refused, proposed, unmended, seen)


def _decisions(found: _Found, newest: str, version: str) -> Iterator[str]:
    yield f"{found.compared} scenarios were compared, {found.refused} refused by one side.\n"
    known = turned_between(newest, version) if version in PROFILES and version != newest else {}
    yield from _listed(
        "switches proposed", [f"`{name} = {value}`: mends {found.seen[name]}" for name, value in found.proposed.items()]
    )
    if known:
        right = sorted(set(found.proposed) & set(known))
        yield f"Known: {', '.join(f'`{name}`' for name in sorted(known))}.\n"
        yield f"{len(right)} of {len(found.proposed)} proposed are among the {len(known)} known.\n"
    yield f"### {len(found.unmended)} differences that no switch mends: each asks for a new one\n"
    yield from found.unmended[:_MOST_SHOWN]
    if not found.proposed and not found.unmended:
        yield (
            f"Nothing differs: `core/releases.py` gets an entry without switches. Defaults and checks "
            "that moved (above) are facts of that entry. `make differential`, "
            f"`make differential-config` and `make test-vllm` with `VLLM={version} ARGS=--note` complete its row.\n"
        )


def _figures(found: _Found, newest: str, release: str) -> dict[str, Any]:
    known = turned_between(newest, ".".join(release.split(".")[:2]))
    missed = sorted(set(known) - set(found.proposed))
    return {
        "release": release,
        "after": newest,
        "scenarios": found.compared,
        "proposed": len(found.proposed),
        "known": len(known),
        "missed": missed,
        "right": len(known) - len(missed),
        "unmended": len(found.unmended),
    }


def with_entry(text: str, version: str, release: str) -> str:
    """The source of the table of releases with one at its end that changed nothing."""
    end = text.index("\n)\n", text.index("RELEASES: tuple")) + 1
    return f'{text[:end]}    Release("{version}", tested="{release}"),\n{text[end:]}'


def _models_before(plans: Path) -> list[str]:
    """Models whose plans were recorded for the version before: one of each architecture."""
    before = max(path for path in plans.parent.glob("kv_plans_0.*.json.gz") if path != plans)
    return sorted({plan["model"] for plan in json.loads(gzip.decompress(before.read_bytes()))["plans"]})


def _take_in(version: str, release: str) -> None:
    """A version that decides as the one before: its entry, its flags, its vectors, its plans."""
    table = ROOT / "src" / "tokenyard" / "core" / "releases.py"
    table.write_text(with_entry(table.read_text(encoding="utf-8"), version, release), encoding="utf-8")
    plans = ROOT / "tests" / "unit" / "models" / f"kv_plans_{version}.json.gz"
    for arguments in (
        ["record_vllm_flags.py"],
        ["record_vectors.py"],
        ["record_kv_plans.py", "--tp", "2", "--only", *_models_before(plans), "--out", str(plans)],
    ):
        print(" ".join(arguments), file=sys.stderr, flush=True)
        [script] = ROOT.glob(f"[ls]*/{arguments[0]}")
        subprocess.run([sys.executable, script, *arguments[1:]], check=True, cwd=ROOT)


def main() -> int:
    """Write the report: 0 if nothing differs."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--newest", default=NEWEST.vllm_version, help="the newest version taken to be known")
    parser.add_argument("--older", type=Path, required=True, help="the environment of that version")
    parser.add_argument("--scenarios", type=int, default=300, help="scenarios to compare (default: 300)")
    parser.add_argument("--minutes", type=float, default=30, help="stop comparing after so many (default: 30)")
    parser.add_argument("--first", type=int, default=1, help="number of the first one (default: 1)")
    parser.add_argument("--no-named", action="store_true", help="leave out the recorder's named scenarios")
    parser.add_argument("--note", action="store_true", help="note for the page of parity what a known release came to")
    parser.add_argument("--output", type=Path, help="the report's file (default: follow-VERSION.md)")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    vllm = import_module("vllm")
    release = str(vllm.__version__).partition("+")[0]
    version = ".".join(release.split(".")[:2])
    [older] = arguments.older.glob("lib/python*/site-packages/vllm")
    lines = [f"# vLLM {release} after {arguments.newest}\n", "## Structure\n"]
    lines += _compared(structure_of(older), structure_of(Path(str(vllm.__file__)).parent))
    lines += ["## Flags\n", *_flags(arguments.newest), "## Decisions\n"]
    scenarios = _scenarios(arguments.first, named=not arguments.no_named)
    found = _followed(PROFILES[arguments.newest], scenarios, arguments.scenarios, arguments.minutes)
    lines += _decisions(found, arguments.newest, version)
    output = arguments.output or ROOT / f"follow-{release}.md"
    output.write_text("\n".join(lines) + "\n", encoding="utf-8")
    told = {"proposed": found.proposed, "unmended": len(found.unmended), "compared": found.compared}
    print(f"{output.name}: {json.dumps(told)}")
    if arguments.note and version in PROFILES:
        note(version, "follow", _figures(found, arguments.newest, release))
    if found.proposed or found.unmended:
        return 1
    if version not in PROFILES:
        _take_in(version, release)
    return 0


if __name__ == "__main__":
    sys.exit(main())
