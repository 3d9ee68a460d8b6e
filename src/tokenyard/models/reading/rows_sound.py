"""Rows of models that take sound: a decoder behind a tower for sound, or one that attends to it."""

from __future__ import annotations

from dataclasses import replace

from tokenyard.models.reading.pieces import Dense, Grouped
from tokenyard.models.reading.row import ArchitectureRow, varied
from tokenyard.models.reading.rows_dense import LLAMA, QWEN2, QWEN3
from tokenyard.models.reading.rows_experts import QWEN3_MOE
from tokenyard.models.reading.rows_towers import (
    INNER_TIES,
    OLDER_WHISPER_NAMES,
    QWEN2_5_VL,
    QWEN3_VL_TOWER,
    VIT,
    WHISPER_NAMES,
)
from tokenyard.models.reading.towers import Tower

WHISPER_ATTENTION = Grouped(kv_heads="heads", head_dim="hidden // heads", extra="4 * hidden")
WHISPER = ArchitectureRow(
    mixers={"full_attention": (WHISPER_ATTENTION, replace(WHISPER_ATTENTION, cross=True))},
    mlps={"": Dense(gated=False, bias=True)},
    norms=6,
    other="2 * hidden + targets * hidden",
    tied=True,
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
            block=VIT,
            replicated="3 * h * mels + 3 * h * h + 2 * h + positions * h + 2 * h",
            patches=1,
            window="positions",
            tile="positions",
            tokens="positions",
            names=OLDER_WHISPER_NAMES,
        ),
    ),
)  # fmt: skip
_MELS = "3 * h * num_mel_bins + 3 * h * h + 4 * h"
GLM_ASR = varied(
    LLAMA,
    ties=True,
    towers=(
        Tower(
            kind="audio",
            section="audio_config",
            block=VIT,
            shared="2 * text * w + 2 * text * text",
            replicated=_MELS,
            patches=4,
            window=1500,
            tile=375,
            tokens=1500,
        ),
    ),
)
AUDIO_FLAMINGO3 = varied(
    QWEN2,
    towers=(
        Tower(
            kind="audio",
            section="audio_config",
            each=VIT,
            replicated=f"{_MELS} + positions * h + text * h + text * text + 2 * text",
            patches=2,
            window="positions",
            tile="positions // 2",
            tokens="positions // 2",
            names={"positions": "max_source_positions=1500"},
        ),
    ),
)
QWEN2_AUDIO = varied(
    QWEN2,
    towers=(
        Tower(
            kind="audio",
            section="audio_config",
            each=VIT,
            replicated="3 * h * mels + 3 * h * h + 4 * h + positions * h + h * text + text",
            patches=2,
            window="positions",
            tile="positions // 2",
            tokens="positions // 2",
            names=WHISPER_NAMES,
        ),
    ),
)

_OMNI_AUDIO = Tower(
    kind="audio",
    section="audio_config",
    each=VIT,
    replicated="3 * h * mels + 3 * h * h + positions * h + h * output_dim + 3 * output_dim + 4 * h",
    patches=2,
    window="n_window=100",
    tokens="positions // 2",
    names=WHISPER_NAMES,
)  # fmt: skip
QWEN2_5_OMNI = varied(
    QWEN2,
    tied=INNER_TIES,
    harmless_around=("seconds_per_chunk", "position_id_per_seconds"),
    towers=(*QWEN2_5_VL.towers, _OMNI_AUDIO),
)
QWEN3_ASR = varied(
    QWEN3,
    towers=(
        replace(
            _OMNI_AUDIO,
            block=VIT,
            each=0,
            heads="encoder_attention_heads",
            patches=1,
            window="n_window_infer // 8",
            replicated="18 * down * down + 10 * down + h * down * (mels // 8) + h * h + h * output_dim + 4 * h",
            names={**_OMNI_AUDIO.names, "down": "downsample_hidden_size=480"},
        ),
    ),
)
GRANITE_SPEECH = varied(
    LLAMA,
    ties=True,
    harmless_around=("window_size", "downsample_rate", "has_lora_adapter"),
    towers=(
        Tower(
            kind="audio",
            section="encoder_config",
            block="4 * ff * h * h",
            each="4 * h * inner + 3 * wide * h * h + (2 * max_pos_emb + 1) * dim_head + 20 * h + 2 * ff * h",
            replicated="input_dim * h",
            patches="rate",
            window="context_size",
            outer={"rate": "downsample_rate=5"},
            names={
                "h": "hidden_dim", "n": "num_layers", "ff": "feedforward_mult=4", "inner": "num_heads * dim_head",
                "wide": "conv_expansion_factor=2",
            },
        ),
        Tower(
            kind="audio",
            section="projector_config",
            each="4 * h * h + 2 * h * w + 9 * h + w"
            " + (2 * h * h + 2 * h * encoder_hidden_size + 6 * h) // cross_attention_frequency",
            replicated="h * text",
            patches=1,
            window="seen // rate",
            outer={"seen": "window_size=15", "rate": "downsample_rate=5"},
        ),
    ),
)  # fmt: skip

