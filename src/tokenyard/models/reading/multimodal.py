"""Models that see or hear: a decoder of another family behind a vision or audio tower."""

from __future__ import annotations

from dataclasses import replace

from tokenyard.models.attention import Attends, SoftmaxAttention
from tokenyard.models.encoder import EncoderSpec
from tokenyard.models.layer import LayerSpec
from tokenyard.models.mlp import DenseMLP
from tokenyard.models.reading.dense import gemma3, llama, qwen2
from tokenyard.models.reading.fields import Fields
from tokenyard.models.reading.parts import Reading, Stack
from tokenyard.models.reading.sparse import llama4

__all__ = ["gemma3_vision", "llama4_vision", "mistral3", "qwen2_5_vl", "whisper"]


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
