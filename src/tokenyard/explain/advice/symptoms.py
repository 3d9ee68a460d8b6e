# cython: auto_pickle=True
"""What advice is judged by: a few numbers about a run, gathered while its report is made.

The rules (``rules.toml``) see nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from tokenyard.explain.advice.rules import rule_book
from tokenyard.explain.classifier import STEP_REASONS, Classification
from tokenyard.explain.recorded_reasons import RecordedReason, RecordedReasonCounter
from tokenyard.explain.slo import Bounded
from tokenyard.models.gpus import gpu_of_device
from tokenyard.trace.facts import Drafts, RepeatedFacts, StepFacts
from tokenyard.trace.held_back import held_by_reason
from tokenyard.trace.schema import AdmissionOutcome, TraceStart
from tokenyard.trace.start import deployment_of
from tokenyard.vocabulary import Reason

_STEPS_IN_FLIGHT = 64


class Symptoms(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers about a run; None where the trace does not record it."""

    steps: int
    requests: int | None = None
    jobs: int = 0
    adapters: int = 0
    """Most LoRA adapters that the requests of one moment asked for while some waited for a slot."""
    request_seconds: float = 0.0
    """Time of all requests in the queues: (running + waiting) x duration, over the steps."""
    reasons: dict[str, RecordedReason] = {}
    """The recorded reasons, as in the report; in a trace that records none, what the classifier can prove."""
    guessed: bool = False
    """Whether the reasons are guesses of the classifier."""
    token_budget: int | None = None
    max_running: int | None = None
    """Most requests that may run."""
    peak_running: int | None = None
    """Most requests that ran at once."""
    preemptions: int | None = None
    recomputed_tokens: int | None = None
    scheduled_tokens: int | None = None
    local_hit_rate: float | None = None
    peak_kv_use: float | None = None
    most_kv_blocks: int | None = None
    """KV blocks that the GPUs have room for at most; None where the trace does not say which they are."""
    most_kv_bytes: int | None = None
    tpot_p50_ms: float | None = None
    tpot_p99_ms: float | None = None
    mixed_steps: int = 0
    """Steps in which a request decoded beside prefill of a quarter of the token budget or more."""
    mixed_ms: float | None = None
    """Mean duration of these."""
    decode_steps: int = 0
    """Steps in which every request that ran got one token, and its drafts to verify."""
    decode_ms: float | None = None
    decode_token_ms: float | None = None
    """What a token takes where nothing is prefilled: the time of these, each counted once for every request that ran,
    over the tokens that these requests got: one each, and the accepted drafts."""
    decode_running: float | None = None
    """Mean number of requests that ran in these."""
    decode_base_ms: float | None = None
    """What such a step would take without a request, over the tokens that a request gets in a step: where the line
    through their durations begins. None where the number of requests hardly changed, or where more of them took no
    longer."""
    prefill_steps: int = 0
    """Steps in which a request decoded beside any prefill."""
    prefill_token_ms: float | None = None
    """What a token takes in these."""
    mean_token_ms: float | None = None
    """What a token takes in all steps in which a request decoded."""
    prefill_share: float | None = None
    """The share by which prefill made steps longer, of the time that running requests spent in steps."""
    prefill_budget_use: float | None = None
    """How full these steps were, by the mean of their tokens."""
    token_bound_ms: float | None = None
    """The bound on the time per token that is missed by the largest factor; None where none is missed."""
    token_time_ms: float | None = None
    """The time that this bound is on."""
    token_class: str | None = None
    """The class of requests that the bound is of; None: all."""
    first_bound_ms: float | None = None
    """The same for the time to the first token."""
    first_time_ms: float | None = None
    first_class: str | None = None
    whole_bound_ms: float | None = None
    """The bound on the whole time of a request that these stand for; None where they are bounds of their own."""
    whole_time_ms: float | None = None
    whole_class: str | None = None
    ttft_ms: float | None = None
    """Mean time to the first token."""
    prefill_ms: float | None = None
    """Mean time from the first scheduled step of a request to its first token."""
    unseen_ms: float | None = None
    """Mean time that a request waited for the step that ran when it came."""
    batch_in_bound: float | None = None
    """Requests with which a step without prefill would take as long as ``token_bound_ms`` allows."""
    tokens_in_bound: float | None = None
    """Tokens with which a step with prefill would take as long as ``token_bound_ms`` allows."""
    settings: dict[str, Any] = {}
    """The settings of the configuration that rules look at."""

    def value(self, setting: str) -> Any:
        """What a setting was in this run; None if the trace does not record it."""
        limits = {"max_num_seqs": self.max_running, "max_num_batched_tokens": self.token_budget}
        return self.settings.get(setting, limits.get(setting))


