"""Rows of decoders that are dense throughout."""

from __future__ import annotations

from dataclasses import replace

from tokenyard.models.reading.pieces import Dense, Grouped
from tokenyard.models.reading.row import ArchitectureRow, varied

BIASED = Grouped(qkv_bias="attention_bias", output_bias="attention_bias")


def windowed(full: Grouped, *, plus_itself: bool = False) -> dict[str, tuple[Grouped, ...]]:
    """Layers with a window beside layers without, otherwise alike."""
    within = replace(full, window="window", window_plus_itself=plus_itself)
    return {"full_attention": (full,), "sliding_attention": (within,)}


ALL_WINDOWED = (("sliding_attention", "1"),)
LLAMA = ArchitectureRow(mixers=windowed(BIASED), mlps={"": Dense(bias="mlp_bias")})
MISTRAL = varied(
    LLAMA,
    order=ALL_WINDOWED,
    # what a delay makes of the norms, through a narrow pair of matrices (Voxtral's live one)
    norms="2 + 2 * ada_rms_norm_t_cond_dim if ada_rms_norm_t_cond else 2",
)
QWEN2 = ArchitectureRow(
    mixers=windowed(Grouped(qkv_bias=True)),
    types_if="use_sliding_window",
    order=(("sliding_attention", "use_sliding_window and i >= max_window_layers"), ("full_attention", "1")),
    defaults={"max_window_layers": 28},
    harmless=("sliding_window", "max_window_layers"),
)
QWEN3 = varied(QWEN2, mixers=windowed(Grouped(qkv_bias="attention_bias", head_norms=True)))
GEMMA2 = ArchitectureRow(
    mixers=windowed(BIASED),
    order=(("full_attention", "i % 2"), ("sliding_attention", "1")),
    norms=4,
    tied=True,
    names={"window": "sliding_window=4096"},
    defaults={"head_dim": 256, "vocab_size": 256_000},
)
GEMMA3 = varied(
    GEMMA2,
    tied="tie_word_embeddings=true",
    mixers=windowed(replace(BIASED, head_norms=True)),
    order=(("full_attention", "(i + 1) % pattern == 0"), ("sliding_attention", "1")),
    names={"pattern": "sliding_window_pattern|_sliding_window_pattern=6"},
    defaults={
        "max_position_embeddings": 131_072, "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 262_208
    },
)  # fmt: skip
PHI = ArchitectureRow(
    mixers={"full_attention": (Grouped(qkv_bias=True, output_bias=True, extra="4 * head_dim if qk_layernorm else 0"),)},
    mlps={"": Dense(gated=False, bias=True)},
    other="2 * hidden + vocab",
)
PHI3 = ArchitectureRow(mixers=windowed(BIASED), order=ALL_WINDOWED)
COMMAND_R = ArchitectureRow(
    mixers={
        "full_attention": (Grouped(qkv_bias="attention_bias", output_bias="attention_bias", full_norms="use_qk_norm"),)
    },
    norms=1,
    tied=True,
)
COMMAND_R2 = ArchitectureRow(
    mixers=windowed(BIASED, plus_itself=True),
    order=(("full_attention", "(i + 1) % pattern == 0"), ("sliding_attention", "1")),
    names={
        "window": "sliding_window=4096", "pattern": "sliding_window_pattern|_sliding_window_pattern|layer_switch=4"
    },
    norms=1,
    tied=True,
)  # fmt: skip
GLM4 = ArchitectureRow(mixers={"full_attention": (Grouped(qkv_bias="attention_bias"),)}, norms=4)
FULL_BIASES = Grouped(qkv_bias=True, output_bias=True)
_GPT = {
    "hidden": "n_embd|hidden_size",
    "heads": "n_head|num_attention_heads",
    "layers": "n_layer|num_hidden_layers",
    "context": "n_positions|max_position_embeddings",
    "width": "n_inner=4 * hidden",
}
_TWO_MATRICES = Dense(gated=False, bias=True)
ARCEE = varied(LLAMA, mlps={"": Dense(gated=False, bias="mlp_bias")})
GEMMA = varied(
    GEMMA2,
    mixers={"full_attention": (Grouped(),)},
    types="",
    order=(("full_attention", "1"),),
    norms=2,
    tied="tie_word_embeddings=true",
)
GPT2 = ArchitectureRow(
    mixers={"full_attention": (replace(FULL_BIASES, kv_heads="heads", head_dim="hidden // heads"),)},
    mlps={"": _TWO_MATRICES},
    norms=4,
    tied="tie_word_embeddings=true",
    other="2 * hidden + context * hidden",
    names=_GPT,
    context="context",
)
GPTJ = ArchitectureRow(
    mixers={"full_attention": (Grouped(kv_heads="heads", head_dim="hidden // heads"),)},
    mlps={"": _TWO_MATRICES},
    norms=2,
    other="2 * hidden + vocab",
    names=_GPT,
    context="context",
    harmless=("rotary_dim",),
)
GPT_NEOX = ArchitectureRow(
    mixers={"full_attention": (Grouped(qkv_bias="attention_bias=true", output_bias="attention_bias=true"),)},
    mlps={"": _TWO_MATRICES},
    norms=4,
    other="2 * hidden",
)
GLM = ArchitectureRow(mixers={"full_attention": (Grouped(qkv_bias="attention_bias"),)})
OPT = ArchitectureRow(
    mixers={"full_attention": (Grouped(qkv_bias="enable_bias=true", output_bias="enable_bias=true"),)},
    mlps={"": Dense(gated=False, bias="enable_bias=true")},
    norms="4 if layer_norm_elementwise_affine else 0",
    other="(2 * hidden if do_layer_norm_before and not _remove_final_layer_norm else 0) + (context + 2) * hidden",
    tied="tie_word_embeddings=true",
    defaults={"do_layer_norm_before": True, "layer_norm_elementwise_affine": True},
    refused=(("word_embed_proj_dim", "(word_embed_proj_dim or hidden) != hidden", "an embedding of another width"),),
    names={"width": "ffn_dim", "context": "max_position_embeddings"},
)
OLMO = ArchitectureRow(mixers={"full_attention": (BIASED,)}, norms=0, other=0)
OLMO2 = ArchitectureRow(mixers=windowed(replace(BIASED, full_norms=True)), names={"window": "sliding_window=0"})
SEED_OSS = varied(
    LLAMA, mixers={"full_attention": (Grouped(qkv_bias="attention_bias", output_bias="attention_out_bias"),)}
)
STABLELM = ArchitectureRow(
    mixers={"full_attention": (Grouped(head_dim="hidden // heads", qkv_bias="use_qkv_bias"),)},
    norms=4,
    other="2 * hidden",
)
STARCODER2 = ArchitectureRow(
    mixers=windowed(Grouped(qkv_bias="use_bias=true", output_bias="use_bias=true")),
    order=ALL_WINDOWED,
    mlps={"": Dense(gated=False, bias="use_bias=true")},
    norms=4,
    other="2 * hidden",
    tied="tie_word_embeddings=true",
)
EXAONE4 = varied(LLAMA, mixers=windowed(replace(BIASED, head_norms=True)))
HYPERCLOVAX = varied(LLAMA, norms="4 if use_post_norm else 2")
BLOOM = ArchitectureRow(
    mixers={"full_attention": (replace(FULL_BIASES, kv_heads="heads", head_dim="hidden // heads"),)},
    mlps={"": _TWO_MATRICES},
    norms=4,
    other="4 * hidden",
    tied="tie_word_embeddings=true",
    context="seq_length|max_position_embeddings=2048",
    names={"heads": "n_head|num_attention_heads", "layers": "n_layer|num_hidden_layers", "width": "n_inner=4 * hidden"},
)
ERNIE = ArchitectureRow(mixers={"full_attention": (Grouped(),)}, tied="tie_word_embeddings=true")
MINICPM = ArchitectureRow(harmless=("scale_depth",), refused=(("num_experts", "num_experts", "MiniCPM with experts"),))
SOLAR = varied(LLAMA, harmless=("bskcn_1", "bskcn_2", "bskcn_3", "bskcn_4", "bskcn_tv"))
HUNYUAN = varied(LLAMA, mixers={"full_attention": (replace(BIASED, head_norms=True),)})
ORION = ArchitectureRow(norms=4, other="2 * hidden")
NEMOTRON = ArchitectureRow(
    mixers={"full_attention": (Grouped(qkv_bias="attention_bias", output_bias="attention_bias"),)},
    mlps={"": Dense(gated=False, bias="mlp_bias")},
    norms=4,
    other="2 * hidden",
)
APERTUS = varied(
    LLAMA, mlps={"": Dense(gated=False, bias="mlp_bias")}, mixers=windowed(replace(BIASED, head_norms="qk_norm=true"))
)
FALCON = ArchitectureRow(
    mixers={
        "full_attention": (
            Grouped(
                kv_heads="(num_kv_heads or heads) if new_decoder_architecture else 1 if multi_query else heads",
                head_dim="hidden // heads",
                qkv_bias="bias",
                output_bias="bias",
            ),
        )
    },
    mlps={"": Dense(gated=False, bias="bias", width="4 * hidden")},
    norms="4 if new_decoder_architecture or not parallel_attn else 2",
    other="2 * hidden",
    tied="tie_word_embeddings=true",
)
EXAONE = ArchitectureRow(names={"layers": "num_layers|num_hidden_layers"}, mixers={"full_attention": (Grouped(),)})
INTERNLM2 = ArchitectureRow(mixers={"full_attention": (Grouped(qkv_bias="bias", output_bias="bias"),)})
SMOLLM3 = varied(
    LLAMA, tied="tie_word_embeddings=true", order=(("sliding_attention", "use_sliding_window"), ("full_attention", "1"))
)
VAULT_GEMMA = varied(GEMMA2, norms=2, tied="tie_word_embeddings=true")
GRANITE_SWA = varied(LLAMA, tied="tie_word_embeddings=true", mixers=windowed(replace(BIASED, extra="heads")))

