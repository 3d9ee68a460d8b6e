"""A step's shape and sums, constant latency, transfers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenyard.errors import ConfigError
from tokenyard.models.gpus import named_gpu
from tokenyard.models.named import named_model
from tokenyard.steptime.fitted import FittedLatency
from tokenyard.steptime.load import load_latency
from tokenyard.steptime.model import ConstantLatency, LatencyModel, StepShape, StepWork, Transfer, TransferDirection
from tokenyard.steptime.roofline import RooflineLatency


def shape(*rows: tuple[int, int], sampled: int | None = None) -> StepShape:
    """A step of (new tokens, computed tokens) rows."""
    new = np.array([n for n, _ in rows], np.int64)
    computed = np.array([c for _, c in rows], np.int64)
    return StepShape(new, computed, len(rows) if sampled is None else sampled, int(new.sum()))


ROWS = st.lists(st.tuples(st.integers(1, 5000), st.integers(0, 200_000)), min_size=1, max_size=30)


@given(ROWS)
def test_sums_are_those_of_the_requests(rows: list[tuple[int, int]]) -> None:
    work = StepWork.of(shape(*rows))
    decodes = [c for n, c in rows if n == 1]
    prefills = [(n, c) for n, c in rows if n > 1]
    assert work.num_tokens == sum(n for n, _ in rows)
    assert work.num_sampled == len(rows)
    assert (work.num_decodes, work.decode_context) == (len(decodes), sum(c + 1 for c in decodes))
    assert (work.num_prefills, work.prefill_tokens) == (len(prefills), sum(n for n, _ in prefills))
    assert work.prefill_context == sum(c for _, c in prefills)
    pairs = sum(sum(range(c + 1, c + n + 1)) for n, c in prefills)
    assert work.prefill_pairs == pytest.approx(pairs)


def test_constant_latency() -> None:
    model = ConstantLatency(seconds=0.5)
    assert model.step_seconds(shape((1, 5))) == model.step_seconds(shape((900, 0))) == 0.5


@pytest.mark.parametrize("model", [ConstantLatency(), FittedLatency(), load_latency("constant:0")])
def test_transfers_cost_latency_and_bandwidth(model: LatencyModel) -> None:
    assert model.transfer_seconds(0, TransferDirection.TO_HOST) == 0.0
    small = model.transfer_seconds(1, TransferDirection.TO_DEVICE)
    large = model.transfer_seconds(1 << 30, TransferDirection.TO_DEVICE)
    assert small == pytest.approx(20e-6 + 1 / 25.6e9)
    assert large - small == pytest.approx(((1 << 30) - 1) / 25.6e9)


def test_transfer_of_a_named_gpu_uses_its_pcie_link() -> None:
    model = RooflineLatency(named_model("llama-3.1-8b"), named_gpu("h100"))
    seconds = model.transfer_seconds(64_000_000_000, TransferDirection.TO_HOST)
    assert seconds == pytest.approx(1 / 0.8, rel=0.001)


@pytest.mark.parametrize("bandwidth", [0, -1, float("inf"), float("nan")])
def test_bad_transfer_bandwidth(bandwidth: float) -> None:
    with pytest.raises(ConfigError, match="bandwidth"):
        Transfer(bandwidth=bandwidth)


@pytest.mark.parametrize("seconds", [-0.1, float("nan"), float("inf"), "1", True])
def test_bad_constant_seconds(seconds: float) -> None:
    with pytest.raises(ConfigError, match="seconds"):
        ConstantLatency(seconds=seconds)


def test_latency_by_name() -> None:
    llama, h100 = named_model("llama-3.1-8b"), named_gpu("h100")
    assert load_latency("constant:0.02").step_seconds(shape((1, 1))) == 0.02
    assert isinstance(load_latency("roofline", model=llama, gpu=h100), RooflineLatency)


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        ("fast", "latency", "use calibrated, roofline, constant:SECONDS, table:FOLDER, fitted:TRACE or FILE.py:NAME"),
        ("constant", "latency", "give seconds, for example constant:0.02"),
        ("constant:soon", "latency", "give seconds"),
        ("constant:-1", "latency", "give seconds, for example constant:0.02"),
        ("roofline:h100", "latency", "use calibrated, roofline"),
        ("table", "latency", "use calibrated, roofline"),
        ("roofline", "model", "name a model"),
        ("table:/nowhere", "model", "name a model"),
    ],
)
def test_latency_that_cannot_be_had(spec: str, field: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load_latency(spec)
    assert caught.value.field == field


def test_roofline_needs_a_gpu() -> None:
    with pytest.raises(ConfigError, match="name a GPU"):
        load_latency("roofline", model=named_model("llama-3.1-8b"))
    with pytest.raises(ConfigError, match="is not a folder"):
        load_latency("table:/nowhere", model=named_model("llama-3.1-8b"))
