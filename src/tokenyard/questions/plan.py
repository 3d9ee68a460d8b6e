"""Which settings meet the bounds best, how much load they bear, and what limits them."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import field, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

import msgspec

from tokenyard.arguments import given_path
from tokenyard.core.config import require_int
from tokenyard.deploy.deployment import Deployment
from tokenyard.deploy.given import changed
from tokenyard.deploy.resolve import ResolvedSettings
from tokenyard.errors import ConfigError
from tokenyard.explain.slo import SLOs, slo_texts
from tokenyard.explain.steady import FEWEST_ARRIVALS
from tokenyard.models.gpus import named_gpu
from tokenyard.questions.by_class import classes_in
from tokenyard.questions.calibrating import calibrated
from tokenyard.questions.experiment import identity_of
from tokenyard.questions.planning.answer import (
    PRECISION,
    AchievableBound,
    LargestLoad,
    Plan,
    ServedSplit,
    few_requests,
    floors_of,
    limits_of,
    meets_alone,
    nearest_row,
    next_best,
)
from tokenyard.questions.planning.goal import Goal, best_row, front_of, goal_value
from tokenyard.questions.planning.search import (
    Lengths,
    Searched,
    Trying,
    is_settled,
    is_unsettled,
    progress_journal,
    say_so_far,
    search,
    steady_load,
    traffic_in_words,
    unsteady_of,
)
from tokenyard.questions.planning.uncertainty import doubt_of, unknown_of
from tokenyard.questions.scenario import (
    Bars,
    Counting,
    OnCount,
    Say,
    Scenario,
    WorkloadChoice,
    bars_of,
    counting_of,
    deployment_settings,
    nothing,
    split_by_name,
    takes_arrivals,
    traffic_by_name,
)
from tokenyard.questions.space import COSTLY, Space, list_prices, prices_of, space_of
from tokenyard.questions.sweeping.measuring import VariantWorker
from tokenyard.questions.sweeping.rows import Row, Setting, has_pace, key_of
from tokenyard.questions.sweeping.variants import MOST_PROCESSES, Grid
from tokenyard.questions.variant_sources import (
    KnownSource,
    RecordedVariants,
    is_trace,
    measuring_for,
    say_idle_policies,
    source_of,
    with_classes,
)
from tokenyard.questions.variants import changed_words, read_shape, serve_words, words_of_split
from tokenyard.quick_dataclass import dataclass
from tokenyard.workload.record import Workload

if TYPE_CHECKING:
    from tokenyard.questions.keywords import TrafficKeywords

_MOST_REPLAYS, _MOST_GPUS = 100_000, 100_000
_OF_THE_PROXY = (
    "a proxy between them sends each prompt to the prefill side first, and its kv_transfer_params on to the decode side"
    " (docs/connectors.md)"
)

_OF_REPLICAS = (
    "{} of these, each a vllm serve of its own, behind a balancer that sends requests as --router {} does; engines of"
    " one vllm serve would be --data-parallel-size"
)
_OF_MACHINES = (
    "an engine has {gpus} GPUs, and a machine {each}: start it on each of {nodes} machines with --nnodes {nodes}"
    " --node-rank 0 (then 1, ...; those after the first with --headless) and --master-addr ADDRESS of the first, or on"
    " a Ray cluster with --distributed-executor-backend ray"
)


@dataclass(frozen=True, kw_only=True)
class PlanQuestion:
    """The parameters of a plan."""

    scenario: Scenario
    """A workload on a deployment, or the path of a trace as its workload."""
    goal: Goal = Goal.GOODPUT
    space: Space | None = None
    """Settings to choose from, and their values; None: what people change first."""
    gpus: Sequence[str] = ()
    """Likewise, of GPUs."""
    splits: Sequence[str] = ()
    """Likewise, of engines that prefill and that decode."""
    most_gpus: int | None = None
    """GPUs that a variant may take, all its engines together."""
    prices: Mapping[str, float] = field(default_factory=dict)
    """GPU -> price of an hour."""
    prices_are_listed: bool = False
    """They were not given: they are those that come with the package."""
    replays: int = 40
    """Variants to try at most."""
    largest_load: bool = True
    """Find how much the recommended variant bears."""
    jobs: int | None = None
    """Processes that replay, or variants at a time on a cluster; None: one for each core where that pays."""
    ray: str | None = None
    """Address of a Ray cluster that replays."""
    output: Path | None = None
    """Where variants are kept; None: in the user's cache, until the plan is whole."""
    calibrate: bool = False
    """Scale step times to what the workload's input has measured."""
    bars: Bars = bars_of(None)
    """Notified of the replays that this takes."""
    asked: Sequence[str | None] = ()
    """How the goal was named, for telling one plan from another."""
    space_name: str = "space"
    """What to call the space in a message."""
    status: Callable[[str], AbstractContextManager[Any]] = lambda _: nullcontext()
    """Shows what is done, as long as it takes."""
    bar: Callable[[int], AbstractContextManager[Callable[[], None]]] = lambda _: nullcontext(lambda: None)
    """Number of variants -> what to call with each that was tried."""
    say: Say = nothing


