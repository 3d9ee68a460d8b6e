"""A trace of what FastScheduler decides: our core is watched as everywhere, the engine is described as vLLM's is."""

from __future__ import annotations

import time
from typing import Any

from tokenyard.core.sched.observer import Observers, SchedulerState, StepObserver
from tokenyard.core.sched.outcomes import StepOutcomes
from tokenyard.core.sched.scheduler_output import SchedulerOutput
from tokenyard.quick_dataclass import dataclass
from tokenyard.record.recorder import TraceRecorder
from tokenyard.record.writer import TraceWriter
from tokenyard.vllm.tracing.header import describe_engine
from tokenyard.vllm.tracing.lost_time import LostTime
from tokenyard.vllm.versions import trace_settings, warn_no_trace


@dataclass(frozen=True, slots=True)
class CoreClock:
    """Seconds that only grow, as the monotonic clock's, counted from where Unix time counts.

    A trace holds Unix time, like the arrival times of vLLM's requests; the events of a request are monotonic.
    """

    ahead: float
    """Unix time less monotonic time."""

    @classmethod
    def now(cls) -> CoreClock:
        """The clocks' times now."""
        return cls(time.time() - time.monotonic())

    def __call__(self) -> float:
        return time.monotonic() + self.ahead

    def monotonic(self, ts: float) -> float:
        """The same moment on the monotonic clock."""
        return ts - self.ahead


class _LostTimeObserver(StepObserver):
    """Counts the time lost by reason, as vLLM's registry shows it."""

    def __init__(self, lost: LostTime, recorder: TraceRecorder) -> None:
        self._lost = lost
        self._recorder = recorder

    def step_decided(self, ts: float, output: SchedulerOutput, outcomes: StepOutcomes, state: SchedulerState) -> None:
        self._lost.step_decided(ts, self._recorder.refusals(ts, output, outcomes))


def attach_trace(scheduler: Any) -> TraceWriter | None:
    """Watch the core of a FastScheduler if the ``SCHED_TRACE_*`` variables ask for a trace; its ``shutdown`` closes it.

    None without a trace, and, with a warning, if it cannot be written. ConfigError for a variable that cannot be used.
    """
    settings = trace_settings(scheduler.vllm_config, str(scheduler.vllm_config.scheduler_config.policy))
    if not settings.enabled:
        return None
    try:
        writer = TraceWriter(settings)
        writer.claim()
        _watch(scheduler, writer)
    except Exception as error:  # noqa: BLE001 - a server without a trace is better than none
        warn_no_trace(settings, error)
        return None
    return writer


def _watch(scheduler: Any, writer: TraceWriter) -> None:
    core = scheduler.core
    start = describe_engine(scheduler, writer.config.policy, core.clock())
    engine = str((start.config or {}).get("data_parallel_rank", 0))
    lost = LostTime(str(scheduler.vllm_config.model_config.served_model_name), engine)
    recorder = TraceRecorder(writer, start=start)
    core.attach_observer(Observers(recorder, _LostTimeObserver(lost, recorder)))
