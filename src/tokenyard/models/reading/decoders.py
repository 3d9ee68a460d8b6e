"""Families of decoders: dense ones, and those with experts."""

from __future__ import annotations

from dataclasses import replace

from tokenyard.models.layers import Attends, DenseMLP, Indexer, LayerSpec, MoE
from tokenyard.models.reading.parts import (
    Reading,
    Stack,
    architecture,
    attends,
    dense_mlp,
    experts,
    hidden_size,
    latent_attention,
    num_layers,
    softmax_attention,
    window_by_layer,
)

__all__ = [
    "command_r",
    "command_r2",
    "deepseek",
    "gemma2",
    "gemma3",
    "glm4",
    "glm4_moe",
    "gpt_oss",
    "llama",
    "llama4",
    "minimax_m2",
    "mixtral",
    "phi",
    "phi3",
    "phimoe",
    "qwen2",
    "qwen2_moe",
    "qwen3",
    "qwen3_moe",
    "qwen_moe_mlp",
]


# ---------------------------------------------------------------------------------------------------------------------
# Families of decoders that are dense throughout: Llama, Qwen 2 and 3, Mistral, Gemma, Phi, Command-R, GLM-4.


def _uniform_window(reading: Reading) -> int:
    """A window that all layers have (Mistral 7B v0.1, Phi-3), even if it is longer than the context."""
    return reading.fields.count("sliding_window", 0, low=0)


@architecture("LlamaForCausalLM", "MistralForCausalLM")
def llama(reading: Reading) -> Stack:
    """Llama 2 and 3, Mistral: norms before attention and MLP, no biases unless told."""
    fields, hidden, count = reading.fields, hidden_size(reading), num_layers(reading)
    bias = fields.flag("attention_bias")
    window = _uniform_window(reading) if "Llama" not in reading.architecture else 0
    types = window_by_layer(reading, count)
    layers = []
    for i in range(count):
        here = types[i] or (0 if fields.get("layer_types") else window)
        attention = softmax_attention(
            reading,
            f"model.layers.{i}.self_attn",
            qkv_bias=bias,
            output_bias=bias,
            attends=attends(here),
            window=here,
        )
        mlp = dense_mlp(reading, f"model.layers.{i}.mlp", bias=fields.flag("mlp_bias"))
        layers.append(LayerSpec(mixers=(attention,), mlp=mlp, norm_parameters=2 * hidden))
    return Stack(layers=tuple(layers), hidden_size=hidden)


def _qwen_windows(reading: Reading, count: int) -> list[int]:
    """Qwen's windows are switched on by ``use_sliding_window``, from layer ``max_window_layers`` on."""
    fields = reading.fields
    fields.passed_over("sliding_window", "max_window_layers", "layer_types")
    if not fields.flag("use_sliding_window"):
        return [0] * count
    if fields.get("layer_types"):
        return window_by_layer(reading, count)
    window, first = fields.count("sliding_window"), fields.count("max_window_layers", count, low=0)
    return [window if i >= first else 0 for i in range(count)]


def _qwen(reading: Reading, *, qkv_bias: bool, head_norms: int) -> Stack:
    hidden, count = hidden_size(reading), num_layers(reading)
    layers = []
    for i, window in enumerate(_qwen_windows(reading, count)):
        attention = softmax_attention(
            reading,
            f"model.layers.{i}.self_attn",
            qkv_bias=qkv_bias,
            head_norms=head_norms,
            attends=attends(window),
            window=window,
        )
        mlp = dense_mlp(reading, f"model.layers.{i}.mlp")
        layers.append(LayerSpec(mixers=(attention,), mlp=mlp, norm_parameters=2 * hidden))
    return Stack(layers=tuple(layers), hidden_size=hidden)


@architecture("Qwen2ForCausalLM")
def qwen2(reading: Reading) -> Stack:
    """Qwen 2 and 2.5: biases on queries, keys and values."""
    return _qwen(reading, qkv_bias=True, head_norms=0)


@architecture("Qwen3ForCausalLM")
def qwen3(reading: Reading) -> Stack:
    """Qwen 3: norms of queries and keys."""
    return _qwen(reading, qkv_bias=reading.fields.flag("attention_bias"), head_norms=2)


@architecture(
    "Gemma2ForCausalLM",
    gemma2={"head_dim": 256, "sliding_window": 4096, "tie_word_embeddings": True, "vocab_size": 256_000},
)
def gemma2(reading: Reading) -> Stack:
    """Gemma 2: every other layer has a window; four norms per layer."""
    count = num_layers(reading)
    types = reading.fields.items("layer_types")
    window = reading.fields.count("sliding_window", 4096)
    windows = window_by_layer(reading, count) if types else [window if i % 2 == 0 else 0 for i in range(count)]
    return _gemma(reading, windows, head_norms=0)


