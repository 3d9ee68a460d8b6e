"""``params.json``, the file of Mistral's own checkpoints, as the ``config.json`` that it comes to.

vLLM reads such a file where a checkpoint has one, and maps its fields the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenyard.errors import ConfigError
from tokenyard.models.fields import field_names

PARAMS = "params.json"

_NAMES: Mapping[str, str] = field_names()["params"]["names"]
_EXPERTS: Mapping[str, str] = field_names()["params"]["experts"]
_CONTEXT = 128_000
"""Tokens where the file names no length."""
KNOWN = frozenset((*_NAMES.values(), *_EXPERTS.values(), *field_names()["params"]["others"]))
"""What may be in such files though a model has no use for it: the rest of what vLLM maps, and fields of training."""


def is_params(raw: Mapping[str, Any]) -> bool:
    """Whether an object is what a ``params.json`` holds."""
    return "dim" in raw and "n_layers" in raw and "architectures" not in raw


def config_of_params(raw: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The ``config.json`` that a ``params.json`` comes to. Raises ConfigError naming a part that cannot be used."""
    text = {_NAMES.get(name, name): value for name, value in raw.items()}
    parts = _object(text, "multimodal", where), _object(text, "vision_encoder", where)
    for name in ("multimodal", "vision_encoder"):
        text.pop(name, None)
    text.setdefault("tie_word_embeddings", False)
    text.setdefault("max_position_embeddings", _CONTEXT)
    text.pop("max_seq_len", None)
    # vLLM reads the file without a class that has defaults: what it lacks is not there, or an error.
    for theirs in ("n_heads", "hidden_dim", "vocab_size"):
        if text.get(name := _NAMES.get(theirs, theirs)) is None and not (theirs == "hidden_dim" and raw.get("moe")):
            raise ConfigError(f"{where}: {theirs}", text.get(name), "give this size: the file has no default for it")
    text.setdefault("num_key_value_heads", text["num_attention_heads"])
    text.setdefault("sliding_window", None)
    text["model_type"] = "mistral"
    text["architectures"] = ["MistralForCausalLM"]
    _windows(text, where)
    _scaling(text, where)
    quantized = _quantization(text, where)
    experts = _object(text, "moe", where)
    text.pop("moe", None)
    if text.get("qk_nope_head_dim") and not experts:  # latent attention comes with DeepSeek's layers
        width, count = text.get("intermediate_size"), text.get("num_hidden_layers")
        experts = {
            "num_experts": 1, "first_k_dense_replace": count, "route_every_n": 1, "num_shared_experts": 1,
            "expert_hidden_dim": width, "num_experts_per_tok": 1,
        }  # fmt: skip
    if experts:
        if not experts.get("num_shared_experts"):
            raise ConfigError(
                f"{where}: moe", dict(experts), "experts without a shared one are not read from this file"
            )
        renamed = {_EXPERTS.get(name, name): value for name, value in experts.items()}
        text |= {**renamed, "model_type": "deepseek_v3", "architectures": ["MistralLarge3ForCausalLM"]}
    around: dict[str, Any] = {PARAMS: True, **({"quantization_config": quantized} if quantized else {})}
    for part in parts:
        sees = _object(part, "vision_encoder_args", where) or (part if "patch_size" in part else {})
        hears = _object(part, "whisper_model_args", where)
        if sees:
            return {
                **around, "model_type": "pixtral", "architectures": ["PixtralForConditionalGeneration"],
                "text_config": text, "vision_config": {**part, **sees},
            }  # fmt: skip
        if hears:
            return {
                **around, "model_type": "voxtral", "text_config": text, "audio_config": _audio(hears, text, where),
                "architectures": [_voxtral(hears, where)],
            }  # fmt: skip
    return {**text, **around}


def _object(holder: Mapping[str, Any], name: str, where: str) -> dict[str, Any]:
    value = holder.get(name)
    if value is not None and not isinstance(value, dict):
        raise ConfigError(f"{where}: {name}", value, "give an object")
    return dict(value or {})


def _windows(text: dict[str, Any], where: str) -> None:
    """A list of windows is one for each of so many layers, again and again."""
    given = text.get("sliding_window")
    if not given:
        return
    pattern = given if isinstance(given, list) else [given]
    sizes = {each for each in pattern if each is not None}
    layers = text.get("num_hidden_layers")
    if len(sizes) > 1 or not isinstance(layers, int) or not 0 < layers <= 10_000:
        raise ConfigError(f"{where}: sliding_window", given, "give one size, or null, for every layer of a pattern")
    text["sliding_window"] = next(iter(sizes), None)
    kinds = ["full_attention" if each is None else "sliding_attention" for each in pattern]
    text["layer_types"] = kinds * (layers // len(kinds))


def _scaling(text: dict[str, Any], where: str) -> None:
    yarn = _object(text, "yarn", where)
    text.pop("yarn", None)
    text.pop("llama_4_scaling", None)  # of queries: changes no size
    if yarn:
        text["rope_parameters"] = {
            "rope_type": "yarn", "factor": yarn.get("factor"),
            "original_max_position_embeddings": yarn.get("original_max_position_embeddings"),
        }  # fmt: skip


def _quantization(text: dict[str, Any], where: str) -> dict[str, Any]:
    given = _object(text, "quantization", where)
    text.pop("quantization", None)
    if given.get("qformat_weight") == "fp8_e4m3":
        is_dynamic = given.get("qscheme_act") == "NO_SCALES"
        return {"quant_method": "fp8", "activation_scheme": "dynamic" if is_dynamic else "static"}
    if given and str(given.get("quant_method", "")).lower().replace("_", "-") != "compressed-tensors":
        raise ConfigError(f"{where}: quantization", given, "use fp8_e4m3 or compressed-tensors")
    return {**given, "quant_method": "compressed-tensors"} if given else {}


_AUDIO: Mapping[str, str] = field_names()["params"]["audio"]


def _audio(hears: dict[str, Any], text: Mapping[str, Any], where: str) -> dict[str, Any]:
    encoder, down = _object(hears, "encoder_args", where), _object(hears, "downsample_args", where)
    sound = _object(encoder, "audio_encoding_args", where)
    named = {_AUDIO[name]: value for name, value in encoder.items() if name in _AUDIO and value is not None}
    factor, longest = down.get("downsample_factor"), text["max_position_embeddings"]
    if encoder.get("causal") and isinstance(factor, int) and isinstance(longest, int):
        named["max_position_embeddings"] = factor * longest
    return {"num_mel_bins": sound.get("num_mel_bins"), "downsample_factor": factor, **named}


def _voxtral(hears: dict[str, Any], where: str) -> str:
    causal = _object(hears, "encoder_args", where).get("causal")
    return "VoxtralRealtimeGeneration" if causal else "VoxtralForConditionalGeneration"
