"""Configurations of an architecture: what its class takes for granted, and variants of other sizes, drawn by a seed."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from copy import deepcopy
from random import Random
from typing import Any

from planner.published import BORROWED, FIELDS, SIZES, TABLES, WITHOUT_CLASS
from tokenyard.vllm.describing.stand_in import stand_in

__all__ = ["VARIANTS", "config_class", "drawn", "registry"]

VARIANTS = ("default", "small", "large")
_TIMES = {"small": (0.25, 0.5, 0.5, 1), "large": (1, 1, 2, 2)}
_SIZES = (
    "hidden_size", "intermediate_size", "moe_intermediate_size", "shared_intermediate_size", "n_embd",
    "n_inner", "d_model", "ffn_dim", "ffn_hidden_size", "shared_expert_intermediate_size",
    "intermediate_size_mlp", "block_ff_dim", "expert_ffn_hidden_size", "prefix_dense_intermediate_size",
)  # fmt: skip
_HEADS = ("num_attention_heads", "n_head", "n_heads")
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_FLAGS = (
    "attention_bias", "mlp_bias", "use_qk_norm", "qkv_bias", "qk_norm", "add_qkv_bias", "use_bias",
    "tie_word_embeddings", "use_qkv_bias", "qk_layernorm", "use_sliding_window", "parallel_attn", "alibi",
    "use_parallel_residual", "shared_layer_norm", "mamba_proj_bias", "use_conv_bias", "conv_bias",
    "attention_qkv_bias", "use_rmsnorm", "multi_query", "add_bias_linear", "use_routing_bias",
    "attention_out_bias", "norm_bias", "bias",
)  # fmt: skip


def registry() -> dict[str, str]:
    """Architecture -> text, multimodal or transformers, as vLLM's registry has it, or pooling where it only pools."""
    from vllm.model_executor.models import registry as theirs

    tables = {
        "text": theirs._TEXT_GENERATION_MODELS,  # noqa: SLF001
        "multimodal": theirs._MULTIMODAL_MODELS,  # noqa: SLF001
        "transformers": getattr(theirs, "_TRANSFORMERS_SUPPORTED_MODELS", {}),
    }
    pooling = {name: "pooling" for table in TABLES for name in getattr(theirs, table, {})}
    return pooling | {name: kind for kind, table in reversed(tables.items()) for name in table}


def config_class(architecture: str) -> Any:
    """The class of the architecture's configuration, from ``transformers`` or from vLLM; None where neither has one."""
    from transformers import CONFIG_MAPPING
    from transformers.models.auto import modeling_auto
    from vllm.transformers_utils.config import _CONFIG_REGISTRY

    if architecture in WITHOUT_CLASS:
        return stand_in(WITHOUT_CLASS[architecture])
    names = [BORROWED[architecture]] if architecture in BORROWED else []
    for table in (each for each in dir(modeling_auto) if each.endswith("_MAPPING_NAMES")):
        for model_type, classes in getattr(modeling_auto, table).items():
            if architecture in ([classes] if isinstance(classes, str) else classes) and model_type not in names:
                names.append(model_type)
    names.sort(
        key=lambda name: (
            name != BORROWED.get(architecture),
            name.endswith("_text") != architecture.endswith("ForCausalLM"),
            name,
        )
    )
    for name in names:
        if name in _CONFIG_REGISTRY:
            return _CONFIG_REGISTRY[name]
        if name in CONFIG_MAPPING:
            return CONFIG_MAPPING[name]
    return None


def drawn(architecture: str, made_by: Any, variant: str, attempts: int = 5) -> Iterator[dict[str, Any]]:
    """What a ``config.json`` of this architecture may hold: one for the default, several to try for a variant."""
    given = deepcopy(FIELDS.get(architecture, {}))
    known_as = {"model_type": given.pop("model_type")} if "model_type" in given else {}
    if architecture in _AS_GIVEN:
        sizes = {} if variant == "default" else SIZES[architecture][variant]
        yield {"model_type": made_by.model_type, **given, **sizes, "architectures": [architecture], "dtype": "bfloat16"}
        return
    if variant == "default":
        yield {**_content(made_by(**deepcopy(given)), architecture), **known_as}
        return
    if architecture in SIZES:
        yield {**_content(made_by(**{**given, **SIZES[architecture][variant]}), architecture), **known_as}
        return
    for attempt in range(attempts):
        random = Random(f"{architecture} {variant} {attempt}")
        try:
            yield {**_content(_changed(made_by, variant, random, given), architecture), **known_as}
        except Exception:  # noqa: BLE001, S112 - sizes that the class does not allow: draw others
            continue


_TWICE = ("IsaacForConditionalGeneration",)
"""Their files name the decoder's sizes in its section and around it."""
_AS_GIVEN = (
    "DeepseekV41ForCausalLM", "Dots3NoteForCausalLM", "HfMoondream", "Moondream3ForCausalLM",
    "MuseSparkForConditionalGeneration",
)  # fmt: skip
"""Their classes do not write what they read."""


