"""A trace read into what its run was made of: requests, configuration, step times, and how the run went."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np

from tokenyard.config import CacheConfig, SchedulerConfig
from tokenyard.errors import TraceError
from tokenyard.explain.report.report import Report
from tokenyard.explain.report.speculation import Speculation
from tokenyard.explain.report.summary import summarize
from tokenyard.sim.drafts import SimulatedSpeculation
from tokenyard.sim.latency.fitted import FEATURES, FittedLatency
from tokenyard.sim.latency.leaning import lean
from tokenyard.sim.latency.measured import MeasuredStep, StepTimes, fit_steps, measured_pace
from tokenyard.sim.latency.model import LatencyModel
from tokenyard.sim.latency.pace import Pace
from tokenyard.sim.whatif.answer import FitQuality
from tokenyard.sim.whatif.front_end import REPLAY
from tokenyard.sim.whatif.recorded_config import RecordedConfig, recorded_config
from tokenyard.sim.whatif.recorded_requests import RecordedRequests
from tokenyard.sim.workload.record import Workload
from tokenyard.trace.format.schema import TraceStart
from tokenyard.trace.read.files import find_trace
from tokenyard.trace.read.reader import TraceReader

__all__ = ["RecordedRun", "read_run"]

_HELD_OUT_STRETCH = 16
"""Steps in a row that are fitted, then as many that are predicted: neighbours are alike."""


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
    fitted: FittedLatency
    """What ``latency`` is for steps like those of the trace."""
    pace: Pace | None
    """When the machine was faster or slower than ``latency``; None if it ran evenly."""
    fit: FitQuality
    report: Report
    """How the run went, by its trace."""
    measured: list[MeasuredStep] = field(repr=False)
    """What ``fitted`` is fitted to."""

    def leaning_on(self, model: LatencyModel, name: str) -> RecordedRun:
        """The run with ``model``'s durations, scaled, for steps that are larger than the trace has.

        ``name`` says what the model is of. Nothing changes if it is far from the steps that there are.
        """
        leaning = lean(self.fitted, self.measured, model)
        if leaning is None:
            return self
        fit = msgspec.structs.replace(self.fit, leans_on=name, leans_on_error=leaning.error)
        return replace(self, latency=leaning.latency, fit=fit)


def read_run(path: Path | str, on_step: Callable[[int], None] | None = None) -> RecordedRun:
    """Read a trace. Raises TraceError if it cannot be read, or does not tell what a replay needs.

    ``on_step`` is told the number of steps read so far.
    """
    files = find_trace(path)
    reader = TraceReader(files)
    times = StepTimes()
    requests: RecordedRequests | None = None
    config: RecordedConfig | None = None
    for number, step in enumerate(reader.steps()):
        if requests is None or config is None:
            config = recorded_config(reader.start, str(path))
            requests = _requests(str(files.name), reader.start, config)
        requests.add(step)
        times.add(step)
        if on_step is not None:
            on_step(number)
    times.end()
    start = reader.start
    if requests is None or config is None or start is None:
        raise TraceError(f"{path}: holds no step")
    _check_whole(start, str(path))
    workload = requests.workload()
    if config.cache.enable_prefix_caching and not requests.num_with_blocks:
        raise TraceError(f"{path}: prefix caching was on, and no block is numbered: nobody knows who shares a prefix")
    report = summarize(path)
    latency = fit_steps(times.measured, str(path))
    is_virtual = start.host == REPLAY
    pace = None if is_virtual else measured_pace(times.measured, latency, requests.began)
    return RecordedRun(
        source=str(path),
        start=start,
        workload=workload,
        scheduler=config.scheduler,
        cache=config.cache,
        speculation=_speculation(config, report.speculation, str(path)),
        latency=latency,
        fitted=latency,
        pace=pace,
        fit=_quality(times.measured, pace),
        report=report,
        measured=times.measured,
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


def _quality(steps: list[MeasuredStep], pace: Pace | None) -> FitQuality:
    """How well step times are predicted that the fit has not seen: stretches in turn are fitted and predicted."""
    fastest, slowest = (None, None) if pace is None else (float(pace.factors.min()), float(pace.factors.max()))
    stretch = np.arange(len(steps)) // _HELD_OUT_STRETCH % 2
    fitted = [step for step, turn in zip(steps, stretch.tolist(), strict=True) if turn == 0]
    unseen = [step for step, turn in zip(steps, stretch.tolist(), strict=True) if turn == 1]
    if len(fitted) < len(FEATURES) or not unseen:
        return FitQuality(steps=len(steps), held_out=0, fastest=fastest, slowest=slowest)
    model = fit_steps(fitted, "the trace")
    weights = np.array([getattr(model, name) for name in FEATURES])
    predicted = np.array([step.features for step in unseen]) @ weights
    measured = np.array([step.seconds for step in unseen])
    errors = np.abs(predicted / measured - 1)
    return FitQuality(
        steps=len(steps),
        held_out=len(unseen),
        median_error=float(np.median(errors)),
        p90_error=float(np.percentile(errors, 90)),
        total_error=float(predicted.sum() / measured.sum() - 1),
        fastest=fastest,
        slowest=slowest,
    )
