"""Rows of further models: Qwen 4, towers that are built in an own way, and decoders with states of several kinds."""

from __future__ import annotations

from dataclasses import replace

from tokenyard.models.reading.compressed import Shared
from tokenyard.models.reading.pieces import (
    Dense,
    Experts,
    Grouped,
    HeadState,
    KimiDelta,
    Latent,
    PagedConvolutions,
)
from tokenyard.models.reading.row import ArchitectureRow, varied
from tokenyard.models.reading.rows_dense import BIASED, COMMAND_R, GPT2, HUNYUAN, LLAMA, PANGU, QWEN2, QWEN3
from tokenyard.models.reading.rows_experts import DEEPSEEK4
from tokenyard.models.reading.rows_recent import BAILING_2_5
from tokenyard.models.reading.rows_towers import DECODERS, MINICPM_V, QWEN3_5_VL, QWEN3_VL, VIT, WHISPER_NAMES
from tokenyard.models.reading.towers import Tower

GPT_BIG_CODE = varied(
    GPT2,
    mixers={
        "full_attention": (
            Grouped(
                kv_heads="1 if multi_query else heads",
                head_dim="hidden // heads",
                qkv_bias=1,
                output_bias=1,
                # without shared keys it is not shared out either
                whole="0 if multi_query else 4 * hidden * hidden",
            ),
        )
    },
    harmless=("num_key_value_heads", "attention_softmax_in_fp32"),
    mlps={"": Dense(gated=False, bias=True, replicated=True)},
)
ULTRAVOX = ArchitectureRow(
    decoders=DECODERS,
    harmless_around=("stack_factor", "hidden_size"),
    towers=(
        Tower(
            kind="audio",
            section="audio_config",
            block=VIT,
            replicated="3 * h * mels + 3 * h * h + 4 * h + positions * h"
            " + h * stack * (1 + wide) + wide // 2 * text + (wide // 2 if middle else text)",
            patches="stack",
            window="positions",
            tokens="positions // stack",
            names=WHISPER_NAMES,
            outer={"stack": "stack_factor=8", "wide": "hidden_size", "middle": "projector_ln_mid"},
        ),
    ),
)  # fmt: skip
COHERE_COMPASS = varied(
    COMMAND_R,
    mixers={"full_attention": (BIASED,), "sliding_attention": (replace(BIASED, window="window"),)},
    types="layer_types",
    harmless=("pooling",),
    towers=QWEN3_VL.towers,
)
HUNYUAN_VL = varied(
    HUNYUAN,
    encoders_on_every_stage=True,
    towers=(
        Tower(
            # every GPU holds the tower
            each=VIT,
            patches="merge * merge",
            replicated="pixels * h + h + (positions * positions + 1) * h + 2 * h * h * merge * merge"
            " + 8 * h * h + 11 * h + 4 * h * text + 5 * text",
            tokens="img_max_token_num=4096",
            names={"positions": "max_image_size // patch"},
        ),
    ),
)
LLAVA_ONEVISION2 = varied(
    QWEN3,
    towers=(
        Tower(
            block=VIT,
            shared="joined * joined + joined * text",
            replicated="pixels * h + 4 * h + joined + text",
            patches="merge * merge",
            tokens=16_384,
            names={"joined": "h * merge * merge"},
        ),
    ),
)
DEEPSEEK4_VL = varied(
    DEEPSEEK4,
    towers=(
        Tower(
            section="",
            block="4 * h * h + 4 * h + 3 * h * w + 2 * h",
            shared="h * merge * merge * text + text + text * text",
            replicated="pixels * h + 2 * h + 9 * text",
            patches="merge * merge",
            tokens="vision_max_n_token",
            names={
                "h": "vision_dim", "w": "vision_inter_dim", "n": "vision_n_layers", "patch": "vision_patch_size",
                "merge": "vision_downsample_ratio",
            },
        ),
    ),
)  # fmt: skip
DEEPSEEK41 = varied(
    DEEPSEEK4,
    mixers={
        "full_attention": (
            Shared(
                ratio="compress_ratios[i]",
                keeps="i in kv_source_layer_ids",
                picks="i in index_source_layer_ids",
                remembers="i in engram_layer_ids",
                memory="(1 + hc) * hidden * (engram_max_ngram_size - 1) * engram_n_heads * engram_head_dim",
            ),
        ),
    },
    experts=replace(
        DEEPSEEK4.experts or Experts(), extra="4 * experts", four_bits="expert_dtype != 'fp8'", multiples=(1, 128)
    ),
    # a row of an Engram's tables has a scale for every 32 of its bytes
    embeddings="sum(engram_num_embeddings) * engram_head_dim * 33 // 64",
    other="hidden",
    harmless=(
        *DEEPSEEK4.harmless, "candidate_block_size", "candidate_topk_blocks", "candidate_source_layer_id",
        "engram_compressed_vocab_size", "engram_vocab_size",
    ),
    towers=(
        Tower(
            block="4 * h * h + 4 * h + 3 * h * w + 2 * h",
            shared="h * merge * merge * text + text + text * text",
            replicated="pixels * h + 2 * h + 9 * text",
            patches="merge * merge",
            tokens="max_image_tokens",
            names={"merge": "downsample_ratio"},
        ),
    ),
)  # fmt: skip

