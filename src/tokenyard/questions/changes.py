"""Settings of a run by name: which there are, what they may hold, and a run with some of them changed."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from tokenyard.connectors.config import PREFILL_DECODE
from tokenyard.deploy.given import changed
from tokenyard.deploy.names import group_of, names_of
from tokenyard.errors import ConfigError
from tokenyard.launch.hub_ids import hub_id
from tokenyard.launch.names import setting_name
from tokenyard.models.named import MODELS
from tokenyard.questions.scenario import Scenario
from tokenyard.questions.sides import ENDS, Shape, read_shape
from tokenyard.redaction import hidden_setting
from tokenyard.sim.sweep.row import Setting, Settings

__all__ = ["convert", "is_load", "serve_words", "split_words"]

_OF_REPLICAS = ("replicas", "startup", "scale_target")
"""What is around a deployment, and no flag of it."""
_NO_FLAGS_OF_VLLM = ("gpu", "latency", "skip_oversized_prefill", "running_index_drifts", "router")
_OF_A_SPLIT = ("split", "kv_link_gb_per_s")
_VLLM_POLICIES = ("fcfs", "priority")


_NO_CHOICES = ("trace", "record_requests", "max_ids_per_step", "vllm_version", "ignore_unmodelled", "serve", "config")
"""Settings that are no part of a variant."""


@cache
def _names() -> list[str]:
    return [name for name in names_of(Scenario) if name not in _NO_CHOICES]


def convert(given: str, value: Any, flag: str = "--set") -> tuple[str, Setting]:
    """A setting by its own name, and its value in its type. Raises ConfigError naming ``flag``, or the setting."""
    name = setting_name(given)
    value = hidden_setting(value) if isinstance(value, str) else value
    found = group_of(Scenario, name)
    if found is None or name not in _names():
        raise ConfigError(
            flag, given, f"there is no such setting: use one of {', '.join(_names())}", code="unknown_setting"
        )
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
    found = group_of(Scenario, name)
    return found is not None and found[0] == "arrivals"


def serve_words(run: Scenario, settings: Settings) -> tuple[list[str], list[str]]:
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


def split_words(run: Scenario, settings: Settings, shape: Shape) -> tuple[list[str], list[str]]:
    """The words behind ``vllm serve`` for the prefill engines of a split, and for its decode engines."""
    sides = []
    for size, (_, role) in zip(shape, ENDS, strict=True):
        transfer = msgspec.json.encode({"kv_connector": PREFILL_DECODE, "kv_role": role}).decode()
        own = {"data_parallel_size": size} if size > 1 else {}
        words, _ = serve_words(run, {**settings, **own, "kv_transfer_config": transfer})
        sides.append(words)
    return sides[0], sides[1]