@takes_arrivals
def plan(
    workload: WorkloadChoice,
    deployment: Deployment | None = None,
    *,
    space: Space | None = None,
    slo: SLOs = None,
    minimize: Literal["gpus", "cost"] | None = None,
    maximize: Literal["goodput", "throughput", "load"] | None = None,
    price: Mapping[str, float] | None = None,
    gpus: int | None = None,
    replays: int = 40,
    largest_load: bool = True,
    jobs: int | None = None,
    ray: str | None = None,
    kv_link_gb_per_s: float = 50.0,
    output: str | PathLike[str] | None = None,
    by: str | None = None,
    calibrate: bool = False,
    progress: OnCount | bool | None = None,
    **arrivals: Unpack[TrafficKeywords],
) -> Plan:
    """Find the settings of a deployment that meet bounds best, the load that they bear, and what limits them.

    ``workload``: as for :func:`tokenyard.run`; or the path of a trace, which is planned on what it ran on, with no
    ``deployment``. ``space``: ``{"gpu": ["h100", "l40s"], "max_num_seqs": [64, 256], "split": ["1+1", None]}``.
    ``price``: of one GPU for an hour; a plan of the least cost without any takes list prices, and names them.
    ``gpus``: how many a variant may take, all its engines together; without a ``space`` engines of several sizes share
    them. ``replays``: variants to try at most. ``output``: a directory that keeps what was replayed, so that the same
    plan goes on after an interruption. ``by``: a column that says of which class a request is (``priority``, ``tier``,
    ...); bounds may then be of one: ``slo="interactive:ttft_p95=1s batch:e2e_p95=10min"``.
    ``calibrate``: scale step times to what the workload's input measured on ``deployment``, which a few replays find;
    the plan's ``calibration`` says by how much.
    ``progress`` is called with the variants that were tried, and how many there are at most; True shows a line.
    ``jobs``: variants that are replayed side by side, each in a process. Of a space that is tried whole the answer is
    the same; else, and for the largest load, the search uses what it knows when it begins so many. None: one for
    each core, for a space that is tried whole and takes more than seconds. ``ray``: the address of a Ray cluster that
    replays the variants. Raises TokenyardError.
    """
    where = None if output is None else given_path("output", output)
    scenario = Scenario.of(
        deployment_settings(Deployment() if deployment is None else deployment),
        workload,
        arrivals=traffic_by_name(arrivals),
        split_settings=split_by_name(kv_link_gb_per_s=kv_link_gb_per_s),
        slo=slo_texts(slo),
        by=by,
    )
    return ask(
        PlanQuestion(
            scenario=scenario,
            goal=goal_of(maximize, minimize),
            space=space,
            prices=prices_of(price),
            most_gpus=gpus,
            replays=replays,
            largest_load=largest_load,
            jobs=jobs,
            ray=ray,
            output=where,
            calibrate=calibrate,
            asked=(maximize, minimize),
            bar=partial(_from_none, counting_of(progress)),
        )
    )


def _from_none(bar: Counting, total: int) -> AbstractContextManager[Callable[[], None]]:
    """A bar that begins with no variant tried before."""
    return bar(total, 0)


def to_write(plan: Plan) -> dict[str, Setting]:
    """Return the settings that the recommendation changes in a file. Raises ConfigError for one that no file says."""
    settings = {} if plan.recommended is None else plan.recommended.settings
    for name in ("gpu", "split"):
        if settings.get(name) is not None:
            raise ConfigError(
                "write", name, f"the plan chooses {name}, which is not written: leave it out of the space"
            )
    return dict(settings)


