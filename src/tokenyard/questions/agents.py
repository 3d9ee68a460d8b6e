"""Agents: what their jobs gain by order, by pins, by DRAM and by admission, told apart on one workload.

A study of every policy on every size of DRAM (:mod:`tokenyard.questions.study`), and what its cells say beside each
other. All cells see the same jobs, so ratios are taken seed by seed. A log is one run of them: with the first seed it
is as it was recorded, with every other one the same jobs begin at the same moments, dealt out anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import ceil, log2
from os import PathLike
from random import Random
from typing import Any

import msgspec

from tokenyard.arguments import is_number
from tokenyard.deploy.deployment import Deployment
from tokenyard.deploy.given import changed
from tokenyard.deploy.spec import ReplaySpec
from tokenyard.errors import ConfigError
from tokenyard.explain.table import Printable, RowTable, table_from
from tokenyard.questions.compare import Interval, Policies
from tokenyard.questions.scenario import (
    OnCount,
    Scenario,
    WorkloadChoice,
    deployment_settings,
    replay_spec,
    takes_arrivals,
    traffic_by_name,
)
from tokenyard.questions.study import Study, StudyCell, study
from tokenyard.trace.start import DeploymentHeader as Header
from tokenyard.units import GIB
from tokenyard.workload.load import GENERATORS
from tokenyard.workload.record import Workload, WorkloadRequest

FCFS, ORDER, PINS, BOTH, ADMISSION = "fcfs", "program-fcfs", "continuum-share", "continuum", "program-admission"
AGENT_POLICIES = (FCFS, ORDER, PINS, BOTH, "continuum-ttl", "continuum-fixed", ADMISSION)
"""What is compared unless others are named; the first is the baseline."""
_PARTS = {"order": ORDER, "pins": PINS, "order_and_pins": BOTH, "admission": ADMISSION}
"""Part of a gain -> the policy that has it alone."""
JOB, JOB_P90, TTFT, TTFT_P90 = "job_ms.mean", "job_ms.p90", "ttft_ms.mean", "ttft_ms.p90"
SHOWN = (JOB, JOB_P90, TTFT, TTFT_P90, "prefix_hit_rate.local", "prefix_hit_rate.external")
FIGURES = (*SHOWN, "throughput.output_tokens_per_s", "preemptions", "pins.made")
"""Figures of a cell, by the names that they have in a report's JSON."""


class AgentsCell(msgspec.Struct, frozen=True, kw_only=True):
    """One policy beside one size of DRAM."""

    policy: str
    dram_gib: float
    """DRAM for KV; 0: none."""
    speedup: Interval | None
    """Mean job completion time of the first policy without DRAM over this one's, seed by seed: above 1 is faster."""
    within_tier: Interval | None
    """The same over the first policy with as much DRAM."""
    figures: dict[str, Interval | None]
    """What its replays come to, by the names of a report's JSON."""
    is_open: bool = False
    """Some of its jobs, or of the first cell's, did not come to their end: which is faster is open."""
    dram_per_hour: float | None = None
    """What the DRAM costs an hour; None where no price was given."""
    problem: str | None = None
    """Why a replay of it could not be; None: all could."""


class Agents(Printable, msgspec.Struct, frozen=True, kw_only=True):
    """Policies beside sizes of DRAM: cells by size, then by policy; the first cell is the baseline."""

    printer = "tokenyard.questions.printing.agents:print_agents"

    workload: str
    jobs: int
    """Jobs of the workload, as far as its requests name any."""
    policies: tuple[str, ...]
    dram_gib: tuple[float, ...]
    """The first is 0."""
    seeds: tuple[int, ...]
    cells: list[AgentsCell]
    parts: dict[str, Interval | None]
    """What each part of a policy gains alone, without DRAM: ``order``, ``pins``, ``order_and_pins``, ``admission``;
    and ``dram``, the size that gains most under the first policy. Speedups, None where it was not compared."""
    header: Header | None = None
    """What is served, and what was assumed."""

    def summary(self) -> str:
        return f"{len(self.policies)} policies x {len(self.dram_gib)} sizes of DRAM on {self.workload}"

    def cell(self, policy: str, dram_gib: float = 0.0) -> AgentsCell:
        """KeyError if it was not compared."""
        for each in self.cells:
            if (each.policy, each.dram_gib) == (policy, dram_gib):
                return each
        raise KeyError((policy, dram_gib))

    def gain(self, policy: str, dram_gib: float) -> Interval | None:
        """The speedup over the first policy beside as much DRAM; None where it was not compared."""
        cells = [each for each in self.cells if (each.policy, each.dram_gib) == (policy, dram_gib)]
        return cells[0].within_tier if cells else None

    @property
    def best(self) -> AgentsCell | None:
        """The cell whose jobs end soonest; of those within 2 % of it the one with least DRAM, then the first."""
        known = [each for each in self.cells if each.speedup is not None and not each.is_open]
        top = max((_mean(each) for each in known), default=0.0)
        return next((each for each in known if _mean(each) >= top * (1 - ALIKE)), None)

    def best_with(self, dram_gib: float) -> AgentsCell | None:
        """The same of the cells with so much DRAM."""
        cells = [each for each in self.cells if each.dram_gib == dram_gib]
        return msgspec.structs.replace(self, cells=cells).best

    def as_table(self) -> RowTable:
        """One row per cell: ``policy``, ``dram_gib``, ``speedup``, ``within_tier`` and every figure's mean, each with
        half the width of its interval (``..._half``); times are milliseconds, as in a report.
        """
        rows = []
        for cell in self.cells:
            values = {"speedup": cell.speedup, "within_tier": cell.within_tier, **cell.figures}
            row: dict[str, Any] = {"policy": cell.policy, "dram_gib": cell.dram_gib, "problem": cell.problem}
            for name, value in values.items():
                row |= {name: value and value.mean, f"{name}_half": value and value.half}
            rows.append(row)
        names = ("speedup", "within_tier", *FIGURES)
        return table_from("cells", rows, numbers=[f"{name}{end}" for name in names for end in ("", "_half")])


