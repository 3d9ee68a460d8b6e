"""Step times that lean on a model: a fit where steps were measured, the model, scaled, where none were."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from tokenyard.models.gpus import named_gpu
from tokenyard.models.named import named_model
from tokenyard.questions.recorded.ask import StepWatch
from tokenyard.steptime.carried import Reach, extrapolate
from tokenyard.steptime.fitted import FittedLatency, MeasuredStep, fit_steps, step_features
from tokenyard.steptime.model import ConstantLatency, LatencyModel, MappedLatency, StepShape
from tokenyard.steptime.roofline import RooflineLatency

SLOWER = 1.3
"""How much longer than the model says the machine of these tests takes."""


def shape(decodes: int, context: int, chunk: int = 0) -> StepShape:
    new = np.array([1] * decodes + [chunk] * bool(chunk), np.int64)
    computed = np.array([context] * decodes + [0] * bool(chunk), np.int64)
    return StepShape(new, computed, len(new), int(new.sum()))


def small_steps(machine: LatencyModel, scale: float, count: int = 400) -> list[MeasuredStep]:
    """Steps of at most four decodes and prefills of at most 100 tokens, each a little off."""
    rng = np.random.default_rng(7)
    steps = []
    for number in range(count):
        chunk = int(rng.integers(2, 100)) if rng.random() < 0.3 else 0
        each = shape(int(rng.integers(0 if chunk else 1, 5)), int(rng.integers(1, 1000)), chunk)
        seconds = machine.step_seconds(each) * scale * rng.normal(1, 0.03)
        steps.append(MeasuredStep(step_features(each), seconds, float(number)))
    return steps


@pytest.fixture
def model() -> RooflineLatency:
    return RooflineLatency(model=named_model("llama-3.1-8b"), gpu=named_gpu("h100"))


LARGE = [shape(256, 2000), shape(64, 8000), shape(4, 500, 2048), shape(64, 2000, 4096)]


def test_larger_steps_follow_the_model_at_the_machines_speed(model: RooflineLatency) -> None:
    steps = small_steps(model, SLOWER)
    alone = fit_steps(steps, "here")
    leaning = extrapolate(alone, steps, model)
    assert leaning is not None
    assert leaning.error < 0.05
    for each in (shape(256, 2000), shape(64, 8000), shape(4, 500, 2048), shape(64, 2000, 4096)):
        true = SLOWER * model.step_seconds(each)
        assert leaning.latency.step_seconds(each) == pytest.approx(true, rel=0.1)
    prefill = shape(4, 500, 2048)
    assert alone.step_seconds(prefill) < 0.7 * SLOWER * model.step_seconds(prefill), "the fit alone would do"


def test_steps_like_those_measured_take_what_is_fitted(model: RooflineLatency) -> None:
    dearer = FittedLatency(constant=8e-3, prefill_tokens=2e-5, decodes=2e-4, prefills=1e-4)
    steps = small_steps(dearer, 1.0)
    alone = fit_steps(steps, "here")
    leaning = extrapolate(alone, steps, model)
    assert leaning is not None
    assert Reach.of(steps).decodes == 4
    for each in (shape(1, 100), shape(4, 900), shape(2, 500, 60)):
        assert leaning.latency.step_seconds(each) == alone.step_seconds(each)
    assert leaning.latency.step_seconds(shape(5, 100)) > alone.step_seconds(shape(4, 100))


def test_there_is_no_jump_where_the_reach_ends(model: RooflineLatency) -> None:
    steps = small_steps(model, SLOWER)
    leaning = extrapolate(fit_steps(steps, "here"), steps, model)
    assert leaning is not None
    most = Reach.of(steps).prefill_tokens
    within, beyond = (leaning.latency.step_seconds(shape(2, 500, int(most * part))) for part in (1.08, 1.12))
    assert within <= beyond == pytest.approx(within, rel=0.05)


def test_what_the_trace_has_none_of_is_the_models_alone(model: RooflineLatency) -> None:
    steps = [step for step in small_steps(model, 1.0) if not step.features[-1]]
    leaning = extrapolate(fit_steps(steps, "here"), steps, model)
    assert leaning is not None
    prefill = shape(0, 0, 2048)
    assert leaning.latency.step_seconds(prefill) == pytest.approx(model.step_seconds(prefill), rel=0.1)


def test_a_model_that_is_far_off_is_not_used(model: RooflineLatency) -> None:
    rng = np.random.default_rng(3)
    steps = small_steps(ConstantLatency(), 1.0)
    uneven = [msgspec.structs.replace(step, seconds=step.seconds * float(rng.choice((1.0, 4.0)))) for step in steps]
    assert extrapolate(fit_steps(uneven, "here"), uneven, model) is None
    assert extrapolate(fit_steps(steps, "here"), steps, FittedLatency()) is None, "a model without durations"


def test_time_in_larger_steps_is_counted_and_named() -> None:
    watch = StepWatch(Reach(prefill_tokens=100, prefills=1, decodes=4))
    watched = MappedLatency(ConstantLatency(seconds=1.0), watch.note)
    for _ in range(18):
        watched.step_seconds(shape(4, 10, 100))
    assert watch.doubt(None) is None
    watched.step_seconds(shape(9, 10))
    watched.step_seconds(shape(2, 10, 300))
    assert watch.doubt(None) == (
        "10% of the time is spent in steps larger than those fitted (up to 300 prompt tokens in one, those fitted have"
        " at most 100; up to 9 decodes in one, those fitted have at most 4): their durations are extrapolated from"
        " smaller ones"
    )
    assert "those of the model of an H100, scaled" in str(watch.doubt("an H100"))
