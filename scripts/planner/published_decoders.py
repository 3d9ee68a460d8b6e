"""Fields of decoders without a configuration class in ``transformers`` or vLLM, as published files have them."""

from __future__ import annotations

from typing import Any

__all__ = ["DECODERS"]

_SIZES = {"hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 10_000.0, "tie_word_embeddings": False}

_LING = {
    **_SIZES, "hidden_size": 4096, "intermediate_size": 8192, "num_hidden_layers": 20, "num_attention_heads": 32,
    "num_key_value_heads": 4, "head_dim": 128, "moe_intermediate_size": 1024, "num_experts": 128,
    "num_experts_per_tok": 6, "num_shared_experts": 1, "n_group": 1, "topk_group": 1, "norm_topk_prob": True,
    "first_k_dense_replace": 1, "use_bias": False, "use_qkv_bias": False, "use_qk_norm": True,
    "moe_router_enable_expert_bias": True, "score_function": "sigmoid", "routed_scaling_factor": 2.5,
    "vocab_size": 157_184, "max_position_embeddings": 131_072, "embedding_dropout": 0.0, "output_dropout": 0.0,
}  # fmt: skip
_LATENT = {
    "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
}  # fmt: skip
_NO_ATTENTION = {"no_op": True, "n_heads_in_group": None, "window_length": None}
_ATTENTION = {"no_op": False, "n_heads_in_group": 8, "window_length": None}
_BLOCKS = [
    {"attention": _ATTENTION, "ffn": {"no_op": False, "ffn_mult": 5.25}},
    {"attention": _NO_ATTENTION, "ffn": {"no_op": False, "ffn_mult": 2.625}},
    {"attention": _ATTENTION, "ffn": {"no_op": True, "ffn_mult": None}},
    {"attention": _ATTENTION, "ffn": {"no_op": False, "ffn_mult": 1.3125}},
] * 20  # fmt: skip

DECODERS: dict[str, dict[str, Any]] = {
    "BailingMoeV2_5ForCausalLM": {
        **_LING, **_LATENT, "model_type": "bailing_hybrid", "hidden_size": 8192, "intermediate_size": 18_432,
        "num_attention_heads": 64, "num_key_value_heads": 64, "num_hidden_layers": 40, "moe_intermediate_size": 2048,
        "num_experts": 256, "layer_group_size": 8, "group_norm_size": 8, "linear_silu": False,
        "partial_rotary_factor": 0.5, "rope_interleave": True, "head_dim": 128,
    },
    "SarvamMoEForCausalLM": {**_LING, "model_type": "sarvam_moe"},
    "SarvamMLAForCausalLM": {
        **_LING, **_LATENT, "model_type": "sarvam_mla", "num_attention_heads": 64, "num_key_value_heads": 64,
        "q_lora_rank": None, "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0}, "moe_layer_freq": 1,
    },
    "Param2MoEForCausalLM": {
        **_LING, "model_type": "param2moe", "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 8,
        "rope_scaling": None,
    },
    "Plamo3ForCausalLM": {
        **_SIZES, "model_type": "plamo3", "hidden_size": 4096, "intermediate_size": 16_384, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 107_520,
        "max_position_embeddings": 4096, "window_size": 2048, "sliding_window": 2048, "sliding_window_pattern": 8,
        "rope_local_theta": 10_000, "interleaved_sliding_window": ([2048] * 7 + [None]) * 4,
        "layer_types": (["sliding_attention"] * 7 + ["full_attention"]) * 4,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000},
    },
    "Step1ForCausalLM": {
        **_SIZES, "model_type": "step1", "hidden_size": 6144, "intermediate_size": 13_824, "num_hidden_layers": 32,
        "num_attention_heads": 48, "num_attention_groups": 4, "vocab_size": 65_536, "max_position_embeddings": 16_384,
        "max_seq_len": 16_384,
    },
    "TeleChat2ForCausalLM": {
        "model_type": "telechat", "hidden_size": 5120, "ffn_hidden_size": 12_288, "n_layer": 38, "n_head": 32,
        "num_key_value_heads": 32, "vocab_size": 131_072, "max_position_embeddings": 8192, "seq_length": 8192,
        "layer_norm_epsilon": 1e-5, "tie_word_embeddings": False, "rope_theta": 10_000.0, "hidden_act": "silu",
    },
    "DeciLMForCausalLM": {
        **_SIZES, "model_type": "nemotron-nas", "hidden_size": 8192, "intermediate_size": None,
        "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": None, "vocab_size": 128_256,
        "max_position_embeddings": 131_072, "attention_bias": False, "mlp_bias": False, "block_configs": _BLOCKS,
    },
    "PanguEmbeddedForCausalLM": {
        **_SIZES, "model_type": "PanguEmbedded", "hidden_size": 4096, "intermediate_size": 12_800,
        "num_hidden_layers": 34, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 153_376,
        "max_position_embeddings": 32_768, "bias": True, "tie_word_embeddings": False,
    },
    "PanguUltraMoEForCausalLM": {
        **_SIZES, **_LATENT, "model_type": "pangu_ultra_moe", "hidden_size": 7680, "intermediate_size": 18_432,
        "moe_intermediate_size": 2048, "num_hidden_layers": 61, "num_attention_heads": 128,
        "num_key_value_heads": 128, "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8,
        "first_k_dense_replace": 3, "norm_topk_prob": True, "routed_scaling_factor": 2.5, "sandwich_norm": True,
        "router_enable_expert_bias": False, "vocab_size": 153_600, "max_position_embeddings": 131_072,
        "rope_parameters": {"rope_type": "default", "rope_theta": 25_600_000},
    },
    "PanguProMoEV2ForCausalLM": {
        **_SIZES, "model_type": "PanguProMoE", "hidden_size": 4608, "intermediate_size": 10_240,
        "moe_intermediate_size": 1280, "num_hidden_layers": 50, "num_attention_heads": 64, "num_key_value_heads": 8,
        "head_dim": 128, "qk_nope_dim": 128, "qk_rope_dim": 64, "v_channels": 128, "param_sink_number": 128,
        "param_sink_with_value": True, "n_routed_experts": 80, "n_shared_experts": 1, "num_experts_per_tok": 8,
        "first_k_dense_replace": 4, "norm_topk_prob": True, "routed_scaling_factor": 2.5, "sandwich_norm": True,
        "router_enable_expert_bias": True, "vocab_size": 153_600, "max_position_embeddings": 131_072,
        "rope_scaling": None, "bias": False, "torch_dtype": "bfloat16",
    },
    "IQuestLoopCoderForCausalLM": {
        **_SIZES, "model_type": "iquestloopcoder", "hidden_size": 5120, "intermediate_size": 27_648,
        "num_hidden_layers": 80, "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128,
        "vocab_size": 76_800, "max_position_embeddings": 131_072, "loop_num": 2, "loop_window_size": 64,
        "attention_bias": False, "mlp_bias": False,
    },
    "K2HorizonForCausalLM": {
        **_SIZES, "model_type": "k2_horizon", "hidden_size": 4096, "intermediate_size": 12_288,
        "moe_intermediate_size": 1536, "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 8,
        "head_dim": 128, "rope_head_dim": 64, "query_key_norm": True, "attention_bias": False,
        "attention_gate_func": "sigmoid", "mova_num_experts": 0, "mova_num_experts_per_tok": 0, "moe_gate_bias": True,
        "router_score_func": "sigmoid", "router_scaling_factor": 2.5, "num_experts": 128, "num_experts_per_tok": 8,
        "num_shared_experts": 1, "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [],
        "layernorm_num_groups": 1, "vocab_size": 250_112, "max_position_embeddings": 131_072,
    },
}  # fmt: skip
