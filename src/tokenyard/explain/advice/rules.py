"""The rules of advice as they are written, from a symptom to the setting that helps; and what they advise."""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from typing import Any, Literal

import msgspec

from tokenyard.files import packaged
from tokenyard.redaction import plain
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
    is_sure: bool = True
    """Whether the change is larger than the range in which the figure itself lies by what is known of step times."""

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
    """The flag and its value, to be pasted behind ``vllm serve``."""
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
        return f"{self.setting} {_value_in_words(self.now)} -> {_value_in_words(self.then)}"


class Relief(msgspec.Struct, frozen=True, kw_only=True):
    """Changes that were replayed together, since a run is overloaded and none alone need be enough."""

    is_enough: bool
    """The queue does not grow any more with them; else they come nearest to that, of all that were tried."""
    settings: dict[str, Any]
    """Settings that change -> their new values; empty: nothing that was tried helped."""
    flags: str
    """The same as flags, to be pasted behind ``vllm serve``; ``--replicas`` is Tokenyard's alone."""
    gpus: int | None
    """GPUs that it takes then, and takes now."""
    gpus_now: int | None
    offered_requests_per_s: float | None
    """Requests that arrive, and answers that end meanwhile, per second with these changes."""
    served_requests_per_s: float | None
    served: int
    """Users who got their whole answer with them, whenever that was, and all who came."""
    arrived: int
    effects: list[Effect]
    replays: int
    """Replays that the search took."""
    tried_on: str | None = None
    """Which requests they were of, in words; None: all."""

    @property
    def serves_these(self) -> bool:
        """Whether all were served who had given up before, in too short a time to tell whether that lasts."""
        gave_up = any(each.figure == "outcomes.served" for each in self.effects)
        return gave_up and not self.is_enough and self.served == self.arrived


def _value_in_words(value: Any) -> str:
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
    """A part of a sentence that is written only if something holds."""

    text: str
    when: list[Condition] = []


Sentence = list[str | ConditionalText]


class Frame(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What goes around the deed of a rule, and before what shows that a bound is missed: which one that is."""

    before: Sentence
    after: Sentence
    whole: Sentence
    token: Sentence
    first: Sentence


class Target(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to set a setting to: a number of the run."""

    value: str
    at_most: str | None = None
    """Another that bounds it, if the trace records it."""
    is_bounded: bool = False
    """Without the bound nothing is said, so that no more is asked for than the hardware has."""
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
    reasons: list[Reason] = []
    when: list[Condition]
    did: Sentence = []
    evidence: Sentence = []
    then: Sentence = []
    target: Target | None = None
    lost_share: str | None = None
    of_bound: Literal["token", "first"] | None = None
    """The rule is about a bound that is missed, on the time per token or to the first one: its advice comes first."""


class SymptomRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How symptoms are gathered."""

    large_prefill: float
    """Share of the token budget from which the prefill of a step counts as large."""
    settings: dict[str, list[str]]
    """Section of the configuration -> settings that rules look at."""


class RuleBook(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything in ``rules.toml``."""

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
    """The setting's value in this run, if the trace records it."""
    to: int | str | None = None
    """A value that would have been enough where it was worst, or one to begin with; in words where the setting takes
    another number (``what gives 5,040 KV blocks``); None if the trace does not record it."""
    evidence: str
    """What in this trace shows it."""
    price: str
    """What the change costs."""
    lost_s: float | None = None
    """Request-seconds lost to it; None if that is not what it costs."""
    trial: Trial | None = None
    """A replay with the change; None where the workload was not at hand."""

    @property
    def title(self) -> str:
        """``lower max_num_batched_tokens to 1571 (now 8192)``."""
        now = "" if self.now is None else f" (now {plain(str(self.now))})"
        to = "" if self.to is None else f" to {self.to}"
        return f"{_DIRECTIONS[self.direction]} {self.setting}{to}{now}"

    @property
    def is_of_bound(self) -> bool:
        """Whether it is about a bound that is missed."""
        return any(rule.name == self.rule and rule.of_bound is not None for rule in rule_book().rules)


_DIRECTIONS = {
    "up": "raise",
    "down": "lower",
    "on": "turn on",
    "off": "turn off",
    "set": "set",
    "choose": "choose another",
}


# ---------------------------------------------------------------------------------------------------------------------
# The rules as they stand in ``rules.toml``.


@cache
def rule_book() -> RuleBook:
    """All rules, and what they are written with; read once."""
    text = packaged(__package__, "rules.toml").decode()
    return msgspec.toml.decode(text, type=RuleBook)
