"""Fields of published files that configuration classes leave out, further: towers, and decoders since 0.32."""

from __future__ import annotations

from typing import Any

__all__ = ["BORROWED", "FIELDS", "VARIANTS", "WITHOUT_CLASS"]

BORROWED = {
    "DeepseekV4ForConditionalGeneration": "deepseek_v4",
    "InklingForCausalLM": "inkling_model",
    "InternS2MobiusForConditionalGeneration": "qwen3_5_moe",
    "MiniCPMOcrForConditionalGeneration": "minicpmv4_6",
}
"""Architecture -> model_type whose class reads its files."""

_SIZES = {"hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 10_000.0, "tie_word_embeddings": False}
_LLAMA = {
    **_SIZES, "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128_256, "max_position_embeddings": 131_072,
}  # fmt: skip
_QWEN3 = {
    **_SIZES, "model_type": "qwen3", "hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151_936,
    "max_position_embeddings": 40_960,
}  # fmt: skip
_QWEN2 = {
    **_SIZES, "model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18_944, "num_hidden_layers": 28,
    "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152_064, "max_position_embeddings": 32_768,
}  # fmt: skip
_GLM5_NEXT = {
    "mhc": True,
    "mla_use_nope": True,
    "topk_method": "noaux_tc",
    "scoring_func": "sigmoid",
    "indexer_rope_interleave": True,
}
_STEP5 = {
    "num_attention_heads": 32, "num_attention_groups": 4, "head_dim": 192, "use_head_wise_attn_gate": True,
    "sparse_config": {"enabled": True, "topk": 512}, "use_moe_router_bias": True,
        "need_fp32_gate": True,
}  # fmt: skip
_INKLING = {
    "hidden_size": 6144, "intermediate_size": 3072, "dense_intermediate_size": 24_576, "num_hidden_layers": 24,
    "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128, "v_head_dim": 128,
    "swa_num_attention_heads": 64, "swa_num_key_value_heads": 16, "swa_head_dim": 128, "swa_v_head_dim": 128,
    "local_layer_ids": [i for i in range(24) if i % 6 != 5], "sliding_window_size": 512, "use_embed_norm": True,
    "use_sconv": True, "sconv_kernel_size": 4, "dense_mlp_idx": 2, "n_routed_experts": 256, "n_shared_experts": 2,
    "num_experts_per_tok": 6, "route_scale": 8.0, "use_gate_bias": True, "use_global_scale": True,
    "shared_expert_sink": True, "padded_vocab_size": 201_024, "unpadded_vocab_size": 200_058,
}  # fmt: skip

FIELDS: dict[str, dict[str, Any]] = {
    "BailingMoeV3VLForConditionalGeneration": {"text_config": {"no_kda_lora": True}},
    "CohereCompassForConditionalGeneration": {"tie_word_embeddings": True},
    "DeepseekV4ForConditionalGeneration": {
        "vision_n_layers": 24, "vision_dim": 1024, "vision_n_heads": 16, "vision_inter_dim": 2816,
        "vision_patch_size": 14, "vision_rope_theta": 10_000.0, "vision_downsample_ratio": 3,
        "vision_max_n_token": 1024, "vision_min_pixels": 295_936, "vision_max_wh_ratio": 200,
    },
    "FunAudioChatForConditionalGeneration": {
        "text_config": _QWEN3, "audio_config": {
            "codebook_size": 6565, "output_dim": 2560, "bos_token_id": 6561, "eos_token_id": 6562,
            "pad_token_id": 6563,
        },
    },
    "Glm5NextForCausalLM": _GLM5_NEXT,
    "Glm5NextForConditionalGeneration": {"text_config": _GLM5_NEXT},
    "Granite4VisionForConditionalGeneration": {
        "text_config": {
            **_SIZES, "model_type": "granite", "hidden_size": 2560, "intermediate_size": 8192,
            "num_hidden_layers": 40, "num_attention_heads": 40, "num_key_value_heads": 8, "vocab_size": 100_352,
            "max_position_embeddings": 131_072,
        },
        "downsample_rate": "4/8", "deepstack_layer_map": [[-19, 9], [-13, 6], [-7, 3], [-1, 0]],
    },
    "InternS2MobiusForConditionalGeneration": {"text_config": {"num_blocks": 4}},
    "HunYuanVLForConditionalGeneration": {"text_config": {"head_dim": 128}},
    "InklingForCausalLM": _INKLING,
    "InklingForConditionalGeneration": {
        "text_config": _INKLING,
        "vision_config": {
            "vision_encoder_type": "hmlp", "decoder_dmodel": 6144, "patch_size": 40, "temporal_patch_size": 2,
            "n_channels": 3, "n_layers": 4, "use_vision_norm": True,
        },
        "audio_config": {
            "decoder_dmodel": 6144, "n_mel_bins": 128, "mel_vocab_size": 256, "dmel_min_value": -7.0,
            "dmel_max_value": 2.0, "use_audio_norm": True, "audio_mode": "dmel",
        },
    },
    "Ovis": {
        "hidden_size": 1536, "conversation_formatter_class": "QwenConversationFormatter",
        "llm_config": {**_QWEN2, "hidden_size": 1536, "intermediate_size": 8960, "num_attention_heads": 12,
                       "num_key_value_heads": 2},
        "visual_tokenizer_config": {
            "model_type": "aimv2_visual_tokenizer", "vocab_size": 65_536, "hidden_stride": 2, "tau": 1.0,
            "tokenize_function": "softmax", "depths": None, "drop_cls_token": False, "use_indicators": False,
            "backbone_config": {
                "model_type": "aimv2", "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 24,
                "num_attention_heads": 8, "num_channels": 3, "image_size": 448, "patch_size": 14,
            },
        },
    },
    "Step5ForConditionalGeneration": {"text_config": {**_STEP5, "architectures": ["Step5ForCausalLM"]}},
    "UltravoxModel": {
        "hidden_size": 4096, "projector_act": "swiglu", "projector_ln_mid": True, "stack_factor": 8,
        "text_config": _LLAMA, "audio_config": {
            "model_type": "whisper", "d_model": 1280, "encoder_attention_heads": 20, "encoder_ffn_dim": 5120,
            "encoder_layers": 32, "num_mel_bins": 128, "max_source_positions": 1500,
        },
    },
}  # fmt: skip
"""What the classes leave out, where vLLM cannot build a model without it."""
_ZAMBA_SMALL, _ZAMBA_LARGE = [5, 11, 17, 23, 29, 35], [6, 11, 17, 23, 29, 35, 41, 47, 53, 59, 65, 71, 77]
_QWEN4_INDEXER = {
    "indexer_n_heads": 16, "indexer_kv_heads": 1, "indexer_head_dim": 128, "indexer_budget": 2048,
    "indexer_compress_ratio": 4, "output_gate_type": "sigmoid", "rope_parameters": {
        "rope_type": "default", "rope_theta": 10_000_000, "partial_rotary_factor": 0.25,
        "mrope_section": [11, 11, 10], "mrope_interleaved": True,
    },
}  # fmt: skip
_QWEN4_SMALL = {
    **_QWEN4_INDEXER, "hidden_size": 1024, "num_hidden_layers": 12, "num_experts": 32, "vocab_size": 60_000,
    "eos_token_id": 0,
}  # fmt: skip
_QWEN4_LARGE = {
    **_QWEN4_INDEXER, "indexer_compress_ratio": 8, "num_hidden_layers": 22, "num_experts": 64, "eos_token_id": 0,
    "ple_layer_ids": [2, 9], "ngram_vocab_size_base": 100_000, "ple_embed_dim": 1024,
}  # fmt: skip
_STEP5_SMALL = {
    "num_hidden_layers": 9, "hidden_size": 2048, "intermediate_size": 4096, "moe_intermediate_size": 1024,
    "share_expert_dim": 1024, "vocab_size": 70_000,
}  # fmt: skip
_STEP5_LARGE = {
    "num_hidden_layers": 14, "moe_num_experts": 32, "moe_intermediate_size": 2048, "share_expert_dim": 2048,
    "num_attention_heads": 64, "vocab_size": 128_000, "sliding_window": 512, "swa_num_attention_heads": 32,
    "layer_types": ["full_attention" if i % 4 == 0 else "sliding_attention" for i in range(14)],
}  # fmt: skip
VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "Qwen4ExpForCausalLM": {"small": _QWEN4_SMALL, "large": _QWEN4_LARGE},
    "Qwen4ExpForConditionalGeneration": {
        "small": {"text_config": _QWEN4_SMALL}, "large": {"text_config": _QWEN4_LARGE},
    },
    "Step5ForCausalLM": {"small": _STEP5_SMALL, "large": _STEP5_LARGE},
    "Step5ForConditionalGeneration": {
        "small": {"text_config": {**_STEP5, **_STEP5_SMALL, "architectures": ["Step5ForCausalLM"]}},
        "large": {"text_config": {**_STEP5, **_STEP5_LARGE, "architectures": ["Step5ForCausalLM"]}},
    },
    "NomicBertModel": {
        "small": {
            "n_embd": 384, "n_head": 6, "n_inner": 1536, "n_layer": 6, "hidden_size": 384, "num_attention_heads": 6,
            "intermediate_size": 1536, "num_hidden_layers": 6, "vocab_size": 20_000,
        },
        "large": {
            "n_embd": 1024, "n_head": 16, "n_inner": 4096, "n_layer": 24, "hidden_size": 1024,
            "num_attention_heads": 16, "intermediate_size": 4096, "num_hidden_layers": 24,
        },
    },
    "Zamba2ForCausalLM": {
        "small": {
            "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 38, "num_attention_heads": 32,
            "attention_head_dim": 128, "attention_hidden_size": 4096, "n_mamba_heads": 64, "num_mem_blocks": 1,
            "hybrid_layer_ids": _ZAMBA_SMALL,
            "layers_block_type": ["hybrid" if i in _ZAMBA_SMALL else "mamba" for i in range(38)],
        },
        "large": {
            "hidden_size": 3584, "intermediate_size": 14_336, "num_hidden_layers": 81, "num_attention_heads": 32,
            "attention_head_dim": 224, "attention_hidden_size": 7168, "n_mamba_heads": 112, "mamba_ngroups": 2,
            "num_mem_blocks": 2, "use_shared_attention_adapter": False,
            "hybrid_layer_ids": _ZAMBA_LARGE,
            "layers_block_type": ["hybrid" if i in _ZAMBA_LARGE else "mamba" for i in range(81)],
        },
    },
}  # fmt: skip
"""Sizes of published checkpoints in place of drawn ones, where fields hang together so that no draw works."""

