"""Families that mix attention with states: Qwen3-Next, Jamba, Bamba, Granite 4, Nemotron-H, Falcon-H1."""

from __future__ import annotations

from tokenyard.models.layer import LayerSpec, Mixer
from tokenyard.models.mlp import DenseMLP, MoE
from tokenyard.models.reading.parts import (
    Reading,
    Stack,
    dense_mlp,
    experts,
    hidden_size,
    num_layers,
    softmax_attention,
)
from tokenyard.models.reading.sparse import qwen_moe_mlp
from tokenyard.models.state_space import GatedDeltaNet, Mamba1, Mamba2

__all__ = ["bamba", "falcon_h1", "granite_hybrid", "jamba", "nemotron_h", "qwen3_next"]


def qwen3_next(reading: Reading) -> Stack:
    """Qwen3-Next: three gated delta nets, then one layer of attention with a gated output."""
    fields, hidden, count = reading.fields, hidden_size(reading), num_layers(reading)
    every = fields.count("full_attention_interval", 4)
    types = fields.per_layer("layer_types", count)
    full = [kind == "full_attention" for kind in types] or [(i + 1) % every == 0 for i in range(count)]
    fields.passed_over("sliding_window", "max_window_layers", "use_sliding_window")
    layers = []
    for i in range(count):
        mixer: Mixer = (
            softmax_attention(reading, f"model.layers.{i}.self_attn", head_norms=2, output_gate=True)
            if full[i]
            else _gated_delta_net(reading, f"model.layers.{i}.linear_attn")
        )
        layers.append(LayerSpec(mixers=(mixer,), mlp=qwen_moe_mlp(reading, i), norm_parameters=2 * hidden))
    return Stack(layers=tuple(layers), hidden_size=hidden)


def _gated_delta_net(reading: Reading, module: str) -> GatedDeltaNet:
    fields = reading.fields
    keys, key_size = fields.count("linear_num_key_heads"), fields.count("linear_key_head_dim")
    values, value_size = fields.count("linear_num_value_heads"), fields.count("linear_value_head_dim")
    kernel = fields.count("linear_conv_kernel_dim")
    return GatedDeltaNet(
        hidden_size=hidden_size(reading),
        conv_kernel=kernel,
        num_key_heads=keys,
        num_value_heads=values,
        key_head_size=key_size,
        value_head_size=value_size,
        conv_dtype=reading.dtype,
        state_dtype=_state_dtype(reading, reading.dtype),
        extra_parameters=(2 * keys * key_size + values * value_size) * kernel + 2 * values + value_size,
        weights=reading.quant.of(module),
    )


def _state_dtype(reading: Reading, default: str) -> str:
    """Of recurrent states; float32 where the file says so."""
    return reading.fields.text(reading.fields.first("mamba_ssm_dtype", "mamba_ssm_cache_dtype"), default)


def jamba(reading: Reading) -> Stack:
    """Jamba: one layer of attention in eight, experts in every other layer, Mamba 1 elsewhere."""
    fields, hidden = reading.fields, hidden_size(reading)
    period, offset = fields.count("attn_layer_period"), fields.count("attn_layer_offset", low=0)
    sparse, first = fields.count("expert_layer_period"), fields.count("expert_layer_offset", low=0)
    num_experts = fields.count("num_experts", 1)
    fields.passed_over("sliding_window", "use_mamba_kernels", "layers_block_type")
    layers = []
    for i in range(num_layers(reading)):
        attention = i % period == offset
        mixer: Mixer = (
            softmax_attention(reading, f"model.layers.{i}.self_attn")
            if attention
            else _mamba1(reading, f"model.layers.{i}.mamba")
        )
        module = f"model.layers.{i}.feed_forward"
        width = fields.count("intermediate_size")
        mlp: DenseMLP | MoE = dense_mlp(reading, module)
        if num_experts > 1 and i % sparse == first:
            mlp = experts(reading, f"{module}.experts", num_experts=num_experts, width=width)
        layers.append(LayerSpec(mixers=(mixer,), mlp=mlp, norm_parameters=2 * hidden))
    return Stack(layers=tuple(layers), hidden_size=hidden)


