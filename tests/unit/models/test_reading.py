"""Model shapes from Hugging Face config.json files."""

from __future__ import annotations

import json
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tokenyard.errors import ConfigError
from tokenyard.models.mixers import SoftmaxAttention
from tokenyard.models.named import MODELS, config_of, model_spec, named_model
from tokenyard.models.reading.params import config_of_params
from tokenyard.models.reading.read import harmless_by_rule, model_from_config, read_config, read_model_file

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 131072,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 128256,
}

QWEN_MOE: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "head_dim": 128,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "max_position_embeddings": 40960,
    "moe_intermediate_size": 768,
    "num_attention_heads": 32,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 48,
    "num_key_value_heads": 4,
    "dtype": "bfloat16",
    "vocab_size": 151936,
}


def write(folder: Path, config: object) -> Path:
    file = folder / "config.json"
    file.write_text(json.dumps(config))
    return file


@pytest.mark.parametrize(("config", "name"), [(LLAMA, "llama-3.1-8b"), (QWEN_MOE, "qwen3-30b-a3b")])
def test_same_shape_as_the_named_model(tmp_path: Path, config: dict[str, Any], name: str) -> None:
    read, named = read_model_file(write(tmp_path, config)), named_model(name)
    assert read.num_parameters == named.num_parameters
    assert read.num_active_parameters == named.num_active_parameters
    assert read.kv_bytes_per_token() == named.kv_bytes_per_token()
    assert read.max_model_len == named.max_model_len


def test_experts_as_transformers_5_writes_them(tmp_path: Path) -> None:
    renamed = {("num_local_experts" if name == "num_experts" else name): value for name, value in QWEN_MOE.items()}
    (tmp_path / "renamed").mkdir()
    now, before = read_model_file(write(tmp_path / "renamed", renamed)), read_model_file(write(tmp_path, QWEN_MOE))
    assert now.layers == before.layers
    assert now.has_experts


def test_folder_and_nested_text_config(tmp_path: Path) -> None:
    write(tmp_path, {"architectures": ["LlamaForCausalLM"], "text_config": LLAMA})
    assert model_spec(str(tmp_path)).hidden_size == 4096


def test_defaults_of_older_files(tmp_path: Path) -> None:
    """No grouped-query attention, no head size: every head has its own keys, hidden / heads wide."""
    old = {k: v for k, v in LLAMA.items() if k not in ("num_key_value_heads", "torch_dtype", "tie_word_embeddings")}
    shape = read_model_file(write(tmp_path, old))
    assert (shape.num_kv_heads, shape.head_size, shape.dtype_bytes) == (32, 128, 2)