def goal_of(maximize: str | None, minimize: str | None) -> Goal:
    """What is best. Raises ConfigError if two things are."""
    if maximize is not None and minimize is not None:
        raise ConfigError("minimize", minimize, f"§maximize {maximize} is given as well: give one of the two")
    try:
        return Goal(minimize or maximize or "goodput")
    except ValueError:
        fix = "use minimize=gpus or cost, or maximize=goodput, throughput or load"
        raise ConfigError("minimize" if minimize else "maximize", minimize or maximize, fix) from None


def ask(question: PlanQuestion) -> Plan:
    """The plan. Raises TokenyardError where a setting cannot be used, or no variant can be replayed.

    Variants that were replayed are kept on disk until all are: the same plan, asked again after an interruption, goes
    on with the others.
    """
    require_int("replays", question.replays, 1, _MOST_REPLAYS)
    if question.jobs is not None:
        require_int("jobs", question.jobs, 1, MOST_PROCESSES)
    if question.calibrate:
        return _calibrated(question)
    goal, scenario = question.goal, question.scenario
    source = source_of(scenario)
    if question.most_gpus is not None:
        require_int("gpus", question.most_gpus, 1, _MOST_GPUS)
    grid = space_of(
        question.space,
        source,
        gpus=question.gpus,
        splits=question.splits,
        most_gpus=question.most_gpus,
        field=question.space_name,
    )
    if goal is Goal.COST:
        question = _with_prices(question, dict(grid.dimensions).get("gpu", (None,)))
    job = measuring_for(scenario, source, question.prices)
    _check_goal(goal, job, isinstance(source, RecordedVariants))
    source.read()
    job = with_classes(job, source.workload)
    say_idle_policies(source, dict(grid.dimensions).get("scheduling_policy", ()), question.say)
    around = {
        "kv_link_gb_per_s": scenario.split_settings.kv_link_gb_per_s,
        "replays": question.replays,
        "goal": list(question.asked),
    }
    identity = identity_of(scenario, question.prices, around, grid)
    lengths = Lengths.of(replace(job, asks_halves=True), source.workload)
    if goal is Goal.LOAD:
        _require_pace(source.workload)
    with progress_journal(question.output, identity, question.say) as journal:
        tries = min(len(grid), question.replays)
        processes = 1 if question.jobs is None and goal is Goal.LOAD else question.jobs
        with question.bar(tries) as advance:
            times, known = 1, dict[str, Row]()
            while True:
                with Trying(
                    lengths,
                    goal,
                    times=times,
                    known=known,
                    has_incumbents=_varies_in_cost(grid, goal),
                    journal=journal,
                    advance=advance if times == 1 else lambda: None,
                    processes=processes,
                    ray=question.ray,
                ) as trying:
                    try:
                        searched = search(
                            grid,
                            trying.evaluate,
                            goal,
                            replays=question.replays,
                            seed=scenario.arrivals.seed,
                            at_once=question.jobs or 1,
                        )
                        best = best_row(searched.rows, goal)
                        if best is None or not lengths.may_settle(best):
                            return _plan(question, source, grid, lengths, trying, searched)
                    except KeyboardInterrupt:
                        say_so_far(trying, goal, tries, question.say, is_kept=journal is not None)
                        raise
                times = lengths.after(best)
                known = {key_of(row.settings): row for row in searched.rows if is_settled(row)}


def _require_pace(workload: Workload) -> None:
    """Raise ConfigError for a workload of which no load can be the largest."""
    if workload.max_concurrency is None and not has_pace(workload):
        many = sum(not each.after for each in workload)
        fix = (
            f"{many:,} requests or sessions, some of them not at once, have no rate that could be raised: give"
            f" {FEWEST_ARRIVALS} or more, with times or §request_rate"
        )
        raise ConfigError("maximize", "load", fix)


def _calibrated(question: PlanQuestion) -> Plan:
    """The plan with step times that are scaled to what the workload's input measured, and by how much."""
    workload = question.scenario.workload
    if isinstance(workload, str) and is_trace(workload):
        raise ConfigError("calibrate", True, "a trace is planned with its own step times already: leave it out")
    scenario, calibration = calibrated(question.scenario, question.bars)
    made = ask(replace(question, scenario=scenario, calibrate=False))
    others = [gpu for gpu in dict(made.space).get("gpu", ()) if gpu != calibration.gpu]
    also = f"; taken for {', '.join(map(str, others))} as well, which it does not show" if others else ""
    said = [f"{calibration.sentence}{also}", *made.uncertainty]
    return msgspec.structs.replace(made, calibration=calibration, uncertainty=said)


