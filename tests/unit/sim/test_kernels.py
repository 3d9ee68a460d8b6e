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

sys.path.append(str(Path(__file__).resolve().parents[3] / "lab"))
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


def test_what_the_host_does_for_each_request_is_shown_where_no_step_is_prepared_ahead() -> None:
    spec, gpu = measured_model("Qwen/Qwen3-32B", ""), named_gpu("h100")
    many = StepShape(np.ones(64, np.int64), np.full(64, 1024, np.int64), 64, 64)
    ahead, alone = (CalibratedLatency(spec, gpu, prepared_ahead=each) for each in (True, False))
    each = shipped_constants().of(spec, gpu)["host_request"]
    assert each > 0
    assert alone.step_seconds(many) - ahead.step_seconds(many) == pytest.approx(64 * each)
    assert sum(alone.terms(alone.work_of(many)).values()) == pytest.approx(alone.step_seconds(many))


def test_kv_of_8_bits_is_widened_where_attention_does_not_compute_with_it() -> None:
    spec = measured_model("meta-llama/Llama-3.1-70B", "fp8")
    many = StepShape(np.ones(64, np.int64), np.full(64, 8192, np.int64), 64, 64)
    for gpu, widens in (("h200", True), ("b200", False)):
        plain, free = (
            CalibratedLatency(spec, named_gpu(gpu), kv_cache_dtype="fp8", changed=changed).step_seconds(many)
            for changed in ({}, {"kv_widening": 0.0})
        )
        assert (plain > free) == widens


def test_what_experts_move_is_shared_out_with_whole_experts_alone() -> None:
    spec = measured_model("MiniMaxAI/MiniMax-M2.5", "fp8")
    cut, dealt = (work_counts(spec, Parallelism(tensor=4, expert=expert)).experts[0] for expert in (False, True))
    assert cut.pair_bytes == dealt.pair_bytes == 3 * spec.hidden_size * 2
    assert cut.num_local == 4 * dealt.num_local


def test_a_campaign_sent_its_prompts_again() -> None:
    name, load = "nvidia/Llama-3.1-8B-Instruct-FP8", 4000
    assert recipe_of(name, "fp8", "h200", "", "0.12.0", load).distinct_prompts == 100
    for gpu, version in (("h100", "0.12.0"), ("h200", "0.14.0"), ("h200", "")):
        assert recipe_of(name, "fp8", gpu, "", version, load).distinct_prompts == 0
    assert recipe_of("Qwen/Qwen3-32B", "", "h200", "", "0.12.0", 1024).distinct_prompts == 0


def test_dense_products_are_no_faster_than_the_data_sheet() -> None:
    for one in shipped_constants().deployments:
        precision = "" if one.precision == "bf16" else one.precision
        values = shipped_constants().of(measured_model(one.model, precision), named_gpu(one.gpu))
        assert all(0 < values[f"gemm_{kind}"] <= 1 for kind in ("bfloat16", "float8", "float4"))


def test_models_that_no_point_is_of_are_met() -> None:
    """68 runs of 13 models that BLIS, GPUStack and NVIDIA measured; nothing is fitted to them."""
    off = np.abs(np.concatenate(list(unfitted.errors().values())))
    assert len(off) == 68
    assert np.median(off) < 0.08
    assert np.quantile(off, 0.9) < 0.2