@architecture(
    "Gemma3ForCausalLM",
    gemma3_text={
        "head_dim": 256,
        "max_position_embeddings": 131_072,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "sliding_window": 4096,
        "tie_word_embeddings": True,
        "vocab_size": 262_208,
    },
)
def gemma3(reading: Reading) -> Stack:
    """Gemma 3: five layers with a window, then one without; norms of queries and keys."""
    count, fields = num_layers(reading), reading.fields
    pattern = fields.count(fields.first("sliding_window_pattern", "_sliding_window_pattern"), 6)
    window = fields.count("sliding_window", 4096)
    types = fields.items("layer_types")
    windows = [0 if (i + 1) % pattern == 0 else window for i in range(count)]
    return _gemma(reading, window_by_layer(reading, count) if types else windows, head_norms=2)


def _gemma(reading: Reading, windows: list[int], *, head_norms: int) -> Stack:
    hidden, layers = hidden_size(reading), []
    for i, window in enumerate(windows):
        attention = softmax_attention(
            reading, f"model.layers.{i}.self_attn", head_norms=head_norms, attends=attends(window), window=window
        )
        mlp = dense_mlp(reading, f"model.layers.{i}.mlp")
        layers.append(LayerSpec(mixers=(attention,), mlp=mlp, norm_parameters=4 * hidden))
    tied = reading.fields.flag("tie_word_embeddings", default=True)
    return Stack(layers=tuple(layers), hidden_size=hidden, tie_word_embeddings=tied)


@architecture("PhiForCausalLM")
def phi(reading: Reading) -> Stack:
    """Phi-1.5 and Phi-2: one norm for both branches, biases everywhere, the head's included."""
    fields, hidden = reading.fields, hidden_size(reading)
    if fields.flag("qk_layernorm"):
        reading.not_modelled("qk_layernorm", "a norm of queries and keys")
    layers = tuple(
        LayerSpec(
            mixers=(softmax_attention(reading, f"model.layers.{i}.self_attn", qkv_bias=True, output_bias=True),),
            mlp=_plain_mlp(reading, f"model.layers.{i}.mlp"),
            norm_parameters=2 * hidden,
        )
        for i in range(num_layers(reading))
    )
    return Stack(layers=layers, hidden_size=hidden, other_parameters=2 * hidden + fields.count("vocab_size"))


def _plain_mlp(reading: Reading, module: str) -> DenseMLP:
    """Two matrices with biases."""
    return dense_mlp(reading, module, gated=False, bias=True, width=reading.fields.count("intermediate_size"))


@architecture("Phi3ForCausalLM")
def phi3(reading: Reading) -> Stack:
    """Phi-3 and Phi-4: as Llama, with a window that all layers have."""
    hidden, window = hidden_size(reading), _uniform_window(reading)
    bias = reading.fields.flag("attention_bias")
    layers = tuple(
        LayerSpec(
            mixers=(
                softmax_attention(
                    reading,
                    f"model.layers.{i}.self_attn",
                    qkv_bias=bias,
                    output_bias=bias,
                    attends=attends(window),
                    window=window,
                ),
            ),
            mlp=dense_mlp(reading, f"model.layers.{i}.mlp"),
            norm_parameters=2 * hidden,
        )
        for i in range(num_layers(reading))
    )
    return Stack(layers=layers, hidden_size=hidden)


@architecture("CohereForCausalLM", cohere={"tie_word_embeddings": True})
def command_r(reading: Reading) -> Stack:
    """Command-R: attention and MLP side by side behind one norm."""
    fields, hidden = reading.fields, hidden_size(reading)
    bias, normed = fields.flag("attention_bias"), fields.flag("use_qk_norm")
    layers = tuple(
        LayerSpec(
            mixers=(
                softmax_attention(
                    reading, f"model.layers.{i}.self_attn", qkv_bias=bias, output_bias=bias, full_norms=normed
                ),
            ),
            mlp=dense_mlp(reading, f"model.layers.{i}.mlp"),
            norm_parameters=hidden,
        )
        for i in range(num_layers(reading))
    )
    tied = fields.flag("tie_word_embeddings", default=True)
    return Stack(layers=layers, hidden_size=hidden, tie_word_embeddings=tied)


