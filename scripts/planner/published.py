"""What published files hold beyond the defaults of a configuration class, where vLLM cannot build a model without it.

Some classes leave out fields that vLLM reads and every published file has; some architectures have no class at all in
``transformers`` or vLLM: theirs are read with another architecture's class, or with one of these fields alone.
"""

from __future__ import annotations

from typing import Any

from planner.published_decoders import DECODERS
from planner.published_further import BORROWED as _FURTHER_BORROWED
from planner.published_further import FIELDS as _FURTHER_FIELDS
from planner.published_further import WITHOUT_CLASS as _FURTHER
from planner.published_others import BORROWED as _OTHERS_BORROWED
from planner.published_others import FIELDS as _OTHERS_FIELDS
from planner.published_others import FILES
from planner.published_others import WITHOUT_CLASS as _OTHERS
from planner.published_pooling import BORROWED as _POOLING_BORROWED
from planner.published_pooling import FIELDS as _POOLING_FIELDS
from planner.published_pooling import WITHOUT_CLASS as _POOLING
from planner.published_recent import FIELDS as _RECENT_FIELDS
from planner.published_recent import OPTIONS, RECENT
from planner.published_towers import TOWERS

__all__ = ["BORROWED", "FIELDS", "FILES", "OPTIONS", "WITHOUT_CLASS"]

