"""Rows of models that make embeddings, scores or labels of a prompt: encoders, and decoders without their output head.

A decoder that vLLM also serves as one (``LlamaForCausalLM`` under ``--runner pooling``) has its own row elsewhere.
"""

from __future__ import annotations

from dataclasses import replace

from tokenyard.models.reading.pieces import Convolution, Dense, Grouped, Latent
from tokenyard.models.reading.row import AnyMixer, ArchitectureRow, varied
from tokenyard.models.reading.rows_dense import GEMMA2, GEMMA3, GPT2, INTERNLM2, LLAMA, MISTRAL, QWEN2, QWEN3
from tokenyard.models.reading.rows_experts import DEEPSEEK, GPT_OSS
from tokenyard.models.reading.rows_states import JAMBA, LFM2
from tokenyard.models.reading.rows_towers import QWEN2_VL, SIGLIP, VIT
from tokenyard.models.reading.towers import Tower

_LABELS = ("num_labels", "id2label", "label2id", "classifier_dropout", "pooling", "is_causal")
_TYPES = "(type_vocab_size + 63) // 64 * 64 * hidden"
POSITIONS = "(max_position_embeddings + 63) // 64 * 64 * hidden"
"""Embeddings of kinds of text and of positions, of which vLLM makes multiples of 64 and shares them out."""
_BOTH_WAYS = Grouped(kv_heads="heads", head_dim="hidden // heads", qkv_bias=True, output_bias=True, both_ways=True)
BERT = ArchitectureRow(
    mixers={"full_attention": (_BOTH_WAYS,)},
    mlps={"": Dense(gated=False, bias=True)},
    types="",
    norms=4,
    other="2 * hidden",
    embeddings=f"{_TYPES} + {POSITIONS}",
    tied=True,
    context="max_position_embeddings",
    prefix="model.encoder.layer",
    harmless=("position_embedding_type", *_LABELS),
)
BERT_VOCABULARY = varied(BERT, other=f"{BERT.other} + hidden * hidden + 3 * hidden + vocab * (hidden + 1)")
# in float32
BERT_SCORES = varied(BERT, other=f"{BERT.other} + 2 * hidden * hidden + 6 * hidden")
BGE_M3 = varied(BERT, other=f"{BERT.other} + 2 * (hidden * hidden + 2 * hidden)")
MODERN_BERT = ArchitectureRow(
    mixers={
        "full_attention": (
            replace(_BOTH_WAYS, qkv_bias="attention_bias", output_bias="attention_bias"),
        )
    },
    mlps={"": Dense(bias="mlp_bias")},
    types="",
    norms="(2 if i else 1) * (2 if norm_bias else 1)",
    other="2 * hidden * (2 if norm_bias else 1)",
    tied=True,
    context="max_position_embeddings",
    harmless=(
        "global_attn_every_n_layers", "local_attention", "sparse_prediction", "sparse_pred_ignore_index",
        "layer_types", "repad_logits_with_grad", "reference_compile", *_LABELS,
    ),
)  # fmt: skip
MODERN_BERT_LABELS = varied(MODERN_BERT, other="4 * hidden + hidden * hidden + 4 * hidden")
MODERN_BERT_SCORES = varied(MODERN_BERT, other="2 * hidden + 2 * hidden * hidden + 6 * hidden")
NOMIC_BERT = ArchitectureRow(
    mixers={
        "full_attention": (replace(_BOTH_WAYS, qkv_bias="qkv_proj_bias", output_bias="qkv_proj_bias"),)
    },
    mlps={"": Dense(gated="activation_function != 'gelu'", bias="mlp_fc1_bias")},
    types="",
    norms=4,
    other="2 * hidden",
    embeddings=_TYPES,
    tied=True,
    names={
        "hidden": "n_embd|hidden_size", "layers": "n_layer|num_hidden_layers", "heads": "n_head|num_attention_heads",
        "width": "n_inner|intermediate_size",
    },
    context="n_positions|max_position_embeddings",
    refused=(("moe_every_n_layers", "(moe_every_n_layers or 0) > 0", "Nomic's mixture of experts"),),
    harmless=(
        "max_trained_positions", "rotary_emb_interleaved", "rotary_emb_base", "rotary_emb_fraction",
        "rotary_emb_scale_base", "parallel_block", "prenorm", "mlp_fc2_bias", "causal", "num_attention_heads",
        "hidden_size", "num_hidden_layers", "intermediate_size", "num_key_value_heads", "head_dim", *_LABELS,
    ),
)  # fmt: skip
GTE = ArchitectureRow(
    mixers={"full_attention": (_BOTH_WAYS,)},
    mlps={"": Dense(extra="hidden")},
    types="",
    norms=4,
    other="2 * hidden",
    embeddings=_TYPES,
    tied=True,
    context="max_position_embeddings",
    harmless=(
        "position_embedding_type", "pack_qkv", "unpad_inputs", "use_memory_efficient_attention", "layer_norm_type",
        "logn_attention_scale", "logn_attention_clip1", "num_key_value_heads", "head_dim", *_LABELS,
    ),
)  # fmt: skip
GTE_SCORES = varied(GTE, other="2 * hidden + 2 * hidden * hidden + 6 * hidden")


