"""Remedies, replayed: traffic is rebuilt from the histograms, and nothing is advised unless its replay is like it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import log
from typing import Any, NamedTuple

import msgspec
import numpy as np

from tokenyard.deploy.deployment import Deployment
from tokenyard.deploy.spec import ReplaySpec
from tokenyard.explain.advice.rules import Effect, Relief
from tokenyard.explain.answer.answer import Answer
from tokenyard.explain.answer.progress import family_named
from tokenyard.explain.answer.remedies import SETTING, Remedy
from tokenyard.explain.report.report import Report
from tokenyard.questions.metrics import workload_of
from tokenyard.questions.relief import with_relief, with_trials
from tokenyard.questions.replaying import Engines, Watching
from tokenyard.questions.run import STEPS_TRIED
from tokenyard.questions.scenario import Bars, Scenario, replay_spec
from tokenyard.sim.rows.rows import ReplayRows
from tokenyard.workload.record import Workload
from tokenyard.workload.scrapes import Scrapes

WITHIN = 0.25
"""Share by which a figure of the replay may differ from the measured one."""
_FEWEST_ENDED = 30
"""Requests that have to have ended in the time itself; with fewer lengths are those since the server's start."""
_MOST_REQUESTS, _LEAST_S, _MOST_S, _LONG_BESIDE = 1_500, 60.0, 600.0, 5.0
"""Requests that are made up, and for how many seconds, where the time itself has too few: times an answer's own."""
_ROUNDS = 3
_LEAST_COMPARED = 5
_WATCHED = 2.0
"""Times that a request takes, from which on a server was watched long enough to compare what it took."""
_CLOSE_MS = 1.0
"""Milliseconds of a difference that is none."""
_PACE, _FIRST = "TPOT mean", "TTFT mean"
_FIGURES = (
    (_FIRST, "vllm:time_to_first_token_seconds", "ttft_ms", "first_token_s"),
    (_PACE, "vllm:request_time_per_output_token_seconds", "tpot_ms", "finished_s"),
    ("E2E mean", "vllm:e2e_request_latency_seconds", "e2e_ms", "finished_s"),
)


class Beside(msgspec.Struct, frozen=True, kw_only=True):
    """A figure as it was measured, and as the replay has it."""

    figure: str
    measured: float
    replayed: float
    decides: bool
    """Nothing is advised where it differs by more than a quarter."""

    @property
    def off(self) -> float:
        return self.replayed / self.measured - 1 if self.measured else 0.0


