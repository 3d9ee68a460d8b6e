"""Fields of models behind towers without a class in ``transformers`` or vLLM, as published files have them."""

from __future__ import annotations

from typing import Any

__all__ = ["TOWERS"]

_SIZES = {"hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 1_000_000.0, "tie_word_embeddings": False}

_QWEN2 = {
    **_SIZES, "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_size": 5120,
    "intermediate_size": 27_648, "num_hidden_layers": 64, "num_attention_heads": 40, "num_key_value_heads": 8,
    "vocab_size": 152_064, "max_position_embeddings": 32_768, "use_sliding_window": False,
}  # fmt: skip
_QWEN3 = {
    **_SIZES, "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "hidden_size": 4096,
    "intermediate_size": 12_288, "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8,
    "head_dim": 128, "vocab_size": 151_936, "max_position_embeddings": 40_960, "attention_bias": False,
}  # fmt: skip
_QWEN3_MOE = {
    **_SIZES, "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 2048,
    "intermediate_size": 6144, "moe_intermediate_size": 768, "num_hidden_layers": 48, "num_attention_heads": 32,
    "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": True,
    "decoder_sparse_step": 1, "mlp_only_layers": [], "vocab_size": 151_936, "max_position_embeddings": 40_960,
}  # fmt: skip
_LLAMA = {
    **_SIZES, "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096,
    "intermediate_size": 14_336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "vocab_size": 128_256, "max_position_embeddings": 131_072,
}  # fmt: skip
_INTERN_VIT = {
    "model_type": "intern_vit_6b", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
    "num_attention_heads": 16, "image_size": 448, "patch_size": 14, "num_channels": 3, "qkv_bias": True,
    "qk_normalization": False, "norm_type": "layer_norm", "hidden_act": "gelu", "layer_norm_eps": 1e-6,
    "initializer_factor": 0.1, "use_mean_pooling": True, "attention_dropout": 0.0, "dropout": 0.0,
}  # fmt: skip
_INTERN_VIT_6B = {
    **_INTERN_VIT, "hidden_size": 3200, "intermediate_size": 12_800, "num_hidden_layers": 45,
    "num_attention_heads": 25, "qkv_bias": False, "qk_normalization": True, "norm_type": "rms_norm",
}  # fmt: skip
_INTERN_VL = {
    "downsample_ratio": 0.5, "select_layer": -1, "ps_version": "v2", "force_image_size": 448, "use_thumbnail": True,
    "dynamic_image_size": True, "min_dynamic_patch": 1, "max_dynamic_patch": 12, "template": "internvl2_5",
    "pad2square": False, "vision_config": _INTERN_VIT,
}  # fmt: skip
_SIGLIP = {
    "model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27,
    "num_attention_heads": 16, "image_size": 448, "patch_size": 14, "num_channels": 3,
    "attention_dropout": 0.0, "layer_norm_eps": 1e-6, "hidden_act": "gelu_pytorch_tanh",
}  # fmt: skip
_KEYE = {
    **_QWEN3, "model_type": "Keye",
    "vision_config": {
        **_SIGLIP, "model_type": "keye_vision", "image_size": 384, "spatial_merge_size": 2, "layer_norm_eps": 1e-6,
        "hidden_act": "gelu_pytorch_tanh", "attention_dropout": 0.0, "temporal_patch_size": 2,
        "tokens_per_second": 2,
    },
    "rope_scaling": {"mrope_section": [16, 24, 24], "rope_type": "default", "type": "default"},
}  # fmt: skip
_OVIS_VIT = {
    "model_type": "siglip2_navit", "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27,
    "num_attention_heads": 16, "num_channels": 3, "patch_size": 16, "temporal_patch_size": 1, "image_size": 512,
    "num_patches": -1, "hidden_stride": 2, "hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6,
    "preserve_original_pe": True, "use_rope": True, "window_size": 112, "fullatt_block_indexes": None,
    "attention_dropout": 0.0,
}  # fmt: skip
_MINICPM = {
    "query_num": 64, "image_size": 448, "drop_vision_last_layer": False, "batch_vision_input": True,
    "patch_size": 14, "slice_mode": True, "use_image_id": True, "slice_config": {"max_slice_nums": 9},
    "vision_config": {**_SIGLIP, "image_size": 980},
}  # fmt: skip

_OCR_LANGUAGE = {
    **_SIZES, "model_type": "deepseek_v2", "architectures": ["DeepseekV2ForCausalLM"], "hidden_size": 1280,
    "intermediate_size": 6848, "moe_intermediate_size": 896, "num_hidden_layers": 12, "num_attention_heads": 10,
    "num_key_value_heads": 10, "n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6,
    "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1, "topk_method": "greedy", "q_lora_rank": None,
    "kv_lora_rank": None, "qk_nope_head_dim": 0, "qk_rope_head_dim": 0, "v_head_dim": 0, "use_mla": False,
    "max_position_embeddings": 8192, "vocab_size": 129_280, "lm_head": True, "rm_head": False,
}  # fmt: skip
_OCR = {
    "model_type": "deepseek_vl_v2", "tile_tag": "2D", "global_view_pos": "head",
    "candidate_resolutions": [[1024, 1024]], "language_config": _OCR_LANGUAGE,
    "projector_config": {
        "input_dim": 2048, "n_embed": 1280, "model_type": "mlp_projector", "projector_type": "linear",
    },
    "vision_config": {
        "image_size": 1024, "mlp_ratio": 3.7362, "model_name": "deeplip_b_l", "model_type": "vision", "width": {
            "clip-l-14-224": {"heads": 16, "image_size": 224, "layers": 24, "patch_size": 14, "width": 1024},
            "sam_vit_b": {
                "downsample_channels": [512, 1024], "global_attn_indexes": [2, 5, 8, 11], "heads": 12, "layers": 12,
                "width": 768,
            },
        },
    },
}  # fmt: skip

_NEMOTRON_VL = {
    "downsample_ratio": 0.5, "force_image_size": 512, "patch_size": 16, "ps_version": "v2", "template": "nemotron5h",
    "vit_hidden_size": 1280, "projector_hidden_size": 20_480, "image_tag_type": "internvl", "use_thumbnail": True,
    "norm_mean": [0.48, 0.46, 0.41], "norm_std": [0.27, 0.26, 0.28], "max_sequence_length": 131_072,
    "vision_config": {
        "model_type": "radio", "args": {"model": "vit_huge_patch16_224"}, "image_size": 512, "patch_size": 16,
        "preferred_resolution": [768, 768], "resolution_step": 16, "max_resolution": 2048,
        "video_temporal_patch_size": 1, "separate_video_embedder": True,
    },
    "llm_config": {
        "model_type": "nemotron_h", "architectures": ["NemotronHForCausalLM"], "dtype": "bfloat16",
        "hidden_size": 4480,
        "intermediate_size": 15_680, "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128,
        "attention_head_dim": 128, "vocab_size": 131_072, "max_position_embeddings": 131_072, "mamba_num_heads": 128,
        "mamba_head_dim": 80, "ssm_state_size": 128, "n_groups": 8, "conv_kernel": 4, "chunk_size": 128,
        "mlp_hidden_act": "relu2", "mlp_bias": False, "attention_bias": False, "use_bias": False, "use_conv_bias": True,
        "tie_word_embeddings": False, "layer_norm_epsilon": 1e-5, "expand": 2,
        "layers_block_type": ["mamba", "mlp", "mamba", "mlp", "mamba", "attention", "mlp"] * 8,
    },
}  # fmt: skip

TOWERS: dict[str, dict[str, Any]] = {
    "SkyworkR1VChatModel": {**_INTERN_VL, "model_type": "skywork_chat", "llm_config": _QWEN2},
    "H2OVLChatModel": {**_INTERN_VL, "model_type": "h2ovl_chat", "use_msac": True, "llm_config": _LLAMA},
    "NVLM_D": {
        **_INTERN_VL, "model_type": "NVLM_D", "vision_config": _INTERN_VIT_6B, "llm_config": {
            **_QWEN2, "hidden_size": 8192, "intermediate_size": 29_568, "num_hidden_layers": 80,
            "num_attention_heads": 64, "num_key_value_heads": 8,
        },
    },
    "Eagle2_5_VLForConditionalGeneration": {
        **_INTERN_VL, "model_type": "eagle_2_5_vl", "text_config": _QWEN3, "vision_config": _SIGLIP,
    },
    "KananaVForConditionalGeneration": {"model_type": "kanana-1.5-v", "text_config": _LLAMA, "vision_config": _SIGLIP},
    "KeyeForConditionalGeneration": _KEYE,
    "KeyeVL1_5ForConditionalGeneration": {**_KEYE, "model_type": "KeyeVL1_5"},
    "Ovis2_5": {
        "model_type": "ovis2_5", "hidden_size": 4096, "visual_vocab_size": 65_536, "conversation_formatter_class": "",
        "llm_config": _QWEN3, "vit_config": _OVIS_VIT,
    },
    "Ovis2_6ForCausalLM": {
        "model_type": "ovis2_6", "hidden_size": 4096, "visual_vocab_size": 65_536, "llm_config": _QWEN3,
        "vit_config": _OVIS_VIT,
    },
    "Ovis2_6_MoeForCausalLM": {
        "model_type": "ovis2_6_moe", "hidden_size": 2048, "visual_vocab_size": 65_536, "llm_config": _QWEN3_MOE,
        "vit_config": _OVIS_VIT,
    },
    "MiniCPMV": {**_QWEN3, **_MINICPM, "model_type": "minicpmv", "version": 4.5},
    "MiniCPMO": {
        **_QWEN2, **_MINICPM, "model_type": "minicpmo", "version": 2.6, "init_audio": True, "init_vision": True,
        "init_tts": False, "audio_pool_step": 2, "audio_chunk_length": 1.0, "stream_input": False,
        "audio_config": {
            "model_type": "whisper", "d_model": 1024, "encoder_attention_heads": 16, "encoder_ffn_dim": 4096,
            "encoder_layers": 24, "num_mel_bins": 80, "max_source_positions": 1500, "num_hidden_layers": 24,
            "dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0, "activation_function": "gelu",
            "encoder_layerdrop": 0.0, "scale_embedding": False,
        },
    },
    "DeepseekVLV2ForCausalLM": {
        "model_type": "deepseek_vl_v2", "tile_tag": "2D", "global_view_pos": "head", "language_config": {
            **_OCR_LANGUAGE, "hidden_size": 2560, "intermediate_size": 12_288, "moe_intermediate_size": 1536,
            "num_hidden_layers": 30, "num_attention_heads": 32, "num_key_value_heads": 32, "n_routed_experts": 72,
            "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "use_mla": True,
            "topk_method": "noaux_tc", "scoring_func": "sigmoid", "vocab_size": 129_280,
        },
        "projector_config": {"input_dim": 1152, "model_type": "mlp_projector", "n_embed": 2560},
        "vision_config": {
            "layers": 27, "mlp_ratio": 3.7362, "model_name": "siglip_so400m_patch14_384", "model_type": "vision",
            "patch_size": 14, "width": 1152, "image_size": 384, "heads": 16,
        },
    },
    "DeepseekOCRForCausalLM": _OCR,
    "DeepseekOCR2ForCausalLM": {
        **_OCR, "projector_config": {
            "input_dim": 896, "n_embed": 1280, "model_type": "mlp_projector", "projector_type": "linear",
        },
    },
    "UnlimitedOCRForCausalLM": {**_OCR, "model_type": "unlimited_ocr"},
    "DotsOCRForCausalLM": {
        **_QWEN2, "model_type": "dots_ocr", "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28,
        "num_attention_heads": 12, "num_key_value_heads": 2, "attention_bias": True, "vocab_size": 151_936,
        "max_position_embeddings": 131_072, "image_token_id": 151_665, "video_token_id": 151_656, "vision_config": {
            "model_type": "dots_vit", "embed_dim": 1536, "hidden_size": 1536, "intermediate_size": 4224,
            "num_hidden_layers": 42, "num_attention_heads": 12, "num_channels": 3, "patch_size": 14,
            "spatial_merge_size": 2, "temporal_patch_size": 1, "rms_norm_eps": 1e-5, "use_bias": False,
            "post_norm": True, "is_causal": False, "init_merger_std": 0.02, "initializer_range": 0.02,
        },
    },
    "GLM4VForCausalLM": {
        "model_type": "chatglm", "num_layers": 40, "padded_vocab_size": 151_552, "hidden_size": 4096,
        "ffn_hidden_size": 13_696, "kv_channels": 128, "num_attention_heads": 32, "seq_length": 8192,
        "layernorm_epsilon": 1.5625e-07, "rmsnorm": True, "apply_residual_connection_post_layernorm": False,
        "post_layer_norm": True, "add_bias_linear": False, "add_qkv_bias": True, "bias_dropout_fusion": True,
        "multi_query_attention": True, "multi_query_group_num": 2, "rope_ratio": 1, "original_rope": True,
        "apply_query_key_layer_scaling": True, "attention_softmax_in_fp32": True, "fp32_residual_connection": False,
        "tie_word_embeddings": False, "boi_token_id": 151_339, "eoi_token_id": 151_340, "pad_token_id": 151_329,
        "vision_config": {
            "dropout_prob": 0.0, "hidden_act": "gelu", "in_channels": 3, "num_hidden_layers": 63, "hidden_size": 1792,
            "patch_size": 14, "num_heads": 16, "intermediate_size": 15_360, "layer_norm_eps": 1e-6,
            "num_positions": 6401, "image_size": 1120, "scaling_factor": 8,
        },
    },
    "Phi3VForCausalLM": {
        **_SIZES, "model_type": "phi3_v", "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32_064,
        "max_position_embeddings": 131_072, "original_max_position_embeddings": 4096, "sliding_window": 262_144,
        "embd_layer": {
            "embedding_cls": "image", "hd_transform_order": "sub_glb", "projection_cls": "mlp",
            "use_hd_transform": True, "with_learnable_separator": True,
        },
        "img_processor": {
            "image_dim_out": 1024, "model_name": "openai/clip-vit-large-patch14-336", "name": "clip_vision_model",
            "num_img_tokens": 144,
        },
    },
    "PixtralForConditionalGeneration": {
        "model_type": "pixtral", "text_config": {
            **_SIZES, "model_type": "mistral", "architectures": ["MistralForCausalLM"], "hidden_size": 5120,
            "intermediate_size": 14_336, "num_hidden_layers": 40, "num_attention_heads": 32,
            "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 131_072, "max_position_embeddings": 131_072,
        },
        "vision_config": {
            "model_type": "pixtral_vision", "hidden_size": 1024,
            "num_channels": 3, "image_size": 1024, "patch_size": 16,
            "rope_theta": 10_000.0, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16,
            "image_token_id": 10, "adapter_bias": True, "max_image_size": 1024,
        },
    },
    "NemotronH_Nano_VL_V2": {"model_type": "NemotronH_Nano_VL_V2", **_NEMOTRON_VL},
    "NemotronH_Nano_Omni_Reasoning_V3": {"model_type": "NemotronH_Nano_Omni_Reasoning_V3", **_NEMOTRON_VL},
    "NemotronH_Super_Omni_Reasoning_V3": {"model_type": "NemotronH_Super_Omni_Reasoning_V3", **_NEMOTRON_VL},
    "NemotronH_Omni_Reasoning_V3": {"model_type": "NemotronH_Omni_Reasoning_VL_V3", **_NEMOTRON_VL},
    "Phi4ForCausalLMV": {
        **_SIZES, "model_type": "phi4-siglip", "hidden_size": 5120, "intermediate_size": 17_920,
        "num_hidden_layers": 40, "num_attention_heads": 40, "num_key_value_heads": 10, "vocab_size": 100_352,
        "max_position_embeddings": 32_768, "mm_hidden_size": 1152, "mm_projector_type": "mlp2x_gelu",
        "original_max_position_embeddings": 32_768, "sliding_window": None,
        "vision_config": {
            "model_type": "siglip2_vision_model", "hidden_size": 1152, "intermediate_size": 4304,
            "num_hidden_layers": 27, "num_attention_heads": 16, "patch_size": 16, "num_channels": 3,
            "num_patches": 256, "attention_dropout": 0.0, "hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6,
        },
    },
    "Molmo2ForConditionalGeneration": {
        "model_type": "molmo2", "image_patch_id": 151_938, "tie_word_embeddings": False,
        "adapter_config": {
            "model_type": "", "vit_layers": [-3, -9], "pooling_attention_mask": True, "hidden_size": 1152,
            "num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 72, "hidden_act": "silu",
            "intermediate_size": 12_288, "text_hidden_size": 4096,
        },
        "vit_config": {
            "model_type": "molmo2_vit", "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27,
            "num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 72, "hidden_act": "gelu_pytorch_tanh",
            "layer_norm_eps": 1e-6, "image_default_input_size": [378, 378], "image_patch_size": 14,
            "image_num_pos": 729,
        },
        "text_config": {
            **_SIZES, "model_type": "molmo2_text", "hidden_size": 4096, "num_attention_heads": 32,
            "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151_936, "additional_vocab_size": 128,
            "qkv_bias": False, "num_hidden_layers": 36, "intermediate_size": 12_288, "max_position_embeddings": 36_864,
            "use_qk_norm": True, "qk_norm_type": "qwen3", "layer_norm_eps": 1e-6, "norm_after": False,
            "rope_scaling_layers": None, "tie_word_embeddings": False,
        },
    },
    "OpenCUAForConditionalGeneration": {
        "model_type": "opencua", "text_config": _QWEN2, "vision_config": {
            "model_type": "opencua_vision", "depth": 32, "hidden_size": 1280, "intermediate_size": 3456,
            "num_heads": 16,
            "out_hidden_size": 5120, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2,
            "window_size": 112, "fullatt_block_indexes": [7, 15, 23, 31], "hidden_act": "silu", "in_channels": 3,
            "in_chans": 3, "tokens_per_second": 2,
        },
    },
}  # fmt: skip
