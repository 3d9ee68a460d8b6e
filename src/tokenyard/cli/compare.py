"""``tokenyard compare``: two traces, or one workload under several policies, at several loads, with several seeds."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path

import msgspec

from tokenyard.cli.support.asking import prepare
from tokenyard.cli.support.console import errors, print_json, results, say_notes, warn
from tokenyard.cli.support.flags import Compare
from tokenyard.core.config import require_int
from tokenyard.deploy.header import with_idle_policies, with_oracles
from tokenyard.deploy.spec import ReplaySpec
from tokenyard.errors import ConfigError, WorkloadError
from tokenyard.explain.compare.comparison import compare_traces
from tokenyard.explain.render.comparison import print_comparison
from tokenyard.explain.report.slo import read_slos
from tokenyard.questions.compare import Comparison, compare, draw
from tokenyard.questions.printing.policies import print_policies
from tokenyard.sim.replay import Progress
from tokenyard.workload.record import Workload

__all__ = ["execute"]

_MOST_SEEDS = 1000


def execute(flags: Compare) -> int:
    """Compare, draw and print; always 0 if it ends."""
    if flags.other is not None:
        return _compare_traces(Path(flags.workload), flags.other, flags)
    comparison = _compare(flags)
    if comparison.cells[0].metrics["output_tokens_per_s"].mean == 0:
        fix = "--skip-refused leaves none of its requests; without it, the first one's problem is named"
        raise WorkloadError(flags.workload, 0, fix)
    if flags.plot is not None:
        _write(flags.plot, draw(comparison))
    refused = comparison.cells[0].refused
    if refused:
        were = "requests were refused or came after refused ones" if refused > 1 else "request was refused"
        warn(f"{refused:,} {were}, under every policy the same")
    if flags.json:
        print_json(comparison)
    else:
        print_policies(comparison, results())
    return 0


def _compare_traces(a: Path, b: Path, flags: Compare) -> int:
    comparison = compare_traces(a, b, flags.align, slos=read_slos(flags.slo))
    print_json(comparison) if flags.json else print_comparison(comparison, results())
    return 0


def _compare(flags: Compare) -> Comparison:
    require_int("seeds", flags.seeds, 1, _MOST_SEEDS)
    if flags.arrivals.client_timeout is not None:
        fix = "jobs are compared whole: leave it out, or compare traces of two runs with it"
        raise ConfigError("client_timeout", flags.arrivals.client_timeout, fix)
    policies, loads = _names(flags.policies), _loads(flags.loads)
    slos = read_slos(flags.slo)
    if slos and all(slo.statistic == "mean" or slo.figure == "itl" for slo in slos):
        fix = "policies are compared by requests within bounds: give one that a request can hold, for example ttft:500"
        raise ConfigError("slo", ", ".join(map(str, slos)), fix)
    setup = _prepare(flags, flags.arrivals.seed)
    say_notes(setup.workload)
    runs = len(policies) * len(loads) * flags.seeds
    seen: set[tuple[str, float, int]] = set()
    with errors().status("") as status:

        def show(policy: str, load: float, seed: int, progress: Progress) -> None:
            seen.add((policy, load, seed))
            status.update(f"run {len(seen)} of {runs}: {policy}, load {load:g}, {progress.num_done:,} requests done")

        comparison = compare(
            policies,
            lambda seed: _workload(flags, setup, seed),
            setup.replays(skip_refused=flags.arrivals.skip_refused),
            loads=loads,
            seeds=range(flags.arrivals.seed, flags.arrivals.seed + flags.seeds),
            slos=slos,
            on_progress=show,
        )
    header = with_idle_policies(with_oracles(setup.deployment, policies), policies, setup.workload)
    return msgspec.structs.replace(comparison, header=header)


def _workload(flags: Compare, setup: ReplaySpec, seed: int) -> Workload:
    return setup.workload if seed == flags.arrivals.seed else _prepare(flags, seed).workload


def _prepare(flags: Compare, seed: int) -> ReplaySpec:
    """The same as for a single run."""
    return prepare(replace(flags, arrivals=replace(flags.arrivals, seed=seed), slo=()))


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


def _write(path: Path, drawing: str) -> None:
    try:
        path.write_text(drawing, encoding="utf-8")
    except OSError as error:
        raise ConfigError("plot", str(path), f"cannot be written: {error.strerror or error}") from None
