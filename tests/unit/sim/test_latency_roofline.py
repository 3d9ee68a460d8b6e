"""The roofline: right where a bound is known by hand, monotone everywhere, near what was measured."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenyard.errors import ConfigError
from tokenyard.models.gpus import named_gpu
from tokenyard.models.named import named_model
from tokenyard.steptime.load import load_tables
from tokenyard.steptime.model import LatencyModel, StepShape
from tokenyard.steptime.roofline import Efficiency, RooflineLatency

LLAMA, H100 = named_model("llama-3.1-8b"), named_gpu("h100")
IDEAL = Efficiency(gemm=1.0, attention=1.0, memory=1.0, experts=1.0, mixed=1.0)


def shape(*rows: tuple[int, int]) -> StepShape:
    new = np.array([n for n, _ in rows], np.int64)
    return StepShape(new, np.array([c for _, c in rows], np.int64), len(rows), int(new.sum()))


def ideal(model: str = "llama-3.1-8b", world: int = 1) -> RooflineLatency:
    return RooflineLatency(
        named_model(model),
        H100,
        tensor_parallel_size=world,
        efficiency=IDEAL,
        step_overhead=0.0,
        layer_overhead=0.0,
        sequence_overhead=0.0,
    )


def test_one_decode_reads_the_weights_and_its_cache() -> None:
    weights = (LLAMA.num_active_parameters + LLAMA.head_parameters) * 2
    cache = 10_001 * LLAMA.kv_bytes_per_token()
    assert ideal().step_seconds(shape((1, 10_000))) == pytest.approx((weights + cache) / 3350e9, rel=0.005)


def test_a_long_prefill_is_arithmetic() -> None:
    linear = 2 * LLAMA.num_active_parameters * 8192
    attention = 4 * 32 * 32 * 128 * (8192 * 8193 / 2)
    elementwise = 32 * (3 * 14_336 + 4 * 4096) * 2 * 8192 / 3350e9
    head = LLAMA.head_parameters * 2 / 3350e9
    expected = (linear + attention) / 989e12 + elementwise + head
    assert ideal().step_seconds(shape((8192, 0))) == pytest.approx(expected, rel=0.005)


def test_a_prefix_hit_costs_less_than_computing_it() -> None:
    model = ideal()
    assert model.step_seconds(shape((1000, 7000))) < model.step_seconds(shape((8000, 0)))
    assert model.step_seconds(shape((1000, 7000))) > model.step_seconds(shape((1000, 0)))


def test_a_mixture_of_experts_reads_the_experts_that_are_touched() -> None:
    model = named_model("qwen3-30b-a3b")
    one = ideal("qwen3-30b-a3b").step_seconds(shape((1, 0)))
    many = ideal("qwen3-30b-a3b").step_seconds(shape(*[(1, 0)] * 512))
    assert one == pytest.approx((model.num_active_parameters + model.head_parameters) * 2 / 3350e9, rel=0.01)
    assert many > (model.num_parameters - model.head_parameters) * 2 / 3350e9


def test_tensor_parallel_is_faster_but_not_by_its_size() -> None:
    one, four = ideal(), ideal(world=4)
    for step in (shape((1, 5000)), shape((4096, 0))):
        assert one.step_seconds(step) / 4 < four.step_seconds(step) < one.step_seconds(step)


@given(
    st.lists(st.tuples(st.integers(1, 2000), st.integers(0, 30_000)), min_size=1, max_size=20),
    st.tuples(st.integers(1, 2000), st.integers(0, 30_000)),
    st.sampled_from(["llama-3.1-8b", "qwen3-30b-a3b"]),
)
def test_more_work_never_takes_less_time(rows: list[tuple[int, int]], more: tuple[int, int], name: str) -> None:
    model = RooflineLatency(named_model(name), named_gpu("rtx4090"))
    before = model.step_seconds(shape(*rows))
    assert before > 0
    assert model.step_seconds(shape(*rows, more)) >= before * (1 - 1e-12)
    assert model.step_seconds(shape(*[(n, c + 100) for n, c in rows])) > before


def test_a_model_that_cannot_be_split() -> None:
    with pytest.raises(ConfigError, match="tensor_parallel_size"):
        RooflineLatency(LLAMA, H100, tensor_parallel_size=7)
    with pytest.raises(ConfigError, match="step_overhead"):
        RooflineLatency(LLAMA, H100, step_overhead=-1.0)


STEPS = {
    "one decode": shape((1, 500)),
    "32 decodes": shape(*[(1, 1000)] * 32),
    "128 decodes": shape(*[(1, 2000)] * 128),
    "prefill": shape((2048, 0)),
    "prefill behind context": shape((2048, 8192)),
    "short prefills": shape(*[(512, 0)] * 4),
    "mixed": shape((1024, 0), *[(1, 1000)] * 32),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gpu", "model", "folder", "world"),
    [
        ("rtx4090", "llama-3.1-8b", "lss_RTX4090_Llama-3.1-8B", 1),
        ("rtxpro6000", "llama-3.1-8b", "lss_RTXPRO6000_Llama-3.1-8B", 1),
        ("rtxpro6000", "qwen3-32b", "lss_RTXPRO6000_Qwen3-32B", 2),
        ("rtxpro6000", "qwen3-30b-a3b", "lss_RTXPRO6000_Qwen3-30B-A3B-Instruct-2507", 1),
        ("h100", "llama-3.1-8b", ".", 1),
        ("h100", "qwen3-32b", ".", 4),
        ("h200", "qwen3-30b-a3b", ".", 1),
    ],
)
def test_roofline_and_measured_tables_agree(shared: Path, gpu: str, model: str, folder: str, world: int) -> None:
    """Every kind of step within 35 %, and 15 % on average."""
    shape_, device = named_model(model), named_gpu(gpu)
    tables = load_tables(shared / "data/latency" / folder, shape_, gpu=device, tensor_parallel_size=world)
    roofline = RooflineLatency(shape_, device, tensor_parallel_size=world)
    errors = [abs(roofline.step_seconds(each) / tables.step_seconds(each) - 1) for each in STEPS.values()]
    assert max(errors) < 0.35
    assert sum(errors) / len(errors) < 0.15


def steady_tpot(model: LatencyModel, batch: int, isl: int, osl: int) -> float:
    """Seconds per output token of ``batch`` concurrent requests in the steady state, in the mean.

    Each step decodes all of them; every ``osl / batch`` steps one prompt of ``isl`` tokens is prefilled.
    """
    decodes = [(1, isl + osl // 2)] * batch
    plain = model.step_seconds(shape(*decodes))
    with_prefill = model.step_seconds(shape((isl, 0), *decodes))
    return plain + batch / osl * (with_prefill - plain)


def test_roofline_against_measured_tpot(shared: Path) -> None:
    """Qwen3-32B under vLLM 0.12 on 2, 4 and 8 H100: the points that memory does not limit, 15 % in the mean."""
    errors = []
    with gzip.open(shared / "data/groundtruth/aic_silicon_sample_ttft_tpot.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            if (row["model_path"], row["system"], row["backend"], row["precision"]) != (
                "Qwen/Qwen3-32B",
                "h100_sxm",
                "vllm",
                "",
            ):
                continue
            world, batch, isl, osl = (int(row[key]) for key in ("tp_size", "batch_size", "isl", "osl"))
            if osl < 500 or (world == 2 and batch * (isl + osl) > 300_000):
                continue
            model = RooflineLatency(named_model("qwen3-32b"), H100, tensor_parallel_size=world)
            errors.append(steady_tpot(model, batch, isl, osl) / float(row["silicon_tpot_ms"]) * 1e3 - 1)
    assert len(errors) == 39
    assert float(np.abs(errors).mean()) < 0.15
    assert abs(float(np.mean(errors))) < 0.10
