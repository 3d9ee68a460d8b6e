"""What the pooling models of vLLM's registry are read with: embeddings, classification, reward."""

from __future__ import annotations

from typing import Any

__all__ = ["BORROWED", "FIELDS", "TABLES", "WITHOUT_CLASS"]

TABLES = (
    "_EMBEDDING_MODELS", "_LATE_INTERACTION_MODELS", "_REWARD_MODELS", "_TOKEN_CLASSIFICATION_MODELS",
    "_SEQUENCE_CLASSIFICATION_MODELS",
)  # fmt: skip
"""Of the registry, by what is made of a prompt."""

BORROWED = {
    "BertSpladeSparseEmbeddingModel": "bert",
    "BgeM3EmbeddingModel": "xlm-roberta",
    "ColBERTLfm2Model": "lfm2",
    "ColBERTModernBertModel": "modernbert",
    "DeepseekV3BidirectionalModel": "deepseek_v3",
    "HF_ColBERT": "bert",
    "JambaForSequenceClassification": "jamba",
    "JinaForRanking": "qwen3",
    "JinaVLForRanking": "qwen2_vl",
    "Lfm2BidirectionalModel": "lfm2",
    "LlamaBidirectionalForSequenceClassification": "llama",
    "LlamaBidirectionalModel": "llama",
    "Qwen2ForProcessRewardModel": "qwen2",
    "Qwen2ForRewardModel": "qwen2",
    "Qwen3ASRForcedAlignerForTokenClassification": "qwen3_asr",
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

FIELDS: dict[str, dict[str, Any]] = {
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
}
"""The whole file, where no class reads it."""
