"""Policies that know programs and keep nothing: their order, and how many are let in."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.toy_engine import ToyEngine

from tokenyard.errors import ConfigError
from tokenyard.policies.programs import ProgramAdmission, ProgramFCFS
from tokenyard.vocabulary import Reason


class Programs(ToyEngine):
    """A toy in which jobs take turns. Blocks of 4 tokens."""

    def turn(self, request_id: str, prompt: int, **options: Any) -> None:
        """Add a turn of the job that its id names before the dot."""
        usual = {"job_id": request_id.split(".", maxsplit=1)[0], "arrival_time": self.now}
        self.add(request_id, prompt, **usual | options)

    def ended(self, request_id: str, prompt: int, **options: Any) -> None:
        """Add a turn and let it run to its end."""
        self.turn(request_id, prompt, **options)
        self.until(lambda: request_id not in self.scheduler.requests)


def test_turns_go_by_the_arrival_of_their_program() -> None:
    toy = Programs(policy_object=ProgramFCFS(), max_num_seqs=1)
    toy.ended("old.1", 8, max_tokens=1, arrival_time=0.0)
    toy.turn("busy.1", 4, arrival_time=2.0, max_tokens=20)
    toy.step()
    toy.turn("new.1", 8, arrival_time=3.0)
    toy.add("alone", 8, arrival_time=3.5)
    toy.turn("old.2", 8, arrival_time=4.0)
    assert toy.waiting == ["old.2", "new.1", "alone"]


def test_a_job_that_is_over_begins_anew() -> None:
    toy = Programs(policy_object=ProgramFCFS(), max_num_seqs=1)
    toy.ended("old.1", 8, max_tokens=1, arrival_time=0.0, is_last_step=True)
    toy.turn("busy.1", 4, arrival_time=2.0, max_tokens=20)
    toy.step()
    toy.turn("new.1", 8, arrival_time=3.0)
    toy.turn("old.2", 8, arrival_time=4.0)
    assert toy.waiting == ["new.1", "old.2"]


def admission(**options: float) -> Programs:
    """40 tokens of KV, of which programs may have 36."""
    return Programs(policy_object=ProgramAdmission(**options), num_gpu_blocks=11)


def test_a_program_waits_until_those_let_in_leave_it_room() -> None:
    toy = admission()
    toy.turn("a.1", 12, max_tokens=8)
    toy.turn("b.1", 12, max_tokens=8)
    toy.step()
    assert (toy.running, toy.waiting) == (["a.1"], ["b.1"])
    assert (toy.admission.reason, toy.admission.detail) == (Reason.POLICY_REFUSED, "program_admission")
    toy.until(lambda: "a.1" not in toy.scheduler.requests)
    toy.turn("c.1", 4, max_tokens=4)
    toy.step()
    assert toy.running == ["b.1"], "nothing ran, so that it is let in whatever others may come to"


def test_a_turn_of_a_program_that_was_let_in_is_not_refused() -> None:
    toy = admission()
    toy.ended("a.1", 8, max_tokens=2)
    toy.turn("b.1", 8, max_tokens=8)
    toy.step()
    toy.turn("a.2", 12, max_tokens=8)
    toy.step()
    assert toy.running == ["b.1", "a.2"]


def test_the_last_turn_makes_room_at_once() -> None:
    toy = admission()
    toy.turn("a.1", 12, max_tokens=2, is_last_step=True)
    toy.turn("c.1", 4, max_tokens=16)
    toy.turn("d.1", 12, max_tokens=2)
    toy.step()
    assert toy.waiting == ["d.1"]
    toy.until(lambda: "a.1" not in toy.scheduler.requests)
    toy.step()
    assert "d.1" in toy.running


def test_a_program_without_a_turn_for_long_leaves_its_room() -> None:
    toy = admission(idle=5.0)
    toy.ended("a.1", 12, max_tokens=4)
    toy.turn("c.1", 4, max_tokens=16)
    toy.step()
    toy.turn("b.1", 12, max_tokens=2)
    toy.step()
    assert toy.waiting == ["b.1"]
    toy.now = 5.0
    toy.step()
    assert "b.1" in toy.running


@pytest.mark.parametrize("options", [{"fill": 0.0}, {"idle": -1.0}])
def test_settings_that_cannot_be_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        ProgramAdmission(**options)
