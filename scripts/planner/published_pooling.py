"""What the pooling models of vLLM's registry are read with: embeddings, classification, reward."""

from __future__ import annotations

from typing import Any

__all__ = ["BORROWED", "FIELDS", "TABLES", "VARIANTS", "WITHOUT_CLASS"]

TABLES = (
    "_EMBEDDING_MODELS", "_LATE_INTERACTION_MODELS", "_REWARD_MODELS", "_TOKEN_CLASSIFICATION_MODELS",
    "_SEQUENCE_CLASSIFICATION_MODELS",
)  # fmt: skip
"""Tables of the registry, by what is made of a prompt."""

BORROWED = {
    "BertSpladeSparseEmbeddingModel": "bert",
    "BgeM3EmbeddingModel": "xlm-roberta",
    "ColBERTLfm2Model": "lfm2",
    "ClefFlashForJointSchema": "qwen3_5",
    "ClefOmniForJointSchema": "qwen3_omni_moe",
    "ColBERTModernBertModel": "modernbert",
    "ColModernVBertForRetrieval": "modernvbert",
    "ColQwen3": "colqwen3",
    "ColQwen3_5": "qwen3_5",
    "ColUltraVBertForRetrieval": "ultravbert",
    "D3ForSequenceClassification": "qwen3_5",
    "DeepseekV3BidirectionalModel": "deepseek_v3",
    "HF_ColBERT": "bert",
    "JambaForSequenceClassification": "jamba",
    "JinaEmbeddingsV5Model": "qwen3",
    "JinaForRanking": "qwen3",
    "JinaVLForRanking": "qwen2_vl",
    "Lfm2BidirectionalModel": "lfm2",
    "LlamaBidirectionalForSequenceClassification": "llama",
    "LlamaBidirectionalModel": "llama",
    "OpsColQwen3Model": "ops_colqwen3",
    "Qwen2ForProcessRewardModel": "qwen2",
    "Qwen2ForRewardModel": "qwen2",
    "Qwen3ASRForcedAlignerForTokenClassification": "qwen3_asr",
    "Qwen3VLNemotronEmbedModel": "qwen3_vl_nemotron_embed",
    "VoyageQwen3BidirectionalEmbedModel": "qwen3",
}
"""Architecture -> model_type whose class reads its files."""

