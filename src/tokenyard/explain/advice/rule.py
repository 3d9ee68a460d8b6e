"""A rule of advice: from a symptom to the setting that helps, if the evidence is there.

Symptom, diagnosis, setting and direction are the columns of the usual tuning tables; a rule adds the price, and a
function that finds the evidence in the symptoms of a run, or finds nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from tokenyard.explain.advice.symptoms import Symptoms

__all__ = ["Evidence", "Finding", "Rule"]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
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


@dataclass(frozen=True, slots=True)
class Evidence:
    """Why a rule applies."""

    text: str
    lost_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """From a symptom to a setting."""

    name: str
    symptom: str
    diagnosis: str
    setting: str
    direction: str
    price: str
    find: Callable[[Symptoms], Evidence | None]

    def apply(self, symptoms: Symptoms) -> Finding | None:
        """The advice, if it applies."""
        evidence = self.find(symptoms)
        if evidence is None:
            return None
        return Finding(
            rule=self.name,
            symptom=self.symptom,
            diagnosis=self.diagnosis,
            setting=self.setting,
            direction=self.direction,
            now=symptoms.value(self.setting),
            evidence=evidence.text,
            price=self.price,
            lost_s=evidence.lost_s,
        )
