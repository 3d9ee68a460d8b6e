"""Patterns of module names: what Python's own say, and never for ever."""

from __future__ import annotations

import fnmatch
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

from tokenyard.models.reading.module_pattern import PatternError, Work, glob_pattern, module_pattern

ATOMS = (
    "a", "b", ".", r"\.", "[ab]", "[^a]", r"\d", "(a|b)", "(?:ab)", "^", "$", "(a*)", "(a|)", "a{2}", "b{1,3}",
    "[a-c]{0,2}", "(b|a{2,})", "()",
)  # fmt: skip
PATTERNS = st.lists(
    st.tuples(st.sampled_from(ATOMS), st.sampled_from(("", "", "", "*", "+", "?", "*?"))), max_size=6
).map(lambda parts: "".join(atom + repeat for atom, repeat in parts))


@settings(max_examples=examples(400))
@given(PATTERNS, st.text("abc1.", max_size=8))
def test_as_python_matches(pattern: str, name: str) -> None:
    try:
        expected = bool(re.match(pattern, name))
    except re.error:
        with pytest.raises(PatternError):
            module_pattern(pattern)
        return
    try:
        found = module_pattern(pattern)
    except PatternError:  # repetitions of repetitions and the like: refused
        return
    assert found.matches(name) == expected


@settings(max_examples=examples(300))
@given(st.text("ab*?.[]!^", max_size=7), st.text("ab.^", max_size=8))
def test_globs_as_python_matches(pattern: str, name: str) -> None:
    try:
        found = glob_pattern(pattern)
    except PatternError:
        return
    assert found.matches(name) == fnmatch.fnmatchcase(name, pattern)


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        (r".*lm_head", False),
        (r".*mlp.gate$", True),
        (r"model\.layers\.(1|3)\.mlp\..*", True),
        (r"model.layers.\d+.(mlp|self_attn).*", True),
        (r"vision_tower.*", False),
    ],
)
def test_those_of_real_configurations(pattern: str, matched: bool) -> None:
    assert module_pattern(pattern).matches("model.layers.3.mlp.gate") is matched


@pytest.mark.parametrize(
    "pattern", ["(.*)*Q$", "(a|a)*Q", "(a+)+Q", "((a*)*)*Q", "(.*.*.*.*)*Q", "(a?){60}a{60}Q", "(((((a{0,9})*)*)*)*)*Q"]
)
def test_patterns_that_python_never_ends(pattern: str) -> None:
    """Work is counted: states times characters, and not all ways to read the pattern."""
    assert not module_pattern(pattern).matches("a" * 100, Work(100 * 4_000))


def test_all_work_together_is_bounded() -> None:
    work = Work(10_000)
    patterns = [module_pattern(f".*(a|b)*{i}Q") for i in range(1_000)]
    with pytest.raises(PatternError, match="more work than"):
        any(pattern.matches("model.layers.1.mlp", work) for pattern in patterns)


@pytest.mark.parametrize(
    "pattern",
    ["(?=a)", "(?!a)", r"(a)\1", "a" * 501, "(" * 30, "(a", "a)", "[a", "a**", "*", r"\b", "(a{100}){100}", "a{3,2}"],
)
def test_patterns_that_are_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        module_pattern(pattern)
