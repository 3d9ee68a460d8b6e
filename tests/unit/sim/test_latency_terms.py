"""The terms of a deployment's model, scaled to measured steps; which fit is taken, and what ratios say."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from tokenyard.models.gpus import named_gpu
from tokenyard.models.named import MODELS, named_model
from tokenyard.questions.recorded.recorded_run import fitted_to_model
from tokenyard.steptime.calibrated import CalibratedLatency
from tokenyard.steptime.carried import Ratios, ratios, scaled
from tokenyard.steptime.fitted import (
    FittedLatency,
    MeasuredStep,
    ScaledTerms,
    fit_terms,
    predicted_by_terms,
    step_features,
)
from tokenyard.steptime.formula import Parallelism
from tokenyard.steptime.load import load_latency
from tokenyard.steptime.model import HOST, ConstantLatency, LatencyModel, StepShape, StepWork

KINDS = ("llama-3.1-8b", "qwen3-30b-a3b", "deepseek-v2-lite", "jamba-1.5-mini", "gemma-3-12b", "granite-4.0-h-tiny")


def model_of(name: str, **more: Any) -> CalibratedLatency:
    return CalibratedLatency(named_model(name), named_gpu("h100"), **more)


def shapes(count: int, seed: int = 5) -> list[StepShape]:
    """Decodes, prompts in chunks, and both."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        decodes, prompts = int(rng.integers(1, 60)), int(rng.random() < 0.2)
        new = np.array([1] * decodes + [int(rng.integers(2, 900))] * prompts, np.int64)
        computed = np.array([int(rng.integers(1, 5000))] * decodes + [0] * prompts, np.int64)
        found.append(StepShape(new, computed, len(new), int(new.sum())))
    return found


def measured(machine: LatencyModel, some: list[StepShape], *, ahead: bool = False) -> list[MeasuredStep]:
    hidden = machine.host_seconds if ahead else 0.0
    return [
        MeasuredStep(step_features(each), machine.step_seconds(each) - hidden, float(at), StepWork.of(each), ahead)
        for at, each in enumerate(some)
    ]


@pytest.mark.slow
def test_terms_are_all_that_a_step_takes() -> None:
    for name, spec in MODELS.items():
        tp = next(size for size in (8, 4, 2, 1) if _splits(spec, size))
        parallel = Parallelism(tensor=tp, expert=spec.has_experts)
        latency = CalibratedLatency(spec, named_gpu("h200"), parallel=parallel, context_ranks=1)
        for each in shapes(20):
            terms = latency.terms(latency.work_of(each))
            assert min(terms.values()) >= -1e-12, name
            assert sum(terms.values()) == pytest.approx(latency.step_seconds(each), rel=1e-9), name
            assert terms[HOST] == latency.host_seconds, name


def _splits(spec: Any, size: int) -> bool:
    try:
        spec.check_tensor_parallel(size)
    except Exception:  # noqa: BLE001 - whatever it says: another size is tried
        return False
    return True


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("ahead", [False, True])
def test_a_machine_like_its_model_is_found_again(name: str, *, ahead: bool) -> None:
    model = model_of(name)
    steps = measured(model, shapes(200), ahead=ahead)
    fitted = fit_terms(model, steps)
    assert fitted is not None
    assert list(fitted.scales.values()) == pytest.approx([1.0] * len(fitted.scales), abs=1e-6)
    for each in shapes(40, seed=9):
        assert fitted.step_seconds(each) == pytest.approx(model.step_seconds(each), rel=1e-6)
    assert fitted.host_seconds == pytest.approx(model.host_seconds)
    assert predicted_by_terms(fitted, steps) == pytest.approx([step.seconds for step in steps])


@pytest.mark.parametrize("name", KINDS)
def test_a_machine_whose_terms_are_off_each_by_its_own_is_predicted_beyond_its_steps(name: str) -> None:
    """Attention takes half as long again, all else a tenth longer; four times as many decodes are asked about."""
    model = model_of(name)
    machine = ScaledTerms(model, {term: 1.5 if term == "attention" else 1.1 for term in _terms(model)})
    fitted = fit_terms(model, measured(machine, shapes(400)))
    assert fitted is not None
    new, context = np.ones(240, np.int64), np.full(240, 3000)
    asked = StepShape(new, context, 240, 240)
    assert fitted.step_seconds(asked) == pytest.approx(machine.step_seconds(asked), rel=0.03)


