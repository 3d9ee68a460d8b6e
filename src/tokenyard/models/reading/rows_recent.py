"""Rows of decoders that vLLM has served since 0.31, and of those that no configuration class describes."""

from __future__ import annotations

from dataclasses import replace

from tokenyard.models.reading.pieces import Dense, Experts, Grouped, KimiDelta, Latent, Linear
from tokenyard.models.reading.row import ArchitectureRow, varied
from tokenyard.models.reading.rows_dense import BIASED, GEMMA3, HYPERCLOVAX, QWEN3, windowed
from tokenyard.models.reading.rows_experts import BAILING, GEMMA4, STEP3
from tokenyard.models.reading.rows_published import DEEPSEEK_OCR
from tokenyard.models.reading.rows_states import KIMI_LINEAR
from tokenyard.models.reading.rows_towers import DECODERS, LLAVA_ONEVISION, QWEN2_5_VL, QWEN3_VL_MOE, VIT
from tokenyard.models.reading.towers import Kept, Tower

FLINT = ArchitectureRow(
    mixers=windowed(Grouped(qkv_bias="attention_bias", head_norms=True, extra="2 * heads")),  # sinks in float32
    types_if="sliding_window and use_sliding_window != 0",
    experts=Experts(shared_width="shared_expert_intermediate_size", shared="mlp.shared_expert"),
    sparse="i not in mlp_only_layers",
    defaults={"use_sliding_window": True},
    harmless=("no_rope_layer_indices", "router_score_function"),
)
DOMYN_EDGE = ArchitectureRow(
    mixers={
        "full_attention": (Grouped(head_norms=True),),
        "sliding_attention": (Grouped(head_norms=True, window="window_sizes[i][0] + 1"),),
    },
    types="",
    order=(("sliding_attention", "window_sizes[i][0] > 0"), ("full_attention", "1")),
    norms=4,
    harmless=("position_layers",),
)
STEP1 = ArchitectureRow(
    mixers={
        "full_attention": (
            replace(BIASED, kv_heads="num_attention_groups|num_key_value_heads=1", head_dim="hidden // heads"),
        )
    },
    mlps={"": Dense(bias="mlp_bias")},
    ties=True,
    harmless=("max_seq_len",),
)
RNJ1 = varied(
    GEMMA3,
    mixers={
        "full_attention": (replace(BIASED, head_norms=True),),
        "chunked_attention": (replace(BIASED, head_norms=True, window="window"),),
    },
    order=(("full_attention", "1"),),
)
HYPERCLOVAX_VISION = varied(
    HYPERCLOVAX,
    harmless_around=("mm_projector_type",),
    towers=(
        replace(
            QWEN2_5_VL.towers[0],
            replicated=f"{QWEN2_5_VL.towers[0].replicated} + out * text + text",
        ),
    ),
)
PANGU_PRO_2 = ArchitectureRow(
    tied="",
    mixers={
        "full_attention": (
            Grouped(
                head_dim="qk_nope_dim + qk_rope_dim",
                head_dim_v="v_channels",
                qkv_bias="bias",
                output_bias="bias",
                extra="head_dim + kv_heads * param_sink_number"
                " * (qk_nope_dim + qk_rope_dim + (v_channels if param_sink_with_value else 0))",
            ),
        )
    },
    experts=Experts(
        shared_width="n_shared_experts * expert_width",
        extra="2 * experts if router_enable_expert_bias else 0",
        shared="mlp.shared_experts",
    ),
    sparse="i >= first_k_dense_replace",
    norms="4 if sandwich_norm else 2",
    harmless=("param_sink_scalar", "head_dim"),
)
BAILING_2_5 = varied(
    BAILING,
    tied=False,
    mixers={
        "full_attention": (Latent(module="attention"),),
        "linear_attention": (
            Linear(
                bias="use_bias or use_qkv_bias", output_bias="use_bias", head_norms="use_qk_norm", module="attention"
            ),
        ),
    },
    types="",
    order=(
        ("linear_attention", "layer_group_size and (i + 1) % layer_group_size != 0"),
        ("full_attention", "1"),
    ),
    experts=Experts(
        shared_width="num_shared_experts * (moe_shared_expert_intermediate_size or expert_width)",
        # a router in float32
        extra="hidden * experts + (2 * experts if moe_router_enable_expert_bias else 0)",
        shared="mlp.shared_experts",
    ),
    harmless=("group_norm_size", "linear_silu", "use_qkv_bias", "use_bias", "use_qk_norm", "router_dtype"),
)
ALICE = ArchitectureRow(
    mixers={
        "full_attention": (Grouped(head_norms=True, output_gate=True),),
        "linear_attention": (
            KimiDelta(
                heads="linear_num_key_heads", head_dim="linear_key_head_dim", kernel="linear_conv_kernel_dim",
                module="linear_attn",
            ),
        ),
    },
    experts=Experts(
        shared_width="shared_expert_intermediate_size", extra="hidden + 2 * experts", shared="mlp.shared_expert"
    ),
    # every layer weighs what earlier ones hand on, before attention and MLP
    norms="2 + 4 if i else 2 + 2",
    other="3 * hidden",
    tied=False,
    harmless=(
        "linear_num_value_heads", "linear_value_head_dim", "block_attn_res_block_size",
        "kda_allow_negative_eigenvalues", "router_score_function", "router_bias_correction", "attention_bias",
    ),
)  # fmt: skip
UNLIMITED_OCR = DEEPSEEK_OCR
DIFFUSION_GEMMA = varied(
    GEMMA4,
    tied="tie_word_embeddings=true",
    # an MLP on every GPU for what the step before thought of a token
    other="2 * hidden + 3 * hidden * width + per_layer",
    harmless_around=("canvas_length",),
    harmless=("use_bidirectional_attention",),
)
ISAAC = varied(
    QWEN3,
    harmless_around=("video_patch_size", "vision_token", "vision_max_num_patches", "vision_min_num_patches"),
    towers=(
        Tower(
            block=VIT,
            always="h * joined * (4 * h * joined + 4 * text)",
            replicated="pixels * h + h + num_patches * h + 2 * h",
            patches="joined",
            tokens="num_patches // joined",
            names={
                "joined": "pixel_shuffle_scale_factor * pixel_shuffle_scale_factor if pixel_shuffle_scale_factor else 1"
            },
        ),
    ),
)

