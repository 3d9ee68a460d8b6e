"""What files of recent decoders hold that have no class, and the options without which vLLM builds none of them."""

from __future__ import annotations

from typing import Any

__all__ = ["FIELDS", "OPTIONS", "RECENT"]

_SIZES = {"hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 10_000.0, "tie_word_embeddings": False}
_HYPERCLOVA = {
    **_SIZES, "model_type": "hyperclovax", "architectures": ["HyperCLOVAXForCausalLM"], "hidden_size": 5120,
    "intermediate_size": 24_192, "num_hidden_layers": 72, "num_attention_heads": 40, "num_key_value_heads": 8,
    "head_dim": 128, "max_position_embeddings": 131_072, "vocab_size": 128_256, "attention_bias": False,
    "mlp_bias": False, "use_post_norm": False, "logits_scaling": 1.0, "residual_multiplier": 1.0,
    "embedding_multiplier": 1.0, "attention_multiplier": 0.088,
}  # fmt: skip

_QWEN3 = {
    **_SIZES, "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "hidden_size": 4096,
    "intermediate_size": 12_288, "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8,
    "head_dim": 128, "vocab_size": 151_936, "max_position_embeddings": 40_960, "attention_bias": False,
    "use_sliding_window": False,
}  # fmt: skip
_MISTRAL = {
    **_SIZES, "model_type": "mistral", "architectures": ["MistralForCausalLM"], "hidden_size": 3072,
    "intermediate_size": 8192, "num_hidden_layers": 30, "num_attention_heads": 32, "num_key_value_heads": 8,
    "head_dim": 128, "vocab_size": 131_072, "max_position_embeddings": 131_072, "sliding_window": None,
}  # fmt: skip
_STEP3 = {
    **_SIZES, "model_type": "step3_text", "architectures": ["Step3TextForCausalLM"], "hidden_size": 7168,
    "intermediate_size": 18_432, "num_hidden_layers": 61, "num_attention_heads": 64, "num_attention_groups": 1,
    "head_dim": 256, "share_q_dim": 2048, "moe_num_experts": 48, "moe_top_k": 3, "moe_intermediate_size": 5120,
    "share_expert_dim": 5120, "norm_expert_weight": False, "moe_layers_enum": ",".join(map(str, range(4, 60))),
    "max_seq_len": 65_536, "max_position_embedding": 65_536, "max_position_embeddings": 65_536, "vocab_size": 128_815,
}  # fmt: skip
_PERCEPTION = {
    "model_type": "perception_encoder", "width": 1536, "layers": 47, "heads": 16, "num_channels": 3, "image_size": 728,
    "mlp_ratio": 8960 / 1536, "patch_size": 14, "hidden_act": "quick_gelu", "output_dim": None,
    "use_cls_token": False, "use_abs_posemb": True, "use_rope2d": True, "use_ln_pre": True, "use_ln_post": False,
    "ls_init_value": 0.1, "layer_norm_eps": 1e-5,
}  # fmt: skip
_STEP_VL = {
    "projector_bias": False, "image_token_id": 128_001, "image_token_len": 169, "patch_token_len": 81,
    "understand_projector_stride": 2, "vision_config": _PERCEPTION,
}  # fmt: skip
_QWEN3_MOE = {
    **_QWEN3, "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 4096,
    "num_hidden_layers": 94, "num_attention_heads": 64, "num_key_value_heads": 4, "num_experts": 512,
    "num_experts_per_tok": 8, "moe_intermediate_size": 1536, "decoder_sparse_step": 1, "mlp_only_layers": [],
    "norm_topk_prob": True, "rope_scaling": {
        "rope_type": "default", "fope_init_factor": 0.5, "fope_sep_head": True, "num_inv_freq": 64,
    },
}  # fmt: skip

RECENT: dict[str, dict[str, Any]] = {
    "DomynEdgeForCausalLM": {
        **_SIZES, "model_type": "domyn_edge", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 24,
        "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 131_072,
        "max_position_embeddings": 32_768, "position_layers": ["rope", "rope", "rope", "nope"] * 6,
        "window_sizes": [[1024, 0], [1024, 0], [1024, 0], [-1, -1]] * 6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
    },
    "AliceAIForCausalLM": {
        **_SIZES, "model_type": "alice_ai", "hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 16,
        "num_key_value_heads": 2, "head_dim": 256, "vocab_size": 151_936, "max_position_embeddings": 262_144,
        "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 6, "linear_num_key_heads": 16,
        "linear_num_value_heads": 16, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4, "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512, "norm_topk_prob": True, "block_attn_res_block_size": 4,
        "kda_allow_negative_eigenvalues": False,
        "router_score_function": "sigmoid", "router_bias_correction": True,
        "attention_bias": False, "partial_rotary_factor": 0.25,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 0.25},
    },
    "BailingMoeV3ForCausalLM": {
        **_SIZES, "model_type": "bailing_hybrid", "hidden_size": 2048, "intermediate_size": 5120,
        "num_hidden_layers": 20, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128,
        "vocab_size": 157_184, "max_position_embeddings": 131_072, "kv_lora_rank": 512, "q_lora_rank": None,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "short_conv_kernel_size": 4,
        "no_kda_lora": True, "kda_safe_gate": True, "kda_lower_bound": -5.0, "layer_group_size": 5,
        "num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 512, "num_shared_experts": 1,
        "moe_shared_expert_intermediate_size": 512, "first_k_dense_replace": 1, "n_group": 8, "topk_group": 4,
        "norm_topk_prob": True, "routed_scaling_factor": 2.5, "score_function": "sigmoid", "use_bias": False,
        "use_qkv_bias": False, "moe_router_enable_expert_bias": True, "router_dtype": "fp32",
        "gated_attention_proj_granularity_type": None,
    },
    "HCXVisionV2ForCausalLM": {
        "model_type": "vlm", "text_config": _HYPERCLOVA, "mm_projector_type": "linear", "image_token_id": 128_060,
        "video_token_id": 128_061, "vision_config": {
            "model_type": "qwen2_5_vl_tower", "depth": 32, "hidden_size": 1280, "intermediate_size": 3456,
            "num_heads": 16,
            "out_hidden_size": 5120, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2,
            "window_size": 112, "fullatt_block_indexes": [7, 15, 23, 31], "hidden_act": "silu", "in_channels": 3,
            "in_chans": 3, "tokens_per_second": 2,
        },
    },
    "StepVLForConditionalGeneration": {"model_type": "step_robotics", "text_config": _QWEN3, **_STEP_VL},
    "InternS1ProForConditionalGeneration": {
        "model_type": "interns1_pro", "text_config": _QWEN3_MOE, "image_token_id": 151_655, "video_token_id": 151_656,
        "vision_config": {
            "model_type": "interns1_pro_vision", "depth": 24, "hidden_size": 1024, "intermediate_size": 4096,
            "num_heads": 16, "out_hidden_size": 4096, "patch_size": 16, "spatial_merge_size": 2,
            "temporal_patch_size": 2, "in_channels": 3, "num_position_embeddings": 2304, "hidden_act":
            "gelu_pytorch_tanh", "deepstack_visual_indexes": [], "initializer_range": 0.02,
        },
    },
    "RForConditionalGeneration": {
        "model_type": "rvl", "text_config": _QWEN3, "vision_feature_layer": -1,
        "vision_feature_select_strategy": "full",
        "projector_hidden_act": "gelu", "multimodal_projector_bias": True, "image_token_index": 151_655,
        "image_grid_pinpoints": [[384, 384], [384, 768], [768, 384], [768, 768]],
        "vision_aspect_ratio": "anyres_max_9",
        "vision_config": {
            "model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304,
            "num_hidden_layers": 27, "num_attention_heads": 16, "image_size": 384, "patch_size": 14, "num_channels": 3,
            "attention_dropout": 0.0, "layer_norm_eps": 1e-6, "hidden_act": "gelu_pytorch_tanh",
        },
    },
    "VoxtralForConditionalGeneration": {
        "model_type": "voxtral_published", "text_config": _MISTRAL, "audio_token_id": 24, "audio_config": {
            "model_type": "voxtral_tower", "d_model": 1280, "encoder_attention_heads": 20, "encoder_ffn_dim": 5120,
            "encoder_layers": 32, "num_hidden_layers": 32, "num_mel_bins": 128, "max_source_positions": 1500,
            "downsample_factor": 4, "window_size": 400, "hop_length": 160, "sampling_rate": 16_000, "is_causal": False,
            "dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0, "activation_function": "gelu",
            "encoder_layerdrop": 0.0, "scale_embedding": False, "pos_embed": "sinusoidal", "global_log_mel_max": None,
        },
    },
    "Step3VLForConditionalGeneration": {
        "model_type": "step3_vl_published", "hidden_size": 7168, "text_config": _STEP3, "projector_bias": False,
        "image_token_id": 128_001, "image_token_len": 169, "patch_token_len": 81, "understand_projector_stride": 2,
        "vision_config": {
            "model_type": "step3_vision_encoder", "hidden_size": 1792, "intermediate_size": 15_360,
            "output_hidden_size": 4096, "num_hidden_layers": 63, "num_attention_heads": 16, "num_channels": 3,
            "image_size": 728, "patch_size": 14, "hidden_act": "quick_gelu", "layer_norm_eps": 1e-5,
        },
    },
}  # fmt: skip
"""Architecture -> a whole file."""

