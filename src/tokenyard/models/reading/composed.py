"""Families that mix attention with states, and models that see or hear."""

from __future__ import annotations

from dataclasses import replace

from tokenyard.models.layers import (
    Attends,
    DenseMLP,
    GatedDeltaNet,
    LayerSpec,
    Mamba1,
    Mamba2,
    Mixer,
    MoE,
    SoftmaxAttention,
)
from tokenyard.models.reading.decoders import gemma3, llama, llama4, qwen2, qwen_moe_mlp
from tokenyard.models.reading.fields import Fields
from tokenyard.models.reading.parts import (
    Reading,
    Stack,
    architecture,
    dense_mlp,
    experts,
    hidden_size,
    num_layers,
    softmax_attention,
)
from tokenyard.models.spec import EncoderSpec

__all__ = [
    "bamba",
    "falcon_h1",
    "gemma3_vision",
    "granite_hybrid",
    "jamba",
    "llama4_vision",
    "mistral3",
    "nemotron_h",
    "qwen2_5_vl",
    "qwen3_next",
    "whisper",
]


# ---------------------------------------------------------------------------------------------------------------------
# Families that mix attention with states: Qwen3-Next, Jamba, Bamba, Granite 4, Nemotron-H, Falcon-H1.


@architecture(
    "Qwen3NextForCausalLM",
    qwen3_next={
        "full_attention_interval": 4,
        "head_dim": 256,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
        "linear_value_head_dim": 128,
    },
)
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


@architecture("JambaForCausalLM")
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


@architecture("BambaForCausalLM")
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


@architecture("GraniteMoeHybridForCausalLM")
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


@architecture("NemotronHForCausalLM")
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


@architecture("FalconH1ForCausalLM")
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


# ---------------------------------------------------------------------------------------------------------------------
# Models that see or hear: a decoder of another family behind a vision or audio tower.


def _tower(reading: Reading, blocks: int, replicated: int, max_tokens: int) -> tuple[EncoderSpec, ...]:
    return (
        EncoderSpec(
            kind="vision",
            num_parameters=blocks + replicated,
            replicated_parameters=replicated,
            max_tokens_per_item=max_tokens,
            weights=reading.quant.plain,
        ),
    )


def _section(reading: Reading, name: str = "vision_config") -> Fields:
    section = reading.outer.section(name)
    if section is None:
        raise reading.outer.missing(name, "give the encoder's sizes")
    return section


def _block(hidden: int, width: int, *, attention_bias: int, mlp_bias: int) -> int:
    """A transformer block of an encoder: four square matrices, two wide ones, two norms with biases."""
    return 4 * hidden * hidden + 2 * hidden * width + attention_bias + mlp_bias + 4 * hidden


