"""Rows of models whose indexers join the keys of several tokens, and keep the last few in rings."""

from __future__ import annotations

from dataclasses import replace

from tokenyard.models.reading.expressions import Fill
from tokenyard.models.reading.pieces import DeltaNet, Experts, Grouped, KimiDelta, Latent, Ngrams, Ring
from tokenyard.models.reading.row import AnyMixer, ArchitectureRow, varied
from tokenyard.models.reading.rows_experts import STEP3P5
from tokenyard.models.reading.rows_recent import STEP_VISION
from tokenyard.models.reading.rows_states import QWEN3_NEXT
from tokenyard.models.reading.rows_towers import QWEN3_VL
from tokenyard.models.reading.towers import Tower

GLM5_NEXT = ArchitectureRow(
    tied=False,
    mixers={
        "linear_attention": (
            KimiDelta(
                heads="linear_num_heads", head_dim="linear_head_dim", kernel="linear_conv_kernel_dim", full_gate=0,
                hands_out_states=True,
            ),
        ),
        "indexed_attention": (
            # what a token weighs among those that it is joined with, and its place among them
            Latent(
                indexer="index_topk",
                # a key in a byte each, with scales; in the ring a key and its weight in two each
                ring=Ring(
                    joins="index_kpool", key_bytes="index_head_dim + index_head_dim // 128 * 4",
                    token_bytes="4 * index_head_dim", doubles=True, page_tokens=1, page_keys=64,
                ),
                extra="index_head_dim * (hidden + 2 * index_kpool)",
            ),
        ),
    },
    experts=Experts(
        shared_width="n_shared_experts * expert_width", extra="2 * experts", shared="mlp.shared_experts",
    ),
    sparse="mlp_layer_types[i] == 'sparse'",
    # hyper-connections in float32, around attention and MLP
    norms="2 + 4 * (2 + hc) * hc * hc if mhc else 2",
    names={"experts": "n_routed_experts", "hc": "hc_mult=4"},
    harmless=(
        "indexer_types", "index_kpool_always_select_tail", "indexer_rope_interleave", "linear_lower_bound",
        "mla_use_nope", "first_k_dense_replace", "qk_head_dim",
    ),
)  # fmt: skip
_PICKS = "(sparse_config.sparse_indexer_num_heads or 16) if sparse_config and sparse_config.enabled != False else 0"
_STEP5 = Grouped(
    kv_heads="num_attention_groups",
    head_norms=True,
    extra="hidden * heads if use_head_wise_attn_gate else 0",
)
STEP5 = varied(
    STEP3P5,
    mixers={
        "full_attention": (
            replace(
                _STEP5,
                picks=(_PICKS, 256, "sparse_config.topk or 512", "num_attention_groups"),
                # keys in a byte each
                ring=Ring(joins=8, key_bytes=256, alignment=1024, page_tokens=8),
                extra=f"({_STEP5.extra}) + hidden * (256 + 16)",
            ),
        ),
        "sliding_attention": (
            replace(_STEP5, heads="swa_num_attention_heads or heads", window="window"),
        ),
    },
    types="",
    order=(
        (
            "sliding_attention",
            "window and (layer_types[i] == 'sliding_attention' if layer_types else i % 2 == 0)",
        ),
        ("full_attention", "1"),
    ),
    sparse="i in moe_layers_enum if moe_layers_enum else i in moe_layer_list if moe_layer_list else i > 0",
    harmless=(
        *STEP3P5.harmless, "layer_types", "layer_types_with_mtp", "attention_other_setting", "swiglu_limits",
        "swiglu_limits_shared", "fp32_residual_connection", "norm_dtype", "partial_rotary_factors", "zero_centered",
        "moe_router_activation", "moe_router_scaling_factor",
    ),
)  # fmt: skip


def _qwen4(token_bytes: Fill) -> Grouped:
    return Grouped(
        head_norms=True,
        output_gate=True,
        picks=("indexer_n_heads or 0", "indexer_head_dim", "indexer_budget", 1),
        ring=Ring(
            joins="indexer_compress_ratio", key_bytes="2 * indexer_head_dim", token_bytes=token_bytes, comes_first=True
        ),
    )


def _qwen4_mixers(attention: Grouped) -> dict[str, tuple[AnyMixer, ...]]:
    kinds = ("indexed_attention", "qwen_sparse_attention", "full_attention")
    return {"linear_attention": (Ngrams(), DeltaNet()), **{kind: (Ngrams(), attention) for kind in kinds}}


QWEN4_EXP = varied(
    QWEN3_NEXT,
    mixers=_qwen4_mixers(_qwen4("2 * indexer_head_dim")),
    # the window of an embedding of n-grams, which is one of its state layouts
    least_state="(ple_conv_kernel_size - 1) * ngram_size * hidden * hc_count",
    # two hyper-connections: a norm over all streams, a matrix of low rank and what the block puts into each stream
    norms="2 * hc_count * (1 + 2 * hc_lowrank + 16)",
    other="hc_count * hidden * (1 + 2 * hc_lowrank)",
    harmless=(*QWEN3_NEXT.harmless, "number_of_conv_states", "output_gate_type", "indexer_kv_heads"),
)
QWEN4_EXP_VL = varied(
    QWEN4_EXP,
    # beside a token's key its place, on three axes
    mixers=_qwen4_mixers(_qwen4("2 * (-(-indexer_head_dim // 4) * 4 + 12)")),
    towers=(replace(QWEN3_VL.towers[0], names={"drafts": "0 + 0"}),),
)
GLM5_NEXT_VL = varied(
    GLM5_NEXT,
    towers=(
        Tower(
            block="4 * h * h + 3 * h * w + 7 * h + 2 * w",
            shared="out * out + 3 * out * projection_intermediate_size",
            replicated="pixels * frames * h + merge * merge * h * out + 3 * h + 3 * out",
            patches="merge * merge",
            tokens=16_384,
        ),
    ),
)
STEP5_VL = varied(STEP5, towers=STEP_VISION.towers, harmless_around=("hidden_size", *STEP_VISION.harmless_around))

ROWS = {
    "Glm5NextForCausalLM": GLM5_NEXT,
    "Glm5NextForConditionalGeneration": GLM5_NEXT_VL,
    "Qwen4ExpForCausalLM": QWEN4_EXP,
    "Qwen4ExpForConditionalGeneration": QWEN4_EXP_VL,
    "Step5ForCausalLM": STEP5,
    "Step5ForConditionalGeneration": STEP5_VL,
}
"""Name in ``architectures`` -> row."""
