"""A trace read into what its run was made of: configuration, requests, step times."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from tokenyard.core.config import CacheConfig, SchedulerConfig, SpeculativeConfig
from tokenyard.core.profiles import decision_profile, nearest_version
from tokenyard.deploy.header import load_of
from tokenyard.deploy.vllm_serve.speculation import read_speculation
from tokenyard.errors import ConfigError, NotModelledError, TraceError, shown
from tokenyard.explain.report.report import Report
from tokenyard.explain.report.summary import summarize
from tokenyard.questions.recorded.answer import FitQuality, StalledStep, TracePrediction
from tokenyard.questions.recorded.bare_trace import BareTrace, is_bare
from tokenyard.questions.recorded.recorded_drafts import DraftRecords
from tokenyard.questions.recorded.recorded_requests import REPLAY, RecordedRequests
from tokenyard.quick_dataclass import dataclass
from tokenyard.sim.executor import SimulatedSpeculation
from tokenyard.steptime.calibrated import CalibratedLatency
from tokenyard.steptime.carried import extrapolate
from tokenyard.steptime.fitted import (
    FEATURES,
    STALL,
    FittedLatency,
    MeasuredStep,
    StepTimes,
    fit_steps,
    fit_terms,
    measured_pace,
    predicted_by_features,
    predicted_by_terms,
    stalled,
)
from tokenyard.steptime.front_end import FrontEndTime
from tokenyard.steptime.known_error import KnownError, SentLoad
from tokenyard.steptime.model import LatencyModel, TermedLatency, host_seconds
from tokenyard.steptime.pace import MachineSpeed, Stall
from tokenyard.trace.reader import TraceReader, find_trace
from tokenyard.trace.schema import TraceStart
from tokenyard.trace.start import deployment_of
from tokenyard.vocabulary import known_policies
from tokenyard.workload.record import Clients, Workload

# ---------------------------------------------------------------------------------------------------------------------
# A kernel is compiled at its first use, a hypervisor gives the cores to somebody else: one step of a thousand takes a
# second. Who waits for it waits a second longer, whatever the settings; so it belongs to every replay, at its moment,
# and to no step time.

_PREFILLS = FEATURES.index("prefills")
_TOKENS = (FEATURES.index("prefill_tokens"), FEATURES.index("decodes"))


class PartedSteps(msgspec.Struct, frozen=True):
    """The steps of a trace, apart."""

    ran: list[MeasuredStep]
    """The steps that took the time of their work."""
    stalls: tuple[StalledStep, ...]
    """The others, in order."""


def parted(steps: Sequence[MeasuredStep], untold: Sequence[MeasuredStep], began: float, source: str) -> PartedSteps:
    """Steps that stalled apart from the others; ``began``: the moment of the first arrival, on their clock.

    ``untold``: steps of which it is not known what they computed; who took many times as long as the largest of the
    others has stalled. Raises TraceError if there are too few steps.
    """
    fitted = fit_steps(steps, source)
    expected = predicted_by_features(fitted, steps)
    seconds = np.array([step.seconds for step in steps])
    is_prompt = np.array([step.features[_PREFILLS] > 0 for step in steps])
    held = stalled(seconds, expected, is_prompt) & ~np.array([step.may_encode for step in steps])
    ran = [step for step, is_held in zip(steps, held.tolist(), strict=True) if not is_held]
    if len(ran) < len(FEATURES):
        return PartedSteps(list(steps), ())
    expected = predicted_by_features(fit_steps(ran, source), steps)
    found = [
        _told(steps[place], float(expected[place]), began, is_cold=_is_first(steps, place))
        for place in np.flatnonzero(held).tolist()
    ]
    longest, usual = float(expected.max()), float(np.median([step.seconds for step in ran]))
    others = [step for step in untold if step.seconds > STALL * max(longest, usual)]
    found += [_told(step, usual, began, is_cold=False) for step in others]
    return PartedSteps(ran, tuple(sorted(found, key=lambda each: each.at_s)))


def _is_first(steps: Sequence[MeasuredStep], place: int) -> bool:
    """Whether no step before was of its kind, or as large."""
    this, before = steps[place], steps[:place]
    of_its_kind = [each for each in before if (each.features[_PREFILLS] > 0) == (this.features[_PREFILLS] > 0)]
    return _tokens(this) > max(map(_tokens, of_its_kind), default=0.0)


def _tokens(step: MeasuredStep) -> float:
    return sum(step.features[each] for each in _TOKENS)


def _told(step: MeasuredStep, expected: float, began: float, *, is_cold: bool) -> StalledStep:
    return StalledStep(
        step=step.number, at_s=step.ts - began, seconds=step.seconds, expected_s=expected, is_cold=is_cold
    )


def with_stalls(pace: MachineSpeed | None, stalls: Sequence[StalledStep], rate: float) -> MachineSpeed | None:
    """A machine's speed and its stalls, where requests come ``rate`` times as fast as they did; None: it ran evenly."""
    if not stalls:
        return pace
    moments = tuple(Stall(each.at_s / rate, each.seconds - each.expected_s) for each in stalls)
    return MachineSpeed.even(moments) if pace is None else replace(pace, stalls=moments)


