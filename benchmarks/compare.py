"""`make bench-vllm`: the same scenarios through vLLM's scheduler and ours, in turns, and the ratios.

One worker process per side, both on one core; in every round each scenario runs once on each side, so that whatever
else the machine does falls on both. Figures are CPU time: the median of the rounds; a ratio is the median of the
rounds' ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from side import REPO, Side
from tokenyard.deploy.settings import MAX_IDS_PER_STEP
from workload import SCENARIOS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["main"]

FIGURES = {
    ("decode_32", "step"): ("decode step, 32 running", 1e3, "ms"),
    ("decode_256", "step"): ("decode step, 256 running", 1e3, "ms"),
    ("decode_1024", "step"): ("decode step, 1,024 running", 1e3, "ms"),
    ("drafts_256", "step"): ("three drafts each, 256 running", 1e3, "ms"),
    ("async_drafts_256", "step"): ("the same, two steps in flight", 1e3, "ms"),
    ("prefill_mix", "step"): ("prefill mix, a step", 1e3, "ms"),
    ("prefill_mix", "request"): ("prefill mix, a request", 1e3, "ms"),
    ("prompt_32k", "hash_block"): ("hashing, a block", 1e6, "µs"),
    ("prompt_32k", "lookup_block"): ("full-hit lookup, a block", 1e6, "µs"),
    ("prompt_32k", "admit"): ("admitting a cached prompt", 1e3, "ms"),
}
"""(scenario, measured) -> label, factor from seconds, unit."""

VARIANTS = ("plain", "records", "traced", "fully_traced")
"""Variants of our side; see ``our_side``."""

NOTES = (
    "CPU time. A step is schedule() + update_from_output(), and taking in drafts where they are proposed after it; of a"
    " request's drafts 0, 1, 2 or 3 are right in turn. On both sides a prompt is hashed when its request is made, which"
    " no step contains (left to itself, our scheduler hashes it in the first schedule() that looks it up); a request of"
    " the mix is made, hashed, queued and stepped to its end. The prompt has 32k tokens and is admitted from its"
    " token ids on; ours finds it equal to the one before, and takes that one's hashes over. Records: all that vLLM"
    " hands out is made; ours derives it on demand. Trace: step records are"
    " written, with at most {ids} ids in a list as `tokenyard run` does it, or with all; the cost is against ours"
    " without a trace, on the thread that steps alone and with the thread that writes."
)


class Row(NamedTuple):
    """One figure over all rounds, in seconds."""

    scenario: str
    measured: str
    vllm: list[float]
    ours: dict[str, list[float]]
    thread: dict[str, list[float]]
    """Ours, of the thread that steps alone; empty where that is all there is."""

    def ratio(self, variant: str) -> float:
        """How many times cheaper than vLLM."""
        return median(theirs / mine for theirs, mine in zip(self.vllm, self.ours[variant], strict=True))

    def overhead(self, variant: str) -> float:
        """Cost of a variant above our plain one, as a fraction of that."""
        return _above(self.ours, variant)

    def thread_overhead(self, variant: str) -> float:
        """The same, of the thread that steps alone."""
        return _above(self.thread, variant)


def _above(seconds: Mapping[str, Sequence[float]], variant: str) -> float:
    pairs = zip(seconds[variant], seconds["plain"], strict=True)
    return median(costly / plain for costly, plain in pairs) - 1


def _variants(scenario: str) -> Sequence[str]:
    """Records and traces are made per step: for a single prompt they say nothing."""
    return ["plain"] if scenario == "prompt_32k" else VARIANTS


def run(scenarios: list[str], rounds: int) -> list[Row]:
    """All rounds of all scenarios."""
    vllm = Side(REPO / ".venv-vllm" / "bin" / "python", "vllm_side.py")
    ours = Side(sys.executable, "our_side.py")
    rows = {key: Row(*key, [], defaultdict(list), defaultdict(list)) for key in FIGURES if key[0] in scenarios}
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("measuring", total=rounds * len(scenarios))
        for scenario in scenarios * rounds:
            theirs = vllm.ask({"scenario": scenario, "variants": ["plain"]})["plain"]
            _keep(rows, scenario, None, theirs)
            for variant, measured in ours.ask({"scenario": scenario, "variants": _variants(scenario)}).items():
                _check_same(scenario, theirs["facts"], measured["facts"])
                _keep(rows, scenario, variant, measured)
            progress.advance(task)
    vllm.close()
    ours.close()
    return list(rows.values())


def _keep(rows: dict[tuple[str, str], Row], scenario: str, variant: str | None, measured: dict[str, Any]) -> None:
    for (name, figure), row in rows.items():
        if name == scenario:
            seconds = measured["seconds"]
            (row.vllm if variant is None else row.ours[variant]).append(seconds[figure])
            if variant is not None and f"{figure}_thread" in seconds:
                row.thread[variant].append(seconds[f"{figure}_thread"])


def _check_same(scenario: str, theirs: dict[str, int], mine: dict[str, int]) -> None:
    """A ratio between different amounts of work would mean nothing."""
    if theirs != mine:
        sys.exit(f"{scenario}: the two sides did not do the same: vLLM {theirs}, ours {mine}")


def show(rows: list[Row], rounds: int) -> None:
    """Print the comparison, and what our own options cost."""
    console = Console()
    title = f"vLLM 0.22.1's scheduler and ours, {rounds} rounds in turns on one core"
    table = _table(title, "vLLM", "ours", "times cheaper")
    options = _table("Ours, with all of vLLM's records made", "records", "vs. vLLM")
    traces = _table("What a trace costs", "step", "+ writer", "all ids: step", "+ writer")
    for row in rows:
        vllm = _figure(row, row.vllm)
        ours = {variant: _figure(row, seconds) for variant, seconds in row.ours.items()}
        label = FIGURES[row.scenario, row.measured][0]
        table.add_row(label, vllm, ours["plain"], f"{row.ratio('plain'):.1f}x")
        if "records" in ours:
            options.add_row(label, ours["records"], f"{row.ratio('records'):.1f}x")
        if row.thread:
            costs = [
                cost for name in ("traced", "fully_traced") for cost in (row.thread_overhead(name), row.overhead(name))
            ]
            traces.add_row(label, *[f"{cost:+.0%}" for cost in costs])
    for each in (table, options, traces):
        if each.row_count:
            console.print(each)
    console.print(NOTES.format(ids=MAX_IDS_PER_STEP))


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _figure(row: Row, seconds: list[float]) -> str:
    _, factor, unit = FIGURES[row.scenario, row.measured]
    return f"{median(seconds) * factor:.3g} {unit}"


def as_json(rows: list[Row], rounds: int) -> dict[str, Any]:
    """Everything measured, in seconds per round."""
    return {
        "machine": {"python": platform.python_version(), "platform": platform.platform(), "cpus": os.cpu_count()},
        "rounds": rounds,
        "figures": [
            {
                "scenario": row.scenario,
                "measured": row.measured,
                "vllm_seconds": row.vllm,
                "ours_seconds": row.ours,
                "ratio": {variant: row.ratio(variant) for variant in row.ours},
                "overhead": {variant: row.overhead(variant) for variant in row.ours if variant != "plain"},
                "thread_overhead": {
                    variant: row.thread_overhead(variant) for variant in row.thread if variant != "plain"
                },
            }
            for row in rows
        ],
    }


def main() -> None:
    """Compare the cost of vLLM's scheduler and ours."""
    names = [scenario.name for scenario in SCENARIOS]
    parser = argparse.ArgumentParser(prog="make bench-vllm ARGS=...", description=main.__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="times each side runs each scenario (default: 5)")
    parser.add_argument("--scenario", action="append", choices=names, help="only this one; may be repeated")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error("--rounds must be at least 1")
    rows = run(arguments.scenario or names, arguments.rounds)
    if arguments.json:
        print(json.dumps(as_json(rows, arguments.rounds)))
    else:
        show(rows, arguments.rounds)


if __name__ == "__main__":
    main()
