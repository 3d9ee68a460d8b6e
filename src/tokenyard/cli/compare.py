"""``tokenyard compare``: two traces, or one workload under several policies, at several loads, with several seeds."""

from __future__ import annotations

from math import inf

from tokenyard.cli.support.asking import scenario_of
from tokenyard.cli.support.console import errors, print_json, results, say_notes, warn, write_text
from tokenyard.cli.support.flags.replays import POLICIES_COMPARED, CompareCommand
from tokenyard.core.config import require_int
from tokenyard.errors import ConfigError
from tokenyard.explain.recorded import compare_recordings
from tokenyard.explain.render.comparison import print_comparison
from tokenyard.questions.compare import MOST_SEEDS, Comparison, ask
from tokenyard.questions.printing.policies import print_policies
from tokenyard.sim.traffic import Progress


def execute(flags: CompareCommand) -> int:
    """Compare, draw and print; always 0 if it ends."""
    if flags.other is not None:
        if flags.by is not None:
            raise ConfigError("by", flags.by, "traces are compared whole: leave it out, or compare policies")
        if flags.changes:
            fix = "traces are as they were recorded: `tokenyard whatif TRACE --set` says what settings would have done"
            raise ConfigError("set", flags.changes[0][0], fix)
        traces = compare_recordings(flags.workload, flags.other, align=flags.align, slo=flags.slo)
        print_json(traces) if flags.json else print_comparison(traces, results())
        return 0
    comparison = _compare(flags)
    if flags.plot is not None:
        write_text("plot", flags.plot, comparison.draw())
    refused = comparison.cells[0].refused
    if refused:
        were = "requests were refused or came after refused ones" if refused > 1 else "request was refused"
        warn(f"{refused:,} {were}, under every policy the same")
    print_json(comparison) if flags.json else print_policies(comparison, results(), header=flags.header)
    return 0


def _compare(flags: CompareCommand) -> Comparison:
    require_int("seeds", flags.seeds, 1, MOST_SEEDS)
    policies, loads = _names(POLICIES_COMPARED if flags.policies is None else flags.policies), _loads(flags.loads)
    space = [text for several in flags.changes for text in several] or None
    if space is not None and flags.policies is not None:
        fix = "settings are compared: --set scheduling_policy=A,B names policies"
        raise ConfigError("policies", flags.policies, fix)
    of = "" if space is not None else f" of {len(policies) * len(loads) * flags.seeds}"
    seen: set[tuple[str, float, int]] = set()
    with errors().status("") as status:

        def show(policy: str, load: float, seed: int, progress: Progress) -> None:
            seen.add((policy, load, seed))
            status.update(f"run {len(seen)}{of}: {policy}, load {load:g}, {progress.num_done:,} requests done")

        first = flags.arrivals.seed
        seeds = range(first, first + flags.seeds)
        return ask(
            scenario_of(flags),
            policies if space is None else None,
            space=space,
            space_name="set",
            loads=loads,
            seeds=seeds,
            on_read=say_notes,
            on_progress=show,
        )


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _loads(text: str) -> list[float]:
    try:
        loads = [float(load) for load in text.split(",")]
    except ValueError:
        loads = []
    if not loads or not all(0 < load < inf for load in loads):
        raise ConfigError("loads", text, "give numbers above 0 with commas between them, for example 0.5,1,2")
    return loads
