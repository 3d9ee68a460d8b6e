"""Fixed costs of a step: kernels by kind of layer, norms over heads, what is widened; models that no point is of."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokenyard.models.gpus import named_gpu
from tokenyard.models.layers import LayerSpec
from tokenyard.models.mixers import SoftmaxAttention
from tokenyard.models.named import named_model
from tokenyard.models.spec import ModelSpec
from tokenyard.questions.accuracy.deployments import measured_model, prepares_ahead, recipe_of
from tokenyard.steptime.calibrated import CalibratedLatency
from tokenyard.steptime.constants import shipped_constants
from tokenyard.steptime.formula import Parallelism, work_counts
from tokenyard.steptime.kernels import FEWER_WHERE_FUSED, kernels_of
from tokenyard.steptime.model import StepShape

sys.path.append(str(Path(__file__).resolve().parents[3] / "scripts"))
unfitted: Any = pytest.importorskip("unfitted")

ONE = StepShape(np.ones(1, np.int64), np.full(1, 1024, np.int64), 1, 1)


def seconds(spec: ModelSpec, gpu: str, tensor: int = 1, **more: Any) -> float:
    return CalibratedLatency(spec, named_gpu(gpu), parallel=Parallelism(tensor=tensor), **more).step_seconds(ONE)


def with_attention(spec: ModelSpec, **changes: Any) -> ModelSpec:
    def changed(layer: LayerSpec) -> LayerSpec:
        mixers = [replace(each, **changes) if isinstance(each, SoftmaxAttention) else each for each in layer.mixers]
        return replace(layer, mixers=tuple(mixers))

    return replace(spec, layers=tuple(changed(layer) for layer in spec.layers))


def test_kernels_of_a_dense_layer_and_of_one_with_experts() -> None:
    dense, experts = named_model("llama-3.1-8b").layers[0], named_model("qwen3-30b-a3b").layers[0]
    assert kernels_of(dense) == 7 + 4
    assert kernels_of(experts) == 7 + 2 + 13, "queries and keys of Qwen3 are normed head by head"
    assert kernels_of(measured_model("meta-llama/Llama-3.1-70B", "fp8").layers[0]) == 7 + 4 + 2 * 2


def test_a_layer_costs_its_kernels_whatever_its_width() -> None:
    constants, spec = shipped_constants(), named_model("llama-3.1-8b")
    counted = work_counts(spec, Parallelism())
    assert counted.kernels == 32 * 11
    values = constants.of(spec, named_gpu("h100"))
    more = CalibratedLatency(spec, named_gpu("h100"), changed={"kernel": values["kernel"] + 1e-6})
    assert more.step_seconds(ONE) - seconds(spec, "h100") == pytest.approx(counted.kernels * 1e-6)


def test_norms_over_all_heads_are_added_up_by_the_gpus_that_share_them() -> None:
    spec = measured_model("MiniMaxAI/MiniMax-M2.5", "fp8")
    plain = with_attention(spec, full_norms=False)
    alone, together = (seconds(spec, "h200", tp) - seconds(plain, "h200", tp) for tp in (1, 8))
    floor = shipped_constants().of(spec, named_gpu("h200"))["all_reduce"]
    assert together - alone == pytest.approx(spec.num_layers * floor)


def test_experts_of_4_bits_are_fewer_kernels_where_there_are_units_for_them() -> None:
    spec = measured_model("openai/gpt-oss-120b", "fp4")
    for gpu, fewer in (("h200", 0), ("b200", FEWER_WHERE_FUSED)):
        values = shipped_constants().of(spec, named_gpu(gpu))
        more = CalibratedLatency(spec, named_gpu(gpu), changed={"kernel": values["kernel"] + 1e-6})
        kernels = work_counts(spec, Parallelism()).kernels - spec.num_layers * fewer
        assert more.step_seconds(ONE) - seconds(spec, gpu) == pytest.approx(kernels * 1e-6)


def test_graphs_of_pieces_make_decodes_wait_for_launches() -> None:
    spec = measured_model("openai/gpt-oss-120b", "fp4")
    whole, pieces = seconds(spec, "h200", 8), seconds(spec, "h200", 8, piecewise=True)
    assert pieces > whole
    assert seconds(spec, "h200", 8, eager=True) > pieces


def test_a_step_is_prepared_ahead_since_0_14() -> None:
    assert [prepares_ahead(each) for each in ("0.12.0", "0.14.0", "0.33", "", "nightly-5b8c")] == [
        False,
        True,
        True,
        True,
        True,
    ]
    asked = ("Qwen/Qwen3-32B", "", "h100", "")
    assert not recipe_of(*asked, "0.12.0", 1024).async_scheduling
    assert recipe_of(*asked, "0.19.0", 1024).async_scheduling


def test_dense_products_are_no_faster_than_the_data_sheet() -> None:
    for one in shipped_constants().deployments:
        precision = "" if one.precision == "bf16" else one.precision
        values = shipped_constants().of(measured_model(one.model, precision), named_gpu(one.gpu))
        assert all(0 < values[f"gemm_{kind}"] <= 1 for kind in ("bfloat16", "float8", "float4"))


def test_models_that_no_point_is_of_are_met() -> None:
    """64 runs of 11 models that BLIS measured; nothing is fitted to them."""
    off = np.abs(np.concatenate(list(unfitted.errors().values())))
    assert len(off) == 64
    assert np.median(off) < 0.08
    assert np.quantile(off, 0.9) < 0.2
