"""How long a step's encoder takes: the arithmetic of a tower, by the formula of the decoder's steps. An estimate.

Nothing measured it. A tower is a stack of layers over patches: its matrix products, its attention (within a window
where it has one) and its activations take what those of a prompt take, at the shares of the GPU's rates that are fitted
for decoders. It runs without CUDA graphs, before the decoder in the same step. What joins patches to embeddings counts
once an embedding. Every GPU of a tensor-parallel group has its share of the heads and of the layers
(``--mm-encoder-tp-mode weights``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

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


def timed_encoder(spec: ModelSpec) -> EncoderSpec | None:
    """The encoder that looks at pictures, if its sizes are known."""
    return next((each for each in spec.encoders if each.kind == "vision" and each.patches_per_embedding), None)


class EncoderTime:
    """Seconds of one tower on one kind of GPU."""

    __slots__ = ("_encoder", "_formula")

    def __init__(
        self, encoder: EncoderSpec, dtype_bytes: int, gpu: GPU, parallel: Parallelism, constants: Mapping[str, float]
    ) -> None:
        """``constants`` are those of the decoder beside it; ``dtype_bytes`` those of an activation."""
        alone = replace(parallel, data=1, pipeline=1, expert=False)
        values = {**constants, **_ALONE, "step": _PARTS * constants["kernel"]}
        counts = encoder_counts(encoder, dtype_bytes, 1 if encoder.num_heads % parallel.tensor else parallel.tensor)
        self._encoder = encoder
        self._formula = StepFormula(counts, gpu, alone, values, eager=True)

    def seconds(self, embeds: Sequence[int]) -> float:
        """Seconds for pictures that become so many embeddings each; those of one step are computed together."""
        if not embeds:
            return 0.0
        each = self._encoder.patches_per_embedding
        patches = each * sum(embeds)
        pairs = float(sum((each * count) ** 2 for count in embeds))
        work = StepWork(patches, sum(embeds), 0, 0, 1, patches, 0, pairs)
        return float(self._formula.seconds(work, patches))


def encoder_counts(encoder: EncoderSpec, dtype_bytes: int, tp: int) -> WorkCounts:
    """What a patch costs on one of ``tp`` GPUs that share the tower; its "head" is what is done for an embedding."""
    layers, hidden = encoder.num_layers, encoder.hidden_size
    beside = encoder.num_parameters - encoder.layer_parameters
    whole = encoder.whole_layers if encoder.window else layers
    windowed = layers - whole

    def attention(count: int, window: int) -> Attention:
        flops = 4.0 * hidden / tp
        return Attention(
            layers=count, kv_bytes=0.0, kv_widened=0.0, pair_flops=flops, decode_flops=0.0, window=window, latent=False
        )

    return WorkCounts(
        linear=(MatrixProducts(weights=encoder.weights, parameters=encoder.layer_parameters // tp),),
        head=MatrixProducts(weights=encoder.weights, parameters=beside),
        experts=(),
        attention=tuple(
            attention(count, window) for count, window in ((whole, 0), (windowed, encoder.window)) if count
        ),
        state_bytes=0.0,
        state_flops=0.0,
        elementwise_bytes=layers * (4 * hidden + (2 * hidden + encoder.mlp_columns) / tp) * dtype_bytes,
        kernels=layers * _KERNELS,
        layers=layers,
        expert_layers=0,
        all_reduces=2 * layers if tp > 1 else 0,
        norm_reduces=0,
        hidden_bytes=hidden * dtype_bytes,
    )