SIGLIP_HEAD = Tower(
    block=VIT,
    # and attention that makes one vector of a picture
    shared="2 * h * w",
    replicated=f"{SIGLIP} + 4 * h * h + 9 * h + w",
    patches=1,
    window="grid * grid",
    tokens="grid * grid",
)
SIGLIP_PAIR = ArchitectureRow(
    mixers={"full_attention": (_BOTH_WAYS,)},
    mlps={"": Dense(gated=False, bias=True)},
    types="",
    norms=4,
    other="3 * hidden + hidden * hidden",
    embeddings=POSITIONS,
    tied=True,
    context="max_position_embeddings",
    harmless=("projection_size",),
    towers=(SIGLIP_HEAD,),
)
EMBEDDING_GEMMA2 = ArchitectureRow(
    mixers={
        "full_attention": (
            Grouped(
                head_dim="per_layer_config[i].head_dim or head_dim",
                kv_heads="per_layer_config[i].num_key_value_heads or kv_heads",
                head_norms=True,
                both_ways=True,
            ),
        )
    },
    types="",
    # every layer has a vector of its own for each token, which comes through two matrices
    norms="5 + 2 * hidden_size_per_layer_input",
    other="hidden + hidden_size_per_layer_input + embedding_dim * hidden",
    embeddings="layers * hidden * hidden_size_per_layer_input",
    tied=True,
    context="max_position_embeddings",
    refused_around=(
        ("vision_config", "EmbeddingGemma 2 with a tower for pictures"),
        ("audio_config", "EmbeddingGemma 2 with a tower for sound"),
    ),
    harmless=("layer_types", "sliding_window", "attention_bias"),
)


def headless(row: ArchitectureRow, **changes: object) -> ArchitectureRow:
    """A decoder whose last hidden states are what is requested: its output head is not loaded."""
    return varied(row, tied=True, harmless=(*row.harmless, *_LABELS), **changes)


def both_ways(row: ArchitectureRow) -> dict[str, tuple[AnyMixer, ...]]:
    """The row's attention, over all of a prompt."""
    return {
        kind: tuple(
            replace(each, both_ways=True) if isinstance(each, Grouped | Latent | Convolution) else each
            for each in pieces
        )
        for kind, pieces in row.mixers.items()
    }


ROWS = {
    "BertForMaskedLM": BERT_VOCABULARY,
    "BertForSequenceClassification": BERT_SCORES,
    "BertForTokenClassification": BERT,
    "BertModel": BERT,
    "BertSpladeSparseEmbeddingModel": BERT_VOCABULARY,
    "BgeM3EmbeddingModel": BGE_M3,
    "ColBERTModernBertModel": MODERN_BERT,
    "DeepseekV3BidirectionalModel": headless(DEEPSEEK, mixers=both_ways(DEEPSEEK)),
    "JinaVLForRanking": varied(QWEN2_VL, embeddings="2 * hidden * hidden"),
    "ColBERTLfm2Model": LFM2,
    "OpenAIPrivacyFilterForTokenClassification": headless(GPT_OSS, mixers=both_ways(GPT_OSS)),
    "EmbeddingGemma2Model": EMBEDDING_GEMMA2,
    "SiglipModel": SIGLIP_PAIR,
    "GPT2ForSequenceClassification": headless(GPT2),
    "Gemma2Model": headless(GEMMA2),
    "Gemma3TextModel": headless(GEMMA3),
    "GteModel": GTE,
    "GteNewForSequenceClassification": GTE_SCORES,
    "GteNewModel": GTE,
    "HF_ColBERT": BERT,
    "JambaForSequenceClassification": varied(JAMBA, harmless=(*JAMBA.harmless, *_LABELS)),
    "JinaForRanking": headless(QWEN3, other="hidden + hidden * hidden // 2 + 256 * hidden"),
    "LlamaBidirectionalForSequenceClassification": headless(LLAMA, mixers=both_ways(LLAMA)),
    "LlamaBidirectionalModel": headless(LLAMA, mixers=both_ways(LLAMA)),
    "InternLM2ForRewardModel": headless(INTERNLM2, other="2 * hidden"),
    "Lfm2BidirectionalModel": headless(LFM2, mixers=both_ways(LFM2)),
    "LlamaModel": headless(LLAMA),
    "MistralModel": headless(MISTRAL),
    "ModernBertForSequenceClassification": MODERN_BERT_SCORES,
    "ModernBertForTokenClassification": MODERN_BERT_LABELS,
    "ModernBertModel": MODERN_BERT,
    "NomicBertModel": NOMIC_BERT,
    # two matrices in float32
    "Qwen2ForProcessRewardModel": headless(QWEN2, other="7 * hidden", embeddings="2 * hidden * hidden"),
    "Qwen2ForRewardModel": headless(QWEN2, other="5 * hidden", embeddings="2 * hidden * hidden"),
    "Qwen2Model": headless(QWEN2),
    "RobertaForMaskedLM": BERT,
    "RobertaForSequenceClassification": BERT_SCORES,
    "RobertaForTokenClassification": BERT,
    "RobertaModel": BERT,
    "VoyageQwen3BidirectionalEmbedModel": headless(
        QWEN3, mixers=both_ways(QWEN3), other="hidden + hidden * (num_labels or len(id2label))"
    ),
    "XLMRobertaForSequenceClassification": BERT_SCORES,
    "XLMRobertaForTokenClassification": BERT,
    "XLMRobertaModel": BERT,
}
"""Name in ``architectures`` -> row."""