@architecture("Cohere2ForCausalLM", cohere2={"tie_word_embeddings": True, "sliding_window": 4096})
def command_r2(reading: Reading) -> Stack:
    """Command-R7B and Command A: three layers with a window, then one without."""
    fields, hidden, count = reading.fields, hidden_size(reading), num_layers(reading)
    pattern = fields.count(fields.first("sliding_window_pattern", "_sliding_window_pattern", "layer_switch"), 4)
    window = fields.count("sliding_window", 4096)
    types = window_by_layer(reading, count) if fields.items("layer_types") else []
    local = [bool(kind) for kind in types] or [(i + 1) % pattern != 0 for i in range(count)]
    windows = [window + 1 if here else 0 for here in local]  # so many tokens before a token, and itself
    bias = fields.flag("attention_bias")
    layers = tuple(
        LayerSpec(
            mixers=(
                softmax_attention(
                    reading,
                    f"model.layers.{i}.self_attn",
                    qkv_bias=bias,
                    output_bias=bias,
                    attends=attends(here),
                    window=here,
                ),
            ),
            mlp=dense_mlp(reading, f"model.layers.{i}.mlp"),
            norm_parameters=hidden,
        )
        for i, here in enumerate(windows)
    )
    tied = fields.flag("tie_word_embeddings", default=True)
    return Stack(layers=layers, hidden_size=hidden, tie_word_embeddings=tied)


@architecture("Glm4ForCausalLM")
def glm4(reading: Reading) -> Stack:
    """GLM-4 (0414): four norms per layer, biases on queries, keys and values."""
    hidden = hidden_size(reading)
    bias = reading.fields.flag("attention_bias")
    layers = tuple(
        LayerSpec(
            mixers=(softmax_attention(reading, f"model.layers.{i}.self_attn", qkv_bias=bias),),
            mlp=dense_mlp(reading, f"model.layers.{i}.mlp"),
            norm_parameters=4 * hidden,
        )
        for i in range(num_layers(reading))
    )
    return Stack(layers=layers, hidden_size=hidden)


# ---------------------------------------------------------------------------------------------------------------------
# Families with experts: Mixtral, Qwen MoE, gpt-oss, DeepSeek, Kimi-K2, MiniMax-M2, GLM-4.5, Llama 4, Phi-3.5-MoE.


@architecture("MixtralForCausalLM")
def mixtral(reading: Reading) -> Stack:
    """Mixtral: every layer has experts."""
    return _all_experts(reading, "block_sparse_moe", width="intermediate_size")


@architecture("PhiMoEForCausalLM")
def phimoe(reading: Reading) -> Stack:
    """Phi-3.5-MoE: Mixtral with biases and norms that have them."""
    stack = _all_experts(reading, "block_sparse_moe", width="intermediate_size", norms=4, biases=True)
    head = reading.fields.count("vocab_size") * reading.fields.flag("lm_head_bias")
    return replace(stack, other_parameters=2 * stack.hidden_size + head)


def _all_experts(reading: Reading, module: str, *, width: str, norms: int = 2, biases: bool = False) -> Stack:
    fields, hidden = reading.fields, hidden_size(reading)
    bias = biases and fields.flag("attention_bias")
    window = fields.count("sliding_window", 0, low=0)
    layers = []
    for i in range(num_layers(reading)):
        attention = softmax_attention(
            reading,
            f"model.layers.{i}.self_attn",
            qkv_bias=bias,
            output_bias=bias,
            attends=attends(window),
            window=window,
        )
        mlp = experts(
            reading,
            f"model.layers.{i}.{module}.experts",
            num_experts=fields.count("num_local_experts"),
            width=fields.count(width),
        )
        layers.append(LayerSpec(mixers=(attention,), mlp=mlp, norm_parameters=norms * hidden))
    return Stack(layers=tuple(layers), hidden_size=hidden)


def qwen_moe_mlp(reading: Reading, i: int, *, prefix: str = "model.layers") -> DenseMLP | MoE:
    """Experts in every ``decoder_sparse_step``-th layer that is not in ``mlp_only_layers``, else a dense MLP."""
    fields, hidden = reading.fields, hidden_size(reading)
    module = f"{prefix}.{i}.mlp"
    step = fields.count("decoder_sparse_step", 1)
    num_experts = fields.count(fields.first("num_experts", "num_local_experts"), 0, low=0)
    fields.passed_over("intermediate_size")
    if not num_experts or i in fields.items("mlp_only_layers") or (i + 1) % step:
        return dense_mlp(reading, module)
    shared = fields.count("shared_expert_intermediate_size", 0, low=0)
    return experts(
        reading,
        f"{module}.experts",
        num_experts=num_experts,
        width=fields.count("moe_intermediate_size"),
        shared_width=shared,
        shared_module=f"{module}.shared_expert",
        extra=hidden if shared else 0,
    )