_ABSOLUTE = {"position_embedding_type": "absolute"}
_BOTH_WAYS = {"is_causal": False, "pooling": "avg", "max_position_embeddings": 8192}
_GTE = {
    "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
    "vocab_size": 30_528, "max_position_embeddings": 8192, "type_vocab_size": 0, "hidden_act": "gelu",
    "layer_norm_eps": 1e-12, "layer_norm_type": "layer_norm", "position_embedding_type": "rope", "pack_qkv": True,
    "rope_theta": 500_000.0, "use_memory_efficient_attention": False, "unpad_inputs": False, "pad_token_id": 0,
    "logn_attention_scale": False, "logn_attention_clip1": False, "rope_scaling": None,
}  # fmt: skip
_JOINT_HEAD = {"width": 512, "routing_layers": 2, "layers": 2, "heads": 8, "feedforward": 2048}
_SIGLIP = {
    "model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27,
    "num_attention_heads": 16, "num_channels": 3, "image_size": 512, "patch_size": 16,
    "hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6, "attention_dropout": 0.0,
}  # fmt: skip
_NEMOTRON_VL: dict[str, Any] = {
    "model_type": "llama_nemotron_vl", "force_image_size": 512, "downsample_ratio": 0.5,
    "template": "bidirectional-llama-retriever", "select_layer": -1, "ps_version": "v2", "pooling": "avg",
    "dynamic_image_size": True, "use_thumbnail": True,
    "min_dynamic_patch": 1, "max_dynamic_patch": 6, "img_context_token_id": 128_258, "vision_config": _SIGLIP,
    "llm_config": {
        "model_type": "llama", "architectures": ["LlamaBidirectionalModel"], "hidden_size": 2048,
        "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
        "head_dim": 64, "vocab_size": 128_266,
        "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": True,
    },
}  # fmt: skip
_SHORT = {"text_config": {"max_position_embeddings": 8192}}
"""Prompts that are seen both ways, or whose first token is asked for, are not cut: the budget has to be as long."""
_LITTLE, _LARGER = (
    {"hidden_size": hidden, "intermediate_size": width, "num_hidden_layers": layers, "vocab_size": vocab}
    for hidden, width, layers, vocab in ((1024, 2048, 8, 60_000), (2560, 9216, 20, 151_936))
)
_HEADS = {"num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128, "max_position_embeddings": 8192}

FIELDS: dict[str, dict[str, Any]] = {
    "ClefFlashForJointSchema": {"joint_head_config": {"hidden_size": 4096, **_JOINT_HEAD}},
    "ClefOmniForJointSchema": {
        "joint_head_config": {"hidden_size": 2048, **_JOINT_HEAD}, "thinker_config": {
            "text_config": {"tie_word_embeddings": False},
            "vision_config": {"image_size": 768, "num_position_embeddings": 2304, "apply_vit_abs_pos_embed": True},
        },
    },
    "ColQwen3": {"embed_dim": 320, **_SHORT},
    "ColQwen3_5": {"retrieval_attention_contract": "bidirectional", "dim": 128, **_SHORT},
    "ColUltraVBertForRetrieval": _SHORT,
    "D3ForSequenceClassification": {
        **_SHORT, "decision_config": {
            "format_version": 1, "attention_mode": "noncausal_full_attention",
            "codes": ["A", "B", "C", "D"], "token_ids": [32, 33, 34, 35],
        },
    },
    "OpsColQwen3Model": {"dims": 2560, **_SHORT},
    "Qwen3ASRForcedAlignerForTokenClassification": {"thinker_config": {"classify_num": 5000}},
    "Qwen3VLNemotronEmbedModel": {"dim": 128, **_SHORT},
    "BgeM3EmbeddingModel": {**_ABSOLUTE, "max_position_embeddings": 8192, "type_vocab_size": 1},
    "DeepseekV3BidirectionalModel": {"is_causal": False, "max_position_embeddings": 8192},
    "Lfm2BidirectionalModel": {"max_position_embeddings": 8192},
    "ColBERTLfm2Model": {"max_position_embeddings": 8192},
    "EmbeddingGemma2Model": {"text_config": {"max_position_embeddings": 8192}},
    "OpenAIPrivacyFilterForTokenClassification": {"max_position_embeddings": 8192},
    "Qwen2ForProcessRewardModel": {"max_position_embeddings": 8192},
    "GteModel": {"position_embedding_type": "rope"},
    "GPT2ForSequenceClassification": {"pad_token_id": 0},
    "JinaForRanking": {"max_position_embeddings": 8192},
    "LlamaBidirectionalForSequenceClassification": {**_BOTH_WAYS, "num_labels": 1},
    "LlamaBidirectionalModel": _BOTH_WAYS,
    "NomicBertModel": {
        "activation_function": "swiglu", "n_embd": 768, "n_head": 12, "n_inner": 3072, "n_layer": 12,
        "n_positions": 2048, "prenorm": False, "parallel_block": False, "rotary_emb_fraction": 1.0,
        "rotary_emb_base": 1000, "rotary_emb_interleaved": False, "rotary_emb_scale_base": None,
        "qkv_proj_bias": False, "mlp_fc1_bias": False,
        "mlp_fc2_bias": False, "layer_norm_epsilon": 1e-12, "causal": False, "type_vocab_size": 2,
        "max_trained_positions": 2048, "use_rms_norm": False,
    },
    "VoyageQwen3BidirectionalEmbedModel": {
        "is_causal": False, "max_position_embeddings": 8192, "num_labels": 2048, "head_dim": 128,
    },
    "XLMRobertaModel": {**_ABSOLUTE, "max_position_embeddings": 514, "type_vocab_size": 1},
    "XLMRobertaForSequenceClassification": {**_ABSOLUTE, "max_position_embeddings": 514, "type_vocab_size": 1},
    "XLMRobertaForTokenClassification": {**_ABSOLUTE, "max_position_embeddings": 514, "type_vocab_size": 1},
}  # fmt: skip
"""What the classes leave out."""

WITHOUT_CLASS: dict[str, dict[str, Any]] = {
    "GteNewModel": {"model_type": "new", **_GTE},
    "GteNewForSequenceClassification": {"model_type": "new", **_GTE, "classifier_dropout": 0.0},
    "ColBERTJinaRobertaModel": {
        "model_type": "xlm-roberta",
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "vocab_size": 250_002,
        "max_position_embeddings": 8192,
        "type_vocab_size": 1,
        "position_embedding_type": "rotary",
        "rotary_emb_base": 10_000.0,
        "hidden_act": "gelu",
        "rope_theta": 10_000.0,
        "layer_norm_eps": 1e-5,
        "pad_token_id": 1,
        "colbert_dim": 128,
        "emb_pooler": None,
        "lora_adaptations": None,
    },
    "LlamaNemotronVLModel": _NEMOTRON_VL,
    "LlamaNemotronVLForSequenceClassification": {
        **_NEMOTRON_VL,
        "llm_config": {
            **_NEMOTRON_VL["llm_config"],
            "architectures": ["LlamaBidirectionalForSequenceClassification"],
            "num_labels": 1,
        },
    },
}
"""The whole file, where no class reads it."""
_PALIGEMMA = {
    "model_type": "paligemma", "hidden_size": 2048, "projection_dim": 2048, "image_token_index": 256_000,
    "vocab_size": 257_152, "vision_config": {
        "model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27,
        "num_attention_heads": 16, "patch_size": 14, "image_size": 448, "num_image_tokens": 1024,
        "projection_dim": 2048, "vision_use_head": False,
    },
}  # fmt: skip
_GEMMA = {
    "model_type": "gemma", "head_dim": 256, "num_attention_heads": 8, "num_key_value_heads": 1,
    "num_image_tokens": 1024, "max_position_embeddings": 8192,
}  # fmt: skip

VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "ColPaliForRetrieval": {
        "small": {"vlm_config": {**_PALIGEMMA, "text_config": {**_GEMMA, **_LITTLE}}},
        "large": {"embedding_dim": 320, "vlm_config": {**_PALIGEMMA, "text_config": {**_GEMMA, **_LARGER}}},
    },
    "ColQwen3_5": {
        "small": {"retrieval_attention_contract": "causal", "text_config": {**_LITTLE, **_HEADS}},
        "large": {"dim": 320, "text_config": {**_LARGER, **_HEADS}},
    },
    "D3ForSequenceClassification": {
        "small": {
            "decision_config": {"format_version": 1, "attention_mode": "causal", "codes": ["A"], "token_ids": [32]},
            "text_config": {**_LITTLE, **_HEADS},
        },
        "large": {"text_config": {**_LARGER, **_HEADS}},
    },
    "JinaEmbeddingsV5Model": {
        "small": {**_LITTLE, **_HEADS, "is_decoder": False}, "large": {**_LARGER, **_HEADS, "is_decoder": True},
    },
}  # fmt: skip
"""Sizes in place of drawn ones: where a section within a section has them, and where they have to differ in kind."""
