"""Record decision vectors from real vLLM (`make record-vectors`).

Runs inside an environment of vLLM's, which scripts/vllm_env.sh builds. Equal scenarios give equal files, whatever
PYTHONHASHSEED is. A recording that is that of the version before, but for the version's name, is not kept twice: the
manifest names it, and the folder before it has its file.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from recorder import vectors
from recorder.drawn import KEPT, drawn, with_rings
from recorder.drive import Recording
from recorder.host import build_host, vllm_facts
from recorder.scenarios import LATER, RINGS, SCENARIOS
from recorder.versions import HAS_CIRCULAR_BUFFERS, HAS_MAMBA_MODE_ALL, IS_FIRST, RELEASE, VERSION

if TYPE_CHECKING:
    from recorder.plan import Scenario

__all__ = ["main"]

VECTORS = Path(__file__).resolve().parent.parent / "conformance" / "vectors"
DEFAULT_FOLDER = VECTORS / VERSION


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


def _record_drawn(span: str, folder: Path, *, rings: bool = False) -> None:
    """Record random scenarios; where vLLM itself fails or hangs there is nothing to compare, and that is printed."""
    first, _, last = span.partition("-")
    for seed in range(int(first), int(last or first) + 1):
        try:
            _record(with_rings(drawn(seed)) if rings else drawn(seed), folder)
        except (RuntimeError, AssertionError) as problem:
            print(f"drawn_{seed}: vLLM gave up: {problem!r}", flush=True)


def _record_all(scenarios: list[Scenario], folder: Path) -> dict[str, int]:
    """Steps recorded, by name. What only an earlier version had, a later one refuses: that is printed."""
    steps = {}
    for scenario in scenarios:
        if scenario.engine.mamba_cache_mode == "all" and not HAS_MAMBA_MODE_ALL:
            print(f"{scenario.name}: vLLM {VERSION} has no such mode", flush=True)
            continue
        try:
            steps[scenario.name] = _record(scenario, folder)
        except AssertionError as problem:
            if IS_FIRST:
                raise
            print(f"{scenario.name}: refused by vLLM {VERSION}: {problem!r}", flush=True)
    return steps


def _before() -> str:
    """The folder of the last version before this one."""
    folders = [path.name for path in VECTORS.iterdir() if path.is_dir()]
    numbered = sorted(tuple(map(int, name.split("."))) for name in folders)
    last = max(number for number in numbered if number < tuple(map(int, VERSION.split("."))))
    return ".".join(map(str, last))


def main() -> None:
    """Record every scenario whose name contains the given text."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("name", nargs="?", default="", help="part of a scenario's name (default: all)")
    parser.add_argument("--drawn", metavar="FIRST-LAST", help="record random scenarios of these numbers instead")
    parser.add_argument("--rings", action="store_true", help="with --drawn: circular buffers beside the other groups")
    parser.add_argument("--output", type=Path, help=f"folder to write to (default: {DEFAULT_FOLDER.name})")
    arguments = parser.parse_args()
    folder = arguments.output or DEFAULT_FOLDER
    if arguments.drawn and arguments.output is None:
        parser.error("--drawn needs --output: random scenarios are not kept")
    folder.mkdir(parents=True, exist_ok=True)
    if arguments.drawn:
        _record_drawn(arguments.drawn, folder, rings=arguments.rings)
        return
    before = None if IS_FIRST else _before()
    scenarios = (
        *SCENARIOS,
        *map(drawn, KEPT),
        *(() if IS_FIRST else LATER),
        *(RINGS if HAS_CIRCULAR_BUFFERS else ()),
    )
    chosen = [scenario for scenario in scenarios if arguments.name in scenario.name]
    if not chosen:
        parser.error(f"no scenario's name contains {arguments.name!r}")
    steps = _record_all(chosen, folder)
    vectors.write_manifest(folder, RELEASE, before, steps, whole=not arguments.name)
    known = 0 if before is None else sum(vectors.drop_if_known(folder, name, before) for name in steps)
    print(f"{len(steps)} scenarios in {folder}, {known} of them as {before} decided")


if __name__ == "__main__":
    main()
