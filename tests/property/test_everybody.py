"""Figures of drawn runs beside a second, plain account of everybody who arrived: what each client saw."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.integration.command import call
from tests.support.examples import examples
from tests.support.figures import differences, figures_of_package, figures_of_viewer
from tests.support.headless import HeadlessViewer

import tokenyard as ty
from tokenyard.core.request import Request
from tokenyard.core.sched.outputs import EngineOutputs
from tokenyard.core.sched.scheduler_output import SchedulerOutput
from tokenyard.explain.steady import FEWEST_ARRIVALS
from tokenyard.questions.sweeping.rows import figures_of
from tokenyard.sim.traffic import EndedBy
from tokenyard.workload.record import Workload

_DEPLOYMENT = ty.Deployment(model="Qwen/Qwen3-0.6B", gpu="l4", max_model_len=400, max_num_batched_tokens=256)
_PERCENTS = {"p50": 50, "p90": 90, "p95": 95, "p99": 99, "max": 100}


class Newest(ty.KeyedPolicy):
    """The last to come goes first, and the others starve."""

    reads_tokens = False

    def key(self, request: Request) -> tuple[float, ...]:
        return (-request.arrival_time,)


class Clients(ty.StepObserver):
    """What clients see: when they came, when a step began with them, when tokens came, when they were gone."""

    reads_tokens = False

    def __init__(self) -> None:
        self.came: dict[str, tuple[float, int]] = {}
        self.seen: dict[str, float] = {}
        self.tokens: dict[str, list[float]] = {}
        self.counts: dict[str, int] = {}
        self.gone: dict[str, tuple[float, str]] = {}
        self.last = 0.0

    def request_arrived(self, ts: float, request: Request) -> None:
        self.came[request.request_id] = request.arrival_time, request.max_tokens

    def request_refused(self, ts: float, request: Request) -> None:
        self.came[request.request_id] = request.arrival_time, request.max_tokens
        self.gone[request.request_id] = request.arrival_time, "refused"
        self.last = max(self.last, ts)

    def step_decided(self, ts: float, output: SchedulerOutput, outcomes: Any, state: Any) -> None:
        self.last = max(self.last, ts)
        for request_id in output.req_ids:
            self.seen.setdefault(request_id, ts)

    def step_completed(self, ts: float, output: SchedulerOutput, outputs: EngineOutputs) -> None:
        self.last = max(self.last, ts)
        for each in outputs:
            if each.new_token_ids:
                self.tokens.setdefault(each.request_id, []).append(ts)
                self.counts[each.request_id] = self.counts.get(each.request_id, 0) + len(each.new_token_ids)

    def request_finished(self, ts: float, request: Request) -> None:
        self.last = max(self.last, ts)
        self.gone[request.request_id] = ts, "abort" if request.status.name.endswith("ABORTED") else "served"


def users(told: Clients) -> dict[str, str]:
    """The first attempt of each user -> the last one: ``a`` was aborted, then ``a~2`` came ..."""
    last: dict[str, str] = {}
    for name in told.came:
        last[name.partition("~")[0]] = name
    return last


def latencies(told: Clients) -> dict[str, list[tuple[float, float]]]:
    """Return what each latency is at least and at most, of everybody who has one, in milliseconds."""
    found: dict[str, list[tuple[float, float]]] = {"queue": [], "ttft": [], "tpot": [], "e2e": [], "itl": []}
    for first, name in users(told).items():
        came, most = told.came[first]
        end, fate = told.gone.get(name, (told.last, "unfinished"))
        tokens = told.tokens.get(name, [])
        so_far = (inf, inf) if fate == "refused" else (end - came, inf)
        for latency, moment in (("queue", told.seen.get(name)), ("ttft", tokens[0] if tokens else None)):
            found[latency].append(so_far if moment is None else (moment - came, moment - came))
        found["e2e"].append((end - came, end - came) if fate == "served" else so_far)
        if fate == "served" and told.counts[name] > 1:
            found["tpot"].append(((end - tokens[0]) / (told.counts[name] - 1),) * 2)
        elif fate != "served" and most > 1:
            least = (end - tokens[0]) / (most - 1) if tokens else 0.0
            found["tpot"].append((inf if fate == "refused" else least, inf))
    for name in told.came:
        end, fate = told.gone.get(name, (told.last, "unfinished"))
        tokens = told.tokens.get(name, [])
        found["itl"] += [(after - before,) * 2 for before, after in pairwise(tokens)]
        if fate != "served" and tokens and end > tokens[-1]:
            found["itl"].append((end - tokens[-1], inf))
    return {name: [(1e3 * low, 1e3 * high) for low, high in values] for name, values in found.items()}


def statistic(values: Sequence[tuple[float, float]], name: str) -> tuple[float | None, bool]:
    """What a statistic is at least, by what is known of everybody, and whether it is known exactly."""
    lows, highs = (np.array(each) for each in zip(*values, strict=True))
    finite = lows[lows < inf]
    if name == "mean":
        return (float(finite.mean()) if len(finite) else None), not np.isinf(highs).any()
    low, high = (_ranked(np.sort(each), _PERCENTS[name]) for each in (lows, highs))
    if low == inf:
        return (float(finite.max()) if len(finite) else None), False
    return low, low == high


def _ranked(ascending: Any, percent: float) -> float:
    position = (len(ascending) - 1) * percent / 100
    below, above = ascending[int(np.floor(position))], ascending[int(np.ceil(position))]
    return float(inf if above == inf else below + (above - below) * (position - np.floor(position)))


def same(report: ty.Report, told: Clients) -> None:
    """The report's figures are those of what clients saw."""
    last = users(told)
    fates = [told.gone.get(name, (nan, "unfinished"))[1] for name in last.values()]
    people = report.outcomes
    assert people is not None
    assert (people.arrived, people.served, people.refused, people.cancelled, people.unfinished) == (
        *(len(fates), fates.count("served"), fates.count("refused"), fates.count("abort")),
        fates.count("unfinished"),
    )
    again = len(told.came) - len(last)
    assert (report.attempts is None) == (again == 0)
    assert report.attempts is None or (report.attempts.sent, report.attempts.again) == (len(told.came), again)
    assert (report.requests, report.requests_finished) == (len(fates), len(fates) - fates.count("unfinished"))
    assert sum(report.finish_reasons.values()) == report.requests_finished
    tokens = sum(told.counts.get(name, 0) for name in last.values())
    assert (report.output_tokens or 0) == tokens
    if report.duration_s:
        assert report.throughput.requests_per_s == pytest.approx(fates.count("served") / report.duration_s)
        assert report.throughput.output_tokens_per_s == pytest.approx(tokens / report.duration_s)
    for latency, values in latencies(told).items():
        figures = getattr(report, f"{latency}_ms")
        for name in ("mean", *_PERCENTS):
            value, is_exact = statistic(values, name) if values else (None, True)
            assert getattr(figures, name) == (None if value is None else pytest.approx(value, rel=1e-9, abs=1e-6)), name
            assert (name not in figures.censored) == is_exact, (latency, name)


