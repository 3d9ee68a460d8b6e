"""The table of architectures: a row each, which says which fields of a ``config.json`` fill which piece.

What a row may say stands in :mod:`~tokenyard.models.reading.pieces`. Names that share a row are aliases. A row is here
only if vLLM's own model class and planner were seen to come to the same (``scripts/record_registry.py``).
"""

from __future__ import annotations

from dataclasses import replace

from tokenyard.models.reading.pieces import (
    DeltaNet,
    Dense,
    Experts,
    Grouped,
    HeadState,
    Latent,
    Row,
    SelectiveState,
    Tower,
    varied,
)

__all__ = ["ROWS"]

# ---------------------------------------------------------------------------------------------------------------------
# Decoders that are dense throughout.

_BIASED = Grouped(qkv_bias="attention_bias", output_bias="attention_bias")


def _windowed(full: Grouped, window: str = "window") -> dict[str, tuple[Grouped, ...]]:
    """Layers with a window beside layers without, otherwise alike."""
    return {"full_attention": (full,), "sliding_attention": (replace(full, window=window),)}


_ALL_WINDOWED = (("sliding_attention", "1"),)

LLAMA = Row(mixers=_windowed(_BIASED), mlps={"": Dense(bias="mlp_bias")})
MISTRAL = varied(LLAMA, order=_ALL_WINDOWED)
QWEN2 = Row(
    mixers=_windowed(Grouped(qkv_bias=True)),
    types_if="use_sliding_window",
    order=(("sliding_attention", "use_sliding_window and i >= max_window_layers"), ("full_attention", "1")),
    defaults={"max_window_layers": 28},
    harmless=("sliding_window", "max_window_layers"),
)
QWEN3 = varied(QWEN2, mixers=_windowed(Grouped(qkv_bias="attention_bias", head_norms=True)))
GEMMA2 = Row(
    mixers=_windowed(Grouped()),
    order=(("full_attention", "i % 2"), ("sliding_attention", "1")),
    norms=4,
    tied=True,
    names={"window": "sliding_window=4096"},
    defaults={"head_dim": 256, "vocab_size": 256_000},
)
GEMMA3 = varied(
    GEMMA2,
    mixers=_windowed(Grouped(head_norms=True)),
    order=(("full_attention", "(i + 1) % pattern == 0"), ("sliding_attention", "1")),
    names={"pattern": "sliding_window_pattern|_sliding_window_pattern=6"},
    defaults={
        "max_position_embeddings": 131_072, "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 262_208
    },
)  # fmt: skip
PHI = Row(
    mixers={"full_attention": (Grouped(qkv_bias=True, output_bias=True),)},
    mlps={"": Dense(gated=False, bias=True)},
    other="2 * hidden + vocab",
    refused=(("qk_layernorm", "qk_layernorm", "a norm of queries and keys"),),
)
PHI3 = Row(mixers=_windowed(_BIASED), order=_ALL_WINDOWED)
COMMAND_R = Row(
    mixers={
        "full_attention": (Grouped(qkv_bias="attention_bias", output_bias="attention_bias", full_norms="use_qk_norm"),)
    },
    norms=1,
    tied=True,
)
COMMAND_R2 = Row(
    mixers=_windowed(_BIASED, "window + 1"),  # so many tokens before a token, and itself
    order=(("full_attention", "(i + 1) % pattern == 0"), ("sliding_attention", "1")),
    names={
        "window": "sliding_window=4096", "pattern": "sliding_window_pattern|_sliding_window_pattern|layer_switch=4"
    },
    norms=1,
    tied=True,
)  # fmt: skip
GLM4 = Row(mixers={"full_attention": (Grouped(qkv_bias="attention_bias"),)}, norms=4)

# ---------------------------------------------------------------------------------------------------------------------
# Decoders with experts.

