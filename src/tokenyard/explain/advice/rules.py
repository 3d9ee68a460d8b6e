"""The rules of advice: from a symptom to the setting that helps."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from functools import cache
from math import floor
from typing import Any

import msgspec

from tokenyard.explain.held_back import STEP_REASONS, Classification
from tokenyard.explain.render.units import duration
from tokenyard.explain.report.recorded_reasons import RecordedReason, RecordedReasonCounter
from tokenyard.files import packaged
from tokenyard.trace.facts import RepeatedFacts, StepFacts, held_by_reason, micros
from tokenyard.trace.schema import AdmissionOutcome, TraceStart
from tokenyard.vocabulary import Reason

# ---------------------------------------------------------------------------------------------------------------------
# What a proposed change would do: the figures of a replay with it, beside those of the run.


class Cost(StrEnum):
    """What a change takes, the least first."""

    SETTING = "setting"
    """A flag: no more memory, no more GPUs."""
    CPU_MEMORY = "cpu-memory"
    GPU_MEMORY = "gpu-memory"
    """More of what the GPUs have."""
    GPUS = "gpus"
    OTHER_SCHEDULER = "other-scheduler"
    """A scheduler that vLLM has not."""

    @property
    def rank(self) -> int:
        """Place in this order."""
        return list(Cost).index(self)


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """One figure, before and after."""

    figure: str
    """``ttft_ms.p90`` and the like: as the report's JSON names it."""
    before: float
    after: float

    @property
    def change(self) -> float:
        """Share by which it grew; below zero if it shrank."""
        return self.after / self.before - 1 if self.before else 0.0


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One change, replayed on the same workload."""

    setting: str
    now: Any
    then: Any
    flag: str
    """To paste behind ``vllm serve``."""
    is_vllm: bool = True
    """vLLM has this flag and value; else they are Tokenyard's alone."""
    cost: Cost = Cost.SETTING
    """What the change takes."""
    effects: list[Effect] = []
    """None if vLLM would not start with it, or would refuse a request that it served."""
    problem: str | None = None
    """Why there are no effects."""

    def effect(self, figure: str) -> Effect | None:
        """The effect on one figure; None if that was not measured."""
        return next((each for each in self.effects if each.figure == figure), None)

    @property
    def title(self) -> str:
        """``max_num_seqs 32 -> 64``."""
        return f"{self.setting} {_shown(self.now)} -> {_shown(self.then)}"


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


# ---------------------------------------------------------------------------------------------------------------------
# A rule of advice: from a symptom to the setting that helps, if the evidence is there.
#
# Symptom, diagnosis, setting and direction are the columns of the usual tuning tables; a rule adds the price, the
# condition and the sentence that shows it. ``rules.toml`` holds them all and says how they are written.


class ValueCondition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"is_": "is"}):
    """One value against a number, another value, or true and false."""

    value: str
    at_least: float | None = None
    above: float | None = None
    below: float | None = None
    times: str | None = None
    is_: bool | None = None
    is_not: bool | None = None


Condition = str | ValueCondition
"""A comparison, or the name of a condition, after ``not`` turned around."""


