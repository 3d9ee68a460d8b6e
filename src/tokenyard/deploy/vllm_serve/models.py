"""The model that flags name: what flags change of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tokenyard.deploy.vllm_serve.flags import KNOWN
from tokenyard.deploy.vllm_serve.refusals import refused
from tokenyard.errors import ConfigError, NotModelledError
from tokenyard.models.inputs import inputs_of, most_items
from tokenyard.models.spec import EncoderSpec, ModelSpec

# ---------------------------------------------------------------------------------------------------------------------
# What flags change of a model that is read: fields of its config.json, and whether its encoders are loaded.

_POSITIONS: tuple[str, ...] = tuple(KNOWN["positions"])
"""Fields that say how long a context may be; no shape depends on them."""
_TEXT_CONFIG = "text_config"
_TEXT_APART = ("qwen2_5_vl",)
"""Model types whose file may name fields of the decoder outside, and whose length vLLM reads inside alone."""
_LEARNED = ("gpt2", "gpt_bigcode", "opt", "whisper")
"""Model types that have learned positions, a fixed number of them."""


UNSAID = 999
"""Items of a kind that vLLM allows where a line does not say how many."""


class Changed(NamedTuple):
    """A config.json after overrides."""

    raw: dict[str, Any]
    ignored: tuple[str, ...] = ()
    """Overrides that were ignored."""


def overridden(raw: Mapping[str, Any], overrides: str | None, *, ignore_unmodelled: bool) -> Changed:
    """``raw`` with the fields of ``--hf-overrides``.

    Raises NotModelledError for fields that are not those of positions, unless they are to be ignored. Positions
    of a model type whose decoder vLLM reads apart are left as they are: so does vLLM.
    """
    if overrides is None:
        return Changed(dict(raw))
    given = _object("hf_overrides", overrides)
    inner = given.get(_TEXT_CONFIG)
    is_nested = isinstance(raw.get(_TEXT_CONFIG), dict)
    positions = () if is_nested or raw.get("model_type") in _LEARNED else _POSITIONS
    outer = {key: value for key, value in given.items() if key in positions}
    nested = {key: value for key, value in inner.items() if key in _POSITIONS} if isinstance(inner, dict) else {}
    nested = nested if is_nested else {}
    left = {key: value for key, value in given.items() if key not in outer and key != _TEXT_CONFIG}
    if isinstance(inner, dict):
        left |= {f"{_TEXT_CONFIG}.{key}": value for key, value in inner.items() if key not in nested}
    said = [(f"--hf-overrides {json.dumps({key: value})}", "the model is changed") for key, value in left.items()]
    if said and not ignore_unmodelled:
        raise NotModelledError([(flag, f"{why}: give a changed config.json by --model") for flag, why in said])
    if raw.get("model_type") in _TEXT_APART:
        outer = {}
    # The newer name wins over what the file says by the older one.
    kept = {key: value for key, value in raw.items() if key != "rope_scaling" or "rope_parameters" not in outer}
    changed = {**kept, **outer}
    if nested:
        changed[_TEXT_CONFIG] = {**raw[_TEXT_CONFIG], **nested}
    return Changed(changed, tuple(f"{flag}: {why}" for flag, why in said))


def encoders_in_use(model: ModelSpec, per_prompt: str | None) -> tuple[EncoderSpec, ...]:
    """The encoders that ``--limit-mm-per-prompt`` leaves a use: vLLM loads no other. ConfigError if it is no limit."""
    if per_prompt is None or not model.encoders:
        return model.encoders
    forbidden = {kind for kind, count in input_limits(per_prompt).items() if count == 0}
    inputs = {encoder: inputs_of(model, encoder) for encoder in model.encoders}
    return tuple(encoder for encoder in model.encoders if not inputs[encoder] or inputs[encoder] - forbidden)


def input_limits(per_prompt: str | None) -> dict[str, int]:
    """How many of each input ``--limit-mm-per-prompt`` allows a prompt, where it says so."""
    given = {} if per_prompt is None else _object("limit_mm_per_prompt", per_prompt)
    counts = {kind: _count(kind, value) for kind, value in given.items()}
    return {kind: count for kind, count in counts.items() if count is not None}


_SIZES: Mapping[str, Sequence[str]] = KNOWN["sizes"]
"""What a line may say of items beside their count."""


def item_sizes(per_prompt: str | None) -> dict[str, dict[str, int]]:
    """By input, the sizes that ``--limit-mm-per-prompt`` says of it, in pixels, frames and samples.

    Inputs of which it says none, or which it forbids, are left out. ConfigError for a size that there is not, or that
    is no whole number from 1.
    """
    given = {} if per_prompt is None else _object("limit_mm_per_prompt", per_prompt)
    found = {}
    for kind, said in given.items():
        others = {name: value for name, value in said.items() if name != "count"} if isinstance(said, dict) else {}
        known = _SIZES.get(kind)
        if known is None:
            continue  # vLLM passes over what is said of other inputs beside their count
        for name, value in others.items():
            if name not in known:
                fix = f"is no size of it: give {' or '.join((*known, 'count'))}"
                raise ConfigError(f"limit_mm_per_prompt.{kind}.{name}", value, fix)
        sizes = {
            name: _whole(f"limit_mm_per_prompt.{kind}.{name}", value, 1)
            for name, value in others.items()
            if value is not None
        }
        if sizes and _count(kind, said) != 0:
            found[kind] = sizes
    return found


def items_allowed(architecture: str, kind: str, per_prompt: str | None) -> int:
    """The most items of a kind (``image``, ``video`` ...) that vLLM takes in a prompt: the line's, the model's at most.

    Where vLLM's answer for the architecture is not recorded, its class is taken to have no limit of its own.
    """
    of_line, of_model = input_limits(per_prompt).get(kind, UNSAID), most_items(architecture, kind)
    return of_line if of_model is None else min(of_line, of_model)


def _count(kind: str, value: Any) -> int | None:
    """How many are allowed: a number, or the ``count`` among sizes; None where no flag says."""
    field = f"limit_mm_per_prompt.{kind}"
    if isinstance(value, dict):
        return _whole(f"{field}.count", value["count"], 0) if "count" in value else None
    if not isinstance(value, int):
        raise ConfigError(field, value, 'give a whole number from 0, or an object: {"count": 2}')
    return _whole(field, value, 0)


def _whole(field: str, value: Any, least: int) -> int:
    """The whole number that vLLM reads: ``2``, ``2.0``, ``"2"``, ``true`` (1). ConfigError for anything else."""
    is_text = isinstance(value, str) and value.strip().isdecimal()
    is_number = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if not (is_text or is_number) or int(value) < least:
        raise ConfigError(field, value, f"give a whole number from {least}")
    return int(value)


def _object(field: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ConfigError(field, text, 'give a JSON object: {"KEY": VALUE}')
    return value


# ---------------------------------------------------------------------------------------------------------------------
# ``--quantization``: what vLLM does with weights as it loads them, and which names mean the same weights.

_ONLINE: Mapping[str, dict[str, Any]] = KNOWN["online"]
"""Methods that weights as they are can be turned into, as ``quantization_config`` would say it."""
_ONLINE_TOO: Sequence[str] = KNOWN["online_too"]
"""Others that vLLM starts with where weights are not quantised."""
ONLINE = frozenset((*_ONLINE, *_ONLINE_TOO))
"""Both."""
_ON_ANY = ("gguf", "humming")
"""vLLM starts with them however weights are quantised."""
_BY_THE_WEIGHTS = ("mxfp4", "modelopt")
"""Weights of these methods are loaded by them, whatever is requested."""
_KERNELS = ("_marlin", "-marlin", "_machete")
_WNA16 = ("awq", "gptq")
_ACTIVATIONS: Mapping[str, Sequence[str]] = KNOWN["activations"]
"""Dtypes that their kernels take."""


def online_quantization(method: str) -> dict[str, Any] | None:
    """The ``quantization_config`` of weights that vLLM quantises itself; None if it has to find them quantised."""
    return _ONLINE.get(method)


def check_method(asked: str, model: ModelSpec) -> None:
    """Whether vLLM loads weights of ``model`` as ``asked``.

    NoStartError for a method that they are not of, ConfigError for one that vLLM has and a replay does not.
    """
    found = model.quantization
    if (asked, found, model.model_type) == ("humming", "mxfp4", "gpt_oss"):
        raise refused("humming_of_experts", asked, model=model.name)
    if found in _BY_THE_WEIGHTS or (found is not None and _is_same(asked, found)):
        return
    known = asked in (_ONLINE_TOO if found is None else _ON_ANY) or (asked, found) == ("deepseek_v4_fp8", "fp8")
    if known:
        raise ConfigError("quantization", asked, f"is not modelled with the weights of {model.name}: leave it out")
    raise refused("another_method" if found else "not_quantised", asked, model=model.name, found=found)


def check_activations(model: ModelSpec) -> None:
    """Raise NoStartError for a dtype that the kernels for its quantised weights do not take."""
    taken = _ACTIVATIONS.get(model.quantization or "")
    if taken is not None and model.dtype not in taken:
        said = {"found": model.quantization, "model": model.name, "taken": " or ".join(taken)}
        raise refused("dtype_of_weights", model.dtype, **said)


def _is_same(asked: str, found: str) -> bool:
    """Whether both name the same weights: kernels have names of their own."""
    plain, known = _without_kernel(asked), _without_kernel(found)
    if plain == "moe-wna16":
        return known in _WNA16
    return plain in (known, f"auto-{known}") or known.startswith(f"{plain}-")


def _without_kernel(method: str) -> str:
    short = method.lower()
    for kernel in _KERNELS:
        short = short.removesuffix(kernel)
    return short.replace("_", "-")