def _content(config: Any, architecture: str) -> dict[str, Any]:
    content: dict[str, Any] = config.to_diff_dict()
    if architecture in _TWICE:
        text = {name: each for name, each in content["text_config"].items() if name in content}
        content |= {**text, "model_type": content["model_type"]}
    content.pop("transformers_version", None)
    wrapped = content.pop("wrapped_model_config", None)
    if wrapped is not None:  # Ultravox's decoder, which its files have as they have everybody's
        content["text_config"] = wrapped if isinstance(wrapped, dict) else wrapped.to_dict()
    if "text_config" in content and _section(type(config), "text_config") != "text_config":
        content[_section(type(config), "text_config")] = content.pop("text_config")
    return {**content, "architectures": [architecture], "dtype": content.get("dtype") or "bfloat16"}


def _changed(made_by: Any, variant: str, random: Random, given: dict[str, Any]) -> Any:
    """The configuration with other sizes; that of its text where it holds one."""
    default = made_by(**deepcopy(given))  # classes change what they are given
    thinker = getattr(default, "thinker_config", None)
    if thinker is not None:
        whole = _changed(type(thinker), variant, random, given.get("thinker_config", {}))
        return made_by(**{**given, "thinker_config": whole.to_dict()})
    name = next(
        (each for each in ("text_config", "llm_config", "language_config") if hasattr(default, each)), "text_config"
    )
    text = getattr(default, name, None)
    if text is None or isinstance(text, dict):
        whole = {**default.to_dict(), **given} if hasattr(made_by, "accepted") else given
        return made_by(**_of_layers({**given, **_changes(default, made_by, variant, random)}, whole))
    content = {**_plain(text), **_changes(text, type(text), variant, random)}
    name = _section(made_by, name)
    section = given.get(name) or {}
    return made_by(**{**deepcopy(given), name: _of_layers({**content, **_kinds(section)}, section)})


def _section(made_by: Any, name: str) -> str:
    """What files call the decoder's section, where the class that reads them calls it otherwise (Ovis)."""
    taken = inspect.signature(made_by.__init__).parameters
    return "llm_config" if name == "text_config" and "llm_config" in taken and name not in taken else name


def _kinds(given: Any) -> dict[str, Any]:
    return {"layer_types": given["layer_types"]} if isinstance(given, dict) and "layer_types" in given else {}


def _of_layers(fields: dict[str, Any], published: dict[str, Any]) -> dict[str, Any]:
    """Values for as many layers as there are, in fields with one for each."""
    count, before = fields.get("num_hidden_layers"), published.get("num_hidden_layers")
    lists = {**published, **fields}
    if count is None:
        return fields
    long = (
        name for name, each in lists.items() if isinstance(each, list) and len(each) in (before, before and before + 1)
    )
    return {**fields, **{name: (lists[name] * 2)[:count] for name in {*long, "layer_types"} & {*lists}}}


def _plain(config: Any) -> dict[str, Any]:
    """What the class does not derive from other fields: nothing that has a value per layer."""
    content = config.to_dict()
    return {
        name: each
        for name, each in content.items()
        if name == "architectures" or (not isinstance(each, list) and name != "per_layer_config")
    }


def _changes(config: Any, made_by: Any, variant: str, random: Random) -> dict[str, Any]:
    """Fields that the class has, with values drawn anew."""
    known = config.to_dict()
    accepted = {
        *getattr(made_by, "accepted", ()),
        *inspect.signature(made_by.__init__).parameters,
        *getattr(made_by, "__annotations__", {}),
    }
    named = {alias: name for name, alias in getattr(made_by, "attribute_map", {}).items()}
    changes: dict[str, Any] = {}
    for field, value in known.items():
        if field not in accepted and named.get(field) not in accepted:
            continue
        change = _change(field, value, known, changes, variant, random)
        if change is not None:
            changes[field] = change
    if known.get("pad_token_id") is not None and "vocab_size" in changes:
        changes["pad_token_id"] = None
    heads = next((changes[name] for name in _HEADS if name in changes), None)
    hidden = next((name for name in ("hidden_size", "n_embd", "d_model") if name in changes), None)
    if heads and hidden and known.get("head_dim") is None:
        changes[hidden] = heads * random.choice([32, 64, 128])
    if hidden is not None:
        changes |= {name: changes[hidden] for name in ("word_embed_proj_dim", "block_dim", "conv_dim") if name in known}
    return changes


def _change(
    field: str, value: Any, known: dict[str, Any], changes: dict[str, Any], variant: str, random: Random
) -> Any:
    if isinstance(value, bool):
        return random.random() < 0.5 if field in _FLAGS else None
    if not isinstance(value, int) or value <= 0:
        return None
    choices: Sequence[int] = ()
    small = variant == "small"
    if field in _LAYERS:
        choices = range(5, 10) if small else range(10, 21)
    elif field in _HEADS:
        choices = (8, 16) if small else (32, 64)
    elif field in ("num_key_value_heads", "num_kv_heads", "n_kv_heads"):
        heads = next((each for name in _HEADS if (each := changes.get(name) or known.get(name))), 8)
        choices = (1, 2, 4, 8) if value != known.get("num_attention_heads") else (4, 8, heads)
    elif field in _EXPERTS and value > 1:
        choices = (8, 16) if small else (32, 64)
    elif field == "vocab_size":
        choices = range(1000, 200_000)
    elif field == "sliding_window":
        choices = (128, 1000, 4096)
    elif field in _SIZES:
        choices = [int(value * times) // 256 * 256 or value for times in _TIMES[variant]]
    return random.choice(choices) if choices else None