FUN_AUDIO = varied(
    QWEN3,
    towers=(
        Tower(
            kind="audio",
            section="audio_config",
            block="4 * h * h",
            each="2 * h * w + w + 9 * h",
            replicated="3 * h * mels + 3 * h * h + 4 * h + h * out + 3 * out + codebook_size * out + 2 * out * out",
            patches="2 * group",
            window="n_window=100",
            tokens="positions // 2",
            names={**WHISPER_NAMES, "out": "output_dim", "group": "group_size=5"},
        ),
    ),
)
MOSS_AUDIO = varied(
    QWEN3,
    tied="",
    harmless_around=("deepstack_num_inject_layers",),
    towers=(
        Tower(
            kind="audio",
            section="audio_config",
            block=VIT,
            shared="(1 + layers) * (2 * h * wide + wide * text)",
            replicated="9 * inner + 18 * inner * inner + 3 * inner + h * inner * mels // 8 + 3 * h",
            patches=1,
            window="encoder_attention_window_size=100",
            tokens="positions // 4",
            names={**WHISPER_NAMES, "inner": "downsample_hidden_size=480"},
            outer={"wide": "adapter_hidden_size=8192", "layers": "deepstack_num_inject_layers=3"},
        ),
    ),
)
BAILING_3 = varied(
    BAILING_2_5,
    mixers={
        "full_attention": (Latent(),),
        "linear_attention": (
            KimiDelta(
                heads="heads", head_dim="head_dim", kernel="short_conv_kernel_size=4", full_gate=0, full_decay=True,
            ),
        ),
    },
    order=(
        (
            "full_attention",
            "(i + 1) % layer_group_size == 0 or i >= layers // layer_group_size * layer_group_size",
        ),
        ("linear_attention", "1"),
    ),
    harmless=(*BAILING_2_5.harmless, "layer_types", "num_key_value_heads", "no_kda_lora"),
    refused=(
        ("no_kda_lora", "not no_kda_lora", "delta attention with gates of low rank, which vLLM refuses"),
        (
            "gated_attention_proj_granularity_type", "gated_attention_proj_granularity_type",
            "latent attention with an output gate",
        ),
    ),
)  # fmt: skip
BAILING_3_VL = varied(
    BAILING_3,
    towers=(
        Tower(
            block=VIT,
            shared="h * merge * merge * text + text * text",
            replicated="pixels * frames * h + h + num_position_embeddings * h + 2 * h + 2 * text",
            patches="merge * merge",
            tokens=16_384,
        ),
    ),
)
_STAGES = " + ".join(f"depths[{i}] * (8 * {4**i} * f * f + 17 * {2**i} * f)" for i in range(7))
_DOWN = " + ".join(f"downsampling_ratios[{i}] * {4**i}" for i in range(6))
_VIBE_TOWER = Tower(
    kind="audio",
    blocks=0,
    # seven stages of convolutions, each twice as wide as the one before
    replicated=f"{_STAGES} + 4 * f * f * ({_DOWN}) + 134 * f + hidden_size * (448 * f + 1)"
    " + hidden_size * text + text * text + 3 * text",
    names={"f": "num_filters"},
)
VIBE_VOICE_ASR = varied(
    QWEN2,
    encoders_on_every_stage=True,
    towers=(
        replace(_VIBE_TOWER, section="acoustic_tokenizer_encoder_config"),
        replace(_VIBE_TOWER, section="semantic_tokenizer_encoder_config"),
    ),
    harmless_around=("acoustic_tokenizer_chunk_size",),
)
GRANITE4_VISION = varied(
    LLAMA,
    harmless_around=(
        "downsample_rate", "deepstack_layer_map", "spatial_vision_layer", "spatial_target_layers", "image_seq_length",
        "qformer_config", "image_grid_pinpoints",
    ),
    towers=(
        Tower(
            block=VIT,
            # querying transformers, which look at the outputs of several of the tower's layers
            replicated="pixels * h + h + grid * grid * h + text + (len(each) + len(spatial)) * (86 * wide"
            " + wide * text + text + joins * (8 * wide * wide + 15 * wide + 2 * wide * inner + inner))",
            outer={
                "each": "deepstack_layer_map", "spatial": "spatial_target_layers",
                "joins": "qformer_config.num_hidden_layers", "wide": "qformer_config.hidden_size",
                "inner": "qformer_config.intermediate_size",
            },
        ),
    ),
)  # fmt: skip
_CONFORMER = "27 * h * h + 30 * h + 2 * kernel_size * h"
FIRE_RED_ASR = varied(
    QWEN2,
    harmless=(*QWEN2.harmless, "audio_encoder_conf", "encoder_downsample_rate"),
    towers=(
        Tower(
            kind="audio",
            section="audio_encoder_conf",
            each=_CONFORMER,
            patches="joined",
            replicated="9600 + 32 * ((idim - 1) // 2 - 1) // 2 * h + h + joined * h * text + text * text + 2 * text",
            names={"h": "d_model", "n": "n_layers_enc|n_layers"},
            outer={"joined": "encoder_downsample_rate=2"},
        ),
    ),
)
MOBIUS = varied(
    QWEN3_5_VL,
    # layers take turns with a few sets of experts; each has a shared one of its own
    experts=Experts(
        shared_width="shared_expert_intermediate_size", extra="hidden", shared="mlp.shared_expert",
        repeats="i >= num_blocks",
    ),
    harmless_around=("num_blocks",),
)  # fmt: skip
_DORY_ATTENTION = Grouped(output_gate=True, extra="2 * heads * head_dim", module="mixer")
DORY = ArchitectureRow(
    mixers={"full_attention": (_DORY_ATTENTION,), "sliding_attention": (replace(_DORY_ATTENTION, window="window"),)},
    mlps={
        "full_attention": None, "sliding_attention": None, "mlp": Dense(extra="2 * width", module="mixer"),
    },
    types="layer_types",
    norms=1,
    other="vocab",
    tied=False,
    one_gpu=True,
    prefix="backbone.layers",
    harmless=(
        "attention_bias", "mlp_bias", "attention_output_gate_logit_scale_init", "n_input_layers", "n_output_layers",
        "n_recurrent_layers", "recurrent_kv_cache_mode",
    ),
    refused=(("n_recurrent_loops", "(n_recurrent_loops or 1) > 1", "layers that are gone through several times"),),
)  # fmt: skip
_FIRST_BLOCKS = "i <= hybrid_layer_ids[num_mem_blocks - 1]"
_ZAMBA_STATE = HeadState(
    heads="n_mamba_heads", head_size="mamba_headdim", state="mamba_d_state=64", groups="mamba_ngroups=1",
    chunk="chunk_size=256",
)  # fmt: skip
_ADAPTERS = "adapter_rank * (2 * width + hidden + 6 * inner * use_shared_attention_adapter)"
ZAMBA2 = ArchitectureRow(
    mixers={
        "mamba": (_ZAMBA_STATE,),
        "hybrid": (
            Grouped(
                head_dim="attention_head_dim",
                # attention over what the layer sees and the embedding side by side, whose matrices the first few of
                # these layers keep for all; each has adapters of its own
                parted=f"(3 * inner * inner + inner * hidden if {_FIRST_BLOCKS} else 0) + {_ADAPTERS}",
                whole="hidden * hidden",
                extra=f"inner + hidden if {_FIRST_BLOCKS} else 0",
            ),
            _ZAMBA_STATE,
        ),
    },
    mlps={"hybrid": Dense(repeats=f"not ({_FIRST_BLOCKS})"), "mamba": None},
    types="layers_block_type",
    kinds={"linear_attention": "mamba"},
    norms=1,
    attention_first=True,
    tied="tie_word_embeddings=true",
    names={"inner": "attention_hidden_size=2 * hidden", "expand": "mamba_expand=2"},
    harmless=("num_query_groups", "use_mem_rope", "use_conv_bias", "add_bias_linear", "kv_channels"),
)  # fmt: skip
OPENPANGU_VL = varied(
    PANGU,
    towers=(
        Tower(
            block="4 * h * h + 2 * h * w + 7 * h + w",
            shared="joins * (joined * joined + joined * out)",
            replicated="pixels * frames * h + 2 * h + joins * (joined + out) + out * text + text",
            patches="merge * merge",
            window="(window_size // patch) * (window_size // patch)",
            whole="len_positive(fullatt_block_indexes)",
            tokens=16_384,
            names={"joined": "h * merge * merge", "joins": "len(mm_unit_vision_select_layer)"},
        ),
    ),
)
_BACKBONE = "backbone_config"
OVIS_1 = ArchitectureRow(
    decoders=DECODERS,
    harmless_around=("hidden_size", "multimodal_max_length", "llm_attn_implementation"),
    towers=(
        Tower(
            section="visual_tokenizer_config",
            block=f"4 * h * h + 3 * h * w + 2 * h if {_BACKBONE}.model_type != 'siglip_vision_model' else {VIT}",
            replicated="pixels * h + 2 * h + grid * grid * h"
            " + (vocab_size - 5) * (h * hidden_stride * hidden_stride + 2) + vocab_size * wide",
            patches="hidden_stride * hidden_stride",
            window="grid * grid",
            tokens="(grid // hidden_stride) * (grid // hidden_stride)",
            names={
                "h": f"{_BACKBONE}.hidden_size", "w": f"{_BACKBONE}.intermediate_size",
                "n": f"{_BACKBONE}.num_hidden_layers", "patch": f"{_BACKBONE}.patch_size",
                "image": f"{_BACKBONE}.image_size",
            },
            outer={"wide": "hidden_size"},
        ),
    ),
)  # fmt: skip
_INKLING_SIZES = {
    "full_attention": ("heads", "kv_heads", "head_dim", "rel_extent"),
    "sliding_attention": (
        "swa_num_attention_heads=heads",
        "swa_num_key_value_heads=kv_heads",
        "swa_head_dim=head_dim",
        "window",
    ),
}


