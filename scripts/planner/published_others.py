"""What published files hold of models that no other of these modules has: speech, documents, recent families."""

from __future__ import annotations

from typing import Any

__all__ = ["BORROWED", "FIELDS", "FILES", "VARIANTS", "WITHOUT_CLASS"]

_SIZES = {"hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 10_000.0, "tie_word_embeddings": False}
_STEP35: dict[str, Any] = {
    **_SIZES, "model_type": "step3p5", "architectures": ["Step3p5ForCausalLM"], "hidden_size": 4096,
    "intermediate_size": 11_264, "num_hidden_layers": 45, "num_attention_heads": 64, "num_attention_groups": 8,
    "head_dim": 128, "vocab_size": 128_896, "max_position_embeddings": 262_144, "max_seq_len": 262_144,
    "moe_num_experts": 288, "moe_top_k": 8, "moe_intermediate_size": 1280, "share_expert_dim": 1280,
    "moe_every_n_layer": 1, "use_moe": True, "moe_layers_enum": ",".join(map(str, range(3, 45))),
    "use_moe_router_bias": True, "need_fp32_gate": True, "moe_router_activation": "sigmoid",
    "moe_router_scaling_factor": 3.0, "norm_expert_weight": True, "att_impl_type": "GQA",
    "use_head_wise_attn_gate": True, "sliding_window": 512, "yarn_only_types": ["full_attention"],
    "layer_types": ((["full_attention"] + ["sliding_attention"] * 3) * 12)[:45],
    "partial_rotary_factors": [0.5, 1.0, 1.0, 1.0] * 12, "use_rope_layers": [], "swiglu_limits": [],
    "swiglu_limits_shared": [], "zero_centered": True,
}  # fmt: skip
_PERCEPTION = {
    "model_type": "perception_encoder", "width": 1536, "layers": 47, "heads": 16, "num_channels": 3,
    "image_size": 728, "mlp_ratio": 8960 / 1536, "patch_size": 14, "hidden_act": "quick_gelu", "output_dim": None,
    "use_cls_token": False, "use_abs_posemb": True, "use_rope2d": True, "use_ln_pre": True, "use_ln_post": False,
    "ls_init_value": 0.1, "layer_norm_eps": 1e-5,
}  # fmt: skip
_RADIO = {
    "model_type": "radio_of_parse", "patch_size": 16, "args": {
        "model": "vit_huge_patch16_224", "cpe_max_size": 2048, "register_multiple": 16, "cls_token_per_teacher": True,
        "teachers": [
            {"name": "clip", "use_summary": True}, {"name": "siglip", "use_summary": True},
            {"name": "dino_v2", "use_summary": True}, {"name": "sam", "use_summary": False},
        ],
    },
}  # fmt: skip
_MBART = {
    "model_type": "mbart_of_parse", "d_model": 1024, "decoder_layers": 10, "decoder_attention_heads": 16,
    "decoder_ffn_dim": 4096, "encoder_ffn_dim": 4096, "activation_function": "gelu", "vocab_size": 52_352,
    "scale_embedding": True, "max_position_embeddings": 8192, "is_encoder_decoder": False, "hidden_size": 1024,
    "num_attention_heads": 16, "num_hidden_layers": 10, "max_sequence_length": 8192, "tie_word_embeddings": False,
}  # fmt: skip
_MOONDREAM = {
    "config": {
        "text": {
            "dim": 2048, "ff_dim": 8192, "n_layers": 24, "vocab_size": 51_200, "max_context": 4096, "n_heads": 32,
            "n_kv_heads": 32, "prefix_attn": 730, "group_size": None, "moe": {
                "num_experts": 64, "start_layer": 4, "experts_per_token": 8, "expert_inner_dim": 1024,
            },
        },
        "vision": {
            "enc_dim": 1152, "enc_patch_size": 14, "enc_n_layers": 27, "enc_ff_dim": 4304, "enc_n_heads": 16,
            "proj_out_dim": 2048, "crop_size": 378, "in_channels": 3, "max_crops": 12, "overlap_margin": 4,
            "proj_inner_dim": 8192,
        },
        "region": {
            "dim": 2048, "coord_feat_dim": 256, "coord_out_dim": 1024, "size_feat_dim": 512, "size_out_dim": 2048,
        },
    },
}  # fmt: skip

_QWEN3 = {
    **_SIZES, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16,
    "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151_936, "max_position_embeddings": 40_960,
    "attention_bias": False, "tie_word_embeddings": True,
}  # fmt: skip
_QWEN2 = {
    **_SIZES, "hidden_size": 3584, "intermediate_size": 18_944, "num_hidden_layers": 28, "num_attention_heads": 28,
    "num_key_value_heads": 4, "vocab_size": 168_448, "max_position_embeddings": 8192,
}  # fmt: skip
_MISTRAL = {
    **_SIZES, "model_type": "mistral", "architectures": ["MistralForCausalLM"], "hidden_size": 3072,
    "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 32, "num_key_value_heads": 8,
    "head_dim": 128, "vocab_size": 131_072, "max_position_embeddings": 131_072, "sliding_window": 8192,
    "tie_word_embeddings": True,
}  # fmt: skip
_LLAMA = {
    **_SIZES, "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 2048,
    "intermediate_size": 8192, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "head_dim": 128, "vocab_size": 128_259, "max_position_embeddings": 32_768, "eos_token_id": 128_001,
}  # fmt: skip
_MIMO = {
    **_SIZES, "hidden_size": 4096, "intermediate_size": 16_384, "num_hidden_layers": 48, "num_attention_heads": 64,
    "num_key_value_heads": 4, "head_dim": 192, "v_head_dim": 128, "swa_num_attention_heads": 64,
    "swa_num_key_value_heads": 8, "swa_head_dim": 192, "swa_v_head_dim": 128, "swa_rope_theta": 10_000,
    "sliding_window": 128, "sliding_window_size": 128, "attention_chunk_size": 128, "attention_bias": False,
    "add_swa_attention_sink_bias": True, "add_full_attention_sink_bias": False, "attention_value_scale": 0.707,
    "hybrid_layer_pattern": [0, 1, 1, 1, 1, 0] + [1, 1, 1, 1, 1, 0] * 7, "moe_layer_freq": [0] + [1] * 47,
    "n_routed_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "n_group": 1, "topk_group": 1,
    "norm_topk_prob": True, "scoring_func": "sigmoid", "topk_method": "noaux_tc", "partial_rotary_factor": 0.334,
    "layernorm_epsilon": 1e-5, "max_position_embeddings": 262_144, "vocab_size": 152_576,
}  # fmt: skip

_DEEPSEEK41 = {
    "vocab_size": 129_280, "hidden_size": 5120, "moe_intermediate_size": 2304, "num_hidden_layers": 40,
    "num_attention_heads": 64, "num_key_value_heads": 1, "head_dim": 512, "q_lora_rank": 1280, "o_groups": 8,
    "o_lora_rank": 1024, "qk_rope_head_dim": 64, "num_experts_per_tok": 6, "n_routed_experts": 384,
    "n_shared_experts": 1, "scoring_func": "sqrtsoftplus", "norm_topk_prob": True, "routed_scaling_factor": 1.5,
    "topk_method": "noaux_tc", "max_position_embeddings": 1_048_576, "rope_theta": 10_000.0, "hc_mult": 4,
    "compress_rope_theta": 160_000.0, "hc_sinkhorn_iters": 20, "hc_eps": 1e-6, "swiglu_limit": 10.0,
    "sliding_window": 128, "index_n_heads": 32, "index_head_dim": 128, "index_topk": 512,
    "compress_ratios": [0, 0, *([2] * 18), *([1] * 20)], "kv_source_layer_ids": [2, 8, 14, 20],
    "index_source_layer_ids": [2, 8, 14, 20, 24, 28, 32, 36], "candidate_source_layer_id": 20,
    "candidate_topk_blocks": 2048, "candidate_block_size": 8, "hidden_act": "silu", "rms_norm_eps": 1e-20,
    "engram_layer_ids": [1, 14], "engram_num_embeddings": [384_006_168, 384_016_682], "engram_max_ngram_size": 4,
    "engram_vocab_size": 16_000_000, "engram_n_heads": 8, "engram_head_dim": 256, "engram_pad_token_id": 2,
    "engram_compressed_vocab_size": 99_092, "rope_scaling": {
        "type": "yarn", "factor": 16, "original_max_position_embeddings": 65_536, "beta_fast": 32, "beta_slow": 1,
    },
    "num_nextn_predict_layers": 3, "bos_token_id": 0, "eos_token_id": 1,
}  # fmt: skip
_DEEPSEEK41_SIZES = {
    "small": {
        "text_config": {
            **_DEEPSEEK41, "hidden_size": 2048, "moe_intermediate_size": 1024, "num_hidden_layers": 12,
            "q_lora_rank": 512, "n_routed_experts": 32, "compress_ratios": [0, 0, *([2] * 5), *([1] * 5)],
            "kv_source_layer_ids": [2, 5, 7], "index_source_layer_ids": [2, 5, 7, 9], "candidate_source_layer_id": 7,
            "engram_layer_ids": [1], "engram_num_embeddings": [260_000], "engram_vocab_size": 10_000,
        },
    },
    "large": {
        "text_config": {
            **_DEEPSEEK41, "num_hidden_layers": 20, "num_attention_heads": 128, "o_groups": 16, "vocab_size": 100_000,
            "compress_ratios": [0, *([2] * 9), *([1] * 10)], "kv_source_layer_ids": [1, 4, 10],
            "index_source_layer_ids": [1, 4, 10, 15], "candidate_source_layer_id": 10, "engram_layer_ids": [3, 12],
            "engram_num_embeddings": [260_000, 270_000], "engram_vocab_size": 10_000, "n_routed_experts": 64,
        },
    },
}  # fmt: skip

_NOTE: dict[str, Any] = {
    "hidden_size": 5120, "intermediate_size": 13_824, "moe_intermediate_size": 1536, "num_hidden_layers": 46,
    "num_attention_heads": 128, "num_key_value_heads": 128, "q_lora_rank": 1024, "kv_lora_rank": 512,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 256, "n_shared_experts": 1,
    "num_experts_per_tok": 8, "first_k_dense_replace": 1, "moe_layer_freq": 1, "norm_topk_prob": True,
    "routed_scaling_factor": 1.0, "scoring_func": "sigmoid", "topk_method": "noaux_tc", "hidden_act": "silu",
    "rms_norm_eps": 1e-5, "vocab_size": 152_064, "max_position_embeddings": 524_288, "tie_word_embeddings": False,
    "rope_parameters": {"rope_type": "default", "rope_theta": 80_000_000.0}, "attention_gate_type": "headwise",
    "swa_num_attention_heads": 64, "swa_num_key_value_heads": 64, "swa_q_lora_rank": 1024, "swa_kv_lora_rank": 1024,
    "swa_qk_nope_head_dim": 192, "swa_qk_rope_head_dim": 64, "swa_v_head_dim": 128, "swa_rope_theta": 50_000.0,
    "swa_attention_gate_type": "headwise", "sliding_window_size": 513, "apply_mla_qkv_lora_rescale": True,
    "index_n_heads": 64, "index_head_dim": 128, "index_topk": 2048, "num_nextn_predict_layers": 1,
    "layer_types": ["full_attention", *(["full_attention"] + ["sliding_attention"] * 3) * 11, "full_attention"],
    "image_token_id": 151_660, "video_token_id": 151_680, "audio_token_id": 151_720, "pad_token_id": 151_659,
    "vision_config": {
        "embed_dim": 1536, "hidden_size": 5120, "intermediate_size": 4224, "moe_intermediate_size": 2112,
        "num_hidden_layers": 42, "num_attention_heads": 24, "num_channels": 3, "patch_size": 14,
        "spatial_merge_size": 2, "temporal_patch_size": 1, "use_bias": False, "use_qk_norm": True, "post_norm": True,
        "pre_pixel_shuffle": True, "capacity_factor": 2.0, "router_scoring_func": "sigmoid", "router_scale": 1.0,
        "adapter_type": "patch_merger", "adapter_in_dim": 1536, "adapter_out_dim": 5120, "adapter_merge_size": 2,
        "pyramid_num_routed": [-1] * 25 + [*range(4, 64, 4), 64, 64],
    },
    "audio_config": {
        "encoder_type": "dots", "use_conv2d_stem": True, "use_rope": True, "use_rms_norm": True, "use_causal": False,
        "rope_parameters": {"partial_rotary_factor": 0.5, "rope_theta": 10_000.0, "rope_type": "default"},
        "merge_factor": 1, "chunk_seconds": 60, "sampling_rate": 16_000, "whisper_adapter_in_dim": 1280,
        "whisper_adapter_out_dim": 5120, "whisper_config": {
            "d_model": 1280, "encoder_attention_heads": 20, "encoder_ffn_dim": 5120, "encoder_layers": 32,
            "num_mel_bins": 128, "max_source_positions": 6000, "activation_function": "swiglu",
        },
    },
}  # fmt: skip

BORROWED = {
    "CohereAsrForConditionalGeneration": "cohere_asr", "Dots3NoteForCausalLM": "dots3_note",
    "HfMoondream": "moondream3",
}  # fmt: skip
"""Architecture -> model_type whose class reads its files."""

FIELDS: dict[str, dict[str, Any]] = {
    "Dots3NoteForCausalLM": _NOTE,
    "Emu3ForConditionalGeneration": {
        "vocabulary_map": {
            "<image>": 151_845, "<|extra_200|>": 151_846, "<|visual token 000000|>": 151_854,
        },
    },
    "DeepseekV41ForCausalLM": {
        "quantization_config": {
            "quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [32, 32], "scale_fmt": "ue8m0",
            "expert_dtype": "fp4",
        },
        "text_config": _DEEPSEEK41, "vision_config": {
            "num_hidden_layers": 32, "hidden_size": 1024, "num_attention_heads": 16, "intermediate_size": 2816,
            "patch_size": 14, "rope_theta": 10_000.0, "downsample_ratio": 3, "max_image_tokens": 1024,
            "min_pixels": 295_936, "max_wh_ratio": 200,
        },
    },
    "MiDashengLMModel": {
        "text_config": {"rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0}},
        "audio_encoder_config": {
            "embed_dim": 1280, "depth": 32, "num_heads": 16, "mlp_ratio": 4.0, "qkv_bias": True, "outputdim": 527,
            "patch_size": [64, 4], "patch_stride": [64, 4], "input_channels": 1, "target_length": 1008, "n_mels": 64,
        },
        "subsample_factor": 5,
    },
    "CohereAsrForConditionalGeneration": {
        "sample_rate": 16_000, "max_audio_clip_s": 35, "overlap_chunk_second": 5,
        "head": {"num_classes": 16_384, "hidden_size": 1024, "log_softmax": True}, "preprocessor": {
            "features": 128, "sample_rate": 16_000, "n_fft": 512, "window_size": 0.025, "window_stride": 0.01,
            "window": "hann", "normalize": "per_feature", "dither": 1e-5, "pad_to": 0, "frame_splicing": 1, "log": True,
        },
        "encoder": {
            "feat_in": 128, "n_layers": 48, "d_model": 1280, "feat_out": -1, "causal_downsampling": False,
            "subsampling": "dw_striding", "subsampling_factor": 8, "subsampling_conv_chunking_factor": 1,
            "subsampling_conv_channels": 256, "ff_expansion_factor": 4, "self_attention_model": "rel_pos",
            "n_heads": 8, "att_context_size": [-1, -1], "att_context_style": "regular", "xscaling": False,
            "untie_biases": True, "pos_emb_max_len": 5000, "conv_kernel_size": 9, "conv_norm_type": "batch_norm",
            "conv_context_size": None, "use_bias": True,
        },
        "transf_decoder": {
            "config_dict": {
                "hidden_size": 1024, "inner_size": 4096, "num_attention_heads": 8, "num_layers": 8,
                "hidden_act": "relu", "max_sequence_length": 1024,
            },
        },
    },
    "HfMoondream": _MOONDREAM,
    "Moondream3ForCausalLM": _MOONDREAM,
}  # fmt: skip
"""What the classes leave out, where vLLM cannot build a model without it."""


def _cohere_asr(hidden: int, width: int, layers: int, vocab: int, wide: int, deep: int) -> dict[str, Any]:
    given = FIELDS["CohereAsrForConditionalGeneration"]
    return {
        "hidden_size": hidden, "num_hidden_layers": layers, "intermediate_size": width, "vocab_size": vocab,
        "head_dim": hidden // 8, "head": {**given["head"], "num_classes": vocab, "hidden_size": hidden},
        "encoder": {**given["encoder"], "d_model": wide, "n_layers": deep}, "transf_decoder": {
            "config_dict": {
                **given["transf_decoder"]["config_dict"], "hidden_size": hidden, "inner_size": width,
                "num_layers": layers,
            },
        },
    }  # fmt: skip


def _parse(layers: int, vocab: int, wide: int, **more: Any) -> dict[str, Any]:
    return {
        "vocab_size": vocab, "decoder": {
            **_MBART, "d_model": wide, "hidden_size": wide, "decoder_layers": layers, "num_hidden_layers": layers,
            "vocab_size": vocab, **more,
        },
    }  # fmt: skip


def _moondream(wide: int, layers: int, vocab: int, heads: int, **experts: int) -> dict[str, Any]:
    text = {
        "dim": wide, "ff_dim": 4 * wide, "n_layers": layers, "vocab_size": vocab, "n_heads": heads, "n_kv_heads": heads,
        "max_context": 4096, "moe": {"start_layer": 2, **experts},
    }  # fmt: skip
    return {"config": {**_MOONDREAM["config"], "text": text}}


_MOONDREAM_SIZES = {
    "small": _moondream(1024, 8, 30_000, 16, n_experts=16, n_experts_per_tok=4, expert_inner_dim=512),
    "large": _moondream(4096, 16, 120_000, 64, n_experts=32, n_experts_per_tok=8, expert_inner_dim=2048),
}
_PREFIX = {"causal_vision_prefix": True, "add_cross_attention": False}
VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "Dots3NoteForCausalLM": {
        "small": {
            "hidden_size": 2048, "intermediate_size": 4096, "moe_intermediate_size": 512, "num_hidden_layers": 11,
            "num_attention_heads": 32, "num_key_value_heads": 32, "swa_num_attention_heads": 16, "vocab_size": 50_000,
            "n_routed_experts": 32, "layer_types": _NOTE["layer_types"][:11], "first_k_dense_replace": 2,
            "q_lora_rank": 512, "sliding_window_size": 257,
        },
        "large": {
            "num_hidden_layers": 20, "layer_types": _NOTE["layer_types"][:20], "n_shared_experts": 2,
            "attention_gate_type": "elementwise", "swa_attention_gate_type": "elementwise", "vocab_size": 100_000,
            "num_attention_heads": 64, "num_key_value_heads": 64, "n_routed_experts": 64,
        },
    },
    "DeepseekV41ForCausalLM": _DEEPSEEK41_SIZES,
    "CohereAsrForConditionalGeneration": {
        "small": _cohere_asr(512, 2048, 4, 8000, 640, 12), "large": _cohere_asr(1536, 6144, 16, 32_000, 1536, 32),
    },
    "HfMoondream": _MOONDREAM_SIZES,
    "Moondream3ForCausalLM": _MOONDREAM_SIZES,
    "NemotronParseForConditionalGeneration": {
        "small": _parse(4, 30_000, 1024, encoder_ffn_dim=2048),
        "large": _parse(20, 120_000, 1024, encoder_ffn_dim=8192),
    },
    "Step3p7ForConditionalGeneration": {
        "small": {
            "text_config": {
                **_STEP35, "num_hidden_layers": 9, "hidden_size": 2048, "intermediate_size": 4096, "vocab_size": 70_000,
                "moe_num_experts": 32, "moe_intermediate_size": 512, "share_expert_dim": 512,
                "moe_layers_enum": "3,4,5,6,7,8", "layer_types": _STEP35["layer_types"][:9],
                "partial_rotary_factors": [0.5, 1.0, 1.0, 1.0, 0.5, 1.0, 1.0, 1.0, 0.5],
            },
        },
        "large": {
            "text_config": {
                **_STEP35, "num_hidden_layers": 20, "num_attention_heads": 32, "num_attention_groups": 4,
                "moe_num_experts": 64, "moe_intermediate_size": 2048, "sliding_window": 1024,
                "moe_layers_enum": ",".join(map(str, range(1, 20))), "layer_types": _STEP35["layer_types"][:20],
                "partial_rotary_factors": [0.5, 1.0, 1.0, 1.0] * 5,
            },
        },
    },
    "RadioMBartPrefixForCausalLM": {
        "small": _parse(4, 30_000, 512, decoder_ffn_dim=2048, decoder_attention_heads=8, **_PREFIX),
        "large": _parse(20, 120_000, 2048, decoder_ffn_dim=8192, self_attention_kv_heads=4, **_PREFIX),
    },
}  # fmt: skip
"""Sizes in place of drawn ones."""

WITHOUT_CLASS: dict[str, dict[str, Any]] = {
    "FunASRForConditionalGeneration": {
        "model_type": "funasr", **_QWEN3, "audio_encoder_conf": {
            "output_size": 512, "attention_heads": 4, "linear_units": 2048, "num_blocks": 50, "tp_blocks": 20,
            "dropout_rate": 0.1, "positional_dropout_rate": 0.1, "attention_dropout_rate": 0.1,
            "input_layer": "pe", "pos_enc_class": "SinusoidalPositionEncoder", "normalize_before": True,
            "kernel_size": 11, "sanm_shfit": 0, "selfattention_layer_type": "sanm",
        },
    },
    "KananaVForConditionalGeneration": {
        "model_type": "kanana-1.5-v", "text_config": _LLAMA, "vision_config": {
            "model_type": "kanana-1.5-v-visual-encoder", "depth": 32, "embed_dim": 1280, "hidden_size": 1280,
            "mlp_ratio": 4, "num_heads": 16, "in_channels": 3, "patch_size": 14, "spatial_merge_size": 2,
            "temporal_patch_size": 2, "hidden_act": "quick_gelu", "image_size": "dynamic",
        },
        "projector_config": {
            "model_type": "kanana-1.5-v-visual_projector", "depth": 2, "mlp_depth": 2, "encoder_hidden_size": 1280,
            "hidden_size": 1024, "output_hidden_size": 2048, "merge_size": 2, "pos_emb": True, "pos_emb_size": 576,
            "feature_layer_index": -1, "num_eos_tokens": 0, "prenorm": False, "projector_type": "dynamic-c-abs",
            "use_rope": True,
        },
    },
    "MiMoV2OmniForCausalLM": {
        "model_type": "mimo_v2_omni", **_MIMO, "vision_config": {
            "depth": 28, "hidden_size": 1280, "intermediate_size": 4608, "num_heads": 32, "num_key_value_heads": 8,
            "qk_channels": 64, "kv_channels": 64, "num_query_groups": 4, "in_channels": 3, "patch_size": 16,
            "spatial_merge_size": 2, "temporal_patch_size": 2, "tokens_per_second": 2, "window_size": 128,
            "out_hidden_size": 4096, "fullatt_block_indexes": [0, 9, 18, 27], "hidden_act": "silu", "use_sink": True,
            "vit_window_attn_types": [-1] + [0, 1] * 13 + [-1], "visual_token_window_size": 64,
        },
    },
    "MoonshotKimiaForCausalLM": {
        "model_type": "kimi_audio", **_QWEN2, "kimia_adaptor_input_dim": 5120, "kimia_mimo_layers": 6,
        "kimia_mimo_audiodelaytokens": 5, "kimia_mimo_transformer_from_layer_index": 21, "kimia_token_offset": 152_064,
        "use_whisper_feature": True, "num_audio_special_tokens": 512,
    },
    "VoxtralRealtimeGeneration": {
        "model_type": "voxtral_realtime_published", "text_config": {
            **_MISTRAL, "ada_rms_norm_t_cond": True, "ada_rms_norm_t_cond_dim": 32,
        },
        "audio_token_id": 24, "audio_config": {
            "model_type": "voxtral_tower", "d_model": 1280, "encoder_attention_heads": 32, "encoder_ffn_dim": 5120,
            "encoder_layers": 32, "num_hidden_layers": 32, "num_mel_bins": 128, "max_source_positions": 1500,
            "downsample_factor": 4, "window_size": 400, "hop_length": 160, "sampling_rate": 16_000, "is_causal": True,
            "dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0, "activation_function": "gelu",
            "encoder_layerdrop": 0.0, "scale_embedding": False, "pos_embed": "rope", "global_log_mel_max": 1.5,
            "encoder_head_dim": 64, "sliding_window": 750, "block_pool_size": 4, "max_position_embeddings": 524_288,
        },
    },
    "NemotronParseForConditionalGeneration": {
        "model_type": "nemotron_parse", "encoder": _RADIO, "decoder": _MBART, "image_size": [2048, 1648],
        "is_encoder_decoder": True, "max_sequence_length": 8192, "vocab_size": 52_352,
    },
    "RadioMBartPrefixForCausalLM": {
        "model_type": "radio_mbart_prefix", "encoder": _RADIO, "navit_packing": True, "image_size": [2048, 1648],
        "decoder": {**_MBART, "causal_vision_prefix": True, "add_cross_attention": False},
        "max_sequence_length": 8192, "vocab_size": 52_352,
    },
    "Step3p7ForConditionalGeneration": {
        "model_type": "step3p7_published", "text_config": _STEP35, "vision_config": _PERCEPTION, "hidden_size": 4096,
        "projector_bias": False, "image_token_id": 128_001, "image_token_len": 169, "patch_token_len": 81,
        "understand_projector_stride": 2,
    },
    "Terratorch": {"model_type": "terratorch", "hidden_size": 1024, "pretrained_cfg": {}},
}  # fmt: skip
"""The whole file, where no class reads it."""

FILES: dict[str, dict[str, Any]] = {
    "Dots3NoteForCausalLM": {"added_tokens.json": {"<|imgpad|>": 151_660}},
    "MoonshotKimiaForCausalLM": {
        "whisper-large-v3/config.json": {
            "model_type": "whisper", "d_model": 1280, "encoder_attention_heads": 20, "encoder_ffn_dim": 5120,
            "encoder_layers": 32, "num_mel_bins": 128, "max_source_positions": 1500, "vocab_size": 51_866,
        },
    },
}  # fmt: skip
"""What lies beside a ``config.json`` and is read as well, by its path."""
