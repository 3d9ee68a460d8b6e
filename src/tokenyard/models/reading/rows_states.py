"""Rows of decoders that keep states: alone, or beside attention."""

from __future__ import annotations

from tokenyard.models.reading.pieces import (
    Convolution,
    DeltaNet,
    Dense,
    Experts,
    Grouped,
    HeadState,
    KimiDelta,
    Latent,
    SelectiveState,
)
from tokenyard.models.reading.row import ArchitectureRow, varied
from tokenyard.models.reading.rows_dense import BIASED
from tokenyard.models.reading.rows_experts import DEEPSEEK, QWEN3_MOE

_PLAIN = {"full_attention": (Grouped(),)}
QWEN3_NEXT = varied(
    QWEN3_MOE,
    harmless=(*QWEN3_MOE.harmless, "attention_bias"),
    tied=False,
    mixers={"full_attention": (Grouped(head_norms=True, output_gate=True),), "linear_attention": (DeltaNet(),)},
    types="layer_types",
    order=(("full_attention", "(i + 1) % interval == 0"), ("linear_attention", "1")),
    names={"interval": "full_attention_interval=4"},
    defaults={
        "head_dim": 256, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
        "linear_num_value_heads": 32, "linear_value_head_dim": 128,
    },
)  # fmt: skip
JAMBA = ArchitectureRow(
    tied=False,
    mixers={**_PLAIN, "mamba": (SelectiveState(),)},
    types="",
    order=(("full_attention", "i % attn_layer_period == attn_layer_offset"), ("mamba", "1")),
    mlps={"": Dense(module="feed_forward")},
    experts=Experts(width="width", module="feed_forward.experts"),
    sparse="experts > 1 and i % expert_layer_period == expert_layer_offset",
    names={"experts": "num_experts=1", "expand": "mamba_expand=2"},
    harmless=("sliding_window", "use_mamba_kernels", "layers_block_type"),
)
BAMBA = ArchitectureRow(
    mixers={"full_attention": (BIASED,), "mamba": (HeadState(),)},
    types="",
    order=(("full_attention", "i in attn_layer_indices"), ("mamba", "1")),
    mlps={"": Dense(bias="mlp_bias", module="feed_forward")},
    names={"expand": "mamba_expand=2"},
    harmless=("attn_rotary_emb",),
)
GRANITE_HYBRID = ArchitectureRow(
    mixers={"full_attention": (BIASED,), "mamba": (HeadState(),)},
    types="layer_types|layers_block_type",
    kinds={"attention": "full_attention", "linear_attention": "mamba"},
    order=(("mamba", "1"),),
    mlps={"": Dense(width="shared_intermediate_size", module="shared_mlp")},
    experts=Experts(
        width="width", shared_width="shared_intermediate_size", module="block_sparse_moe.experts", shared="shared_mlp"
    ),
    names={"experts": "num_local_experts=0", "expand": "mamba_expand=2"},
    harmless=("intermediate_size", "num_experts_per_tok", "position_embedding_type"),
)
NEMOTRON_STATE = HeadState(
    heads="mamba_num_heads", head_size="mamba_head_dim", inner="mamba_num_heads * mamba_head_dim",
    state="ssm_state_size", groups="n_groups", kernel="conv_kernel=4", chunk="chunk_size=128", state_dtype="float32",
    module="mixer",
)  # fmt: skip
NEMOTRON_H = ArchitectureRow(
    tied=False,
    mixers={
        "full_attention": (Grouped(module="mixer"),),
        "mamba": (NEMOTRON_STATE,),
    },
    mlps={
        "mlp": Dense(gated=False, bias="mlp_bias", module="mixer"),
        "moe": Experts(
            inner="moe_latent_size",
            shared_width="n_shared_experts * moe_shared_expert_intermediate_size", gated=False, extra="experts",
            module="mixer.experts", shared="mixer.shared_experts",
        ),
    },
    types="hybrid_override_pattern|layers_block_type",
    counts_layers=True,
    kinds={
        "M": "mamba", "linear_attention": "mamba", "*": "full_attention", "attention": "full_attention", "-": "mlp",
        "E": "moe",
    },
    norms=1,
    names={"head_dim": "head_dim|attention_head_dim=hidden // heads", "experts": "n_routed_experts"},
    harmless=(
        "attention_bias", "moe_shared_expert_overlap", "mtp_layers_block_type",
        "use_mamba_kernels", "intermediate_size", "use_bias",
        "use_conv_bias", "expand", "num_logits_to_keep",
        "moe_shared_expert_intermediate_size", "n_shared_experts", "moe_intermediate_size",
    ),
    prefix="backbone.layers",
)  # fmt: skip
FALCON_H1 = ArchitectureRow(
    mixers={
        "full_attention": (BIASED, HeadState(inner="mamba_d_ssm or hidden * expand", normed="mamba_rms_norm")),
    },
    mlps={"": Dense(bias="mlp_bias", module="feed_forward")},
    names={"expand": "mamba_expand=2"},
    harmless=("mamba_expand",),
)
QWEN3_5 = varied(
    QWEN3_NEXT,
    tied="",
    mixers={
        "full_attention": (Grouped(head_norms=True, output_gate="attn_output_gate=true"),),
        "linear_attention": (DeltaNet(),),
    },
)
MAMBA = ArchitectureRow(
    mixers={
        "mamba": (
            SelectiveState(
                inner="intermediate_size",
                kernel="conv_kernel=4",
                state="state_size=16",
                rank="time_step_rank",
                conv_bias="use_conv_bias=true",
                bias="use_bias",
                normed=False,
                parted=True,
                module="mixer",
            ),
        )
    },
    harmless=("use_conv_bias", "use_bias", "time_step_rank"),
    mlps={},
    tied="tie_word_embeddings=true",
    norms=1,
    types="",
    order=(("mamba", "1"),),
    prefix="backbone.layers",
    context="max_position_embeddings=2048",
)
MAMBA2 = ArchitectureRow(
    mixers={
        "mamba": (
            HeadState(
                heads="num_heads",
                head_size="head_dim",
                inner="hidden * expand",
                state="state_size=128",
                groups="n_groups=8",
                kernel="conv_kernel=4",
                chunk="chunk_size=256",
                module="mixer",
            ),
        )
    },
    harmless=("use_conv_bias", "use_bias", "time_step_rank", "intermediate_size"),
    mlps={},
    norms=1,
    types="",
    order=(("mamba", "1"),),
    prefix="backbone.layers",
    context="max_position_embeddings=2048",
)
LFM2 = ArchitectureRow(
    mixers={"full_attention": (Grouped(head_norms=True),), "conv": (Convolution(width="conv_dim or hidden"),)},
    types="layer_types",
    order=(("full_attention", "i in full_attn_idxs"), ("conv", "1")),
    mlps={"": Dense(module="feed_forward")},
    names={
        "given": "block_ff_dim|intermediate_size",
        "times": "block_ffn_dim_multiplier if block_ffn_dim_multiplier else 1",
        "least": "block_multiple_of if block_multiple_of else 1",
        "width": "-(-(2 * given // 3 * times) // least) * least if block_auto_adjust_ff_dim else given",
    },
    harmless=("block_dim", "conv_dim", "conv_dim_out", "conv_use_xavier_init"),
    tied=True,
)
LFM2_MOE = varied(
    LFM2,
    experts=Experts(extra="experts if use_expert_bias else 0", module="feed_forward.experts"),
    sparse="i >= num_dense_layers",
    names={"width": "intermediate_size"},
)
KIMI_LINEAR = varied(
    DEEPSEEK,
    mixers={"full_attention": (Latent(),), "linear_attention": (KimiDelta(),)},
    types="",
    order=(("linear_attention", "i + 1 in linear_attn_config.kda_layers"), ("full_attention", "1")),
    experts=Experts(
        shared_width="num_shared_experts * expert_width",
        extra="2 * experts",
        module="block_sparse_moe.experts",
        shared="block_sparse_moe.shared_experts",
        least_width="min_moe_intermediate_per_partition=256",
    ),
    names={"experts": "num_experts", "per_token": "num_experts_per_token|num_experts_per_tok"},
    context="model_max_length|max_position_embeddings",
    # what the class of transformers derives
    harmless=(
        *DEEPSEEK.harmless, "layer_types", "mlp_layer_types", "linear_num_heads", "linear_head_dim",
        "linear_conv_kernel_dim",
    ),
)  # fmt: skip
OLMO_HYBRID = ArchitectureRow(
    harmless=("linear_allow_neg_eigval",),
    mixers={"full_attention": (Grouped(full_norms=True),), "linear_attention": (DeltaNet(hands_out_states=False),)},
)

ROWS = {
    "KimiLinearForCausalLM": KIMI_LINEAR,
    "Lfm2MoeForCausalLM": LFM2_MOE,
    "BambaForCausalLM": BAMBA,
    "FalconH1ForCausalLM": FALCON_H1,
    "FalconMambaForCausalLM": MAMBA,
    "GraniteMoeHybridForCausalLM": GRANITE_HYBRID,
    "JambaForCausalLM": JAMBA,
    "Lfm2ForCausalLM": LFM2,
    "Mamba2ForCausalLM": MAMBA2,
    "MambaForCausalLM": MAMBA,
    "NemotronHForCausalLM": NEMOTRON_H,
    "NemotronHPuzzleForCausalLM": NEMOTRON_H,
    "OlmoHybridForCausalLM": OLMO_HYBRID,
    "Qwen3NextForCausalLM": QWEN3_NEXT,
    "Qwen3_5ForCausalLM": QWEN3_5,
    "Qwen3_5MoeForCausalLM": QWEN3_5,
}
"""Name in ``architectures`` -> row."""