def _plan(
    question: PlanQuestion, source: KnownSource, grid: Grid, lengths: Lengths, trying: Trying, searched: Searched
) -> Plan:
    """What the variants that were tried come to."""
    job, goal = trying.job, trying.goal
    chosen = best_row(searched.rows, goal)
    holds = chosen is not None and not is_unsettled(chosen)
    if chosen is None:
        with question.status("looking for the variant nearest to the bounds"):
            chosen = nearest_row(searched.rows, trying.run_on)
    rows = trying.rows
    is_missed = chosen.met is False and not chosen.only_grows
    floors = _floors(question, lengths.job, chosen) if is_missed else []
    is_bearable = chosen.met or chosen.only_grows or (goal is not Goal.LOAD and meets_alone(floors))
    load = _load(question, lengths, chosen) if is_bearable and has_pace(source.workload) else None
    other = next_best(rows, chosen, goal)
    served, doubt = _served(source, chosen), doubt_of(source, chosen, job.slos)
    return Plan(
        workload=question.scenario.name,
        requests=len(source.workload),
        goal=goal.value,
        slo=[str(slo) for slo in job.slos],
        space={name: list(values) for name, values in grid.dimensions},
        size=len(grid),
        replays=trying.replays + is_missed + (0 if load is None else load[1]),
        is_whole=searched.is_whole,
        method=searched.method,
        recommended=chosen,
        holds=holds,
        sureness=doubt.sureness,
        bounds=doubt.bounds,
        state=chosen.state,
        times=chosen.times,
        traffic=traffic_in_words(source, chosen),
        value=goal_value(chosen, goal),
        serve=served.line,
        serve_split=served.split,
        replicas=served.replicas,
        flags=_flags(source, chosen),
        notes=list(served.notes),
        next_best=other,
        next_best_value=None if other is None else goal_value(other, goal),
        front=front_of(rows, goal),
        largest_load=None if load is None else load[0],
        limits=limits_of(chosen, None if load is None else load[0].beyond) if holds else None,
        floors=floors,
        header=None if isinstance(source, RecordedVariants) else source.setup(chosen.settings).deployment,
        uncertainty=[*doubt.sentences, *([list_prices().sentence] if question.prices_are_listed else [])],
        unknown=[
            *few_requests(job.slos, _counts(source, job, chosen)),
            *_unbounded(source, job),
            *unsteady_of(source.workload, chosen),
            *unknown_of(source, chosen, has_load=load is not None),
        ],
        rows=rows,
    )


def _counts(source: KnownSource, job: VariantWorker, chosen: Row) -> Mapping[str, int]:
    """Class -> its requests; the empty name: all of them."""
    classes = {} if job.by is None else classes_in(source.workload, job.by)
    return {"": chosen.requests, **Counter(classes.values())}


def _unbounded(source: KnownSource, job: VariantWorker) -> Iterator[str]:
    """Classes that nothing keeps from waiting."""
    if job.by is not None:
        for name in sorted(set(classes_in(source.workload, job.by).values()) - {slo.of for slo in job.slos}):
            yield f"{name} has no bound: nothing keeps it from waiting, and its requests count in no goodput"


def _check_goal(goal: Goal, job: VariantWorker, is_trace: bool) -> None:
    """Raise ConfigError for a goal that needs what is not given."""
    judged = [slo for slo in job.slos if slo.statistic is not None]
    if goal.is_least and is_trace:
        raise ConfigError("minimize", goal.value, "a trace is planned on the GPU that it ran on: plan a workload")
    if (goal is Goal.LOAD or goal.is_least) and not judged:
        flag = "minimize" if goal.is_least else "maximize"
        raise ConfigError(
            flag, goal.value, "say with §slo which bounds have to hold, for example ttft_p90=500ms tpot_p90=40ms"
        )


