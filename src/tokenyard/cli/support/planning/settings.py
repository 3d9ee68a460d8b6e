"""Settings of a run by name: which there are, what they may hold, and a run with some of them changed."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cache
from typing import Any, get_type_hints

import msgspec

from tokenyard.cli.support.planning.sides import ENDS, Planned, Shape, read_shape
from tokenyard.connectors.config import PREFILL_DECODE
from tokenyard.errors import ConfigError
from tokenyard.launch.hub_ids import hub_id
from tokenyard.models.named import MODELS
from tokenyard.redaction import hidden_setting
from tokenyard.sim.sweep.row import Setting, Settings

__all__ = ["changed", "convert", "is_load", "serve_words", "split_words"]

_GROUPS = ("arrivals", "hardware", "scheduler", "parallel", "adapters", "transfer", "speculation", "apart")
_OTHER_NAMES = {
    "policy": "scheduling_policy",
    "tp": "tensor_parallel_size",
    "num_gpu_blocks": "num_gpu_blocks_override",
    "no_async_scheduling": "",
}
_OF_REPLICAS = ("replicas", "startup", "scale_target")
"""What is around a deployment, and no flag of it."""
_NO_FLAGS_OF_VLLM = ("gpu", "latency", "skip_oversized_prefill", "running_index_drifts", "router")
_OF_A_SPLIT = ("split", "kv_link_gb_per_s")
_VLLM_POLICIES = ("fcfs", "priority")


@cache
def _group_of(name: str) -> tuple[str, Any] | None:
    """The group of flags that has a setting, and its type."""
    kinds = get_type_hints(Planned)
    for group in _GROUPS:
        if name in {field.name for field in fields(kinds[group])}:
            return group, get_type_hints(kinds[group])[name]
    return None


@cache
def _names() -> list[str]:
    kinds = get_type_hints(Planned)
    return sorted({field.name for group in _GROUPS for field in fields(kinds[group])} - {"no_async_scheduling"})


def convert(given: str, value: Any, flag: str = "--set") -> tuple[str, Setting]:
    """A setting by its own name, and its value in its type. Raises ConfigError naming ``flag``, or the setting."""
    name = given.strip().removeprefix("--").replace("-", "_")
    name = _OTHER_NAMES.get(name, name)
    value = hidden_setting(value) if isinstance(value, str) else value
    found = _group_of(name) if name else None
    if found is None:
        raise ConfigError(flag, given, f"there is no such setting: use one of {', '.join(_names())}")
    text = value.strip().lower() if isinstance(value, str) and found[1] is bool else value
    if isinstance(value, str) and value.strip().lower() in ("none", "null", "default"):
        text = None
    if name == "replicas" and isinstance(text, int) and not isinstance(text, bool):
        text = str(text)
    if name == "split" and text is not None:
        return name, str(read_shape(str(text)))
    try:
        return name, msgspec.convert(text, found[1], strict=False)
    except msgspec.ValidationError:
        raise ConfigError(name, value, f"give {_said(found[1])}") from None


def _said(kind: Any) -> str:
    text = str(kind)
    for word, sentence in (("int", "a whole number"), ("float", "a number"), ("bool", "true or false")):
        if word in text:
            return sentence
    return "a text that it may be"


def is_load(name: str) -> bool:
    """Whether a setting is about what arrives."""
    found = _group_of(name)
    return found is not None and found[0] == "arrivals"


def changed(run: Planned, settings: Settings) -> Planned:
    """The same run with other settings, as if their flags had been typed."""
    values = dict(settings)
    if "async_scheduling" in values:
        values["no_async_scheduling"] = not values["async_scheduling"]
    for name, value in values.items():
        found = _group_of(name)
        assert found is not None, name
        part = getattr(run, found[0])
        run = replace(run, **{found[0]: replace(part, **{name: value})})
    asked = run.launch.asked
    return replace(run, launch=replace(run.launch, asked=replace(asked, named=asked.named | set(values))))


def serve_words(run: Planned, settings: Settings) -> tuple[list[str], list[str]]:
    """The words behind ``vllm serve``, and sentences about what no flag of vLLM says."""
    given = [each for each in run.launch.asked.given if each.flag.field not in (*settings, "model")]
    model = run.hardware.model
    words = [hub_id(model) or model, *(word for each in given for word in each.words)]
    said: list[str] = []
    if hub_id(model) is None and model.lower() in MODELS:
        said.append(f"{model} is Tokenyard's name: put the path of your weights there, or their name on the hub")
    for name, value in settings.items():
        if is_load(name) or name in ("gpu", *_OF_A_SPLIT, *_OF_REPLICAS) or value is None:
            continue
        if name == "router" and changed(run, settings).parallel.replicas is not None:
            continue
        if name in _NO_FLAGS_OF_VLLM or (name == "scheduling_policy" and value not in _VLLM_POLICIES):
            said.append(f"{name}={value} is Tokenyard's: vLLM has no flag for it (docs/vllm.md)")
            continue
        flag = name.replace("_", "-")
        words += [f"--{flag}" if value else f"--no-{flag}"] if isinstance(value, bool) else [f"--{flag}", str(value)]
    return words, said


def split_words(run: Planned, settings: Settings, shape: Shape) -> tuple[list[str], list[str]]:
    """The words behind ``vllm serve`` for the prefill engines of a split, and for its decode engines."""
    sides = []
    for size, (_, role) in zip(shape, ENDS, strict=True):
        transfer = msgspec.json.encode({"kv_connector": PREFILL_DECODE, "kv_role": role}).decode()
        own = {"data_parallel_size": size} if size > 1 else {}
        words, _ = serve_words(run, {**settings, **own, "kv_transfer_config": transfer})
        sides.append(words)
    return sides[0], sides[1]