class Treatment(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay of the rebuilt traffic says."""

    requests: int
    made_of: str
    """What the traffic was made of, in words."""
    figures: list[Beside]
    is_of_the_time: bool
    """The server was watched long enough beside what requests take: their TTFT and E2E decide, too."""
    is_agreed: bool
    """The replay, whose reasons are recorded, waits for what the verdict says; so it does where nothing waits."""
    step_time_factors: str | None
    """By what step times were scaled so that the replay meets the measured time per token; None: they were not."""
    answer: Answer
    """The replay's own: its reasons are recorded."""
    report: Report

    @property
    def holds(self) -> bool:
        """Whether the replay is like what was measured."""
        return self.is_agreed and all(abs(each.off) <= WITHIN for each in self.figures if each.decides)


def remedies_of(treatment: Treatment, told: Answer) -> list[Remedy]:
    """What helped when it was replayed; the untried ones of the verdict where nothing did, or the replay is off."""
    if not treatment.holds:
        return told.remedies
    relief = _of_relief(treatment.report.relief)
    tried = [*relief, *(each for each in treatment.answer.remedies if each.is_tried)]
    return tried or [each for each in told.remedies if each.code != SETTING]


def effects_of(treatment: Treatment, remedy: Remedy) -> Sequence[Effect]:
    """What a remedy did when it was replayed."""
    relief = treatment.report.relief
    if relief is not None and remedy.flag == relief.flags:
        return relief.effects
    trials = (each.trial for each in treatment.report.advice if each.trial is not None)
    return next((trial.effects for trial in trials if trial.flag == remedy.flag), [])


def changes_of(treatment: Treatment, remedy: Remedy) -> dict[str, Any]:
    """The settings that a remedy changes, where it was replayed; empty where it was not."""
    relief = treatment.report.relief
    if relief is not None and remedy.flag == relief.flags:
        return relief.settings
    trials = (each.trial for each in treatment.report.advice if each.trial is not None)
    return next(({trial.setting: trial.then} for trial in trials if trial.flag == remedy.flag), {})


def _of_relief(relief: Relief | None) -> list[Remedy]:
    if relief is None or not relief.is_enough or not relief.flags:
        return []
    gpus = (
        "" if relief.gpus == relief.gpus_now else f"{relief.gpus or 0:,} GPUs in the place of {relief.gpus_now or 0:,}"
    )
    title = f"{relief.flags}: all that arrives is served"
    return [Remedy(code=SETTING, title=title, flag=relief.flags, price=gpus, is_tried=True)]


def treated(scrapes: Scrapes, deployment: Deployment, told: Answer, bars: Bars, seed: int) -> Treatment:
    """Rebuild the traffic, replay it, compare, and try remedies if it is alike. Raises TokenyardError."""
    traffic = _traffic(scrapes, seed)
    scenario = Scenario.of(deployment.settings, traffic.workload)
    scenario = replace(scenario, arrivals=replace(scenario.arrivals, skip_refused=True))
    factor = 1.0
    spec, engines, figures = _replayed(scenario, scrapes, traffic, bars)
    for _ in range(_ROUNDS):
        pace = next((each for each in figures if each.figure == _PACE), None)
        if pace is None or abs(pace.off) <= WITHIN / 4 or not pace.replayed:
            break
        slower = min(max(factor * pace.measured / pace.replayed, 0.05), 20.0)
        other = replace(scenario, hardware=replace(scenario.hardware, step_time_factors=f"{slower:.4g}"))
        nearer = _replayed(other, scrapes, traffic, bars)
        if _apart(nearer[-1]) >= _apart(figures):
            break
        scenario, factor, (spec, engines, figures) = other, slower, nearer
    report = engines.report()
    found = Treatment(
        requests=len(traffic.workload),
        made_of=traffic.made_of,
        figures=figures,
        is_of_the_time=traffic.is_of_the_time,
        is_agreed=_is_agreed(told, report.answer),
        step_time_factors=None if factor == 1.0 else f"{factor:.3g}",
        answer=report.answer,
        report=report,
    )
    if not found.holds or told.code == "idle":
        return found

    def tried(other: ReplaySpec, of: Scenario, what: str) -> Report:
        beside = Engines(other, watching=Watching(rows=False))
        with bars(len(other.workload), f"trying {what}") as on_progress:
            beside.replay(skip_refused=True, on_progress=on_progress)
        return beside.report()

    report = with_trials(scenario, spec, report, tried, most_steps=STEPS_TRIED)
    report = with_relief(scenario, spec, report, tried, most_steps=STEPS_TRIED)
    return msgspec.structs.replace(found, report=report, answer=report.answer)


def _is_agreed(told: Answer, replayed: Answer) -> bool:
    if told.reason is None or replayed.reason is None:
        return (told.code == "idle") == (replayed.code == "idle")
    return told.family == family_named(replayed.reason)


def _apart(figures: Sequence[Beside]) -> float:
    """How far the times of both are apart, all together."""
    return sum(abs(log(each.replayed / each.measured)) for each in figures if each.replayed and each.measured)


def _replayed(
    scenario: Scenario, scrapes: Scrapes, traffic: _Traffic, bars: Bars
) -> tuple[ReplaySpec, Engines, list[Beside]]:
    spec = replay_spec(scenario)
    engines = Engines(spec, watching=Watching(rows=True))
    with bars(len(spec.workload), "the traffic of the metrics") as on_progress:
        result = engines.replay(skip_refused=True, on_progress=on_progress)
    assert result.rows is not None
    return spec, engines, list(_beside(scrapes, traffic, result.rows, engines.report()))


def _beside(scrapes: Scrapes, traffic: _Traffic, rows: ReplayRows, report: Report) -> Iterator[Beside]:
    """The means of both, each of those who had their first token, or their last, meanwhile."""
    requests, (start, end) = rows.requests, traffic.window
    for name, metric, column, moment in _FIGURES:
        value = scrapes.mean(metric)
        then = requests[moment]
        mine = (then > start) & (then <= end) & np.isfinite(requests[column])
        if value is not None and mine.sum() >= _LEAST_COMPARED:
            replayed = float(requests[column][mine].mean())
            is_close = abs(replayed - 1e3 * value) < _CLOSE_MS
            decides = not is_close and (name == _PACE or traffic.is_of_the_time)
            yield Beside(figure=name, measured=1e3 * value, replayed=replayed, decides=decides)
    kv = scrapes.gauge("vllm:kv_cache_usage_perc", mean=True)
    if report.peak_kv_use is not None and kv.max():
        yield Beside(figure="KV at most", measured=float(kv.max()), replayed=report.peak_kv_use, decides=False)


# ---------------------------------------------------------------------------------------------------------------------
# The traffic: that of the time itself, or as much more of the same as it takes.


class _Traffic(NamedTuple):
    workload: Workload
    made_of: str
    window: tuple[float, float]
    """What of the replay is the time that was watched, or is like it, in seconds of its clock."""
    is_of_the_time: bool
    """How long requests took is told of the time itself: they did not come long before it."""


def _traffic(scrapes: Scrapes, seed: int) -> _Traffic:
    ended = 0 if scrapes.is_since_start else int(scrapes.rise("vllm:request_success_total").sum())
    seconds, answer_s = float(scrapes.times[-1]), scrapes.mean("vllm:e2e_request_latency_seconds") or 0.0
    if ended >= _FEWEST_ENDED:
        workload = workload_of(scrapes, seed)
        made_of = f"the {ended:,} requests that ended meanwhile, and those under way"
        return _Traffic(workload, made_of, _last(workload, seconds), is_of_the_time=seconds >= _WATCHED * answer_s)
    longer = max(_LEAST_S, _LONG_BESIDE * answer_s)
    workload = workload_of(scrapes.as_long_as(min(longer, _MOST_S)), seed)
    if len(workload) > _MOST_REQUESTS:
        workload = workload.with_requests(workload.requests[:_MOST_REQUESTS])
    made_of = f"lengths since the server's start, at the pace of these {seconds:,.0f} s"
    return _Traffic(workload, made_of, _last(workload, longer), is_of_the_time=False)


def _last(workload: Workload, seconds: float) -> tuple[float, float]:
    end = max((each.arrival_time for each in workload.requests), default=0.0)
    return end - seconds, end
