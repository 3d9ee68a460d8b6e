"""A model: its layers, its vocabulary, its encoders, and the mean layer that step times are estimated from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from tokenyard.core.config import require_counts, require_int
from tokenyard.errors import ConfigError
from tokenyard.models.formats import BFLOAT16, WeightFormat, dtype_bytes, plain_format
from tokenyard.models.formats import dtype_bytes as bytes_of
from tokenyard.models.layers import DenseMLP, LayerSpec, MoE
from tokenyard.models.mixers import CompressedAttention, LatentAttention, SoftmaxAttention, StateSpace
from tokenyard.quick_dataclass import dataclass

# ---------------------------------------------------------------------------------------------------------------------
# What turns pictures or sound into embeddings before the decoder sees them.


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderSpec:
    """A vision or audio tower with its projector."""

    kind: str
    """vision or audio."""
    num_parameters: int
    replicated_parameters: int = 0
    """Parameters that every GPU of a tensor-parallel group holds: convolutions, positions, projector."""
    num_heads: int = 0
    """Where every GPU holds the whole tower if its heads cannot be shared out (Qwen3-ASR); 0: they always are."""
    max_tokens_per_item: int = 0
    """Embeddings that the largest picture or clip becomes; 0: not known."""
    planned_tokens_per_item: int = 0
    """Embeddings of the picture that vLLM takes for the largest, where that is another; 0: it is not."""
    limited_tokens_per_item: int = 0
    """Embeddings of the picture that sizes of a line leave of that one (``--limit-mm-per-prompt``); 0: it says none."""
    limited_frames: int = 0
    """Frames that a line leaves of a video at most; 0: it says none."""
    limited_tokens_per_frame: int = 0
    """Embeddings of a layer of the video that sizes of a line leave; 0: it says none."""
    limited_videos: tuple[int, ...] = ()
    """Embeddings of each video that it chooses among, in their order."""
    planned_tokens_per_frame: int = 0
    """Embeddings of a frame of the video that it takes for the largest, where they are not a picture's."""
    planned_videos: tuple[int, ...] = ()
    """Embeddings of the videos that it chooses among, ascending, where frames are the smaller the more there are."""
    planned_frames: int = 0
    """Frames that such a video has at most; 0: as many as the context has room for."""
    kept_parameters: int = 0
    """Parameters that are loaded even where requests have no such input: what joins a tower to the decoder (Bee)."""
    hidden_size: int = 0
    num_layers: int = 0
    layer_parameters: int = 0
    """Parameters of all its layers, which compute every patch; the others see each embedding once."""
    replicated_layer_parameters: int = 0
    """Parameters of its layers that every GPU of a tensor-parallel group holds, and computes with."""
    patches_per_embedding: int = 0
    """Patches (or frames of sound) that become one embedding; 0: not known, and its time is not either."""
    tile_embeddings: int = 0
    """Embeddings of a tile, or a stretch of sound, which is a whole ``window`` of patches; 0: there are none."""
    vectors_per_embedding: int = 1
    """Vectors as wide as the decoder that an embedding is (Qwen3-VL: those of further layers as well)."""
    window: int = 0
    """Patches that one of them sees: its window's or its tile's; 0: all of the picture."""
    whole_layers: int = 0
    """Layers that see all of the picture where the others have a window."""
    always_shared_parameters: int = 0
    """Parameters that are sharded even where every GPU holds the rest: what joins a tower to the decoder (Llama 4)."""
    shares_work: bool = False
    """Every GPU holds all of it, and they share out items (``--mm-encoder-tp-mode data``)."""
    weights: WeightFormat = BFLOAT16
    attention: tuple[SoftmaxAttention, ...] = ()
    """Its layers that keep what they computed of a stream of sound, in blocks beside the decoder's (Voxtral's live
    one).
    """

    def __post_init__(self) -> None:
        require_int("num_parameters", self.num_parameters, 1, 1 << 50)
        for field in ("kept_parameters", "replicated_parameters", "always_shared_parameters", "layer_parameters"):
            require_int(field, getattr(self, field), 0, self.num_parameters)
        require_int("replicated_layer_parameters", self.replicated_layer_parameters, 0, self.layer_parameters)
        require_counts(self, max_tokens_per_item=0, planned_tokens_per_item=0, limited_tokens_per_item=0)
        require_counts(self, limited_frames=0, limited_tokens_per_frame=0, planned_tokens_per_frame=0, planned_frames=0)
        require_counts(self, num_layers=0, vectors_per_embedding=1, hidden_size=0, patches_per_embedding=0)
        require_counts(self, tile_embeddings=0, window=0)
        require_int("whole_layers", self.whole_layers, 0, self.num_layers)

    @property
    def mlp_columns(self) -> int:
        """What a patch becomes in an MLP: two or three times its width; 0 where sizes are not known."""
        if not self.num_layers or not self.hidden_size:
            return 0
        return max(self.layer_parameters // self.num_layers // self.hidden_size - 4 * self.hidden_size, 0)

    def num_patches(self, embeddings: int) -> int:
        """Patches of a picture or clip that becomes so many embeddings; a tile that is not full is filled up."""
        if self.tile_embeddings:
            return -(-embeddings // self.tile_embeddings) * self.window
        return self.patches_per_embedding * embeddings

    def ranks_sharing(self, tp: int) -> int:
        """GPUs of a tensor-parallel group that share its weights: all or, where each holds them all, 1."""
        return 1 if self.shares_work or self.num_heads % tp else tp

    def num_bytes(self, tp: int = 1) -> int:
        """Weights on one GPU, in bytes: vLLM shares them out as it does the decoder's."""
        if self.ranks_sharing(tp) == 1:
            always = self.always_shared_parameters if self.shares_work else 0
            return self.weights.num_bytes(self.num_parameters - always) + self.weights.num_bytes(always) // tp
        shared = self.num_parameters - self.replicated_parameters
        return self.weights.num_bytes(shared) // tp + self.weights.num_bytes(self.replicated_parameters)


def first_seeing(encoders: tuple[EncoderSpec, ...]) -> EncoderSpec | None:
    """The first encoder that sees; None where none does."""
    return next((each for each in encoders if each.kind == "vision"), None)


def with_changed(encoders: tuple[EncoderSpec, ...], one: EncoderSpec, **changes: Any) -> tuple[EncoderSpec, ...]:
    """The encoders, ``one`` of which is changed."""
    return tuple(replace(each, **changes) if each is one else each for each in encoders)


# ---------------------------------------------------------------------------------------------------------------------
# The mean layer: what a step's time is estimated from, for models whose layers may differ.
#
# Counts of heads are those of the first layer that has any; parameters are means over all layers.


class MeanLayer:
    """Properties of the mean layer; to be inherited by what has ``layers``."""

    __slots__ = ()

    layers: tuple[LayerSpec, ...]
    dtype: str

    def _attention(self) -> Iterator[SoftmaxAttention | LatentAttention | CompressedAttention]:
        for layer in self.layers:
            for mixer in layer.mixers:
                if isinstance(mixer, SoftmaxAttention | LatentAttention | CompressedAttention):
                    yield mixer

    def _experts(self) -> MoE | None:
        return next((layer.mlp for layer in self.layers if isinstance(layer.mlp, MoE)), None)

    @property
    def num_heads(self) -> int:
        return next((mixer.num_heads for mixer in self._attention()), 1)

    @property
    def num_kv_heads(self) -> int:
        """1 where keys are compressed for all heads."""
        first = next(self._attention(), None)
        return first.num_kv_heads if isinstance(first, SoftmaxAttention) else 1

    @property
    def head_size(self) -> int:
        first = next(self._attention(), None)
        if isinstance(first, LatentAttention):
            return first.qk_nope_head_dim + first.qk_rope_head_dim
        return first.head_size if first is not None else 1

    @property
    def intermediate_size(self) -> int:
        """Width of a dense layer's MLP, of the first that has one; 0 if none has."""
        return next((layer.mlp.width for layer in self.layers if isinstance(layer.mlp, DenseMLP)), 0)

    @property
    def num_experts(self) -> int:
        """Per layer; 0 for a dense model."""
        experts = self._experts()
        return experts.num_experts if experts is not None else 0

    @property
    def num_experts_per_tok(self) -> int:
        experts = self._experts()
        return experts.num_experts_per_tok if experts is not None else 0

    @property
    def moe_intermediate_size(self) -> int:
        """Width of one expert."""
        experts = self._experts()
        return experts.width if experts is not None else 0

    @property
    def shared_intermediate_size(self) -> int:
        """Width of what every token visits besides its experts."""
        experts = self._experts()
        return experts.shared_width if experts is not None else 0

    @property
    def attention_parameters(self) -> int:
        """Parameters of the mean layer's attention: projections of whatever mixes tokens."""
        return sum(m.num_parameters() for layer in self.layers for m in layer.mixers) // len(self.layers)

    @property
    def dense_mlp_parameters(self) -> int:
        """Parameters of the mean layer outside it: what every token goes through between attentions (routing too)."""
        total = 0
        for layer in self.layers:
            mlp = layer.mlp
            if isinstance(mlp, DenseMLP):
                total += mlp.num_parameters()
            elif isinstance(mlp, MoE):
                total += mlp.shared_parameters() + mlp.extra_parameters
        return total // len(self.layers)

    @property
    def expert_parameters(self) -> int:
        """Parameters of one expert of the mean layer."""
        experts = (layer.mlp.expert_parameters for layer in self.layers if isinstance(layer.mlp, MoE))
        return sum(experts) // len(self.layers)

    def kv_bytes_per_token(self, tensor_parallel_size: int = 1, kv_dtype_bytes: int | None = None) -> int:
        """Keys and values of one token in all layers that attend, per GPU, in bytes, windows or not."""
        size = kv_dtype_bytes or bytes_of(self.dtype)
        return sum(_kv_elements(mixer, tensor_parallel_size) * size for mixer in self._attention())


def _kv_elements(mixer: SoftmaxAttention | LatentAttention | CompressedAttention, tp: int) -> int:
    if isinstance(mixer, LatentAttention):
        return mixer.latent_size
    if isinstance(mixer, CompressedAttention):
        return mixer.head_size + (mixer.head_size // mixer.ratio if mixer.ratio else 0)
    return 0 if mixer.shares_kv else mixer.kv_heads(tp) * (mixer.head_size + mixer.value_size)


# ---------------------------------------------------------------------------------------------------------------------
# A model: its layers, its vocabulary, and how its weights are stored.

VOCAB_PADDING = 64
"""vLLM rounds the vocabulary up to a multiple of it before it shares it out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec(MeanLayer):
    """A decoder, with what encodes its pictures or sound. Raises ConfigError if a size cannot work."""

    name: str
    layers: tuple[LayerSpec, ...]
    """From the first to the last."""
    hidden_size: int
    vocab_size: int
    max_model_len: int
    """Context that vLLM takes unless a setting says otherwise, in tokens: what the model was made for."""
    longest_model_len: int = 0
    """The longest that may be requested, where that is more (LongRoPE); 0: it is not."""
    architecture: str = ""
    """The name in ``architectures`` of config.json."""
    model_type: str = ""
    """The ``model_type`` of config.json; that of the decoder where it has one of its own."""
    dtype: str = "bfloat16"
    """Type of activations, of weights that are not quantised and, unless stated otherwise, of the KV cache."""
    quantization: str | None = None
    """Method by vLLM's name (fp8, mxfp4, awq, ...); None: weights are of ``dtype``."""
    tie_word_embeddings: bool = False
    """The output head shares the embedding's weights."""
    head_weights: WeightFormat | None = None
    """Format of the output head; None: of ``dtype``."""
    other_parameters: int = 0
    """Outside the layers, besides embedding and head: last norm, learned positions. Kept in ``dtype``."""
    embedding_parameters: int = 0
    """Embeddings beside the first, shared out as it is: one for every layer (Gemma 4). Kept in ``dtype``."""
    encoders: tuple[EncoderSpec, ...] = ()
    supports_multimodal: bool = False
    """It takes images or sound beside text, even where its encoders are left out."""
    max_encoder_tokens: int = 0
    """Embeddings that cross attention keeps per request (Whisper: 1,500); 0: no cross attention."""
    images_attend_both_ways: bool = False
    """The tokens of an image see those behind them, so that it is never computed in parts (Gemma 3 and 4)."""
    replicated_embedding: bool = False
    """Every GPU of a tensor-parallel group holds the whole embedding (Whisper)."""
    embedding_on_every_stage: bool = False
    """Every stage of a pipeline holds the embedding, not only those that read it."""
    encoders_on_every_stage: bool = False
    """The same of the encoders."""
    head_on_every_stage: bool = False
    """The same of the output head."""
    attention_first: bool = False
    """vLLM makes all that attends before the first layer, which orders the groups of its KV cache (Zamba 2)."""
    one_gpu: bool = False
    """vLLM refuses to share it out over a tensor-parallel group."""
    least_state_bytes: int = 0
    """Blocks of attention are made large enough for a state of so many bytes, whether or not a layer keeps one."""
    runs_in_stages: bool = True
    """vLLM has a pipeline for it."""
    kv_cache_dtype: str | None = None
    """What the checkpoint asks for (``kv_cache_scheme``, ``kv_cache_quant_algo``); None: ``dtype``."""
    predicting_layers: tuple[LayerSpec, ...] = ()
    """Layers of its checkpoint that predict further tokens (MTP): no part of ``layers``, loaded where they draft."""
    joins_once: bool = False
    """One matrix, shared out, joins embeddings and hidden states for all of them; else each has one of its own."""
    ignored: tuple[str, ...] = ()
    """What the reader saw, could not model and was set to ignore: one sentence each."""
    notes: tuple[str, ...] = ()
    """Where its description comes from, if not from the table of architectures: one sentence each."""

    def __post_init__(self) -> None:
        require_counts(self, "tie_word_embeddings", "supports_multimodal")
        require_counts(self, hidden_size=1, vocab_size=1, max_model_len=1, other_parameters=0)
        if not self.layers:
            raise ConfigError("num_layers", 0, "give at least one layer")
        dtype_bytes(self.dtype)

    @property
    def dtype_bytes(self) -> int:
        """Bytes per element of ``dtype``."""
        return dtype_bytes(self.dtype)

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    @property
    def layer_counts(self) -> list[tuple[LayerSpec, int]]:
        """Layers that are made alike, each with its count, in the order of their first."""
        by_identity = {id(layer): layer for layer in self.layers}
        counts = Counter[LayerSpec]()
        for number, count in Counter(map(id, self.layers)).items():
            counts[by_identity[number]] += count
        return list(counts.items())

    @property
    def has_states(self) -> bool:
        """Whether some layer keeps a state instead of keys and values."""
        return any(isinstance(mixer, StateSpace) for layer in self.layers for mixer in layer.mixers)

    @property
    def head_parameters(self) -> int:
        """Embedding, or output head: vocabulary times hidden size."""
        return self.vocab_size * self.hidden_size

    @property
    def num_parameters(self) -> int:
        """All weights."""
        layers = sum(layer.num_parameters * count for layer, count in self.layer_counts)
        embeddings = self.head_parameters * (1 if self.tie_word_embeddings else 2)
        encoders = sum(encoder.num_parameters for encoder in self.encoders)
        return layers + embeddings + self.embedding_parameters + self.other_parameters + encoders

    @property
    def num_active_parameters(self) -> int:
        """Weights of the layers that one token goes through: embedding and output head are not counted."""
        return sum(layer.num_active_parameters * count for layer, count in self.layer_counts)

    @property
    def has_experts(self) -> bool:
        """Whether it is a mixture of experts."""
        return any(isinstance(layer.mlp, MoE) for layer, _ in self.layer_counts)

    @property
    def weight_format(self) -> WeightFormat:
        """The format of most weights: what a report names."""
        sizes: Counter[WeightFormat] = Counter()
        for layer, count in self.layer_counts:
            for weights, parameters in layer.parameters_by_format():
                sizes[weights] += count * parameters
        return sizes.most_common(1)[0][0] if sizes else plain_format(self.dtype)

    @property
    def item_encoders(self) -> tuple[EncoderSpec, ...]:
        """The encoders of a request's items: those of images where it has any, else of sound."""
        seeing = tuple(each for each in self.encoders if each.kind == "vision")
        return seeing or self.encoders

    def with_encoders(self, encoders: tuple[EncoderSpec, ...]) -> ModelSpec:
        """The model with these of its encoders alone, and with what is loaded of the others in any case."""
        kept = sum(encoder.kept_parameters for encoder in self.encoders if encoder not in encoders)
        return replace(self, encoders=encoders, other_parameters=self.other_parameters + kept)

    def check_tensor_parallel(self, size: int) -> None:
        """Raise ConfigError unless heads and quantised matrices can be shared out over ``size`` GPUs."""
        require_int("tensor_parallel_size", size, 1)
        if self.one_gpu and size > 1:
            raise ConfigError("tensor_parallel_size", size, f"must be 1: vLLM runs {self.name} on one GPU only")
        for layer, _ in self.layer_counts:
            problem = layer.why_not_parted(size)
            if problem is not None:
                raise ConfigError("tensor_parallel_size", size, f"must divide the {problem} of {self.name}")

    def weight_bytes(
        self,
        tensor_parallel_size: int = 1,
        *,
        expert_parallel_size: int = 1,
        pipeline_parallel_size: int = 1,
        stage: int | None = None,
    ) -> int:
        """Weights on one GPU, in bytes.

        ``expert_parallel_size`` is the number of GPUs that whole experts are dealt out to (tensor parallel x data
        parallel in vLLM), 1 if every expert is cut over the tensor-parallel group instead. ``stage`` is one of the
        pipeline's; None: the one with the most.
        """
        stages = pipeline_stages(self.num_layers, pipeline_parallel_size)
        wanted = range(len(stages)) if stage is None else (stage,)
        return max(self._stage_bytes(i, stages, tensor_parallel_size, expert_parallel_size) for i in wanted)

    def _stage_bytes(self, stage: int, stages: Sequence[range], tp: int, ep: int) -> int:
        counts = Counter(self.layers[i] for i in stages[stage])
        total = sum(layer.num_bytes(self.dtype_bytes, tp, ep) * count for layer, count in counts.items())
        first, last = stage == 0, stage == len(stages) - 1
        total += self._experts_of_all_stages(stages[stage], tp, ep)
        vocab = -(-self.vocab_size // VOCAB_PADDING) * VOCAB_PADDING * self.hidden_size
        if first or self.embedding_on_every_stage or (last and self.tie_word_embeddings):
            total += vocab * self.dtype_bytes // (1 if self.replicated_embedding else tp)
        if first or self.embedding_on_every_stage:
            total += self.embedding_parameters * self.dtype_bytes // tp
        if first or self.encoders_on_every_stage:
            total += sum(encoder.num_bytes(tp) for encoder in self.encoders)
        if last:
            total += self.other_parameters * self.dtype_bytes
        if (last or self.head_on_every_stage) and not self.tie_word_embeddings:
            total += (self.head_weights or plain_format(self.dtype)).num_bytes(vocab) // tp
        return total

    def _experts_of_all_stages(self, stage: range, tp: int, ep: int) -> int:
        """Bytes of experts that layers of several stages take turns with: every stage has all of them."""
        experts = [(i, layer.mlp) for i, layer in enumerate(self.layers) if isinstance(layer.mlp, MoE)]
        if not any(mlp.repeats for _, mlp in experts):
            return 0
        left = (mlp for i, mlp in experts if i not in stage)
        return sum(mlp.weights.num_bytes(mlp.stored_parameters(tp, ep)) for mlp in left)


def pipeline_stages(num_layers: int, size: int) -> list[range]:
    """Layers of every pipeline stage as vLLM deals them out: what is left over goes to the stages before the last, from
    the back. Raises ConfigError if there are more stages than layers.
    """
    require_int("pipeline_parallel_size", size, 1, num_layers)
    counts = [num_layers // size] * size
    for i in range(num_layers % size):
        counts[-2 - i] += 1
    starts = [sum(counts[:i]) for i in range(size)]
    return [range(start, start + count) for start, count in zip(starts, counts, strict=True)]