class SymptomCounter:
    """Gathers what a report does not hold already. Costs a microsecond or two a step."""

    def __init__(self) -> None:
        self._adapters: dict[str, str] = {}
        """Request that is there -> the LoRA adapter that it asks for."""
        self._askers: Counter[str] = Counter()
        """Adapter -> how many of these ask for it."""
        self._asked = 0
        self._guess: AdmissionOutcome | None = None
        """What held requests back in the last step, where it is not recorded."""
        self._guesses = RecordedReasonCounter()
        self._scheduled: int | None = None
        self._tokens = 0
        """Scheduled in the last step."""
        self._load: StepLoad | None = None
        """What the last step computed; None if no request ran before it."""
        self._loads: dict[int, StepLoad] = {}
        """Step in flight -> what it computes."""
        self._ended: tuple[StepLoad, float] | None = None
        """The step that has just completed and its duration, until the next one does: its drafts may follow."""
        self._times = StepTimes()

    def arrived(self, request: str | None, adapter: str | None) -> None:
        """A request is there, which may ask for a LoRA adapter."""
        if request is not None and adapter:
            self.finished(request)
            self._adapters[request] = adapter
            self._askers[adapter] += 1

    def finished(self, request: str | None) -> None:
        """A request is no more."""
        adapter = self._adapters.pop(request, None) if request is not None and self._adapters else None
        if adapter is not None:
            self._askers[adapter] -= 1
            if not self._askers[adapter]:
                del self._askers[adapter]

    def step(self, facts: StepFacts, verdict: Classification) -> None:
        """A step was decided."""
        outcome = facts.outcome
        if len(self._askers) > self._asked and outcome is not None and Reason.LORA_SLOTS in held_by_reason(outcome):
            self._asked = len(self._askers)
        self._guess = None
        if outcome is None and verdict.reason is not None and verdict.unadmitted:
            proven = STEP_REASONS[verdict.reason].proves
            if proven is not None:
                self._guess = AdmissionOutcome(step=facts.step, reason=proven, num_requests=verdict.unadmitted)
        if facts.token_sum is not None:
            self._tokens = facts.token_sum
            self._scheduled = (self._scheduled or 0) + self._tokens
            self._load = _load(facts, facts.token_sum)
            self._note_load(facts.step)

    def step_ended(self, facts: StepFacts, passed: int) -> None:
        """The last step is over, after so many microseconds."""
        if self._guess is not None:
            self._guesses.add(self._guess, passed, facts)

    def repeated(self, step: int) -> None:
        """A step was decided like the last one; both schedule tokens, and hold no request back."""
        self._scheduled = (self._scheduled or 0) + self._tokens
        self._note_load(step)

    def steps_repeated(self, steps: RepeatedFacts) -> None:
        """Steps were decided like the last one."""
        facts, count = steps.like, len(steps.moments)
        if facts.token_sum is not None:
            self._scheduled = (self._scheduled or 0) + count * self._tokens
        in_flight = min(steps.first - steps.completed, count)
        for i in range(in_flight):
            self.completed(steps.completed + i, steps.seconds[i])
        self.settle()
        if self._load is not None:
            self._times.add(self._load, steps.seconds[in_flight:])
            end = steps.first + count
            for step in range(max(steps.first, steps.completed + count), end):
                self._note_load(step)

    def _note_load(self, step: int) -> None:
        if self._load is not None:
            self._loads[step] = self._load
            if len(self._loads) > _STEPS_IN_FLIGHT:
                del self._loads[next(iter(self._loads))]

    def completed(self, step: int, seconds: float | None) -> None:
        """A step's model ran."""
        self.settle()
        load = self._loads.pop(step, None)
        if load is not None and seconds is not None:
            self._ended = load, seconds

    def drafts_verified(self, drafts: Drafts) -> None:
        """The step that has just completed verified draft tokens: they are no prefill."""
        if self._ended is not None:
            load, seconds = self._ended
            self._ended = load.verifying(drafts.num_draft_tokens, sum(drafts.num_accepted_tokens_per_pos)), seconds

    def settle(self) -> None:
        """The step that has just completed verified no more drafts."""
        if self._ended is not None:
            load, seconds = self._ended
            self._ended = None
            self._times.add(load, (seconds,))

    def join(self, other: SymptomCounter) -> None:
        """The steps of another engine, too; both are settled."""
        self._asked = max(self._asked, other._asked)
        self._guesses.join(other._guesses)
        if other._scheduled is not None:
            self._scheduled = (self._scheduled or 0) + other._scheduled
        self._times.join(other._times)

    def result(
        self,
        start: TraceStart | None,
        recorded: dict[str, RecordedReason],
        *,
        missed: Mapping[str, Any],
        **known: Any,
    ) -> Symptoms:
        """The symptoms so far; ``missed`` is what :func:`missed_bounds` gives, ``known`` are numbers of the report."""
        return Symptoms(
            adapters=self._asked,
            reasons=recorded or self._guesses.result(),
            guessed=not recorded,
            scheduled_tokens=self._scheduled,
            settings=_settings(start),
            **_room_for_kv(start),
            **self._times.symptoms(missed.get("token_bound_ms"), known.get("token_budget")),
            **missed,
            **known,
        )