RUNS = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 999),
        "requests": st.integers(1, 40),
        "rate": st.sampled_from([2.0, 20.0, 200.0]),
        "blocks": st.sampled_from([30, 60, 400]),
        "seats": st.sampled_from([2, 8, 64]),
        "until": st.sampled_from([None, 0.5, 2.0]),
        "patience": st.sampled_from([None, 0.2, 2.0]),
        "policy": st.sampled_from(["fcfs", "vllm-v0", Newest]),
        "asynchronous": st.booleans(),
        "drafts": st.booleans(),
        "timeout": st.sampled_from([None, "300ms", "1.5s"]),
        "retries": st.integers(0, 2),
    }
)


def asked(drawn: dict[str, Any]) -> tuple[Workload, ty.Deployment, dict[str, Any]]:
    """What is drawn: the workload, the deployment, and what clients do."""
    rng = np.random.default_rng(drawn["seed"])
    made = ty.WorkloadBuilder("drawn", seed=drawn["seed"])
    moment = 0.0
    for _ in range(drawn["requests"]):
        moment += float(rng.exponential(1 / drawn["rate"]))
        patience = drawn["patience"] if rng.random() < 0.4 else None
        length, answer = (int(rng.integers(1, most)) for most in (450, 60))
        made.request(at=moment, prompt=length, output=answer, patience=patience)
    changed = {"num_gpu_blocks_override": drawn["blocks"], "max_num_seqs": drawn["seats"]}
    changed |= {"async_scheduling": drawn["asynchronous"] and not drawn["drafts"]}
    if drawn["drafts"]:
        changed |= {"speculative_config": {"method": "ngram", "num_speculative_tokens": 3}}
    clients = {"client_timeout": drawn["timeout"], "retries": drawn["retries"], "retry_wait": "100ms"}
    return made.build(), _DEPLOYMENT.with_(**changed), clients if drawn["timeout"] is not None else {}


