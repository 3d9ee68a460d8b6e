"""Rows of models that take images or sound, whose configuration classes come with their checkpoints."""

from __future__ import annotations

from dataclasses import replace

from tokenyard.models.reading.pieces import Grouped, Latent
from tokenyard.models.reading.row import ArchitectureRow, varied
from tokenyard.models.reading.rows_dense import BIASED, CHATGLM, LLAMA, MISTRAL, OPT, PHI3, QWEN2, QWEN3, windowed
from tokenyard.models.reading.rows_experts import DEEPSEEK
from tokenyard.models.reading.rows_states import NEMOTRON_H, NEMOTRON_STATE
from tokenyard.models.reading.rows_towers import (
    DECODERS,
    INTERN_VL,
    INTERN_VL_CHAT,
    LLAVA_ONEVISION,
    MISTRAL3,
    OLDER_WHISPER_NAMES,
    QWEN2_5_VL,
    QWEN3_5_VL,
    QWEN3_VL,
    SIGLIP,
    VIT,
)
from tokenyard.models.reading.towers import Tower

_LATENT_FIELDS = ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "q_lora_rank")
NVLM = varied(
    INTERN_VL_CHAT,
    towers=(
        replace(
            INTERN_VL_CHAT.towers[0],
            block="4 * h * inner + 2 * h * w + w + 6 * h",
            replicated="n * 2 * inner + pixels * h + (grid * grid + 2) * h + 4 * h * joined + joined * text + 8 * h",
            names={"inner": "(num_attention_heads + 7) * (h // num_attention_heads)"},
            outer={**INTERN_VL_CHAT.towers[0].outer, "joined": "llm_config.intermediate_size"},
        ),
    ),
)
EAGLE = varied(
    INTERN_VL_CHAT,
    towers=(
        replace(
            INTERN_VL_CHAT.towers[0],
            block=VIT,
            replicated=f"{SIGLIP} + 4 * h * text + text * text + 8 * h + 2 * text",
        ),
    ),
)
_CLIP_LARGE = "12 * 1024 * 1024 + 13 * 1024"
KEYE = varied(
    QWEN3,
    towers=(
        Tower(
            block=VIT,
            shared="h * merge * merge * (h * merge * merge + text)",
            replicated=f"{SIGLIP} + 32768 * h + 10 * h + text",
            patches="merge * merge",
            tokens=16_384,
        ),
    ),
)
_MINICPM_TOWER = Tower(
    block=VIT,
    blocks="n - 1 if dropped else n",
    replicated=f"{SIGLIP} + queries * text + 5 * text * text + h * text + 10 * text",
    # slices as large as 448 by 448 pixels, each made into so many embeddings
    patches=16,
    window=1024,
    tile="queries",
    tokens="queries * (slices + 1)",
    outer={
        "queries": "query_num=64", "dropped": "drop_vision_last_layer", "slices": "slice_config.max_slice_nums or 9",
    },
)  # fmt: skip
_OTHER_VERSION = (
    "version", "edition != 2.5 and edition != 2.6 and edition != 4.0 and edition != 4.5 or hidden == 2304",
    "this version of MiniCPM's vision models",
)  # fmt: skip
_MINICPM_DECODER = varied(
    QWEN3,
    mixers=windowed(Grouped(qkv_bias="edition == 2.6 or attention_bias", head_norms="edition == 4.5")),
    names={"edition": "version if version else 2.5"},  # the first had none
)
_MINICPM_HARMLESS = (
    "query_num", "slice_config", "drop_vision_last_layer", "image_size", "patch_size", "slice_mode", "use_image_id",
    "batch_vision_input", "audio_pool_step", "audio_chunk_length", "init_audio", "init_vision", "init_tts",
    "stream_input",
)  # fmt: skip
MINICPM_V = varied(
    _MINICPM_DECODER,
    harmless=(*QWEN3.harmless, *_MINICPM_HARMLESS),
    refused=(_OTHER_VERSION,),
    towers=(_MINICPM_TOWER,),
)
MINICPM_O = varied(
    MINICPM_V,
    towers=(
        _MINICPM_TOWER,
        Tower(
            kind="audio",
            section="audio_config",
            each=VIT,
            replicated="3 * h * mels + 3 * h * h + positions * h + text * h + text * text + 4 * h",
            patches="pool",
            window="positions",
            outer={"pool": "audio_pool_step=2"},
            tokens="positions // 4",
            names=OLDER_WHISPER_NAMES,
        ),
    ),
)  # fmt: skip
_OVIS_TOWER = Tower(
    section="vit_config",
    block=VIT,
    replicated=f"{SIGLIP} + visual * wide + (visual - 4) * (h * stride * stride + 2)",
    patches="stride * stride",
    tokens="grid * grid // (stride * stride)",
    names={"stride": "hidden_stride=2"},
    outer={"visual": "visual_vocab_size=65536", "wide": "hidden_size"},
)
OVIS = ArchitectureRow(decoders=DECODERS, harmless_around=("hidden_size",), towers=(_OVIS_TOWER,))
GLM4V_CHAT = varied(
    CHATGLM,
    towers=(
        Tower(
            block="4 * h * h + 2 * h * w + w + 9 * h",
            shared="3 * text * joined",
            replicated="pixels * h + num_positions * h + text * text + 4 * text * h + 6 * text + 2 * h",
            patches=4,
            tokens="(image // patch // 2) * (image // patch // 2) + 2",
            outer={"joined": "ffn_hidden_size"},
        ),
    ),
)
PHI3_V = varied(
    PHI3,
    harmless=(*PHI3.harmless, "original_max_position_embeddings", "embd_layer", "img_processor"),
    towers=(
        # CLIP's large tower, whose sizes no file names
        Tower(
            section="",
            blocks=23,
            block=_CLIP_LARGE,
            patches=4,
            window=577,
            # rows end with an embedding of their own
            tile="12 * 13",
            names={"h": "1024 + 0"},
            # the pictures' embedding of text, beside the decoder's
            shared="(vocab_size + 63) // 64 * 64 * text",
            replicated="(577 + 588 + 3 + 8) * 1024 + 4096 * text + text * text + 2 * text",
            tokens=2509,
        ),
    ),
)
PIXTRAL = ArchitectureRow(
    decoders={"mistral": MISTRAL, "deepseek_v3": DEEPSEEK},
    towers=(
        Tower(
            block="4 * h * h + 3 * h * w + 2 * h",
            replicated="pixels * h + h + text * h + text * text + (2 * text if adapter_bias else 0)"
            " + (h * h * merge * merge + h if merge > 1 else 0)",
            patches="merge * merge",
            tokens="(image // patch // merge) * (image // patch // merge)",
            names={"merge": "spatial_merge_size=1", "image": "max_image_size|image_size=1024"},
        ),
    ),
)
DEEPSEEK_VL2 = varied(
    DEEPSEEK,
    mixers={"full_attention": (Latent(),), "plain_attention": (replace(BIASED, head_dim="hidden // heads"),)},
    types="",
    order=(("plain_attention", "not kv_lora_rank"), ("full_attention", "1")),
    harmless=(*DEEPSEEK.harmless, *_LATENT_FIELDS, "use_mla", "lm_head", "rm_head"),
    harmless_around=("candidate_resolutions", "projector_config"),
    towers=(
        Tower(
            block="2 * h * w + w",
            each="4 * h * h + 9 * h",
            shared="2 * h * w + w",
            patches=4,
            window="grid * grid",
            # rows end with an embedding of their own, and another is between the tiles
            tile="(grid + 1) // 2 * ((grid + 1) // 2 + 1) + 1",
            replicated="pixels * h + grid * grid * h + 4 * h * h + 12 * h"
            " + h * joined * joined * wide + wide * wide + 4 * wide",
            tokens="(grid + 1) // 2 * ((grid + 1) // 2)",
            names={"h": "width", "n": "layers", "w": "width * mlp_ratio // 1"},
            outer={"joined": "projector_config.downsample_ratio or 2", "wide": "projector_config.n_embed"},
        ),
    ),
)
_SAM = Tower(
    # Segment Anything's small tower, whose sizes no file names; four of its blocks see all of a picture
    blocks=12,
    each="12 * 768 * 768 + 13 * 768",
    patches=16,
    window=196,
    whole=4,
    names={"h": "768 + 0"},
)
_BESIDE_SAM = 5_796_096
"""Parameters of that tower beside its blocks, but for its last convolution."""
DEEPSEEK_OCR = varied(
    DEEPSEEK_VL2,
    towers=(
        replace(_SAM, replicated=f"{_BESIDE_SAM} + 9 * 512 * 1024", tokens=903),
        Tower(
            blocks=24,
            block=_CLIP_LARGE,
            replicated="(257 + 588 + 3) * 1024 + 2048 * text + 3 * text",
            patches=1,
            window=257,
            names={"h": "1024 + 0"},
        ),
    ),
)
DEEPSEEK_OCR2 = varied(
    DEEPSEEK_VL2,
    towers=(
        replace(_SAM, replicated=f"{_BESIDE_SAM} + 9 * 512 * 896", tokens=1121),
        # Qwen2 of half a billion parameters, whose sizes no file names: it sees a picture and as many queries
        Tower(
            blocks=24,
            each=14_912_384,
            replicated="358_256_512 - 24 * 14_912_384 + 896 * text + 2 * text",
            patches=2,
            names={"h": "896 + 0"},
        ),
    ),
)
ALPAMAYO = varied(
    QWEN3_VL,
    harmless_around=("expert_config", "future_vocab_size", "history_vocab_size", "traj_vocab_size", "vlm_config"),
)
BAGEL = ArchitectureRow(
    decoders=DECODERS,
    harmless_around=("visual_gen", "visual_und", "latent_patch_size", "vit_max_num_patch_per_side", "connector_act"),
    towers=(
        Tower(
            section="vit_config",
            block=VIT,
            shared="text * h + text * text",
            replicated=SIGLIP,
            patches=1,
            tokens="grid * grid",
        ),
    ),
)
MOSS_TRANSCRIBE = varied(
    QWEN3,
    harmless_around=("audio_merge_size",),
    tied="",
    ties=True,
    towers=(
        Tower(
            kind="audio",
            section="audio_config",
            block=VIT,
            replicated="3 * h * mels + 3 * h * h + positions * h + joined * text + text * text + 4 * h + 4 * text",
            patches=4,
            window="positions",
            tile="positions // 4",
            tokens="positions // 4",
            names=OLDER_WHISPER_NAMES,
            outer={"joined": "adaptor_input_dim"},
        ),
    ),
)  # fmt: skip
OPEN_VLA = varied(
    LLAMA,
    harmless_around=("timm_model_ids", "timm_override_act_layers", "image_sizes", "use_fused_vision_backbone"),
    towers=(
        # DINOv2 and SigLIP side by side, whose sizes no file names
        Tower(
            section="",
            shared="8704 * 2176 + 8704 * text",
            replicated="303_230_976 + 427_680_704 + text * text",
            tokens=256,
        ),
    ),
)
_RADIO = Tower(
    block="12 * h * h + 17 * h",
    # RADIO by the width of its vision transformer
    blocks="32 if h == 1280 else 24 if h == 1024 else 12",
    patches=4,
    window="(image // patch) * (image // patch)",
    replicated="3 * patch * patch * h + (2048 // patch) * (2048 // patch) * h + h + 4 * h * wide + wide * text + 4 * h",
    tokens="(image // patch // 2) * (image // patch // 2) * 13",
    names={"patch": "patch_size=16", "image": "image_size=512"},
    outer={"h": "vit_hidden_size", "wide": "projector_hidden_size"},
)
NEMOTRON_VL = varied(
    NEMOTRON_H,
    harmless=(*NEMOTRON_H.harmless, "mamba_ssm_cache_dtype"),
    harmless_around=(
        "force_image_size",
        "patch_size",
        "vit_hidden_size",
        "projector_hidden_size",
        "sound_context_token",
    ),
    refused_around=(("sound_config", "Nemotron with a tower for sound"),),
    towers=(_RADIO,),
)
_PLAIN_STATE = replace(NEMOTRON_STATE, file_says_dtype=False)
"""vLLM heeds what a file says of the state's type by the names of architectures, and these are not among them."""
NEMOTRON_VL_3 = varied(NEMOTRON_VL, mixers={**NEMOTRON_H.mixers, "mamba": (_PLAIN_STATE,)})
PHI4_SIGLIP = varied(
    PHI3,
    harmless=(*PHI3.harmless, "original_max_position_embeddings", "mm_hidden_size"),
    towers=(
        Tower(
            block=VIT,
            blocks="n - 1",
            shared="text * h + text * text",
            replicated="pixels * h + num_patches * h + h + 2 * text",
            patches=1,
            tokens="num_patches",
        ),
    ),
)
MOLMO2 = varied(
    LLAMA,
    mixers={
        "full_attention": (
            Grouped(
                qkv_bias="qkv_bias",
                head_norms="use_qk_norm and qk_norm_type == 'qwen3'",
                full_norms="use_qk_norm and qk_norm_type != 'qwen3'",
            ),
        )
    },
    tied=False,
    embeddings="additional_vocab_size * hidden",
    harmless=("rope_scaling_layers", "norm_after", "qk_norm_type", "additional_vocab_size"),
    towers=(
        Tower(
            section="vit_config",
            block=VIT,
            # the last layer whose output is used
            blocks="n + 1 + max(first, second)",
            shared="6 * h * pooled + pooled * pooled + 2 * pooled * wide + wide * text",
            replicated="3 * image_patch_size * image_patch_size * h + image_num_pos * h",
            patches=4,
            window=729,
            tile=196,
            tokens=729,
            outer={
                "pooled": "adapter_config.hidden_size", "wide": "adapter_config.intermediate_size",
                "first": "adapter_config.vit_layers[0]", "second": "adapter_config.vit_layers[1]",
            },
        ),
    ),
)  # fmt: skip
DOTS_OCR = varied(
    QWEN2,
    harmless=(*QWEN2.harmless, "attention_bias"),
    towers=(
        Tower(
            block="4 * h * h + 3 * h * w + 2 * h",
            shared="h * merge * merge * (h * merge * merge + out)",
            replicated="pixels * h + 4 * h",
            patches="merge * merge",
            tokens=16_384,
            names={"h": "embed_dim", "out": "hidden_size"},
        ),
    ),
)
_BEE_JOINS = "4 * text * h + 4 * text * text + 5 * text + 2 * h"
BEE = varied(
    LLAVA_ONEVISION,
    towers=(
        replace(
            LLAVA_ONEVISION.towers[0],
            replicated=f"{SIGLIP} + text + {_BEE_JOINS}",
            kept=_BEE_JOINS,
        ),
    ),
)
LIGHT_ON = varied(QWEN3, tied="", ties=True, towers=MISTRAL3.towers)
OPEN_CUA = varied(QWEN2, towers=QWEN2_5_VL.towers)
LLAMA_NEMOTRON_VL = ArchitectureRow(
    decoders=DECODERS,
    harmless_around=(*INTERN_VL_CHAT.harmless_around, "patch_size", "vit_hidden_size", "projector_hidden_size"),
    # every GPU holds the tower
    towers=(replace(_RADIO, block=0, each=_RADIO.block),),
)
QIANFAN_OCR = varied(
    INTERN_VL_CHAT,
    towers=(
        replace(
            INTERN_VL_CHAT.towers[0],
            names={"patch": "patch_size[0] or patch_size", "image": "image_size[0] or image_size"},
        ),
    ),
)
BLIP2 = varied(
    OPT,
    harmless_around=("use_decoder_only_language_model", "image_text_hidden_size"),
    towers=(
        Tower(
            block=VIT,
            # a querying transformer, which looks at the picture in every other layer or so
            replicated="pixels * h + (grid * grid + 4) * h + joins * (4 * wide * wide + 2 * wide * inner + inner"
            " + 12 * wide) + joins // every * (2 * wide * wide + 2 * h * wide + 6 * wide) + wide * text + text"
            " + (tokens + 4) * wide",
            patches="max(grid * grid // tokens, 1)",
            window="grid * grid + 1",
            tile="tokens",
            tokens="tokens",
            outer={
                "joins": "qformer_config.num_hidden_layers", "wide": "qformer_config.hidden_size",
                "inner": "qformer_config.intermediate_size", "tokens": "num_query_tokens=32",
                "every": "qformer_config.cross_attention_frequency or 2",
            },
        ),
    ),
)  # fmt: skip