def test_a_name_is_looked_up() -> None:
    assert model_spec("qwen3-32b") is named_model("qwen3-32b")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_hidden_layers": None}, "num_hidden_layers = None: is missing"),
        ({"hidden_size": "4096"}, "hidden_size = '4096': give a whole number"),
        ({"vocab_size": -1}, "vocab_size = -1: give a whole number from 1"),
        ({"num_attention_heads": True}, "num_attention_heads = True: give a whole number"),
        ({"num_attention_heads": 2**40}, "num_attention_heads = 1099511627776: give a whole number"),
        ({"torch_dtype": "int3"}, "torch_dtype = 'int3': use one of: float32"),
        ({"torch_dtype": ["float16"]}, "torch_dtype = ['float16']: use one of: float32"),
        ({"torch_dtype": {}}, "torch_dtype = {}: use one of: float32"),
        ({"torch_dtype": ""}, "torch_dtype = '': use one of: float32"),
        ({"torch_dtype": 0}, "torch_dtype = 0: use one of: float32"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings = 1: give true or false"),
        ({"num_key_value_heads": 5}, "num_kv_heads = 5: must divide num_heads"),
        ({"kv_lora_rank": 512}, "kv_lora_rank = 512: is not modelled"),
        ({"num_experts": 4}, "num_experts = 4: is not modelled"),
        ({"architectures": ["NewLM"], "vocab_size": None}, "vocab_size = None: is missing"),
        ({"architectures": None}, "architectures = None: is missing: name one of the"),
        ({"quantization_config": {"quant_method": "zip"}}, "quant_method = 'zip': is not known: use one of"),
        ({"quantization_config": 8}, "quantization_config = 8: give an object"),
    ],
)
def test_a_field_that_cannot_work_is_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    file = write(tmp_path, {**LLAMA, **change})
    with pytest.raises(ConfigError) as caught:
        read_model_file(file)
    assert str(file) in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"{", "is not JSON"), (b"[1]", "must hold a JSON object"), (b"\xff\xfe", "is not JSON")],
)
def test_a_file_that_is_no_config(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        model_spec(str(file))


def test_numbers_that_python_writes_and_json_lacks_are_read(tmp_path: Path) -> None:
    """Nemotron's files have ``"time_step_limit": [0.0, Infinity]``."""
    file = write(tmp_path, {**LLAMA, "time_step_limit": [0.0, float("inf")], "time_step_min": float("nan")})
    assert b"Infinity" in file.read_bytes()
    assert read_model_file(file).num_layers == LLAMA["num_hidden_layers"]
    file.write_bytes(b'{"Infinity": ')
    with pytest.raises(ConfigError, match="is not JSON"):
        read_model_file(file)


def test_modelopt_is_known_by_its_producer_where_no_method_is_named(tmp_path: Path) -> None:
    """As vLLM knows it; without a section of its own vLLM knows no method, and neither do we."""
    section = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}}
    model = read_model_file(write(tmp_path, {**LLAMA, "quantization_config": section}))
    assert model.quantization == "modelopt"
    assert model.weight_format.bits == 8
    flat = {"producer": {"name": "modelopt"}, "quant_algo": "FP8"}
    with pytest.raises(ConfigError, match="quant_method"):
        read_model_file(write(tmp_path, {**LLAMA, "quantization_config": flat}))


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        model_spec(str(tmp_path / "none.json"))


# ---- quantisation


def _format(tmp_path: Path, quantization: dict[str, Any], **change: Any) -> Any:
    spec = read_model_file(write(tmp_path, {**LLAMA, **change, "quantization_config": quantization}))
    return spec.layers[0].mixers[0].weights, spec


GROUP: dict[str, Any] = {
    "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128},
    "targets": ["Linear"],
}


@pytest.mark.parametrize(
    ("config", "name", "bits", "compute"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8", 8 + 32 / 16384, "float8"),
        ({"quant_method": "fp8"}, "fp8", 8, "float8"),
        (
            {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True},
            "awq-int4",
            4 + 20 / 128,
            "bfloat16",
        ),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, "gptq-int8", 8, "bfloat16"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bnb-nf4", 4.5, "bfloat16"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "bnb-int8", 8, "int8"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}, "nvfp4", 4.5, "float4"),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"]}, "fp8", 8, "float8"),
        ({"quant_method": "mxfp8", "weight_block_size": [1, 32]}, "mxfp8", 8.25, "float8"),
        ({"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}, "fp8", 8, "float8"),
        ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp8_e4m3"}}}, "fp8", 8, "float8"),
        ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4"}}}, "mxfp4", 4.25, "float4"),
        ({"quant_method": "compressed-tensors", "config_groups": {"group_0": GROUP}}, "int4", 4.125, "bfloat16"),
    ],
)
def test_weights_are_of_the_format_that_the_checkpoint_says(
    tmp_path: Path, config: dict[str, Any], name: str, bits: float, compute: str
) -> None:
    weights, spec = _format(tmp_path, config)
    assert (weights.name, weights.bits_per_weight, weights.compute) == (name, pytest.approx(bits), compute)
    matrices = 32 * (2 * 4096 * 128 * (32 + 8) + 3 * 4096 * 14336)
    rest = 2 * (2 * 128256 * 4096 + (2 * 32 + 1) * 4096)
    assert spec.weight_bytes() == pytest.approx(matrices * bits / 8 + rest, rel=1e-6)


