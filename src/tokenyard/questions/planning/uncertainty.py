"""How far a plan may be off, and what it cannot know, in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from tokenyard.deploy.given import changed
from tokenyard.deploy.header import load_of
from tokenyard.errors import TokenyardError
from tokenyard.explain.slo import SLO
from tokenyard.explain.steady import LoadState
from tokenyard.questions.planning.answer import BoundRange, Sureness, least_sure, sureness_of
from tokenyard.questions.recorded.ask import replay_as_it_was
from tokenyard.questions.recorded.recorded_requests import REPLAY
from tokenyard.questions.sweeping.rows import Row
from tokenyard.questions.variant_sources import KnownSource, RecordedVariants, WorkloadVariants
from tokenyard.steptime.known_error import SentLoad
from tokenyard.steptime.model import LatencyModel
from tokenyard.steptime.scaled import known_error_of
from tokenyard.trace.start import deployment_of

_ESTIMATES = ("KV blocks",)
"""Assumptions of a deployment that are estimates."""
_EXACT = "constant:"
"""Beginning of a ``--latency`` that says itself how long steps take."""


class Doubt(msgspec.Struct, frozen=True):
    """How far the recommended variant's figures may be off."""

    sentences: list[str]
    bounds: list[BoundRange]
    """Every bound on a statistic that was measured."""
    is_overloaded: bool = False

    @property
    def sureness(self) -> Sureness | None:
        """Whether all bounds hold: as sure as the least sure of them; None without bounds."""
        least = least_sure(each.sureness for each in self.bounds)
        return Sureness.MISSED if self.is_overloaded and least is not None else least


SpreadOf = Callable[[str], "tuple[float, float] | None"]
"""Name of a figure -> the factors between which it lies of what is shown; None: that is not known."""


def doubt_of(source: KnownSource, row: Row, slos: Sequence[SLO]) -> Doubt:
    """How far the recommended variant's figures may be off, and what that means for each bound."""
    if isinstance(source, RecordedVariants):
        sentences, spread_of = _of_a_trace(source)
        bounds = list(_ranges(row, slos, spread_of))
        said = [*sentences, *(each.sentence for each in bounds if each.sentence is not None)]
        return Doubt(said, bounds, row.state is LoadState.OVERLOADED)
    setup = source.setup(row.settings)
    deployment, latency = setup.deployment, setup.latency
    bounds = list(_ranges(row, slos, _spread_of(latency, load_of(setup.workload), deployment.step_time)))
    return Doubt(
        [
            f"step times ({deployment.step_time}): {deployment.step_time_error}",
            *(each.sentence for each in bounds if each.sentence is not None),
            *(str(each) for each in deployment.assumed if each.name in _ESTIMATES),
        ],
        bounds,
        row.state is LoadState.OVERLOADED,
    )


def _spread_of(latency: LatencyModel, load: SentLoad, name: str | None) -> SpreadOf:
    known = known_error_of(latency, load)
    if known is not None:
        return known.spread_of
    is_exact = name is not None and name.startswith(_EXACT)
    return lambda _: (1.0, 1.0) if is_exact else None


def _ranges(row: Row, slos: Sequence[SLO], spread_of: SpreadOf) -> Iterator[BoundRange]:
    for slo in slos:
        value = None if slo.key is None else row.figures.get(slo.key)
        if slo.key is None or value is None:
            continue
        spread = spread_of(slo.key)
        if spread is not None and row.drafts is not None:
            least, most = row.drafts.spread_of(slo.name)
            spread = spread[0] * least, spread[1] * most
        # What step times may be off by says nothing of those who were not served, nor of a queue that grows.
        if slo.key in row.censored or row.state is LoadState.OVERLOADED:
            spread = None
        low, high = (None, None) if spread is None else (value * spread[0], value * spread[1])
        sureness = sureness_of(value, low, high, slo.bound_ms)
        yield BoundRange(bound=str(slo), value_ms=value, low_ms=low, high_ms=high, sureness=sureness)


def _of_a_trace(source: RecordedVariants) -> tuple[list[str], SpreadOf]:
    """What a plan of a trace rests on, and how far off its figures may be: as the run, replayed, is; of a trace that
    is itself a replay, as its step times may be.
    """
    run, sentences = source.run, []
    if run.fit.median_error is not None and run.fit.total_error is not None:
        sentences.append(
            f"step times are fitted to the trace: of steps that the fit has not seen half are within"
            f" {run.fit.median_error:.1%}, all together {run.fit.total_error:+.1%}"
        )
    try:
        check = replay_as_it_was(run).check
    except TokenyardError as error:
        return [*sentences, f"the run as it was could not be replayed: {error}"], lambda _: None
    prediction = run.prediction()
    if prediction is not None:
        known = prediction.error or "an error that is not known"
        sentences.append(f"the trace is itself a prediction, with step times of {known}")
    off = ", ".join(
        f"{name} {share:+.1%}"
        for name in ("ttft_ms.p90", "tpot_ms.p90", "e2e_ms.p90")
        if (share := check.error_of(name)) is not None
    )
    doubt = "" if check.holds else ": a poor fit, and the plan rests on it"
    sentences.append(f"the run as it was, replayed, is off by {off}{doubt}")
    planned = source.deployment.planned
    if run.start.host == REPLAY:
        name = deployment_of(run.start.config).step_time
        return sentences, _spread_of(run.latency if planned is None else planned.latency, SentLoad(), name)

    def spread_of(figure: str) -> tuple[float, float] | None:
        error = check.error_of(figure)
        return None if error is None else (1 - abs(error), 1 + abs(error))

    return sentences, spread_of


def unknown_of(source: KnownSource, row: Row, *, has_load: bool) -> Iterator[str]:
    """What neither a workload nor a trace can know, and what the recommended variant takes for granted."""
    arrivals = source.run.arrivals if isinstance(source, WorkloadVariants) else None
    if arrivals is not None and arrivals.client_timeout is not None:
        yield "answers keep their lengths; clients that would send more do not"
    else:
        yield "answers keep their lengths, and clients that would send more, or give up, do neither"
    is_fitted = isinstance(source, WorkloadVariants) and source.run.hardware.latency.partition(":")[0] == "calibrated"
    if is_fitted and arrivals is not None and arrivals.front_end_delay is None:
        yield "front end, network and tokenisation take what they took where step times were fitted (--front-end-delay)"
    elif isinstance(source, WorkloadVariants) and arrivals is not None and arrivals.front_end_delay is None:
        yield "the time of front end, network and tokenisation is not in it (--front-end-delay)"
    else:
        yield "the way back of an answer (detokenisation, network) is not in it"
    if isinstance(source, WorkloadVariants) and row.settings.get("split") is not None:
        speed = changed(source.run, row.settings).split_settings.kv_link_gb_per_s
        yield f"KV goes at {speed:g} GB/s from GPU to GPU (--kv-link-gb-per-s), and the proxy takes no time"
    if has_load:
        yield "a larger load is the same requests, closer together: no other prompts, no other users"
    if isinstance(source, RecordedVariants):
        yield "another GPU, another parallelism and their prices: a trace is planned on the GPU that it ran on"
    elif source.run.launch.asked.given == () and "gpu" not in source.run.launch.asked.named:
        yield f"no GPU or model was named: {source.run.hardware.gpu} and {source.run.hardware.model} are assumed"
