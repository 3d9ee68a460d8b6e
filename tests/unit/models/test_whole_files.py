"""What untrimmed files hold beyond a model's sizes: contexts, dtypes, sections, by the rules of vLLM's classes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.planner_answers import recorded

from tokenyard import Deployment
from tokenyard.errors import NoStartError
from tokenyard.models.named import config_of
from tokenyard.models.reading.read import model_from_config, read_model_file

REGISTRY = Path(__file__).with_name("registry.json.gz")
LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14_336, "model_type": "llama",
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 128_256,
    "max_position_embeddings": 8192,
}  # fmt: skip


def write(folder: Path, content: dict[str, Any]) -> Path:
    file = folder / "config.json"
    file.write_text(json.dumps(content))
    return file


@pytest.mark.parametrize(
    ("fields", "lengths"),
    [
        ({"max_seq_len": 1024}, (1024, 0)),
        ({"model_max_length": 200_000, "max_seq_len": 1024}, (200_000, 0)),
        ({"rope_scaling": {"type": "su"}, "original_max_position_embeddings": 4096}, (4096, 8192)),
        ({"rope_scaling": {"type": "longrope"}}, (8192, 8192)),
        ({"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 4.0}}}, (32_768, 0)),
    ],
)
def test_a_context_is_as_vllm_derives_it(tmp_path: Path, fields: dict[str, Any], lengths: tuple[int, int]) -> None:
    content = {**LLAMA, "max_position_embeddings": 8192, "rope_scaling": None, **fields}
    model = read_model_file(write(tmp_path, content))
    assert (model.max_model_len, model.longest_model_len) == lengths


def test_more_than_the_original_length_of_long_rope_may_be_asked_for() -> None:
    chosen = [Deployment(model="phi-4-mini", gpu="h100", max_model_len=length) for length in (None, 65_536)]
    assert [each.resolve().scheduler.max_model_len for each in chosen] == [4096, 65_536]
    with pytest.raises(NoStartError, match="more than the 131072 tokens"):
        Deployment(model="phi-4-mini", gpu="h100", max_model_len=200_000).resolve()


def test_a_section_is_read_by_the_class_that_the_file_around_it_makes(tmp_path: Path) -> None:
    _, _, raw = config_of("qwen2-vl-2b")
    whole = read_model_file(write(tmp_path, raw)).encoders[0].num_parameters
    named_as_the_file = {"hidden_size": 1536, "in_chans": 3, "model_type": "qwen2_vl", "spatial_patch_size": 14}
    named = read_model_file(write(tmp_path, {**raw, "vision_config": named_as_the_file}))
    assert named.encoders[0].num_parameters == whole
    _, _, raw = config_of("llama-4-scout")
    left_out = {name: value for name, value in raw.items() if name != "vision_config"}
    assert read_model_file(write(tmp_path, left_out)).encoders[0].num_parameters == 455_178_240  # vLLM 0.33 as well


@pytest.mark.parametrize(
    ("model_type", "dtype", "expected"),
    [("bert", "float32", "float16"), ("bert", None, "float16"), ("gemma3_text", "float32", "bfloat16")],
)
def test_a_pooling_model_runs_in_float16_where_its_file_says_float32(
    tmp_path: Path, model_type: str, dtype: str | None, expected: str
) -> None:
    name = "BertModel" if model_type == "bert" else "Gemma3TextModel"
    raw = next(each for each in recorded(REGISTRY)["architectures"] if each["architecture"] == name)["cases"][0][
        "config"
    ]
    assert read_model_file(write(tmp_path, {**raw, "dtype": dtype})).dtype == expected


def test_chunks_that_no_layer_has_change_nothing(tmp_path: Path) -> None:
    """vLLM puts all layers into one group where a file names chunks, and these are in one."""
    chunked = read_model_file(write(tmp_path, {**LLAMA, "attention_chunk_size": 512}))
    assert chunked == read_model_file(write(tmp_path, LLAMA))


def test_yarn_counts_from_the_original_length_in_0_22() -> None:
    scaling = {"type": "yarn", "factor": 2.0, "original_max_position_embeddings": 32_768}
    raw = {**LLAMA, "rope_scaling": scaling}
    lengths = [
        model_from_config(raw, name="m", where="m", vllm_version=each).max_model_len for each in ("0.22", "0.33")
    ]
    assert lengths == [65_536, LLAMA["max_position_embeddings"]]


def test_what_modelopt_wrote_beside_a_file_counts_where_the_file_says_nothing(tmp_path: Path) -> None:
    beside = {"producer": {"name": "modelopt", "version": "0.23.0"}, "quantization": {"quant_algo": "FP8"}}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(beside))
    file = write(tmp_path, LLAMA)
    assert [read_model_file(each).quantization for each in (file, tmp_path)] == ["modelopt", "modelopt"]
    write(tmp_path, {**LLAMA, "quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic"}})
    assert read_model_file(tmp_path).quantization == "fp8"


def test_a_section_by_the_name_that_compressed_tensors_once_had(tmp_path: Path) -> None:
    section = json.loads(json.dumps(config_of("llama-3.1-8b-w4a16")[2]["quantization_config"]))
    old, new = ({**LLAMA, name: section} for name in ("compression_config", "quantization_config"))
    assert read_model_file(write(tmp_path, old)) == read_model_file(write(tmp_path, new))