_CHUNKED = ["chunked_attention"] * 3 + ["full_attention"]

FIELDS: dict[str, dict[str, Any]] = {
    "FlintForCausalLM": {
        "layer_types": ((["sliding_attention"] * 3 + ["full_attention"]) * 13)[:49], "mlp_only_layers": [0],
    },
    "KimiK3ForConditionalGeneration": {
        "text_config": {
            "activation_situ_beta": 4.0, "activation_situ_linear_beta": 25.0, "attn_res_block_size": 12,
            "first_k_dense_replace": 1, "hidden_act": "situ", "hidden_size": 7168, "intermediate_size": 33_792,
            "kv_lora_rank": 512, "latent_moe_use_norm": True, "linear_attn_config": {
                "full_attn_layers": [*range(4, 93, 4), 93], "head_dim": 128, "num_heads": 96, "gate_lower_bound": -5.0,
                "kda_layers": [each for each in range(1, 93) if each % 4], "short_conv_kernel_size": 4,
                "use_full_rank_gate": True,
            },
            "max_position_embeddings": 1_048_576, "mla_use_nope": True, "mla_use_output_gate": True,
            "moe_intermediate_size": 3072, "moe_layer_freq": 1, "moe_renormalize": True,
            "moe_router_activation_func": "sigmoid", "num_attention_heads": 96, "num_expert_group": 1,
            "num_experts": 896, "num_experts_per_token": 16, "num_hidden_layers": 93, "num_key_value_heads": 96,
            "num_shared_experts": 2, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
            "rms_norm_eps": 1e-5, "routed_expert_hidden_size": 3584, "routed_scaling_factor": 1.0,
            "tie_word_embeddings": False, "topk_group": 1, "topk_method": "noaux_tc", "use_grouped_topk": True,
            "v_head_dim": 128, "vocab_size": 163_840,
        },
        "vision_config": {
            "activation_func": "gelu_pytorch_tanh", "attn_bias": False, "init_pos_emb_height": 64,
            "init_pos_emb_time": 4, "init_pos_emb_width": 64, "linear_bias": False, "merge_kernel_size": [2, 2],
            "merge_type": "sd2_tpool", "mlp_type": "mlp2", "mm_hidden_size": 1024, "norm_type": "rmsnorm",
            "mm_projector_type": "patchmergerv2", "patch_embed_proj_bias": False, "patch_size": 14,
            "pos_emb_interpolation_mode": "bilinear", "pos_emb_type": "divided_fixed", "projector_hidden_act": "gelu",
            "projector_ln_eps": 1e-5, "qkv_hidden_size": 1536, "text_hidden_size": 7168, "vt_hidden_size": 1024,
            "vt_intermediate_size": 4096, "vt_num_attention_heads": 12, "vt_num_hidden_layers": 27,
        },
    },
    "GlmMoeDsaForCausalLM": {"index_topk_freq": 4, "index_skip_topk_offset": 3},
    "Rnj1ForCausalLM": {
        "layer_types": (_CHUNKED * 7)[:26], "num_hidden_layers": 26, "sliding_window": 4096, "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": 10_000.0} for kind in ("chunked_attention", "full_attention")
        },
    },
    "Step1ForCausalLM": {"num_attention_groups": 8},
    "Step5ForCausalLM": {
        "head_dim": 192, "use_head_wise_attn_gate": True, "num_attention_heads": 32, "num_attention_groups": 4,
        "sparse_config": {"enabled": True, "topk": 512}, "use_moe_router_bias": True,
        "need_fp32_gate": True,
    },
}  # fmt: skip
"""Added to the class's own."""

OPTIONS: dict[str, dict[str, Any]] = {
    "OpenPanguVLForConditionalGeneration": {"skip_tokenizer_init": False},
    "FlintForCausalLM": {"attention_backend": "FLASHINFER"},
    "Rnj1ForCausalLM": {"attention_backend": "TRITON_ATTN"},
    "Step1ForCausalLM": {"attention_backend": "TRITON_ATTN"},
}
"""Architecture -> arguments of ``vllm serve`` that it needs: the backend that vLLM would choose refuses it."""