# ---------------------------------------------------------------------------------------------------------------------
# How long steps took, by what they computed.


class StepLoad(msgspec.Struct, frozen=True, gc=False):
    """What a step computed."""

    running: int
    """Requests that ran before it."""
    prefill: int
    """Tokens beyond one for each of them, and beyond their drafts."""
    budget: int
    """Tokens that it might have had."""
    drafts: int = 0
    """Draft tokens that it verified."""
    accepted: int = 0
    """Draft tokens that were accepted."""

    @property
    def is_large(self) -> bool:
        """Whether the prefill was a large part of the token budget."""
        return self.prefill > 0 and self.prefill >= rule_book().symptoms.large_prefill * self.budget

    def verifying(self, drafts: int, accepted: int) -> StepLoad:
        """The same step, of whose tokens so many are drafts."""
        return StepLoad(self.running, max(self.prefill - drafts, 0), self.budget, drafts, accepted)


def _load(facts: StepFacts, tokens: int) -> StepLoad | None:
    running, budget = facts.num_running or 0, facts.token_budget
    return StepLoad(running, max(tokens - running, 0), budget) if running and budget else None


_LEAST_SPREAD = 0.01
"""Variance over squared mean from which on the number of requests changed enough to draw a line through."""


class _Sums:
    """Steps of one kind, added up."""

    def __init__(self) -> None:
        self.steps = self.tokens = self.running = self.squares = self.prefill = self.accepted = 0
        """Steps; over them the tokens, the requests that ran, the squares of these, prefill times requests, and the
        drafts that were accepted."""
        self.seconds = self.request_seconds = 0.0
        """Durations, and these times the requests that ran."""

    def add(self, load: StepLoad, seconds: Sequence[float]) -> None:
        """Take steps that computed the same."""
        running, count = load.running, len(seconds)
        for each in seconds:
            self.seconds += each
            self.request_seconds += running * each
        self.steps += count
        self.tokens += count * (running + load.prefill + load.drafts)
        self.accepted += count * load.accepted
        self.running += count * running
        self.squares += count * running * running
        self.prefill += count * running * load.prefill

    def join(self, other: _Sums) -> None:
        """Take the steps of another engine, too."""
        self.steps += other.steps
        self.tokens += other.tokens
        self.running += other.running
        self.squares += other.squares
        self.prefill += other.prefill
        self.accepted += other.accepted
        self.seconds += other.seconds
        self.request_seconds += other.request_seconds

    @property
    def mean_ms(self) -> float | None:
        return 1e3 * self.seconds / self.steps if self.steps else None

    @property
    def token_ms(self) -> float | None:
        return 1e3 * self.request_seconds / self.outputs if self.running else None

    @property
    def outputs(self) -> int:
        """Tokens that the requests which ran got."""
        return self.running + self.accepted

    def line(self) -> tuple[float, float] | None:
        """Milliseconds without a request and for each request, by least squares, both over the tokens that a request
        gets in a step; None where more requests took no longer, or where their number hardly changed.
        """
        spread = self.steps * self.squares - self.running * self.running
        if not self.steps or spread < _LEAST_SPREAD * self.running * self.running:
            return None
        each = (self.steps * self.request_seconds - self.running * self.seconds) / spread
        base = (self.seconds - each * self.running) / self.steps
        shared = 1e3 * self.running / self.outputs
        return (shared * base, shared * each) if each > 0 else None