@architecture("Gemma3ForConditionalGeneration")
def gemma3_vision(reading: Reading) -> Stack:
    """Gemma 3 with SigLIP."""
    stack, vision = gemma3(reading), _section(reading)
    hidden, width, count = (
        vision.count("hidden_size"),
        vision.count("intermediate_size"),
        vision.count("num_hidden_layers"),
    )
    patch, image = vision.count("patch_size", 14), vision.count("image_size", 224)
    block = _block(hidden, width, attention_bias=4 * hidden, mlp_bias=width + hidden)
    embeddings = 3 * patch * patch * hidden + hidden + (image // patch) ** 2 * hidden
    projector = hidden * stack.hidden_size + hidden
    tokens = reading.outer.count("mm_tokens_per_image", 256)
    encoders = _tower(reading, count * block, embeddings + 2 * hidden + projector, tokens)
    return replace(stack, encoders=encoders)


@architecture("Llama4ForConditionalGeneration")
def llama4_vision(reading: Reading) -> Stack:
    """Llama 4 with its vision tower."""
    stack, vision = llama4(reading), _section(reading)
    hidden, width, count = (
        vision.count("hidden_size"),
        vision.count("intermediate_size"),
        vision.count("num_hidden_layers"),
    )
    patch, image = vision.count("patch_size", 14), vision.count("image_size", 448)
    into, out = vision.count("projector_input_dim", 4096), vision.count("projector_output_dim", 4096)
    patches = (image // patch) ** 2
    block = _block(hidden, width, attention_bias=4 * hidden, mlp_bias=width + hidden)
    embeddings = 3 * patch * patch * hidden + hidden + (patches + 1) * hidden + 4 * hidden
    adapter = int(hidden / vision.number("pixel_shuffle_ratio", 0.5) ** 2) * into + into * out
    projector = vision.count("vision_output_dim", 4096) * stack.hidden_size
    encoders = _tower(reading, count * block + adapter, embeddings + projector, patches // 4)
    return replace(stack, encoders=encoders)


@architecture("Qwen2_5_VLForConditionalGeneration")
def qwen2_5_vl(reading: Reading) -> Stack:
    """Qwen2.5-VL: a tower with windows and gated MLPs."""
    stack, vision = qwen2(reading), _section(reading)
    hidden, width, count = vision.count("hidden_size"), vision.count("intermediate_size"), vision.count("depth")
    merged = hidden * vision.count("spatial_merge_size", 2) ** 2
    block = 4 * hidden * hidden + 4 * hidden + 3 * hidden * width + 2 * width + hidden + 2 * hidden
    channels = vision.count(vision.first("in_chans", "in_channels"), 3)
    embeddings = channels * vision.count("temporal_patch_size", 2) * vision.count("patch_size", 14) ** 2 * hidden
    merger = (
        hidden + merged * merged + merged + merged * vision.count("out_hidden_size") + vision.count("out_hidden_size")
    )
    return replace(stack, encoders=_tower(reading, count * block + merger, embeddings, 16_384))


@architecture("Mistral3ForConditionalGeneration")
def mistral3(reading: Reading) -> Stack:
    """Mistral Small 3.1 with Pixtral's tower."""
    stack, vision = llama(reading), _section(reading)
    hidden, width, count = (
        vision.count("hidden_size"),
        vision.count("intermediate_size"),
        vision.count("num_hidden_layers"),
    )
    patch, merge = vision.count("patch_size", 14), reading.outer.count("spatial_merge_size", 2)
    block = 4 * hidden * hidden + 3 * hidden * width + 2 * hidden
    embeddings = vision.count("num_channels", 3) * patch * patch * hidden + hidden
    projector = hidden + hidden * merge * merge * hidden + hidden * stack.hidden_size + stack.hidden_size**2
    tokens = (vision.count("image_size", 1540) // patch // merge) ** 2
    return replace(stack, encoders=_tower(reading, count * block + projector, embeddings, tokens))


@architecture(
    "WhisperForConditionalGeneration",
    whisper={"max_source_positions": 1500, "max_target_positions": 448, "vocab_size": 51_865},
)
def whisper(reading: Reading) -> Stack:
    """Whisper: an audio encoder; decoder layers attend to themselves and to its output."""
    fields = reading.fields
    hidden, positions = fields.count("d_model"), fields.count("max_source_positions", 1500)
    heads, width = fields.count("decoder_attention_heads"), fields.count("decoder_ffn_dim")
    targets = fields.count("max_target_positions", 448)
    fields.passed_over("num_hidden_layers", "encoder_attention_heads", "max_length")

    def attention(attends: Attends) -> SoftmaxAttention:
        return SoftmaxAttention(
            hidden_size=hidden,
            num_heads=heads,
            num_kv_heads=heads,
            head_size=hidden // heads,
            attends=attends,
            extra_parameters=4 * hidden,
            weights=reading.quant.of("model.decoder.layers.0.self_attn"),
        )

    mlp = DenseMLP(
        hidden_size=hidden,
        width=width,
        gated=False,
        extra_parameters=width + hidden,
        weights=reading.quant.of("model.decoder.layers.0.fc1"),
    )
    layer = LayerSpec(mixers=(attention(Attends.FULL), attention(Attends.CROSS)), mlp=mlp, norm_parameters=6 * hidden)
    wide = fields.count("encoder_ffn_dim")
    block = _block(hidden, wide, attention_bias=4 * hidden, mlp_bias=wide + hidden)
    stem = 3 * hidden * fields.count("num_mel_bins", 80) + 3 * hidden * hidden + 2 * hidden + positions * hidden
    encoder = EncoderSpec(
        kind="audio",
        num_parameters=fields.count("encoder_layers") * block + stem + 2 * hidden,
        replicated_parameters=stem + 2 * hidden,
        max_tokens_per_item=positions,
        weights=reading.quant.plain,
    )
    return Stack(
        layers=(layer,) * fields.count("decoder_layers"),
        hidden_size=hidden,
        max_model_len=targets,
        tie_word_embeddings=True,
        other_parameters=2 * hidden + targets * hidden,
        encoders=(encoder,),
        max_encoder_tokens=positions,
        replicated_embedding=True,
    )
