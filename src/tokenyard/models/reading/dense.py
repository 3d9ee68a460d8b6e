"""Families of decoders that are dense throughout: Llama, Qwen 2 and 3, Mistral, Gemma, Phi, Command-R, GLM-4."""

from __future__ import annotations

from tokenyard.models.layer import LayerSpec
from tokenyard.models.mlp import DenseMLP
from tokenyard.models.reading.parts import (
    Reading,
    Stack,
    attends,
    dense_mlp,
    hidden_size,
    num_layers,
    softmax_attention,
    window_by_layer,
)

__all__ = ["command_r", "command_r2", "gemma2", "gemma3", "glm4", "llama", "phi", "phi3", "qwen2", "qwen3"]


def _uniform_window(reading: Reading) -> int:
    """A window that all layers have (Mistral 7B v0.1, Phi-3), even if it is longer than the context."""
    return reading.fields.count("sliding_window", 0, low=0)


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


def qwen2(reading: Reading) -> Stack:
    """Qwen 2 and 2.5: biases on queries, keys and values."""
    return _qwen(reading, qkv_bias=True, head_norms=0)


def qwen3(reading: Reading) -> Stack:
    """Qwen 3: norms of queries and keys."""
    return _qwen(reading, qkv_bias=reading.fields.flag("attention_bias"), head_norms=2)


def gemma2(reading: Reading) -> Stack:
    """Gemma 2: every other layer has a window; four norms per layer."""
    count = num_layers(reading)
    types = reading.fields.items("layer_types")
    window = reading.fields.count("sliding_window", 4096)
    windows = window_by_layer(reading, count) if types else [window if i % 2 == 0 else 0 for i in range(count)]
    return _gemma(reading, windows, head_norms=0)


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
