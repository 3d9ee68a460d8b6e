"""Models that the table does not have: descriptions, ordinary decoders, checkpoints, and the cache of the hub."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tokenyard import Deployment
from tokenyard.errors import ConfigError
from tokenyard.models.described import described_model, model_in_words
from tokenyard.models.layers import MoE
from tokenyard.models.named import MODELS, config_of, model_spec
from tokenyard.models.reading.read import model_from_config


def _unknown(name: str, **changes: Any) -> dict[str, Any]:
    return {**config_of(name)[2], "architectures": ["UnheardOfForCausalLM"], **changes}


@pytest.mark.parametrize("name", MODELS)
def test_a_description_makes_the_same_model(name: str) -> None:
    words = json.loads(json.dumps(model_in_words(MODELS[name])))
    assert described_model(words, where="model.json") == MODELS[name]


def test_every_command_takes_a_description(tmp_path: Path) -> None:
    file = tmp_path / "model.json"
    file.write_text(json.dumps(model_in_words(MODELS["qwen3-next-80b-a3b"])))
    assert model_spec(str(file)) == MODELS["qwen3-next-80b-a3b"]


def test_the_mlp_of_nanochat_has_no_gate() -> None:
    config = {
        "architectures": ["NanoChatForCausalLM"], "model_type": "nanochat", "dtype": "bfloat16", "hidden_act": "relu2",
        "vocab_size": 50304, "hidden_size": 768, "intermediate_size": 8192, "num_hidden_layers": 12,
        "num_attention_heads": 6, "num_key_value_heads": 6, "max_position_embeddings": 2048,
    }  # fmt: skip
    spec = model_from_config(config, name="x", where="config.json")
    matrices = 12 * (4 * 768 * 768 + 2 * 768 * 8192) + 2 * 50304 * 768
    assert spec.weight_bytes() == pytest.approx(2 * matrices, rel=1e-4)


@pytest.mark.parametrize(
    ("architecture", "said"),
    [
        ("AyaVisionForConditionalGeneration", r"is not known \(vLLM 0.22, 0.23, 0.24 have a class for it\), and"),
        ("MPTForCausalLM", r"is not known \(vLLM 0.22, .*, 0.28 have a class for it\), and"),
        ("AndesVLForConditionalGeneration", "is not known, and"),
    ],
)
def test_versions_that_have_a_class_for_an_unknown_architecture_are_named(architecture: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        model_from_config({"architectures": [architecture], "model_type": "x"}, name="x", where="config.json")


@pytest.mark.parametrize(("served_by", "warns"), [("0.27", False), ("0.33", True)])
def test_a_description_of_another_version_is_said_to_be_one(served_by: str, warns: bool, tmp_path: Path) -> None:
    file = tmp_path / "model.json"
    words = model_in_words(MODELS["qwen3-8b"]) | {"notes": ["described by the classes of vLLM 0.27.1"]}
    file.write_text(json.dumps(words))
    header = Deployment(model=str(file), gpu="h100", vllm_version=served_by).resolve().header
    said = [each.why for each in header.assumed if "vLLM" in each.why and each.name == "model"]
    warning = "its description is of vLLM 0.27.1, and 0.33 may build it otherwise: describe it again within 0.33"
    assert said == ["described by the classes of vLLM 0.27.1", *([warning] if warns else [])]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"tokenyard_model": 2}, "tokenyard_model"),
        ({"layers": []}, "layers"),
        ({"layers": [{"count": 10**9, "layer": {}}]}, "layers"),
        ({"layers": [{"count": 1, "layer": {"mlp": {"piece": "Indexer"}}}]}, "piece"),
        ({"layers": [{"count": 1, "layer": {"mixers": {"piece": "MoE"}}}]}, "piece"),
        ({"layers": [{"count": 1, "layer": {"mlp": {"piece": "DenseMLP"}}}]}, "mlp"),
        ({"hidden_size": "wide"}, "hidden_size"),
        ({"hidden_size": -1}, "hidden_size"),
        ({"height": 1}, "height"),
    ],
)
def test_a_description_that_does_not_work_names_its_field(change: dict[str, Any], field: str) -> None:
    words = model_in_words(MODELS["qwen3-8b"]) | change
    with pytest.raises(ConfigError) as caught:
        described_model(words, where="model.json")
    assert caught.value.field.startswith("model.json")
    assert field in caught.value.field


@pytest.mark.parametrize("name", ["qwen3-8b", "llama-3.1-8b", "mixtral-8x7b", "glm-4-9b"])
def test_an_unknown_decoder_with_ordinary_fields_is_read(name: str) -> None:
    model = model_from_config(_unknown(name), name="x", where="config.json")
    assert model.weight_bytes() == pytest.approx(MODELS[name].weight_bytes(), rel=0.002)
    assert model.kv_bytes_per_token() == MODELS[name].kv_bytes_per_token()
    assert "read as an ordinary decoder" in model.notes[0]


def test_what_an_ordinary_decoder_does_not_have_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"kv_lora_rank = 512: is not modelled"):
        model_from_config(_unknown("qwen3-8b", model_type="new", kv_lora_rank=512), name="x", where="config.json")
    with pytest.raises(ConfigError, match=r"not those of an ordinary decoder"):
        model_from_config({"architectures": ["UnheardOf"], "hidden_size": 64}, name="x", where="config.json")


def test_the_files_of_a_checkpoint_are_heeded(tmp_path: Path) -> None:
    file, index = tmp_path / "config.json", tmp_path / "model.safetensors.index.json"
    file.write_text(json.dumps(_unknown("qwen3-8b")))
    ours = MODELS["qwen3-8b"].weight_bytes()
    index.write_text(json.dumps({"metadata": {"total_size": ours}}))
    assert "its files hold" in model_spec(str(tmp_path)).notes[0]
    index.write_text(json.dumps({"metadata": {"total_size": 2 * ours}}))
    with pytest.raises(ConfigError, match="contradict each other"):
        model_spec(str(tmp_path))
    index.write_text(json.dumps({"metadata": {}}))
    with pytest.raises(ConfigError, match="cannot be read"):
        model_spec(str(tmp_path))


def test_files_say_what_unknown_towers_weigh(tmp_path: Path) -> None:
    inner = config_of("qwen3-8b")[2]
    raw = {"architectures": ["UnheardOfVL"], "llm_config": inner, "vision_config": {"depth": 2}}
    file = tmp_path / "config.json"
    file.write_text(json.dumps(raw))
    with pytest.raises(ConfigError, match="nothing says what its encoders weigh"):
        model_spec(str(file))
    header = json.dumps({"a": {"data_offsets": [0, MODELS["qwen3-8b"].weight_bytes() + 1_000_000_000]}}).encode()
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    model = model_spec(str(file))
    assert model.supports_multimodal
    assert model.weight_bytes() == pytest.approx(MODELS["qwen3-8b"].weight_bytes() + 1e9, rel=1e-6)
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 64)
    with pytest.raises(ConfigError, match="cannot be read"):
        model_spec(str(file))


def test_the_cache_of_the_hub_is_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = tmp_path / "hub" / "models--acme--Foo-8B" / "snapshots" / "abcdef12"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps(config_of("qwen3-8b")[2]))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert model_spec("acme/Foo-8B").layers == MODELS["qwen3-8b"].layers
    for name in ("acme/Bar-8B", "../acme/Foo-8B", "acme/..", "acme/Foo-8B/x"):
        with pytest.raises(ConfigError, match="is not known by name"):
            model_spec(name)


def test_an_unknown_decoder_may_list_its_layers_with_experts_and_call_the_shared_ones_by_another_name() -> None:
    """``moe_layer_freq`` as DeepSeek's later files have it, ``share_expert_dim`` as StepFun's."""
    config = _unknown("qwen3-30b-a3b", model_type="unheard_of", share_expert_dim=768, use_moe_router_bias=True)
    config["moe_layer_freq"] = [0, 0, *[1] * (config["num_hidden_layers"] - 2)]
    config["first_k_dense_replace"] = 9  # the list counts
    model = model_from_config(config, name="x", where="config.json")
    kinds = [type(layer.mlp).__name__ for layer in model.layers]
    assert kinds == ["DenseMLP"] * 2 + ["MoE"] * (len(kinds) - 2)
    assert {layer.mlp.shared_width for layer in model.layers if isinstance(layer.mlp, MoE)} == {768}


def test_an_unknown_name_of_a_known_type_has_the_harmless_fields_of_that_type() -> None:
    """Fields that vLLM's code for MiniMax M2 was seen not to read do not matter under another name either."""
    config = _unknown("minimax-m2", attn_type_list=[1] * 62)
    model = model_from_config(config, name="x", where="config.json")
    assert model.weight_bytes() == MODELS["minimax-m2"].weight_bytes()


@pytest.mark.parametrize("name", ["MllamaForConditionalGeneration", "Phi3SmallForCausalLM"])
def test_what_no_version_here_serves_is_refused_with_the_last_that_did(name: str) -> None:
    with pytest.raises(ConfigError, match=r"vLLM 0\.(9|10)\.2 was the last to have a class for"):
        model_from_config(_unknown("llama-3.1-8b", architectures=[name]), name="x", where="config.json")


def test_the_first_qwen_counts_both_matrices_of_its_gate(tmp_path: Path) -> None:
    """vLLM 0.22 holds 15,442,649,088 bytes of Qwen-7B."""
    raw = {
        "architectures": ["QWenLMHeadModel"], "model_type": "qwen", "hidden_size": 4096, "intermediate_size": 22_016,
        "num_hidden_layers": 32, "num_attention_heads": 32, "vocab_size": 151_936, "seq_length": 8192,
        "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(raw))
    assert model_spec(str(tmp_path)).weight_bytes() == pytest.approx(15_442_649_088, rel=1e-3)