def _terms(model: CalibratedLatency) -> dict[str, Any]:
    return model.terms(model.work_of(shapes(1)[0]))


def test_few_steps_scale_the_model_as_a_whole() -> None:
    model = model_of("qwen3-30b-a3b")
    machine = ScaledTerms(model, dict.fromkeys(_terms(model), 1.3))
    fitted = fit_terms(model, measured(machine, shapes(1)))
    assert fitted is not None
    assert list(fitted.scales.values()) == pytest.approx([1.3] * len(fitted.scales), rel=1e-3)
    assert fit_terms(model, []) is None


def test_the_fit_is_taken_that_predicts_unseen_steps_better() -> None:
    model, some = model_of("qwen3-30b-a3b"), shapes(400)
    rng = np.random.default_rng(1)

    def fit_of(machine: LatencyModel) -> Any:
        noisy = [
            msgspec.structs.replace(step, seconds=step.seconds * rng.normal(1, 0.01))
            for step in measured(machine, some)
        ]
        return fitted_to_model(noisy, "here", 0.0, model, "a model", is_virtual=True)

    like = fit_of(model)
    assert isinstance(like.latency, ScaledTerms)
    assert like.quality.terms_of == "a model"
    assert like.quality.median_error < 0.02
    unlike = fit_of(FittedLatency(constant=8e-3, prefill_tokens=2e-5, decodes=2e-4, prefills=1e-4))
    assert unlike.quality.terms_of is None
    assert unlike.quality.median_error < 0.02, "a machine of which the model knows nothing is met as before"


# ---- two deployments


SAME = {"model": "llama-3.1-8b", "gpu": "h100"}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, {"kv_cache_dtype": "fp8"}),
        ({}, {"tensor_parallel_size": 2}),
        ({}, {"gpu": "h200"}),
        ({}, {"model": "llama-3.1-8b-fp8"}),
        ({}, {"enforce_eager": True}),
        ({}, {"max_cudagraph_capture_size": 32}),
        ({}, {"pipeline_parallel_size": 2}),
        ({}, {"enable_lora": True, "has_adapters": True}),
        ({"model": "qwen3-30b-a3b", "tensor_parallel_size": 2}, {"enable_expert_parallel": True}),
        ({"model": "qwen3-32b", "tensor_parallel_size": 16}, {"decode_context_parallel_size": 2}),
        ({"max_cudagraph_capture_size": 8}, {"max_cudagraph_capture_size": 4}),
        ({"max_cudagraph_capture_size": 16}, {"max_cudagraph_capture_size": 8}),
        ({"max_cudagraph_capture_size": 512}, {"max_cudagraph_capture_size": 400}),
    ],
)
def test_whatever_alters_step_times_is_seen_in_the_steps_that_are_priced(
    first: dict[str, Any], second: dict[str, Any]
) -> None:
    before = load_latency("calibrated", **(SAME | first))
    after = load_latency("calibrated", **(SAME | first | second))
    found = ratios(before, after)
    assert not found.are_one
    assert ratios(before, before) == Ratios(1.0, 1.0)
    back = ratios(after, before)
    assert (back.least, back.most) == pytest.approx((1 / found.most, 1 / found.least))


def test_the_host_is_carried_over_by_itself() -> None:
    """Steps that were prepared ahead take the device's time alone, before and after."""
    before, after = (
        ConstantLatency(seconds=0.010, host_seconds=0.002),
        ConstantLatency(seconds=0.018, host_seconds=0.002),
    )
    machine = ConstantLatency(seconds=0.018, host_seconds=0.002)
    latency = scaled(machine, before, after)
    each = shapes(1)[0]
    assert latency.host_seconds == 0.002
    assert latency.step_seconds(each) - latency.host_seconds == pytest.approx(0.016 * 2)
    assert tuple(ratios(before, after)) == pytest.approx((1.8, 1.8))
    assert not ratios(ConstantLatency(seconds=1.0), ConstantLatency(seconds=1.0, host_seconds=0.5)).are_one
