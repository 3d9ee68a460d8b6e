"""Formats that a checkpoint names for single matrices."""

from __future__ import annotations

from typing import Any

import pytest

from tokenyard.errors import ConfigError
from tokenyard.models.formats import WeightFormat
from tokenyard.models.reading.fields import Fields
from tokenyard.models.reading.quantization import read_quantization


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
