"""What encodes pictures or sound: the piece of a row that becomes an encoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenyard.models.class_defaults import class_defaults, section_type
from tokenyard.models.expressions import Expressions, Fill
from tokenyard.models.fields import Fields
from tokenyard.models.formats import WeightFormat
from tokenyard.models.mixers import Attends, SoftmaxAttention
from tokenyard.models.reading.pieces import ConfigReader, Part
from tokenyard.models.spec import EncoderSpec

__all__ = ["Kept", "Tower"]


class Kept(Part, frozen=True, kw_only=True):
    """What every block of a tower keeps of a stream of sound; expressions are over the tower's section."""

    heads: Fill
    head_dim: Fill
    vectors_per_token: Fill
    window: Fill
    """The window in tokens of the decoder."""

    def build(self, values: Expressions, hidden: int, weights: WeightFormat) -> SoftmaxAttention:
        """One block's attention."""
        heads = values.count(self.heads)
        return SoftmaxAttention(
            hidden_size=hidden,
            num_heads=heads,
            num_kv_heads=heads,
            head_size=values.count(self.head_dim),
            attends=Attends.SLIDING_WINDOW,
            window=values.count(self.window),
            vectors_per_token=values.count(self.vectors_per_token),
            weights=weights,
        )


class Tower(Part, frozen=True, kw_only=True):
    """A vision or audio tower with its projector; expressions are over its own section of the file."""

    block: Fill = 0
    """Parameters of one block, which are shared out over a tensor-parallel group."""
    each: Fill = 0
    """Parameters of one block that every GPU holds."""
    blocks: Fill = "n"
    shared: Fill = 0
    """Others that are shared out: a projector."""
    always: Fill = 0
    """Parameters that are sharded even where every GPU holds the rest (``--mm-encoder-tp-mode data``)."""
    replicated: Fill = 0
    """Parameters outside the blocks that every GPU holds."""
    kept: Fill = 0
    """Parameters that are loaded even where requests have no such input."""
    heads: Fill = 0
    """Where a tower whose heads cannot be shared out is held by every GPU."""
    tokens: Fill = 0
    """Embeddings that the largest picture or clip becomes."""
    patches: Fill = 0
    """Patches that become one embedding: from it a step's time is computed; ``block`` and ``each`` are all blocks then.
    """
    tile: Fill = 0
    """Embeddings of a tile, which the tower sees as a whole ``window`` of patches, whatever is in it."""
    window: Fill = 0
    """Patches that one of them sees; 0: all of the picture."""
    vectors: Fill = 1
    """Vectors as wide as the decoder that an embedding is."""
    whole: Fill = 0
    """Blocks that see all of it where the others have a window."""
    names: Mapping[str, str] = {}
    """``h``, ``w`` and ``n``, its width, that of its MLPs and its blocks, by other fields than most; further ones."""
    outer: Mapping[str, str] = {}
    """Further names: of fields of the file around it."""
    kind: str = "vision"
    section: str = "vision_config"
    """Where its fields are; empty: among the decoder's."""
    keeps: Kept | None = None
    optional: bool = False
    """A file without its section has no such tower."""

    def build(self, reading: ConfigReader, hidden: int) -> EncoderSpec | None:
        """The tower beside a decoder that is ``hidden`` wide; None where there is none."""
        section = reading.outer.section(self.section) if self.section else reading.fields
        if section is None and self.optional:
            return None
        if self.section:
            said = section.get("model_type") if section is not None else None
            kind = section_type(reading.outer.get("model_type"), self.section, said)
            if section is not None:
                section = reading.outer.section(self.section, class_defaults(kind))
            elif class_defaults(kind):  # as the class of the file makes it
                section = Fields(f"{reading.outer.where}: {self.section}", {}, class_defaults(kind))
        if section is None:
            raise reading.outer.missing(self.section, "give the encoder's sizes")
        around = Expressions(reading.outer, {})
        bound = {"text": hidden, **{name: around.value(fill) for name, fill in self.outer.items()}}
        values = Expressions(section, {**_TOWER_NAMES, **self.names})
        num_blocks = values.count(self.blocks, **bound)
        shared, whole = (num_blocks * values.count(fill, **bound) for fill in (self.block, self.each))
        always = values.count(self.always, **bound)
        blocks = shared + values.count(self.shared, **bound) + always
        patches = values.count(self.patches, **bound)
        replicated = whole + values.count(self.replicated, **bound)
        return EncoderSpec(
            kind=self.kind,
            num_parameters=blocks + replicated,
            replicated_parameters=replicated,
            kept_parameters=values.count(self.kept, **bound),
            always_shared_parameters=always,
            num_heads=values.count(self.heads),
            max_tokens_per_item=values.count(self.tokens, **bound),
            hidden_size=values.name("h") if patches else 0,
            num_layers=num_blocks if patches else 0,
            layer_parameters=shared + whole if patches else 0,
            replicated_layer_parameters=whole if patches else 0,
            patches_per_embedding=patches,
            tile_embeddings=values.count(self.tile, **bound) if patches else 0,
            vectors_per_embedding=values.count(self.vectors, **bound),
            window=values.count(self.window, **bound) if patches else 0,
            whole_layers=values.count(self.whole, **bound) if patches else 0,
            weights=reading.quant.plain,
            attention=self._attention(values, reading.quant.plain, bound),
        )

    def _attention(
        self, values: Expressions, weights: WeightFormat, bound: Mapping[str, Any]
    ) -> tuple[SoftmaxAttention, ...]:
        """What its blocks keep, one of each."""
        if self.keeps is None:
            return ()
        return (self.keeps.build(values, values.name("h"), weights),) * values.count(self.blocks, **bound)


_TOWER_NAMES = {
    "h": "hidden_size", "w": "intermediate_size", "n": "num_hidden_layers|depth", "patch": "patch_size=14",
    "channels": "num_channels|in_channels|in_chans=3", "image": "image_size=224", "frames": "temporal_patch_size=2",
    "merge": "spatial_merge_size=2", "out": "out_hidden_size", "grid": "image // patch",
    "pixels": "channels * patch * patch",
    "vit": "4 * h * h + 2 * h * w + 4 * h + w + h + 4 * h",
    "siglip": "pixels * h + h + grid * grid * h + 2 * h",
}  # fmt: skip
"""What every tower may use: ``vit`` is an ordinary block of a vision transformer, ``siglip`` what is outside them."""