MIXTRAL = Row(
    mixers=_windowed(Grouped()),
    order=_ALL_WINDOWED,
    experts=Experts(width="width", module="block_sparse_moe.experts"),
    names={"experts": "num_local_experts"},
)
PHIMOE = varied(MIXTRAL, mixers=_windowed(_BIASED), norms=4, other="2 * hidden + vocab * lm_head_bias")
QWEN2_MOE = Row(
    mixers={"full_attention": (Grouped(qkv_bias="qkv_bias=true"),)},
    types="",
    experts=Experts(
        shared_width="shared_expert_intermediate_size",
        extra="hidden if shared_expert_intermediate_size else 0",
        shared="mlp.shared_expert",
    ),
    sparse="experts and i not in mlp_only_layers and (i + 1) % step == 0",
    names={"step": "decoder_sparse_step=1"},
    harmless=("sliding_window", "max_window_layers", "layer_types", "intermediate_size"),
    refused=(("use_sliding_window", "use_sliding_window", "a window in a mixture of experts"),),
)
QWEN3_MOE = varied(QWEN2_MOE, mixers={"full_attention": (Grouped(qkv_bias="attention_bias", head_norms=True),)})
GPT_OSS = Row(
    mixers=_windowed(Grouped(qkv_bias=True, output_bias=True, extra="heads")),
    order=(("full_attention", "i % 2"), ("sliding_attention", "1")),
    experts=Experts(width="width", extra="experts * (2 * width + hidden + 1)", multiples=(256, 128)),
    names={"experts": "num_local_experts", "window": "sliding_window=128"},
    harmless=("attention_bias", "initial_context_length", "experts_per_token"),
)
_DEEPSEEK_EXPERTS = Experts(
    shared_width="n_shared_experts * expert_width",
    extra="experts if topk_method == 'noaux_tc' else 0",
    shared="mlp.shared_experts",
)
DEEPSEEK = Row(
    mixers={"full_attention": (Latent(),)},
    experts=_DEEPSEEK_EXPERTS,
    sparse="i >= first_k_dense_replace and i % step == 0",
    names={"experts": "n_routed_experts", "step": "moe_layer_freq=1"},
)
GLM4_MOE = varied(
    DEEPSEEK,
    mixers={"full_attention": (Grouped(qkv_bias="attention_bias", head_norms="use_qk_norm"),)},
    experts=Experts(shared_width="n_shared_experts * expert_width", extra="experts", shared="mlp.shared_experts"),
)
MINIMAX_M2 = Row(
    mixers={"full_attention": (Grouped(full_norms="use_qk_norm=true"),)},
    experts=Experts(width="width", extra="experts if use_routing_bias else 0", module="block_sparse_moe.experts"),
    names={"experts": "num_local_experts"},
    harmless=("mtp_transformer_layers", "num_mtp_modules", "use_mtp", "qk_norm_type"),
    refused=(
        ("attn_type_list", "0 in attn_type_list", "lightning attention"),
        ("shared_intermediate_size", "shared_intermediate_size", "a shared expert of MiniMax"),
    ),
)
LLAMA4 = Row(
    mixers={"full_attention": (Grouped(),), "chunked_attention": (Grouped(chunk="attention_chunk_size"),)},
    types="",
    order=(
        ("full_attention", "not attention_chunk_size"),
        ("chunked_attention", "no_rope_layers[i] if no_rope_layers else (i + 1) % interval"),
        ("full_attention", "1"),
    ),
    mlps={"": Dense(width="intermediate_size_mlp", module="feed_forward")},
    experts=Experts(
        width="width", shared_width="width", module="feed_forward.experts", shared="feed_forward.shared_expert"
    ),
    sparse="i in moe_layers if moe_layers else (i + 1) % step == 0",
    names={
        "experts": "num_local_experts", "interval": "no_rope_layer_interval=4", "step": "interleave_moe_layer_step=1"
    },
    harmless=("layer_types", "use_qk_norm", "intermediate_size_mlp"),  # that norm has no weights
)  # fmt: skip

# ---------------------------------------------------------------------------------------------------------------------
# Decoders that mix attention with states.

_PLAIN = {"full_attention": (Grouped(),)}