VOXTRAL = ArchitectureRow(
    decoders=DECODERS,
    towers=(
        Tower(
            kind="audio",
            section="audio_config",
            block=VIT,
            replicated="3 * h * mels + 3 * h * h + 2 * positions * h + h * joined * text + text * text + 4 * h",
            patches="joined",
            window="positions",
            tile="positions // joined",
            tokens="positions // joined",
            names={
                "h": "d_model|hidden_size", "w": "encoder_ffn_dim|intermediate_size",
                "n": "encoder_layers|num_hidden_layers", "mels": "num_mel_bins=128",
                "positions": "max_source_positions=1500", "joined": "downsample_factor=4",
            },
        ),
    ),
)  # fmt: skip
VOXTRAL_REALTIME = ArchitectureRow(
    decoders=DECODERS,
    towers=(
        Tower(
            kind="audio",
            section="audio_config",
            block="4 * h * inner + 3 * h * w",
            replicated="n * (3 * inner + 4 * h) + 3 * h * mels + 3 * h * h + 3 * h + h * joined * text + text * text",
            tokens="max_position_embeddings // joined",
            names={
                "h": "d_model", "w": "encoder_ffn_dim", "n": "encoder_layers", "mels": "num_mel_bins=128",
                "joined": "downsample_factor=4", "pool": "block_pool_size|downsample_factor=4",
                "inner": "encoder_attention_heads * encoder_head_dim",
            },
            # a window in tokens of the decoder, and one more: blocks are given back whole
            keeps=Kept(
                heads="encoder_attention_heads", head_dim="encoder_head_dim", vectors_per_token="pool",
                window="-(-sliding_window // pool) + 1",
            ),
        ),
    ),
)  # fmt: skip
STEP3_VISION = varied(
    STEP3,
    towers=(
        Tower(
            block=VIT,
            replicated="pixels * h + h + (grid * grid + 1) * h + 4 * h * output_hidden_size"
            " + output_hidden_size + 18 * output_hidden_size * output_hidden_size + 2 * output_hidden_size"
            " + 2 * output_hidden_size * text",
            patches=16,
            window="grid * grid + 1",
            tokens="(grid // 4) * (grid // 4)",
        ),
    ),
    harmless_around=("hidden_size", "projector_bias", "understand_projector_stride"),
)
STEP_VISION = varied(
    QWEN3,
    tied="",
    towers=(
        Tower(
            block=f"{VIT} + 2 * h",
            shared="4 * h * text",
            replicated="pixels * h + grid * grid * h + 18 * h * h + 72 * h * h + 8 * h",
            patches=16,
            window="grid * grid",
            tokens="(grid // 4) * (grid // 4)",
            names={"h": "width", "n": "layers", "w": "width * mlp_ratio"},
        ),
    ),
    harmless_around=("projector_bias", "understand_projector_stride"),
)
KIMI_K3 = varied(
    KIMI_LINEAR,
    mixers={
        "full_attention": (Latent(indexer=0, output_gate="mla_use_output_gate"),),
        "linear_attention": (KimiDelta(hands_out_states=True),),
    },
    experts=Experts(
        inner="routed_expert_hidden_size",
        shared_width="num_shared_experts * expert_width",
        extra="2 * experts + routed_expert_hidden_size",
        module="block_sparse_moe.experts",
        shared="block_sparse_moe.shared_experts",
        least_width="min_moe_intermediate_per_partition=256",
    ),
    # every layer weighs what earlier ones hand on, before attention and MLP
    norms=6,
    other="3 * hidden",
    harmless=(
        *KIMI_LINEAR.harmless, "activation_situ_linear_beta", "activation_situ_beta", "attn_res_block_size",
        "latent_moe_use_norm", "mla_use_nope",
    ),
    towers=(
        Tower(
            block="4 * h * inner + 2 * h * w",
            each="2 * h",
            heads="vt_num_attention_heads",
            patches=4,
            replicated="3 * patch * patch * h"
            " + init_pos_emb_height * init_pos_emb_width * h + h + 16 * h * h + 4 * h * text + text",
            tokens="init_pos_emb_height * init_pos_emb_width // 4",
            names={
                "h": "vt_hidden_size", "w": "vt_intermediate_size", "n": "vt_num_hidden_layers",
                "inner": "qkv_hidden_size|vt_hidden_size",
            },
        ),
    ),
)  # fmt: skip

