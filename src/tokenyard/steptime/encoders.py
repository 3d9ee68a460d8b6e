"""How long a step's encoder takes: the arithmetic of a tower, by the formula of the decoder's steps. An estimate.

Nothing measured it. A tower is a stack of layers over patches (of sound: over frames): its matrix products, its
attention (within a window where it has one) and its activations take what those of a prompt take, at the shares of the
GPU's rates that are fitted for decoders. It runs without CUDA graphs, before the decoder in the same step. What joins
patches to embeddings counts once an embedding. Every GPU of a tensor-parallel group has its share of the heads and of
the layers that are shared out (``--mm-encoder-tp-mode weights``) or, where each holds the tower, computes its items or
tiles (``data``): the one with most decides, and all are told what the others computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from tokenyard.models.gpus import GPU
from tokenyard.models.spec import EncoderSpec, ModelSpec
from tokenyard.steptime.formula import Attention, MatrixProducts, Parallelism, StepFormula, WorkCounts
from tokenyard.steptime.model import StepWork

_KERNELS = 11
"""Kernels of a layer: seven of attention and four of an MLP (:mod:`~tokenyard.steptime.kernels`)."""
_PARTS = 4
"""Kernels beside the layers: patches embedded and placed, embeddings joined."""
_ALONE: Mapping[str, float] = {"sequence": 0.0, "sequence_kernel": 0.0, "mixed_rows": 0.0, "launch_step": 0.0}
"""Constants of a whole step that an encoder does not have once more."""


def timed_encoders(spec: ModelSpec) -> tuple[EncoderSpec, ...]:
    """The encoders that a picture goes through, or a clip where the model sees none, if the sizes of all are known."""
    through = spec.item_encoders
    return through if all(each.patches_per_embedding for each in through) else ()


class EncoderTime:
    """Seconds of one tower on one kind of GPU."""

    __slots__ = ("_encoder", "_formula", "_ranks")

    def __init__(
        self, encoder: EncoderSpec, dtype_bytes: int, gpu: GPU, parallel: Parallelism, constants: Mapping[str, float]
    ) -> None:
        """``constants`` are those of the decoder beside it; ``dtype_bytes`` those of an activation."""
        alone = replace(parallel, data=1, pipeline=1, expert=False)
        values = {**constants, **_ALONE, "step": _PARTS * constants["kernel"]}
        counts = encoder_counts(encoder, dtype_bytes, encoder.ranks_sharing(parallel.tensor))
        self._encoder, self._ranks = encoder, parallel.tensor if encoder.shares_work else 1
        if self._ranks > 1:
            counts = replace(counts, all_reduces=1)  # a gather of all embeddings
        self._formula = StepFormula(counts, gpu, alone, values, eager=True)

    def seconds(self, embeds: Sequence[int]) -> float:
        """Seconds for items that become so many embeddings each; those of one step are computed together."""
        if not embeds:
            return 0.0
        return max(map(self._seconds, shared_out(self._encoder, embeds, self._ranks)))

    def _seconds(self, items: Sequence[_Item]) -> float:
        """Seconds of one GPU."""
        patches, pairs = sum(each.patches for each in items), float(sum(each.patches**2 for each in items))
        work = StepWork(patches, sum(each.embeddings for each in items), 0, 0, 1, patches, 0, pairs)
        return float(self._formula.seconds(work, patches))


class _Item(NamedTuple):
    """What is computed by one GPU."""

    patches: int
    embeddings: int


def shared_out(encoder: EncoderSpec, embeds: Sequence[int], ranks: int) -> list[list[_Item]]:
    """What each GPU computes of items that become so many embeddings each; nothing for one that has none.

    As vLLM's ``run_dp_sharded_vision_model`` shares out tiles, as many for each; and ``get_load_balance_assignment``
    items, the largest first, each to the GPU with the fewest patches.
    """
    items = [_Item(encoder.num_patches(count), count) for count in embeds]
    if ranks == 1:
        return [items]
    if encoder.tile_embeddings:
        tiles = sum(each.patches for each in items) // encoder.window
        return [[_Item(encoder.window, encoder.tile_embeddings)] * -(-tiles // ranks)]
    of_ranks: list[list[_Item]] = [[] for _ in range(ranks)]
    for item in sorted(items, reverse=True):
        min(of_ranks, key=lambda taken: sum(each.patches for each in taken)).append(item)
    return [each for each in of_ranks if each]


def encoder_counts(encoder: EncoderSpec, dtype_bytes: int, tp: int) -> WorkCounts:
    """What a patch costs on one of ``tp`` GPUs that share the tower; its "head" is what is done for an embedding.

    Attention is shared out where layers are as a whole, else only what of them is.
    """
    layers, hidden = encoder.num_layers, encoder.hidden_size
    beside, held = encoder.num_parameters - encoder.layer_parameters, encoder.replicated_layer_parameters
    shared = encoder.layer_parameters - held
    windowed = layers - encoder.whole_layers if encoder.window else 0
    attending = 1 if held else tp
    reduced = (0 if tp == 1 or not shared else 1) if held else 2 * (tp > 1)

    def attention(count: int, window: int) -> Attention:
        flops = 4.0 * hidden / attending
        return Attention(
            layers=count, kv_bytes=0.0, kv_widened=0.0, pair_flops=flops, decode_flops=0.0, window=window, latent=False
        )

    return WorkCounts(
        linear=(MatrixProducts(weights=encoder.weights, parameters=shared // tp + held),),
        head=MatrixProducts(weights=encoder.weights, parameters=beside),
        experts=(),
        attention=tuple(
            attention(count, window) for count, window in ((layers - windowed, 0), (windowed, encoder.window)) if count
        ),
        state_bytes=0.0,
        state_flops=0.0,
        elementwise_bytes=layers * (4 * hidden + (2 * hidden + encoder.mlp_columns) / attending) * dtype_bytes,
        kernels=layers * _KERNELS,
        layers=layers,
        expert_layers=0,
        all_reduces=reduced * layers,
        norm_reduces=0,
        hidden_bytes=hidden * dtype_bytes,
    )
