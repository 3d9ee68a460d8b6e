"""Step times fitted to measurements: least squares, terms of a model, the steps of a trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from os import PathLike

import msgspec
import numpy as np
import numpy.typing as npt

from tokenyard.errors import ConfigError, TraceError
from tokenyard.quick_dataclass import dataclass
from tokenyard.steptime.model import (
    HOST,
    StepShape,
    StepWork,
    TermedLatency,
    Transfer,
    TransferDirection,
    host_seconds,
    require_seconds,
    transfer_seconds,
)
from tokenyard.steptime.pace import MachineSpeed
from tokenyard.trace.reader import TraceReader
from tokenyard.trace.steps import Step

# ---------------------------------------------------------------------------------------------------------------------
# Coefficients of step times: least squares of relative errors, none negative, with little weight for odd steps.

Floats = npt.NDArray[np.float64]

_ROUNDS = 12
"""Fits, each weighted by what the one before predicts."""
_NORMAL = 1.4826
"""Standard deviations in a median of absolute errors, of a normal distribution."""
_ORDINARY = 1.5 * _NORMAL
"""Errors of a normal distribution, in medians, that count in full: one and a half standard deviations."""
_LEAST_ORDINARY = 0.25
"""Errors within this share of a step count in full whatever the median is."""
_LEAST_SHARE = 1e-3
"""Share of the mean step: no prediction counts as shorter, or it alone would be fitted."""
_LEAST_NOISE = 1e-3
"""Relative error of a step that is always reckoned with."""
STALL, _STALL_NOISE = 5.0, 10.0
"""A step stalls if it takes so many times what is expected, and so many standard deviations of the errors more."""
_FEW, _RARE = 3, 50
"""Most steps that may stall: this number, or one step in that number."""


class Prior(msgspec.Struct, frozen=True):
    """The coefficients where the steps do not determine them."""

    spread: float
    """All are alike but for this share, one standard deviation: what is known of a model's terms beside its whole."""


def coefficients(features: Floats, seconds: Floats, *, is_prompt: npt.NDArray[np.bool_], prior: Prior | None) -> Floats:
    """Coefficients of ``features`` (``[steps, n]``), so that their sum is ``seconds``.

    Errors count as shares of what is predicted, so that short steps count as much as long ones. (As shares of what was
    measured, a step that took long by chance would count less than one that was quick by chance, and all predictions be
    too short.) Errors that are large beside the median one (of the steps with a prompt, or of the others) count in
    proportion instead of squared (Huber): a step during which the machine did something else says nothing of what its
    tokens cost. Durations add up to the measured ones all the same, but for steps that stalled (:func:`stalled`): their
    time would be handed out to all others. A coefficient that would be negative is taken out
    and the rest fitted again; one of a feature that no step has is 0, or with ``prior`` what the others are.
    """
    mean = float(seconds.mean())
    kinds = [kind for kind in (is_prompt, np.logical_not(is_prompt)) if kind.any()]
    # Columns in the size of what is expected: with a prior each coefficient is near 1, else each column's largest is.
    scale = np.maximum(np.abs(features).max(axis=0), 1e-30)
    if prior is not None:
        scale = np.full(features.shape[1], features.sum() / seconds.sum())
    features = features / scale
    values: Floats = np.ones(features.shape[1])
    expected, trust, noise = np.full(len(seconds), mean), np.ones(len(seconds)), 1.0
    if prior is not None:
        expected = _expected(features, values, mean)
    for _ in range(_ROUNDS):
        pull = 0.0 if prior is None else noise / prior.spread
        values = _weighted(features, seconds, trust / expected, pull)
        expected = _expected(features, values, mean)
        errors = np.abs(seconds / expected - 1)
        noise = max(_NORMAL * float(np.median(errors)), _LEAST_NOISE)
        for kind in kinds:
            trust[kind] = _trust(errors[kind])
    ran = ~stalled(seconds, expected, is_prompt)
    found: Floats = values / scale * (seconds[ran].sum() / (features[ran] @ values).sum())
    return found


