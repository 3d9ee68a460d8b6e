"""Model shapes from Hugging Face config.json files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tokenyard.errors import ConfigError
from tokenyard.models.named import model_spec, named_model
from tokenyard.models.reading.read import read_model_file

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
        ({"architectures": ["NobodyForCausalLM"]}, "architectures = ['NobodyForCausalLM']: is not known: use one of"),
        ({"architectures": None}, "architectures = None: is missing: name one of"),
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


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        model_spec(str(tmp_path / "none.json"))
