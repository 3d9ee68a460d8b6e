"""The model that is served: known by name, by its name on the hub, or read from a config.json; with its weights."""

from __future__ import annotations

from dataclasses import replace

from tokenyard.deploy.settings import HardwareSettings
from tokenyard.launch.model_changes import loads_encoders, overridden
from tokenyard.launch.model_names import known_as
from tokenyard.launch.quantization import check_activations, check_method, online_quantization
from tokenyard.models.named import MODELS, config_of
from tokenyard.models.reading.read import model_from_config
from tokenyard.models.spec import ModelSpec

__all__ = ["served_model"]


def served_model(flags: HardwareSettings, version: str, *, ignore_unmodelled: bool) -> ModelSpec:
    """The model, its weights in the dtype and by the method that were asked for.

    Raises ConfigError for a model, a field or a method that is not known, NoStartError for a method or a dtype that its
    weights are not of.
    """
    known = known_as(flags.model, MODELS)
    name, where, raw = config_of(flags.model if known is None else known.name)
    raw, passed_over = overridden(raw, flags.hf_overrides, ignore_unmodelled=ignore_unmodelled)
    online = None if flags.quantization is None else online_quantization(flags.quantization)
    if online is not None and not raw.get("quantization_config"):
        raw = {**raw, "quantization_config": online}
    model = model_from_config(
        raw, name=name, where=where, dtype=flags.dtype, ignore_unmodelled=ignore_unmodelled, vllm_version=version
    )
    if flags.quantization is not None:
        check_method(flags.quantization, model)
    check_activations(model)
    if known is not None and known.max_model_len is not None and flags.hf_overrides is None:
        model = replace(model, max_model_len=known.max_model_len)
    model = replace(model, ignored=(*model.ignored, *passed_over))
    if flags.language_model_only or not loads_encoders(model, flags.limit_mm_per_prompt):
        return replace(model, encoders=())
    if flags.limit_mm_per_prompt is not None:
        note = f"limit_mm_per_prompt {flags.limit_mm_per_prompt}: memory that vLLM keeps free for images"
        model = replace(model, ignored=(*model.ignored, note))
    return model