class StepTimes:
    """Durations of the steps in which a request decoded."""

    def __init__(self) -> None:
        self.decode, self.prefill, self.large = _Sums(), _Sums(), _Sums()
        """Without prefill, with any, and with a large one."""

    def add(self, load: StepLoad, seconds: Sequence[float]) -> None:
        """Take steps that computed the same."""
        (self.prefill if load.prefill else self.decode).add(load, seconds)
        if load.is_large:
            self.large.add(load, seconds)

    def join(self, other: StepTimes) -> None:
        """Take the steps of another engine, too."""
        self.decode.join(other.decode)
        self.prefill.join(other.prefill)
        self.large.join(other.large)

    def symptoms(self, bound_ms: float | None, budget: int | None) -> dict[str, Any]:
        """What :class:`Symptoms` holds of them, under its names.

        ``bound_ms`` is on the time per token, ``budget`` are the tokens that a step may have.
        """
        decode, prefill = self.decode, self.prefill
        alone, beside, line = decode.token_ms, prefill.token_ms, decode.line()
        share = batch = tokens = None
        outputs, request_seconds = decode.outputs + prefill.outputs, decode.request_seconds + prefill.request_seconds
        if alone is not None and beside is not None:
            share = max(beside - alone, 0.0) * prefill.outputs / (1e3 * request_seconds) if request_seconds else None
            if bound_ms is not None and alone < bound_ms < beside:
                mean = prefill.prefill / prefill.running
                tokens = decode.tokens / decode.steps + mean * (bound_ms - alone) / (beside - alone)
        if line is not None and bound_ms is not None:
            batch = (bound_ms - line[0]) / line[1]
        return {
            "mixed_steps": self.large.steps,
            "mixed_ms": self.large.mean_ms,
            "decode_steps": decode.steps,
            "decode_ms": decode.mean_ms,
            "decode_token_ms": alone,
            "decode_running": decode.running / decode.steps if decode.steps else None,
            "decode_base_ms": None if line is None else max(line[0], 0.0),
            "prefill_steps": prefill.steps,
            "prefill_token_ms": beside,
            "mean_token_ms": 1e3 * request_seconds / outputs if outputs else None,
            "prefill_share": share,
            "prefill_budget_use": prefill.tokens / (prefill.steps * budget) if prefill.steps and budget else None,
            "batch_in_bound": batch,
            "tokens_in_bound": tokens,
        }


