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


_OTHERWISE = {
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
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "layers", "again"),
    [
        ("Zamba2ForCausalLM", 8, 2),
        ("IQuestLoopCoderForCausalLM", 3, 3),
        ("GPTBigCodeForCausalLM", 4, 0),
        ("MiniCPM3ForCausalLM", 3, 0),
    ],
)
def test_layers_under_other_names_and_layers_that_are_passed_again(
    name: str, layers: int, again: int, tmp_path: Path
) -> None:
    """The command itself ends with 1 where blocks or weights of one or two GPUs differ from vLLM's."""
    raw = {**_OTHERWISE[name], "architectures": [name], "dtype": "bfloat16"}
    model, _ = _described(tmp_path, raw)
    assert [each.repeats for each in model.layers] == [False] * layers + [True] * again
    assert all(each.mixers for each in model.layers)
    if name in ("IQuestLoopCoderForCausalLM", "MiniCPM3ForCausalLM"):
        ours = model_spec(str(tmp_path / "config.json"))
        assert model.kv_bytes_per_token() == ours.kv_bytes_per_token()
        assert model.num_active_parameters == pytest.approx(ours.num_active_parameters, rel=0.01)
