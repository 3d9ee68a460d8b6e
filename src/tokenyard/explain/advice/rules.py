"""What the rules advise for the symptoms of a run. Nothing is advised where nothing is wrong."""

from __future__ import annotations

from tokenyard.explain.advice.rule import Advice, RuleBook
from tokenyard.explain.advice.rule_book import rule_book
from tokenyard.explain.advice.rule_reader import RuleReader
from tokenyard.explain.advice.symptoms import Symptoms

__all__ = ["advise"]


def advise(symptoms: Symptoms, book: RuleBook | None = None) -> list[Advice]:
    """What the rules (those of the package) advise, most time lost first; last what vLLM has not."""
    book = book or rule_book()
    found = [(rule, RuleReader(book, rule, symptoms).advice()) for rule in book.rules]
    known = [(rule, each) for rule, each in found if each is not None]
    return [each for _, each in sorted(known, key=lambda pair: (not pair[0].vllm, -(pair[1].lost_s or 0.0)))]
