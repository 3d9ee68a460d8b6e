"""A trace read into what its run was made of: requests, configuration, step times, and how the run went."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from tokenyard.config import CacheConfig, SchedulerConfig
from tokenyard.errors import TraceError
from tokenyard.explain.report.report import Report
from tokenyard.explain.report.speculation import Speculation
from tokenyard.explain.report.summary import summarize
from tokenyard.sim.drafts import SimulatedSpeculation
from tokenyard.sim.latency.measured import MeasuredStep, StepTimes
from tokenyard.sim.latency.model import LatencyModel
from tokenyard.sim.latency.pace import Pace
from tokenyard.sim.whatif.answer import FitQuality
from tokenyard.sim.whatif.front_end import REPLAY
from tokenyard.sim.whatif.recorded_config import RecordedConfig, recorded_config
from tokenyard.sim.whatif.recorded_requests import RecordedRequests
from tokenyard.sim.whatif.step_times import fitted_to_features, fitted_to_model
from tokenyard.sim.workload.record import Workload
from tokenyard.trace.format.schema import TraceStart
from tokenyard.trace.read.files import find_trace
from tokenyard.trace.read.reader import TraceReader

__all__ = ["RecordedRun", "read_run"]


@dataclass(frozen=True, kw_only=True)
class RecordedRun:
    """What there is to replay."""

    source: str
    start: TraceStart
    workload: Workload
    scheduler: SchedulerConfig
    cache: CacheConfig
    speculation: SimulatedSpeculation | None
    latency: LatencyModel
    pace: Pace | None
    """When the machine was faster or slower than ``latency``; None if it ran evenly."""
    fit: FitQuality
    report: Report
    """How the run went, by its trace."""
    measured: list[MeasuredStep] = field(repr=False)
    """What ``latency`` is fitted to."""
    began: float
    """Moment of the first arrival, on the trace's clock."""

    @property
    def is_virtual(self) -> bool:
        """Whether it is a replay's: its machine has no slow moments."""
        return self.start.host == REPLAY

    def modelled_by(self, model: LatencyModel, name: str) -> RecordedRun:
        """The run with step times that heed what ``model`` says of its deployment, which ``name`` names."""
        fit = fitted_to_model(self.measured, self.source, self.began, model, name, is_virtual=self.is_virtual)
        return replace(self, latency=fit.latency, pace=fit.pace, fit=fit.quality)


def read_run(path: Path | str, on_step: Callable[[int], None] | None = None) -> RecordedRun:
    """Read a trace. Raises TraceError if it cannot be read, or does not tell what a replay needs.

    ``on_step`` is told the number of steps read so far.
    """
    files = find_trace(path)
    reader = TraceReader(files)
    times: StepTimes | None = None
    requests: RecordedRequests | None = None
    config: RecordedConfig | None = None
    for number, step in enumerate(reader.steps()):
        if requests is None or config is None or times is None:
            config = recorded_config(reader.start, str(path))
            requests = _requests(str(files.name), reader.start, config)
            drafts = 0 if config.speculative is None else config.speculative.num_speculative_tokens
            times = StepTimes(drafts, config.scheduler.pipeline_parallel_size)
        requests.add(step)
        times.add(step)
        if on_step is not None:
            on_step(number)
    start = reader.start
    if requests is None or config is None or times is None or start is None:
        raise TraceError(f"{path}: holds no step")
    times.end()
    _check_whole(start, str(path))
    workload = requests.workload()
    if config.cache.enable_prefix_caching and not requests.num_with_blocks:
        raise TraceError(f"{path}: prefix caching was on, and no block is numbered: nobody knows who shares a prefix")
    report = summarize(path)
    fit = fitted_to_features(times.measured, str(path), requests.began, is_virtual=start.host == REPLAY)
    return RecordedRun(
        source=str(path),
        start=start,
        workload=workload,
        scheduler=config.scheduler,
        cache=config.cache,
        speculation=_speculation(config, report.speculation, str(path)),
        latency=fit.latency,
        pace=fit.pace,
        fit=fit.quality,
        report=report,
        measured=times.measured,
        began=requests.began,
    )


def _requests(name: str, start: TraceStart | None, config: RecordedConfig) -> RecordedRequests:
    block_size = start.block_size if start is not None else None
    host = start.host if start is not None else None
    return RecordedRequests(name, block_size, config.scheduler.max_model_len, knows_turns=host == REPLAY)


def _check_whole(start: TraceStart, source: str) -> None:
    if (start.every_n or 1) > 1:
        raise TraceError(f"{source}: holds only one step in {start.every_n}: record every step (SCHED_TRACE_EVERY_N)")


def _speculation(config: RecordedConfig, measured: Speculation | None, source: str) -> SimulatedSpeculation | None:
    """Drafts as the run had them, right as often as they were."""
    if config.speculative is None:
        return None
    if measured is None or not measured.num_drafts:
        raise TraceError(f"{source}: drafts were to be verified, and it does not say how many were right")
    reached = [measured.num_drafts, *measured.num_accepted_tokens_per_pos]
    rates = [right / before if before else 0.0 for before, right in pairwise(reached)]
    return SimulatedSpeculation(config=config.speculative, acceptance=tuple(rates))
