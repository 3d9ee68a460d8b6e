"""Record decision vectors from real vLLM (`make record-vectors`).

Runs inside .venv-vllm or .venv-vllm-0.33, which scripts/vllm_env.sh builds. Equal scenarios give equal files, whatever
PYTHONHASHSEED is.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from recorder import vectors
from recorder.drawn import KEPT, drawn
from recorder.drive import Recording
from recorder.host import build_host, vllm_facts
from recorder.scenarios import LATER, SCENARIOS
from recorder.versions import IS_FIRST, VERSION

if TYPE_CHECKING:
    from recorder.plan import Scenario

__all__ = ["main"]

PARITY = Path(__file__).resolve().parent.parent / "tests" / "parity"
DEFAULT_FOLDER = PARITY / ("vectors" if IS_FIRST else f"vectors-{VERSION}")


def _record(scenario: Scenario, folder: Path) -> int:
    """The number of steps recorded."""
    plan = scenario.plan()
    host = build_host(scenario.engine)
    ticks = Recording(host, plan, scenario).run()
    shown = vectors.statistics(ticks)
    missing = [what for what in scenario.shows if not shown.get(what)]
    if missing:
        problem = f"{scenario.name}: meant to show {', '.join(missing)}, and does not"
        if IS_FIRST:
            raise RuntimeError(problem)
        print(problem, flush=True)
    head = vectors.header(scenario, plan, ticks, vllm_facts(host))
    size = vectors.write(folder / f"{scenario.name}.jsonl.gz", [head, *ticks])
    _print(scenario.name, size, head["stats"])
    return shown["steps"]


def _print(name: str, size: int, stats: dict[str, int]) -> None:
    shown = ", ".join(f"{key} {value}" for key, value in stats.items() if value)
    print(f"{name:28} {size / 1024:5.0f} KiB  {shown}", flush=True)


def _record_drawn(span: str, folder: Path) -> None:
    """Record random scenarios; where vLLM itself fails or hangs there is nothing to compare, and that is printed."""
    first, _, last = span.partition("-")
    for seed in range(int(first), int(last or first) + 1):
        try:
            _record(drawn(seed), folder)
        except (RuntimeError, AssertionError) as problem:
            print(f"drawn_{seed}: vLLM gave up: {problem!r}", flush=True)


def _record_all(scenarios: list[Scenario], folder: Path) -> dict[str, int]:
    """Steps recorded, by name. What only an earlier version had, a later one refuses: that is printed."""
    steps = {}
    for scenario in scenarios:
        try:
            steps[scenario.name] = _record(scenario, folder)
        except AssertionError as problem:
            if IS_FIRST:
                raise
            print(f"{scenario.name}: refused by vLLM {VERSION}: {problem!r}", flush=True)
    return steps


def main() -> None:
    """Record every scenario whose name contains the given text."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("name", nargs="?", default="", help="part of a scenario's name (default: all)")
    parser.add_argument("--drawn", metavar="FIRST-LAST", help="record random scenarios of these numbers instead")
    parser.add_argument("--output", type=Path, help=f"folder to write to (default: {DEFAULT_FOLDER.name})")
    arguments = parser.parse_args()
    folder = arguments.output or DEFAULT_FOLDER
    if arguments.drawn and arguments.output is None:
        parser.error("--drawn needs --output: random scenarios are not kept")
    folder.mkdir(parents=True, exist_ok=True)
    if arguments.drawn:
        _record_drawn(arguments.drawn, folder)
        return
    scenarios = (*SCENARIOS, *map(drawn, KEPT), *(() if IS_FIRST else LATER))
    chosen = [scenario for scenario in scenarios if arguments.name in scenario.name]
    if not chosen:
        parser.error(f"no scenario's name contains {arguments.name!r}")
    steps = _record_all(chosen, folder)
    vectors.write_manifest(folder, steps, whole=not arguments.name)
    print(f"{len(steps)} scenarios in {folder}")


if __name__ == "__main__":
    main()
