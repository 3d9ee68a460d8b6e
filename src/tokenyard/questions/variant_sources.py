"""What is planned or swept: a workload on a deployment, or a run that was recorded; and the worker that measures it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tokenyard.deploy.given import changed
from tokenyard.deploy.spec import ReplaySpec
from tokenyard.errors import ConfigError
from tokenyard.policies.named import policy_label, policy_maker
from tokenyard.questions.by_class import bounds_by_class, read_bounds
from tokenyard.questions.recorded.deployment import GivenDeployment, RecordedDeployment
from tokenyard.questions.recorded.recorded_requests import REPLAY
from tokenyard.questions.recorded.recorded_run import RecordedRun, read_run
from tokenyard.questions.recorded.variants import CHANGEABLE, Variant, as_it_was
from tokenyard.questions.replaying import engines_of
from tokenyard.questions.scenario import Say, Scenario, replay_spec
from tokenyard.questions.sweeping.measuring import EngineRecord, PreparedVariant, VariantWorker
from tokenyard.questions.sweeping.rows import Setting, Settings, key_of, text_of_settings
from tokenyard.questions.variants import (
    ShorterContext,
    SplitDeployment,
    made_to_start,
    modelled,
    read_setting,
    sides_of,
    with_changes,
)
from tokenyard.quick_dataclass import dataclass
from tokenyard.sim.settings import ReplaySettings
from tokenyard.trace.config import TraceConfig
from tokenyard.trace.start import describe_run
from tokenyard.workload.load import doubt_of_policy
from tokenyard.workload.record import Workload

_Made = TypeVar("_Made")
_OF_A_TRACE = tuple(
    f".{kind}.{end}" for kind in ("steps", "requests") for end in ("jsonl", "jsonl.gz", "jsonl.zst", "parquet")
)


def is_trace(path: str) -> bool:
    """Whether a path is that of a trace, and not of a workload."""
    return Path(path).is_dir() or path.endswith(_OF_A_TRACE)


class _Unpacked:
    """What a source keeps of its files in each process; it does not travel with it."""

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_unpacked"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _unpacked={})


@dataclass
class WorkloadVariants(_Unpacked):
    """A workload, on a deployment by its flags."""

    run: Scenario
    _unpacked: dict[Any, Workload] = field(default_factory=dict, compare=False, repr=False)
    _shorter: dict[str, ShorterContext | None] = field(default_factory=dict, compare=False, repr=False)

    def prepared(self, settings: Settings) -> PreparedVariant:
        split = self.sides(settings)
        setup = self.setup(settings) if split is None else split.prefill
        skip_refused = self.run.arrivals.skip_refused
        scaling, each = setup.autoscaling, setup.gpus_per_replica
        if split is not None:
            gpus: int | None = split.num_gpus
        else:
            gpus = each if scaling is None else each * scaling.most if scaling.is_fixed else None
        return PreparedVariant(
            workload=setup.workload,
            replays=setup.replays(skip_refused=skip_refused),
            policy=setup.policy,
            gpu=setup.settled.gpu.name,
            gpus=gpus,
            gpus_per_replica=each,
            decode=None if split is None else split.decode_side(skip_refused=skip_refused),
            records=_records(setup, split),
            drafts=(setup if split is None else split.decode).drafts,
            taken={} if (shorter := self.shorter(settings)) is None else dict(shorter.settings),
        )

    def read(self) -> None:
        """Read the workload, so that what is wrong with it is reported once. Raises TokenyardError."""
        _ = self.workload

    @property
    def workload(self) -> Workload:
        """The workload where no setting changes the arrivals."""
        return self._workload_of(self.run)

    @property
    def policy(self) -> str:
        """The value where a variant names none."""
        return self.run.scheduler.scheduling_policy

    def setup(self, settings: Settings) -> ReplaySpec:
        """All that is settled of a variant, of a split that of its decode engines; a workload is read once for all
        variants that have the same one.
        """
        split = self.sides(settings)
        if split is not None:
            return split.decode
        run = changed(self.run, settings)
        setup = self._made(settings, run, lambda of: replay_spec(of, self._unpacked.get(run.arrivals)))
        self._unpacked[run.arrivals] = setup.workload
        return setup

    def shorter(self, settings: Settings) -> ShorterContext | None:
        """The context that was taken for a variant that has been set up and would not start with the model's own."""
        return self._shorter.get(key_of(settings))

    def _made(self, settings: Settings, run: Scenario, make: Callable[[Scenario], _Made]) -> _Made:
        """What ``make`` makes of a variant, with a shorter context where that lets it start. Raises TokenyardError."""
        known = self.shorter(settings)
        if known is not None:
            return make(changed(run, known.settings))
        made, self._shorter[key_of(settings)] = made_to_start(run, partial(self._workload_of, run), make)
        return made

    def _workload_of(self, run: Scenario) -> Workload:
        if run.arrivals not in self._unpacked:
            self._unpacked[run.arrivals] = run.read()
        return self._unpacked[run.arrivals]

    def sides(self, settings: Settings) -> SplitDeployment | None:
        """Both deployments of a split; None of a variant that is none."""
        run = changed(self.run, settings)
        if run.split_settings.split is None:
            return None
        known = self._unpacked.get(run.arrivals)
        split = self._made(settings, run, lambda of: sides_of(of, of.split_settings, known))
        self._unpacked[run.arrivals] = split.prefill.workload
        return split

    @staticmethod
    def convert(given: str, value: Any, flag: str = "--set") -> tuple[str, Setting]:
        """A setting and its value. Raises ConfigError."""
        return read_setting(given, value, flag)


