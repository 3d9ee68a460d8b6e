"""Rows of mixtures of experts that see: a decoder of experts behind a tower."""

from __future__ import annotations

from tokenyard.models.reading.pieces import Experts, Grouped
from tokenyard.models.reading.row import ArchitectureRow, varied
from tokenyard.models.reading.rows_experts import DEEPSEEK, MINIMAX_M3
from tokenyard.models.reading.rows_towers import SIGLIP, VIT
from tokenyard.models.reading.towers import Tower

ARIA = ArchitectureRow(
    experts=Experts(width="width", shared_width="moe_num_shared_experts * width", shared="mlp.shared_experts"),
    names={"experts": "moe_num_experts", "per_token": "moe_topk"},
    harmless=("attention_bias", "mlp_bias"),
    harmless_around=("max_value_projector_patch_to_query_dict", "projector_patch_to_query_dict"),
    tied=False,
    towers=(
        Tower(
            block=VIT,
            shared="text * h + text * text",
            replicated=f"{SIGLIP} + 256 * h + 8 * h * h + 14 * h",
            patches="max(grid * grid // 256, 1)",
            window="grid * grid",
            tile=256,
            tokens=256,
        ),
    ),
)
KIMI_K25 = varied(
    DEEPSEEK,
    harmless_around=("projection_hidden_size",),
    towers=(
        Tower(
            block=VIT,
            replicated="pixels * h + high * wide * h + 16 * h * h + 4 * h * text + 10 * h + text",
            patches=4,
            tokens="high * wide // 4",
            names={
                "h": "vt_hidden_size|hidden_size",
                "w": "vt_intermediate_size|intermediate_size",
                "n": "vt_num_hidden_layers|num_hidden_layers",
                "high": "init_pos_emb_height|pos_emb_height",
                "wide": "init_pos_emb_width|pos_emb_width",
            },
        ),
    ),
)
KIMI_VL = varied(
    DEEPSEEK,
    names={"per_token": "num_experts_per_tok=1"},
    towers=(
        Tower(
            block=VIT,
            replicated="pixels * h + init_pos_emb_height * init_pos_emb_width * h + 16 * h * h + 4 * h * text + 10 * h"
            " + text",
            patches=4,
            tokens="init_pos_emb_height * init_pos_emb_width // 4",
        ),
    ),
)
MINIMAX_M3_VL = varied(
    MINIMAX_M3,
    harmless_around=("projector_hidden_size", "img_token_compression_config"),
    towers=(
        Tower(
            block=VIT,
            shared="wide * (h + text + 4 * text + text)",
            replicated="pixels * frames * h + 2 * h + 2 * wide + 2 * text",
            outer={"wide": "projector_hidden_size=6144"},
            patches=4,
            tokens="grid * grid // 4",
        ),
    ),
)
ERNIE_VL = ArchitectureRow(
    tied="tie_word_embeddings=true",
    mixers={"full_attention": (Grouped(qkv_bias="use_bias"),)},
    # A token visits experts for text or for pictures: as many of either, side by side
    experts=Experts(
        count="moe_num_experts[0]",
        per_token="moe_k=6",
        width="moe_intermediate_size[0] + moe_intermediate_size[1]",
        shared_width="moe_num_shared_experts * moe_intermediate_size[0]",
        extra="(3 * hidden + 4) * moe_num_experts[0]",  # two routers in float32
        shared="mlp.shared_experts",
    ),
    sparse="i >= moe_layer_start_index[0] and i <= moe_layer_end_index[0] and (i + 1) % interval == 0",
    names={"interval": "moe_layer_interval=1"},
    harmless=(
        "moe_capacity",
        "pixel_hidden_size",
        "moe_layer_end_index",
        "spatial_conv_size",
        "temporal_conv_size",
        "use_temporal_conv",
        "use_recompute_resampler",
        "resampler_fuse_rms_norm",
    ),
    towers=(
        Tower(
            block=VIT,
            shared="80 * h * h + 4 * h * text",
            replicated="pixels * h + 34 * h + 2 * text",
            names={"h": "embed_dim|hidden_size", "w": "h * mlp_ratio"},
            patches=4,
            tokens=16_384,
        ),
    ),
)

ROWS = {
    "AriaForConditionalGeneration": ARIA,
    "KimiK25ForConditionalGeneration": KIMI_K25,
    "KimiVLForConditionalGeneration": KIMI_VL,
    "MiniMaxM3SparseForConditionalGeneration": MINIMAX_M3_VL,
    "Ernie4_5_VLMoeForConditionalGeneration": ERNIE_VL,
}
"""Name in ``architectures`` -> row."""
