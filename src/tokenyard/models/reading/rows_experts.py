"""Rows of decoders with experts."""

from __future__ import annotations

from dataclasses import replace

from tokenyard.models.reading.compressed import Compressed
from tokenyard.models.reading.pieces import Dense, Experts, Grouped, Latent
from tokenyard.models.reading.row import ArchitectureRow, varied
from tokenyard.models.reading.rows_dense import ALL_WINDOWED, BIASED, COMMAND_R2, EXAONE4, windowed

MIXTRAL = ArchitectureRow(
    mixers=windowed(Grouped()),
    order=ALL_WINDOWED,
    experts=Experts(width="width", module="block_sparse_moe.experts"),
    names={"experts": "num_local_experts"},
)
PHIMOE = varied(MIXTRAL, mixers=windowed(BIASED), norms=4, other="2 * hidden + vocab * lm_head_bias")
QWEN2_MOE = ArchitectureRow(
    mixers={"full_attention": (Grouped(qkv_bias="qkv_bias=true"),)},
    types="",
    experts=Experts(
        shared_width="shared_expert_intermediate_size",
        extra="hidden if shared_expert_intermediate_size else 0",
        shared="mlp.shared_expert",
    ),
    sparse="experts and i not in mlp_only_layers and (i + 1) % step == 0",
    names={"step": "decoder_sparse_step=1"},
    harmless=("sliding_window", "max_window_layers", "layer_types", "intermediate_size", "use_sliding_window"),
)
QWEN3_MOE = varied(
    QWEN2_MOE,
    mixers=windowed(Grouped(qkv_bias="attention_bias", head_norms=True)),
    order=(("sliding_attention", "use_sliding_window"), ("full_attention", "1")),
)
GPT_OSS = ArchitectureRow(
    tied=False,
    mixers=windowed(Grouped(qkv_bias=True, output_bias=True, extra="heads")),
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
DEEPSEEK = ArchitectureRow(
    tied=False,
    harmless=("attention_bias", "mlp_bias"),
    mixers={"full_attention": (Latent(),)},
    kinds={"indexed_attention": "full_attention", "deepseek_sparse_attention": "full_attention"},
    experts=_DEEPSEEK_EXPERTS,
    sparse="i >= first_k_dense_replace and i % step == 0",
    names={"experts": "n_routed_experts", "step": "moe_layer_freq=1"},
)
GLM4_MOE = varied(
    DEEPSEEK,
    mixers={"full_attention": (Grouped(qkv_bias="attention_bias", head_norms="use_qk_norm"),)},
    experts=Experts(shared_width="n_shared_experts * expert_width", extra="experts", shared="mlp.shared_experts"),
)
MINIMAX_M2 = ArchitectureRow(
    tied=False,
    mixers={"full_attention": (Grouped(full_norms="use_qk_norm=true"),)},
    experts=Experts(width="width", extra="experts if use_routing_bias else 0", module="block_sparse_moe.experts"),
    names={"experts": "num_local_experts"},
    harmless=("mtp_transformer_layers", "num_mtp_modules", "use_mtp", "qk_norm_type"),
    refused=(
        ("attn_type_list", "0 in attn_type_list", "lightning attention"),
        ("shared_intermediate_size", "shared_intermediate_size", "a shared expert of MiniMax"),
    ),
)
LLAMA4 = ArchitectureRow(
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
    harmless=("attention_bias", "layer_types", "use_qk_norm", "intermediate_size_mlp"),  # that norm has no weights
)  # fmt: skip
GRANITE_MOE = ArchitectureRow(
    harmless=("attention_bias",),
    experts=Experts(width="width", module="block_sparse_moe.experts"),
    names={"experts": "num_local_experts"},
)
GRANITE_MOE_SHARED = ArchitectureRow(
    harmless=("attention_bias",),
    experts=Experts(
        width="width", shared_width="shared_intermediate_size", module="block_sparse_moe.experts", shared="shared_mlp"
    ),
    names={"experts": "num_local_experts"},
)
OLMOE = ArchitectureRow(
    tied=False, mixers={"full_attention": (Grouped(full_norms=True),)}, experts=Experts(width="width")
)
FLEX_OLMO = varied(OLMOE, tied="", mixers={"full_attention": (replace(BIASED, full_norms=True),)})
ERNIE_MOE = ArchitectureRow(
    tied="tie_word_embeddings=true",
    mixers={"full_attention": (Grouped(qkv_bias="use_bias"),)},
    experts=Experts(
        shared_width="moe_num_shared_experts * moe_intermediate_size",
        per_token="moe_k",
        extra="experts",
        shared="mlp.shared_experts",
    ),
    sparse="experts and i >= moe_layer_start_index and i <= last and (i + 1) % interval == 0",
    names={"experts": "moe_num_experts", "interval": "moe_layer_interval=1", "last": "moe_layer_end_index=layers"},
)
GLM_LITE = varied(DEEPSEEK, sparse="mlp_layer_types[i] == 'sparse' if mlp_layer_types else i >= first_k_dense_replace")
HUNYUAN_MOE = ArchitectureRow(
    mixers={"full_attention": (replace(BIASED, head_norms=True),)},
    experts=Experts(width="width", shared_width="width", per_token="moe_topk[i]", shared="mlp.shared_mlp"),
)
DEEPSEEK_1 = varied(DEEPSEEK, mixers={"full_attention": (BIASED,)})
BAILING = ArchitectureRow(
    mixers={
        "full_attention": (
            Grouped(qkv_bias="use_bias or use_qkv_bias", output_bias="use_bias", head_norms="use_qk_norm"),
        )
    },
    experts=Experts(
        shared_width="num_shared_experts * (moe_shared_expert_intermediate_size or expert_width)",
        extra="experts if moe_router_enable_expert_bias else 0",
        shared="mlp.shared_experts",
    ),
    sparse="i >= first_k_dense_replace",
)
SARVAM_MLA = varied(
    BAILING,
    mixers={"full_attention": (Latent(),)},
    sparse="i >= first_k_dense_replace and (i - first_k_dense_replace) % step == 0",
    names={"step": "moe_layer_freq=1"},
    harmless=("use_bias", "use_qkv_bias", "use_qk_norm"),
)
PARAM2_MOE = varied(
    BAILING,
    experts=Experts(
        shared_width="moe_shared_expert_intermediate_size or num_shared_experts * expert_width",
        extra="experts if moe_router_enable_expert_bias else 0",
        shared="mlp.shared_experts",
    ),
)
PANGU_MOE = varied(
    DEEPSEEK,
    tied="",
    experts=Experts(
        shared_width="n_shared_experts * expert_width",
        extra="2 * experts if router_enable_expert_bias else 0",
        shared="mlp.shared_experts",
    ),
    norms="4 if sandwich_norm else 2",
)
K2_HORIZON = ArchitectureRow(
    mixers={
        "full_attention": (
            Grouped(
                qkv_bias="attention_bias", output_bias="attention_bias", full_norms="query_key_norm",
                output_gate="attention_gate_func != 0",
            ),
        )
    },
    experts=Experts(
        shared_width="num_shared_experts * expert_width",
        extra="2 * experts if moe_gate_bias else 0",
        shared="mlp.shared_experts",
    ),
    sparse="experts and (i + 1) % step == 0",
    names={"step": "decoder_sparse_step=1"},
    harmless=("mova_num_experts_per_tok", "rope_head_dim", "layernorm_num_groups", "mlp_only_layers"),
    refused=(("mova_num_experts", "mova_num_experts", "K2 Horizon with experts among values"),),
)  # fmt: skip
COHERE2_MOE = varied(
    COMMAND_R2,
    experts=Experts(width="width", shared_width="num_shared_experts * width", shared="mlp.shared_experts"),
    harmless=("expert_selection_fn", "shared_expert_combination_strategy", "prefix_dense_sliding_window_pattern"),
    sparse="mlp_layer_types[i] == 'sparse'",
    mlps={"": Dense(width="prefix_dense_intermediate_size or width")},
    mixers=windowed(Grouped(), plus_itself=True),
)
EXAONE_MOE = varied(
    EXAONE4,
    experts=Experts(shared_width="num_shared_experts * expert_width", extra="experts", shared="mlp.shared_experts"),
    sparse="mlp_layer_types[i] == 'sparse' if mlp_layer_types else i >= first_k_dense_replace",
)
_LAGUNA = Grouped(
    heads="num_attention_heads_per_layer[i] if num_attention_heads_per_layer else heads",
    qkv_bias="attention_bias",
    output_bias="attention_bias",
    head_norms=True,
    extra="(hidden * num_attention_heads_per_layer[i] if num_attention_heads_per_layer else heads) if gating else 0",
)
LAGUNA = ArchitectureRow(
    harmless=("moe_routed_scaling_factor", "moe_apply_router_weight_on_input"),
    mixers=windowed(_LAGUNA),
    experts=Experts(shared_width="shared_expert_intermediate_size", extra="2 * experts", shared="mlp.shared_expert"),
    sparse="mlp_layer_types[i] == 'sparse'",
)
_GEMMA4 = Grouped(
    qkv_bias="attention_bias", output_bias="attention_bias", head_norms=True, shares_kv="i >= first_shared"
)
_PER_LAYER = "(2 * hidden * per_layer + hidden) if per_layer else 0"
GEMMA4 = ArchitectureRow(
    mixers={
        "sliding_attention": (replace(_GEMMA4, window="window"),),
        "full_attention": (
            replace(
                _GEMMA4,
                head_dim="per_layer_config[i].head_dim or global_head_dim or 512",
                kv_heads="per_layer_config[i].num_key_value_heads or global_kv_heads or kv_heads",
            ),
        ),
    },
    order=(("full_attention", "(i + 1) % 6 == 0 or i == layers - 1"), ("sliding_attention", "1")),
    mlps={"": Dense(width="width * (2 if use_double_wide_mlp and i >= first_shared else 1)", extra=_PER_LAYER)},
    experts=Experts(
        per_token="top_k_experts",
        shared_width="width",
        extra="experts + hidden + 3 * hidden + (" + _PER_LAYER + ")",
        module="experts",
        shared="mlp",
    ),
    norms=4,
    other="hidden + per_layer",
    embeddings="(vocab_size_per_layer_input + hidden) * layers * per_layer",
    tied="tie_word_embeddings=true",
    names={
        "window": "sliding_window=512",
        "head_dim": "head_dim=256",
        "per_layer": "hidden_size_per_layer_input=0",
        "global_kv_heads": "num_global_key_value_heads if attention_k_eq_v else 0",
        "first_shared": "layers - num_kv_shared_layers if num_kv_shared_layers else layers",
        "experts": "num_experts=0",
    },
    harmless=("enable_moe_block", "use_bidirectional_attention"),
)
GRANITE_MOE_SWA = varied(GRANITE_MOE_SHARED, mixers=windowed(Grouped(extra="heads")))
GLM_DSA = varied(
    DEEPSEEK,
    harmless=(*DEEPSEEK.harmless, "num_experts"),
    sparse="mlp_layer_types[i] == 'sparse' if mlp_layer_types else i >= first_k_dense_replace",
)
MELLUM = varied(
    QWEN3_MOE,
    mixers=windowed(Grouped(qkv_bias="attention_bias", head_norms=True)),
    types="layer_types",
    sparse="mlp_layer_types[i] == 'sparse' if mlp_layer_types else experts",
)

_GEMMA3N = Grouped(
    qkv_bias="attention_bias",
    output_bias="attention_bias",
    head_norms=True,
    shares_kv="first_shared > 0 and i >= first_shared",
)
GEMMA3N = ArchitectureRow(
    mixers={"full_attention": (_GEMMA3N,), "sliding_attention": (replace(_GEMMA3N, window="window"),)},
    order=(("full_attention", "(i + 1) % 5 == 0"), ("sliding_attention", "1")),
    mlps={"": Dense(width="intermediate_size[i]", extra="2 * hidden * per_layer + (4 + altup_num_inputs) * hidden")},
    norms=4,
    other="hidden + per_layer",
    embeddings="(vocab_size_per_layer_input + hidden) * layers * per_layer"
    " + 2 * (altup_num_inputs - 1) * hidden * hidden + 2 * layers * laurel_rank * hidden",
    tied=True,
    names={
        "window": "sliding_window=512", "head_dim": "head_dim=256", "per_layer": "hidden_size_per_layer_input=256",
        "first_shared": "layers - num_kv_shared_layers",
    },
    defaults={
        "altup_num_inputs": 4, "laurel_rank": 64, "num_kv_shared_layers": 15, "vocab_size_per_layer_input": 262_144,
        "vocab_size": 262_400,
    },
    harmless=("activation_sparsity_pattern", "altup_active_idx", "altup_coef_clip", "altup_correct_scale"),
)  # fmt: skip

HY3 = varied(
    GLM4_MOE,
    tied="",
    mixers={"full_attention": (Grouped(head_norms="qk_norm"),)},
    experts=Experts(shared_width="num_shared_experts * expert_width", extra="experts", shared="mlp.shared_mlp"),
    names={"experts": "num_experts", "expert_width": "expert_hidden_dim|moe_intermediate_size"},
    harmless=("attention_bias", "mlp_bias", "mlp_layer_types", "enable_moe_fp32_combine"),
)
LONGCAT = ArchitectureRow(
    mixers={"full_attention": (Latent(module="self_attn.0"), Latent(module="self_attn.1"))},
    mlps={"": Dense(width="ffn_hidden_size")},  # of the layer that predicts
    experts=Experts(
        width="expert_ffn_hidden_size",
        shared_width="2 * ffn_hidden_size",  # two MLPs that every token goes through
        per_token="min(moe_topk, experts)",
        extra="2 * (hidden + 1) * zero_expert_num + (hidden + 2) * experts",  # a router in float32
        shared="mlps",
    ),
    norms=4,
    tied=False,
    names={"layers": "num_layers|num_hidden_layers", "experts": "n_routed_experts"},
    harmless=("attention_bias", "mla_scale_q_lora", "mla_scale_kv_lora", "zero_expert_type"),
)

AFMOE = ArchitectureRow(
    mixers=windowed(Grouped(head_norms=True, output_gate=True)),
    order=(("full_attention", "(i + 1) % interval == 0"), ("sliding_attention", "1")),
    harmless=("attention_bias",),
    norms=4,
    experts=Experts(
        shared_width="num_shared_experts * expert_width",
        extra="(hidden + 2) * experts",  # a router in float32
        shared="mlp.shared_experts",
    ),
    sparse="i >= num_dense_layers",
    names={"interval": "global_attn_every_n_layers=4"},
)
DBRX = ArchitectureRow(
    mixers={"full_attention": (Grouped(kv_heads="attn_config.kv_n_heads or heads"),)},
    experts=Experts(module="ffn.experts"),
    names={
        "hidden": "d_model", "heads": "n_heads", "layers": "n_layers", "experts": "ffn_config.moe_num_experts",
        "per_token": "ffn_config.moe_top_k", "expert_width": "ffn_config.ffn_hidden_size",
    },
    context="max_seq_len=2048",
    tied=False,
    prefix="transformer.blocks",
    harmless=("num_key_value_heads",),
)  # fmt: skip
HUNYUAN4 = varied(
    DEEPSEEK,
    tied="",
    mixers={"full_attention": (Latent(indexer=0, output_gate=True, extra="heads"),)},
    experts=Experts(
        shared_width="(n_shared_experts or num_shared_experts) * expert_width",
        extra="(hidden + 2) * experts",  # a router in float32
        shared="mlp.shared_experts",
    ),
    sparse="mlp_layer_types[i] == 'sparse' if mlp_layer_types else i >= first_k_dense_replace",
    # hyper-connections in float32, around attention and MLP
    norms="2 + 4 * 8 * 4",
    other="hidden + 8 * 4 * hidden",
    names={"experts": "n_routed_experts|num_experts"},
    harmless=(*DEEPSEEK.harmless, "indexer_types", "index_topk", "index_n_heads", "index_head_dim"),
)
BEAM = ArchitectureRow(
    mixers=windowed(Grouped(head_norms=True, output_gate=True, extra="heads")),
    order=ALL_WINDOWED,
    norms=4,
    experts=Experts(extra="(hidden + 2) * experts"),  # a router in float32
    sparse="mlp_layer_types[i] == 'sparse' if mlp_layer_types else experts",
)
_RATIO = (
    "(compress_ratios[i] if compress_ratios[i] > 1 else 0) if compress_ratios else"
    " compress_rates.compressed_sparse_attention if layer_types[i] == 'compressed_sparse_attention' else"
    " compress_rates.heavily_compressed_attention if layer_types[i] == 'heavily_compressed_attention' else 0"
)
DEEPSEEK4 = ArchitectureRow(
    tied=False,
    mixers={"full_attention": (Compressed(ratio=_RATIO),)},
    types="",
    experts=Experts(
        shared_width="n_shared_experts * expert_width",
        extra="2 * experts",
        module="ffn.experts",
        shared="ffn.shared_experts",
        four_bits="expert_dtype != 'fp8'",
    ),
    # hyper-connections in float32, around attention and MLP; experts by the token's number, in 32 bits
    norms="2 + 4 * (2 + hc) * hc * hc",
    other="hidden + 2 * hc * hc * hidden + 2 * hashed * vocab * per_token",
    names={"hc": "hc_mult=4", "hashed": "num_hash_layers=3", "experts": "n_routed_experts"},
    harmless=("layer_types", "mlp_layer_types", "attention_bias", "mlp_bias", "expert_dtype"),
    prefix="layers",
)

_SINKS = "heads if add_full_attention_sink_bias else 0"
MIMO2 = ArchitectureRow(
    tied=False,
    mixers={
        "full_attention": (Grouped(head_dim_v="v_head_dim", qkv_bias="attention_bias", extra=_SINKS),),
        "sliding_attention": (
            Grouped(
                heads="swa_num_attention_heads", kv_heads="swa_num_key_value_heads", head_dim="swa_head_dim",
                head_dim_v="swa_v_head_dim", window="window", qkv_bias="attention_bias",
                extra="swa_num_attention_heads if add_swa_attention_sink_bias else 0",
            ),
        ),
    },
    types="",
    order=(("sliding_attention", "hybrid_layer_pattern[i] == 1"), ("full_attention", "1")),
    experts=Experts(extra="(hidden + 2) * experts"),  # a router in float32
    sparse="moe_layer_freq[i]",
    names={"experts": "n_routed_experts", "window": "sliding_window_size|sliding_window=128"},
    harmless=(
        "layer_types", "attention_chunk_size", "attention_projection_layout", "hybrid_block_size", "n_shared_experts",
    ),
)  # fmt: skip
_STEP3 = Grouped(
    kv_heads="num_attention_groups|num_key_value_heads", head_norms=True, qkv_bias="attention_bias",
    extra="hidden * heads if use_head_wise_attn_gate else 0",
)  # fmt: skip
_SLIDING_HEADS = "num_sliding_attention_heads or attention_other_setting.num_attention_heads or heads"
STEP3P5 = ArchitectureRow(
    tied=False,
    mixers={
        "full_attention": (_STEP3,),
        "sliding_attention": (
            replace(
                _STEP3, heads=_SLIDING_HEADS, window="window",
                extra=f"hidden * ({_SLIDING_HEADS}) if use_head_wise_attn_gate else 0",
            ),
        ),
    },
    experts=Experts(
        per_token="moe_top_k|num_experts_per_tok", shared_width="share_expert_dim",
        extra="(hidden + 2) * experts if need_fp32_gate else 2 * experts", module="moe.experts",
        shared="moe.share_expert",
    ),
    names={"experts": "moe_num_experts|n_routed_experts"},
    sparse="mlp_layer_types[i] == 'sparse' if mlp_layer_types else i in moe_layers_enum if moe_layers_enum else i > 0",
    harmless=(
        "use_moe", "moe_every_n_layer", "moe_layer_offset", "yarn_only_types", "use_rope_layers", "att_impl_type",
        "num_key_value_heads", "max_seq_len", "per_layer_config", "use_moe_router_bias", "norm_expert_weight",
    ),
)  # fmt: skip
MINIMAX_M3 = ArchitectureRow(
    tied=False,
    mixers={
        "full_attention": (Grouped(head_norms="use_qk_norm=true", output_gate="attention_output_gate"),),
        "picked_attention": (
            Grouped(
                head_norms="use_qk_norm=true", output_gate="attention_output_gate",
                picks=(
                    "sparse_attention_config.sparse_num_index_heads", "sparse_attention_config.sparse_index_dim",
                    "sparse_attention_config.sparse_topk_blocks * sparse_attention_config.sparse_block_size", 0,
                ),
            ),
        ),
    },
    types="",
    order=(("picked_attention", "sparse_attention_config.sparse_attention_freq[i]"), ("full_attention", "1")),
    mlps={"": Dense(width="dense_intermediate_size")},
    experts=Experts(
        width="width", shared_width="n_shared_experts * width", extra="(hidden + 2) * experts",
        module="block_sparse_moe.experts", shared="block_sparse_moe.shared_experts",
    ),
    sparse="moe_layer_freq[i]",
    names={"experts": "num_local_experts"},
    harmless=("qk_norm_type", "num_mtp_modules", "rotary_dim", "shared_intermediate_size", "moe_intermediate_size"),
)  # fmt: skip

STEP3 = ArchitectureRow(
    # queries go through a vector that all heads share
    mixers={
        "full_attention": (
            Grouped(
                kv_heads=1,
                head_dim="head_dim=256",
                parted="heads * head_dim * (share_q_dim + hidden)",
                whole="hidden * (share_q_dim + 2 * head_dim)",
                extra="share_q_dim",
            ),
        )
    },
    experts=Experts(
        count="moe_num_experts",
        per_token="moe_top_k",
        shared_width="share_expert_dim",
        module="moe.experts",
        shared="share_expert",
    ),
    sparse="i in moe_layers_enum if moe_layers_enum else i",
    context="max_seq_len|max_position_embedding",
    harmless=("num_attention_groups",),
)

ROWS = {
    "Step3TextForCausalLM": STEP3,
    "SarvamMoEForCausalLM": BAILING,
    "SarvamMLAForCausalLM": SARVAM_MLA,
    "Param2MoEForCausalLM": PARAM2_MOE,
    "PanguUltraMoEForCausalLM": PANGU_MOE,
    "K2HorizonForCausalLM": K2_HORIZON,
    "MiMoV2FlashForCausalLM": MIMO2,
    "MiMoV2ForCausalLM": MIMO2,
    "Step3p5ForCausalLM": STEP3P5,
    "MiniMaxM3SparseForCausalLM": MINIMAX_M3,
    "AfmoeForCausalLM": AFMOE,
    "DbrxForCausalLM": DBRX,
    "DeepseekV4ForCausalLM": DEEPSEEK4,
    "BeamForCausalLM": BEAM,
    "LongcatFlashForCausalLM": LONGCAT,
    "LongcatFlashNgramForCausalLM": LONGCAT,
    "Gemma3nForCausalLM": GEMMA3N,
    "HunYuanMoEV1ForCausalLM": HUNYUAN_MOE,
    "AXK1ForCausalLM": DEEPSEEK,
    "BailingMoeForCausalLM": BAILING,
    "BailingMoeV2ForCausalLM": BAILING,
    "Cohere2MoeForCausalLM": COHERE2_MOE,
    "DeepseekForCausalLM": DEEPSEEK_1,
    "DeepseekV2ForCausalLM": DEEPSEEK,
    "DeepseekV32ForCausalLM": DEEPSEEK,
    "DeepseekV3ForCausalLM": DEEPSEEK,
    "Ernie4_5_MoeForCausalLM": ERNIE_MOE,
    "ExaoneMoEForCausalLM": EXAONE_MOE,
    "ExaoneMoeForCausalLM": EXAONE_MOE,
    "FlexOlmoForCausalLM": FLEX_OLMO,
    "Gemma4ForCausalLM": GEMMA4,
    "Glm4MoeForCausalLM": GLM4_MOE,
    "Glm4MoeLiteForCausalLM": GLM_LITE,
    "GlmMoeDsaForCausalLM": GLM_DSA,
    "GptOssForCausalLM": GPT_OSS,
    "GraniteMoeForCausalLM": GRANITE_MOE,
    "GraniteMoeSWAForCausalLM": GRANITE_MOE_SWA,
    "GraniteMoeSharedForCausalLM": GRANITE_MOE_SHARED,
    "HYV3ForCausalLM": HY3,
    "HYV4ForCausalLM": HUNYUAN4,
    "LagunaForCausalLM": LAGUNA,
    "Llama4ForCausalLM": LLAMA4,
    "MellumForCausalLM": MELLUM,
    "MiniMaxM2ForCausalLM": MINIMAX_M2,
    "MistralLarge3ForCausalLM": DEEPSEEK,
    "MixtralForCausalLM": MIXTRAL,
    "OlmoeForCausalLM": OLMOE,
    "PhiMoEForCausalLM": PHIMOE,
    "Qwen2MoeForCausalLM": QWEN2_MOE,
    "Qwen3MoeForCausalLM": QWEN3_MOE,
}
"""Name in ``architectures`` -> row."""