def test_each_module_may_have_a_format_of_its_own(tmp_path: Path) -> None:
    named = {"model.layers.0.self_attn.q_proj": {"quant_algo": "FP8"}, "model.layers.0.mlp.up_proj": NVFP4}
    config = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": named}
    weights, spec = _format(tmp_path, config)
    assert (weights.name, spec.layers[0].mlp.weights.name, spec.layers[1].mlp.weights.name) == (
        "fp8", "nvfp4", "bfloat16",
    )  # fmt: skip


def test_quark_names_modules_by_patterns_and_may_store_weights_in_two_steps(tmp_path: Path) -> None:
    fp4 = {"weight": {"dtype": "fp4", "qscheme": "per_group", "group_size": 32}}
    steps = {"weight": [{"dtype": "fp8_e4m3"}, {"dtype": "int4", "qscheme": "per_channel"}]}
    named = {"*self_attn*": {"weight": {"dtype": "fp8_e4m3"}}, "model.layers.1.mlp.down_proj": steps}
    config = {"quant_method": "quark", "global_quant_config": fp4, "layer_quant_config": named, "exclude": ["lm_head"]}
    weights, spec = _format(tmp_path, config)
    assert (weights.name, spec.layers[0].mlp.weights.name, spec.layers[1].mlp.weights.name) == ("fp8", "mxfp4", "int4")


NVFP4 = {"quant_algo": "NVFP4", "group_size": 16}


@pytest.mark.parametrize(
    ("entries", "name"),
    [
        (["q_proj", "k_proj", "v_proj", "o_proj"], "bfloat16"),
        (["qkv_proj"], "bfloat16 and fp8"),
        (["q_b_proj"], "bfloat16"),
        (["x"], "fp8"),
    ],
)
def test_matrices_that_are_left_alone_keep_the_model_dtype(tmp_path: Path, entries: list[str], name: str) -> None:
    alone = [f"model.layers.0.self_attn.{each}" for each in entries] + ["model.layers.1.self_attn"]
    weights, spec = _format(tmp_path, {"quant_method": "fp8", "modules_to_not_convert": alone})
    assert weights.name == name
    assert spec.layers[1].mixers[0].weights.name == "fp8"


@pytest.mark.parametrize("entry", ["re:.*self_attn.*", "model.layers.*.self_attn"])
def test_patterns_of_modules_that_are_left_alone(tmp_path: Path, entry: str) -> None:
    config = {"quant_method": "compressed-tensors", "config_groups": {"group_0": GROUP}, "ignore": [entry, "lm_head"]}
    weights, spec = _format(tmp_path, config)
    assert weights.name == "bfloat16"
    assert spec.layers[0].mlp.weights.name == "int4"


_EIGHT = {"num_bits": 8, "type": "float", "strategy": "group", "group_size": 32, "scale_dtype": "torch.uint8"}
_BLOCKS = {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]}


@pytest.mark.parametrize(
    ("stored", "bits", "refused"),
    [
        (GROUP["weights"], 4.125, {2: "231 blocks of 128 columns", 4: "231 blocks of 128 columns"}),
        ({**GROUP["weights"], "num_bits": 8}, 8.125, {2: "blocks of 128 columns", 4: "blocks of 128 columns"}),
        ({**GROUP["weights"], "group_size": 32}, 4.5, {8: "blocks of 32 columns"}),
        ({"num_bits": 4, "type": "int", "strategy": "channel"}, 4, {}),
        (_BLOCKS, 8, {2: "blocks of 128 columns", 4: "blocks of 128 columns"}),
        (_EIGHT, 8.25, {}),
    ],
)
def test_groups_of_compressed_tensors_are_not_parted(
    tmp_path: Path, stored: dict[str, Any], bits: float, refused: dict[int, str]
) -> None:
    groups = {"group_0": {"weights": stored, "targets": ["Linear"]}}
    config = {"quant_method": "compressed-tensors", "config_groups": groups, "ignore": ["lm_head"]}
    weights, spec = _format(tmp_path, config, intermediate_size=29568)
    assert weights.bits_per_weight == pytest.approx(bits)
    for size in (1, 2, 4):
        if size not in refused:
            spec.check_tensor_parallel(size)
    for size, what in refused.items():
        with pytest.raises(ConfigError, match=what):
            spec.check_tensor_parallel(size)