ROWS = {
    "AliceAIForCausalLM": ALICE,
    "BailingMoeV2_5ForCausalLM": BAILING_2_5,
    "DiffusionGemmaForBlockDiffusion": DIFFUSION_GEMMA,
    "DomynEdgeForCausalLM": DOMYN_EDGE,
    "RForConditionalGeneration": LLAVA_ONEVISION,
    "StepVLForConditionalGeneration": STEP_VISION,
    "Step3VLForConditionalGeneration": STEP3_VISION,
    "VoxtralForConditionalGeneration": VOXTRAL,
    "VoxtralRealtimeGeneration": VOXTRAL_REALTIME,
    "InternS1ProForConditionalGeneration": QWEN3_VL_MOE,
    "KimiK3ForConditionalGeneration": KIMI_K3,
    "FlintForCausalLM": FLINT,
    "HCXVisionV2ForCausalLM": HYPERCLOVAX_VISION,
    "IsaacForConditionalGeneration": ISAAC,
    "PanguProMoEV2ForCausalLM": PANGU_PRO_2,
    "Rnj1ForCausalLM": RNJ1,
    "Step1ForCausalLM": STEP1,
    "UnlimitedOCRForCausalLM": UNLIMITED_OCR,
}
"""Name in ``architectures`` -> row."""
