"""One rule read against the symptoms of one run: does it hold, and what shows it?

The viewer reads the same rules with ``viewer/src/advice/ruleReader.ts``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from tokenyard.explain.advice.rule import Advice, Comparison, Condition, Rule, RuleBook, Sentence
from tokenyard.explain.advice.symptoms import Symptoms
from tokenyard.explain.render.units import duration

__all__ = ["RuleReader"]

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
            evidence=self._text([*sentence, *rule.then]),
            price=rule.price,
            lost_s=self._lost(),
        )

    def _lost(self) -> float | None:
        lost, share = self._number("reason.seconds"), self._rule.lost_share
        return lost if lost is None or share is None else lost * (self._number(share) or 0.0)

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
        if isinstance(condition, Comparison):
            return self._compare(condition)
        name = condition.removeprefix("not ")
        return any(self._all(each) for each in self._book.conditions[name]) == (name == condition)

    def _compare(self, comparison: Comparison) -> bool:
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