def test_the_kv_cache_has_a_dtype_of_its_own(tmp_path: Path) -> None:
    scheme = {"num_bits": 8, "type": "float"}
    config = {"quant_method": "compressed-tensors", "config_groups": {"group_0": GROUP}, "kv_cache_scheme": scheme}
    assert _format(tmp_path, config)[1].kv_cache_dtype == "fp8"


# ---- dtypes, lengths, fields that are not modelled


@pytest.mark.parametrize(
    ("said", "wanted", "taken"),
    [
        ("float32", "auto", "bfloat16"),
        ("float16", "auto", "float16"),
        (None, "auto", "bfloat16"),
        ("bfloat16", "half", "float16"),
        ("bfloat16", "float32", "float32"),
    ],
)
def test_dtype_is_what_vllm_takes(tmp_path: Path, said: str | None, wanted: str, taken: str) -> None:
    assert read_model_file(write(tmp_path, {**LLAMA, "torch_dtype": said}), dtype=wanted).dtype == taken


@pytest.mark.parametrize(
    ("scaling", "length"),
    [
        ({"rope_type": "linear", "factor": 2.0}, 262_144),
        ({"rope_type": "llama3", "factor": 8.0}, 131_072),
        ({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 65_536}, 131_072),
        ({"type": "yarn", "factor": 40.0, "original_max_position_embeddings": 1_024}, 131_072),
        (None, 131_072),
    ],
)
def test_the_context_is_as_long_as_its_scaling_makes_it(
    tmp_path: Path, scaling: dict[str, Any] | None, length: int
) -> None:
    assert read_model_file(write(tmp_path, {**LLAMA, "rope_scaling": scaling})).max_model_len == length


def test_a_field_that_may_matter_is_an_error_or_a_note(tmp_path: Path) -> None:
    windowed = {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 512}
    others = {"attention_chunk_size": 512, "some_colour": "blue", "block_multiplier": 0}
    file = write(tmp_path, {**LLAMA, **windowed, **others})
    with pytest.raises(ConfigError, match=r"attention_chunk_size = 512: is not modelled .*--ignore-unmodelled"):
        read_model_file(file)
    _, raw = read_config(file)
    read = model_from_config(raw, name="m", where="config.json", ignore_unmodelled=True)
    assert read.ignored == ("attention_chunk_size = 512",)


def test_a_field_that_no_code_of_the_architecture_names_is_harmless(tmp_path: Path) -> None:
    other = {"linear_attn_config": {"num_heads": 4}}  # which vLLM's Kimi Linear reads, and its Llama does not
    assert read_model_file(write(tmp_path, {**LLAMA, **other})) == read_model_file(write(tmp_path, LLAMA))
    with pytest.raises(ConfigError, match="linear_attn_config"):
        read_model_file(write(tmp_path, {**LLAMA, **other, "architectures": ["UnknownForCausalLM"]}))


PUBLISHED_EXTRAS: dict[str, dict[str, Any]] = {
    "gemma-3-27b": {
        "boi_token_index": 255_999,
        "eoi_token_index": 256_000,
        "eos_token_id": [1, 106],
        "initializer_range": 0.02,
    },
    "llama-4-scout": {"boi_token_index": 200_080, "eoi_token_index": 200_081, "tie_word_embeddings": False},
}
"""Fields of the published files that say nothing of memory or time, beside those that the named models keep."""


