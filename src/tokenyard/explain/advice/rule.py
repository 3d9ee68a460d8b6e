"""A rule of advice: from a symptom to the setting that helps, if the evidence is there.

Symptom, diagnosis, setting and direction are the columns of the usual tuning tables; a rule adds the price, the
condition and the sentence that shows it. ``rules.toml`` holds them all and says how they are written.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tokenyard.explain.advice.trial import Trial
from tokenyard.vocabulary.reasons import Reason

__all__ = ["Advice", "Comparison", "Condition", "Frame", "Part", "Rule", "RuleBook", "Sentence", "SymptomRules"]


class Comparison(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"is_": "is"}):
    """One value against a number, another value, or true and false."""

    value: str
    at_least: float | None = None
    above: float | None = None
    below: float | None = None
    times: str | None = None
    is_: bool | None = None
    is_not: bool | None = None


Condition = str | Comparison
"""A comparison, or the name of a condition, after ``not`` turned around."""


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a sentence that is said only if something holds."""

    text: str
    when: list[Condition] = []


Sentence = list[str | Part]


class Frame(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What goes around the deed of a rule."""

    before: Sentence
    after: Sentence


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
    lost_share: str | None = None


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
    """The setting's value in this run, if the trace tells."""
    evidence: str
    """What in this trace shows it."""
    price: str
    """What the change costs."""
    lost_s: float | None = None
    """Request-seconds lost to it; None if that is not what it costs."""
    trial: Trial | None = None
    """A replay with the change; None where the workload was not at hand."""