def _qwen_moe(reading: Reading, *, qkv_bias: bool, head_norms: int) -> Stack:
    fields, hidden = reading.fields, hidden_size(reading)
    fields.passed_over("sliding_window", "max_window_layers", "layer_types")
    if fields.flag("use_sliding_window"):
        reading.not_modelled("use_sliding_window", "a window in a mixture of experts")
    layers = []
    for i in range(num_layers(reading)):
        attention = softmax_attention(reading, f"model.layers.{i}.self_attn", qkv_bias=qkv_bias, head_norms=head_norms)
        layers.append(LayerSpec(mixers=(attention,), mlp=qwen_moe_mlp(reading, i), norm_parameters=2 * hidden))
    return Stack(layers=tuple(layers), hidden_size=hidden)


@architecture("Qwen2MoeForCausalLM")
def qwen2_moe(reading: Reading) -> Stack:
    """Qwen 2 MoE: a shared expert with a gate of its own."""
    return _qwen_moe(reading, qkv_bias=reading.fields.flag("qkv_bias", default=True), head_norms=0)


@architecture("Qwen3MoeForCausalLM")
def qwen3_moe(reading: Reading) -> Stack:
    """Qwen 3 MoE."""
    return _qwen_moe(reading, qkv_bias=reading.fields.flag("attention_bias"), head_norms=2)


@architecture("GptOssForCausalLM")
def gpt_oss(reading: Reading) -> Stack:
    """gpt-oss: windows and full attention in turns, biases everywhere, sinks, experts in MXFP4."""
    fields, hidden, count = reading.fields, hidden_size(reading), num_layers(reading)
    num_experts, width = fields.count("num_local_experts"), fields.count("intermediate_size")
    fields.passed_over("attention_bias", "initial_context_length", "experts_per_token")
    if not fields.items("layer_types"):
        window = fields.count("sliding_window", 128)
        windows = [window if i % 2 == 0 else 0 for i in range(count)]
    else:
        windows = window_by_layer(reading, count)
    layers = []
    for i, window in enumerate(windows):
        attention = softmax_attention(
            reading,
            f"model.layers.{i}.self_attn",
            attends=attends(window),
            window=window,
            qkv_bias=True,
            output_bias=True,
            extra=fields.count("num_attention_heads"),
        )
        biases = num_experts * (2 * width + hidden) + num_experts
        mlp = experts(reading, f"model.layers.{i}.mlp.experts", num_experts=num_experts, width=width, extra=biases)
        if mlp.weights.name == "mxfp4":
            mlp = replace(mlp, hidden_multiple=256, width_multiple=128)
        layers.append(LayerSpec(mixers=(attention,), mlp=mlp, norm_parameters=2 * hidden))
    return Stack(layers=tuple(layers), hidden_size=hidden)


@architecture("DeepseekV2ForCausalLM", "DeepseekV32ForCausalLM", "DeepseekV3ForCausalLM")
def deepseek(reading: Reading) -> Stack:
    """DeepSeek V2, V3, R1, V3.2 and Kimi-K2: latent attention, some dense layers first, shared experts."""
    fields, hidden, count = reading.fields, hidden_size(reading), num_layers(reading)
    if fields.get("kv_lora_rank") is None:
        raise fields.missing("kv_lora_rank", "DeepSeek without latent attention is not modelled")
    dense, every = fields.count("first_k_dense_replace", 0, low=0), fields.count("moe_layer_freq", 1)
    topk = fields.count("index_topk", 0, low=0)
    indexer = None
    if topk:
        indexer = Indexer(num_heads=fields.count("index_n_heads"), head_size=fields.count("index_head_dim"), topk=topk)
    layers = []
    for i in range(count):
        attention = latent_attention(reading, f"model.layers.{i}.self_attn")
        if indexer is not None:
            norm = 2 * indexer.head_size
            attention = replace(attention, indexer=indexer, extra_parameters=attention.extra_parameters + norm)
        mlp: DenseMLP | MoE
        is_dense = i < dense or i % every
        mlp = dense_mlp(reading, f"model.layers.{i}.mlp") if is_dense else _deepseek_experts(reading, i)
        layers.append(LayerSpec(mixers=(attention,), mlp=mlp, norm_parameters=2 * hidden))
    return Stack(layers=tuple(layers), hidden_size=hidden)


def _deepseek_experts(reading: Reading, i: int) -> MoE:
    fields = reading.fields
    num_experts, width = fields.count("n_routed_experts"), fields.count("moe_intermediate_size")
    shared = fields.count("n_shared_experts", 0, low=0)
    corrected = fields.text("topk_method") == "noaux_tc"
    return experts(
        reading,
        f"model.layers.{i}.mlp.experts",
        num_experts=num_experts,
        width=width,
        shared_width=shared * width,
        shared_module=f"model.layers.{i}.mlp.shared_experts",
        extra=num_experts if corrected else 0,
    )