@pytest.mark.parametrize("name", PUBLISHED_EXTRAS)
def test_token_indices_and_training_settings_are_known_by_rule(name: str) -> None:
    _, where, raw = config_of(name)
    training = {"attention_dropout": 0.1, "router_aux_loss_coef": 0.001, "router_jitter_noise": 0.1, "embd_pdrop": 0.1}
    text = {**raw["text_config"], **training, "_attn_implementation_autoset": True, "hidden_act": "silu"}
    read = model_from_config({**raw, **PUBLISHED_EXTRAS[name], "text_config": text}, name=name, where=where)
    assert read == named_model(name)


@pytest.mark.slow
def test_what_a_rule_calls_harmless_changes_no_known_model() -> None:
    wrong = []
    for name in MODELS:
        _, where, raw = config_of(name)
        kept = {key: value for key, value in raw.items() if not harmless_by_rule(key)}
        if isinstance(kept.get("text_config"), dict):
            kept["text_config"] = {k: v for k, v in kept["text_config"].items() if not harmless_by_rule(k)}
        found = model_from_config(kept, name=name, where=where, dtype=MODELS[name].dtype)
        known = MODELS[name]
        if (
            replace(found, predicting_layers=known.predicting_layers, notes=known.notes) != known
        ):  # no parts of the model
            wrong.append(name)
    assert wrong == []


def test_defaults_of_the_configuration_class_fill_what_a_file_leaves_out() -> None:
    gemma = named_model("gemma-3-4b")
    assert [mixer.window for layer in gemma.layers[:6] for mixer in layer.mixers] == [1024] * 5 + [0]  # type: ignore[union-attr]
    assert (gemma.num_heads, gemma.num_kv_heads, gemma.head_size, gemma.vocab_size) == (8, 4, 256, 262_208)


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("deepseek-r1", 671.0),
        ("gpt-oss-120b", 116.8),
        ("qwen3-235b-a22b-fp8", 235.1),
        ("qwen3-next-80b-a3b", 79.7),
        ("llama-4-scout", 108.6),
        ("llama-4-maverick", 401.6),
        ("mistral-small-3.1-24b", 24.0),
        ("nemotron-3-nano-30b-a3b", 31.6),
        ("granite-4.0-h-small", 32.2),
        ("falcon-h1-34b", 33.6),
        ("jamba-1.5-mini", 51.6),
        ("whisper-large-v3", 1.54),
        ("qwen2.5-14b", 14.77),
        ("qwen2.5-vl-3b", 3.75),
        ("mistral-nemo", 12.25),
        ("ministral-8b", 8.02),
        ("mistral-large", 122.61),
        ("codestral-22b", 22.25),
        ("gemma-3-270m", 0.268),
        ("phi-3.5-mini", 3.82),
        ("moonlight-16b-a3b", 15.96),
        ("glm-4-32b", 32.57),
        ("falcon3-7b", 7.46),
        ("falcon-7b", 6.92),
        ("olmo-2-7b", 7.30),
        ("olmo-3-7b", 7.30),
        ("olmoe-1b-7b", 6.92),
        ("smollm3-3b", 3.08),
        ("granite-3.3-8b", 8.17),
        ("granite-3.3-2b", 2.53),
        ("aya-expanse-8b", 8.03),
        ("lfm2-1.2b", 1.17),
        ("ernie-4.5-0.3b", 0.36),
        ("ernie-4.5-21b-a3b", 21.83),
        ("exaone-4.0-32b", 32.00),
        ("exaone-4.0-1.2b", 1.28),
        ("solar-10.7b", 10.73),
        ("yi-1.5-34b", 34.39),
        ("yi-1.5-9b", 8.83),
        ("starcoder2-7b", 7.17),
        ("starcoder2-15b", 15.96),
        ("starcoder2-3b", 3.03),
        ("mamba-2.8b", 2.77),
        ("pythia-1.4b", 1.41),
        ("codellama-7b", 6.74),
        ("codellama-13b", 13.02),
        ("deepseek-coder-6.7b", 6.74),
        ("deepseek-coder-33b", 33.34),
        ("internlm2.5-7b", 7.74),
        ("phi-1.5", 1.42),
        ("stablelm-2-1.6b", 1.64),
        ("qwen2-vl-2b", 2.21),
        ("qwen2-vl-7b", 8.29),
        ("llava-1.5-7b", 7.06),
        ("mimo-7b", 7.61),
        ("nemotron-super-49b", 49.87),
        ("nemotron-3-super-120b-a12b", 120.70),
        ("whisper-large-v3-turbo", 0.81),
        ("qwen2.5-vl-32b", 33.45),
    ],
)
def test_parameters_are_the_published_ones(name: str, billions: float) -> None:
    assert named_model(name).num_parameters / 1e9 == pytest.approx(billions, rel=0.005)


