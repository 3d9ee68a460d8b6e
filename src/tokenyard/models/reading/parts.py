"""A file being read, and what its row of the table makes of it."""

from __future__ import annotations

from dataclasses import field

from tokenyard.models.layers import LayerSpec
from tokenyard.models.reading.fields import Fields
from tokenyard.models.reading.quantization import Quantization
from tokenyard.models.recorded import recorded
from tokenyard.models.spec import EncoderSpec
from tokenyard.quick_dataclass import dataclass


def listed(fact: str, architecture: str) -> bool:
    """Whether this holds for a pipeline of vLLM, as ``lab/record_stages.py`` has seen when it built two stages.

    ``fact`` is "no pipeline", "embedding on every stage" or "head on every stage".
    """
    return architecture in recorded("stages")[fact]


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
    images_attend_both_ways: bool = False
    predicting_layers: tuple[LayerSpec, ...] = ()
    joins_once: bool = False
    embedding_on_every_stage: bool = False
    encoders_on_every_stage: bool = False
    attention_first: bool = False
    one_gpu: bool = False
    least_state: int = 0
    """Elements of a state that blocks have room for, whether or not a layer keeps one."""