WITHOUT_CLASS: dict[str, dict[str, Any]] = {
    "FireRedASR2ForConditionalGeneration": {
        **_QWEN2, "model_type": "fireredasr2", "encoder_downsample_rate": 2, "audio_encoder_conf": {
            "idim": 80, "n_layers_enc": 16, "n_head": 20, "d_model": 1280,
            "kernel_size": 33, "pe_maxlen": 5000,
        },
    },
    "LlavaOnevision2ForConditionalGeneration": {
        "model_type": "llava_onevision2", "text_config": {**_QWEN3, "architectures": ["Qwen3ForCausalLM"]},
        "image_token_id": 151_655, "video_token_id": 151_656, "vision_config": {
            "model_type": "onevision_encoder", "hidden_size": 1024, "intermediate_size": 4096,
            "num_hidden_layers": 24, "num_attention_heads": 16, "patch_size": 14, "spatial_merge_size": 2,
            "num_channels": 3, "out_hidden_size": 2560, "layer_norm_eps": 1e-6, "hidden_act": "gelu",
            "temporal_patch_size": 1, "rope_theta": 10_000.0, "image_size": 448,
        },
    },
    "MossAudioModel": {
        "model_type": "moss_audio", "language_config": _QWEN3, "adapter_hidden_size": 8192,
        "deepstack_num_inject_layers": 3, "tie_word_embeddings": False, "audio_config": {
            "model_type": "moss_audio_encoder", "d_model": 1280, "encoder_attention_heads": 20,
            "encoder_ffn_dim": 5120, "encoder_layers": 32, "num_mel_bins": 128, "max_source_positions": 1500,
            "n_window": 100, "conv_chunksize": 500, "output_dim": 1280, "downsample_hidden_size": 480,
            "deepstack_encoder_layer_indexes": [8, 16, 24], "activation_function": "gelu", "dropout": 0.0,
            "attention_dropout": 0.0, "activation_dropout": 0.0, "layer_norm_eps": 1e-5, "scale_embedding": False,
        },
    },
    "OpenPanguVLForConditionalGeneration": {
        "model_type": "openpangu_vl", "image_token_id": 144_208, "video_token_id": 144_209,
        "architectures": ["OpenPanguVLForConditionalGeneration"],
        "hidden_size": 4096, "intermediate_size": 12_800, "num_hidden_layers": 34, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 153_376, "max_position_embeddings": 32_768, "bias": True,
        **_SIZES, "vision_config": {
            "model_type": "openpangu_vl_vision", "depth": 26, "hidden_size": 1536, "intermediate_size": 6144,
            "num_heads": 12, "out_hidden_size": 4096, "patch_size": 14, "spatial_merge_size": 2,
            "temporal_patch_size": 2, "window_size": 112, "fullatt_block_indexes": [6, 12, 18, 25],
            "in_channels": 3, "hidden_act": "gelu", "tokens_per_second": 2, "mm_unit_vision_select_layer": [-1, -3],
            "rms_norm_eps": 1e-6,
        },
    },
}  # fmt: skip
"""The whole file, where no class reads it."""
