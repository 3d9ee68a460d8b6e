"""How far a plan may be off, and what it cannot know, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tokenyard.deploy.given import changed
from tokenyard.deploy.header import load_of
from tokenyard.errors import TokenyardError
from tokenyard.explain.slo import SLO
from tokenyard.questions.recorded.ask import replay_as_it_was
from tokenyard.questions.sweeping.rows import Row
from tokenyard.questions.variant_sources import KnownSource, RecordedVariants, WorkloadVariants
from tokenyard.steptime.calibrated import CalibratedLatency

_ESTIMATES = ("KV blocks",)
"""Assumptions of a deployment that are estimates."""


def uncertainty_of(source: KnownSource, row: Row, slos: Sequence[SLO]) -> Iterator[str]:
    """Sentences on how far the recommended variant's figures may be off."""
    if isinstance(source, RecordedVariants):
        yield from _of_a_trace(source)
        return
    setup = source.setup(row.settings)
    deployment = setup.deployment
    yield f"step times ({deployment.step_time}): {deployment.step_time_error}"
    if isinstance(setup.latency, CalibratedLatency):
        known = setup.latency.known_error(load_of(setup.workload))
        for slo in slos:
            spread = {"ttft": known.ttft, "tpot": known.tpot, "itl": known.tpot}.get(slo.figure)
            value = None if slo.key is None else row.figures.get(slo.key)
            if spread is not None and value is not None:
                yield _range(slo, value, *spread.around(value))
    yield from (str(each) for each in deployment.assumed if each.name in _ESTIMATES)


def _range(slo: SLO, value: float, low: float, high: float) -> str:
    if high <= slo.bound_ms:
        verdict = "the bound holds all over it"
    else:
        verdict = "the bound may be missed" if value <= slo.bound_ms else "the bound may hold all the same"
        verdict = "the bound is missed all over it" if low > slo.bound_ms else verdict
    return f"{slo.name} {value:,.0f} ms reads as {low:,.0f} to {high:,.0f} ms, in nine cases of ten: {verdict}"


def _of_a_trace(source: RecordedVariants) -> Iterator[str]:
    run = source.run
    if run.fit.median_error is not None and run.fit.total_error is not None:
        yield (
            f"step times are fitted to the trace: of steps that the fit has not seen half are within"
            f" {run.fit.median_error:.1%}, all together {run.fit.total_error:+.1%}"
        )
    try:
        check = replay_as_it_was(run).check
    except TokenyardError as error:
        yield f"the run as it was could not be replayed: {error}"
        return
    prediction = run.prediction()
    if prediction is not None:
        yield f"the trace is itself a prediction, with step times of {prediction.error or 'an error that is not known'}"
    off = ", ".join(
        f"{name} {share:+.1%}"
        for name in ("ttft_ms.p90", "tpot_ms.p90", "e2e_ms.p90")
        if (share := check.error_of(name)) is not None
    )
    doubt = "" if check.holds else ": a poor fit, and the plan rests on it"
    yield f"the run as it was, replayed, is off by {off}{doubt}"


def unknown_of(source: KnownSource, row: Row, *, has_load: bool) -> Iterator[str]:
    """What neither a workload nor a trace can know, and what the recommended variant takes for granted."""
    arrivals = source.run.arrivals if isinstance(source, WorkloadVariants) else None
    if arrivals is not None and arrivals.client_timeout is not None:
        yield "answers keep their lengths; clients that would send more do not; a bound is on attempts, not on requests"
    else:
        yield "answers keep their lengths, and clients that would send more, or give up, do neither"
    if arrivals is not None and arrivals.front_end_delay is not None:
        yield "the way back of an answer (detokenisation, network) is not in it"
    elif isinstance(source, WorkloadVariants):
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
