"""Drafts in reports: added up from what steps verified."""

from __future__ import annotations

import pytest

from tokenyard.explain.report.report import SpeculationCounter
from tokenyard.trace.facts import Drafts
from tokenyard.trace.schema import TraceStart


def test_counts_add_up() -> None:
    counter = SpeculationCounter()
    counter.add(Drafts(2, 3, [2]))
    counter.add(Drafts(2, 6, [1, 1, 0]))
    found = counter.result(None)
    assert found is not None
    assert (found.num_drafts, found.num_draft_tokens, found.num_accepted_tokens) == (4, 9, 4)
    assert found.num_accepted_tokens_per_pos == [3, 1, 0]
    assert found.acceptance_rate == pytest.approx(4 / 9)
    assert found.acceptance_rate_per_pos == [0.75, 0.25, 0.0]
    assert str(found) == "4 of 9 drafts accepted, 44.4 %; by position 75.0 %, 25.0 %, 0.0 %"


def test_nothing_is_said_where_nothing_was_drafted() -> None:
    assert SpeculationCounter().result(None) is None
    assert SpeculationCounter().result(TraceStart(config={"scheduler": {}})) is None


def test_no_draft_came_although_some_were_to() -> None:
    nothing = SpeculationCounter().result(TraceStart(config={"speculation": {"num_speculative_tokens": 2}}))
    assert nothing is not None
    assert nothing.acceptance_rate is None
    assert str(nothing) == "no drafts verified"
