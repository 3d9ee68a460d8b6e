"""Time-to-live rules against what the formulas say, and against a search over every candidate."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenyard.errors import ConfigError
from tokenyard.policies.continuum.ttl import (
    CostBenefit,
    FinishedTurn,
    FixedThreshold,
    Memoryfulness,
    MemoryShare,
    Observations,
    PrefillReload,
    QueueingDelay,
    best_shared_ttl,
    best_ttl,
    cold_ttl,
)

seconds = st.floats(0.001, 100.0)
samples = st.lists(seconds, min_size=1, max_size=30).map(sorted).map(lambda values: np.array(values, np.float64))


def knowing(tool: str, *durations: float) -> Observations:
    known = Observations()
    for duration in durations:
        known.tools.observe(tool, duration)
    return known


@pytest.mark.parametrize(
    ("tool", "durations", "ttl"),
    [(None, (), 0.0), ("ls", (), 2.0), ("ls", (1.0, 3.0), 2.0), ("ls", (1.0, 3.1), 0.0)],
)
def test_the_released_rule(tool: str | None, durations: tuple[float, ...], ttl: float) -> None:
    assert FixedThreshold().ttl(knowing("ls", *durations), FinishedTurn(tool, 9.0, 0.1)) == ttl


@given(samples, st.floats(0.0, 200.0))
def test_the_best_candidate_is_found(durations: np.ndarray[tuple[int], np.dtype[np.float64]], benefit: float) -> None:
    def gain(tau: float) -> float:
        return float((durations <= tau).mean()) * benefit - tau

    tau = best_ttl(benefit, durations)
    assert tau == 0.0 or tau in durations
    best = max(0.0, *(gain(float(each)) for each in durations))
    assert (gain(tau) if tau else 0.0) == pytest.approx(best, abs=1e-9)


@given(samples, st.floats(0.0, 200.0), st.floats(0.0, 1.0))
def test_the_best_shared_candidate_is_found(
    durations: np.ndarray[tuple[int], np.dtype[np.float64]], benefit: float, share: float
) -> None:
    def gain(tau: float) -> float:
        return float((durations <= tau).mean()) * benefit - share * float(np.minimum(durations, tau).mean())

    tau = best_shared_ttl(benefit, share, durations)
    best = max(0.0, *(gain(float(each)) for each in durations))
    assert (gain(tau) if tau else 0.0) == pytest.approx(best, abs=1e-9)


def test_cold_start_is_exponential_with_a_mean_of_a_second() -> None:
    assert cold_ttl(math.e) == pytest.approx(1.0)
    assert cold_ttl(1.0) == 0.0
    known = Observations()
    known.delay.add(3.0)
    assert CostBenefit().ttl(known, FinishedTurn("ls", 2.0, 0.1)) == pytest.approx(math.log(5.0))


def test_a_warm_tool_decides_by_its_own_durations() -> None:
    known = knowing("ls", *[0.5] * 100)
    assert CostBenefit().ttl(known, FinishedTurn("ls", 2.0, 0.1)) == 0.5
    assert CostBenefit().ttl(known, FinishedTurn("ls", 0.4, 0.1)) == 0.0
    assert CostBenefit().ttl(known, FinishedTurn(None, 2.0, 0.1)) == 0.0


def test_a_turn_that_holds_little_is_kept_longer_by_its_share() -> None:
    known = knowing("make", *[30.0] * 100)
    assert CostBenefit().ttl(known, FinishedTurn("make", 2.0, 0.05)) == 0.0
    assert MemoryShare().ttl(known, FinishedTurn("make", 2.0, 0.05)) == 30.0
    assert MemoryShare().ttl(known, FinishedTurn("make", 2.0, 0.10)) == 0.0
    assert MemoryShare().ttl(known, FinishedTurn(None, 2.0, 0.05)) == 0.0
    assert MemoryShare().ttl(Observations(), FinishedTurn("ls", 5.0, 0.05)) > 1.0


def test_reload_is_quadratic_and_checked() -> None:
    profile = PrefillReload(base=1.0, linear=2.0, quadratic=3.0)
    assert profile.seconds(10) == 1 + 20 + 300
    with pytest.raises(ConfigError, match="linear"):
        PrefillReload(linear=-1.0)


def test_the_queueing_delay_slides() -> None:
    delay = QueueingDelay(window=2)
    assert delay.mean == 0.0
    for each in (100.0, 1.0, 3.0):
        delay.add(each)
    assert delay.mean == 2.0


@given(st.lists(st.integers(1, 30), min_size=1, max_size=20))
def test_memoryfulness_is_minus_the_correlation(turns: list[int]) -> None:
    memory = Memoryfulness()
    for n in turns:
        memory.program_ended(n)
    k = np.array([k for n in turns for k in range(1, n + 1)], float)
    rest = np.array([n - k for n in turns for k in range(1, n + 1)], float)
    if k.std() == 0 or rest.std() == 0:
        assert memory.value == 1.0
    else:
        expected = min(max(-float(np.corrcoef(k, rest)[0, 1]), 0.0), 1.0)
        assert memory.value == pytest.approx(expected, abs=1e-9)


def test_equal_programs_have_full_memory() -> None:
    memory = Memoryfulness()
    assert memory.value == 1.0
    for _ in range(5):
        memory.program_ended(8)
    assert memory.value == pytest.approx(1.0)
