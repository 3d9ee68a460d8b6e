"""Rows of models whose decoder or encoder is of their own kind: Nemotron Parse (documents), Moondream 3, Dots 3."""

from __future__ import annotations

from dataclasses import replace

from tokenyard.models.reading.pieces import Dense, Experts, Grouped, Latent
from tokenyard.models.reading.row import ArchitectureRow, varied
from tokenyard.models.reading.rows_dense import LLAMA
from tokenyard.models.reading.rows_experts import DEEPSEEK, MIMO2, STEP3P5
from tokenyard.models.reading.rows_recent import STEP_VISION
from tokenyard.models.reading.rows_sound import WHISPER_ATTENTION
from tokenyard.models.reading.rows_towers import VIT
from tokenyard.models.reading.towers import Tower

_PAGE = "(size[0] // patch) * (size[1] // patch // 4) + 1"
"""Embeddings of a page: four patches of a row have one between them, and one is of the whole."""
NEMOTRON_PARSE = ArchitectureRow(
    mixers={"full_attention": (WHISPER_ATTENTION, replace(WHISPER_ATTENTION, cross=True))},
    mlps={"": Dense(width="encoder_ffn_dim", gated=False, bias=True)},
    types="",
    norms=6,
    other="4 * hidden",
    context="max_position_embeddings|max_sequence_length",
    names={"hidden": "d_model", "heads": "decoder_attention_heads", "layers": "decoder_layers"},
    around={"size": "image_size", "patch": "encoder.patch_size"},
    encoder_tokens=_PAGE,
    harmless=(
        "num_hidden_layers", "num_attention_heads", "hidden_size", "decoder_ffn_dim", "encoder_attention_heads",
        "encoder_layers", "encoder_ffn_dim", "max_sequence_length", "add_cross_attention", "causal_vision_prefix",
    ),
    harmless_around=("hidden_size", "num_hidden_layers", "num_attention_heads", "navit_packing", "num_extra_heads"),
    prefix="decoder.layers",
    towers=(
        # RADIO by the name of its vision transformer
        Tower(
            section="encoder",
            block="12 * h * h + 15 * h",
            blocks="32 if h == 1280 else 24 if h == 1024 else 27 if h == 1152 else 12",
            shared="3840 * text",
            replicated="(3 * patch * patch + (args.cpe_max_size // patch) * (args.cpe_max_size // patch)) * h"
            " + args.register_multiple * h + 1280 * text + 4 * text * text + 8 * text",
            names={
                "h": "1280 if args.model == 'vit_huge_patch16_224' else 1024 if args.model == 'vit_large_patch16_224'"
                " else 1152 if args.model == 'vit_so400m_patch16_224'"
                " else 768 if args.model == 'vit_base_patch16_224' else 384",
            },
            patches=4,
            tokens=_PAGE,
            outer={"size": "image_size"},
        ),
    ),
)  # fmt: skip
PARSE_PREFIX = replace(
    NEMOTRON_PARSE,
    mixers={
        "full_attention": (replace(WHISPER_ATTENTION, kv_heads="self_attention_kv_heads|decoder_attention_heads"),)
    },
    mlps={"": Dense(width="decoder_ffn_dim", gated=False, bias=True)},
    encoder_tokens=0,
)
_TAU = "6 * heads * hidden + heads"
"""What scales queries and values by the position, of every head."""
MOONDREAM3 = ArchitectureRow(
    mixers={
        "full_attention": (
            Grouped(
                head_dim="hidden // heads",
                qkv_bias=True,
                output_bias=True,
                parted=f"2 * hidden * hidden + 2 * kv_heads * (hidden // heads) * hidden + {_TAU}",
            ),
        )
    },
    mlps={"": Dense(gated=False, bias=True)},
    types="",
    experts=Experts(width="moe.expert_inner_dim or 1024"),
    sparse="i >= (moe.start_layer or 4)",
    norms=2,
    other="2 * hidden + vocab",
    tied=False,
    context="max_context=4096",
    names={
        "hidden": "dim=2048", "layers": "n_layers=24", "heads": "n_heads=32", "kv_heads": "n_kv_heads=32",
        "width": "ff_dim=8192", "vocab": "vocab_size=51200", "experts": "moe.n_experts or 64",
        "per_token": "moe.n_experts_per_tok or 8",
    },
    harmless=("group_size", "prefix_attn", "moe"),
    harmless_around=("region",),
    prefix="text.blocks",
    towers=(
        Tower(
            section="vision",
            block=VIT,
            shared="wide * (2 * h + text + 1)",
            replicated="pixels * h + h + (crop // patch) * (crop // patch) * h + 2 * h + text",
            names={
                "h": "enc_dim=1152", "w": "enc_ff_dim=4304", "n": "enc_n_layers=27", "patch": "enc_patch_size=14",
                "wide": "proj_inner_dim=8192", "crop": "crop_size=378",
            },
            tokens="(crop // patch) * (crop // patch)",
        ),
    ),
)  # fmt: skip
_STAGE = "2 * {i} * o + o * o + {i} * o // 2 + 18 * o + {i} // 4"
"""The first block of a RegNet stage from ``i`` to ``o`` channels."""
KANANA_V = varied(
    LLAMA,
    towers=(
        Tower(
            block="4 * h * h + 2 * h * w + w + 9 * h",
            replicated=f"pixels * frames * h + places * e + {_STAGE.format(i='e')}"
            f" + {_STAGE.format(i='(joins * joins * o)')}"
            " + 2 * (blocks - 1) * (5 * o * o // 2 + 16 * o + o // 4)"
            " + o * out + (mlps - 1) * out * out + mlps * out",
            names={"w": "h * mlp_ratio"},
            patches="joins * joins",
            tokens=16_384,
            outer={
                "e": "projector_config.encoder_hidden_size", "o": "projector_config.hidden_size",
                "out": "projector_config.output_hidden_size", "joins": "projector_config.merge_size",
                "blocks": "projector_config.depth", "mlps": "projector_config.mlp_depth",
                "places": "projector_config.pos_emb_size",
            },
        ),
    ),
)  # fmt: skip
MIMO2_OMNI = varied(
    MIMO2,
    towers=(
        Tower(
            block="h * qkv + qkv + num_heads * kv_channels * h + 3 * h * w + 2 * w + 4 * h"
            " + (num_heads if use_sink else 0)",
            shared="h * merge * merge * (h * merge * merge + out)",
            replicated="pixels * frames * h + h",
            names={
                "qkv": "num_heads * qk_channels + num_key_value_heads * (qk_channels + kv_channels)",
                "seen": "visual_token_window_size=64",
            },
            patches="merge * merge",
            window="2 * seen + 1",
            whole="len(fullatt_block_indexes)",
            tokens=16_384,
        ),
    ),
    refused_around=(("audio_config", "MiMo V2 Omni with its tower for sound"),),
)
STEP3P7 = varied(STEP3P5, towers=STEP_VISION.towers, harmless_around=("hidden_size", *STEP_VISION.harmless_around))


