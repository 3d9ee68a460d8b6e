"""What published files hold beyond the defaults of a configuration class, where vLLM cannot build a model without it.

Some classes leave out fields that vLLM reads and every published file has; some architectures have no class at all in
``transformers`` or vLLM: theirs are read with another architecture's class, or with one of these fields alone.
"""

from __future__ import annotations

from typing import Any

__all__ = ["BORROWED", "FIELDS", "WITHOUT_CLASS"]

BORROWED = {
    "Alpamayo2Super": "alpamayo2_super",
    "BagelForConditionalGeneration": "bagel",
    "BailingMoeV3VLForConditionalGeneration": "bailing_moe_v3_vl",
    "Cosmos3ForConditionalGeneration": "cosmos3_omni",
    "DeepseekOCR2ForCausalLM": "deepseek_ocr2",
    "DeepseekOCRForCausalLM": "deepseek_vl_v2",
    "DeepseekV41ForCausalLM": "deepseek_v41",
    "DeepseekVLV2ForCausalLM": "deepseek_vl_v2",
    "Dots3NoteForCausalLM": "dots3_note",
    "FunAudioChatForConditionalGeneration": "funaudiochat",
    "IsaacForConditionalGeneration": "isaac",
    "KimiK3ForConditionalGeneration": "kimi_k3",
    "LightOnOCRForConditionalGeneration": "lighton_ocr",
    "MiDashengLMModel": "midashenglm",
    "MiniMaxM3SparseForCausalLM": "minimax_m3_vl_text",
    "Moondream3ForCausalLM": "moondream3",
    "MossTranscribeDiarizeForConditionalGeneration": "moss_transcribe_diarize",
    "MuseSparkForConditionalGeneration": "muse_spark",
    "OpenVLAForActionPrediction": "openvla",
    "Ovis": "ovis",
    "Step5ForConditionalGeneration": "step5_vl",
    "UltravoxModel": "ultravox",
    "UnlimitedOCRForCausalLM": "unlimited_ocr",
    "VoxtralRealtimeGeneration": "voxtral_realtime",
    "BeamForCausalLM": "beam",
    "ChatGLMForConditionalGeneration": "chatglm",
    "ChatGLMModel": "chatglm",
    "DoryForCausalLM": "dory",
    "ExaoneMoEForCausalLM": "exaone_moe",
    "FlintForCausalLM": "flint",
    "Glm5NextForCausalLM": "glm5_next_text",
    "IQuestCoderForCausalLM": "llama",
    "InternLM3ForCausalLM": "llama",
    "KimiK25ForConditionalGeneration": "kimi_k25",
    "KimiVLForConditionalGeneration": "kimi_vl",
    "LLaMAForCausalLM": "llama",
    "LongcatFlashNgramForCausalLM": "longcat_flash",
    "MiMoForCausalLM": "qwen2",
    "MistralLarge3ForCausalLM": "deepseek_v3",
    "MuseGlimmerForCausalLM": "muse_glimmer_text",
    "NemotronHPuzzleForCausalLM": "nemotron_h",
    "PhiMoEForCausalLM": "phimoe",
    "Qwen2_5OmniModel": "qwen2_5_omni",
    "Qwen3ASRRealtimeGeneration": "qwen3_asr",
    "Rnj1ForCausalLM": "gemma3_text",
    "SolarForCausalLM": "llama",
    "Step3TextForCausalLM": "step3_text",
    "Step3VLForConditionalGeneration": "step3_vl",
    "Step3p5ForCausalLM": "step3p5",
    "Step5ForCausalLM": "step5",
    "TeleChat3ForCausalLM": "llama",
}
"""Architecture -> model_type whose class reads its files."""

_NEMOTRON_LAYERS = ["mamba", "moe", "mamba", "moe", "attention", "mlp", "mamba", "moe", "mamba", "mlp"]

_LFM2_LAYERS = ["conv", "conv", "full_attention", "conv", "conv", "full_attention", "conv", "conv"] * 4

