"""Weights that torchao stores, in bytes, as vLLM 0.33 with torchao 0.18 holds them on one GPU of so many."""

from __future__ import annotations

from typing import Any

import pytest

from tokenyard.errors import ConfigError
from tokenyard.models.named import config_of
from tokenyard.models.reading.read import model_from_config
from tokenyard.models.spec import ModelSpec

INT4 = {"_type": "Int4WeightOnlyConfig", "_version": 2, "_data": {"group_size": 128}}
INT8 = {"_type": "Int8WeightOnlyConfig", "_version": 2, "_data": {"group_size": None}}
FP8 = {"_type": "Float8WeightOnlyConfig", "_version": 2, "_data": {}}
INTX = {
    "_type": "Int8DynamicActivationIntxWeightConfig", "_version": 2, "_data": {
        "weight_dtype": {"_type": "torch.dtype", "_data": "int4"},
        "weight_granularity": {"_type": "PerGroup", "_version": 1, "_data": {"group_size": 32}},
    },
}  # fmt: skip
NAMED = {
    "_type": "ModuleFqnToConfig", "_version": 1, "_data": {
        "module_fqn_to_config": {"_default": INT4, "re:.*down_proj": INT8, "model.layers.0.self_attn.o_proj": None},
    },
}  # fmt: skip


def stored(name: str, kind: dict[str, Any], **more: Any) -> ModelSpec:
    section = {"quant_method": "torchao", "quant_type": {"default": kind}, "modules_to_not_convert": None, **more}
    raw = {**config_of(name)[2], "quantization_config": section}
    return model_from_config(raw, name=name, where="config.json")


@pytest.mark.parametrize(
    ("name", "kind", "gpus", "in_vllm"),
    [
        ("qwen3-8b", INT4, 1, 6_179_874_816),
        ("qwen3-8b", INT4, 2, 3_090_245_632),
        ("qwen3-8b", INT8, 1, 9_442_707_456),
        ("qwen3-8b", FP8, 2, 4_721_551_360),
        ("qwen3-8b", INTX, 1, 10_086_868_992),
        ("qwen3-8b", NAMED, 1, 7_054_600_192),
        ("phi-4-mini", NAMED, 2, 1_666_799_616),
        ("qwen3-30b-a3b", INT4, 1, 59_715_121_152),  # experts stay as they are
        ("gemma-3-4b", INT4, 1, 3_480_329_376),
        ("gemma-3-4b", INT8, 2, 2_502_921_608),
    ],
)
def test_weights_are_as_large_as_in_vllm(name: str, kind: dict[str, Any], gpus: int, in_vllm: int) -> None:
    assert stored(name, kind).weight_bytes(gpus) == pytest.approx(in_vllm, rel=0.003)


def test_what_a_file_leaves_alone_stays_as_it_is() -> None:
    whole, part = stored("qwen3-8b", INT4), stored("qwen3-8b", INT4, modules_to_not_convert=["down_proj"])
    assert part.weight_bytes() - whole.weight_bytes() == pytest.approx(36 * 4096 * 12_288 * (16 - 4.25) / 8, rel=1e-6)


@pytest.mark.parametrize("section", ["int4_weight_only", {}, {"default": {"_type": "NVFP4InferenceConfig"}}])
def test_other_forms_are_refused(section: object) -> None:
    with pytest.raises(ConfigError, match="quant_type"):
        stored("qwen3-8b", INT4, quant_type=section)