QWEN3_NEXT = varied(
    QWEN3_MOE,
    mixers={"full_attention": (Grouped(head_norms=True, output_gate=True),), "linear_attention": (DeltaNet(),)},
    types="layer_types",
    order=(("full_attention", "(i + 1) % interval == 0"), ("linear_attention", "1")),
    names={"interval": "full_attention_interval=4"},
    defaults={
        "head_dim": 256, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
        "linear_num_value_heads": 32, "linear_value_head_dim": 128,
    },
    harmless=("sliding_window", "max_window_layers", "intermediate_size", "use_sliding_window"),
    refused=(),
)  # fmt: skip
JAMBA = Row(
    mixers={**_PLAIN, "mamba": (SelectiveState(),)},
    types="",
    order=(("full_attention", "i % attn_layer_period == attn_layer_offset"), ("mamba", "1")),
    mlps={"": Dense(module="feed_forward")},
    experts=Experts(width="width", module="feed_forward.experts"),
    sparse="experts > 1 and i % expert_layer_period == expert_layer_offset",
    names={"experts": "num_experts=1", "expand": "mamba_expand=2"},
    harmless=("sliding_window", "use_mamba_kernels", "layers_block_type"),
)
BAMBA = Row(
    mixers={"full_attention": (_BIASED,), "mamba": (HeadState(),)},
    types="",
    order=(("full_attention", "i in attn_layer_indices"), ("mamba", "1")),
    mlps={"": Dense(bias="mlp_bias", module="feed_forward")},
    names={"expand": "mamba_expand=2"},
    harmless=("attn_rotary_emb",),
)
GRANITE_HYBRID = Row(
    mixers={"full_attention": (_BIASED,), "mamba": (HeadState(),)},
    types="layer_types|layers_block_type",
    kinds={"attention": "full_attention", "mamba": "mamba"},
    order=(("mamba", "1"),),
    mlps={"": Dense(width="shared_intermediate_size", module="shared_mlp")},
    experts=Experts(
        width="width", shared_width="shared_intermediate_size", module="block_sparse_moe.experts", shared="shared_mlp"
    ),
    names={"experts": "num_local_experts=0", "expand": "mamba_expand=2"},
    harmless=("intermediate_size", "num_experts_per_tok", "position_embedding_type"),
)
NEMOTRON_H = Row(
    mixers={
        "full_attention": (Grouped(module="mixer"),),
        "mamba": (
            HeadState(
                heads="mamba_num_heads", head_size="mamba_head_dim", inner="mamba_num_heads * mamba_head_dim",
                state="ssm_state_size", groups="n_groups", kernel="conv_kernel=4", chunk="chunk_size=128",
                state_dtype="float32", module="mixer",
            ),
        ),
    },
    mlps={
        "mlp": Dense(gated=False, module="mixer"),
        "moe": Experts(
            shared_width="n_shared_experts * moe_shared_expert_intermediate_size", gated=False, extra="experts",
            module="mixer.experts", shared="mixer.shared_experts",
        ),
    },
    types="hybrid_override_pattern|layers_block_type",
    kinds={"M": "mamba", "*": "full_attention", "-": "mlp", "E": "moe", "attention": "full_attention"},
    norms=1,
    names={"head_dim": "head_dim|attention_head_dim=hidden // heads", "experts": "n_routed_experts"},
    harmless=(
        "intermediate_size", "use_conv_bias", "use_bias", "expand", "num_logits_to_keep",
        "moe_shared_expert_intermediate_size", "n_shared_experts", "moe_intermediate_size",
    ),
    prefix="backbone.layers",
)  # fmt: skip
FALCON_H1 = Row(
    mixers={
        "full_attention": (_BIASED, HeadState(inner="mamba_d_ssm or hidden * expand", normed="mamba_rms_norm")),
    },
    mlps={"": Dense(bias="mlp_bias", module="feed_forward")},
    names={"expand": "mamba_expand=2"},
    harmless=("mamba_expand",),
)

# ---------------------------------------------------------------------------------------------------------------------
# Models that see or hear: a decoder behind a tower. A block has four square matrices, two wide ones, norms with biases.