def stalled(seconds: Floats, expected: Floats, is_prompt: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Which steps took so much longer than ``expected`` that something else than their work held them.

    That is at least five times as long (more where errors are large anyway), by as much as several ordinary steps take;
    of many such steps only the longest: a stall is rare.
    """
    ratio = seconds / np.maximum(expected, _LEAST_SHARE * seconds.mean())
    limit = np.full(len(seconds), STALL)
    for kind in (is_prompt, np.logical_not(is_prompt)):
        if kind.any():
            limit[kind] += _STALL_NOISE * _NORMAL * float(np.median(np.abs(ratio[kind] - 1)))
    over = np.where((ratio > limit) & (seconds - expected > STALL * np.median(seconds)), seconds - expected, 0.0)
    longest = np.argsort(over, kind="stable")[::-1][: max(_FEW, len(seconds) // _RARE)]
    found = np.zeros(len(seconds), bool)
    found[longest] = over[longest] > 0
    return found


def _expected(features: Floats, values: Floats, mean: float) -> Floats:
    predicted: Floats = np.maximum(features @ values, mean * _LEAST_SHARE)
    return predicted


def _trust(errors: Floats) -> Floats:
    """Weights of steps with these errors, which are shares of what is predicted."""
    ordinary = max(_ORDINARY * float(np.median(errors)), _LEAST_ORDINARY)
    weights: Floats = np.sqrt(ordinary / np.maximum(errors, ordinary))
    return weights


def _weighted(features: Floats, seconds: Floats, weights: Floats, pull: float) -> Floats:
    """Coefficients, none negative, with the least sum of squared weighted errors; ``pull``: towards 1."""
    rows, wanted = features * weights[:, None], seconds * weights
    count = features.shape[1]
    kept = list(range(count)) if pull else np.flatnonzero(features.any(axis=0)).tolist()
    if pull:
        rows = np.vstack((rows, pull * np.eye(count)))
        wanted = np.concatenate((wanted, np.full(count, pull)))
    while True:
        found = np.linalg.lstsq(rows[:, kept], wanted, rcond=None)[0]
        if found.min() >= 0:
            break
        del kept[int(found.argmin())]
    values = np.zeros(count)
    values[kept] = found
    return values


# ---------------------------------------------------------------------------------------------------------------------
# A latency model fitted to measured steps: least squares with coefficients that cannot be negative.
#
# Features of a step (:data:`FEATURES`):
#
#     constant          1
#     prefill_tokens    tokens of requests that compute more than one
#     decodes           requests that compute one
#     decode_context    tokens whose KV the decodes read
#     prefill_pairs     (query, key) pairs of the prefills under a causal mask
#     prefills          requests that compute more than one: each costs something whatever its length
#     any_prefill       1 if there is one: such a step is launched in another way (no CUDA graph of the whole)

FEATURES = ("constant", "prefill_tokens", "decodes", "decode_context", "prefill_pairs", "prefills", "any_prefill")


def step_features(shape: StepShape) -> tuple[float, ...]:
    """One row of :data:`FEATURES`."""
    work = StepWork.of(shape)
    return (
        1.0,
        work.prefill_tokens,
        work.num_decodes,
        work.decode_context,
        work.prefill_pairs,
        work.num_prefills,
        min(work.num_prefills, 1),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedLatency:
    """Seconds per unit of each feature, none negative."""

    constant: float = 0.0
    prefill_tokens: float = 0.0
    decodes: float = 0.0
    decode_context: float = 0.0
    prefill_pairs: float = 0.0
    prefills: float = 0.0
    any_prefill: float = 0.0
    transfer: Transfer = field(default_factory=Transfer)
    host_seconds: float = 0.0
    """Part of ``constant`` that is the host's; step times alone do not show it."""

    def __post_init__(self) -> None:
        for name in FEATURES:
            require_seconds(name, getattr(self, name))

    def step_seconds(self, shape: StepShape) -> float:
        work = StepWork.of(shape)
        return (
            self.constant
            + self.prefill_tokens * work.prefill_tokens
            + self.decodes * work.num_decodes
            + self.decode_context * work.decode_context
            + self.prefill_pairs * work.prefill_pairs
            + self.prefills * work.num_prefills
            + self.any_prefill * min(work.num_prefills, 1)
        )

    def transfer_seconds(self, num_bytes: int, direction: TransferDirection) -> float:
        return self.transfer.seconds(num_bytes, direction)


def fit(features: Floats, seconds: Floats) -> FittedLatency:
    """The model that fits measured steps best.

    ``features`` has shape ``[steps, 7]`` (:data:`FEATURES`), ``seconds`` ``[steps]``; how errors count is described at
    :func:`~tokenyard.steptime.fitted.coefficients`. Raises ConfigError if there are fewer steps than features
    or a value cannot be.
    """
    _check(features, seconds)
    has_prefill = features[:, FEATURES.index("prefills")] > 0
    values = coefficients(features, seconds, is_prompt=has_prefill, prior=None)
    return FittedLatency(**dict(zip(FEATURES, values.tolist(), strict=True)))


def _check(features: Floats, seconds: Floats) -> None:
    if features.ndim != 2 or features.shape[1] != len(FEATURES) or seconds.shape != features.shape[:1]:
        raise ConfigError("features", features.shape, f"give one row of {len(FEATURES)} numbers per step")
    if len(seconds) < len(FEATURES):
        raise ConfigError("seconds", len(seconds), f"give at least {len(FEATURES)} steps to fit")
    if not np.isfinite(features).all() or not (np.isfinite(seconds) & (seconds > 0)).all():
        raise ConfigError("seconds", seconds[:4].tolist(), "give finite features, and durations above 0")


# ---------------------------------------------------------------------------------------------------------------------
# A latency model fitted to the step times that a trace recorded.
#
# A step can be used if the trace records how long it took and, of every request in it, how many tokens it computed and
# how many were in the cache before. The latter stands in the per-request records; without them it is followed from
# ``prefix_cache_lookup`` on, until a request is preempted.
#
# Duration of a step: the time to the next step's snapshot, if that step was already running something (between idle
# steps an engine waits for work); what ``step_completed`` says where nothing follows, or where the next step began
# before this one had ended (several in flight).

_STRETCH = 64
"""Steps in a row whose durations together say how fast the machine was."""
_EVEN = 0.01
"""A machine whose stretches all lie within this share of its mean ran evenly."""


class MeasuredStep(msgspec.Struct, frozen=True):
    """What a step computed, and how long it took."""

    features: tuple[float, ...]
    """One row of :data:`~tokenyard.steptime.fitted.FEATURES`."""
    seconds: float
    ts: float
    """When it began, on the trace's clock."""
    work: StepWork | None = None
    """The same as a model of step times takes it: where drafts are verified, a request that does counts as decode."""
    ahead: bool = False
    """It was prepared while the step before ran: ``seconds`` are those of the device alone."""
    number: int = 0
    """Its number in the trace."""
    may_encode: bool = False
    """It computes a prompt with pictures or sound: their encoders take time that no feature has."""


class StepTimes:
    """Takes the steps of a trace in order, and keeps those that tell what they computed and how long they took."""

    def __init__(self, drafts: int = 0, stages: int = 1) -> None:
        """``drafts``: how many a request may have verified in one step. ``stages`` of a pipeline: with several, steps
        that ran beside others do not show how long they took.
        """
        self._measured: list[MeasuredStep] = []
        self._beside_others: list[MeasuredStep] = []
        """Steps of a pipeline that ran while others did."""
        self.untold: list[MeasuredStep] = []
        """Steps of which the trace tells how long they took, and not what they computed: without features."""
        self._drafts = drafts
        self._is_staged = stages > 1
        self._with_media: set[str] = set()
        self._contexts = _Contexts()
        self._ended_at: float | None = None
        """When the step before the last one had ended."""
        self._last: tuple[Step, StepShape | None, bool] | None = None
        """The step before, what it computed if the trace tells, and whether another one ran when it began."""

    def add(self, step: Step) -> None:
        """Take one step."""
        shape = self._contexts.shape_of(step)
        self._with_media.update(each.req_id or "" for each in step.arrived if each.mm_items)
        self._measure(step)
        ahead = self._ended_at is not None and step.ts is not None and step.ts < self._ended_at
        self._last = step, shape, ahead
        completed = step.completed
        self._ended_at = completed.ts if completed is not None else None

    def end(self) -> None:
        """No step follows."""
        self._measure(None)
        self._last = None

    def _measure(self, following: Step | None) -> None:
        if self._last is None:
            return
        step, shape, ahead = self._last
        seconds = _seconds(step, following)
        if seconds is None or seconds <= 0:
            return
        if shape is None:
            self.untold.append(MeasuredStep((), seconds, step.ts or 0.0, None, ahead, step.number))
            return
        work = StepWork.verifying(shape, self._drafts) if self._drafts else StepWork.of(shape)
        steps = self._beside_others if ahead and self._is_staged else self._measured
        media = self._encodes(step)
        steps.append(MeasuredStep(step_features(shape), seconds, step.ts or 0.0, work, ahead, step.number, media))

    def _encodes(self, step: Step) -> bool:
        """Whether it computes part of a prompt with pictures or sound."""
        scheduled = step.decision.num_scheduled_tokens if step.decision is not None else None
        return bool(self._with_media) and any(
            tokens > 1 and request_id in self._with_media for request_id, tokens in (scheduled or {}).items()
        )

    @property
    def measured(self) -> list[MeasuredStep]:
        """The steps, in order; those of a pipeline that ran beside others only where there is little else."""
        if len(self._measured) >= len(FEATURES):
            return self._measured
        return sorted((*self._measured, *self._beside_others), key=lambda step: step.ts)


def _seconds(step: Step, following: Step | None) -> float | None:
    """How long a step took, with what the host does between it and the next, if there is work for a next one."""
    completed = step.completed
    snapshot = following.snapshot if following is not None else None
    until = following.ts if following is not None and snapshot is not None and snapshot.num_running else None
    if completed is None:
        return until - step.ts if until is not None and step.ts is not None else None
    if until is None or completed.ts is None or until < completed.ts or step.ts is None:
        return completed.step_seconds
    follows_at_once = following is not None and following.number == step.number + 1
    return until - step.ts if follows_at_once else completed.step_seconds


def fit_trace(path: str | PathLike[str]) -> FittedLatency:
    """Fit the coefficients to a trace (a file of the pair, or its directory).

    Raises TraceError if there is no trace, or too few of its steps say what they computed and how long they took.
    """
    times = StepTimes()
    for step in TraceReader(str(path)).steps():
        times.add(step)
    times.end()
    return fit_steps(times.measured, str(path))


def fit_steps(steps: Sequence[MeasuredStep], source: str) -> FittedLatency:
    """Fit the coefficients to ``steps``. Raises TraceError if they are too few."""
    if len(steps) < len(FEATURES):
        raise TraceError(
            f"{source}: only {len(steps)} steps tell what they computed and how long they took: a fit needs at least"
            f" {len(FEATURES)}, better hundreds of different sizes"
        )
    return fit(np.array([step.features for step in steps]), np.array([step.seconds for step in steps]))


def predicted_by_features(model: FittedLatency, steps: Sequence[MeasuredStep]) -> Floats:
    """What ``model`` says of measured steps, less what was hidden behind the steps before them."""
    weights = np.array([getattr(model, name) for name in FEATURES])
    seconds: Floats = np.array([step.features for step in steps]) @ weights
    return seconds - model.host_seconds * np.array([step.ahead for step in steps])


def measured_pace(steps: Sequence[MeasuredStep], predicted: Floats, began: float) -> MachineSpeed | None:
    """How far stretches of measured steps are from what is ``predicted`` of them; None if the machine ran evenly.

    ``began``: the moment of the first arrival, on the clock of ``steps``.
    """
    if not steps:
        return None
    starts = np.arange(0, len(steps), _STRETCH)
    if len(starts) > 1 and len(steps) - starts[-1] < _STRETCH:
        starts = starts[:-1]
    seconds = np.add.reduceat(np.array([step.seconds for step in steps]), starts)
    expected = np.add.reduceat(predicted, starts)
    factors = np.divide(seconds, expected, out=np.ones(len(starts)), where=expected > 0)
    if np.abs(factors - 1).max() < _EVEN:
        return None
    return MachineSpeed(np.array([steps[start].ts for start in starts.tolist()]) - began, factors)


class _Contexts:
    """Tokens that each request has in the cache, and tokens that it has in all, as far as the trace was read."""

    def __init__(self) -> None:
        self._computed: dict[str, int] = {}
        self._known: dict[str, int] = {}
        """Tokens of its prompt, and those that were sampled."""

    def shape_of(self, step: Step) -> StepShape | None:
        """The step's shape, or None if the trace leaves part of it out or it computed nothing."""
        self._learn(step)
        decision = step.decision
        if decision is None or decision.num_scheduled_tokens is None:
            return None
        for request_id in decision.preempted_req_ids or ():
            self._computed.pop(request_id, None)
        scheduled = decision.num_scheduled_tokens
        before = [self._computed[request_id] for request_id in scheduled if request_id in self._computed]
        sampled = sum(self._samples(request_id, tokens) for request_id, tokens in scheduled.items())
        self._advance(scheduled, step)
        total = sum(scheduled.values())
        if not scheduled or len(before) < len(scheduled) or decision.total_scheduled_tokens not in (None, total):
            return None
        new = np.fromiter(scheduled.values(), np.int64, len(scheduled))
        return StepShape(new, np.array(before, np.int64), sampled, total)

    def _samples(self, request_id: str, tokens: int) -> bool:
        """Whether a step that computes so many tokens of a request ends with one more: it has no chunk left to do."""
        known = self._known.get(request_id)
        if known is None:  # it was there before the trace began
            return tokens == 1
        if self._computed.get(request_id, 0) + tokens < known:
            return False
        self._known[request_id] = known + 1
        return True

    def _learn(self, step: Step) -> None:
        """What the step's records say outright."""
        for arrived in step.arrived:
            if arrived.req_id is not None and arrived.num_prompt_tokens is not None:
                self._known[arrived.req_id] = arrived.num_prompt_tokens
        for lookup in step.lookups:
            if lookup.req_id is not None and lookup.total_hit_tokens is not None:
                self._computed[lookup.req_id] = lookup.total_hit_tokens
        for request in step.requests:
            if request.req_id is not None and request.queue == "running" and request.num_computed_tokens is not None:
                self._computed[request.req_id] = request.num_computed_tokens

    def _advance(self, scheduled: dict[str, int], step: Step) -> None:
        """The step's tokens are in the cache now; who finished with it is forgotten."""
        for request_id, tokens in scheduled.items():
            if request_id in self._computed:
                self._computed[request_id] += tokens
        for finished in step.finished:
            self._computed.pop(finished.req_id or "", None)
            self._known.pop(finished.req_id or "", None)


# ---------------------------------------------------------------------------------------------------------------------
# Step times that a model of the deployment says, each of its terms as many times as long as measured steps were.
#
# What a step does follows from the model: which experts it reads, which states, how much context, what the host
# launches. How long this machine takes for each of it is what its steps tell. Where they do not tell two terms apart
# (a deployment that never computed a long prompt), both are as far off as all of them are together.

_PRIOR = Prior(spread=0.5)


class ScaledTerms:
    """``model``, every term of it times its own scale."""

    def __init__(self, model: TermedLatency, scales: Mapping[str, float]) -> None:
        self.model = model
        self.scales = dict(scales)
        """Term -> times as long as the model says."""

    @property
    def host_seconds(self) -> float:
        return host_seconds(self.model) * self.scales[HOST]

    def step_seconds(self, shape: StepShape) -> float:
        scales = self.scales
        return float(sum(scales[name] * each for name, each in self.model.terms(self.model.work_of(shape)).items()))

    def transfer_seconds(self, num_bytes: int, direction: TransferDirection) -> float:
        return transfer_seconds(self.model, num_bytes, direction)


def fit_terms(model: TermedLatency, steps: Sequence[MeasuredStep]) -> ScaledTerms | None:
    """The scales with which ``model`` says best how long ``steps`` took; None if it cannot say anything of them."""
    known = [step for step in steps if step.work is not None]
    if not known:
        return None
    names, features = _features(model, known)
    seconds = np.array([step.seconds for step in known])
    ahead = np.array([step.ahead for step in known])
    hides_more = ahead & (features.sum(axis=1) < host_seconds(model))  # the host is what such steps wait for
    told = ~hides_more if not hides_more.all() else np.ones(len(known), bool)
    features, seconds = features[told], seconds[told]
    if not np.isfinite(features).all() or features.sum() <= 0:
        return None
    is_prompt = np.array([step.work is not None and step.work.num_prefills > 0 for step in known])[told]
    values = coefficients(features, seconds, is_prompt=is_prompt, prior=_PRIOR)
    return ScaledTerms(model, dict(zip(names, values.tolist(), strict=True)))


def predicted_by_terms(fitted: ScaledTerms, steps: Sequence[MeasuredStep]) -> Floats:
    """What is fitted of measured steps, less what was hidden behind the steps before them."""
    names, features = _features(fitted.model, steps)
    seconds = features @ np.array([fitted.scales[name] for name in names])
    ahead = np.array([step.ahead for step in steps])
    waits: Floats = np.where(ahead, np.maximum(seconds, fitted.host_seconds), seconds)
    return waits


def _features(model: TermedLatency, steps: Sequence[MeasuredStep]) -> tuple[list[str], Floats]:
    """The terms of every step, shape ``[steps, terms]``, and their names."""
    work = StepWork(*np.array([step.work for step in steps], np.float64).T)
    terms = model.terms(work)
    columns = [np.broadcast_to(np.asarray(each, np.float64), len(steps)) for each in terms.values()]
    features = np.stack(columns, axis=1)
    ahead = np.array([step.ahead for step in steps])
    features[ahead, list(terms).index(HOST)] = 0.0
    return list(terms), features