# ---------------------------------------------------------------------------------------------------------------------
# The configuration that a trace names, as the scheduler takes it; vLLM's as well, written by our classes inside it.

_VLLM = "vllm"
_Config = TypeVar("_Config", SchedulerConfig, CacheConfig)
_NOT_OURS = {"profile", "groups", "prefix_caching_hash_algo", "hash_seed", "enable_kv_cache_events"}
"""Fields that vLLM's configuration has under the same names with other values, or that decide nothing in a replay."""
_OF_THE_CACHE = ("prefix_cache_retention_interval",)
"""Switches of a profile that vLLM's KV cache is configured with."""
_ONE_POOL = ("FullAttentionSpec", "MLAAttentionSpec", "TQFullAttentionSpec")


class RecordedConfig(msgspec.Struct, frozen=True):
    """What a replay is configured with."""

    scheduler: SchedulerConfig
    cache: CacheConfig
    speculative: SpeculativeConfig | None


def recorded_config(start: TraceStart | None, source: str) -> RecordedConfig:
    """The configuration of the run. Raises TraceError if the trace does not name it, or it cannot be replayed."""
    config = start.config if start is not None else None
    if start is None or not config or "scheduler" not in config or "cache" not in config:
        raise TraceError(f"{source}: does not say how its scheduler was configured: only tokenyard's own traces do")
    _refuse(config, source)
    limits, cache = _section(config, "scheduler", source), _section(config, "cache", source)
    if start.host == _VLLM:
        limits, cache = _from_vllm(start, config, limits, cache, source)
    return RecordedConfig(
        _converted(limits, SchedulerConfig, source),
        _converted(cache, CacheConfig, source),
        _speculative(config, source),
    )


def _section(config: Mapping[str, Any], name: str, source: str) -> dict[str, Any]:
    """A section of the configuration; empty if there is none."""
    section = config.get(name)
    if not isinstance(section, dict | None):
        raise TraceError(f"{source}: its configuration cannot be used: {name} = {shown(section)} is no section")
    return dict(section or {})


def _refuse(config: Mapping[str, Any], source: str) -> None:
    """TraceError for what a replay of one engine does not repeat."""
    connector = _section(config, "kv_transfer", source).get("kv_connector")
    if connector:
        raise TraceError(f"{source}: its engine kept KV elsewhere ({shown(connector)}), which is not replayed")
    size = _section(config, "parallel", source).get("data_parallel_size") or 1
    if size != 1:
        raise TraceError(f"{source}: is of one of {shown(size)} data-parallel engines, which are not replayed")