MUSE_GLIMMER = ArchitectureRow(
    mixers=windowed(Grouped(qkv_bias=False, output_gate=True)),
    order=(("full_attention", "(i + 1) % 4 == 0"), ("sliding_attention", "1")),
    norms=4,
    harmless=("attention_bias", "qk_scale_factor"),
)
CHATGLM = ArchitectureRow(
    mixers={
        "full_attention": (
            Grouped(
                kv_heads="multi_query_group_num if multi_query_attention else heads",
                head_dim="hidden // heads",
                qkv_bias="add_bias_linear or add_qkv_bias",
                output_bias="add_bias_linear",
            ),
        )
    },
    mlps={"": Dense(bias="add_bias_linear")},
    other="hidden if post_layer_norm else 0",
    names={"layers": "num_layers", "width": "ffn_hidden_size", "vocab": "padded_vocab_size"},
    context="seq_length",
    harmless=(
        "attention_softmax_in_fp32", "num_hidden_layers", "original_rope", "kv_channels", "vocab_size",
        "max_position_embeddings",
    ),
)  # fmt: skip
PANGU = varied(
    LLAMA,
    mixers={"full_attention": (Grouped(qkv_bias="attention_bias or bias", output_bias="attention_bias or bias"),)},
)
TELECHAT2 = ArchitectureRow(
    mixers={"full_attention": (Grouped(head_dim="hidden // heads", output_bias=True),)},
    mlps={"": Dense(extra="hidden")},
    names={"layers": "n_layer", "heads": "n_head", "width": "ffn_hidden_size"},
    context="max_position_embeddings|seq_length",
    harmless=("seq_length",),
)
PLAMO3 = ArchitectureRow(
    mixers=windowed(Grouped(head_norms=True)),
    types="",
    order=(("sliding_attention", "interleaved_sliding_window[i]"), ("full_attention", "1")),
    norms=4,
    names={"window": "window_size|sliding_window"},
    harmless=("layer_types", "sliding_window", "sliding_window_pattern"),
)
_BLOCK = "block_configs[i]"
_WIDTH = f"2 * {_BLOCK}.ffn.ffn_mult * hidden // 3"
NEMOTRON_NAS = ArchitectureRow(
    mixers={
        kind: (replace(BIASED, kv_heads=f"heads // {_BLOCK}.attention.n_heads_in_group", head_dim="hidden // heads"),)
        for kind in ("full_attention", "attention_alone")
    },
    mlps={
        "": Dense(
            width=f"-(-({_WIDTH}) // 256) * 256 if {_BLOCK}.ffn.ffn_mult else {_BLOCK}.ffn.intermediate_size",
            bias="mlp_bias",
        ),
        "attention_alone": None,
        "nothing": None,
    },
    types="",
    order=(
        ("nothing", f"{_BLOCK}.attention.no_op and {_BLOCK}.ffn.no_op"),
        ("mlp", f"{_BLOCK}.attention.no_op"),
        ("attention_alone", f"{_BLOCK}.ffn.no_op"),
        ("full_attention", "1"),
    ),
    norms=f"(not {_BLOCK}.attention.no_op) + (not {_BLOCK}.ffn.no_op)",
    harmless=("num_key_value_heads", "intermediate_size", "head_dim"),
)
MINICPM3 = ArchitectureRow(
    # keys and values come out of a latent vector, and are kept head by head, values as wide as keys
    mixers={
        "full_attention": (
            Grouped(
                kv_heads="heads",
                head_dim="wide",
                parted="heads * (q_lora_rank * wide + kv_lora_rank * (nope + value) + value * hidden)",
                whole="hidden * (q_lora_rank + kv_lora_rank + rope)",
                extra="q_lora_rank + kv_lora_rank",
            ),
        )
    },
    tied="tie_word_embeddings=true",
    names={
        "nope": "qk_nope_head_dim",
        "rope": "qk_rope_head_dim",
        "wide": "nope + rope",
        "value": "v_head_dim=hidden // heads",
    },
    harmless=("qk_head_dim", "num_key_value_heads", "dim_model_base", "attention_bias", "mlp_bias"),
)
HRM = ArchitectureRow(
    # two stacks, visited in turn
    mixers={"full_attention": (Grouped(kv_heads="heads", output_gate=True),)},
    norms=0,
    other=0,
    names={"layers": "num_layers_per_stack * H_cycles * (L_cycles + 1)"},
    repeats="i >= 2 * num_layers_per_stack",
    harmless=("prefix_lm", "attention_bias", "mlp_bias", "L_bp_cycles"),
)
_LOOP = replace(BIASED, head_dim="hidden // heads")
IQUEST_LOOP = varied(
    LLAMA,
    mixers={
        "full_attention": (replace(_LOOP, extra="heads * (head_dim + 1)"),),
        "sliding_attention": (replace(_LOOP, window="loop_window_size"),),
    },
    types="",
    order=(("sliding_attention", "i >= num_hidden_layers"), ("full_attention", "1")),
    repeats="i >= num_hidden_layers",
    names={"layers": "num_hidden_layers * loop_num"},
)

