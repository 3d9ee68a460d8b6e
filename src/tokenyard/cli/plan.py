"""``tokenyard plan``: which setting meets the bounds, how much load it bears, and what limits it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import msgspec
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from tokenyard.cli.support.console import PlainConsole, errors, print_json, results
from tokenyard.cli.support.flags import Plan as Flags
from tokenyard.cli.support.planning.asked import Subject, identity_of, measuring_for, say_idle_policies, subject_of
from tokenyard.cli.support.planning.doubts import uncertainty_of, unknown_of
from tokenyard.cli.support.planning.printing import print_plan
from tokenyard.cli.support.planning.progress import kept_progress, say_so_far
from tokenyard.cli.support.planning.settings import changed, serve_words, split_words
from tokenyard.cli.support.planning.sides import read_shape
from tokenyard.cli.support.planning.space import COSTLY, space_of, with_one_gpu
from tokenyard.cli.support.planning.subjects import RecordedSubject
from tokenyard.config import require_int
from tokenyard.errors import ConfigError
from tokenyard.sim.plan.answer import LargestLoad, Plan, ServedApart, few_requests, limits_of, next_best
from tokenyard.sim.plan.floor import Floor, floors_of, meets_alone
from tokenyard.sim.plan.goal import Goal, best_of, front_of, value_of
from tokenyard.sim.plan.load import largest_load
from tokenyard.sim.plan.nearest import nearest
from tokenyard.sim.plan.picture import draw, page
from tokenyard.sim.plan.search import Searched, search
from tokenyard.sim.plan.trying import Trying
from tokenyard.sim.sweep.measuring import Measuring
from tokenyard.sim.sweep.row import Row, Settings
from tokenyard.sim.sweep.variants import Grid

__all__ = ["execute", "make_plan"]

_MOST_REPLAYS = 100_000
_OF_THE_PROXY = (
    "a proxy between them sends each prompt to the prefill side first, and its kv_transfer_params on to the decode side"
    " (docs/connectors.md)"
)

_OF_REPLICAS = (
    "{} of these, each a vllm serve of its own, behind a balancer that sends requests as --router {} does; engines of"
    " one vllm serve would be --data-parallel-size"
)


def execute(flags: Flags) -> int:
    """Search, print, draw; 0 if there is a recommendation that holds every bound, 1 if none does."""
    plan = make_plan(flags)
    if flags.svg is not None:
        _write("svg", flags.svg, draw(plan))
    if flags.html is not None:
        _write("html", flags.html, page(plan, _lines(plan)))
    print_json(plan) if flags.json else print_plan(plan, results())
    return 0 if plan.holds else 1


def make_plan(flags: Flags) -> Plan:
    """The plan. Raises TokenyardError where a flag cannot be used, or no variant can be replayed.

    Variants that were replayed are kept on disk until all are: the same plan, asked again after an interruption, goes
    on with the others.
    """
    require_int("replays", flags.replays, 1, _MOST_REPLAYS)
    goal = _goal(flags)
    flags, gpus = with_one_gpu(flags)
    subject = subject_of(flags)
    grid = space_of(flags, gpus, subject)
    job = measuring_for(flags, subject)
    _check_goal(goal, job, isinstance(subject, RecordedSubject))
    subject.read()
    say_idle_policies(subject, dict(grid.dimensions).get("scheduling_policy", ()))
    with kept_progress(flags, identity_of(flags, grid)) as journal:
        tries = min(len(grid), flags.replays)
        with _bar(tries) as advance:
            trying = Trying(job, goal, has_rivals=_varies_in_cost(grid, goal), journal=journal, advance=advance)
            try:
                searched = search(grid, trying.evaluate, goal, replays=flags.replays, seed=flags.arrivals.seed)
                return _plan(flags, subject, grid, trying, searched)
            except KeyboardInterrupt:
                say_so_far(trying, goal, tries, is_kept=journal is not None)
                raise


def _plan(flags: Flags, subject: Subject, grid: Grid, trying: Trying, searched: Searched) -> Plan:
    """What the variants that were tried come to."""
    job, goal = trying.job, trying.goal
    chosen = best_of(searched.rows, goal)
    holds = chosen is not None
    if chosen is None:
        with errors().status("looking for the variant nearest to the bounds"):
            chosen = nearest(searched.rows, trying.run_on)
    rows = trying.rows
    floors = [] if holds else _floors(job, chosen)
    is_bearable = chosen.met or (goal is not Goal.LOAD and meets_alone(floors))
    load = _load(flags, job, chosen) if is_bearable else None
    other = next_best(rows, chosen, goal)
    served = _served(subject, chosen)
    return Plan(
        workload=flags.workload,
        requests=chosen.requests,
        goal=goal.value,
        slo=[str(slo) for slo in job.slos],
        space={name: list(values) for name, values in grid.dimensions},
        size=len(grid),
        replays=trying.replays + (not holds) + (0 if load is None else load[1]),
        is_whole=searched.is_whole,
        method=searched.method,
        recommended=chosen,
        holds=holds,
        value=value_of(chosen, goal),
        serve=served.line,
        serve_apart=served.apart,
        replicas=served.replicas,
        flags=_flags(subject, chosen),
        notes=list(served.notes),
        next_best=other,
        next_best_value=None if other is None else value_of(other, goal),
        front=front_of(rows, goal),
        largest_load=None if load is None else load[0],
        limits=limits_of(chosen, None if load is None else load[0].beyond) if holds else None,
        floors=floors,
        uncertainty=list(uncertainty_of(subject, chosen, job.slos)),
        unknown=[*few_requests(job.slos, chosen.requests), *unknown_of(subject, chosen, has_load=load is not None)],
        rows=rows,
    )


def _at(job: Measuring, settings: Settings, load: float) -> Row:
    return job(settings, load=load, stops=True)


def _goal(flags: Flags) -> Goal:
    if flags.maximize is not None and flags.minimize is not None:
        raise ConfigError(
            "minimize", flags.minimize, f"--maximize {flags.maximize} is given as well: give one of the two"
        )
    return Goal(flags.minimize or flags.maximize or "goodput")


def _check_goal(goal: Goal, job: Measuring, is_trace: bool) -> None:
    """Raise ConfigError for a goal that needs what is not given."""
    judged = [slo for slo in job.slos if slo.statistic is not None]
    if goal is Goal.COST and not job.prices:
        raise ConfigError("minimize", "cost", "say what GPUs cost: --price h100=2.5")
    if goal.is_least and is_trace:
        raise ConfigError("minimize", goal.value, "a trace is planned on the GPU that it ran on: plan a workload")
    if (goal is Goal.LOAD or goal.is_least) and not judged:
        flag = "minimize" if goal.is_least else "maximize"
        raise ConfigError(flag, goal.value, "say which bounds have to hold: --slo ttft_p90=500ms tpot_p90=40ms")


def _varies_in_cost(grid: Grid, goal: Goal) -> bool:
    return goal.is_least or any(name in COSTLY and len(values) > 1 for name, values in grid.dimensions)


def _floors(job: Measuring, chosen: Row) -> list[Floor]:
    """Of the bounds that the nearest variant misses; that takes a replay."""
    with errors().status("looking for the least that the bounds could be"):
        alone = job(chosen.settings, load=chosen.load, one_at_a_time=True)
    return floors_of(job.slos, chosen, alone)


def _load(flags: Flags, job: Measuring, chosen: Row) -> tuple[LargestLoad, int] | None:
    """The largest load that the chosen variant bears, and the replays that took; None if nobody wants to know."""
    if not flags.largest_load or flags.arrivals.max_concurrency is not None:
        return None
    with errors().status("looking for the largest load"):
        found = largest_load(partial(_at, job, chosen.settings), start=chosen.load)
    load = None if found.borne is None else found.borne.load
    is_all = found.missed is None and load is not None
    beyond = found.missed
    replays = found.replays
    if beyond is not None and beyond.stopped is not None:
        beyond = msgspec.structs.replace(job(beyond.settings, load=beyond.load), tightest=beyond.tightest)
        replays += 1
    return LargestLoad(load=load, is_all=is_all, row=found.borne, beyond=beyond), replays


class _Served(NamedTuple):
    """How a variant is started."""

    line: str | None = None
    apart: ServedApart | None = None
    notes: Sequence[str] = ()
    replicas: str | None = None


def _served(subject: Subject, row: Row) -> _Served:
    if isinstance(subject, RecordedSubject):
        return _Served()
    words, notes = serve_words(subject.run, row.settings)
    replicas = changed(subject.run, row.settings).parallel.replicas
    if replicas is not None:
        router = subject.setup(row.settings).settled.parallel.router
        return _Served(_line(words), None, [_OF_REPLICAS.format(replicas, router), *notes], replicas)
    split = row.settings.get("split")
    if split is None:
        return _Served(_line(words), None, notes)
    shape = read_shape(str(split))
    prefill, decode = split_words(subject.run, row.settings, shape)
    lines = ServedApart(
        prefill_engines=shape.prefill, prefill=_line(prefill), decode_engines=shape.decode, decode=_line(decode)
    )
    return _Served(None, lines, [*notes, _OF_THE_PROXY])


def _line(words: list[str]) -> str:
    return shlex.join(["vllm", "serve", *words])


def _flags(subject: Subject, row: Row) -> list[str]:
    if isinstance(subject, RecordedSubject):
        return list(subject.variant(row.settings).flags)
    words, _ = serve_words(subject.run, row.settings)
    base, _ = serve_words(subject.run, {})
    return [word for word in words if word not in base] if len(words) > len(base) else []


def _lines(plan: Plan) -> list[str]:
    out = StringIO()
    print_plan(plan, PlainConsole(file=out, width=100, highlight=False))
    return out.getvalue().splitlines()


def _write(flag: str, path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(flag, str(path), f"cannot be written: {error.strerror or error}") from None


@contextmanager
def _bar(total: int) -> Iterator[Callable[[], None]]:
    """What to call with every variant that was tried; a bar where standard error is a terminal."""
    console = errors()
    if not console.is_terminal:
        yield lambda: None
        return
    columns = (
        BarColumn(bar_width=None),
        TextColumn("variants"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, expand=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda: progress.advance(task)