@architecture("Glm4MoeForCausalLM")
def glm4_moe(reading: Reading) -> Stack:
    """GLM-4.5 and 4.6: grouped-query attention with DeepSeek's layout of experts."""
    fields, hidden = reading.fields, hidden_size(reading)
    bias, normed = fields.flag("attention_bias"), fields.flag("use_qk_norm")
    dense = fields.count("first_k_dense_replace", 0, low=0)
    layers = []
    for i in range(num_layers(reading)):
        attention = softmax_attention(
            reading, f"model.layers.{i}.self_attn", qkv_bias=bias, head_norms=2 if normed else 0
        )
        mlp: DenseMLP | MoE
        if i < dense:
            mlp = dense_mlp(reading, f"model.layers.{i}.mlp")
        else:
            mlp = _deepseek_experts(reading, i)
            mlp = replace(mlp, extra_parameters=hidden * mlp.num_experts + mlp.num_experts)
        layers.append(LayerSpec(mixers=(attention,), mlp=mlp, norm_parameters=2 * hidden))
    return Stack(layers=tuple(layers), hidden_size=hidden)


@architecture("MiniMaxM2ForCausalLM")
def minimax_m2(reading: Reading) -> Stack:
    """MiniMax-M2: norms of queries and keys over all heads, a correction bias for the router."""
    fields, hidden = reading.fields, hidden_size(reading)
    fields.passed_over("attn_type_list", "mtp_transformer_layers", "num_mtp_modules", "use_mtp", "qk_norm_type")
    if 0 in fields.items("attn_type_list"):
        reading.not_modelled("attn_type_list", "lightning attention")
    if fields.count("shared_intermediate_size", 0, low=0):
        reading.not_modelled("shared_intermediate_size", "a shared expert of MiniMax")
    num_experts = fields.count("num_local_experts")
    layers = []
    for i in range(num_layers(reading)):
        attention = softmax_attention(
            reading, f"model.layers.{i}.self_attn", full_norms=fields.flag("use_qk_norm", default=True)
        )
        mlp = experts(
            reading,
            f"model.layers.{i}.block_sparse_moe.experts",
            num_experts=num_experts,
            width=fields.count("intermediate_size"),
            extra=num_experts * fields.flag("use_routing_bias"),
        )
        layers.append(LayerSpec(mixers=(attention,), mlp=mlp, norm_parameters=2 * hidden))
    return Stack(layers=tuple(layers), hidden_size=hidden)


@architecture("Llama4ForCausalLM")
def llama4(reading: Reading) -> Stack:
    """Llama 4: chunks in three layers of four; experts in every ``interleave_moe_layer_step``-th layer."""
    fields, hidden, count = reading.fields, hidden_size(reading), num_layers(reading)
    chunk = fields.count("attention_chunk_size", 0, low=0)
    every, rope = fields.count("no_rope_layer_interval", 4), fields.per_layer("no_rope_layers", count)
    chunked = [bool(use) for use in rope] if rope else [(i + 1) % every != 0 for i in range(count)]
    step = fields.count("interleave_moe_layer_step", 1)
    sparse = fields.items("moe_layers") or [i for i in range(count) if (i + 1) % step == 0]
    fields.passed_over("layer_types", "use_qk_norm")  # that norm has no weights
    prefix = "language_model.model.layers" if reading.outer is not fields else "model.layers"
    layers = []
    for i in range(count):
        local = chunked[i] and chunk
        attention = softmax_attention(
            reading,
            f"{prefix}.{i}.self_attn",
            attends=Attends.CHUNKED if local else Attends.FULL,
            window=chunk if local else 0,
        )
        mlp: DenseMLP | MoE
        if i in sparse:
            width = fields.count("intermediate_size")
            mlp = experts(
                reading,
                f"{prefix}.{i}.feed_forward.experts",
                num_experts=fields.count("num_local_experts"),
                width=width,
                shared_width=width,
                shared_module=f"{prefix}.{i}.feed_forward.shared_expert",
            )
        else:
            dense = fields.count("intermediate_size_mlp")
            mlp = dense_mlp(reading, f"{prefix}.{i}.feed_forward", width=dense)
        layers.append(LayerSpec(mixers=(attention,), mlp=mlp, norm_parameters=2 * hidden))
    fields.passed_over("intermediate_size_mlp")
    return Stack(layers=tuple(layers), hidden_size=hidden)