# a gate of one number a head, which every GPU has whole, or one as wide as the heads' values
_HEADWISE = "(hidden * {heads} if {named}attention_gate_type == 'headwise' else 0) + {named}qk_rope_head_dim"
DOTS3_NOTE = varied(
    DEEPSEEK,
    mixers={
        "full_attention": (
            Latent(
                indexer="index_topk",
                kept_size="swa_kv_lora_rank + swa_qk_rope_head_dim",  # rows as long as where there is a window
                output_gate="attention_gate_type != 'headwise'",
                extra=_HEADWISE.format(named="", heads="heads"),
            ),
        ),
        "sliding_attention": (
            Latent(
                named="swa_",
                indexer=0,
                window="sliding_window_size",
                output_gate="swa_attention_gate_type != 'headwise'",
                extra=_HEADWISE.format(named="swa_", heads="swa_num_attention_heads"),
            ),
        ),
    },
    harmless=(*DEEPSEEK.harmless, "apply_mla_qkv_lora_rescale"),
    towers=(
        # a pyramid: ever more experts in the later blocks; every GPU has all of it
        Tower(
            replicated="n * (4 * h * h + 2 * h + (2 * (h // num_attention_heads) if use_qk_norm else 0))"
            " + 3 * h * (intermediate_size * (n - len_positive(pyramid_num_routed))"
            " + moe_intermediate_size * sum_positive(pyramid_num_routed)) + h * sum_positive(pyramid_num_routed)"
            " + pixels * h + 3 * h + 2 * adapter_in_dim + joined * joined + joined + joined * adapter_out_dim"
            " + adapter_out_dim",
            names={"h": "embed_dim", "joined": "adapter_in_dim * adapter_merge_size * adapter_merge_size"},
        ),
        Tower(
            kind="audio",
            section="audio_config",
            blocks=0,
            replicated="whisper_config.encoder_layers * (4 * h * h + 3 * w * h + 2 * w + 7 * h)"
            " + 18 * down * down + 12 * down + h * down * (whisper_config.num_mel_bins // 8) + h"
            " + whisper_adapter_in_dim * (whisper_adapter_out_dim + 2)"
            " + whisper_adapter_out_dim * (whisper_adapter_out_dim + 2)",
            names={
                "h": "whisper_config.d_model + 0", "w": "whisper_config.encoder_ffn_dim + 0",
                "down": "downsample_hidden_size=480",
            },
        ),
    ),
)  # fmt: skip

ROWS = {
    "Dots3NoteForCausalLM": DOTS3_NOTE,
    "KananaVForConditionalGeneration": KANANA_V,
    "MiMoV2OmniForCausalLM": MIMO2_OMNI,
    "Step3p7ForConditionalGeneration": STEP3P7,
    "HfMoondream": MOONDREAM3,
    "Moondream3ForCausalLM": MOONDREAM3,
    "NemotronParseForConditionalGeneration": NEMOTRON_PARSE,
    "RadioMBartPrefixForCausalLM": PARSE_PREFIX,
}
"""Name in ``architectures`` -> row."""
