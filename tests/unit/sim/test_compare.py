"""Comparisons: intervals, job times, and the same workload for everybody."""

from __future__ import annotations

from io import StringIO

import msgspec
import pytest
from rich.console import Console
from tests.support.toy_engine import make_request

from tokenyard.core.config import CacheConfig, SchedulerConfig, SpeculativeConfig
from tokenyard.errors import ConfigError
from tokenyard.questions.compare import METRICS, Interval, JobTimes, compare, interval
from tokenyard.questions.printing.policies import print_policies
from tokenyard.sim.executor import SimulatedSpeculation
from tokenyard.sim.settings import ReplaySettings
from tokenyard.steptime.load import load_latency
from tokenyard.workload.generators import AgenticOptions, agentic
from tokenyard.workload.record import Workload, WorkloadRequest
from tokenyard.workload.tokens import Segment, StreamTokens


def settings() -> ReplaySettings:
    return ReplaySettings(
        SchedulerConfig(max_model_len=32_768), CacheConfig(num_gpu_blocks=2500), load_latency("constant:0.02")
    )


def workload(seed: int) -> Workload:
    return agentic(AgenticOptions(num_sessions=2, seed=seed, turns=(3.0, 0.1)))


def test_an_interval_is_student_s() -> None:
    assert interval([5.0]) == Interval(5.0, None)
    three = interval([1.0, 2.0, 3.0])
    assert three.mean == 2.0
    assert three.half == pytest.approx(4.303 / 3**0.5)
    assert interval([7.0] * 50).half == 0.0


@pytest.mark.parametrize(
    ("value", "text"),
    [(Interval(1.2345), "1.23"), (Interval(12.345, 0.5), "12.3 ± 0.50"), (Interval(12345.6, 100.0), "12,346 ± 100")],
)
def test_three_digits(value: Interval, text: str) -> None:
    assert str(value) == text


def test_a_job_lasts_from_its_first_arrival_to_its_last_end() -> None:
    jobs = JobTimes()
    for name, job, arrived, ended in (("a1", "a", 1.0, 4.0), ("a2", "a", 5.0, 9.0), ("alone", None, 2.0, 3.0)):
        request = make_request(name, job_id=job, arrival_time=arrived)
        jobs.request_arrived(arrived + 0.5, request)
        jobs.request_finished(ended, request)
    assert jobs.seconds == [8.0, 1.0]


@pytest.mark.slow
def test_everybody_sees_the_same_workloads() -> None:
    drafts = SimulatedSpeculation(config=SpeculativeConfig(num_speculative_tokens=2))
    drafting = msgspec.structs.replace(settings(), speculation=drafts)
    result = compare(workload, drafting, ["fcfs", "priority"], loads=(1.0, 2.0), seeds=(3, 4))
    for load in (1.0, 2.0):
        fcfs, priority = result.cell("fcfs", load), result.cell("priority", load)
        assert fcfs.metrics == priority.metrics, "all priorities are equal"
        assert set(fcfs.metrics) == {metric.name for metric in METRICS} - {"goodput", "fairness"}, (
            "no bounds, no classes"
        )
        assert priority.speedup == Interval(1.0, 0.0)
    assert result.baseline == "fcfs"
    with pytest.raises(KeyError):
        result.cell("fcfs", 3.0)


def test_whom_a_policy_loses_counts_at_least_by_its_age() -> None:
    lost = Workload(
        "lost",
        [
            WorkloadRequest(
                request_id=f"r{i}",
                prompt=StreamTokens(Segment(i, 0, 64)),
                max_tokens=200,
                arrival_time=0.001 * i,
                patience=1.0 if i else None,
            )
            for i in range(3)
        ],
    )
    one_seat = msgspec.structs.replace(settings(), scheduler=SchedulerConfig(max_model_len=512, max_num_seqs=1))
    result = compare(lambda seed: lost, one_seat, ["fcfs", "priority"], seeds=(1,))
    cell = result.cell("priority", 1.0)
    assert set(cell.lower_bounds) == {"completion_s", "completion_p90_s", "ttft_s"}
    assert cell.speedup_is_open
    with StringIO() as text:
        print_policies(result, Console(file=text, width=200))
        shown = text.getvalue()
    assert "≥" in shown
    assert "open" in shown
    whole = compare(workload, settings(), ["fcfs", "priority"], seeds=(1,))
    assert not whole.cell("priority", 1.0).lower_bounds
    assert not whole.cell("priority", 1.0).speedup_is_open


def test_a_drawing_names_what_it_draws() -> None:
    svg = compare(workload, settings(), ["fcfs"], seeds=(1,)).draw(title="time <s>")
    assert ">agentic<" in svg
    assert ">time &lt;s&gt;<" in svg
    assert svg.count("<polyline") == 1


@pytest.mark.parametrize("policies", [[], ["fcfs", "fcfs"], ["nobody"]])
def test_policies_are_checked(policies: list[str]) -> None:
    with pytest.raises(ConfigError, match="policies"):
        compare(workload, settings(), policies)