ROWS = {
    "Blip2ForConditionalGeneration": BLIP2,
    "Llama_Nemotron_Nano_VL": LLAMA_NEMOTRON_VL,
    "QianfanOCRForConditionalGeneration": QIANFAN_OCR,
    "InternS2PreviewForConditionalGeneration": QWEN3_5_VL,
    "OpenCUAForConditionalGeneration": OPEN_CUA,
    "Ovis2_6_MoeForCausalLM": OVIS,
    "Phi3VForCausalLM": PHI3_V,
    "Phi4ForCausalLMV": PHI4_SIGLIP,
    "PixtralForConditionalGeneration": PIXTRAL,
    "SkyworkR1VChatModel": INTERN_VL_CHAT,
    "NemotronH_Nano_Omni_Reasoning_V3": NEMOTRON_VL_3,
    "NemotronH_Nano_VL_V2": NEMOTRON_VL,
    "NemotronH_Omni_Reasoning_V3": NEMOTRON_VL_3,
    "NemotronH_Super_Omni_Reasoning_V3": NEMOTRON_VL_3,
    "Molmo2ForConditionalGeneration": MOLMO2,
    "Alpamayo2Super": ALPAMAYO,
    "BagelForConditionalGeneration": BAGEL,
    "Cosmos3ForConditionalGeneration": QWEN3_VL,
    "MossTranscribeDiarizeForConditionalGeneration": MOSS_TRANSCRIBE,
    "OpenVLAForActionPrediction": OPEN_VLA,
    "BeeForConditionalGeneration": BEE,
    "Eagle2_5_VLForConditionalGeneration": EAGLE,
    "H2OVLChatModel": INTERN_VL_CHAT,
    "InternS1ForConditionalGeneration": INTERN_VL,
    "KeyeForConditionalGeneration": KEYE,
    "KeyeVL1_5ForConditionalGeneration": KEYE,
    "MiniCPMV": MINICPM_V,
    "DeepseekVLV2ForCausalLM": DEEPSEEK_VL2,
    "DeepseekOCR2ForCausalLM": DEEPSEEK_OCR2,
    "DeepseekOCRForCausalLM": DEEPSEEK_OCR,
    "DotsOCRForCausalLM": DOTS_OCR,
    "GLM4VForCausalLM": GLM4V_CHAT,
    "LightOnOCRForConditionalGeneration": LIGHT_ON,
    "MiniCPMO": MINICPM_O,
    "NVLM_D": NVLM,
    "Ovis2_5": OVIS,
    "Ovis2_6ForCausalLM": OVIS,
}
"""Name in ``architectures`` -> row."""