FIELDS: dict[str, dict[str, Any]] = {
    "AfmoeForCausalLM": {
        "score_func": "sigmoid", "route_norm": True, "route_scale": 1.0, "n_group": 1, "topk_group": 1,
    },
    "ChatGLMForConditionalGeneration": {"original_rope": True, "tie_word_embeddings": False},
    "ChatGLMModel": {"original_rope": True, "tie_word_embeddings": False},
    "DbrxForCausalLM": {"attn_config": {"rope_theta": 500_000.0, "kv_n_heads": 8, "clip_qkv": 8.0}},
    "DeepseekV2ForCausalLM": {
        "n_group": 8, "topk_group": 3, "topk_method": "group_limited_greedy", "num_experts_per_tok": 6,
    },
    "DeepseekV32ForCausalLM": {
        "model_type": "deepseek_v32", "index_topk": 2048, "index_n_heads": 64, "index_head_dim": 128,
        "topk_method": "noaux_tc", "scoring_func": "sigmoid", "moe_layer_freq": 1,
    },
    "Gemma4ForConditionalGeneration": {"vision_config": {}},
    "Gemma4UnifiedForConditionalGeneration": {"vision_config": {}},
    "Gemma3nForCausalLM": {"num_kv_shared_layers": 2},
    "Glm4MoeForCausalLM": {"head_dim": 128},
    "Glm4vMoeForConditionalGeneration": {"text_config": {"head_dim": 128, "use_qk_norm": False}},
    "Glm4MoeLiteForCausalLM": {"first_k_dense_replace": 1},
    "HYV3ForCausalLM": {"first_k_dense_replace": 1, "expert_hidden_dim": 1536, "route_norm": True},
    "HunYuanDenseV1ForCausalLM": {"head_dim": 128},
    "HunYuanMoEV1ForCausalLM": {"head_dim": 128},
    "KimiLinearForCausalLM": {
        "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 27, "kv_lora_rank": 512,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "num_experts": 256,
        "num_experts_per_token": 8, "moe_intermediate_size": 1024, "num_shared_experts": 1,
        "first_k_dense_replace": 1,
        "mla_use_nope": True, "head_dim": 72,
        "linear_attn_config": {
            "full_attn_layers": [4, 8, 12, 16, 20, 24, 27], "head_dim": 128, "num_heads": 32,
            "short_conv_kernel_size": 4,
            "kda_layers": [1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15, 17, 18, 19, 21, 22, 23, 25, 26],
        },
    },
    "KimiVLForConditionalGeneration": {"text_config": {"n_group": 1, "topk_group": 1}},
    "Lfm2ForCausalLM": {
        "block_dim": 2560, "conv_dim": 2560, "block_ff_dim": 12288, "full_attn_idxs": [2, 5, 8, 10, 12, 14],
    },
    "Lfm2MoeForCausalLM": {"layer_types": _LFM2_LAYERS},
    "Lfm2VlForConditionalGeneration": {
        "text_config": {"block_dim": 2560, "conv_dim": 2560, "block_ff_dim": 12288, "layer_types":
        _LFM2_LAYERS},
    },
    "LongcatFlashForCausalLM": {"mla_scale_q_lora": True, "mla_scale_kv_lora": True, "zero_expert_type": "identity"},
    "LongcatFlashNgramForCausalLM": {
        "mla_scale_q_lora": True, "mla_scale_kv_lora": True, "zero_expert_type": "identity",
    },
    "MiMoForCausalLM": {"num_nextn_predict_layers": 1},
    "MiniMaxM2ForCausalLM": {
        "rotary_dim": 64, "scoring_func": "sigmoid", "use_qk_norm": True, "use_routing_bias": True,
    },
    "NemotronForCausalLM": {"num_key_value_heads": 8},
    "NemotronHForCausalLM": {"layers_block_type": _NEMOTRON_LAYERS},
    "NemotronHPuzzleForCausalLM": {"layers_block_type": _NEMOTRON_LAYERS},
    "PhiMoEForCausalLM": {"attention_bias": True, "lm_head_bias": True},
    "Qwen3VLMoeForConditionalGeneration": {"text_config": {"norm_topk_prob": True}},
    "SolarForCausalLM": {
        "bskcn_1": [12, 20], "bskcn_2": [20, 32], "bskcn_3": [16, 24], "bskcn_4": [28, 40], "bskcn_tv": [0.9,
        0.8],
    },
}  # fmt: skip
"""Added to the class's own."""

