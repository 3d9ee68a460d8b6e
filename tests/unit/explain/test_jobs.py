"""Job completion times, of everybody whose turns came, and the ledger of pins."""

from __future__ import annotations

import pytest

from tokenyard.explain.jobs import JobCounter, PinCounter
from tokenyard.trace.facts import StepFacts
from tokenyard.trace.schema import PinEnded, RequestArrived, RequestFinished


def turn(
    counter: JobCounter,
    job: str | None,
    came: float,
    ended: float | None,
    reason: str = "length",
    *,
    last: bool = False,
) -> None:
    counter.arrived(RequestArrived(req_id=f"{job}{came}", job_id=job, arrival_time=came, is_last_step=last or None))
    if ended is not None:
        counter.ended(RequestFinished(req_id=f"{job}{came}", job_id=job, finished_time=ended, finish_reason=reason))


def test_a_job_takes_from_its_first_arrival_to_its_last_end() -> None:
    jobs = JobCounter()
    turn(jobs, "a", 1.0, 2.0)
    turn(jobs, "a", 7.0, 9.0)
    turn(jobs, "b", 0.0, 4.0)
    turn(jobs, None, 0.0, 100.0)
    figures = jobs.figures(100.0)
    assert (figures.mean, figures.max, figures.censored) == (6000.0, 8000.0, ())


def test_a_job_with_a_turn_under_way_has_taken_at_least_as_long_as_by_now() -> None:
    jobs = JobCounter()
    turn(jobs, "a", 0.0, 2.0)
    turn(jobs, "a", 3.0, None)
    figures = jobs.figures(11.0)
    assert (figures.max, "max" in figures.censored) == (11_000.0, True)


def test_a_turn_that_left_before_its_first_step_may_end_before_it_comes() -> None:
    """As the reader of a trace tells it: with the ends of the step before."""
    jobs = JobCounter()
    turn(jobs, "a", 0.0, 9.0)
    jobs.ended(RequestFinished(req_id="left", job_id="a", finished_time=5.0, finish_reason="abort"))
    jobs.arrived(RequestArrived(req_id="left", job_id="a", arrival_time=5.0))
    figures = jobs.figures(100.0)
    assert (figures.max, figures.censored) == (9000.0, ())


def test_where_clients_say_the_last_turn_a_job_without_it_goes_on() -> None:
    jobs = JobCounter()
    turn(jobs, "a", 0.0, 2.0, last=True)
    turn(jobs, "b", 0.0, 3.0)
    figures = jobs.figures(10.0)
    assert (figures.p50, figures.max) == (6000.0, 10_000.0)
    assert "max" in figures.censored


def test_a_job_whose_turn_was_refused_is_never_over() -> None:
    jobs = JobCounter()
    turn(jobs, "a", 0.0, 0.0, "refused")
    turn(jobs, "b", 0.0, 3.0)
    assert "max" in jobs.figures(10.0).never


def test_turns_of_one_job_may_be_on_several_engines() -> None:
    one, other = JobCounter(), JobCounter()
    turn(one, "a", 0.0, 2.0)
    turn(other, "a", 3.0, 9.0)
    turn(other, "b", 3.0, 4.0)
    one.join(other)
    assert one.figures(9.0).max == 9000.0
    assert one.figures(9.0).mean == 5000.0


def test_without_jobs_there_is_no_figure() -> None:
    assert JobCounter().figures(1.0).mean is None


def pins(*ends: tuple[str, float, float, int], held: int = 0) -> PinCounter:
    """Pins that ended, each: why, from when, till when, blocks; and those that are left."""
    counter = PinCounter()
    for why, since, until, blocks in ends:
        counter.ended(PinEnded(ts=until, pinned_time=since, why=why, pinned_blocks=blocks))
    counter.stepped(StepFacts(step=1, num_pinned=held))
    return counter


def test_the_ledger_adds_up_blocks_and_seconds() -> None:
    ledger = pins(("used", 0.0, 2.0, 10), ("expired", 1.0, 4.0, 20), held=1).result(["continuum"], 40.0)
    assert ledger is not None
    assert (ledger.made, ledger.ends, ledger.held) == (3, {"used": 1, "expired": 1}, 1)
    assert (ledger.block_seconds, ledger.unused_block_seconds, ledger.mean_blocks) == (80.0, 60.0, 2.0)
    assert str(ledger) == "3 made: 1 used, 1 expired, 1 still held; 75% of the blocks' time unused"


@pytest.mark.parametrize(("policy", "is_told"), [("continuum-share", True), ("fcfs", False)])
def test_that_no_pin_was_made_is_told_of_policies_that_make_them(policy: str, is_told: bool) -> None:
    ledger = pins().result([policy], 1.0)
    assert (ledger is not None) == is_told
    assert not is_told or str(ledger) == "none was made"
