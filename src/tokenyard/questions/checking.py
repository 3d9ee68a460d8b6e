"""A changed deployment against stored traffic: what it starts with, what changes for the traffic, which bounds hold."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path

import msgspec

from tokenyard.arguments import suggests_keywords
from tokenyard.deploy.deployment import Deployment
from tokenyard.errors import ConfigError, TokenyardError
from tokenyard.explain.compare.comparison import figures
from tokenyard.explain.report.report import Report
from tokenyard.explain.slo import Objective, SLOs, slo_texts
from tokenyard.explain.table import Printable, RowTable, table_from
from tokenyard.questions.recorded.recorded_run import read_run
from tokenyard.questions.run import ask as run_of
from tokenyard.questions.scenario import Bars, OnProgress, Scenario, WorkloadChoice, bars_of, deployment_settings
from tokenyard.questions.settings import TrafficSettings
from tokenyard.questions.upgrade import Moved
from tokenyard.questions.variant_sources import is_trace
from tokenyard.workload.record import Workload

FIGURES = (
    *("ttft_ms.p50", "ttft_ms.p90", "ttft_ms.p99", "tpot_ms.p50", "tpot_ms.p90", "tpot_ms.p99", "e2e_ms.p90"),
    *("preemptions", "outcomes.served", "throughput.output_tokens_per_s"),
)
_LIMITS = ("max_num_seqs", "max_num_batched_tokens", "max_model_len")


class Check(Printable, msgspec.Struct, frozen=True, kw_only=True):
    """What a deployment does to stored traffic, beside what it was before."""

    printer = "tokenyard.questions.printing.checking:print_check"

    file: str
    against: str
    requests: int
    problem: str | None = None
    """Why it would not start, or not serve this traffic; None: it does."""
    was: str | None = None
    """Why it would not start as it was before, so that nothing stands beside it."""
    flags: list[Moved] = []
    """Flags whose value changes; None: it is not given."""
    limits: list[Moved] = []
    """Limits, KV blocks and GPUs, before and after; without a before only after."""
    figures: list[Moved] = []
    """Figures of the traffic, by the names of a report's JSON."""
    goodput: Moved | None = None
    """Requests per second within the bounds."""
    cost: Moved | None = None
    """Price of a million output tokens, where a price of the GPU's hour is given."""
    bounds: list[Objective] = []
    """Every bound, with its figure then."""

    @property
    def holds(self) -> bool:
        """Whether it starts and every bound holds."""
        return self.problem is None and not self.missed

    @property
    def missed(self) -> list[str]:
        """Bounds on a statistic that do not hold, or are open."""
        return [each.name for each in self.bounds if each.is_of_all and each.met is not True]

    def summary(self) -> str:
        if self.problem is not None:
            return f"{self.file}: {self.problem}"
        if not self.missed:
            return f"{self.file}: {'every bound holds' if self.bounds else 'it starts, and no bound is given'}"
        return f"{self.file}: {', '.join(self.missed)} missed"

    def as_table(self) -> RowTable:
        """One row per figure: ``figure``, ``before`` and ``after``."""
        rows = [{"figure": each.name, "before": each.older, "after": each.newer} for each in self.figures]
        return table_from("check", rows, numbers=("before", "after"))


@suggests_keywords()
def check(
    deployment: Deployment,
    against: WorkloadChoice,
    *,
    before: Deployment | None = None,
    slo: SLOs = None,
    price: float | None = None,
    name: str = "deployment",
    progress: OnProgress | bool | None = None,
) -> Check:
    """Replay stored traffic on a deployment, beside what it was ``before``, and say which bounds hold.

    ``against``: a workload as for :func:`tokenyard.run`, or the path of a trace, whose requests are taken. ``price``:
    of one GPU for an hour. Raises TokenyardError for traffic or bounds that cannot be read; a deployment that does not
    start is an answer.
    """
    return ask(deployment, against, before=before, slo=slo_texts(slo), price=price, name=name, bars=bars_of(progress))