# ---- fields that a file leaves out


def test_a_trimmed_deepseek_v3_has_what_its_class_fills_in(tmp_path: Path) -> None:
    trimmed = {"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "num_hidden_layers": 5}
    read = read_model_file(write(tmp_path, {**trimmed, "topk_method": "noaux_tc"}))
    mlps = [layer.mlp for layer in read.layers]
    assert [getattr(mlp, "num_experts", 0) for mlp in mlps] == [0, 0, 0, 256, 256]
    assert (read.hidden_size, read.vocab_size, read.max_model_len) == (7168, 129_280, 4096)


def test_what_a_class_derives_from_other_fields_is_derived_from_those_of_the_file(tmp_path: Path) -> None:
    left = {name: value for name, value in LLAMA.items() if name != "num_key_value_heads"}
    read = read_model_file(write(tmp_path, {**left, "model_type": "llama", "num_attention_heads": 64}))
    assert (read.num_kv_heads, read.head_size) == (64, 64)


def test_a_head_size_that_a_class_fixes_counts(tmp_path: Path) -> None:
    sizes = {"hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": 8, "num_hidden_layers": 2}
    read = read_model_file(write(tmp_path, {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", **sizes}))
    assert read.head_size == 128


# ---- params.json, the file of Mistral's own checkpoints

PARAMS: dict[str, Any] = {
    "dim": 5120, "n_layers": 40, "head_dim": 128, "hidden_dim": 32_768, "n_heads": 32, "n_kv_heads": 8,
    "rope_theta": 1e9, "norm_eps": 1e-5, "vocab_size": 131_072, "max_position_embeddings": 131_072,
}  # fmt: skip
PICTURES = {
    "hidden_size": 1024, "num_channels": 3, "image_size": 1540, "patch_size": 14, "rope_theta": 1e4,
    "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16, "image_token_id": 10,
    "adapter_bias": False, "mm_projector_id": "patch_merge", "spatial_merge_size": 2, "max_image_size": 1540,
    "add_pre_mm_projector_layer_norm": True,
}  # fmt: skip


def write_params(folder: Path, params: dict[str, Any]) -> Path:
    (folder / "params.json").write_text(json.dumps(params))
    return folder


def test_a_folder_with_params_json_alone_is_the_model_of_its_config_json(tmp_path: Path) -> None:
    read, named = model_spec(str(write_params(tmp_path, PARAMS))), named_model("mistral-small-24b")
    assert (read.architecture, read.name) == ("MistralForCausalLM", tmp_path.name)
    assert read.num_parameters == named.num_parameters
    assert read.kv_bytes_per_token() == named.kv_bytes_per_token()


def test_params_json_with_a_tower_for_pictures_is_the_architecture_that_vllm_makes_of_it() -> None:
    for part in ({"multimodal": {"vision_encoder_args": PICTURES}}, {"vision_encoder": PICTURES}):
        made = config_of_params({**PARAMS, **part}, "params.json")
        assert made["architectures"] == ["PixtralForConditionalGeneration"]
        assert made["text_config"]["hidden_size"] == 5120
        assert made["vision_config"].items() >= PICTURES.items()


def test_params_json_with_experts_and_fp8(tmp_path: Path) -> None:
    latent = {
        "q_lora_rank": 1536, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "kv_lora_rank": 512, "v_head_dim": 128,
    }  # fmt: skip
    experts = {
        "route_every_n": 1, "first_k_dense_replace": 3, "num_experts": 128, "num_experts_per_tok": 4,
        "num_expert_groups": 1, "num_expert_groups_per_tok": 1, "routed_scale": 1.0, "expert_hidden_dim": 4096,
        "num_shared_experts": 1,
    }  # fmt: skip
    quantized = {"quantization": {"qformat_weight": "fp8_e4m3", "qscheme_act": "TENSOR"}}
    read = model_spec(str(write_params(tmp_path, {**PARAMS, **latent, **quantized, "moe": experts})))
    assert (read.architecture, read.quantization, read.has_experts) == ("MistralLarge3ForCausalLM", "fp8", True)
    assert len(read.layers) == 40


@pytest.mark.parametrize(
    ("part", "named"),
    [
        ({"n_kv_head": 4}, "n_kv_head = 4"),
        ({"wibble": 77}, "wibble = 77"),
        ({"moe": {"num_shared_experts": 1, "num_experts": 8, "wobble": 3}}, "wobble = 3"),
        ({"vision_encoder": PICTURES, "wibble": 77}, "wibble = 77"),
    ],
)
def test_a_field_of_params_json_that_its_format_does_not_have_is_named(
    tmp_path: Path, part: dict[str, Any], named: str
) -> None:
    folder = write_params(tmp_path, {**PARAMS, "ragged_attention": True, "max_batch_size": 8, **part})
    with pytest.raises(ConfigError, match="is not modelled") as raised:
        model_spec(str(folder))
    assert named in str(raised.value)
    file, raw = read_config(folder)
    assert model_from_config(raw, name="m", where=str(file), ignore_unmodelled=True).ignored == (named,)


@pytest.mark.parametrize("name", ["n_heads", "hidden_dim", "vocab_size"])
def test_a_size_that_params_json_lacks_is_an_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        model_spec(str(write_params(tmp_path, {each: value for each, value in PARAMS.items() if each != name})))


def test_params_json_has_no_window_and_as_many_kv_heads_unless_it_says_so(tmp_path: Path) -> None:
    """vLLM reads it without a class of configurations, whose defaults would be 4096 tokens and 8 heads."""
    read = model_spec(str(write_params(tmp_path, {each: PARAMS[each] for each in PARAMS if each != "n_kv_heads"})))
    mixers = [mixer for layer in read.layers for mixer in layer.mixers if isinstance(mixer, SoftmaxAttention)]
    assert {(mixer.window, mixer.num_kv_heads) for mixer in mixers} == {(0, 32)}
    assert len(mixers) == 40


def test_windows_of_params_json_go_round(tmp_path: Path) -> None:
    read = model_spec(str(write_params(tmp_path, {**PARAMS, "sliding_window": [None, 1024, 1024, 1024]})))
    mixers = [mixer for layer in read.layers[:4] for mixer in layer.mixers]
    assert [mixer.window for mixer in mixers if isinstance(mixer, SoftmaxAttention)] == [0, 1024, 1024, 1024]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"moe": {"num_experts": 8, "num_experts_per_tok": 2}}, "moe"),
        ({"moe": 3}, "moe"),
        ({"quantization": {"qformat_weight": "int3"}}, "quantization"),
        ({"sliding_window": [512, 1024]}, "sliding_window"),
        ({"n_layers": "40", "sliding_window": [512]}, "sliding_window"),
        ({"vision_encoder": []}, "vision_encoder"),
    ],
)
def test_a_part_of_params_json_that_cannot_be_used_is_named(tmp_path: Path, change: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError, match=rf"params\.json: {field}"):
        model_spec(str(write_params(tmp_path, {**PARAMS, **change})))