_VIT = "4 * h * h + 2 * h * w + 4 * h + w + h + 4 * h"
GEMMA3_VISION = varied(
    GEMMA3,
    towers=(
        Tower(
            block=_VIT,
            replicated="3 * patch * patch * h + h + (image // patch) * (image // patch) * h + 2 * h + h * text + h",
            tokens="tokens",
            names={"image": "image_size=224"},
            outer={"tokens": "mm_tokens_per_image=256"},
        ),
    ),
)
LLAMA4_VISION = varied(
    LLAMA4,
    prefix="language_model.model.layers",
    towers=(
        Tower(
            block=_VIT,
            shared="h // (ratio * ratio) * into + into * out",
            replicated="3 * patch * patch * h + h + ((image // patch) * (image // patch) + 1) * h + 4 * h"
            " + vision_out * text",
            tokens="(image // patch) * (image // patch) // 4",
            names={
                "image": "image_size=448", "into": "projector_input_dim=4096", "out": "projector_output_dim=4096",
                "vision_out": "vision_output_dim=4096", "ratio": "pixel_shuffle_ratio if pixel_shuffle_ratio else 0.5",
            },
        ),
    ),
)  # fmt: skip
QWEN2_5_VL = varied(
    QWEN2,
    towers=(
        Tower(
            block="4 * h * h + 4 * h + 3 * h * w + 2 * w + h + 2 * h",
            shared="h + merged * merged + merged + merged * out + out",
            replicated="channels * temporal * patch * patch * h",
            tokens=16_384,
            names={
                "n": "depth", "merge": "spatial_merge_size=2", "merged": "h * merge * merge", "out": "out_hidden_size",
                "channels": "in_chans|in_channels=3", "temporal": "temporal_patch_size=2",
            },
        ),
    ),
)  # fmt: skip
MISTRAL3 = varied(
    MISTRAL,
    towers=(
        Tower(
            block="4 * h * h + 3 * h * w + 2 * h",
            shared="h + h * merge * merge * h + h * text + text * text",
            replicated="channels * patch * patch * h + h",
            tokens="(image // patch // merge) * (image // patch // merge)",
            names={"channels": "num_channels=3", "image": "image_size=1540"},
            outer={"merge": "spatial_merge_size=2"},
        ),
    ),
)
_WHISPER_ATTENTION = Grouped(kv_heads="heads", head_dim="hidden // heads", extra="4 * hidden")
WHISPER = Row(
    mixers={"full_attention": (_WHISPER_ATTENTION, replace(_WHISPER_ATTENTION, cross=True))},
    mlps={"": Dense(gated=False, bias=True)},
    norms=6,
    other="2 * hidden + targets * hidden",
    always_tied=True,
    context="targets",
    names={
        "hidden": "d_model", "heads": "decoder_attention_heads", "layers": "decoder_layers", "width": "decoder_ffn_dim",
        "targets": "max_target_positions=448", "positions": "max_source_positions=1500",
    },
    defaults={"vocab_size": 51_865},
    harmless=("num_hidden_layers", "encoder_attention_heads", "max_length"),
    prefix="model.decoder.layers",
    encoder_tokens="positions",
    replicated_embedding=True,
    towers=(
        Tower(
            kind="audio",
            section="",
            block=_VIT,
            replicated="3 * h * mels + 3 * h * h + 2 * h + positions * h + 2 * h",
            tokens="positions",
            names={
                "h": "d_model", "w": "encoder_ffn_dim", "n": "encoder_layers", "mels": "num_mel_bins=80",
                "positions": "max_source_positions=1500",
            },
        ),
    ),
)  # fmt: skip

ROWS: dict[str, Row] = {
    "BambaForCausalLM": BAMBA,
    "Cohere2ForCausalLM": COMMAND_R2,
    "CohereForCausalLM": COMMAND_R,
    "DeepseekV2ForCausalLM": DEEPSEEK,
    "DeepseekV32ForCausalLM": DEEPSEEK,
    "DeepseekV3ForCausalLM": DEEPSEEK,
    "FalconH1ForCausalLM": FALCON_H1,
    "Gemma2ForCausalLM": GEMMA2,
    "Gemma3ForCausalLM": GEMMA3,
    "Gemma3ForConditionalGeneration": GEMMA3_VISION,
    "Glm4ForCausalLM": GLM4,
    "Glm4MoeForCausalLM": GLM4_MOE,
    "GptOssForCausalLM": GPT_OSS,
    "GraniteMoeHybridForCausalLM": GRANITE_HYBRID,
    "JambaForCausalLM": JAMBA,
    "Llama4ForCausalLM": LLAMA4,
    "Llama4ForConditionalGeneration": LLAMA4_VISION,
    "LlamaForCausalLM": LLAMA,
    "MiniMaxM2ForCausalLM": MINIMAX_M2,
    "Mistral3ForConditionalGeneration": MISTRAL3,
    "MistralForCausalLM": MISTRAL,
    "MixtralForCausalLM": MIXTRAL,
    "NemotronHForCausalLM": NEMOTRON_H,
    "Phi3ForCausalLM": PHI3,
    "PhiForCausalLM": PHI,
    "PhiMoEForCausalLM": PHIMOE,
    "Qwen2ForCausalLM": QWEN2,
    "Qwen2MoeForCausalLM": QWEN2_MOE,
    "Qwen2_5_VLForConditionalGeneration": QWEN2_5_VL,
    "Qwen3ForCausalLM": QWEN3,
    "Qwen3MoeForCausalLM": QWEN3_MOE,
    "Qwen3NextForCausalLM": QWEN3_NEXT,
    "WhisperForConditionalGeneration": WHISPER,
}
"""By the name in ``architectures``."""
