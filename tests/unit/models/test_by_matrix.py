"""Formats that a checkpoint names for single matrices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.planner_answers import recorded

from tokenyard.errors import ConfigError
from tokenyard.memory.kv_plan import plan_kv_cache
from tokenyard.models.fields import Fields
from tokenyard.models.formats import WeightFormat
from tokenyard.models.mixers import CompressedAttention
from tokenyard.models.named import config_of
from tokenyard.models.reading.quantization import read_quantization
from tokenyard.models.reading.read import model_from_config

REGISTRY = recorded(Path(__file__).with_name("registry.json.gz"))


@pytest.mark.parametrize(
    ("section", "module", "experts", "bits"),
    [
        ({"dynamic": {"-:.*attn.*": {}}}, "model.layers.0.self_attn", False, 16),
        ({"dynamic": {"-:.*attn.*": {}}}, "model.layers.0.mlp", False, 4.15625),
        ({"dynamic": {r"+:.*\.down_proj.*": {"bits": 8}}}, "model.layers.0.mlp", False, (2 * 4.15625 + 8.1875) / 3),
        ({"dynamic": {"lm_head": {}}}, "model.layers.0.mlp.experts", True, 4.125),
        ({"modules_in_block_to_quantize": [["self_attn.q_proj"]]}, "model.layers.0.mlp", False, 16),
        ({"modules_in_block_to_quantize": [["self_attn.q_proj"]]}, "model.layers.0.mlp.experts", True, 4.125),
    ],
)
def test_gptq_has_other_bits_where_the_file_says_so(
    section: dict[str, Any], module: str, experts: bool, bits: float
) -> None:
    fields = Fields("config.json", {"quant_method": "gptq", "bits": 4, "group_size": 128, **section})
    found = read_quantization(fields, "bfloat16").of(module, experts=experts)
    assert found.bits_per_weight == pytest.approx(bits)


@pytest.mark.parametrize(
    ("entry", "bits"),
    [
        ({"model.layers.0.mlp.gate_proj": {"bits": 16}}, (16 + 2 * 4.15625) / 3),
        ({"mlp.gate_proj": {"bits": 16}}, (16 + 2 * 4.15625) / 3),
        ({".*mlp.*": {"bits": 8}}, 8.1875),
        ({"lm_head": {"bits": 16}}, 4.15625),
    ],
)
def test_autoround_names_matrices_whole_by_their_end_or_by_a_pattern(entry: dict[str, Any], bits: float) -> None:
    fields = Fields("config.json", {"quant_method": "auto-round", "bits": 4, "group_size": 128, "extra_config": entry})
    assert read_quantization(fields, "bfloat16").of("model.layers.0.mlp").bits_per_weight == pytest.approx(bits)


def test_a_word_of_awq_means_all_matrices_that_have_it_in_their_name() -> None:
    fields = Fields("config.json", {"quant_method": "awq", "bits": 4, "modules_to_not_convert": ["mlp.gate"]})
    quant = read_quantization(fields, "bfloat16")
    assert quant.of("model.layers.0.mlp").bits_per_weight == pytest.approx((2 * 16 + 4.15625) / 3)
    assert quant.of("model.layers.0.mlp.experts", experts=True).bits_per_weight == pytest.approx(4.15625)


def test_a_pattern_that_cannot_be_read_names_its_field() -> None:
    fields = Fields("config.json", {"quant_method": "gptq", "bits": 4, "dynamic": {"-:(?=x)": {}}})
    with pytest.raises(ConfigError, match=r"dynamic = .*looks ahead"):
        read_quantization(fields, "bfloat16").of("model.layers.0.mlp")


def test_groups_of_experts_are_halved_until_they_divide_a_gpus_share() -> None:
    weights = WeightFormat(name="x", bits=4, group_size=128, group_bits=16, groups_halve=True)
    assert [weights.dividing(2048, width).group_size for width in (1408, 704, 352, 100)] == [128, 64, 32, 32]


# ---- encoders


def _bits_of_tower(section: dict[str, Any], **sizes: int) -> float:
    _, where, raw = config_of("mistral-small-3.1-24b")
    content = {**raw, "vision_config": {**raw["vision_config"], **sizes}, "quantization_config": section}
    return model_from_config(content, name="x", where=where).encoders[0].weights.bits_per_weight


def test_encoders_are_quantised_unless_the_file_leaves_them_alone() -> None:
    group = {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}
    tensors = {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}}
    assert _bits_of_tower({**tensors, "ignore": ["lm_head"]}) < 9
    assert _bits_of_tower({**tensors, "ignore": ["re:vision_tower.*", "re:.*projector.*"]}) == 16
    assert _bits_of_tower({"quant_method": "awq", "bits": 4}) == 16


def test_a_module_around_encoders_is_not_their_matrices_to_fp8() -> None:
    alone = {"quant_method": "fp8", "modules_to_not_convert": ["model.vision_tower", "model.multi_modal_projector"]}
    assert _bits_of_tower(alone) < 9


def test_the_mlps_of_a_siglip_with_uneven_sizes_are_left_alone() -> None:
    _, where, raw = config_of("gemma-3-4b")
    fp8 = {"quant_method": "fp8", "activation_scheme": "dynamic"}
    uneven, even = (
        model_from_config(
            {**raw, "vision_config": {**raw["vision_config"], "intermediate_size": size}, "quantization_config": fp8},
            name="x",
            where=where,
        )
        for size in (4304, 4096)
    )
    assert uneven.encoders[0].weights.bits > even.encoders[0].weights.bits


def test_deepseek_v4_1_keeps_what_some_layers_compress_for_others() -> None:
    raw = next(e for e in REGISTRY["architectures"] if e["architecture"] == "DeepseekV41ForCausalLM")["cases"][0]
    model = model_from_config(raw["config"], name="x", where="config.json")
    mixers = [layer.mixers[0] for layer in model.layers]
    found = [i for i, each in enumerate(mixers) if isinstance(each, CompressedAttention) and each.keeps and each.ratio]
    assert found == [2, 8, 14, 20]
    sizes = [
        plan_kv_cache(model, available_bytes=1 << 35, num_speculative_tokens=drafts).groups[-1].first.block_size
        for drafts in (0, 5, 7)
    ]
    assert sizes == [8, 8, 16]
