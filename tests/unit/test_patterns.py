"""Patterns that are compiled when they are first asked something."""

from __future__ import annotations

import re

import pytest

from tokenyard.patterns import lazy_pattern


def test_answers_as_the_compiled_one() -> None:
    ours, theirs = lazy_pattern(r"(?P<n>\d+)s?", re.IGNORECASE), re.compile(r"(?P<n>\d+)s?", re.IGNORECASE)
    text = "10S and 7"
    assert [each["n"] for each in ours.finditer(text)] == [each["n"] for each in theirs.finditer(text)] == ["10", "7"]
    assert (ours.fullmatch("10S") is None, ours.sub("x", text)) == (False, theirs.sub("x", text))
    assert (ours.pattern, ours.flags, ours.groupindex) == (theirs.pattern, theirs.flags, theirs.groupindex)


def test_is_compiled_at_the_first_question() -> None:
    wrong = lazy_pattern("(")
    with pytest.raises(re.error):
        wrong.search("")