def _records(setup: ReplaySpec, split: SplitDeployment | None) -> tuple[EngineRecord, ...]:
    """How the trace of each engine is written, those that prefill first; of replicas none is."""
    if setup.autoscaling is not None:
        return ()
    if split is None:
        sides: tuple[ReplaySpec, ...] = (_rooted(setup),)
    else:
        sides = msgspec.structs.replace(split, prefill=_rooted(split.prefill), decode=_rooted(split.decode)).recorded
    return tuple(EngineRecord(each.trace, each.start) for side in sides for each in engines_of(side))


def _rooted(setup: ReplaySpec) -> ReplaySpec:
    """The same with its trace in a folder that is known later."""
    return replace(setup, trace=replace(setup.trace, path=Path(), request_records=False))


@dataclass
class RecordedVariants(_Unpacked):
    """A recorded run: its requests, and its step times."""

    trace: str
    skip_refused: bool = True
    _unpacked: dict[str, tuple[RecordedRun, RecordedDeployment]] = field(
        default_factory=dict, compare=False, repr=False
    )

    @property
    def _read(self) -> tuple[RecordedRun, RecordedDeployment]:
        if not self._unpacked:
            self._unpacked["run"] = modelled(read_run(self.trace), GivenDeployment())
        return self._unpacked["run"]

    @property
    def run(self) -> RecordedRun:
        return self._read[0]

    @property
    def deployment(self) -> RecordedDeployment:
        """What it ran on, as far as the trace says."""
        return self._read[1]

    @property
    def workload(self) -> Workload:
        """The requests of the run."""
        return self.run.workload

    @property
    def policy(self) -> str:
        """The value where a variant names none."""
        return self.run.scheduler.policy

    def read(self) -> None:
        """Read the trace, so that what is wrong with it is reported once. Raises TokenyardError."""
        _ = self.run

    def prepared(self, settings: Settings) -> PreparedVariant:
        variant = self.variant(settings)
        return PreparedVariant(
            workload=variant.workload,
            replays=ReplaySettings(
                variant.scheduler,
                variant.cache,
                variant.latency,
                skip_refused=self.skip_refused,
                kv_transfer=variant.kv_transfer,
                speculation=variant.speculation,
            ),
            policy=policy_maker(variant.scheduler.policy, "scheduling_policy"),
            gpu=self.run.start.gpu,
            gpus=None,
            records=(self._record(variant),),
            drafts=variant.drafts,
        )

    def _record(self, variant: Variant) -> EngineRecord:
        """The first record of a variant's trace: the recorded model and GPU, with the settings that are asked about."""
        recorded = self.run.start
        start = describe_run(
            variant.scheduler,
            variant.cache,
            host=REPLAY,
            model=recorded.model,
            gpu=recorded.gpu,
            bytes_per_block=recorded.bytes_per_block,
            sections={},
        )
        policy = policy_label(variant.scheduler.policy)
        return EngineRecord(TraceConfig(path=Path(), policy=policy, request_records=False), start)

    def variant(self, settings: Settings) -> Variant:
        """The run with other settings, as ``whatif`` reads them."""
        if not settings:
            return as_it_was(self.run)
        return with_changes(*self._read, settings, text_of_settings(settings))

    @staticmethod
    def convert(given: str, value: Any, flag: str = "--set") -> tuple[str, Setting]:
        """A setting that can be changed in a recorded run, and its value. Raises ConfigError."""
        name, setting = read_setting(given, value, flag)
        if name not in CHANGEABLE:
            fix = (
                "a trace cannot show what this would have done: whatif estimates it from step times; here use one of "
                f"{', '.join(CHANGEABLE)}, or plan a workload"
            )
            raise ConfigError(flag, given, fix)
        return name, setting


KnownSource = WorkloadVariants | RecordedVariants


def source_of(scenario: Scenario) -> KnownSource:
    """The trace, or the workload with the deployment."""
    if isinstance(scenario.workload, str) and is_trace(scenario.workload):
        return RecordedVariants(scenario.workload)
    return WorkloadVariants(scenario)


def measuring_for(
    scenario: Scenario, source: KnownSource, prices: Mapping[str, float], traces: Path | None = None
) -> VariantWorker:
    """The worker. Raises ConfigError for a bound that is none."""
    return VariantWorker(
        source=source,
        slos=read_bounds(scenario.slo, scenario.by),
        by=scenario.by,
        prices=prices,
        traces=None if traces is None else traces.absolute(),
    )


def with_classes(job: VariantWorker, workload: Workload) -> VariantWorker:
    """The same, each bound with the class of the workload's that it is of. Raises ConfigError for one there is not."""
    return job if job.by is None else replace(job, slos=bounds_by_class(job.slos, workload, job.by))


def say_idle_policies(source: KnownSource, policies: Iterable[Any], say: Say) -> None:
    """Warn of policies that find nothing in the workload to decide by: those requested, or else the source's own."""
    for policy in dict.fromkeys(map(str, policies)) or (source.policy,):
        doubt = doubt_of_policy(policy, source.workload)
        if doubt is not None:
            say(f"{policy} has nothing to decide by: {doubt}")