def _inkling(kind: str) -> tuple[PagedConvolutions, Grouped]:
    heads, kv_heads, size, reach = (each.partition("=")[0] for each in _INKLING_SIZES[kind])
    return (
        PagedConvolutions(heads=kv_heads, head_dim=size, kernel="sconv_kernel_size=4"),
        Grouped(
            heads=heads,
            kv_heads=kv_heads,
            head_dim=size,
            window="window" if kind == "sliding_attention" else 0,
            # queries, keys, values, output, and what distances are weighed with
            parted=f"hidden * (2 * {heads} * {size} + 2 * {kv_heads} * {size} + {heads} * d_rel)",
            head_norms=True,
            extra=f"d_rel * {reach}",
            module="attn",
        ),
    )


INKLING = ArchitectureRow(
    mixers={kind: _inkling(kind) for kind in _INKLING_SIZES},
    types="",
    order=(("sliding_attention", "i in local_layer_ids"), ("full_attention", "1")),
    mlps={"": Dense(width="dense_intermediate_size")},
    experts=Experts(
        width="width", shared_width="n_shared_experts * width", extra="hidden * (8 - experts % 8) + 2 * experts",
        shared="mlp.sink_experts",
    ),
    sparse="i >= dense_mlp_idx",
    names={"window": "sliding_window_size", "vocab": "padded_vocab_size|vocab_size", "experts": "n_routed_experts"},
    other="hidden + hidden * use_embed_norm",
    replicated_embedding=True,
    embedding_on_every_stage=True,
    tied=False,
    context="max_position_embeddings|model_max_length=2048",
    harmless=(
        "unpadded_vocab_size", "num_experts", "num_shared_experts", "v_head_dim", "swa_v_head_dim",
        "shared_experts_size", "shared_expert_sink", "inference_moe_w13_interleaved",
    ),
    refused=(
        ("use_sconv", "not use_sconv", "Inkling without its short convolutions"),
        ("q_bias", "q_bias or o_bias", "attention of Inkling with biases"),
    ),
)  # fmt: skip
INKLING_MM = varied(
    INKLING,
    encoders_on_every_stage=True,
    towers=(
        Tower(
            blocks=0,
            replicated="9600 + 163_840 + pixels * 5120 + decoder_dmodel * pixels * frames + 2 * decoder_dmodel",
            tokens=1,
        ),
        Tower(
            kind="audio", section="audio_config", blocks=0,
            replicated="(n_mel_bins * mel_vocab_size + 1) * decoder_dmodel",
        ),
    ),
)  # fmt: skip

