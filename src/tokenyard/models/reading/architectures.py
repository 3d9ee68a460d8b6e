"""Which function reads which architecture, and what its configuration class takes for granted."""

from __future__ import annotations

from typing import Any

from tokenyard.models.reading import dense, hybrid, multimodal, sparse
from tokenyard.models.reading.parts import Family

__all__ = ["ARCHITECTURES", "CLASS_DEFAULTS"]

ARCHITECTURES: dict[str, Family] = {
    "BambaForCausalLM": hybrid.bamba,
    "Cohere2ForCausalLM": dense.command_r2,
    "CohereForCausalLM": dense.command_r,
    "DeepseekV2ForCausalLM": sparse.deepseek,
    "DeepseekV32ForCausalLM": sparse.deepseek,
    "DeepseekV3ForCausalLM": sparse.deepseek,
    "FalconH1ForCausalLM": hybrid.falcon_h1,
    "Gemma2ForCausalLM": dense.gemma2,
    "Gemma3ForCausalLM": dense.gemma3,
    "Gemma3ForConditionalGeneration": multimodal.gemma3_vision,
    "Glm4ForCausalLM": dense.glm4,
    "Glm4MoeForCausalLM": sparse.glm4_moe,
    "GptOssForCausalLM": sparse.gpt_oss,
    "GraniteMoeHybridForCausalLM": hybrid.granite_hybrid,
    "JambaForCausalLM": hybrid.jamba,
    "Llama4ForCausalLM": sparse.llama4,
    "Llama4ForConditionalGeneration": multimodal.llama4_vision,
    "LlamaForCausalLM": dense.llama,
    "MiniMaxM2ForCausalLM": sparse.minimax_m2,
    "Mistral3ForConditionalGeneration": multimodal.mistral3,
    "MistralForCausalLM": dense.llama,
    "MixtralForCausalLM": sparse.mixtral,
    "NemotronHForCausalLM": hybrid.nemotron_h,
    "Phi3ForCausalLM": dense.phi3,
    "PhiForCausalLM": dense.phi,
    "PhiMoEForCausalLM": sparse.phimoe,
    "Qwen2ForCausalLM": dense.qwen2,
    "Qwen2MoeForCausalLM": sparse.qwen2_moe,
    "Qwen2_5_VLForConditionalGeneration": multimodal.qwen2_5_vl,
    "Qwen3ForCausalLM": dense.qwen3,
    "Qwen3MoeForCausalLM": sparse.qwen3_moe,
    "Qwen3NextForCausalLM": hybrid.qwen3_next,
    "WhisperForConditionalGeneration": multimodal.whisper,
}
"""By the name in ``architectures``."""

CLASS_DEFAULTS: dict[str, dict[str, Any]] = {
    "gemma3_text": {
        "head_dim": 256,
        "max_position_embeddings": 131_072,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "sliding_window": 4096,
        "tie_word_embeddings": True,
        "vocab_size": 262_208,
    },
    "gemma2": {"head_dim": 256, "sliding_window": 4096, "tie_word_embeddings": True, "vocab_size": 256_000},
    "cohere": {"tie_word_embeddings": True},
    "cohere2": {"tie_word_embeddings": True, "sliding_window": 4096},
    "whisper": {"max_source_positions": 1500, "max_target_positions": 448, "vocab_size": 51_865},
    "qwen3_next": {
        "full_attention_interval": 4,
        "head_dim": 256,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
        "linear_value_head_dim": 128,
    },
}
"""By ``model_type``: values that files of this family leave out, as ``transformers`` fills them in."""
