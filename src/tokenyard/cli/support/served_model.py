"""The model that is served: known by name, by its name on the hub, or read from a config.json; with its weights."""

from __future__ import annotations

from dataclasses import replace

from tokenyard.cli.support.flags import HardwareFlags
from tokenyard.errors import NoStartError
from tokenyard.launch.model_names import known_as
from tokenyard.launch.quantization import online_quantization, same_method
from tokenyard.models.named import MODELS, config_of
from tokenyard.models.reading.read import model_from_config
from tokenyard.models.spec import ModelSpec

__all__ = ["served_model"]


def served_model(flags: HardwareFlags, *, ignore_unmodelled: bool) -> ModelSpec:
    """The model, its weights in the dtype and by the method that were asked for.

    Raises ConfigError for a model or a field that is not known, NoStartError for a method that its weights are not of.
    """
    known = known_as(flags.model, MODELS)
    name, where, raw = config_of(flags.model if known is None else known.name)
    online = None if flags.quantization is None else online_quantization(flags.quantization)
    if online is not None and not raw.get("quantization_config"):
        raw = {**raw, "quantization_config": online}
    model = model_from_config(raw, name=name, where=where, dtype=flags.dtype, ignore_unmodelled=ignore_unmodelled)
    if flags.quantization is not None and not same_method(flags.quantization, model.quantization):
        has = f"are {model.quantization}" if model.quantization else "are not quantised"
        raise NoStartError(f"quantization = {flags.quantization!r}, and the weights of {name} {has}")
    if known is not None and known.max_model_len is not None:
        model = replace(model, max_model_len=known.max_model_len)
    return replace(model, encoders=()) if flags.language_model_only else model