def _mamba1(reading: Reading, module: str) -> Mamba1:
    fields, hidden = reading.fields, hidden_size(reading)
    inner = hidden * fields.count("mamba_expand", 2)
    kernel, state = fields.count("mamba_d_conv", 4), fields.count("mamba_d_state", 16)
    rank = fields.get("mamba_dt_rank", "auto")
    rank = -(-hidden // 16) if rank == "auto" else fields.count("mamba_dt_rank")
    biases = inner * fields.flag("mamba_conv_bias", default=True)
    biases += (2 * inner + hidden) * fields.flag("mamba_proj_bias")
    return Mamba1(
        hidden_size=hidden,
        conv_kernel=kernel,
        intermediate_size=inner,
        state_size=state,
        time_step_rank=rank,
        conv_dtype=reading.dtype,
        state_dtype=_state_dtype(reading, reading.dtype),
        # convolution, time step's bias, A (float32), D, three norms
        extra_parameters=inner * kernel + biases + inner + 2 * inner * state + 2 * inner + rank + 2 * state,
        weights=reading.quant.of(module),
    )


def mamba2(
    reading: Reading, module: str, *, heads: int, head_size: int, state: int, groups: int, inner: int, kernel: int,
    default_state: str, chunk: int, normed: bool = True,
) -> Mamba2:  # fmt: skip
    """A Mamba 2 layer of these sizes."""
    channels = inner + 2 * groups * state
    return Mamba2(
        hidden_size=hidden_size(reading),
        conv_kernel=kernel,
        num_heads=heads,
        head_size=head_size,
        state_size=state,
        num_groups=groups,
        intermediate_size=inner,
        chunk_size=chunk,
        conv_dtype=reading.dtype,
        state_dtype=_state_dtype(reading, default_state),
        # convolution and its bias, A (float32), D and the time step's bias, norm
        extra_parameters=channels * (kernel + 1) + 4 * heads + inner * normed,
        weights=reading.quant.of(module),
    )


def _mamba2_of_d(reading: Reading, module: str, *, inner: int | None = None, normed: bool = True) -> Mamba2:
    """With the names ``mamba_d_*`` (Bamba, Granite, Falcon-H1)."""
    fields = reading.fields
    heads, expand = fields.count("mamba_n_heads"), fields.count("mamba_expand", 2)
    wide = inner or expand * hidden_size(reading)
    given = fields.get("mamba_d_head", "auto")
    size = wide // heads if given == "auto" else fields.count("mamba_d_head")
    fields.passed_over("mamba_conv_bias", "mamba_proj_bias")
    return mamba2(
        reading,
        module,
        heads=heads,
        head_size=size,
        state=fields.count("mamba_d_state"),
        groups=fields.count("mamba_n_groups", 1),
        inner=wide,
        kernel=fields.count("mamba_d_conv", 4),
        default_state=reading.dtype,
        chunk=fields.count("mamba_chunk_size", 256),
        normed=normed,
    )


def bamba(reading: Reading) -> Stack:
    """Bamba: attention in the layers of ``attn_layer_indices``."""
    fields, hidden = reading.fields, hidden_size(reading)
    attention = set(fields.items("attn_layer_indices"))
    bias = fields.flag("attention_bias")
    fields.passed_over("attn_rotary_emb")
    layers = []
    for i in range(num_layers(reading)):
        mixer: Mixer = (
            softmax_attention(reading, f"model.layers.{i}.self_attn", qkv_bias=bias, output_bias=bias)
            if i in attention
            else _mamba2_of_d(reading, f"model.layers.{i}.mamba")
        )
        mlp = dense_mlp(reading, f"model.layers.{i}.feed_forward", bias=fields.flag("mlp_bias"))
        layers.append(LayerSpec(mixers=(mixer,), mlp=mlp, norm_parameters=2 * hidden))
    return Stack(layers=tuple(layers), hidden_size=hidden)


def granite_hybrid(reading: Reading) -> Stack:
    """Granite 4: ``layer_types`` says mamba or attention; experts and a shared MLP in every layer."""
    fields, hidden, count = reading.fields, hidden_size(reading), num_layers(reading)
    types = fields.per_layer(fields.first("layer_types", "layers_block_type"), count)
    bias, shared = fields.flag("attention_bias"), fields.count("shared_intermediate_size")
    num_experts = fields.count("num_local_experts", 0, low=0)
    fields.passed_over("intermediate_size", "num_experts_per_tok", "position_embedding_type")
    layers = []
    for i, kind in enumerate(types):
        module = f"model.layers.{i}"
        mixer: Mixer = (
            softmax_attention(reading, f"{module}.self_attn", qkv_bias=bias, output_bias=bias)
            if kind == "attention"
            else _mamba2_of_d(reading, f"{module}.mamba")
        )
        mlp: DenseMLP | MoE
        if num_experts:
            mlp = experts(
                reading,
                f"{module}.block_sparse_moe.experts",
                num_experts=num_experts,
                width=fields.count("intermediate_size"),
                shared_width=shared,
                shared_module=f"{module}.shared_mlp",
            )
        else:
            mlp = dense_mlp(reading, f"{module}.shared_mlp", width=shared)
        layers.append(LayerSpec(mixers=(mixer,), mlp=mlp, norm_parameters=2 * hidden))
    return Stack(layers=tuple(layers), hidden_size=hidden)


def nemotron_h(reading: Reading) -> Stack:
    """Nemotron-H: every layer is one thing, by its letter: M Mamba 2, * attention, - MLP, E experts."""
    fields, hidden = reading.fields, hidden_size(reading)
    pattern = fields.text("hybrid_override_pattern")
    if not pattern or set(pattern) - set("M*-E"):
        raise fields.error("hybrid_override_pattern", "give a letter per layer: M, *, - or E")
    fields.passed_over(
        "num_hidden_layers",
        "intermediate_size",
        "use_conv_bias",
        "use_bias",
        "expand",
        "num_logits_to_keep",
    )
    fields.passed_over(
        "moe_shared_expert_intermediate_size", "n_shared_experts", "moe_intermediate_size", "layers_block_type"
    )
    layers = []
    for i, letter in enumerate(pattern):
        layer = _nemotron_layer(reading, letter, f"backbone.layers.{i}.mixer")
        layers.append(LayerSpec(mixers=layer.mixers, mlp=layer.mlp, norm_parameters=hidden))
    return Stack(layers=tuple(layers), hidden_size=hidden)


def _nemotron_layer(reading: Reading, letter: str, module: str) -> LayerSpec:
    fields = reading.fields
    if letter == "M":
        heads, size = fields.count("mamba_num_heads"), fields.count("mamba_head_dim")
        mixer = mamba2(
            reading,
            module,
            heads=heads,
            head_size=size,
            state=fields.count("ssm_state_size"),
            groups=fields.count("n_groups"),
            inner=heads * size,
            kernel=fields.count("conv_kernel", 4),
            default_state="float32",
            chunk=fields.count("chunk_size", 128),
        )
        return LayerSpec(mixers=(mixer,))
    if letter == "*":
        size_field = fields.first("head_dim", "attention_head_dim")
        return LayerSpec(mixers=(softmax_attention(reading, module, head_dim=size_field),))
    if letter == "-":
        return LayerSpec(mlp=dense_mlp(reading, module, gated=False))
    num_experts = fields.count("n_routed_experts")
    shared = fields.count("n_shared_experts", 0, low=0) * fields.count("moe_shared_expert_intermediate_size", 0, low=0)
    mlp = experts(
        reading,
        f"{module}.experts",
        num_experts=num_experts,
        width=fields.count("moe_intermediate_size"),
        shared_width=shared,
        shared_module=f"{module}.shared_experts",
        gated=False,
        extra=num_experts,
    )
    return LayerSpec(mlp=mlp)


def falcon_h1(reading: Reading) -> Stack:
    """Falcon-H1: attention and Mamba 2 side by side in every layer."""
    fields, hidden = reading.fields, hidden_size(reading)
    bias, inner = fields.flag("attention_bias"), fields.count("mamba_d_ssm", 0, low=0)
    normed = fields.flag("mamba_rms_norm")
    layers = []
    for i in range(num_layers(reading)):
        module = f"model.layers.{i}"
        attention = softmax_attention(reading, f"{module}.self_attn", qkv_bias=bias, output_bias=bias)
        mamba = _mamba2_of_d(reading, f"{module}.mamba", inner=inner or None, normed=normed)
        mlp = dense_mlp(reading, f"{module}.feed_forward", bias=fields.flag("mlp_bias"))
        layers.append(LayerSpec(mixers=(attention, mamba), mlp=mlp, norm_parameters=2 * hidden))
    return Stack(layers=tuple(layers), hidden_size=hidden)
