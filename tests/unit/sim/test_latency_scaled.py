"""Step times scaled by two factors: decodes, and what prompts add to a step."""

from __future__ import annotations

import numpy as np
import pytest

from tokenyard import ConfigError, Deployment
from tokenyard.models.gpus import named_gpu
from tokenyard.models.named import named_model
from tokenyard.steptime.calibrated import CalibratedLatency
from tokenyard.steptime.formula import Parallelism
from tokenyard.steptime.model import ConstantLatency, StepShape, TransferDirection, decode_seconds
from tokenyard.steptime.scaled import ScaledLatency, StepTimeFactors, known_error_of, read_factors

MODEL = CalibratedLatency(named_model("llama-3.1-8b"), named_gpu("h100"))
FACTORS = StepTimeFactors(1.5, 3.0)


def shape(*rows: tuple[int, int]) -> StepShape:
    """A step of (new tokens, computed tokens) rows."""
    new = np.array([n for n, _ in rows], np.int64)
    return StepShape(new, np.array([c for _, c in rows], np.int64), len(rows), int(new.sum()))


DECODES = [(1, 500), (1, 2000)]
PROMPTS = [(700, 0), (300, 1024)]


def test_each_part_of_a_step_has_its_factor() -> None:
    scaled, host = ScaledLatency(MODEL, FACTORS), MODEL.host_seconds
    decode, prompt, both = (MODEL.step_seconds(shape(*rows)) for rows in (DECODES, PROMPTS, PROMPTS + DECODES))
    assert scaled.step_seconds(shape(*DECODES)) == pytest.approx(host + 1.5 * (decode - host))
    assert scaled.step_seconds(shape(*PROMPTS)) == pytest.approx(host + 3.0 * (prompt - host))
    mixed = host + 1.5 * (decode - host) + 3.0 * (both - decode)
    assert scaled.step_seconds(shape(*PROMPTS, *DECODES)) == pytest.approx(mixed)
    assert scaled.host_seconds == host
    assert scaled.transfer_seconds(1 << 20, TransferDirection.TO_HOST) == MODEL.transfer_seconds(
        1 << 20, TransferDirection.TO_HOST
    )


def test_factors_of_one_change_nothing() -> None:
    scaled = ScaledLatency(MODEL, StepTimeFactors(1.0, 1.0))
    for rows in (DECODES, PROMPTS, PROMPTS + DECODES):
        assert scaled.step_seconds(shape(*rows)) == pytest.approx(MODEL.step_seconds(shape(*rows)), rel=1e-12)


def test_steps_of_a_leap_take_what_each_takes_alone() -> None:
    scaled = ScaledLatency(MODEL, FACTORS)
    context = np.array([500, 2000], np.int64)
    alone = [scaled.step_seconds(shape((1, 500 + i), (1, 2000 + i))) for i in range(40)]
    assert list(decode_seconds(scaled, context, 40)) == pytest.approx(alone)
    constant = ScaledLatency(ConstantLatency(seconds=0.02), FACTORS)
    assert not hasattr(constant, "decode_seconds")
    assert list(decode_seconds(constant, context, 3)) == pytest.approx([0.03] * 3)


def test_ranks_that_step_together() -> None:
    model = CalibratedLatency(
        named_model("qwen3-30b-a3b"), named_gpu("h100"), parallel=Parallelism(data=2, expert=True)
    )
    scaled, host = ScaledLatency(model, FACTORS), model.host_seconds
    decode, prompt = shape(*DECODES), shape(*PROMPTS)
    alone = model.ranks_seconds([decode, None])
    whole = model.ranks_seconds([decode, prompt])
    assert scaled.ranks_seconds([decode, prompt]) == pytest.approx(host + 1.5 * (alone - host) + 3 * (whole - alone))


def test_drafts_of_a_request_that_decodes_are_decoding() -> None:
    scaled, host = ScaledLatency(MODEL, FACTORS, decode_tokens=4), MODEL.host_seconds
    verifying = shape((4, 500), (2, 900))
    assert scaled.step_seconds(verifying) == pytest.approx(host + 1.5 * (MODEL.step_seconds(verifying) - host))


@pytest.mark.parametrize("text", ["", "x", "0", "-1,2", "1,nan", "1,2,3", "inf", "1e9"])
def test_factors_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_factors(text)
    assert caught.value.field == "step_time_factors"


def test_a_deployment_says_that_its_step_times_are_scaled() -> None:
    assert read_factors("2") == StepTimeFactors(2.0, 2.0)
    deployment = Deployment("vllm serve meta-llama/Llama-3.1-8B", gpu="h100", step_time_factors="1.5,3")
    resolved = deployment.resolve()
    assert isinstance(resolved.latency, ScaledLatency)
    assert resolved.latency.factors == FACTORS
    assert str(resolved.header.step_time_error).startswith(
        "scaled, decodes x 1.5, prompts x 3; before that nine of ten"
    )
    assert known_error_of(resolved.latency) is not None
    assert known_error_of(ConstantLatency()) is None
