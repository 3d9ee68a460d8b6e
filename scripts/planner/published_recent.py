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
        "shared_expert_intermediate_size": 512, "norm_topk_prob": True, "block_attn_res_block_size": 4, "kda_allow_negative_eigenvalues": False,
        "router_score_function": "sigmoid", "router_bias_correction": True,
        "attention_bias": False, "partial_rotary_factor": 0.25,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 0.25},
    },
    "BailingMoeV3ForCausalLM": {
        **_SIZES, "model_type": "bailing_moe_v3", "hidden_size": 2048, "intermediate_size": 5120,
        "num_hidden_layers": 20, "num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 128,
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
            "model_type": "qwen2_5_vl_tower", "depth": 32, "hidden_size": 1280, "intermediate_size": 3456, "num_heads": 16,
            "out_hidden_size": 5120, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2,
            "window_size": 112, "fullatt_block_indexes": [7, 15, 23, 31], "hidden_act": "silu", "in_channels": 3,
            "in_chans": 3, "tokens_per_second": 2,
        },
    },
}  # fmt: skip
"""Architecture -> a whole file."""

_CHUNKED = ["chunked_attention"] * 3 + ["full_attention"]

FIELDS: dict[str, dict[str, Any]] = {
    "FlintForCausalLM": {
        "layer_types": ((["sliding_attention"] * 3 + ["full_attention"]) * 13)[:49], "mlp_only_layers": [0],
    },
    "Rnj1ForCausalLM": {
        "layer_types": (_CHUNKED * 7)[:26], "num_hidden_layers": 26, "sliding_window": 4096, "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": 10_000.0} for kind in ("chunked_attention", "full_attention")
        },
    },
    "Step1ForCausalLM": {"num_attention_groups": 8},
    "Step5ForCausalLM": {"head_dim": 192, "use_head_wise_attn_gate": True, "num_attention_groups": 4, "sparse_config": {"enabled": True, "topk": 512}},
}  # fmt: skip
"""Added to the class's own."""

OPTIONS: dict[str, dict[str, Any]] = {
    "FlintForCausalLM": {"attention_backend": "FLASHINFER"},
    "Rnj1ForCausalLM": {"attention_backend": "TRITON_ATTN"},
    "Step1ForCausalLM": {"attention_backend": "TRITON_ATTN"},
}
"""Architecture -> arguments of ``vllm serve`` that it needs: the backend that vLLM would choose refuses it."""
