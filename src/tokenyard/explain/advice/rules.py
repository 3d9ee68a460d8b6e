"""What the rules advise for the symptoms of a run. Nothing is advised where nothing is wrong."""

from __future__ import annotations

from tokenyard.explain.advice.rule import Advice, RuleBook
from tokenyard.explain.advice.rule_book import rule_book
from tokenyard.explain.advice.rule_reader import RuleReader
from tokenyard.explain.advice.symptoms import Symptoms

__all__ = ["advise"]


def advise(symptoms: Symptoms, book: RuleBook | None = None) -> list[Advice]:
    """What the rules (those of the package) advise, most time lost first; those that cost no waiting time last."""
    book = book or rule_book()
    found = [RuleReader(book, rule, symptoms).advice() for rule in book.rules]
    return sorted((each for each in found if each is not None), key=lambda each: -(each.lost_s or 0.0))
