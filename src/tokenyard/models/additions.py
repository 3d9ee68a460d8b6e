"""What flags add to a model or change of it: LoRA adapters, a head that drafts, dtypes of states."""

from __future__ import annotations

from dataclasses import replace

from tokenyard.core.config import require_int
from tokenyard.errors import NoStartError
from tokenyard.models.formats import dtype_bytes
from tokenyard.models.layers import DenseMLP, LayerSpec, MoE
from tokenyard.models.mixers import GatedDeltaNet, LinearAttention, Mixer, SoftmaxAttention, StateSpace
from tokenyard.models.spec import ModelSpec, pipeline_stages

# ---------------------------------------------------------------------------------------------------------------------
# LoRA adapters: the memory that vLLM sets aside for those that may be in one step.
#
# Two matrices for every matrix product of a layer, of the greatest rank allowed, for each adapter: from the input to
# the rank, and from the rank to the output. Beside a matrix that is cut by columns the second one is cut, beside one
# that is cut by rows the first. Embedding and output head have theirs as well.


def adapter_bytes(
    model: ModelSpec,
    *,
    max_loras: int,
    max_lora_rank: int,
    tensor_parallel_size: int = 1,
    pipeline_parallel_size: int = 1,
) -> int | None:
    """Bytes on the GPU of the stage that has the most; None for layers whose adapters are not known (latent, states).

    Raises ConfigError for a number that is none.
    """
    require_int("max_loras", max_loras, 1)
    require_int("max_lora_rank", max_lora_rank, 1)
    widths = {layer: _layer_width(layer, tensor_parallel_size) for layer, _ in model.layer_counts}
    known = {layer: width for layer, width in widths.items() if width is not None}
    if len(known) < len(widths):
        return None
    stages = pipeline_stages(model.num_layers, pipeline_parallel_size)
    layers = max(sum(known[model.layers[i]] for i in stage) for stage in stages)
    ends = 2 * model.vocab_size + 2 * model.hidden_size
    return max_loras * max_lora_rank * (layers + ends) * dtype_bytes(model.dtype)


def _layer_width(layer: LayerSpec, tp: int) -> int | None:
    """Elements per unit of rank; None if they are not known."""
    mixers = [_mixer_width(mixer, tp) for mixer in layer.mixers]
    if any(width is None for width in mixers):
        return None
    return sum(width for width in mixers if width is not None) + _mlp_width(layer, tp)


def _mixer_width(mixer: Mixer, tp: int) -> int | None:
    if not isinstance(mixer, SoftmaxAttention):
        return None
    queries = mixer.num_heads * mixer.head_size // tp
    keys_and_values = mixer.kv_heads(tp) * (mixer.head_size + mixer.value_size)
    output = mixer.num_heads * mixer.value_size // tp
    return 3 * mixer.hidden_size + queries + keys_and_values + output + mixer.hidden_size


