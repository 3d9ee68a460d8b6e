"""`plan` against the exhaustive grid: how near it comes to the best there is, at a tenth of the replays.

    python benchmarks/plan.py [WORKLOAD [flags of `tokenyard plan`] [-- WORKLOAD ...]]        (needs the extra plan)

Without arguments: the first minutes of three recorded workloads, from the folder of shared data (`shared` beside the
repository, or TOKENYARD_SHARED). Every variant of a grid of 200 is replayed to its end, then `plan` is given a tenth of
that. Below it the same search with ten seeds, its replays looked up in the grid. Exits 1 if a recommendation is more
than 2 % below the best.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from time import perf_counter
from typing import cast

from tokenyard.cli.plan import make_plan
from tokenyard.cli.support.asking import scenario_of
from tokenyard.cli.support.flags.replays import PlanCommand
from tokenyard.cli.support.parsing import parse
from tokenyard.questions.experiment import measured
from tokenyard.questions.planning.goal import Goal, best_row, goal_value
from tokenyard.questions.planning.search import search
from tokenyard.questions.space import space_of
from tokenyard.questions.sweeping.rows import Row, Settings, key_of, settings_in_words
from tokenyard.questions.variant_sources import measuring_for, source_of

__all__ = ["main"]

SPACE = (
    "max_num_seqs=16,24,32,48,64,96,128,256",
    "max_num_batched_tokens=512,1024,2048,4096,8192",
    "long_prefill_token_threshold=0,256,512,1024,2048",
)
SERVED = ("--gpu", "h100", "--max-model-len", "32768", "--skip-refused")
WORKLOADS = (
    ("azure2023_conv.csv.gz", "160", "1.5", "ttft:400", "tpot:25", "qwen3-32b-fp8"),
    ("azure2023_code.csv.gz", "80", "1", "ttft:500", "tpot:25", "llama-3.1-8b"),
    ("mooncake_conversation.jsonl.gz", "40", "0.5", "ttft:5000", "tpot:35", "llama-3.1-8b"),
)
"""Trace, requests, times as fast as recorded, bounds for each request in ms, model."""
WITHIN = 0.02
SEEDS = range(10)


def shared() -> Path:
    """The folder with recorded workloads."""
    named = os.environ.get("TOKENYARD_SHARED")
    return Path(named) if named else Path(__file__).resolve().parents[2] / "shared"


def words_for(name: str, limit: str, rate: str, ttft: str, tpot: str, model: str) -> list[str]:
    """The words of `tokenyard plan` for one of :data:`WORKLOADS`."""
    trace = str(shared() / "data" / "traces" / name)
    return [trace, "--limit", limit, "--rate-scale", rate, "--slo", ttft, tpot, "--model", model, *SERVED]


def judge(words: Sequence[str]) -> bool:
    """Print both searches of one workload; whether the recommendation is near enough to the best."""
    texts = ["plan", *words, "--space", *SPACE, "--no-largest-load", "--json"]
    flags = cast(PlanCommand, parse(texts))
    goal = Goal(flags.minimize or flags.maximize or "goodput")
    scenario = scenario_of(flags)
    subject = source_of(scenario)
    grid = space_of([text for texts in flags.space for text in texts], subject)
    begun = perf_counter()
    rows = {key_of(row.settings): row for row in measured(measuring_for(scenario, subject, {}), grid.all())}
    middle = perf_counter()
    tenth = len(grid) // 10
    plan = make_plan(cast(PlanCommand, parse([*texts, "--replays", str(tenth)])))
    end = perf_counter()
    best = best_row(list(rows.values()), goal)
    assert best is not None
    assert plan.recommended is not None
    print(
        f"{Path(words[0]).name}, {best.requests:,} requests, most {goal.value} with {', '.join(plan.slo)}", flush=True
    )
    failed = sum(row.problem is not None for row in rows.values())
    print(f"  grid: {len(grid)} replays in {middle - begun:.0f} s, {failed} not possible: {said(best, goal)}")
    print(f"  plan: {plan.replays} replays in {end - middle:.0f} s: {said(plan.recommended, goal)}")
    lack = lacking(plan.recommended, best, goal)
    middle_lack = lacking(median(list(rows.values()), goal), best, goal)
    print(f"  {lack:.2%} below the best; the middle of the grid is {middle_lack:.0%} below it")
    print(f"  limits next: {plan.limits}")

    def known(several: Sequence[Settings]) -> list[Row]:
        return [rows[key_of(each)] for each in several]

    lacks = [
        lacking(best_row(search(grid, known, goal, replays=tenth, seed=seed).rows, goal), best, goal) for seed in SEEDS
    ]
    near = sum(each <= WITHIN for each in lacks)
    print(f"  {len(SEEDS)} seeds: {near} within {WITHIN:.0%}, the worst {max(lacks):.2%} below the best", flush=True)
    return lack <= WITHIN


def said(row: Row, goal: Goal) -> str:
    """A variant and what it reaches."""
    return f"{goal_value(row, goal):.4g} {goal.unit} with {settings_in_words(row.settings)}"


def lacking(row: Row | None, best: Row, goal: Goal) -> float:
    """How far a variant is below the best, as a share of it."""
    top = goal_value(best, goal) or 0.0
    return 1.0 if row is None or not top else 1 - (goal_value(row, goal) or 0.0) / top


def median(rows: Sequence[Row], goal: Goal) -> Row:
    """The variant in the middle."""
    ordered = sorted((row for row in rows if row.is_measured), key=lambda row: goal_value(row, goal) or 0.0)
    return ordered[len(ordered) // 2]


def main(arguments: Sequence[str]) -> int:
    """Judge all that are named; 1 if one is too far off."""
    if find_spec("optuna") is None:  # said before minutes of replays
        sys.exit("optuna is not installed: run  pip install 'tokenyard[plan]'")
    asked = [list(words) for is_rule, words in groupby(arguments, lambda word: word == "--") if not is_rule]
    chosen = asked or [words_for(*each) for each in WORKLOADS]
    wrong = [words for words in chosen if not judge(words)]
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
