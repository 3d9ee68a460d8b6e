"""What advice is judged by: a few numbers about a run, gathered while its report is made.

The viewer computes the same numbers from its columns; the rules (``rules.toml``) see nothing else.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tokenyard.explain.advice.rule_book import rule_book
from tokenyard.explain.held_back.classifier import Verdict
from tokenyard.explain.report.recorded_reasons import RecordedReason, RecordedReasonCounter, free_share
from tokenyard.trace.format.request_timeline import micros
from tokenyard.trace.format.schema import AdmissionOutcome, TraceStart
from tokenyard.trace.format.step_facts import StepFacts
from tokenyard.vocabulary.buckets import STEP_REASONS

__all__ = ["SymptomCounter", "Symptoms"]

_STEPS_IN_FLIGHT = 64


class Symptoms(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers about a run; None where the trace does not tell."""

    steps: int
    requests: int | None = None
    jobs: int = 0
    request_seconds: float = 0.0
    """Time of all requests in the queues: (running + waiting) x duration, over the steps."""
    reasons: dict[str, RecordedReason] = {}
    """As in the report; in a trace that records none, what the classifier can prove."""
    guessed: bool = False
    """They come from the classifier."""
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
    tpot_p50_ms: float | None = None
    tpot_p99_ms: float | None = None
    mixed_steps: int = 0
    """Steps in which somebody decoded beside prefill of a quarter of the token budget or more."""
    mixed_ms: float | None = None
    """Mean duration of these."""
    decode_steps: int = 0
    """Steps in which everybody who ran got one token."""
    decode_ms: float | None = None
    settings: dict[str, Any] = {}
    """Those of the configuration that rules look at."""

    def value(self, setting: str) -> Any:
        """What a setting was in this run; None if the trace does not tell."""
        limits = {"max_num_seqs": self.max_running, "max_num_batched_tokens": self.token_budget}
        return self.settings.get(setting, limits.get(setting))


class SymptomCounter:
    """Gathers what a report does not hold already. Costs a microsecond or two a step."""

    def __init__(self) -> None:
        self._before: StepFacts | None = None
        self._guess: AdmissionOutcome | None = None
        self._guesses = RecordedReasonCounter()
        self._request_micros = 0
        self._scheduled: int | None = None
        self._tokens = 0
        """Scheduled in the last step."""
        self._kind: bool | None = None
        """Of the last step; as in ``_kinds``, or None if it is neither."""
        self._kinds: dict[int, bool] = {}
        """Step in flight -> it mixes decode with large prefill (True), or is decode alone (False)."""
        self._counts = [0, 0]
        self._seconds = [0.0, 0.0]

    def step(self, facts: StepFacts, verdict: Verdict) -> None:
        """A step was decided."""
        self.settle(facts.ts)
        self._before = facts
        self._guess = None
        if facts.outcome is None and verdict.reason is not None and verdict.unadmitted:
            proven = STEP_REASONS[verdict.reason].proves
            if proven is not None:
                self._guess = AdmissionOutcome(step=facts.step, reason=proven, num_requests=verdict.unadmitted)
        if facts.token_sum is not None:
            self._tokens = facts.token_sum
            self._scheduled = (self._scheduled or 0) + self._tokens
            self._kind = _kind(facts, facts.token_sum)
            self._note_kind(facts.step)

    def repeated(self, step: int) -> None:
        """A step was decided like the last one; both schedule tokens, and hold nobody back."""
        self._scheduled = (self._scheduled or 0) + self._tokens
        self._note_kind(step)

    def _note_kind(self, step: int) -> None:
        if self._kind is not None:
            self._kinds[step] = self._kind
            if len(self._kinds) > _STEPS_IN_FLIGHT:
                del self._kinds[next(iter(self._kinds))]

    def completed(self, step: int, seconds: float | None) -> None:
        """A step's model ran."""
        kind = self._kinds.pop(step, None)
        if kind is not None and seconds is not None:
            self._counts[kind] += 1
            self._seconds[kind] += seconds

    def settle(self, now: float | None) -> None:
        """The last step was over ``now``."""
        facts, self._before = self._before, None
        if facts is None or facts.ts is None or now is None:
            return
        passed = max(micros(now) - micros(facts.ts), 0)
        self._request_micros += passed * ((facts.num_running or 0) + (facts.num_waiting or 0))
        if self._guess is not None:
            self._guesses.add(self._guess, passed, free_share(facts))

    def join(self, other: SymptomCounter) -> None:
        """The steps of another engine, too; both are settled."""
        self._guesses.join(other._guesses)
        self._request_micros += other._request_micros
        if other._scheduled is not None:
            self._scheduled = (self._scheduled or 0) + other._scheduled
        self._counts = [mine + theirs for mine, theirs in zip(self._counts, other._counts, strict=True)]
        self._seconds = [mine + theirs for mine, theirs in zip(self._seconds, other._seconds, strict=True)]

    def result(self, start: TraceStart | None, recorded: dict[str, RecordedReason], **known: Any) -> Symptoms:
        """The symptoms so far; ``known`` are the numbers that the report holds."""
        (decode, mixed), (decode_s, mixed_s) = self._counts, self._seconds
        return Symptoms(
            request_seconds=self._request_micros / 1e6,
            reasons=recorded or self._guesses.result(),
            guessed=not recorded,
            scheduled_tokens=self._scheduled,
            mixed_steps=mixed,
            mixed_ms=1e3 * mixed_s / mixed if mixed else None,
            decode_steps=decode,
            decode_ms=1e3 * decode_s / decode if decode else None,
            settings=_settings(start),
            **known,
        )


def _kind(facts: StepFacts, tokens: int) -> bool | None:
    running, budget = facts.num_running or 0, facts.token_budget
    if not running or not budget:
        return None
    if tokens <= running:
        return False
    return True if tokens - running >= rule_book().symptoms.large_prefill * budget else None


def _settings(start: TraceStart | None) -> dict[str, Any]:
    config = (start.config if start is not None else None) or {}
    found: dict[str, Any] = {}
    for section, names in rule_book().symptoms.settings.items():
        values = config.get(section)
        if isinstance(values, dict):
            found.update({name: values[name] for name in names if name in values})
    return found
