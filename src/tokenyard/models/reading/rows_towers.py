"""Rows of models that take images or sound: a decoder behind a tower."""

from __future__ import annotations

from dataclasses import replace

from tokenyard.models.reading.pieces import Dense, Grouped
from tokenyard.models.reading.row import ArchitectureRow, varied
from tokenyard.models.reading.rows_dense import (
    COMMAND_R2,
    ERNIE,
    EXAONE4,
    GEMMA,
    GEMMA2,
    GEMMA3,
    GLM4,
    INTERNLM2,
    LLAMA,
    MISTRAL,
    MUSE_GLIMMER,
    PHI3,
    QWEN2,
    QWEN3,
)
from tokenyard.models.reading.rows_experts import (
    GEMMA3N,
    GEMMA4,
    GLM4_MOE,
    GPT_OSS,
    LLAMA4,
    MIXTRAL,
    QWEN2_MOE,
    QWEN3_MOE,
)
from tokenyard.models.reading.rows_states import LFM2, QWEN3_5
from tokenyard.models.reading.towers import Tower

VIT = "4 * h * h + 2 * h * w + 4 * h + w + h + 4 * h"
WHISPER_NAMES = {
    "h": "d_model", "w": "encoder_ffn_dim", "n": "encoder_layers", "mels": "num_mel_bins=128",
    "positions": "max_source_positions=1500",
}  # fmt: skip
"""Fields of an encoder that is Whisper's, by the names in a tower's expressions."""
OLDER_WHISPER_NAMES = WHISPER_NAMES | {"mels": "num_mel_bins=80"}
"""The same where a file that does not say has 80 mel bins."""
GEMMA3_VISION = varied(
    GEMMA3,
    images_attend_both_ways=True,
    towers=(
        Tower(
            block=VIT,
            replicated="3 * patch * patch * h + h + (image // patch) * (image // patch) * h + 2 * h + h * text + h",
            patches="(image // patch) * (image // patch) // tokens",
            window="(image // patch) * (image // patch)",
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
            block=VIT,
            shared="w * into + into * out + 3 * patch * patch * h",
            always="vision_out * text",
            replicated="(grid * grid + 1) * h + 5 * h",
            patches=4,
            window="grid * grid + 1",
            tile="grid * grid // 4",
            tokens="(image // patch) * (image // patch) // 4",
            names={
                "image": "image_size=448", "into": "projector_input_dim=4096", "out": "projector_output_dim=4096",
                "vision_out": "vision_output_dim=4096",
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
            patches="merge * merge",
            window="(window_size // patch) * (window_size // patch)",
            whole="len_positive(fullatt_block_indexes)",
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
    ties=True,
    towers=(
        Tower(
            block="4 * h * h + 3 * h * w + 2 * h",
            shared="h * text + text * text",
            replicated="channels * patch * patch * h + 2 * h + h * merge * merge * h",
            patches="merge * merge",
            tokens="(image // patch // merge) * (image // patch // merge)",
            names={"channels": "num_channels=3", "image": "image_size=1540"},
            outer={"merge": "spatial_merge_size=2"},
        ),
    ),
)
INNER_TIES = "tie_word_embeddings"
"""What the decoder's own section says counts."""
SIGLIP = "pixels * h + h + grid * grid * h + 2 * h"
COHERE2_VISION = varied(
    COMMAND_R2,
    towers=(
        Tower(
            block=VIT,
            shared="align * h * down * down + align + align // 2 * text",
            replicated=SIGLIP + " + text",
            patches="down * down",
            window="grid * grid",
            tokens="(grid // down) * (grid // down)",
            outer={"align": "alignment_intermediate_size=36864", "down": "downsample_factor=2"},
        ),
    ),
)
EXAONE4_5 = varied(
    EXAONE4,
    towers=(
        Tower(
            block="2 * h * h + 2 * h * h * num_key_value_heads // num_heads + 3 * h * w + 2 * w + 5 * h",
            shared="h * merge * merge * (h * merge * merge + out)",
            replicated="pixels * frames * h",
            patches="merge * merge",
            window="(window_size // patch) * (window_size // patch)",
            whole="len_positive(fullatt_block_indexes)",
            tokens=16_384,
        ),
    ),
)
_GLM4V_TOWER = Tower(
    block="4 * h * h + 3 * h * out + 2 * h",
    shared="out * out + 3 * out * w",
    replicated="pixels * frames * h + grid * grid * h + out * h * merge * merge + 4 * h + 3 * out",
    patches="merge * merge",
    tokens="(grid // merge) * (grid // merge)",
)
GLM4V = varied(GLM4, towers=(_GLM4V_TOWER,))
GLM4V_MOE = varied(GLM4_MOE, towers=(_GLM4V_TOWER,))
GLM_OCR = varied(
    GLM4,
    towers=(
        replace(
            _GLM4V_TOWER,
            block="4 * h * h + 3 * h * w + 7 * h + 2 * w",
            shared="out * out + 3 * out * joined",
            outer={"joined": "text_config.intermediate_size"},
            replicated="pixels * frames * h + out * h * merge * merge + 2 * h + 3 * out",
        ),
    ),
)
DECODERS = {
    "llama": LLAMA, "mistral": MISTRAL, "qwen2": QWEN2, "qwen3": QWEN3, "gemma2": GEMMA2, "qwen3_moe": QWEN3_MOE,
    "internlm2": INTERNLM2, "phi3": PHI3, "qwen2_moe": QWEN2_MOE, "gpt_oss": GPT_OSS, "mixtral": MIXTRAL,
}  # fmt: skip
_CLIP = Tower(
    block=f"4 * h * h + 3 * h * w + 2 * h if model_type == 'pixtral' else {VIT}",
    blocks="n + 1 + feature if feature < 0 else feature",
    shared="text * h + text * text",
    replicated="pixels * h + ((grid * grid + 1) * h if model_type != 'pixtral' else 0) + 2 * h + 3 * text",
    patches=1,
    window="0 if model_type == 'pixtral' else grid * grid + 1",
    tokens="grid * grid",
    outer={"feature": "vision_feature_layer + 0 if vision_feature_layer else -2"},
)
LLAVA = ArchitectureRow(decoders=DECODERS, towers=(_CLIP,))
LLAVA_NEXT = ArchitectureRow(
    decoders=DECODERS,
    towers=(
        replace(
            _CLIP,
            shared=0,
            replicated=f"{_CLIP.replicated} + text * h + text * text",
            patches="stride * stride",
            outer={**_CLIP.outer, "stride": "spatial_pool_stride=2"},
        ),
    ),
)
LLAVA_ONEVISION = ArchitectureRow(
    decoders=DECODERS,
    towers=(
        replace(
            _CLIP,
            shared=0,
            replicated=SIGLIP + " + text * h + text * text + 3 * text",
            window="grid * grid",
            tile="grid * (grid + 1)",
            outer={"feature": "vision_feature_layer + 0 if vision_feature_layer else -1"},
        ),
    ),
)
IDEFICS3 = varied(
    LLAMA,
    tied=INNER_TIES,
    towers=(
        Tower(
            block=VIT,
            replicated=SIGLIP + " + text * h * scale * scale",
            patches="scale * scale",
            window="grid * grid",
            tokens="grid * grid // (scale * scale)",
            outer={"scale": "scale_factor=2"},
        ),
    ),
)
INTERN_VL = ArchitectureRow(
    ties=True,
    decoders=DECODERS,
    towers=(
        Tower(
            block="2 * h * w + w",
            each="4 * h * h + 8 * h",
            replicated="channels * 196 * h + 1025 * h + text * h * 4 + text * text + 10 * h + 2 * text",
            patches=4,
            window=1025,
            tile="tokens",
            tokens="tokens",
            outer={"tokens": "image_seq_length=256"},
        ),
    ),
)
_EARLY = {"early": "insert_layer_id + 1"}
MINICPM_V = varied(
    QWEN3_5,
    tied=INNER_TIES,
    harmless_around=("image_size", "patch_size", "insert_layer_id", "drop_vision_last_layer", "merge_kernel_size"),
    towers=(
        # squares of patches are made one behind some of its blocks, and so are squares of these behind the last
        Tower(
            block=VIT,
            blocks="min(early, n)",
            shared="4 * h * h",
            replicated=SIGLIP + " + 20 * h * w + 16 * h * h + 4 * w + 10 * h",
            patches=16,
            tokens="grid * grid // 16",
            outer=_EARLY,
        ),
        Tower(block=VIT, blocks="n - min(early, n)", replicated="text * 4 * h + text", patches=4, outer=_EARLY),
    ),
)
_QWEN_VL = Tower(
    block="4 * h * h + 2 * h * w + w + 9 * h",
    shared="h * merge * merge * (h * merge * merge + hidden_size)",
    replicated="pixels * frames * h",
    patches="merge * merge",
    tokens=16_384,
    names={"h": "embed_dim|hidden_size", "w": "h * mlp_ratio"},
)
QWEN2_VL = varied(QWEN2, towers=(_QWEN_VL,))
QWEN3_VL_TOWER = Tower(
    block=VIT,
    shared="(1 + drafts) * (h * merge * merge * h * merge * merge + h * merge * merge * out)",
    replicated="pixels * frames * h + h + num_position_embeddings * h",
    patches="merge * merge",
    vectors="1 + drafts",
    tokens=16_384,
    names={"drafts": "3 if deepstack_visual_indexes else 0"},
)
QWEN3_VL = varied(QWEN3, towers=(QWEN3_VL_TOWER,))
QWEN3_VL_MOE = varied(QWEN3_MOE, towers=(QWEN3_VL_TOWER,))
QWEN3_5_VL = varied(QWEN3_5, tied=INNER_TIES, towers=(replace(QWEN3_VL_TOWER, names={"drafts": "0 + 0"}),))
PADDLE_OCR = varied(
    ERNIE,
    tied="",
    ties=True,
    towers=(
        Tower(
            block=VIT,
            replicated=SIGLIP + " + h * merge * merge * (h * merge * merge + text) + 6 * h + text",
            patches="merge * merge",
            tokens="grid * grid // (merge * merge)",
        ),
    ),
)
GEMMA4_VISION = varied(
    GEMMA4,
    images_attend_both_ways="use_bidirectional_attention == 'vision'",
    tied="",
    ties=True,
    towers=(
        Tower(
            each="4 * h * h + 3 * h * w + 4 * h + 2 * head_dim",
            replicated="2 * position_embedding_size * h + pixels * h + text * h",
            patches="pool * pool",
            # pictures are filled up
            window="280 * pool * pool",
            tile=280,
            tokens=280,
            names={"pool": "pooling_kernel_size=3"},
        ),
        Tower(
            kind="audio",
            section="audio_config",
            optional=True,
            each="24 * h * h + (kernel + 12) * h",
            replicated="9 * first + 9 * first * second + first + second + 32 * second * h"
            " + output_proj_dims * (h + 1 + text)",
            patches=1,
            window="attention_chunk_size + attention_context_left",
            tokens=750,
            names={
                "kernel": "conv_kernel_size=5", "first": "subsampling_conv_channels[0]",
                "second": "subsampling_conv_channels[1]",
            },
        ),
    ),
)  # fmt: skip
GEMMA4_UNIFIED = varied(
    GEMMA4,
    images_attend_both_ways="use_bidirectional_attention == 'vision'",
    tied="",
    ties=True,
    harmless=("use_bidirectional_attention",),
    names={"per_layer": "hidden_size_per_layer_input=0"},
    towers=(
        Tower(
            blocks=0,
            shared="wide * mm_embed_dim",
            replicated="2 * mm_posemb_size * mm_embed_dim + text * output_proj_dims + wide + 2 * mm_embed_dim",
            names={"h": "mm_embed_dim", "wide": "pixels * pooling_kernel_size * pooling_kernel_size"},
            patches="pooling_kernel_size * pooling_kernel_size",
            tokens=1120,
        ),
    ),
)

_AROUND_IMAGES = ("num_image_tokens", "use_bidirectional_attention")
PALIGEMMA = varied(
    GEMMA,
    tied="",
    ties=True,
    harmless=_AROUND_IMAGES,
    harmless_around=("hidden_size", "projection_dim"),
    towers=(
        Tower(
            block=VIT,
            replicated=f"{SIGLIP} + projection_dim * h + projection_dim",
            patches=1,
            window="grid * grid",
            tokens="grid * grid",
        ),
    ),
)
LFM2_VL = varied(
    LFM2,
    harmless_around=("projector_use_layernorm", "projector_hidden_size"),
    towers=(
        Tower(
            block=VIT,
            replicated="pixels * h + num_patches * h + wide * h * down * down + wide * text + 6 * h",
            patches="down * down",
            tokens="num_patches // (down * down)",
            outer={"wide": "projector_hidden_size=2560", "down": "downsample_factor=2"},
        ),
    ),
)
MUSE_GLIMMER_VISION = varied(
    MUSE_GLIMMER,
    tied=False,
    harmless_around=("out_hidden_size",),
    towers=(
        Tower(
            block="4 * h * h",
            each="2 * h * w + w + 9 * h",
            replicated="max_position_embeddings * h + channels * patch_temporal * patch * patch * h"
            " + wide * h * merge_size * merge_size + wide * wide + wide * text",
            patches="merge_size * merge_size",
            tokens=1024,
            outer={"wide": "projector_hidden_size=4096"},
        ),
    ),
)

COSMOS3_EDGE = varied(
    LLAMA,
    mlps={"": Dense(gated=False, bias="mlp_bias")},
    harmless_around=("projector_hidden_size",),
    towers=(
        Tower(
            block=VIT,
            shared="wide * (h * merge * merge + text + 1)",
            replicated="pixels * h + num_patches * h + 5 * h + text",
            patches="merge * merge",
            tokens="num_patches // (merge * merge)",
            outer={"wide": "projector_hidden_size=11520"},
        ),
    ),
)

INTERN_VL_CHAT = ArchitectureRow(
    decoders=DECODERS,
    harmless_around=(
        "dynamic_image_size",
        "force_image_size",
        "hidden_size",
        "select_layer",
        "max_dynamic_patch",
        "min_dynamic_patch",
    ),
    towers=(
        Tower(
            block="4 * h * h + 2 * h * w + w + 11 * h",
            blocks="n + 1 + select if select < 0 else select + 1",
            replicated="pixels * h + (grid * grid + 3) * h + 4 * h * text + text * text + 8 * h + 2 * text",
            patches=4,
            window="grid * grid + 1",
            tile="grid * grid // 4",
            tokens="grid * grid // 4 * (most + 1)",
            outer={"most": "max_dynamic_patch=12", "select": "select_layer + 0 if select_layer else -1"},
        ),
    ),
)
MOLMO = varied(
    LLAMA,
    mixers={"full_attention": (Grouped(qkv_bias="qkv_bias", full_norms="attention_layer_norm"),)},
    tied="weight_tying",
    embeddings="128 * hidden",
    names={"width": "intermediate_size // 2", "vocab": "embedding_size|vocab_size"},
    harmless=("clip_qkv", "embedding_size", "norm_after", "layer_norm_type"),
    towers=(
        # CLIP's large tower, whose sizes no file names
        Tower(
            section="",
            blocks=23,
            block="12 * 1024 * 1024 + 13 * 1024",
            patches=4,
            window=577,
            tile=144,
            names={"h": "1024 + 0"},
            shared="7 * 1024 * 1024 + 1024 * intermediate_size + text * intermediate_size // 2",
            replicated="(577 + 588 + 7) * 1024",
            tokens=1872,
        ),
    ),
)

GEMMA3N_ALL = varied(
    GEMMA3N,
    towers=(
        # MobileNet, whose sizes no file names
        Tower(
            blocks=0,
            shared="vocab_size * h + h * text",
            replicated=294_131_008,
            tokens="tokens",
            outer={"tokens": "vision_soft_tokens_per_image=256"},
        ),
        Tower(
            kind="audio",
            section="audio_config",
            shared="vocab_size * h + h * text",
            each="24 * h * h + 14 * h",
            replicated=1_614_112,
            patches="conf_reduction_factor",
            window="conf_attention_chunk_size + conf_attention_context_left",
            tokens="tokens",
            names={"n": "conf_num_hidden_layers=12"},
            outer={"tokens": "audio_soft_tokens_per_image=188"},
        ),
    ),
)
PHI4_MM = varied(
    MISTRAL,
    tied="tie_word_embeddings=true",
    harmless=("original_max_position_embeddings", "lm_head_bias", "embd_layer", "vision_lora", "speech_lora"),
    towers=(
        # SigLIP and a conformer, whose sizes no file names
        Tower(
            section="",
            blocks=26,
            block=15_232_592,
            replicated="2_040_192 + text * 1152 + text * text + 2 * text",
            patches=4,
            window=1024,
            # rows end with an embedding of their own
            tile="16 * 17",
            tokens=8192,
            names={"h": "1152 + 0"},
        ),
        Tower(
            kind="audio",
            section="",
            blocks=24,
            each=17_858_560,
            replicated="441_238_304 - 24 * 17_858_560 + 2 * (1024 * text + text * text + 2 * text)",
            patches=1,
            tokens=4096,
            names={"h": "1024 + 0"},
        ),
    ),
)
ROWS = {
    "Gemma3nForConditionalGeneration": GEMMA3N_ALL,
    "Phi4MMForCausalLM": PHI4_MM,
    "InternVLChatModel": INTERN_VL_CHAT,
    "MolmoForCausalLM": MOLMO,
    "Cosmos3EdgeForConditionalGeneration": COSMOS3_EDGE,
    "PaliGemmaForConditionalGeneration": PALIGEMMA,
    "Lfm2VlForConditionalGeneration": LFM2_VL,
    "MuseGlimmerForConditionalGeneration": MUSE_GLIMMER_VISION,
    "Gemma4ForConditionalGeneration": GEMMA4_VISION,
    "Gemma4UnifiedForConditionalGeneration": GEMMA4_UNIFIED,
    "PaddleOCRVLForConditionalGeneration": PADDLE_OCR,
    "Cohere2VisionForConditionalGeneration": COHERE2_VISION,
    "Exaone4_5_ForConditionalGeneration": EXAONE4_5,
    "Glm4vForConditionalGeneration": GLM4V,
    "Glm4vMoeForConditionalGeneration": GLM4V_MOE,
    "GlmOcrForConditionalGeneration": GLM_OCR,
    "LlavaForConditionalGeneration": LLAVA,
    "LlavaNextForConditionalGeneration": replace(
        LLAVA, towers=(replace(_CLIP, window="grid * grid + 1", tile="grid * (grid + 1)"),)
    ),
    "LlavaNextVideoForConditionalGeneration": LLAVA_NEXT,
    "LlavaOnevisionForConditionalGeneration": LLAVA_ONEVISION,
    "Idefics3ForConditionalGeneration": IDEFICS3,
    "SmolVLMForConditionalGeneration": IDEFICS3,
    "InternVLForConditionalGeneration": INTERN_VL,
    "MiniCPMV4_6ForConditionalGeneration": MINICPM_V,
    "MiniCPMV4_7ForConditionalGeneration": MINICPM_V,
    "Qwen2VLForConditionalGeneration": QWEN2_VL,
    "Qwen3VLForConditionalGeneration": QWEN3_VL,
    "Qwen3VLMoeForConditionalGeneration": QWEN3_VL_MOE,
    "Qwen3_5ForConditionalGeneration": QWEN3_5_VL,
    "Qwen3_5MoeForConditionalGeneration": QWEN3_5_VL,
    "Gemma3ForConditionalGeneration": GEMMA3_VISION,
    "Llama4ForConditionalGeneration": LLAMA4_VISION,
    "Mistral3ForConditionalGeneration": MISTRAL3,
    "Qwen2_5_VLForConditionalGeneration": QWEN2_5_VL,
}
"""Name in ``architectures`` -> row."""
