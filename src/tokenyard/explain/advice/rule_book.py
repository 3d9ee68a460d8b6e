"""The rules as they stand in ``rules.toml``."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import msgspec

from tokenyard.explain.advice.rule import RuleBook

__all__ = ["rule_book"]


@cache
def rule_book() -> RuleBook:
    """All rules, and what they are written with; read once."""
    text = files(__package__).joinpath("rules.toml").read_text(encoding="utf-8")
    return msgspec.toml.decode(text, type=RuleBook)