BORROWED = {
    **_FURTHER_BORROWED,
    **_POOLING_BORROWED,
    **_OTHERS_BORROWED,
    "BeeForConditionalGeneration": "llava_onevision",
    "InternS1ForConditionalGeneration": "internvl",
    "InternS2PreviewForConditionalGeneration": "qwen3_5_moe",
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

_AFTER_THREE = [0] * 3 + [1] * 57
_MINIMAX_SPARSE = {
    "use_sparse_attention": True, "sparse_index_dim": 128, "sparse_num_index_heads": 4, "sparse_topk_blocks": 16,
    "sparse_block_size": 128, "sparse_disable_index_value": _AFTER_THREE, "sparse_score_type": "max",
    "sparse_init_block": 0, "sparse_local_block": 1, "sparse_attention_freq": _AFTER_THREE,
}  # fmt: skip

_LFM2_LAYERS = ["conv", "conv", "full_attention", "conv", "conv", "full_attention", "conv", "conv"] * 4

_QWEN4 = {"output_gate_type": "sigmoid"}

FIELDS: dict[str, dict[str, Any]] = {
    **_RECENT_FIELDS,
    **_FURTHER_FIELDS,
    **_POOLING_FIELDS,
    **_OTHERS_FIELDS,
    "QianfanOCRForConditionalGeneration": {
        "ps_version": "v2", "select_layer": -1, "force_image_size": 448, "use_thumbnail": True,
        "dynamic_image_size": True, "min_dynamic_patch": 1, "max_dynamic_patch": 12, "template": "internvl2_5",
    },
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
    "Gemma4ForConditionalGeneration": {"vision_config": {}, "audio_config": {}},
    "Gemma4UnifiedForConditionalGeneration": {"vision_config": {}},
    "Gemma3nForCausalLM": {"num_kv_shared_layers": 2},
    "Gemma3nForConditionalGeneration": {"text_config": {"num_kv_shared_layers": 2}},
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
    "LightOnOCRForConditionalGeneration": {
        "vision_feature_layer": -1, "projector_hidden_act": "gelu", "multimodal_projector_bias": False,
    },
    "LongcatFlashForCausalLM": {"mla_scale_q_lora": True, "mla_scale_kv_lora": True, "zero_expert_type": "identity"},
    "LongcatFlashNgramForCausalLM": {
        "mla_scale_q_lora": True, "mla_scale_kv_lora": True, "zero_expert_type": "identity",
    },
    "MiMoForCausalLM": {"num_nextn_predict_layers": 1},
    "MiniMaxM3SparseForConditionalGeneration": {
        "text_config": {
            "rope_theta": 5_000_000, "rotary_dim": 64, "moe_layer_freq": _AFTER_THREE,
            "sparse_attention_config": _MINIMAX_SPARSE,
        },
        "vision_config": {
            "hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32, "num_attention_heads": 16,
            "patch_size": 14, "image_size": 2016, "hidden_act": "gelu", "layer_norm_eps": 1e-5, "rope_theta": 10_000.0,
            "num_channels": 3, "model_type": "clip_vision_model", "projection_dim": 6144,
            "img_token_compression_config": {
                "image_token_compression_method": "patch_merge", "spatial_merge_size": 2, "temporal_patch_size": 2,
            },
        },
        "projector_hidden_size": 6144, "multimodal_projector_bias": True,
    },
    "MiniMaxM2ForCausalLM": {
        "rotary_dim": 64, "scoring_func": "sigmoid", "use_qk_norm": True, "use_routing_bias": True,
    },
    "NemotronForCausalLM": {"num_key_value_heads": 8},
    "NemotronHForCausalLM": {"layers_block_type": _NEMOTRON_LAYERS},
    "NemotronHPuzzleForCausalLM": {"layers_block_type": _NEMOTRON_LAYERS},
    "PhiMoEForCausalLM": {"attention_bias": True, "lm_head_bias": True},
    "Qwen3OmniMoeForConditionalGeneration": {
        "thinker_config": {
            "text_config": {"tie_word_embeddings": False},
            "vision_config": {"image_size": 768, "num_position_embeddings": 2304, "apply_vit_abs_pos_embed": True},
        },
    },
    "Qwen3VLMoeForConditionalGeneration": {"text_config": {"norm_topk_prob": True}},
    "Qwen4ExpForCausalLM": _QWEN4,
    "Qwen4ExpForConditionalGeneration": {
        "text_config": _QWEN4, "vision_config": {"deepstack_visual_indexes": []},
    },
    "Step3TextForCausalLM": {"moe_layers_enum": ",".join(map(str, range(4, 60)))},
    "UltravoxModel": {
        "text_config": {
            "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096,
            "intermediate_size": 14_336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
            "vocab_size": 128_256, "max_position_embeddings": 131_072,
        },
        "audio_config": {
            "model_type": "whisper", "d_model": 1280, "encoder_attention_heads": 20, "encoder_ffn_dim": 5120,
            "encoder_layers": 32, "num_mel_bins": 128, "max_source_positions": 1500,
        },
        "vocab_size": 128_256, "projector_ln_mid": True,
    },
    "SolarForCausalLM": {
        "bskcn_1": [12, 20], "bskcn_2": [20, 32], "bskcn_3": [16, 24], "bskcn_4": [28, 40], "bskcn_tv": [0.9,
        0.8],
    },
}  # fmt: skip
"""Added to the class's own."""

_SIZES = {"hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 10_000.0, "tie_word_embeddings": False}

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

_STEP35 = {
    **_SIZES, "model_type": "step3p5", "hidden_size": 4096, "intermediate_size": 11_264, "num_hidden_layers": 45,
    "num_attention_heads": 64, "num_attention_groups": 8, "head_dim": 128, "vocab_size": 128_896,
    "max_position_embeddings": 262_144, "max_seq_len": 262_144, "moe_num_experts": 288, "moe_top_k": 8,
    "moe_intermediate_size": 1280, "share_expert_dim": 1280, "moe_every_n_layer": 1, "use_moe": True,
    "moe_layers_enum": ",".join(map(str, range(3, 45))), "use_moe_router_bias": True, "need_fp32_gate": True,
    "moe_router_activation": "sigmoid", "moe_router_scaling_factor": 3.0, "norm_expert_weight": True,
    "att_impl_type": "GQA", "use_head_wise_attn_gate": True, "sliding_window": 512, "rope_theta": 10_000.0,
    "layer_types": ((["full_attention"] + ["sliding_attention"] * 3) * 12)[:45], "yarn_only_types": ["full_attention"],
    "attention_other_setting": {
        "attention_type": "sliding_attention", "num_attention_heads": 96, "num_attention_groups": 8, "head_dim": 128,
    },
    "partial_rotary_factors": [0.5, 1.0, 1.0, 1.0] * 12, "use_rope_layers": [], "swiglu_limits": [],
    "swiglu_limits_shared": [], "zero_centered": True,
}  # fmt: skip

_ZAMBA = ["mamba"] * 6 + (["hybrid"] + ["mamba"] * 5) * 8

WITHOUT_CLASS: dict[str, dict[str, Any]] = {
    **DECODERS,
    **TOWERS,
    **RECENT,
    **_FURTHER,
    **_POOLING,
    **_OTHERS,
    "Phi4MMForCausalLM": {
        "model_type": "phi4mm", "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 32,
        "num_attention_heads": 24, "num_key_value_heads": 8, "vocab_size": 200_064, "hidden_act": "silu",
        "max_position_embeddings": 131_072, "original_max_position_embeddings": 4096, "partial_rotary_factor": 0.75,
        "rms_norm_eps": 1e-5, "rope_theta": 10_000.0, "sliding_window": 262_144, "tie_word_embeddings": True,
        "attention_bias": False, "mlp_bias": False, "lm_head_bias": False, "embd_pdrop": 0.0, "resid_pdrop": 0.0,
        "embd_layer": {
            "embedding_cls": "image_audio",
            "audio_embd_layer": {
                "compression_rate": 8, "downsample_rate": 1, "embedding_cls": "audio", "projection_cls": "mlp",
                "use_conv_downsample": False, "use_qformer": False, "enable_gradient_checkpointing": True,
            },
            "image_embd_layer": {
                "crop_size": 448, "embedding_cls": "tune_image", "hd_transform_order": "sub_glb",
                "image_token_compression_cls": "avg_pool_2d", "projection_cls": "mlp", "use_hd_transform": True,
                "with_learnable_separator": True, "enable_gradient_checkpointing": True,
            },
        },
        "img_processor": None,
        "audio_processor": {
            "name": "cascades",
            "config": {
                "activation": "swish", "activation_checkpointing": {"interval": 1, "module": "transformer"},
                "attention_dim": 1024, "attention_heads": 16, "batch_norm": False, "bias_in_glu": True, "causal": True,
                "chunk_size": -1, "cnn_layer_norm": True, "conv_activation": "swish", "conv_glu_type": "swish",
                "depthwise_multiplier": 1, "depthwise_seperable_out_channel": 1024, "dropout_rate": 0.0,
                "encoder_embedding_config": {"input_size": 80}, "ext_pw_kernel_size": 1, "ext_pw_out_channel": 1024,
                "input_layer": "nemo_conv", "input_size": 80, "kernel_size": 3, "left_chunk": 18, "linear_units": 1536,
                "nemo_conv_settings": {"conv_channels": 1024}, "num_blocks": 24, "time_reduction": 8,
                "relative_attention_bias_args": {"t5_bias_max_distance": 500, "type": "t5"},
            },
        },
        "vision_lora": {"dp": 0.0, "layer": "x", "lora_alpha": 512, "r": 256},
        "speech_lora": {"dp": 0.01, "layer": "x", "lora_alpha": 640, "r": 320},
    },
    "Llama_Nemotron_Nano_VL": {
        "model_type": "Llama_Nemotron_Nano_VL", "downsample_ratio": 0.5, "ps_version": "v2", "force_image_size": 512,
        "select_layer": -1, "use_thumbnail": True, "max_dynamic_patch": 12, "template": "llama_3_1",
        "vit_hidden_size": 1280, "projector_hidden_size": 4096, "patch_size": 16,
        "llm_config": {
            **_SIZES, "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096,
            "intermediate_size": 14_336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
            "vocab_size": 128_512, "max_position_embeddings": 131_072,
        },
        "vision_config": {"model_type": "radio", "args": {"model": "vit_huge_patch16_224"}, "image_size": 512},
    },
    "MiMoV2FlashForCausalLM": {**_MIMO, "model_type": "mimo_v2_flash"},
    "MiMoV2ForCausalLM": {**_MIMO, "model_type": "mimo_v2", "attention_projection_layout": "fused_qkv"},
    "Step3p5ForCausalLM": _STEP35,
    "Ernie4_5_VLMoeForConditionalGeneration": {
        **_SIZES, "model_type": "ernie4_5_moe_vl", "hidden_size": 2560, "intermediate_size": 12_288,
        "num_hidden_layers": 28, "num_attention_heads": 20, "num_key_value_heads": 4, "head_dim": 128,
        "max_position_embeddings": 131_072, "vocab_size": 103_424, "use_bias": False, "tie_word_embeddings": True,
        "moe_num_experts": [64, 64], "moe_capacity": [64, 64, 64], "moe_intermediate_size": [1536, 512], "moe_k": 6,
        "moe_layer_start_index": [1, 1], "moe_layer_end_index": [29, 28], "moe_layer_interval": 1,
        "moe_num_shared_experts": 2, "moe_use_aux_free": True, "rope_3d": True, "freq_allocation": 20,
        "im_patch_id": 100_295, "pixel_hidden_size": 1280, "spatial_conv_size": 2, "temporal_conv_size": 2,
        "use_temporal_conv": True, "moe_use_bias": False,
        "rope_scaling": {"mrope_section": [22, 22, 20], "type": "default"},
        "vision_config": {
            "depth": 32, "embed_dim": 1280, "hidden_size": 1280, "mlp_ratio": 4, "num_heads": 16, "in_channels": 3,
            "patch_size": 14, "spatial_merge_size": 2, "hidden_act": "quick_gelu", "attn_sep": True,
        },
    },
    "Zamba2ForCausalLM": {
        "model_type": "zamba2", "hidden_size": 2560, "num_hidden_layers": 54, "layers_block_type": _ZAMBA,
        "hybrid_layer_ids": [6, 12, 18, 24, 30, 36, 42, 48], "mamba_d_state": 64, "mamba_d_conv": 4, "mamba_expand": 2,
        "mamba_ngroups": 1, "n_mamba_heads": 80, "mamba_headdim": 64, "intermediate_size": 10_240,
        "num_attention_heads": 32, "num_key_value_heads": 32, "attention_hidden_size": 5120, "attention_head_dim": 160,
        "adapter_rank": 128, "num_mem_blocks": 1, "use_shared_attention_adapter": True, "use_mem_rope": True,
        "add_bias_linear": False, "use_conv_bias": True, "hidden_act": "gelu", "rms_norm_eps": 1e-5,
        "rope_theta": 10_000, "vocab_size": 32_000, "max_position_embeddings": 4096, "tie_word_embeddings": True,
        "chunk_size": 256,
    },
    "MiniMaxM3SparseForCausalLM": {
        **_SIZES, "model_type": "minimax_m3_text", "hidden_size": 6144, "intermediate_size": 3072,
        "dense_intermediate_size": 12_288, "shared_intermediate_size": 3072, "num_hidden_layers": 60,
        "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 128, "max_position_embeddings": 524_288,
        "use_gemma_norm": True, "attention_output_gate": False, "rotary_dim": 64, "partial_rotary_factor": 0.5,
        "hidden_act": "swigluoai", "swiglu_alpha": 1.702, "swiglu_beta": 1.0, "swiglu_limit": 7.0,
        "use_qk_norm": True, "qk_norm_type": "per_head", "num_local_experts": 128, "num_experts_per_tok": 4,
        "n_shared_experts": 1, "scoring_func": "sigmoid", "use_routing_bias": True, "routed_scaling_factor": 2.0,
        "num_mtp_modules": 1, "moe_layer_freq": _AFTER_THREE, "sparse_attention_config": _MINIMAX_SPARSE,
        "vocab_size": 200_064, "rope_theta": 5_000_000,
    },
    "MolmoForCausalLM": {
        **_SIZES, "model_type": "molmo", "hidden_size": 3584, "intermediate_size": 37_888, "num_hidden_layers": 28,
        "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152_064, "embedding_size": 152_064,
        "max_position_embeddings": 4096, "qkv_bias": True, "attention_layer_norm": False, "layer_norm_type": "rms",
        "norm_after": False, "clip_qkv": None, "weight_tying": False, "use_position_ids": True, "layer_norm_eps": 1e-6,
        "rope_theta": 1_000_000.0,
    },
    "InternVLChatModel": {
        "model_type": "internvl_chat", "downsample_ratio": 0.5, "select_layer": -1, "ps_version": "v2",
        "force_image_size": 448, "use_thumbnail": True, "dynamic_image_size": True, "min_dynamic_patch": 1,
        "max_dynamic_patch": 12, "template": "internvl2_5", "pad2square": False,
        "llm_config": {
            **_SIZES, "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "hidden_size": 4096,
            "intermediate_size": 12_288, "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8,
            "head_dim": 128, "vocab_size": 151_936, "max_position_embeddings": 40_960, "attention_bias": False,
        },
        "vision_config": {
            "model_type": "intern_vit_6b", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
            "num_attention_heads": 16, "image_size": 448, "patch_size": 14, "num_channels": 3, "qkv_bias": True,
            "qk_normalization": False, "norm_type": "layer_norm", "hidden_act": "gelu", "layer_norm_eps": 1e-6,
            "initializer_factor": 0.1, "use_mean_pooling": True, "attention_dropout": 0.0, "dropout": 0.0,
        },
    },
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

for _name in ("Lfm2BidirectionalModel", "ColBERTLfm2Model"):
    FIELDS[_name] = {**FIELDS["Lfm2ForCausalLM"], **FIELDS[_name]}
WITHOUT_CLASS["InternLM2ForRewardModel"] = WITHOUT_CLASS["InternLM2ForCausalLM"]
