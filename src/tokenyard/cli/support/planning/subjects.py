"""What is planned or swept: a workload on a deployment, or a run that was recorded."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenyard.cli.support.flags import Run
from tokenyard.cli.support.planning.settings import changed, convert
from tokenyard.cli.support.setup import Setup, prepare
from tokenyard.cli.support.variants.served import leaning_on_model
from tokenyard.cli.support.workload import workload_from
from tokenyard.errors import ConfigError
from tokenyard.policies.named import policy_maker
from tokenyard.sim.settings import ReplaySettings
from tokenyard.sim.sweep.measuring import Prepared
from tokenyard.sim.sweep.row import Setting, Settings, words_of
from tokenyard.sim.whatif.recorded_run import RecordedRun, read_run
from tokenyard.sim.whatif.settings import CHANGEABLE, Variant, as_it_was, read_variant
from tokenyard.sim.workload.record import Workload

__all__ = ["RecordedSubject", "WorkloadSubject", "is_trace"]

_OF_A_TRACE = tuple(
    f".{kind}.{end}" for kind in ("steps", "requests") for end in ("jsonl", "jsonl.gz", "jsonl.zst", "parquet")
)


def is_trace(path: str) -> bool:
    """Whether a path is that of a trace, and not of a workload."""
    return Path(path).is_dir() or path.endswith(_OF_A_TRACE)


class _Unpacked:
    """What a subject keeps of its files in each process; it does not travel with it."""

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_kept"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _kept={})


@dataclass
class WorkloadSubject(_Unpacked):
    """A workload, on a deployment by its flags."""

    run: Run
    _kept: dict[Any, Workload] = field(default_factory=dict, compare=False, repr=False)

    def prepared(self, settings: Settings) -> Prepared:
        setup = self.setup(settings)
        scaling, each = setup.autoscaling, setup.gpus_per_replica
        return Prepared(
            workload=setup.workload,
            replays=setup.replays(skip_refused=self.run.arrivals.skip_refused),
            policy=setup.policy,
            gpu=setup.settled.gpu.name,
            gpus=each if scaling is None else each * scaling.most if scaling.is_fixed else None,
            gpus_per_replica=each,
        )

    def read(self) -> None:
        """Read the workload, so that what is wrong with it is said once. Raises TokenyardError."""
        self._kept[self.run.arrivals] = workload_from(self.run.workload, self.run.arrivals)

    def setup(self, settings: Settings) -> Setup:
        """All that is settled of a variant; a workload is read once for all variants that have the same one."""
        run = changed(self.run, settings)
        known = self._kept.get(run.arrivals)
        setup = prepare(run, known)
        self._kept[run.arrivals] = setup.workload
        return setup

    @staticmethod
    def convert(given: str, value: Any, flag: str = "--set") -> tuple[str, Setting]:
        """A setting and its value. Raises ConfigError."""
        return convert(given, value, flag)


@dataclass
class RecordedSubject(_Unpacked):
    """A recorded run: its requests, and its step times."""

    trace: str
    skip_refused: bool = True
    _kept: dict[str, RecordedRun] = field(default_factory=dict, compare=False, repr=False)

    @property
    def run(self) -> RecordedRun:
        if not self._kept:
            self._kept["run"] = leaning_on_model(read_run(self.trace))
        return self._kept["run"]

    def read(self) -> None:
        """Read the trace, so that what is wrong with it is said once. Raises TokenyardError."""
        _ = self.run

    def prepared(self, settings: Settings) -> Prepared:
        variant = self.variant(settings)
        return Prepared(
            workload=variant.workload,
            replays=ReplaySettings(
                variant.scheduler,
                variant.cache,
                variant.latency,
                self.skip_refused,
                variant.kv_transfer,
                variant.speculation,
            ),
            policy=policy_maker(variant.scheduler.policy, "scheduling_policy"),
            gpu=self.run.start.gpu,
            gpus=None,
        )

    def variant(self, settings: Settings) -> Variant:
        """The run with other settings, as ``whatif`` reads them."""
        return read_variant(self.run, words_of(settings).replace(" ", ",")) if settings else as_it_was(self.run)

    @staticmethod
    def convert(given: str, value: Any, flag: str = "--set") -> tuple[str, Setting]:
        """A setting that can be changed in a recorded run, and its value. Raises ConfigError."""
        name, setting = convert(given, value, flag)
        if name not in CHANGEABLE:
            fix = (
                f"a trace cannot tell what this would have done: use one of {', '.join(CHANGEABLE)}, or plan a workload"
            )
            raise ConfigError(flag, given, fix)
        return name, setting