ALIKE = 0.02
"""Share by which speedups differ that is no difference."""


def _mean(cell: AgentsCell) -> float:
    return 0.0 if cell.speedup is None else cell.speedup.mean


@takes_arrivals
def agents(
    workload: WorkloadChoice,
    deployment: Deployment,
    *,
    policies: Policies = AGENT_POLICIES,
    dram_gib: Sequence[float] | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    dram_price: float | None = None,
    jobs: int | None = None,
    output: str | PathLike[str] | None = None,
    progress: OnCount | bool | None = None,
    **arrivals: Any,
) -> Agents:
    """Tell apart what agents' jobs gain by order, pins, DRAM and admission: every policy beside every size of DRAM.

    ``workload``: as for :func:`tokenyard.run`; turns of a log follow the answers before them where it says durations.
    ``policies``: as for :func:`tokenyard.compare`, the baseline first. ``dram_gib``: sizes of DRAM for KV, besides
    none; unless given, the power of two that holds the GPU's own KV, and four times as much. ``seeds``: of a built-in
    workload; of a file, all but the first deal out anew which job begins when. ``dram_price``: of a GiB for an hour.
    ``jobs``: processes, None: as many as pay. ``output``: a directory that keeps finished replays. ``arrivals``: as for
    :func:`tokenyard.run`. Raises ConfigError, also where no request names its job.
    """
    settings = traffic_by_name(arrivals)
    scenario = Scenario.of(deployment_settings(deployment), workload, arrivals=settings)
    return ask(
        scenario,
        policies=policies,
        dram_gib=dram_gib,
        seeds=seeds,
        dram_price=dram_price,
        jobs=jobs,
        output=output,
        progress=progress,
    )


def ask(
    scenario: Scenario,
    *,
    policies: Policies = AGENT_POLICIES,
    dram_gib: Sequence[float] | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    dram_price: float | None = None,
    jobs: int | None = None,
    output: str | PathLike[str] | None = None,
    progress: OnCount | bool | None = None,
    on_read: Callable[[Workload], None] | None = None,
) -> Agents:
    """The same for a scenario. Raises TokenyardError."""
    scenario, whole = _with_turns(scenario)
    if on_read is not None:
        on_read(whole)
    num_jobs = len({each.job_id for each in whole if each.job_id is not None})
    if not num_jobs:
        fix = "no request of it names its job: name the column of sessions (§columns session=NAME)"
        raise ConfigError("workload", scenario.name, fix)
    spec = replay_spec(scenario, whole)
    sizes = (0.0, *(_usual_sizes(scenario, spec) if dram_gib is None else _checked(dram_gib)))
    settings = scenario.deployment
    found = study(
        _Seeded(scenario, whole),
        {_label(size): Deployment.from_settings(changed(settings, _dram(size))) for size in sizes},
        policies=policies,
        seeds=seeds,
        jobs=jobs,
        output=output,
        progress=progress,
        skip_refused=scenario.arrivals.skip_refused or None,
    )
    return _agents(found, sizes, num_jobs, dram_price, spec.deployment)


# ---------------------------------------------------------------------------------------------------------------------
# What is replayed: the workload of every seed, and the deployment with every size of DRAM.


def _with_turns(scenario: Scenario) -> tuple[Scenario, Workload]:
    """The scenario and its workload; turns of a log follow answers, where it says how long those took."""
    arrivals = scenario.arrivals
    if isinstance(scenario.workload, Workload) or scenario.workload in GENERATORS or arrivals.turns_follow:
        return scenario, scenario.read()
    follows = replace(scenario, arrivals=replace(arrivals, turns_follow=True))
    try:
        return follows, follows.read()
    except ConfigError as error:
        if error.field != "turns_follow":
            raise
    return scenario, scenario.read()