# ---------------------------------------------------------------------------------------------------------------------
# Which bounds are missed, and what the engine was set to.

_BOUND_ON = {"ttft": "first", "tpot": "token", "itl": "token", "e2e": "whole", "job": "whole"}
_OF_EACH_REQUEST = "p90"
"""What a bound on every request is held against: it is missed where more than one request in ten misses it."""


class _Missed(msgspec.Struct, frozen=True):
    """A bound that is missed."""

    time_ms: float
    bound_ms: float
    bounded: Bounded


def missed_bounds(bounded: Iterable[Bounded]) -> dict[str, Any]:
    """The bounds that are missed by the largest factor, by the names of :class:`Symptoms`.

    Where only a bound on the whole time of a request is missed, the larger part of that time has to become shorter by
    the same factor: the time per token, or the time to the first one. A bound on the time in the queue has the reasons
    for waiting to explain it.
    """
    worst: dict[str, _Missed] = {}
    for each in bounded:
        for slo in each.slos:
            on = _BOUND_ON.get(slo.figure)
            value = getattr(each.latencies[slo.figure], slo.statistic or _OF_EACH_REQUEST)
            if value is None or on is None or value <= slo.bound_ms:
                continue
            if on not in worst or value * worst[on].bound_ms > worst[on].time_ms * slo.bound_ms:
                worst[on] = _Missed(value, slo.bound_ms, each)
    if "whole" in worst and len(worst) == 1:
        worst |= _larger_part(worst["whole"])
    else:
        worst.pop("whole", None)
    found: dict[str, Any] = {}
    for on, missed in worst.items():
        found |= {f"{on}_time_ms": missed.time_ms, f"{on}_bound_ms": missed.bound_ms}
        found |= {} if missed.bounded.of is None else {f"{on}_class": missed.bounded.of}
    return found


def _larger_part(whole: _Missed) -> dict[str, _Missed]:
    """The part of the whole time of a request that has to become shorter; none where it is not known."""
    latencies = whole.bounded.latencies
    first, mean, token = latencies["ttft"].mean, latencies["e2e"].mean, latencies["tpot"].p90
    if first is None or mean is None:
        return {}
    on, time = ("first", first) if token is None or first > mean / 2 else ("token", token)
    return {on: _Missed(time, time * whole.bound_ms / whole.time_ms, whole.bounded)}


def _settings(start: TraceStart | None) -> dict[str, Any]:
    config = (start.config if start is not None else None) or {}
    found: dict[str, Any] = {}
    for section, names in rule_book().symptoms.settings.items():
        values = config.get(section)
        if isinstance(values, dict):
            found.update({name: values[name] for name in names if name in values})
    return found


_MOST_MEMORY = 0.98
"""Share of a GPU's memory that an engine may take at most."""


def _room_for_kv(start: TraceStart | None) -> dict[str, Any]:
    """What the GPUs have room for at most, by the names of :class:`Symptoms`; nothing where that is not known."""
    settings, blocks = _settings(start), deployment_of(start.config if start is not None else None).num_gpu_blocks
    share = settings.get("gpu_memory_utilization")
    gpu = gpu_of_device(start.gpu) if start is not None and start.gpu else None
    if start is None or gpu is None or not blocks or not start.bytes_per_block or not isinstance(share, int | float):
        return {}
    spare = max(_MOST_MEMORY - share, 0.0) * gpu.memory_bytes
    taken = settings.get("kv_cache_memory_bytes")
    most = blocks + int(spare // start.bytes_per_block)
    return {"most_kv_blocks": most} | ({"most_kv_bytes": int(taken + spare)} if isinstance(taken, int) else {})
