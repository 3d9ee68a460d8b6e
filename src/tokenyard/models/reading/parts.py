"""A file being read, and what its row of the table makes of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from tokenyard.models.layers import LayerSpec
from tokenyard.models.reading.fields import Fields
from tokenyard.models.reading.quantization import Quantization
from tokenyard.models.spec import EncoderSpec

MOST_LAYERS = 10_000
"""Far more than any model has; a file that names more is a mistake, or is meant to take long."""

_OPENAI = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "image_size": 224}
SECTION_DEFAULTS: dict[str, dict[str, int]] = {
    "clip_vision_model": {**_OPENAI, "patch_size": 32},
    "idefics3_vision": {**_OPENAI, "hidden_size": 1152, "patch_size": 32},
    "llama": {
        "hidden_size": 4096, "intermediate_size": 11_008, "num_hidden_layers": 32, "num_attention_heads": 32,
        "vocab_size": 32_000, "max_position_embeddings": 2048,
    },
    "mistral": {
        "hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 32_000, "max_position_embeddings": 131_072,
    },
    "pixtral": {
        "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "image_size": 1024, "patch_size": 16,
    },
    "qwen2": {
        "hidden_size": 4096, "intermediate_size": 22_016, "num_hidden_layers": 32, "num_attention_heads": 32,
        "vocab_size": 151_936, "max_position_embeddings": 32_768,
    },
    "siglip_vision_model": {**_OPENAI, "patch_size": 16},
    "smolvlm_vision": {**_OPENAI, "hidden_size": 1152, "patch_size": 32},
}  # fmt: skip
"""What sections of a file leave out, by their ``model_type``: as the configuration class fills it in."""


@dataclass(kw_only=True)
class ConfigReader:
    """A file being read."""

    fields: Fields
    """Fields of the language model: ``text_config`` where there is one."""
    outer: Fields
    """Fields of the file."""
    quant: Quantization
    architecture: str
    dtype: str
    ignore: bool = False
    """Note what is not modelled instead of raising an error."""
    ignored: list[str] = field(default_factory=list)

    def not_modelled(self, field_name: str, what: str) -> None:
        """Raise the error that names this field, or note it if asked to ignore it."""
        if not self.ignore:
            fix = f"{what} is not modelled: --ignore-unmodelled goes on without it"
            raise self.fields.error(field_name, fix)
        self.ignored.append(f"{field_name}: {what}")


@dataclass(frozen=True, kw_only=True)
class Stack:
    """What a row makes of a file."""

    layers: tuple[LayerSpec, ...]
    hidden_size: int
    vocab_size: int
    max_model_len: int = 0
    """0: as ``max_position_embeddings`` and its scaling say."""
    tie_word_embeddings: bool | None = None
    """None: as the file says."""
    ties: bool = False
    """What a file that says nothing means."""
    other_parameters: int = 0
    embedding_parameters: int = 0
    encoders: tuple[EncoderSpec, ...] = ()
    max_encoder_tokens: int = 0
    replicated_embedding: bool = False