def _mlp_width(layer: LayerSpec, tp: int) -> int:
    mlp = layer.mlp
    if isinstance(mlp, MoE):
        return mlp.num_experts * _gated(mlp.hidden_size, mlp.width // tp) + _gated(
            mlp.hidden_size, mlp.shared_width // tp
        ) * (mlp.shared_width > 0)
    return _gated(mlp.hidden_size, mlp.width // tp) if isinstance(mlp, DenseMLP) else 0


def _gated(hidden: int, width: int) -> int:
    """Gate and up, then down."""
    return 2 * hidden + 2 * width + width + hidden


# ---------------------------------------------------------------------------------------------------------------------
# The head that drafts from a model's hidden states (EAGLE, MTP), where its own config is not known.
#
# It counts as one more layer of the model, with keys and values of its own, and a matrix that joins a token's
# embedding with the hidden state of the one before. Embedding and output head are the model's.


def draft_head(model: ModelSpec) -> ModelSpec:
    """The head alone: a model of its one layer, the last of the model's that attends to everything. What joins is on
    every GPU.
    """
    layer = next((each for each in reversed(model.layers) if each.attends_to_all), model.layers[-1])
    joining = replace(layer, norm_parameters=layer.norm_parameters + _joins(model))
    return replace(model, name=f"a head of {model.name}", layers=(joining,))


def with_draft_head(model: ModelSpec, *, predicts_itself: bool = False) -> ModelSpec:
    """Model and head as they share a GPU: what their weights and their KV come to.

    A model that ``predicts_itself`` drafts with all of its own layers for that.
    """
    own = model.predicting_layers if predicts_itself else ()
    loaded = replace(model, layers=(*model.layers, *(own or draft_head(model).layers)))
    if own and model.joins_once:
        return replace(loaded, embedding_parameters=model.embedding_parameters + _joins(model))
    joins = _joins(model) * sum(1 for layer in own if layer.mixers)
    return replace(loaded, other_parameters=model.other_parameters + joins)


def with_draft_model(model: ModelSpec, drafter: ModelSpec, *, shares_kv: bool = False) -> ModelSpec:
    """Model and a model of its own that drafts, with its own embedding and head, as they share a GPU.

    ``shares_kv``: its attention reads what the model keeps (Gemma 4's assistants).
    """
    layers = drafter.layers
    if shares_kv:
        layers = tuple(replace(layer, mixers=tuple(map(_reading, layer.mixers))) for layer in layers)
    ends = drafter.head_parameters * (1 if drafter.tie_word_embeddings else 2)
    return replace(
        model,
        layers=(*model.layers, *layers),
        embedding_parameters=model.embedding_parameters + drafter.embedding_parameters + ends,
        other_parameters=model.other_parameters + drafter.other_parameters,
    )


def _reading(mixer: Mixer) -> Mixer:
    return replace(mixer, shares_kv=True) if isinstance(mixer, SoftmaxAttention) else mixer


def _joins(model: ModelSpec) -> int:
    """Parameters of the matrix that joins embedding and hidden state."""
    return 2 * model.hidden_size * model.hidden_size


# ---------------------------------------------------------------------------------------------------------------------
# ``--mamba-cache-dtype`` is that of all states, ``--mamba-ssm-cache-dtype`` that of the recurrent ones alone.

_OF_DELTA_ATTENTION = ("auto", "float32", "bfloat16")
"""dtypes that Kimi's delta attention has for its states."""


def with_state_dtypes(model: ModelSpec, conv: str, recurrent: str) -> ModelSpec:
    """The model with its states in dtypes that flags give; ``auto`` leaves one as it is.

    A recurrent state follows the convolution's unless the checkpoint, or its own flag, says otherwise. Raises
    NoStartError for a dtype that a layer does not have.
    """
    if (conv, recurrent) == ("auto", "auto") or not model.has_states:
        return model
    changed = {layer: _with_states(layer, conv, recurrent) for layer in {*model.layers, *model.predicting_layers}}
    return replace(
        model,
        layers=tuple(changed[layer] for layer in model.layers),
        predicting_layers=tuple(changed[layer] for layer in model.predicting_layers),
    )


def _with_states(layer: LayerSpec, conv: str, recurrent: str) -> LayerSpec:
    mixers = tuple(
        _with_dtypes(mixer, conv, recurrent) if isinstance(mixer, StateSpace) else mixer for mixer in layer.mixers
    )
    return replace(layer, mixers=mixers)


def _with_dtypes(mixer: StateSpace, conv: str, recurrent: str) -> StateSpace:
    own = mixer.conv_dtype if conv == "auto" else conv
    if isinstance(mixer, LinearAttention):
        return replace(mixer, state_dtype=mixer.state_dtype if conv == "auto" else conv)
    if (
        isinstance(mixer, GatedDeltaNet)
        and (mixer.gate_rank or mixer.full_decay)
        and recurrent not in _OF_DELTA_ATTENTION
    ):
        problem = f"mamba_ssm_cache_dtype = {recurrent!r} is not for the states of delta attention: use float32"
        raise NoStartError(problem, "mamba_ssm_cache_dtype", recurrent, "use float32")
    follows = own if mixer.state_dtype == mixer.conv_dtype else mixer.state_dtype
    return replace(mixer, conv_dtype=own, state_dtype=follows if recurrent == "auto" else recurrent)
