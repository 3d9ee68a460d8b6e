"""Rows of models that compare embeddings of pictures and of text: pairs of encoders, and one vector for each token."""

from __future__ import annotations

from dataclasses import replace

from tokenyard.models.reading.pieces import Dense, Grouped
from tokenyard.models.reading.row import ArchitectureRow, varied
from tokenyard.models.reading.rows_dense import LLAMA, QWEN3
from tokenyard.models.reading.rows_pooling import BERT, MODERN_BERT, POSITIONS, both_ways, headless
from tokenyard.models.reading.rows_sound import QWEN3_ASR, QWEN3_OMNI
from tokenyard.models.reading.rows_towers import (
    INTERN_VL_CHAT,
    PALIGEMMA,
    QWEN3_5_VL,
    QWEN3_VL,
    SIGLIP,
    VIT,
)
from tokenyard.models.reading.towers import Tower

_SIZE = "embedding_dim|embed_dim|dims|dim|projection_dim|colbert_dim"
"""How long a token's vector is, by the names that files have for it."""

CLIP_PAIR = ArchitectureRow(
    mixers={
        "full_attention": (Grouped(kv_heads="heads", head_dim="hidden // heads", qkv_bias=True, output_bias=True),)
    },
    mlps={"": Dense(gated=False, bias=True)},
    types="",
    norms=4,
    other="2 * hidden + hidden * projected",
    around={"projected": "projection_dim=512"},
    embeddings=POSITIONS,
    tied=True,
    context="max_position_embeddings",
    harmless=("projection_dim",),
    towers=(
        Tower(
            block=VIT,
            replicated="h + pixels * h + (grid * grid + 1) * h + 4 * h + h * projected",
            outer={"projected": "projection_dim=512"},
            patches=1,
            window="grid * grid + 1",
            tokens="grid * grid + 1",
        ),
    ),
)
MODERN_VBERT = varied(
    MODERN_BERT,
    other=f"{MODERN_BERT.other} + 2 * (size * hidden + size)",  # in float32
    around={"size": "embedding_dim=128"},
    towers=(
        Tower(
            block=VIT,
            replicated=f"{SIGLIP} + h * factor * factor * text",
            outer={"factor": "pixel_shuffle_factor=4"},
            patches="factor * factor",
            window="grid * grid",
            tokens="grid * grid // (factor * factor)",
        ),
    ),
)
ULTRA_VBERT = varied(
    LLAMA,
    mixers={
        "full_attention": (Grouped(qkv_bias="attention_bias", output_bias="attention_bias", both_ways=True),),
    },
    types="",
    tied=True,
    harmless=("layer_types", "sliding_window"),
    towers=(
        replace(
            MODERN_VBERT.towers[0],
            replicated=f"{SIGLIP} + h * factor * factor * text + (text if normed else 0)",
            outer={"factor": "pixel_shuffle_factor=4", "normed": "connector_norm=true"},
        ),
    ),
)
COL_PALI = varied(PALIGEMMA, other="hidden + 2 * hidden * size", around={"size": f"{_SIZE}=128"})
COL_QWEN3 = varied(QWEN3_VL, other="hidden + 2 * hidden * size", around={"size": f"{_SIZE}=0"})
_SEES = {
    "full_attention": tuple(
        replace(each, both_ways="told == 'bidirectional' or retrieval_attention_contract == 'bidirectional'")
        for each in QWEN3_5_VL.mixers["full_attention"]
        if isinstance(each, Grouped)
    )
}
COL_QWEN3_5 = varied(
    QWEN3_5_VL,
    mixers={**QWEN3_5_VL.mixers, **_SEES},
    other="hidden + 2 * (hidden * size + size)",
    around={"size": f"{_SIZE}=128", "told": "retrieval_attention_contract=0"},
)
D3 = headless(
    QWEN3_5_VL,
    mixers={
        **QWEN3_5_VL.mixers,
        "full_attention": (replace(_SEES["full_attention"][0], both_ways="told == 'noncausal_full_attention'"),),
    },
    other="hidden + 2 * hidden * answers",
    around={"told": "decision_config.attention_mode", "answers": "len(decision_config.codes)"},
)
_JOINT = {
    name: f"joint_head_config.{field}"
    for name, field in {
        "read": "hidden_size", "wide": "width", "evidence": "routing_layers", "fields": "layers",
        "forward": "feedforward",
    }.items()
}  # fmt: skip
_JOINT_HEAD = (
    " + 2 * read + 6 * read * wide + 17 * wide + 4 * wide * wide + wide + 1 + 3"
    " + evidence * (4 * wide * wide + 2 * wide * forward + 11 * wide + forward)"
    " + fields * (8 * wide * wide + 2 * wide * forward + 15 * wide + forward)"
)
"""What decides among the answers of a schema, beside the output head."""
CLEF_FLASH = varied(QWEN3_5_VL, other=f"hidden{_JOINT_HEAD}", around=_JOINT)
CLEF_OMNI = varied(QWEN3_OMNI, other=f"hidden{_JOINT_HEAD}", around=_JOINT)
JINA_V5 = headless(
    QWEN3,
    mixers={
        kind: tuple(
            replace(each, head_norms="is_decoder", both_ways="not is_decoder")
            for each in pieces
            if isinstance(each, Grouped)
        )
        for kind, pieces in QWEN3.mixers.items()
    },
    defaults={"is_decoder": True},
)
JINA_ROBERTA = varied(
    BERT,
    embeddings="(type_vocab_size + 63) // 64 * 64 * hidden",
    other="2 * hidden + 2 * hidden * (colbert_dim or dim or projection_dim)",
)
_NEMOTRON_TOWER = Tower(
    block=VIT,
    replicated=f"{SIGLIP} + 8 * h + 4 * h * text + text * text + 2 * text",
    patches=4,
    window="grid * grid",
    tokens="grid * grid // 4 * (most + 1)",
    outer={"most": "max_dynamic_patch=12"},
)
NEMOTRON_VL = headless(
    LLAMA,
    mixers=both_ways(LLAMA),
    harmless_around=INTERN_VL_CHAT.harmless_around,
    towers=(_NEMOTRON_TOWER,),
)
# two matrices in float32: the decoder has one that is not read
NEMOTRON_VL_SCORES = varied(NEMOTRON_VL, other="hidden + 4 * hidden * (num_labels or len(id2label) or 2)")
FORCED_ALIGNER = varied(QWEN3_ASR, tied=True, other="hidden + hidden * answers", around={"answers": "classify_num"})

ROWS = {
    "CLIPModel": CLIP_PAIR,
    "ClefFlashForJointSchema": CLEF_FLASH,
    "ClefOmniForJointSchema": CLEF_OMNI,
    "ColBERTJinaRobertaModel": JINA_ROBERTA,
    "ColModernVBertForRetrieval": MODERN_VBERT,
    "ColPaliForRetrieval": COL_PALI,
    "ColQwen3": COL_QWEN3,
    "ColQwen3_5": COL_QWEN3_5,
    "ColUltraVBertForRetrieval": ULTRA_VBERT,
    "D3ForSequenceClassification": D3,
    "JinaEmbeddingsV5Model": JINA_V5,
    "LlamaNemotronVLForSequenceClassification": NEMOTRON_VL_SCORES,
    "LlamaNemotronVLModel": NEMOTRON_VL,
    "ModernVBertModel": MODERN_VBERT,
    "OpsColQwen3Model": COL_QWEN3,
    "Qwen3ASRForcedAlignerForTokenClassification": FORCED_ALIGNER,
    "Qwen3VLNemotronEmbedModel": COL_QWEN3,
}
"""Name in ``architectures`` -> row."""