def _from_vllm(
    start: TraceStart, config: dict[str, Any], limits: dict[str, Any], cache: dict[str, Any], source: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings that vLLM has under the same names, with what it keeps elsewhere."""
    deployment = deployment_of(config)
    version = deployment.vllm_version or ""
    known = {name: value for name, value in limits.items() if name not in _NOT_OURS}
    known["profile"] = _profile_of(version) | {name: cache[name] for name in _OF_THE_CACHE if name in cache}
    policy = start.policy or ""
    if policy in known_policies():
        known["policy"] = policy
    known["pipeline_parallel_size"] = deployment.pipeline_parallel_size or 1
    ours = {name: value for name, value in cache.items() if name not in _NOT_OURS and value is not None}
    groups = cache.get("groups")
    if isinstance(groups, list):
        ours["groups"] = groups
    elif len(deployment.kv_groups) != 1 or not any(kind in deployment.kv_groups[0] for kind in _ONE_POOL):
        kinds = "; ".join(deployment.kv_groups) or "no group at all"
        raise TraceError(f"{source}: does not say enough of its KV-cache groups ({kinds}) to replay it")
    if not ours.get("enable_prefix_caching") or "groups" not in ours:
        ours.pop("mamba_cache_mode", None)
    parallel = _section(config, "parallel", source)
    for name in ("decode_context_parallel_size", "prefill_context_parallel_size"):
        ours[name] = parallel.get(name) or 1
    return known, ours


def _profile_of(version: str) -> dict[str, Any]:
    """Switches of the profile whose decisions that version of vLLM takes."""
    profile = decision_profile(nearest_version(version))
    return {field.name: getattr(profile, field.name) for field in fields(profile)}


def _converted(settings: Mapping[str, Any], config: type[_Config], source: str) -> _Config:
    known = {field.name for field in fields(config)}
    try:
        return msgspec.convert({name: value for name, value in settings.items() if name in known}, config, strict=False)
    except (msgspec.ValidationError, ConfigError) as error:
        raise TraceError(f"{source}: its configuration cannot be used: {error}") from None


def _speculative(config: Mapping[str, Any], source: str) -> SpeculativeConfig | None:
    section = _section(config, "speculation", source)
    text, method, count = section.get("speculative_config"), section.get("spec_method"), section.get("spec_tokens")
    if text is None and count is None:
        method = method or section.get("method") or section.get("speculative_method")
        count = section.get("num_speculative_tokens")
        if count is None:
            return None
    try:
        asked = read_speculation(text, method=method, num_tokens=count)
    except (ConfigError, NotModelledError) as error:
        raise TraceError(f"{source}: its speculative decoding cannot be replayed: {error}") from None
    return None if asked is None else asked.config


# ---------------------------------------------------------------------------------------------------------------------
# How long the steps of a recorded run took, as a replay of it needs them: the fit that predicts unseen steps best.
#
# Two fits are made where the model of the run's deployment is known:
#
#     features   a constant and a time per token, decode, token of context ... (:mod:`tokenyard.steptime.fitted`)
#     terms      what that model says, each of its terms scaled (:mod:`tokenyard.steptime.fitted`)
#
# A mixture of experts, states or CUDA graphs are in the second alone; a machine that is unlike its model is met
# better by the first. Stretches of steps in turn are fitted and predicted: the fit whose predictions are closer is
# taken.

Floats = npt.NDArray[np.float64]
_Fit = Callable[[Sequence[MeasuredStep]], "_Fitted | None"]

_HELD_OUT_STRETCH = 16
"""Steps in a row that are fitted, then as many that are predicted: neighbours are alike."""
_CLOSE = 0.25
"""A model is used if half of the measured steps are within this share of its scaled terms."""
_NO_BETTER = 1e-3
"""A share of a step's time: fits that differ by less do not differ in any figure that is shown."""


@dataclass(frozen=True, slots=True)
class _Fitted:
    latency: LatencyModel
    predict: Callable[[Sequence[MeasuredStep]], Floats]


@dataclass(frozen=True, kw_only=True)
class StepFit:
    """Step times of a run."""

    latency: LatencyModel
    pace: MachineSpeed | None
    """When the machine was faster or slower than ``latency``; None if it ran evenly."""
    quality: FitQuality


def fitted_to_features(steps: Sequence[MeasuredStep], source: str, began: float, *, is_virtual: bool) -> StepFit:
    """The fit where nothing is known of the deployment. Raises TraceError if there are too few steps.

    ``began``: the moment of the first arrival, on the clock of ``steps``; a virtual machine runs evenly.
    """
    return _finished(
        _by_features(steps, source, 0.0),
        lambda some: _by_features(some, source, 0.0),
        steps,
        began,
        is_virtual=is_virtual,
    )


def fitted_to_model(
    steps: Sequence[MeasuredStep], source: str, began: float, model: LatencyModel, name: str, *, is_virtual: bool
) -> StepFit:
    """The better of both fits; ``name`` says what ``model`` is of. Raises TraceError if there are too few steps."""
    host = host_seconds(model)

    def by_features(some: Sequence[MeasuredStep]) -> _Fitted:
        return _by_features(some, source, host)

    own = _finished(by_features(steps), by_features, steps, began, is_virtual=is_virtual)
    if isinstance(model, TermedLatency):
        scaled = _scaled(model, steps, began, name, is_virtual=is_virtual)
        if scaled is not None and _is_better(scaled, own):
            return scaled
    return _leaning(own, steps, model, name)


def _scaled(
    model: TermedLatency, steps: Sequence[MeasuredStep], began: float, name: str, *, is_virtual: bool
) -> StepFit | None:
    """The model's terms, scaled; None if it cannot say anything of the steps, or is far from them."""
    fitted = fit_terms(model, steps)
    if fitted is None:
        return None

    def by_terms(some: Sequence[MeasuredStep]) -> _Fitted | None:
        found = fit_terms(model, some)
        return None if found is None else _Fitted(found, partial(predicted_by_terms, found))

    whole = _Fitted(fitted, partial(predicted_by_terms, fitted))
    errors = np.abs(whole.predict(steps) / np.array([step.seconds for step in steps]) - 1)
    if float(np.median(errors)) > _CLOSE:
        return None
    fit = _finished(whole, by_terms, steps, began, is_virtual=is_virtual)
    scales = {each: round(scale, 4) for each, scale in fitted.scales.items()}
    return replace(fit, quality=msgspec.structs.replace(fit.quality, terms_of=name, scales=scales))


def _leaning(own: StepFit, steps: Sequence[MeasuredStep], model: LatencyModel, name: str) -> StepFit:
    """The fit to features; larger steps take ``model``'s durations, scaled, unless it is far from those there are."""
    assert isinstance(own.latency, FittedLatency)
    leaning = extrapolate(own.latency, steps, model)
    if leaning is None:
        return own
    quality = msgspec.structs.replace(own.quality, leans_on=name, leans_on_error=leaning.error)
    return replace(own, latency=leaning.latency, quality=quality)


def _by_features(steps: Sequence[MeasuredStep], source: str, host: float) -> _Fitted:
    """``host``: seconds of every step that are the host's, which those prepared ahead hid."""
    whole = [msgspec.structs.replace(step, seconds=step.seconds + host) if step.ahead else step for step in steps]
    found = fit_steps(whole, source)
    latency = replace(found, host_seconds=min(host, found.constant))
    return _Fitted(latency, partial(predicted_by_features, latency))


def _is_better(scaled: StepFit, own: StepFit) -> bool:
    """Whether the scaled terms of a model are to be preferred to what knows nothing of it."""
    theirs, ours = scaled.quality.mean_error, own.quality.mean_error
    return theirs is None or ours is None or theirs <= max(ours, _NO_BETTER)


def _finished(
    fitted: _Fitted, again: _Fit, steps: Sequence[MeasuredStep], began: float, *, is_virtual: bool
) -> StepFit:
    """With the pace of the machine, and with what predictions of unseen steps are off by."""
    pace = None if is_virtual else measured_pace(steps, fitted.predict(steps), began)
    return StepFit(latency=fitted.latency, pace=pace, quality=_quality(again, steps, pace))


def _quality(fit: _Fit, steps: Sequence[MeasuredStep], pace: MachineSpeed | None) -> FitQuality:
    """How well step times are predicted that the fit has not seen: stretches in turn are fitted and predicted."""
    fastest, slowest = (None, None) if pace is None else (float(pace.factors.min()), float(pace.factors.max()))
    stretch = (np.arange(len(steps)) // _HELD_OUT_STRETCH % 2).tolist()
    seen = [step for step, turn in zip(steps, stretch, strict=True) if turn == 0]
    unseen = [step for step, turn in zip(steps, stretch, strict=True) if turn == 1]
    half = fit(seen) if len(seen) >= len(FEATURES) and unseen else None
    if half is None:
        return FitQuality(steps=len(steps), held_out=0, fastest=fastest, slowest=slowest)
    predicted, measured = half.predict(unseen), np.array([step.seconds for step in unseen])
    errors = np.abs(predicted / measured - 1)
    return FitQuality(
        steps=len(steps),
        held_out=len(unseen),
        median_error=float(np.median(errors)),
        p90_error=float(np.percentile(errors, 90)),
        mean_error=float(np.abs(predicted - measured).sum() / measured.sum()),
        total_error=float(predicted.sum() / measured.sum() - 1),
        fastest=fastest,
        slowest=slowest,
    )


# ---------------------------------------------------------------------------------------------------------------------
# A trace read into what its run was made of: requests, configuration, step times, and how the run went.


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
    pace: MachineSpeed | None
    """When the machine was faster or slower than ``latency``; None if it ran evenly."""
    stalls: tuple[StalledStep, ...]
    """Steps that something else than their work held, in order; they are not in ``measured``."""
    fit: FitQuality
    report: Report
    """How the run went, by its trace."""
    measured: list[MeasuredStep] = field(repr=False)
    """What ``latency`` is fitted to."""
    began: float
    """Moment of the first arrival, on the trace's clock."""
    known: KnownError | None = None
    """How far the step times of a prediction are known; None of what a machine did, and where nothing is known."""

    @property
    def warmup(self) -> float:
        """Seconds from the first arrival on that do not count in figures."""
        return max((self.start.warmup or 0.0) - self.began, 0.0)

    @property
    def is_virtual(self) -> bool:
        """Whether it is a replay's: its machine has no slow moments."""
        return self.start.host == REPLAY

    @property
    def is_prediction(self) -> bool:
        """Whether its step times are a model's: those of a replay, or of an emulation."""
        return self.is_virtual or deployment_of(self.start.config).step_time is not None

    @property
    def load(self) -> SentLoad:
        """What was sent, as far as the trace tells."""
        load = load_of(self.workload)
        section = (self.start.config or {}).get("workload")
        users = section.get("max_concurrency") if isinstance(section, dict) else None
        return replace(load, users=min(users, len(self.workload))) if isinstance(users, int) else load

    def prediction(self) -> TracePrediction | None:
        """What is known of its own error, if it is itself a prediction."""
        if not self.is_prediction:
            return None
        deployment, known = deployment_of(self.start.config), self.known
        if known is None:
            return TracePrediction(step_time=deployment.step_time, error=deployment.step_time_error)
        return TracePrediction(
            step_time=deployment.step_time,
            error=known.sentence,
            ttft_low=known.ttft.low,
            ttft_high=known.ttft.high,
            tpot_low=known.tpot.low,
            tpot_high=known.tpot.high,
        )

    def speed(self, *, keeps_time: bool, rate: float = 1.0) -> MachineSpeed | None:
        """How fast the machine of a replay is: as the recorded one was at every moment, if the replay ``keeps_time``;
        with its stalls, wherever requests come ``rate`` times as fast. None: it runs evenly.
        """
        return with_stalls(self.pace if keeps_time else None, self.stalls, rate)

    def modelled_by(self, model: LatencyModel, name: str) -> RecordedRun:
        """The run with step times that heed what ``model`` says of its deployment, which ``name`` names."""
        fit = fitted_to_model(self.measured, self.source, self.began, model, name, is_virtual=self.is_virtual)
        known: KnownError | None = None
        if self.is_prediction and isinstance(model, CalibratedLatency):
            known = model.known_error(self.load)
        return replace(self, latency=fit.latency, pace=fit.pace, fit=fit.quality, known=known)


def read_run(path: Path | str) -> RecordedRun:
    """Read a trace. Raises TraceError if it cannot be read, or does not record what a replay needs."""
    files = find_trace(path)
    reader: TraceReader | BareTrace = BareTrace(files) if is_bare(files) else TraceReader(files)
    times: StepTimes | None = None
    requests: RecordedRequests | None = None
    drafts: DraftRecords | None = None
    config: RecordedConfig | None = None
    for step in reader.steps():
        if requests is None or config is None or times is None:
            config = recorded_config(reader.start, str(path))
            requests = _requests(str(files.name), reader.start, config)
            most = 0 if config.speculative is None else config.speculative.num_speculative_tokens
            times = StepTimes(most, config.scheduler.pipeline_parallel_size)
            drafts = DraftRecords(most) if most else None
        requests.add(step)
        times.add(step)
        if drafts is not None:
            drafts.add(step)
    start = reader.start
    if requests is None or config is None or times is None or start is None:
        raise TraceError(f"{path}: holds no step")
    times.end()
    _check_whole(start, str(path))
    workload = requests.workload()
    if isinstance(reader, BareTrace):
        workload = workload.with_notes(reader.assumed())
    if config.cache.enable_prefix_caching and not requests.num_with_blocks:
        raise TraceError(f"{path}: prefix caching was on, and no block is numbered: shared prefixes are not known")
    report = summarize(path)
    is_virtual, began = start.host == REPLAY, requests.began
    steps = PartedSteps(times.measured, ())
    if not is_virtual:
        steps = parted(times.measured, times.untold, began, str(path))
    fit = fitted_to_features(steps.ran, str(path), began, is_virtual=is_virtual)
    return RecordedRun(
        source=str(path),
        start=start,
        workload=workload,
        scheduler=config.scheduler,
        cache=config.cache,
        speculation=_speculation(config, drafts, str(path)),
        latency=fit.latency,
        pace=fit.pace,
        fit=fit.quality,
        report=report,
        stalls=steps.stalls,
        measured=steps.ran,
        began=began,
    )


def _requests(name: str, start: TraceStart | None, config: RecordedConfig) -> RecordedRequests:
    block_size = start.block_size if start is not None else None
    host = start.host if start is not None else None
    return RecordedRequests(
        name,
        block_size,
        config.scheduler.max_model_len,
        knows_turns=host == REPLAY,
        clients=_clients(start, name),
        front_end=_front_end(start, name),
    )


def _front_end(start: TraceStart | None, source: str) -> FrontEndTime | None:
    """What a replay sent its requests through; None: nothing, or it is no replay."""
    told = _section((start.config if start is not None else None) or {}, "workload", source).get("front_end")
    try:
        return None if told is None else FrontEndTime(float(told["request"]), float(told["prompt_token"]))
    except (TypeError, KeyError, ValueError):
        raise TraceError(f"{source}: its front end cannot be read: {shown(told)}") from None


def _clients(start: TraceStart | None, source: str) -> Clients | None:
    """What clients did that did not wait for ever; None: they waited, or the trace does not say."""
    told = _section((start.config if start is not None else None) or {}, "workload", source).get("clients")
    try:
        return None if told is None else msgspec.convert(told, Clients)
    except (msgspec.ValidationError, ConfigError) as error:
        raise TraceError(f"{source}: its clients cannot be repeated: {error}") from None


def _check_whole(start: TraceStart, source: str) -> None:
    if (start.every_n or 1) > 1:
        raise TraceError(f"{source}: holds only one step in {start.every_n}: record every step (SCHED_TRACE_EVERY_N)")


def _speculation(config: RecordedConfig, drafts: DraftRecords | None, source: str) -> SimulatedSpeculation | None:
    """Drafts where the run had them, as right as they were; by the shares of all where it is not known of each.

    With async scheduling every request that decodes has drafts, and a step is decided before it is known where it
    begins: which are right is drawn.
    """
    if config.speculative is None or drafts is None:
        return None
    totals = drafts.totals()
    if totals is None:
        raise TraceError(f"{source}: drafts were to be verified, and it does not say how many were right")
    if config.scheduler.async_scheduling:
        return SimulatedSpeculation(config=config.speculative, acceptance=totals.acceptance)
    return SimulatedSpeculation(
        config=config.speculative,
        acceptance=totals.acceptance,
        presence=totals.presence,
        recorded=drafts.recorded(),
    )
