"""Remedies, replayed: the traffic is rebuilt from the histograms, and nothing is advised unless its replay is like it."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import msgspec
import numpy as np

from tokenyard.deploy.deployment import Deployment
from tokenyard.deploy.spec import ReplaySpec
from tokenyard.errors import WorkloadError
from tokenyard.explain.advice.rules import Relief
from tokenyard.explain.answer.answer import Answer
from tokenyard.explain.answer.remedies import SETTING, Remedy
from tokenyard.explain.report.report import Report
from tokenyard.questions.metrics import hit_rate, workload_of
from tokenyard.questions.relief import with_relief
from tokenyard.questions.replaying import Engines, Watching
from tokenyard.questions.run import STEPS_TRIED
from tokenyard.questions.scenario import Bars, Scenario, replay_spec
from tokenyard.questions.trials import with_trials
from tokenyard.steptime.scaled import StepTimeFactors
from tokenyard.workload.record import Workload
from tokenyard.workload.scrapes import Scrapes

WITHIN = 0.25
"""Share by which a figure of the replay may differ from the measured one."""
_FEWEST_ENDED = 30
"""Requests that have to have ended in the time itself; with fewer lengths are those since the server's start."""
_MOST_REQUESTS, _LEAST_S = 1_500, 60.0
"""Requests that are made up, and for how many seconds at least, where the time itself has too few."""
_ROUNDS = 3


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
    step_time_factors: str | None
    """By what step times were scaled so that the replay meets the measured time per token; None: they were not."""
    answer: Answer
    """The replay's own: its reasons are recorded."""
    report: Report

    @property
    def holds(self) -> bool:
        """Whether the replay is like what was measured."""
        return all(abs(each.off) <= WITHIN for each in self.figures if each.decides)

    def remedies(self, told: Answer) -> list[Remedy]:
        """What helped when it was replayed; the untried ones of the verdict where nothing did, or the replay is off."""
        if not self.holds:
            return told.remedies
        relief = _of_relief(self.report.relief)
        tried = [*relief, *(each for each in self.answer.remedies if each.is_tried)]
        return tried or [each for each in told.remedies if each.code != SETTING]


def _of_relief(relief: Relief | None) -> list[Remedy]:
    if relief is None or not relief.is_enough or not relief.flags:
        return []
    gpus = "" if relief.gpus is None else f"{relief.gpus:,} GPUs for {relief.gpus_now or 0:,}"
    title = f"{relief.flags}: all that arrives is served"
    return [Remedy(code=SETTING, title=title, flag=relief.flags, price=gpus, is_tried=True)]


def treated(scrapes: Scrapes, deployment: Deployment, told: Answer, bars: Bars, seed: int) -> Treatment:
    """Rebuild the traffic, replay it, compare, and try remedies if it is alike. Raises TokenyardError."""
    workload, made_of = _traffic(scrapes, seed)
    scenario = Scenario.of(deployment.settings, workload)
    scenario = replace(scenario, arrivals=replace(scenario.arrivals, skip_refused=True))
    factors: StepTimeFactors | None = None
    spec, engines, figures = _replayed(scenario, scrapes, bars)
    for _ in range(_ROUNDS):
        off = next((each for each in figures if each.figure == "TPOT mean"), None)
        if off is None or abs(off.off) <= WITHIN / 4 or not off.replayed:
            break
        now = 1.0 if factors is None else factors.decode
        factor = min(max(now * off.measured / off.replayed, 0.05), 20.0)
        factors = StepTimeFactors(factor, factor)
        hardware = replace(scenario.hardware, step_time_factors=f"{factor:.4g}")
        scenario = replace(scenario, hardware=hardware)
        spec, engines, figures = _replayed(scenario, scrapes, bars)
    report = engines.report()
    found = Treatment(
        requests=len(workload),
        made_of=made_of,
        figures=figures,
        step_time_factors=None if factors is None else f"{factors.decode:.3g}",
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


def _replayed(scenario: Scenario, scrapes: Scrapes, bars: Bars) -> tuple[ReplaySpec, Engines, list[Beside]]:
    spec = replay_spec(scenario)
    engines = Engines(spec, watching=Watching(rows=False))
    with bars(len(spec.workload), "the traffic of the metrics") as on_progress:
        engines.replay(skip_refused=True, on_progress=on_progress)
    return spec, engines, _beside(scrapes, engines.report())


def _beside(scrapes: Scrapes, report: Report) -> list[Beside]:
    """Figures of both; the time per token and the hits decide, and the whole where it is no queue's chance."""
    measured = {
        "TTFT mean": ("vllm:time_to_first_token_seconds", report.ttft_ms.mean),
        "TPOT mean": ("vllm:request_time_per_output_token_seconds", report.tpot_ms.mean),
        "E2E mean": ("vllm:e2e_request_latency_seconds", report.e2e_ms.mean),
    }
    found = []
    for name, (metric, replayed) in measured.items():
        value = scrapes.mean(metric)
        if value is not None and replayed is not None:
            found.append(
                Beside(figure=name, measured=1e3 * value, replayed=replayed, decides=name != "TTFT mean")
            )
    kv = scrapes.gauge("vllm:kv_cache_usage_perc", mean=True)
    if report.peak_kv_use is not None and kv.max():
        found.append(Beside(figure="KV at most", measured=float(kv.max()), replayed=report.peak_kv_use, decides=False))
    return found


# ---------------------------------------------------------------------------------------------------------------------
# The traffic: that of the time itself, or as much more of the same as it takes.


def _traffic(scrapes: Scrapes, seed: int) -> tuple[Workload, str]:
    ended = 0 if scrapes.is_since_start else int(scrapes.rise("vllm:request_success_total").sum())
    if ended >= _FEWEST_ENDED:
        return workload_of(scrapes, seed), f"the {ended:,} requests that ended meanwhile, and those under way"
    raise WorkloadError(scrapes.source, 0, f"{ended:,} requests ended between the scrapes: {_FEWEST_ENDED} are the least")