# ---- keys of files as they are on the hub

_FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic"}
_TEXT = {name: value for name, value in LLAMA.items() if name != "architectures"} | {"model_type": "mistral"}
_VISION = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "patch_size": 14, "image_size": 28}


def test_quantisation_may_be_said_twice_and_that_of_the_file_counts() -> None:
    """Kimi K2.5 has it around the decoder and inside."""
    around = {
        "architectures": ["Mistral3ForConditionalGeneration"],
        "model_type": "mistral3",
        "vision_config": _VISION,
        "quantization_config": _FP8,
    }
    once = model_from_config({**around, "text_config": _TEXT}, name="once", where="file")
    for inner in (_FP8, {"quant_method": "gptq", "bits": 4, "group_size": 128}):
        text = {**_TEXT, "quantization_config": inner}
        assert model_from_config({**around, "text_config": text}, name="twice", where="file").layers == once.layers


def test_an_audio_tower_that_a_file_leaves_out_is_not_there() -> None:
    """Gemma 4 hears in its small sizes alone."""
    text = {"model_type": "gemma4_text", "hidden_size": 256, "num_hidden_layers": 6, "vocab_size": 1000}
    around = {"architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4", "text_config": text}
    vision = {**_VISION, "model_type": "gemma4_vision", "num_attention_heads": 4}
    mute = model_from_config({**around, "vision_config": vision, "audio_config": None}, name="mute", where="file")
    hears = {**around, "vision_config": vision, "audio_config": {"model_type": "gemma4_audio", "num_hidden_layers": 2}}
    assert [tower.kind for tower in mute.encoders] == ["vision"]
    assert [tower.kind for tower in model_from_config(hears, name="hears", where="file").encoders] == [
        "vision",
        "audio",
    ]