class _Seeded(msgspec.Struct, frozen=True):
    """The workload of a seed: a built-in one is made anew, of any other the jobs are dealt out anew."""

    scenario: Scenario
    whole: Workload
    """With the first seed, that of the scenario."""

    def __call__(self, seed: int) -> Workload:
        own = self.scenario.arrivals.seed
        if seed == own:
            return self.whole
        if isinstance(self.scenario.workload, str) and self.scenario.workload in GENERATORS:
            return replace(self.scenario, arrivals=replace(self.scenario.arrivals, seed=seed)).read()
        return dealt(self.whole, seed)


def dealt(workload: Workload, seed: int) -> Workload:
    """The same jobs beginning at the same moments, but which begins when is drawn; turns keep their distances."""
    begun: dict[str, float] = {}
    for each in workload:
        job = each.job_id or each.request_id
        begun[job] = min(each.arrival_time, begun.get(job, each.arrival_time))
    moments = sorted(begun.values())
    Random(seed).shuffle(moments)
    later = {job: moment - begun[job] for job, moment in zip(begun, moments, strict=True)}

    def moved(request: WorkloadRequest) -> WorkloadRequest:
        moment = request.arrival_time + later[request.job_id or request.request_id]
        return replace(request, arrival_time=max(moment, 0.0), measured=None)

    return workload.with_requests(map(moved, workload))


def _usual_sizes(scenario: Scenario, spec: ReplaySpec) -> list[float]:
    """The deployment's own size; else the power of two that holds the GPUs' own KV, and four times as much."""
    own = scenario.transfer.kv_offloading_size
    if own is not None:
        return [own]
    kv_gib = spec.cache.num_gpu_blocks * spec.settled.plan.bytes_per_block * spec.gpus_per_replica / GIB
    size = 2.0 ** max(ceil(log2(kv_gib)), 0)
    return [size, 4 * size]


def _checked(sizes: Sequence[float]) -> list[float]:
    is_list = isinstance(sizes, Sequence) and not isinstance(sizes, str)
    if not is_list or not all(is_number(each, above=True) for each in sizes) or len(set(sizes)) < len(sizes):
        raise ConfigError("dram_gib", sizes, "give sizes in GiB, above 0, each once: [64, 256]; [] for none")
    return sorted(map(float, sizes))


def _label(dram_gib: float) -> str:
    return f"{dram_gib:g} GiB" if dram_gib else "no DRAM"


def _dram(dram_gib: float) -> Mapping[str, float | None]:
    return {"kv_offloading_size": dram_gib or None}


# ---------------------------------------------------------------------------------------------------------------------
# What the cells of the study come to.


def _agents(found: Study, sizes: Sequence[float], jobs: int, dram_price: float | None, header: Header) -> Agents:
    cells = [
        _cell(found, policy, size, None if dram_price is None else size * dram_price)
        for size in sizes
        for policy in found.policies
    ]
    if all(each.problem is not None for each in cells):
        raise ConfigError("workload", found.workload, f"nothing of it could be replayed: {cells[0].problem}")
    result = Agents(
        workload=found.workload,
        jobs=jobs,
        policies=found.policies,
        dram_gib=tuple(sizes),
        seeds=found.seeds,
        cells=cells,
        parts={},
        header=header,
    )
    parts = {name: result.cell(policy).speedup for name, policy in _PARTS.items() if policy in found.policies}
    tiers = [speedup for size in sizes[1:] if (speedup := result.cell(found.policies[0], size).speedup) is not None]
    parts["dram"] = max(tiers, key=lambda speedup: speedup.mean, default=None)
    return msgspec.structs.replace(result, parts=parts)


def _cell(found: Study, policy: str, size: float, price: float | None) -> AgentsCell:
    first, load = found.policies[0], found.loads[0]
    own = StudyCell(_label(size), policy, load)
    baseline, beside = (StudyCell(_label(each), first, load) for each in (0.0, size))
    problems = [row.problem for row in found.rows_of(own) if row.problem is not None]
    if problems:
        return AgentsCell(policy=policy, dram_gib=size, speedup=None, within_tier=None, figures={}, problem=problems[0])
    return AgentsCell(
        policy=policy,
        dram_gib=size,
        speedup=found.against(JOB, baseline, own, ratio=True),
        within_tier=found.against(JOB, beside, own, ratio=True),
        figures={name: found.interval(name, own) for name in FIGURES},
        is_open=not (found.is_sure(JOB, own) and found.is_sure(JOB, baseline)),
        dram_per_hour=price,
    )