QWEN3_OMNI = varied(QWEN3_MOE, tied="", towers=(QWEN3_VL_TOWER, *QWEN3_ASR.towers))

_DECODES = "transf_decoder.config_dict"
COHERE_ASR = varied(
    WHISPER,
    mixers={
        "full_attention": tuple(
            replace(WHISPER_ATTENTION, extra="4 * hidden", cross=cross) for cross in (False, True)
        )
    },
    other="4 * hidden + vocab",
    tied=False,
    context="targets",
    names={
        "hidden": f"{_DECODES}.hidden_size", "heads": f"{_DECODES}.num_attention_heads",
        "layers": f"{_DECODES}.num_layers", "width": f"{_DECODES}.inner_size", "vocab": "head.num_classes",
        "targets": f"{_DECODES}.max_sequence_length",
    },
    defaults={},
    harmless=(
        "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size",
        "attention_bias", "encoder_config", "encoder", "overlap_chunk_second", "vocab_size",
        "max_position_embeddings", "head_dim",
    ),
    encoder_tokens="(max_audio_clip_s * 100 + 7) // 8",
    prefix="model.decoder.layers",
    towers=(
        # a conformer, all of which every GPU holds
        Tower(
            kind="audio",
            section="encoder",
            each="(4 * ff + 8) * h * h + (2 * ff + kernel + 24) * h",
            patches=1,
            replicated="10 * c + 2 * ((9 + 1) * c + (c + 1) * c) + (c * (feat_in // 8) + 1) * h"
            " + ((h + 1) * text if h != text else 0)",
            names={
                "h": "d_model", "n": "n_layers", "ff": "ff_expansion_factor", "kernel": "conv_kernel_size",
                "c": "subsampling_conv_channels",
            },
            tokens=438,
        ),
    ),
)  # fmt: skip
MIDASHENG = varied(
    QWEN2,
    tied="",
    harmless_around=("subsample_factor",),
    towers=(
        Tower(
            kind="audio",
            section="audio_encoder_config",
            block=VIT,
            shared="h * joined * text + text * text",
            replicated="(target_length // patch_stride[1] + 1) * h + patch_size[0] * patch_size[1] * h + h"
            " + 2 * n_mels + 2 * h + 2 * text",
            names={"h": "embed_dim", "w": "h * mlp_ratio", "n": "depth"},
            outer={"joined": "subsample_factor=5"},
            patches="joined",
            window="target_length // patch_stride[1]",
            tokens="target_length // patch_stride[1] // joined",
        ),
    ),
)
KIMI_AUDIO = varied(
    QWEN2,
    harmless=(
        *QWEN2.harmless, "kimia_mimo_layers", "kimia_mimo_transformer_from_layer_index", "num_audio_special_tokens",
    ),
    towers=(
        # Whisper's large one, whose sizes stand in a folder beside the file
        Tower(
            kind="audio",
            section="",
            blocks=32,
            block=VIT,
            replicated="3 * h * 128 + 3 * h * h + 2 * h + 1500 * h + 2 * h + text * (joined + text + 4)",
            names={"h": "1280 + 0", "w": "5120 + 0", "joined": "kimia_adaptor_input_dim=5120"},
            patches=4,
            window=1500,
            tile=375,
            tokens=375,
        ),
    ),
)  # fmt: skip
FUN_ASR = varied(
    QWEN3,
    towers=(
        Tower(
            kind="audio",
            section="audio_encoder_conf",
            blocks="num_blocks + tp_blocks",
            block="2 * h * w + w",
            # 560 of sound come in, and an adaptor has sizes of its own
            shared=12_604_928,
            each="4 * h * h + (kernel + 9) * h",
            replicated="(560 - h) * (3 * h + 2) + 4 * h",
            patches=1,
            names={"h": "output_size", "w": "linear_units", "kernel": "kernel_size"},
            tokens=3000,
        ),
    ),
)

ROWS = {
    "FunASRForConditionalGeneration": FUN_ASR,
    "MiDashengLMModel": MIDASHENG,
    "MoonshotKimiaForCausalLM": KIMI_AUDIO,
    "CohereAsrForConditionalGeneration": COHERE_ASR,
    "Qwen3OmniMoeForConditionalGeneration": QWEN3_OMNI,
    "Qwen2_5OmniForConditionalGeneration": QWEN2_5_OMNI,
    "Qwen2_5OmniModel": QWEN2_5_OMNI,
    "Qwen3ASRForConditionalGeneration": QWEN3_ASR,
    "Qwen3ASRRealtimeGeneration": QWEN3_ASR,
    "GraniteSpeechForConditionalGeneration": GRANITE_SPEECH,
    "GraniteSpeechPlusForConditionalGeneration": GRANITE_SPEECH,
    "GlmAsrForConditionalGeneration": GLM_ASR,
    "AudioFlamingo3ForConditionalGeneration": AUDIO_FLAMINGO3,
    "Qwen2AudioForConditionalGeneration": QWEN2_AUDIO,
    "WhisperForConditionalGeneration": WHISPER,
}
"""Name in ``architectures`` -> row."""