ROWS = {
    "MiniCPM3ForCausalLM": MINICPM3,
    "HrmTextForCausalLM": HRM,
    "IQuestLoopCoderForCausalLM": IQUEST_LOOP,
    "TeleChat2ForCausalLM": TELECHAT2,
    "Plamo3ForCausalLM": PLAMO3,
    "DeciLMForCausalLM": NEMOTRON_NAS,
    "PanguEmbeddedForCausalLM": PANGU,
    "ChatGLMForConditionalGeneration": CHATGLM,
    "ChatGLMModel": CHATGLM,
    "MuseGlimmerForCausalLM": MUSE_GLIMMER,
    "HunYuanDenseV1ForCausalLM": HUNYUAN,
    "SolarForCausalLM": SOLAR,
    "ApertusForCausalLM": APERTUS,
    "ArceeForCausalLM": ARCEE,
    "BloomForCausalLM": BLOOM,
    "Cohere2ForCausalLM": COMMAND_R2,
    "CohereForCausalLM": COMMAND_R,
    "CwmForCausalLM": LLAMA,
    "Ernie4_5ForCausalLM": ERNIE,
    "Exaone4ForCausalLM": EXAONE4,
    "ExaoneForCausalLM": EXAONE,
    "FalconForCausalLM": FALCON,
    "GPT2LMHeadModel": GPT2,
    "GPTJForCausalLM": GPTJ,
    "GPTNeoXForCausalLM": GPT_NEOX,
    "Gemma2ForCausalLM": GEMMA2,
    "Gemma3ForCausalLM": GEMMA3,
    "GemmaForCausalLM": GEMMA,
    "Glm4ForCausalLM": GLM4,
    "GlmForCausalLM": GLM,
    "GraniteForCausalLM": LLAMA,
    "GraniteSWAForCausalLM": GRANITE_SWA,
    "HyperCLOVAXForCausalLM": HYPERCLOVAX,
    "IQuestCoderForCausalLM": LLAMA,
    "InternLM2ForCausalLM": INTERNLM2,
    "InternLM3ForCausalLM": LLAMA,
    "Jais2ForCausalLM": NEMOTRON,
    "LLaMAForCausalLM": LLAMA,
    "LlamaForCausalLM": LLAMA,
    "MiMoForCausalLM": QWEN2,
    "MiniCPMForCausalLM": MINICPM,
    "Ministral3ForCausalLM": MISTRAL,
    "MistralForCausalLM": MISTRAL,
    "NemotronForCausalLM": NEMOTRON,
    "OPTForCausalLM": OPT,
    "Olmo2ForCausalLM": OLMO2,
    "Olmo3ForCausalLM": OLMO2,
    "OlmoForCausalLM": OLMO,
    "OrionForCausalLM": ORION,
    "Phi3ForCausalLM": PHI3,
    "PhiForCausalLM": PHI,
    "Qwen2ForCausalLM": QWEN2,
    "Qwen3ForCausalLM": QWEN3,
    "SeedOssForCausalLM": SEED_OSS,
    "SmolLM3ForCausalLM": SMOLLM3,
    "StableLmForCausalLM": STABLELM,
    "Starcoder2ForCausalLM": STARCODER2,
    "TeleChat3ForCausalLM": LLAMA,
    "TeleFLMForCausalLM": LLAMA,
    "VaultGemmaForCausalLM": VAULT_GEMMA,
}
"""Name in ``architectures`` -> row."""
