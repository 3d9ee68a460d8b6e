"""Many variants of a run, each a row of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, field, replace
from functools import partial
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from tokenyard.arguments import given_path
from tokenyard.core.config import require_int
from tokenyard.deploy.deployment import Deployment
from tokenyard.errors import ConfigError
from tokenyard.explain.slo import SLOs, slo_texts
from tokenyard.explain.table import Printable, RowTable
from tokenyard.questions.compare import require_several
from tokenyard.questions.experiment import complete, identity_of
from tokenyard.questions.scenario import (
    Counting,
    OnCount,
    Say,
    Scenario,
    WorkloadChoice,
    counting_of,
    deployment_settings,
    nothing,
    split_by_name,
    takes_arrivals,
    traffic_by_name,
)
from tokenyard.questions.space import Space, grid_of, prices_of
from tokenyard.questions.sweeping.rows import TRACES, Journal, Row, Setting, key_of, require_parquet, rows_table
from tokenyard.questions.sweeping.variants import MOST_PROCESSES, read_variants
from tokenyard.questions.variant_sources import KnownSource, measuring_for, say_idle_policies, source_of, with_classes
from tokenyard.quick_dataclass import dataclass

if TYPE_CHECKING:
    from tokenyard.questions.keywords import TrafficKeywords


class SweepResult(Printable, msgspec.Struct, frozen=True, kw_only=True):
    """Many variants, a row each."""

    printer = "tokenyard.questions.printing.sweep:print_sweep"

    workload: str
    table: str
    """Parquet, a row per variant; empty where no directory was named."""
    variants: int
    measured_before: int
    """Variants that an earlier command had finished."""
    rows: list[Row]

    def summary(self) -> str:
        failed = sum(row.problem is not None for row in self.rows)
        return f"{self.variants:,} variants of {self.workload}{f', {failed:,} not replayed' if failed else ''}"

    def page(self) -> str:
        """All variants as an HTML page that needs nothing else: an axis for each setting and figure, and the rows."""
        from tokenyard.questions.sweeping.page import page  # noqa: PLC0415 - few ask for it

        directory = Path(self.table).absolute().parent if self.table else None
        return page(self.workload, self.rows, directory)

    def as_table(self) -> RowTable:
        """One row per variant: its settings, what came of it, its figures."""
        return rows_table(self.rows)


@dataclass(frozen=True, kw_only=True)
class SweepQuestion:
    """The parameters of a sweep."""

    scenario: Scenario
    """A workload on a deployment, or the path of a trace as its workload."""
    output: Path
    """Where the rows are kept; the same question goes on from there."""
    space: Space | None = None
    """Settings and their values; every combination of all of them is a variant."""
    variants: Path | Sequence[Mapping[str, Any]] | None = None
    """A file of variants, or the variants, instead."""
    prices: Mapping[str, float] = field(default_factory=dict)
    """GPU -> price of an hour."""
    jobs: int | None = None
    """Processes that replay; None: one for each core where that pays."""
    ray: str | None = None
    """Address of a Ray cluster that replays."""
    traces: bool = False
    """Keep the trace of every variant."""
    space_name: str = "space"
    """What to call the space in a message."""
    bar: Counting = lambda _, __: nullcontext(lambda: None)
    """Number of variants, and of those that are done -> what to call with each that was finished."""
    say: Say = nothing


@takes_arrivals
def sweep(
    workload: WorkloadChoice,
    deployment: Deployment | None = None,
    space: Space | None = None,
    *,
    variants: str | PathLike[str] | Iterable[Mapping[str, Any]] | None = None,
    slo: SLOs = None,
    price: Mapping[str, float] | None = None,
    jobs: int | None = None,
    ray: str | None = None,
    output: str | PathLike[str] | None = None,
    traces: bool = False,
    by: str | None = None,
    split: str | None = None,
    kv_link_gb_per_s: float = 50.0,
    seeds: Sequence[int] | None = None,
    progress: OnCount | bool | None = None,
    **arrivals: Unpack[TrafficKeywords],
) -> SweepResult:
    """Replay every variant of a deployment: each combination of a space's values, or a list (or file) of variants.

    ``workload``, ``space``, ``price``, ``by`` and ``arrivals``: as for :func:`tokenyard.plan`. ``jobs``: processes; one
    for each core, where that pays, if it is None. ``output``: a directory with the rows and their table (Parquet), from
    which the same sweep goes on; without one nothing stays. ``seeds``: every variant is replayed once with each,
    and the rows have the setting ``seed``. ``progress`` is called with the variants that are finished, and how many
    there are; True shows a line. Raises TokenyardError.
    """
    if traces and output is None:
        raise ConfigError("traces", traces, "say where they are kept: output=DIR")
    if seeds is not None:
        if arrivals.get("seed") is not None:
            raise ConfigError("seed", arrivals["seed"], "seeds are given too: give one of the two")
        given: dict[str, Any] = {"variants": variants, "slo": slo, "price": price, "jobs": jobs, "ray": ray, "by": by}
        given |= {"traces": traces, "split": split, "kv_link_gb_per_s": kv_link_gb_per_s, "progress": progress}
        return _with_seeds(seeds, output, partial(sweep, workload, deployment, space, **given, **arrivals))
    question = SweepQuestion(
        scenario=Scenario.of(
            deployment_settings(Deployment() if deployment is None else deployment),
            workload,
            arrivals=traffic_by_name(arrivals),
            split_settings=split_by_name(split=split, kv_link_gb_per_s=kv_link_gb_per_s),
            slo=slo_texts(slo),
            by=by,
        ),
        output=Path("sweep") if output is None else given_path("output", output),
        space=space,
        variants=_variants_given(variants),
        prices=prices_of(price),
        jobs=jobs,
        ray=ray,
        traces=traces,
        bar=counting_of(progress),
    )
    if output is not None:
        return ask(question)
    with TemporaryDirectory(prefix="tokenyard-sweep-") as folder:
        found = ask(replace(question, output=Path(folder)))
    return msgspec.structs.replace(found, table="")


def _with_seeds(
    seeds: Sequence[int], output: str | PathLike[str] | None, replay: Callable[..., SweepResult]
) -> SweepResult:
    """One sweep per seed, as one; each keeps its rows in a folder of its own."""
    require_several((1.0,), seeds)
    folder = None if output is None else given_path("output", output)
    found = {seed: replay(seed=seed, output=None if folder is None else folder / f"seed-{seed}") for seed in seeds}
    first = next(iter(found.values()))
    return msgspec.structs.replace(
        first,
        variants=sum(each.variants for each in found.values()),
        measured_before=sum(each.measured_before for each in found.values()),
        rows=[
            msgspec.structs.replace(row, settings={**row.settings, "seed": seed})
            for seed, each in found.items()
            for row in each.rows
        ],
    )


def _variants_given(variants: Any) -> Path | Sequence[Mapping[str, Any]] | None:
    if variants is None or isinstance(variants, str | PathLike):
        return None if variants is None else given_path("variants", variants)
    if not isinstance(variants, Iterable) or isinstance(variants, Mapping | bytes):
        raise ConfigError("variants", variants, 'give a list, [{"max_num_seqs": 64}, {"max_num_seqs": 128}], or a file')
    return list(variants)


def ask(question: SweepQuestion) -> SweepResult:
    """Replay what is not finished, and write the table. Raises TokenyardError."""
    if question.jobs is not None:
        require_int("jobs", question.jobs, 1, MOST_PROCESSES)
    require_parquet()
    scenario, output, say = question.scenario, question.output, question.say
    source = source_of(scenario)
    variants = _variants(question, source)
    job = measuring_for(scenario, source, question.prices, _traces(question))
    source.read()
    job = with_classes(job, source.workload)
    say_idle_policies(source, [each["scheduling_policy"] for each in variants if "scheduling_policy" in each], say)
    around = {"apart": asdict(scenario.split_settings), "traces": question.traces}
    with Journal(output, identity_of(scenario, question.prices, around)) as journal:
        before = sum(settings in journal for settings in variants)
        if before:
            say(f"{before:,} of {len(variants):,} variants were finished before: {output} has them")
        try:
            complete(
                journal,
                variants,
                job,
                question.bar,
                processes=question.jobs,
                ray=question.ray,
                traces=_traces(question),
            )
        except KeyboardInterrupt:
            say(f"{len(journal.rows):,} variants are finished: the same command goes on with the others")
            raise
        rows = journal.write_table(variants)
    return SweepResult(
        workload=scenario.name,
        table=str(journal.table),
        variants=len(variants),
        measured_before=before,
        rows=rows,
    )


def _traces(question: SweepQuestion) -> Path | None:
    """Where traces are kept; other machines have another working directory."""
    if not question.traces:
        return None
    return question.output / TRACES if question.ray is None else question.output.absolute() / TRACES


def _variants(question: SweepQuestion, source: KnownSource) -> list[dict[str, Setting]]:
    given = question.variants
    if given is None:
        if not question.space:
            fix = "say what to vary, for example max_num_seqs=64,128,256, or give §variants"
            raise ConfigError(question.space_name, "", fix)
        return grid_of(question.space, source, question.space_name).all()
    if question.space:
        raise ConfigError("variants", str(given), f"{question.space_name} names variants too: give one of the two")
    if isinstance(given, Path):
        return read_variants(given, source.convert)
    several = [dict(source.convert(name, value, "variants") for name, value in each.items()) for each in given]
    return list({key_of(each): each for each in several}.values())
