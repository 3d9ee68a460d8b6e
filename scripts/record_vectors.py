"""Record decision vectors from real vLLM (`make record-vectors`).

Runs inside .venv-vllm, which scripts/vllm_env.sh builds. Equal scenarios give equal files, whatever PYTHONHASHSEED is.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from recorder import vectors
from recorder.drive import Recording
from recorder.host import build_host, vllm_facts
from recorder.scenarios import SCENARIOS

if TYPE_CHECKING:
    from recorder.plan import Scenario

__all__ = ["main"]

DEFAULT_FOLDER = Path(__file__).resolve().parent.parent / "tests" / "parity" / "vectors"


def _record(scenario: Scenario, folder: Path) -> None:
    plan = scenario.plan()
    host = build_host(scenario.engine)
    ticks = Recording(host, plan, scenario).run()
    shown = vectors.statistics(ticks)
    missing = [what for what in scenario.shows if not shown.get(what)]
    if missing:
        raise RuntimeError(f"{scenario.name}: meant to show {', '.join(missing)}, and does not")
    head = vectors.header(scenario, plan, ticks, vllm_facts(host))
    size = vectors.write(folder / f"{scenario.name}.jsonl.gz", [head, *ticks])
    _print(scenario.name, size, head["stats"])


def _print(name: str, size: int, stats: dict[str, int]) -> None:
    shown = ", ".join(f"{key} {value}" for key, value in stats.items() if value)
    print(f"{name:28} {size / 1024:5.0f} KiB  {shown}", flush=True)


def main() -> None:
    """Record every scenario whose name contains the given text."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("name", nargs="?", default="", help="part of a scenario's name (default: all)")
    parser.add_argument("--output", type=Path, default=DEFAULT_FOLDER, help="folder to write to")
    arguments = parser.parse_args()
    chosen = [scenario for scenario in SCENARIOS if arguments.name in scenario.name]
    if not chosen:
        parser.error(f"no scenario's name contains {arguments.name!r}")
    arguments.output.mkdir(parents=True, exist_ok=True)
    for scenario in chosen:
        _record(scenario, arguments.output)
    print(f"{len(chosen)} scenarios in {arguments.output}")


if __name__ == "__main__":
    main()
