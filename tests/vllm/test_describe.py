"""``tokenyard describe``: vLLM's classes describe a model, and its planner says the same of the description."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tokenyard.models.named import config_of, model_spec
from tokenyard.models.spec import ModelSpec

pytest.importorskip("vllm")

_SMALL = {"num_hidden_layers": 4, "max_window_layers": 4}


def _described(folder: Path, raw: dict[str, Any]) -> tuple[ModelSpec, str]:
    (folder / "config.json").write_text(json.dumps(raw))
    target = folder / "model.json"
    words = [sys.executable, "-m", "tokenyard", "describe", str(folder / "config.json"), "--output", str(target)]
    run = subprocess.run(words, capture_output=True, text=True, timeout=600, env=os.environ.copy(), check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    return model_spec(str(target)), run.stdout


@pytest.mark.parametrize("name", ["qwen3-8b", "qwen3-30b-a3b"])
def test_a_description_is_what_the_table_says(name: str, tmp_path: Path) -> None:
    raw = {**config_of(name)[2], **_SMALL}
    model, said = _described(tmp_path, raw)
    (tmp_path / "config.json").write_text(json.dumps(raw))
    ours = model_spec(str(tmp_path / "config.json"))
    for size in (1, 2, 4):
        assert model.weight_bytes(size) == pytest.approx(ours.weight_bytes(size), rel=0.002)
    assert model.kv_bytes_per_token() == ours.kv_bytes_per_token()
    assert "described by the classes of vLLM" in " ".join(said.split())


_OTHERWISE: dict[str, dict[str, Any]] = {
    # One transformer block that three layers pass, each time with keys and values of its own.
    "Zamba2ForCausalLM": {
        "model_type": "zamba2", "num_hidden_layers": 8, "hidden_size": 512, "intermediate_size": 1024,
        "attention_hidden_size": 1024, "attention_head_dim": 128, "num_attention_heads": 8, "num_key_value_heads": 8,
        "hybrid_layer_ids": [1, 3, 6], "num_mem_blocks": 1, "adapter_rank": 32, "use_shared_attention_adapter": True,
        "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid", "mamba", "mamba", "hybrid", "mamba"],
        "mamba_d_state": 64, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_headdim": 64, "mamba_ngroups": 1,
        "n_mamba_heads": 16, "chunk_size": 256, "vocab_size": 32000, "max_position_embeddings": 4096,
    },
    # Every layer is passed twice; its configuration class is not in transformers.
    "IQuestLoopCoderForCausalLM": {
        "model_type": "iquestloopcoder", "num_hidden_layers": 3, "hidden_size": 1280, "intermediate_size": 3456,
        "num_attention_heads": 10, "num_key_value_heads": 2, "head_dim": 128, "loop_num": 2, "loop_window_size": 64,
        "attention_bias": False, "mlp_bias": False, "hidden_act": "silu", "rms_norm_eps": 1e-6,
        "rope_theta": 500000.0, "max_position_embeddings": 131072, "tie_word_embeddings": False, "vocab_size": 76800,
    },
    # Runs by the code of transformers since 0.27, whose layers have names of their own.
    "GPTBigCodeForCausalLM": {
        "model_type": "gpt_bigcode", "n_layer": 4, "n_embd": 768, "n_head": 12, "n_positions": 1024,
        "multi_query": True, "vocab_size": 49152,
    },
    # Its configuration class is not in the transformers of earlier versions.
    "MiniCPM3ForCausalLM": {
        "model_type": "minicpm3", "num_hidden_layers": 3, "hidden_size": 2560, "intermediate_size": 6400,
        "num_attention_heads": 40, "num_key_value_heads": 40, "q_lora_rank": 768, "kv_lora_rank": 256,
        "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64, "scale_depth": 1.4, "scale_emb": 12,
        "dim_model_base": 256, "hidden_act": "silu", "rms_norm_eps": 1e-5, "max_position_embeddings": 32768,
        "attention_bias": False, "tie_word_embeddings": True, "vocab_size": 73448,
        "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}, "rope_scaling": None,
    },
    # What hears, beside a decoder whose section may be of any kind.
    "UltravoxModel": {
        "model_type": "ultravox", "hidden_size": 1024, "stack_factor": 8, "projector_act": "swiglu",
        "projector_ln_mid": True, "vocab_size": 32000,
        "text_config": {
            "model_type": "llama", "num_hidden_layers": 3, "hidden_size": 1024, "intermediate_size": 2816,
            "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 32000,
            "max_position_embeddings": 8192, "architectures": ["LlamaForCausalLM"],
        },
        "audio_config": {
            "model_type": "whisper", "d_model": 384, "encoder_layers": 2, "encoder_attention_heads": 6,
            "encoder_ffn_dim": 1536, "num_mel_bins": 80, "architectures": ["WhisperForConditionalGeneration"],
        },
    },
    # The decoder's fields lie beside the tower's section, and its rotary positions are of a kind of its own.
    "HunYuanVLForConditionalGeneration": {
        "model_type": "hunyuan_vl", "num_hidden_layers": 3, "hidden_size": 1024, "intermediate_size": 3584,
        "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "attention_head_dim": 128,
        "vocab_size": 32000, "max_position_embeddings": 32768, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "rope_scaling": {
            "alpha": 1000.0, "beta_fast": 32, "beta_slow": 1, "factor": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
            "type": "xdrope", "xdrope_section": [16, 16, 16, 16],
        },
        "attention_bias": False, "mlp_bias": False, "hidden_act": "silu", "use_qk_norm": True, "use_cla": False,
        "tie_word_embeddings": True, "org_vocab_size": 32000, "pad_id": 2, "image_token_id": 4,
        "image_start_token_id": 5, "image_end_token_id": 6, "image_newline_token_id": 7,
        "vision_config": {
            "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "num_hidden_layers": 2,
            "out_hidden_size": 1024, "patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 1,
            "max_image_size": 2048, "img_max_token_num": 4096, "max_vit_seq_len": 16384, "text_hidden_size": 1024,
            "interpolate_mode": "bilinear", "hidden_act": "gelu", "rms_norm_eps": 1e-5, "num_channels": 3,
            "resize_resolution": 2048, "anyres_vit_max_image_size": 2048,
        },
    },
    # Its tower has a vocabulary of its own.
    "Ovis": {
        "model_type": "ovis", "hidden_size": 896, "multimodal_max_length": 8192,
        "conversation_formatter_class": "QwenConversationFormatter",
        "llm_config": {
            "model_type": "qwen2", "num_hidden_layers": 3, "hidden_size": 896, "intermediate_size": 2432,
            "num_attention_heads": 14, "num_key_value_heads": 2, "max_position_embeddings": 32768, "vocab_size": 32000,
            "tie_word_embeddings": True, "architectures": ["Qwen2ForCausalLM"], "max_window_layers": 3,
        },
        "visual_tokenizer_config": {
            "model_type": "aimv2_visual_tokenizer", "vocab_size": 1024, "tokenize_function": "softmax", "tau": 1.0,
            "hidden_stride": 2, "drop_cls_token": False, "depths": None,
            "backbone_config": {
                "model_type": "aimv2", "hidden_size": 256, "image_size": 448, "intermediate_size": 704,
                "num_attention_heads": 4, "num_channels": 3, "num_hidden_layers": 2, "patch_size": 14,
                "rms_norm_eps": 1e-5, "qkv_bias": False, "use_bias": False,
            },
        },
    },
    # Its file says nothing at all: sizes are those that vLLM's class has.
    "HfMoondream": {"model_type": "moondream1", "config": {}},
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "layers", "again"),
    [
        ("Zamba2ForCausalLM", 8, 2),
        ("IQuestLoopCoderForCausalLM", 3, 3),
        ("GPTBigCodeForCausalLM", 4, 0),
        ("MiniCPM3ForCausalLM", 3, 0),
        ("UltravoxModel", 3, 0),
        ("HunYuanVLForConditionalGeneration", 3, 0),
        ("Ovis", 3, 0),
        ("HfMoondream", 24, 0),
    ],
)
def test_layers_under_other_names_and_layers_that_are_passed_again(
    name: str, layers: int, again: int, tmp_path: Path
) -> None:
    """The command itself ends with 1 where blocks or weights of one or two GPUs differ from vLLM's; others take it."""
    raw = {**_OTHERWISE[name], "architectures": [name], "dtype": "bfloat16"}
    model, _ = _described(tmp_path, raw)
    assert [each.repeats for each in model.layers] == [False] * layers + [True] * again
    assert all(each.mixers for each in model.layers)
    if name in ("IQuestLoopCoderForCausalLM", "MiniCPM3ForCausalLM"):
        ours = model_spec(str(tmp_path / "config.json"))
        assert model.kv_bytes_per_token() == ours.kv_bytes_per_token()
        assert model.num_active_parameters == pytest.approx(ours.num_active_parameters, rel=0.01)
    run = [sys.executable, "-m", "tokenyard", "run", "chat", "--limit", "2", "--gpu", "h100", "--json"]
    run += ["--model", str(tmp_path / "model.json")]
    replayed = subprocess.run(run, capture_output=True, text=True, timeout=600, env=os.environ.copy(), check=False)
    assert replayed.returncode == 0, replayed.stderr[-2000:]
    figures = json.loads(replayed.stdout)
    assert figures["header"]["weight_gib"] == pytest.approx(model.weight_bytes() / 2**30, abs=0.01)
    assert figures["header"]["num_gpu_blocks"] > 0
    if not model.encoders:  # a step reads what a token goes through, once at least
        assert figures["tpot_ms"]["mean"] > 1000 * 2 * model.num_active_parameters / 3.35e12
