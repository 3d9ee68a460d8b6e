"""Fitting: known coefficients come back, and none is ever negative."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenyard.errors import ConfigError
from tokenyard.models.gpus import named_gpu
from tokenyard.models.named import named_model
from tokenyard.steptime.fitted import FEATURES, FittedLatency, fit, stalled, step_features
from tokenyard.steptime.model import StepShape
from tokenyard.steptime.roofline import RooflineLatency


def random_steps(seed: int, count: int) -> list[StepShape]:
    rng = np.random.default_rng(seed)
    steps = []
    for _ in range(count):
        decodes = int(rng.integers(0, 64))
        chunks = rng.integers(2, 2000, int(rng.integers(0 if decodes else 1, 3)))
        new = np.concatenate((np.ones(decodes, np.int64), chunks))
        steps.append(StepShape(new, rng.integers(0, 20_000, len(new)), len(new), int(new.sum())))
    return steps


def table(steps: list[StepShape]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    return np.array([step_features(step) for step in steps])


def test_features_are_those_of_the_step() -> None:
    step = StepShape(np.array([1, 10, 1]), np.array([99, 5, 0]), 3, 12)
    assert step_features(step) == (1.0, 10, 2, 101, 10 * 5 + 55.0, 1, 1)


@pytest.mark.slow
@given(st.integers(0, 1000))
def test_known_coefficients_come_back(seed: int) -> None:
    true = FittedLatency(
        constant=2e-3,
        prefill_tokens=3e-5,
        decodes=1e-5,
        decode_context=4e-8,
        prefill_pairs=5e-9,
        prefills=7e-4,
        any_prefill=4e-3,
    )
    steps = random_steps(seed, 80)
    seconds = np.array([true.step_seconds(step) for step in steps])
    found = fit(table(steps), seconds)
    for name in FEATURES:
        assert getattr(found, name) == pytest.approx(getattr(true, name), rel=1e-6, abs=1e-15)


@pytest.mark.slow
@given(st.integers(0, 1000), st.lists(st.floats(1e-4, 1.0), min_size=7, max_size=40))
def test_no_coefficient_is_negative_whatever_was_measured(seed: int, measured: list[float]) -> None:
    steps = random_steps(seed, len(measured))
    found = fit(table(steps), np.array(measured))
    assert all(found.step_seconds(step) >= 0 for step in random_steps(seed + 1, 20))


def test_a_fit_stands_for_the_model_it_was_measured_on() -> None:
    roofline = RooflineLatency(named_model("llama-3.1-8b"), named_gpu("h100"))
    steps = random_steps(1, 400)
    found = fit(table(steps), np.array([roofline.step_seconds(step) for step in steps]))
    fresh = random_steps(2, 200)
    errors = [abs(found.step_seconds(step) / roofline.step_seconds(step) - 1) for step in fresh]
    assert float(np.mean(errors)) < 0.1


@pytest.mark.parametrize(
    ("features", "seconds", "message"),
    [
        (np.ones((9, 6)), np.ones(9), "give one row of 7 numbers"),
        (np.ones((9, 7)), np.ones(8), "give one row of 7 numbers"),
        (np.ones((6, 7)), np.ones(6), "give at least 7 steps"),
        (np.ones((9, 7)), np.zeros(9), "durations above 0"),
        (np.full((9, 7), np.nan), np.ones(9), "finite features"),
    ],
)
def test_measurements_that_cannot_be_fitted(
    features: np.ndarray[tuple[int, int], np.dtype[np.float64]],
    seconds: np.ndarray[tuple[int], np.dtype[np.float64]],
    message: str,
) -> None:
    with pytest.raises(ConfigError, match=message):
        fit(features, seconds)


def test_steps_during_which_the_machine_paused_do_not_move_the_fit() -> None:
    """One step in fifty takes up to twenty times as long; prices stay what they are, without the stalls."""
    true = FittedLatency(constant=0.04, prefill_tokens=1.3e-3, decodes=2e-3, decode_context=7e-6)
    rng = np.random.default_rng(5)
    steps = []
    for _ in range(1500):
        chunk = int(rng.integers(20, 100)) if rng.random() < 0.15 else 0
        new = np.array([1] * 3 + [chunk] * bool(chunk), np.int64)
        steps.append(StepShape(new, rng.integers(50, 900, len(new)), len(new), int(new.sum())))
    seconds = np.array([true.step_seconds(step) for step in steps]) * rng.normal(1, 0.05, len(steps))
    paused = rng.random(len(steps)) < 0.02
    seconds[paused] *= rng.uniform(2, 20, int(paused.sum()))
    found = fit(table(steps), seconds)
    large = StepShape(np.array([1, 1, 1, 256]), np.array([400, 400, 400, 0]), 4, 259)
    assert found.step_seconds(large) == pytest.approx(true.step_seconds(large), rel=0.06)
    expected = np.array([true.step_seconds(step) for step in steps])
    held = stalled(seconds, expected, table(steps)[:, FEATURES.index("prefills")] > 0)
    assert set(np.flatnonzero(held)) <= set(np.flatnonzero(paused))
    assert held.sum() > 10
    ran = [step for step, is_held in zip(steps, held, strict=True) if not is_held]
    assert sum(found.step_seconds(step) for step in ran) == pytest.approx(seconds[~held].sum(), rel=0.01)


def test_of_many_long_steps_the_longest_have_stalled() -> None:
    """A tenth of the steps takes eight times as long: that is how this machine is, and one in fifty counts as held."""
    seconds, is_prompt = np.full(500, 0.01), np.zeros(500, bool)
    seconds[::10] *= 8 + np.arange(50) / 50
    assert np.flatnonzero(stalled(seconds, np.full(500, 0.01), is_prompt)).tolist() == list(range(400, 500, 10))


@pytest.mark.slow
def test_what_any_prefill_costs_is_not_taken_for_the_cost_of_each() -> None:
    """A step with a prompt is launched in another way, however many prompts: where few steps have two, they tell."""
    true = FittedLatency(constant=0.016, prefill_tokens=6e-6, decodes=5e-5, any_prefill=0.0126)
    rng = np.random.default_rng(3)
    steps = []
    for number in range(2000):
        prompts = 2 if number % 150 == 0 else int(number % 5 == 0)
        new = np.array([1] * int(rng.integers(1, 4)) + [int(rng.integers(20, 200)) for _ in range(prompts)], np.int64)
        steps.append(StepShape(new, rng.integers(50, 900, len(new)), len(new), int(new.sum())))
    found = fit(table(steps), np.array([true.step_seconds(step) for step in steps]))
    three = StepShape(np.array([1, 40, 40, 40]), np.zeros(4, np.int64), 4, 121)
    assert found.step_seconds(three) == pytest.approx(true.step_seconds(three), rel=0.01)


def test_a_feature_that_no_step_has_costs_nothing() -> None:
    steps = [StepShape(np.ones(n, np.int64), np.full(n, 100 * n), n, n) for n in range(1, 30)]
    found = fit(table(steps), np.array([0.01 + 0.001 * len(step.num_new_tokens) for step in steps]))
    assert found.prefill_tokens == found.prefills == found.prefill_pairs == found.any_prefill == 0
    assert found.step_seconds(steps[4]) == pytest.approx(0.015)