def test_values_are_as_wide_as_a_head_where_minicpm_3_says_nothing() -> None:
    said = {
        **LLAMA,
        "architectures": ["MiniCPM3ForCausalLM"],
        "model_type": "minicpm3",
        "q_lora_rank": 768,
        "kv_lora_rank": 256,
        "qk_nope_head_dim": 64,
        "qk_rope_head_dim": 32,
    }
    silent = model_from_config(said, name="silent", where="file")
    assert silent.layers == model_from_config({**said, "v_head_dim": 128}, name="told", where="file").layers


def test_layers_that_repeat_are_read_again_and_kept_once() -> None:
    looped = {**LLAMA, "architectures": ["IQuestLoopCoderForCausalLM"], "loop_num": 2, "loop_window_size": 64}
    model = model_from_config(looped, name="looped", where="file")
    assert len(model.layers) == 64
    assert {layer.num_bytes(2) for layer in model.layers[32:]} == {0}
    assert sum(layer.num_active_parameters for layer in model.layers[32:]) > 0
    assert model.num_active_parameters > 1.8 * model.num_parameters - 2 * model.vocab_size * model.hidden_size


def test_layers_that_are_equal_are_counted_together_and_are_one_object_where_a_file_is_read() -> None:
    gemma = MODELS["gemma-3-4b"]
    windows, whole = gemma.layer_counts[0], gemma.layer_counts[1]
    assert (windows[0], whole[0]) == (gemma.layers[0], gemma.layers[5])
    assert (windows[1], whole[1]) == (29, 5)
    assert len(set(map(id, gemma.layers))) == 2
    copied = replace(gemma, layers=tuple(map(copy, gemma.layers)))
    assert len(set(map(id, copied.layers))) == len(gemma.layers)
    assert copied.layer_counts == gemma.layer_counts
