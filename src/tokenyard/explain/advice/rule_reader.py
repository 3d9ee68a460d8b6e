"""The rules read against the symptoms of a run, and what they advise."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from math import floor
from typing import Any

from tokenyard.explain.advice.rules import Advice, Condition, Rule, RuleBook, Sentence, ValueCondition, rule_book
from tokenyard.explain.advice.symptoms import Symptoms
from tokenyard.units import duration

# ---------------------------------------------------------------------------------------------------------------------
# One rule read against the symptoms of one run: does it hold, and what shows it?

_NUMBER = re.compile(r"\{([\w.]+):(\w+)\}")
_FORMATS: dict[str, Callable[[Any], str]] = {
    "count": lambda value: f"{value:,.0f}",
    "floor": lambda value: f"{floor(value):,}",
    "setting": lambda value: f"{value:.0f}",
    "tenth": lambda value: f"{value:,.1f}",
    "percent": lambda value: f"{100 * value:,.0f} %",
    "duration": duration,
    "name": str,
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
        if rule.of_bound is not None:
            sentence = [*self._book.frame.whole, *getattr(self._book.frame, rule.of_bound), *sentence]
        return Advice(
            rule=rule.name,
            symptom=rule.symptom,
            diagnosis=rule.diagnosis,
            setting=rule.setting,
            direction=rule.direction,
            now=self._symptoms.value(rule.setting),
            to=self._target(),
            evidence=self._with_numbers([*sentence, *rule.then]),
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
        if bound is None and target.is_bounded:
            return None
        to = floor(times * number if bound is None else min(times * number, bound))
        now = self._number(f"setting.{self._rule.setting}")
        there = now is not None and (to <= now if self._rule.direction == "up" else to >= now)
        if self._rule.direction == "set" and now == 0:  # it was off
            there = False
        if there or to < 1 or (target.above is not None and not to > (self._number(target.above) or 0)):
            return None
        return to if target.words is None else target.words.replace("{}", f"{to:,}")

    # ---- values

    def value(self, name: str) -> Any:
        """What a name stands for; None if the trace does not record it."""
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

    def _with_numbers(self, sentence: Sentence) -> str:
        words = ""
        for part in sentence:
            text, when = (part, ()) if isinstance(part, str) else (part.text, part.when)
            values = {match[0]: self._shown(match[1], match[2]) for match in _NUMBER.finditer(text)}
            if None not in values.values() and self._all(when):
                words += _NUMBER.sub(lambda match: _FORMATS[match[2]](values[match[0]]), text)  # noqa: B023 - used at once
        return words

    def _shown(self, name: str, form: str) -> Any:
        """A number, or a name."""
        return self.value(name) if form == "name" else self._number(name)


# ---------------------------------------------------------------------------------------------------------------------
# What the rules advise for the symptoms of a run. Nothing is advised where nothing is wrong.


def advise(symptoms: Symptoms) -> list[Advice]:
    """What the rules of the package advise: first what a missed bound wants, then most time lost first; last
    what vLLM has not.
    """
    book = rule_book()
    found = [(rule, RuleReader(book, rule, symptoms).advice()) for rule in book.rules]
    known = [(rule, each) for rule, each in found if each is not None]
    return [each for _, each in sorted(known, key=_place)]


def _place(pair: tuple[Rule, Advice]) -> tuple[bool, bool, float]:
    rule, advice = pair
    return not rule.vllm, rule.of_bound is None, -(advice.lost_s or 0.0)