def replayed(drawn: dict[str, Any], trace: Path) -> tuple[ty.RunResult, Clients]:
    workload, deployment, clients = asked(drawn)
    told = Clients()
    run = ty.run(
        workload,
        deployment,
        policy=drawn["policy"],
        observer=told,
        until=drawn["until"],
        trace=trace,
        skip_refused=True,
        **clients,
    )
    if run.result.ended_by is not EndedBy.WORKLOAD:
        told.last = run.result.seconds
    return run, told


@pytest.mark.slow
@given(drawn=RUNS)
@settings(deadline=None, max_examples=examples(40))
def test_every_figure_is_of_everybody(drawn: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run, told = replayed(drawn, Path(folder) / "trace")
        same(run.report, told)
        same(run.rows.report, told)
        if run.report.steps:
            same(ty.report(Path(folder) / "trace"), told)
        gaps = [1e3 * float(gap) for tokens in told.tokens.values() for gap in np.diff(tokens)]
        assert sorted(run.token_gaps().tolist()) == pytest.approx(sorted(gaps))


FOR_ALL = {"policy": "fcfs", "until": None, "drafts": False}
"""What every question can be asked of; a plan takes fewer requests than have a rate as they are."""
FEWEST_STEPS = 50
"""Steps from which on step times are fitted to a trace."""
ASKED = ("outcomes", "unseen_s", "attempts", "goodput", "load", "throughput", "output_tokens", "finish_reasons")


@pytest.mark.slow
@given(drawn=RUNS.map(lambda drawn: drawn | FOR_ALL))
@settings(deadline=None, max_examples=examples(12))
def test_every_answer_has_the_same_figures(headless_viewer: HeadlessViewer, drawn: dict[str, Any]) -> None:
    """A run, the report of its trace, its JSON, the page, a study, a plan and the replay of a what-if."""
    slo, bounds = "ttft_p90=300ms ttft:300", {"ttft": 300.0, "tpot": None, "e2e": None}
    workload, deployment, clients = asked(drawn | {"requests": drawn["requests"] % FEWEST_ARRIVALS or 1})
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace"
        run = ty.run(workload, deployment, trace=trace, slo=slo, skip_refused=True, **clients)
        if not run.report.steps:
            return
        told = ty.report(trace, slo=slo)
        of_json = json.loads(call("report", str(trace), "--slo", *slo.split(), "--json", cwd=Path(folder)).stdout)
        page, package = figures_of_viewer(headless_viewer, trace, None, bounds), figures_of_package(trace, None, bounds)
        study = ty.study(workload, deployment, slo=slo, skip_refused=True, **clients).rows[0]
        space = {"max_num_seqs": [drawn["seats"]]}
        plan = ty.plan(workload, deployment, space=space, slo=slo, skip_refused=True, largest_load=False, **clients)
        is_fitted = run.report.steps > FEWEST_STEPS
        all_served = run.report.outcomes is not None and run.report.outcomes.all_served
        whatif = ty.whatif(trace) if is_fitted and all_served else None
    for name in (*ASKED, *(f"{each}_ms" for each in ("queue", "ttft", "tpot", "itl", "e2e"))):
        assert getattr(told, name) == getattr(run.report, name), name
        assert of_json[name] == json.loads(json.dumps(run.report.to_dict()))[name], name
    assert list(differences(package["statistics"], page["statistics"])) == []
    figures = figures_of(run.report)
    assert set(study.censored) == set(run.report.censored)
    row = plan.recommended
    assert row is not None
    for other in (study, *([row] if row.times == 1 else [])):
        assert {name: other.figures[name] for name in figures} == figures
        assert set(other.censored) >= {name for name in run.report.censored if name in figures}
    if whatif is not None and whatif.self_check.parting is None:
        for each in whatif.self_check.checks:
            if each.recorded is not None and "_ms." in each.name:
                assert each.recorded == figures[each.name], each.name
                assert each.replayed == pytest.approx(figures[each.name], rel=1e-3, abs=1e-3), each.name