ROWS = {
    "InklingForCausalLM": INKLING,
    "InklingForConditionalGeneration": INKLING_MM,
    "OpenPanguVLForConditionalGeneration": OPENPANGU_VL,
    "Ovis": OVIS_1,
    "DoryForCausalLM": DORY,
    "FireRedASR2ForConditionalGeneration": FIRE_RED_ASR,
    "InternS2MobiusForConditionalGeneration": MOBIUS,
    "Zamba2ForCausalLM": ZAMBA2,
    "Granite4VisionForConditionalGeneration": GRANITE4_VISION,
    "VibeVoiceAsrForConditionalGeneration": VIBE_VOICE_ASR,
    "BailingMoeV3ForCausalLM": BAILING_3,
    "BailingMoeV3VLForConditionalGeneration": BAILING_3_VL,
    "FunAudioChatForConditionalGeneration": FUN_AUDIO,
    "MossAudioModel": MOSS_AUDIO,
    "CohereCompassForConditionalGeneration": COHERE_COMPASS,
    "DeepseekV41ForCausalLM": DEEPSEEK41,
    "DeepseekV4ForConditionalGeneration": DEEPSEEK4_VL,
    "HunYuanVLForConditionalGeneration": HUNYUAN_VL,
    "LlavaOnevision2ForConditionalGeneration": LLAVA_ONEVISION2,
    "MiniCPMOcrForConditionalGeneration": MINICPM_V,
    "GPTBigCodeForCausalLM": GPT_BIG_CODE,
    "UltravoxModel": ULTRAVOX,
}
"""Name in ``architectures`` -> row."""