def _with_prices(question: PlanQuestion, gpus: Sequence[Setting]) -> PlanQuestion:
    """The question with list prices where none are given. ConfigError for a GPU that may be chosen and has no price."""
    is_listed = not question.prices
    prices = list_prices().usd_per_hour if is_listed else question.prices
    usual = question.scenario.hardware.gpu
    chosen = [named_gpu(str(each or usual)).name for each in gpus]
    lacking = next((name for name in chosen if name not in prices), None)
    if lacking is not None:
        known = ", ".join(f"{gpu}={price:g}" for gpu, price in question.prices.items())
        fix = f"no list price of {lacking} is known" if is_listed else f"{lacking} may be chosen, too"
        raise ConfigError("price", known, f"{fix}: say what {'GPUs cost' if is_listed else 'it costs'} for an hour")
    return replace(question, prices={name: prices[name] for name in chosen}, prices_are_listed=is_listed)


def _varies_in_cost(grid: Grid, goal: Goal) -> bool:
    return goal.is_least or any(name in COSTLY and len(values) > 1 for name, values in grid.dimensions)


def _floors(question: PlanQuestion, job: VariantWorker, chosen: Row) -> list[AchievableBound]:
    """What the bounds would have to be that the nearest variant misses; that takes a replay."""
    with question.status("looking for the least that the bounds could be"):
        alone = job(chosen.settings, load=chosen.load, one_at_a_time=True)
    return floors_of(job.slos, chosen, alone)


def _load(question: PlanQuestion, lengths: Lengths, chosen: Row) -> tuple[LargestLoad, int] | None:
    """The largest load that the chosen variant bears, and the replays that took; None if it was not asked for."""
    if not question.largest_load:
        return None
    with question.status("looking for the largest load"):
        growth = 1 + PRECISION if question.goal is Goal.LOAD else 2.0
        found = steady_load(lengths, chosen.settings, chosen, growth=growth)
    load = None if found.borne is None else found.borne.load
    is_all = found.missed is None and load is not None
    beyond = found.missed
    replays = found.replays
    if beyond is not None and beyond.stopped is not None:
        whole = lengths.worker(beyond.times)(beyond.settings, load=beyond.load)
        beyond = msgspec.structs.replace(whole, tightest=beyond.tightest, times=beyond.times)
        replays += 1
    offered = None if found.borne is None else found.borne.figures.get("load.offered_requests_per_s")
    chance = None if found.borne is None else lengths.chance(found.borne)
    told = LargestLoad(
        load=load, is_all=is_all, offered_requests_per_s=offered, chance=chance, row=found.borne, beyond=beyond
    )
    return told, replays


class _Served(msgspec.Struct, frozen=True):
    """How a variant is started."""

    line: str | None = None
    split: ServedSplit | None = None
    notes: Sequence[str] = ()
    replicas: str | None = None


def _served(source: KnownSource, row: Row) -> _Served:
    if isinstance(source, RecordedVariants):
        return _Served()
    settings = {**row.settings, **row.taken}
    words, notes = serve_words(source.run, settings)
    settled = source.setup(row.settings).settled
    if (shorter := source.shorter(row.settings)) is not None:
        notes = [shorter.sentence, *notes]
    if "split" not in row.settings:
        notes = [*_of_machines(settled), *notes]
    replicas = changed(source.run, row.settings).parallel.replicas_in_words
    if replicas not in (None, "1"):
        said = _OF_REPLICAS.format(replicas, settled.parallel.router)
        return _Served(_line(words), None, [said, *notes], replicas)
    split = row.settings.get("split")
    if split is None:
        return _Served(_line(words), None, notes)
    shape = read_shape(str(split))
    prefill, decode = words_of_split(source.run, settings, shape)
    lines = ServedSplit(
        prefill_engines=shape.prefill, prefill=_line(prefill), decode_engines=shape.decode, decode=_line(decode)
    )
    return _Served(None, lines, [*notes, _OF_THE_PROXY])


def _of_machines(settled: ResolvedSettings) -> Iterator[str]:
    """How an engine is started whose GPUs are those of several machines; nothing where its flags say it."""
    gpus, each = settled.hardware.tensor_parallel_size * settled.parallel.pipeline_parallel_size, settled.gpu
    if gpus > each.gpus_per_machine and settled.parallel.nnodes == 1:
        nodes = -(-gpus // each.gpus_per_machine)
        yield _OF_MACHINES.format(gpus=gpus, each=each.gpus_per_machine, nodes=nodes)


def _line(words: list[str]) -> str:
    return shlex.join(["vllm", "serve", *words])


def _flags(source: KnownSource, row: Row) -> list[str]:
    if isinstance(source, RecordedVariants):
        return list(source.variant(row.settings).flags)
    return changed_words(source.run, {**row.settings, **row.taken})[0]