def ask(
    deployment: Deployment,
    against: WorkloadChoice,
    *,
    before: Deployment | None,
    slo: tuple[tuple[str, ...], ...],
    price: float | None,
    name: str,
    bars: Bars,
    arrivals: TrafficSettings | None = None,
) -> Check:
    """The same of bounds as texts."""
    traffic = against
    if isinstance(against, str | PathLike) and is_trace(fspath(against)):
        traffic = read_run(fspath(against)).workload
    told = Scenario.of(deployment_settings(deployment), traffic, arrivals=arrivals or TrafficSettings())
    workload = told.read()
    shown = Check(file=name, against=workload.name, requests=len(workload))
    first: Report | None = None
    if before is not None:
        try:
            first = _report(before, workload, slo, bars, "as it was")
        except TokenyardError as error:
            shown, before = msgspec.structs.replace(shown, was=str(error)), None
    try:
        after = _report(deployment, workload, slo, bars, "as it is then")
    except TokenyardError as error:
        return msgspec.structs.replace(shown, problem=str(error))
    known = {each.name: each for each in figures(first or after, after)}
    moved = [
        Moved(name=each, older=None if first is None else known[each].a, newer=known[each].b)
        for each in FIGURES
        if each in known
    ]
    return msgspec.structs.replace(
        shown,
        flags=[] if before is None else _flags(before, deployment),
        limits=_limits(before, deployment),
        figures=moved,
        goodput=_moved("goodput", _goodput, first, after),
        cost=_moved("cost", lambda report: _cost(report, price), first, after),
        bounds=[] if after.goodput is None else list(after.goodput.objectives),
    )


def _report(
    deployment: Deployment, workload: Workload, slo: tuple[tuple[str, ...], ...], bars: Bars, what: str
) -> Report:
    of = Scenario.of(deployment_settings(deployment), workload, slo=slo)
    return run_of(of, bars=lambda total, _: bars(total, what)).report


def _moved(name: str, of: Callable[[Report], float | None], first: Report | None, after: Report) -> Moved | None:
    value = of(after)
    return None if value is None else Moved(name=name, older=None if first is None else of(first), newer=value)


def _goodput(report: Report) -> float | None:
    """Requests a second within their own bounds; None where no bound is about single requests."""
    goodput = report.goodput
    return None if goodput is None or goodput.requests is None else goodput.requests_per_s


def _cost(report: Report, price: float | None) -> float | None:
    tokens = report.throughput.output_tokens_per_s
    if price is None or not tokens or report.num_gpus is None:
        return None
    return price * report.num_gpus / 3600 / tokens * 1e6


def _flags(before: Deployment, after: Deployment) -> list[Moved]:
    one, other = (
        {each.flag.name: each.value for each in known.settings.launch.asked.given} for known in (before, after)
    )
    names = [name for name in dict.fromkeys((*one, *other)) if one.get(name) != other.get(name)]
    return [Moved(name=name, older=one.get(name), newer=other.get(name)) for name in names]


def _limits(before: Deployment | None, after: Deployment) -> list[Moved]:
    one, other = {} if before is None else _settled(before), _settled(after)
    return [Moved(name=name, older=one.get(name), newer=other[name]) for name in other]


def _settled(deployment: Deployment) -> Mapping[str, int | str | None]:
    settled = deployment.resolve().settled
    found: dict[str, int | str | None] = {name: getattr(settled.scheduling, name) for name in _LIMITS}
    return found | {"KV blocks": settled.plan.num_blocks, "GPU": settled.hardware.gpu}


# ---------------------------------------------------------------------------------------------------------------------
# What a change in a repository touches.


def changed_since(files: Sequence[str], revision: str) -> dict[str, str | None]:
    """The files that differ from a revision of git, and the text that each had then; None: it was not there.

    Raises ConfigError where git does not know the revision.
    """
    known = _git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    if known is None:
        raise ConfigError(
            "since", revision, "git knows no such revision here: fetch it (fetch-depth: 0), or name another"
        )
    found: dict[str, str | None] = {}
    for file in files:
        before = _git("show", f"{known.strip()}:./{Path(file).as_posix()}")
        if before != Path(file).read_text(encoding="utf-8"):
            found[file] = before
    return found


def _git(*words: str) -> str | None:
    try:
        done = subprocess.run(["git", *words], capture_output=True, text=True, check=False)
    except OSError as error:
        raise ConfigError("since", words[0], f"git cannot be run: {error}") from None
    return done.stdout if done.returncode == 0 else None