_SIZES = {"hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 10_000.0, "tie_word_embeddings": False}

WITHOUT_CLASS: dict[str, dict[str, Any]] = {
    "BailingMoeForCausalLM": {
        **_SIZES, "model_type": "bailing_moe", "hidden_size": 2048, "intermediate_size": 5632,
        "num_hidden_layers": 28,
        "moe_intermediate_size": 1408, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128,
        "num_experts": 64, "num_experts_per_tok": 6, "num_shared_experts": 2, "norm_topk_prob": True,
        "first_k_dense_replace": 0, "use_bias": False, "use_qkv_bias": False, "vocab_size": 126_464,
        "max_position_embeddings": 16_384, "multi_gate": False, "embedding_dropout": 0.0, "output_dropout": 0.0,
        "norm_head": False, "norm_softmax": False,
    },
    "BailingMoeV2ForCausalLM": {
        **_SIZES, "model_type": "bailing_moe_v2", "hidden_size": 2048, "intermediate_size": 5120,
        "num_hidden_layers": 20, "moe_intermediate_size": 512, "num_attention_heads": 16, "num_key_value_heads": 4,
        "head_dim": 128, "num_experts": 256, "num_experts_per_tok": 8, "num_shared_experts": 1, "n_group": 8,
        "topk_group": 4, "norm_topk_prob": True, "first_k_dense_replace": 1, "use_bias": False, "use_qkv_bias": False,
        "use_qk_norm": True, "moe_router_enable_expert_bias": True, "score_function": "sigmoid",
        "routed_scaling_factor": 2.5, "partial_rotary_factor": 0.5, "vocab_size": 157_184,
        "max_position_embeddings": 32_768, "use_rmsnorm": True, "embedding_dropout": 0.0, "output_dropout": 0.0,
    },
    "DeepseekForCausalLM": {
        **_SIZES, "model_type": "deepseek", "hidden_size": 2048, "intermediate_size": 10_944, "num_hidden_layers": 28,
        "moe_intermediate_size": 1408, "num_attention_heads": 16, "num_key_value_heads": 16, "n_routed_experts": 64,
        "n_shared_experts": 2, "num_experts_per_tok": 6, "first_k_dense_replace": 1, "moe_layer_freq": 1,
        "scoring_func": "softmax", "norm_topk_prob": False, "vocab_size": 102_400, "max_position_embeddings": 4096,
        "attention_bias": False,
    },
    "ExaoneForCausalLM": {
        **_SIZES, "model_type": "exaone", "activation_function": "silu", "hidden_size": 4096, "num_layers": 32,
        "intermediate_size": 14_336, "num_attention_heads": 32, "num_key_value_heads": 8,
        "layer_norm_epsilon": 1e-5, "head_dim": 128, "vocab_size": 102_400, "max_position_embeddings": 4096,
    },
    "InternLM2ForCausalLM": {
        **_SIZES, "model_type": "internlm2", "bias": False, "hidden_size": 4096, "intermediate_size": 14_336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 92_544,
        "max_position_embeddings": 32_768,
    },
    "MiniCPMForCausalLM": {
        **_SIZES, "model_type": "minicpm", "hidden_size": 2304, "intermediate_size": 5760, "num_hidden_layers": 40,
        "num_attention_heads": 36, "num_key_value_heads": 36, "vocab_size": 122_753, "max_position_embeddings": 4096,
        "scale_emb": 12, "dim_model_base": 256, "scale_depth": 1.4, "num_experts": 0,
    },
    "OrionForCausalLM": {
        **_SIZES, "model_type": "orion", "hidden_size": 5120, "intermediate_size": 15_360, "num_hidden_layers": 40,
        "num_attention_heads": 40, "num_key_value_heads": 40, "vocab_size": 84_608, "max_position_embeddings": 4096,
    },
    "TeleFLMForCausalLM": {
        **_SIZES, "model_type": "TeleFLM", "hidden_size": 8192, "intermediate_size": 21_824, "num_hidden_layers": 64,
        "num_attention_heads": 64, "num_key_value_heads": 64, "vocab_size": 80_000, "max_position_embeddings": 4096,
        "use_mup": False, "input_mult": 1.0, "output_mult": 1.0, "mup_scale_factor": 1.0,
    },
}  # fmt: skip
"""All fields of an architecture without a class, as its published files have them."""