class ConditionalText(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a sentence that is said only if something holds."""

    text: str
    when: list[Condition] = []


Sentence = list[str | ConditionalText]


class Frame(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What goes around the deed of a rule."""

    before: Sentence
    after: Sentence


class Target(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to set a setting to: a number of the run."""

    value: str
    at_most: str | None = None
    """Another that bounds it, if the trace tells."""
    times: float | str = 1.0
    """A number, or the name of another value."""
    above: str | None = None
    """The name of a value that the target has to exceed, where that is not the setting's own."""
    words: str | None = None
    """Around the number, where the setting takes another one: ``what gives {} KV blocks``."""


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """From a symptom to a setting."""

    name: str
    symptom: str
    diagnosis: str
    setting: str
    direction: str
    """``up``, ``down``, ``on``, ``off``, ``set`` or ``choose``."""
    price: str
    """What the change costs."""
    vllm: bool = True
    """vLLM has such a setting."""
    steps: str = ""
    """The viewer's filter for the steps that show it; empty where no step stands out."""
    reasons: list[Reason] = []
    when: list[Condition]
    did: Sentence = []
    evidence: Sentence = []
    then: Sentence = []
    target: Target | None = None
    lost_share: str | None = None


class SymptomRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How symptoms are gathered."""

    large_prefill: float
    """Share of the token budget from which the prefill of a step counts as large."""
    settings: dict[str, list[str]]
    """Section of the configuration -> settings that rules look at."""


class RuleBook(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything in ``rules.toml``."""

    engine: list[str]
    """Conditions that are of the engine: a part of a run has them as the whole has; only the viewer asks for parts."""
    symptoms: SymptomRules
    ratios: dict[str, tuple[str, str]]
    conditions: dict[str, list[list[Condition]]]
    """Any of the lists, all that is in it."""
    frame: Frame
    rules: list[Rule]


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of advice."""

    rule: str
    symptom: str
    diagnosis: str
    setting: str
    direction: str
    """``up``, ``down``, ``on``, ``off``, ``set`` or ``choose``."""
    now: Any = None
    """The setting's value in this run, if the trace tells."""
    to: int | str | None = None
    """A value that would have been enough where it was worst, or one to begin with; in words where the setting takes
    another number (``what gives 5,040 KV blocks``); None if the trace does not tell."""
    evidence: str
    """What in this trace shows it."""
    price: str
    """What the change costs."""
    lost_s: float | None = None
    """Request-seconds lost to it; None if that is not what it costs."""
    trial: Trial | None = None
    """A replay with the change; None where the workload was not at hand."""


# ---------------------------------------------------------------------------------------------------------------------
# The rules as they stand in ``rules.toml``.


@cache
def rule_book() -> RuleBook:
    """All rules, and what they are written with; read once."""
    text = packaged(__package__, "rules.toml").decode()
    return msgspec.toml.decode(text, type=RuleBook)


# ---------------------------------------------------------------------------------------------------------------------
# What advice is judged by: a few numbers about a run, gathered while its report is made.
#
# The viewer computes the same numbers from its columns; the rules (``rules.toml``) see nothing else.

_STEPS_IN_FLIGHT = 64


class Symptoms(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers about a run; None where the trace does not tell."""

    steps: int
    requests: int | None = None
    jobs: int = 0
    adapters: int = 0
    """Most LoRA adapters that the requests of one moment asked for while some waited for a slot."""
    request_seconds: float = 0.0
    """Time of all requests in the queues: (running + waiting) x duration, over the steps."""
    reasons: dict[str, RecordedReason] = {}
    """As in the report; in a trace that records none, what the classifier can prove."""
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
    tpot_p50_ms: float | None = None
    tpot_p99_ms: float | None = None
    mixed_steps: int = 0
    """Steps in which a request decoded beside prefill of a quarter of the token budget or more."""
    mixed_ms: float | None = None
    """Mean duration of these."""
    decode_steps: int = 0
    """Steps in which every request that ran got one token."""
    decode_ms: float | None = None
    settings: dict[str, Any] = {}
    """The settings of the configuration that rules look at."""

    def value(self, setting: str) -> Any:
        """What a setting was in this run; None if the trace does not tell."""
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
        self._before: StepFacts | None = None
        self._guess: AdmissionOutcome | None = None
        self._guesses = RecordedReasonCounter()
        self._request_micros = 0
        self._scheduled: int | None = None
        self._tokens = 0
        """Scheduled in the last step."""
        self._kind: bool | None = None
        """Kind of the last step, as in ``_kinds``; None if it is neither."""
        self._kinds: dict[int, bool] = {}
        """Step in flight -> it mixes decode with large prefill (True), or is decode alone (False)."""
        self._counts = [0, 0]
        self._seconds = [0.0, 0.0]

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
        self.settle(facts.ts)
        outcome = facts.outcome
        if len(self._askers) > self._asked and outcome is not None and Reason.LORA_SLOTS in held_by_reason(outcome):
            self._asked = len(self._askers)
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
        """A step was decided like the last one; both schedule tokens, and hold no request back."""
        self._scheduled = (self._scheduled or 0) + self._tokens
        self._note_kind(step)

    def steps_repeated(self, steps: RepeatedFacts, *, lasted: int) -> None:
        """Steps were decided like the last one, none of them told by its guess; ``lasted``: microseconds from the
        first to the last.
        """
        facts, count = steps.like, len(steps.moments)
        self.settle(steps.moments[0])
        self._request_micros += lasted * ((facts.num_running or 0) + (facts.num_waiting or 0))
        self._before = steps.step(count - 1)
        if facts.token_sum is not None:
            self._scheduled = (self._scheduled or 0) + count * self._tokens
        in_flight = min(steps.first - steps.completed, count)
        for i in range(in_flight):
            self.completed(steps.completed + i, steps.seconds[i])
        if self._kind is not None:
            self._counts[self._kind] += count - in_flight
            for seconds in steps.seconds[in_flight:]:
                self._seconds[self._kind] += seconds
            end = steps.first + count
            for step in range(max(steps.first, steps.completed + count), end):
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
            self._guesses.add(self._guess, passed, facts)

    def join(self, other: SymptomCounter) -> None:
        """The steps of another engine, too; both are settled."""
        self._asked = max(self._asked, other._asked)
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
            adapters=self._asked,
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


# ---------------------------------------------------------------------------------------------------------------------
# One rule read against the symptoms of one run: does it hold, and what shows it?
#
# The viewer reads the same rules with ``viewer/src/advice/ruleReader.ts``.

_NUMBER = re.compile(r"\{([\w.]+):(\w+)\}")
_FORMATS = {
    "count": lambda value: f"{value:,.0f}",
    "setting": lambda value: f"{value:.0f}",
    "tenth": lambda value: f"{value:,.1f}",
    "percent": lambda value: f"{100 * value:,.0f} %",
    "duration": duration,
}


class RuleReader:
    """A rule, and the run it is asked about."""

    def __init__(self, book: RuleBook, rule: Rule, symptoms: Symptoms) -> None:
        self._book = book
        self._rule = rule
        self._symptoms = symptoms
        held = [symptoms.reasons[name] for name in rule.reasons if name in symptoms.reasons]
        self._reason = max(held, key=lambda reason: reason.seconds, default=None)

    def advice(self) -> Advice | None:
        """The advice, if it applies."""
        rule = self._rule
        if not self._all(rule.when):
            return None
        sentence = rule.evidence
        if rule.did:
            sentence = [*self._book.frame.before, *rule.did, *self._book.frame.after]
        return Advice(
            rule=rule.name,
            symptom=rule.symptom,
            diagnosis=rule.diagnosis,
            setting=rule.setting,
            direction=rule.direction,
            now=self._symptoms.value(rule.setting),
            to=self._target(),
            evidence=self._text([*sentence, *rule.then]),
            price=rule.price,
            lost_s=self._lost(),
        )

    def _lost(self) -> float | None:
        lost, share = self._number("reason.seconds"), self._rule.lost_share
        return lost if lost is None or share is None else lost * (self._number(share) or 0.0)

    def _target(self) -> int | str | None:
        """The value to set; None if there is none, or if the setting is there already."""
        target = self._rule.target
        if target is None:
            return None
        number = self._number(target.value)
        times = self._number(target.times) if isinstance(target.times, str) else target.times
        if number is None or times is None:
            return None
        bound = None if target.at_most is None else self._number(target.at_most)
        to = floor(times * (number if bound is None else min(number, bound)))
        now = self._number(f"setting.{self._rule.setting}")
        there = now is not None and (to <= now if self._rule.direction == "up" else to >= now)
        if self._rule.direction == "set" and now == 0:  # it was off
            there = False
        if there or to < 1 or (target.above is not None and not to > (self._number(target.above) or 0)):
            return None
        return to if target.words is None else target.words.replace("{}", f"{to:,}")

    # ---- values

    def value(self, name: str) -> Any:
        """What a name stands for; None if the trace does not tell."""
        if name in self._book.ratios:
            above, below = (self._number(each) for each in self._book.ratios[name])
            return above / below if above is not None and below else None
        first, _, rest = name.partition(".")
        if first == "setting":
            return self._symptoms.value(rest)
        if first == "lost":
            held = self._symptoms.reasons.get(rest)
            return 0.0 if held is None else held.seconds
        value: Any = self._reason if first == "reason" else getattr(self._symptoms, first)
        for part in rest.split(".") if rest else ():
            value = None if value is None else getattr(value, part)
        return value

    def _number(self, name: str) -> float | None:
        value = self.value(name)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None

    # ---- conditions

    def _all(self, conditions: Iterable[Condition]) -> bool:
        return all(self._holds(condition) for condition in conditions)

    def _holds(self, condition: Condition) -> bool:
        if isinstance(condition, ValueCondition):
            return self._compare(condition)
        name = condition.removeprefix("not ")
        return any(self._all(each) for each in self._book.conditions[name]) == (name == condition)

    def _compare(self, comparison: ValueCondition) -> bool:
        if comparison.is_ is not None:
            return self.value(comparison.value) is comparison.is_
        if comparison.is_not is not None:
            return self.value(comparison.value) is not comparison.is_not
        number = self._number(comparison.value)
        if number is None:
            return False
        times = 1 if comparison.times is None else self._number(comparison.times) or 0
        if comparison.at_least is not None and not number >= comparison.at_least * times:
            return False
        if comparison.above is not None and not number > comparison.above * times:
            return False
        return comparison.below is None or number < comparison.below * times

    # ---- sentences

    def _text(self, sentence: Sentence) -> str:
        said = ""
        for part in sentence:
            text, when = (part, ()) if isinstance(part, str) else (part.text, part.when)
            numbers = {match[0]: self._number(match[1]) for match in _NUMBER.finditer(text)}
            if None not in numbers.values() and self._all(when):
                said += _NUMBER.sub(lambda match: _FORMATS[match[2]](numbers[match[0]]), text)  # noqa: B023 - used at once
        return said


# ---------------------------------------------------------------------------------------------------------------------
# What the rules advise for the symptoms of a run. Nothing is advised where nothing is wrong.


def advise(symptoms: Symptoms, book: RuleBook | None = None) -> list[Advice]:
    """What the rules (those of the package) advise, most time lost first; last what vLLM has not."""
    book = book or rule_book()
    found = [(rule, RuleReader(book, rule, symptoms).advice()) for rule in book.rules]
    known = [(rule, each) for rule, each in found if each is not None]
    return [each for _, each in sorted(known, key=lambda pair: (not pair[0].vllm, -(pair[1].lost_s or 0.0)))]
