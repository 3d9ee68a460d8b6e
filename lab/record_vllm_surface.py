# ruff: noqa: SLF001 - the library of that environment has no other way to tell what is registered
"""Records what vLLM's server looks like from outside, its metrics and answers, for `tokenyard emulate`.

Runs inside an environment that vllm_env.sh builds, for each version:

    .venv-vllm-0.32/bin/python lab/record_vllm_surface.py MODEL src/tokenyard/serve/recorded/0.32.json
    .venv-vllm-0.33/bin/python lab/record_vllm_surface.py MODEL src/tokenyard/serve/recorded/0.33.json

MODEL is a folder with any small checkpoint (``tests/vllm/tiny_models.py`` makes one). Facts alone are recorded: names,
kinds, labels, values of labels, bounds of buckets, names of fields with their defaults.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_ANSWERS = {
    "chat": ("vllm.entrypoints.openai.chat_completion.protocol", "ChatCompletionResponse"),
    "chat_choice": ("vllm.entrypoints.openai.chat_completion.protocol", "ChatCompletionResponseChoice"),
    "chat_message": ("vllm.entrypoints.openai.chat_completion.protocol", "ChatMessage"),
    "completion": ("vllm.entrypoints.openai.completion.protocol", "CompletionResponse"),
    "completion_choice": ("vllm.entrypoints.openai.completion.protocol", "CompletionResponseChoice"),
    "usage": ("vllm.entrypoints.serve.engine.protocol", "UsageInfo"),
    "model_card": ("vllm.entrypoints.serve.engine.protocol", "ModelCard"),
    "model_permission": ("vllm.entrypoints.serve.engine.protocol", "ModelPermission"),
    "response": ("vllm.entrypoints.openai.responses.protocol", "ResponsesResponse"),
    "tokenize": ("vllm.entrypoints.serve.tokenize.protocol", "TokenizeResponse"),
    "detokenize": ("vllm.entrypoints.serve.tokenize.protocol", "DetokenizeResponse"),
}
"""Our name of an answer -> where its class is."""
_VARIANTS: dict[str, dict[str, Any]] = {
    "always": {},
    "speculation": {"speculative_config": {"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_max": 3}},
    "lora": {"enable_lora": True},
}
_LENGTHS = (512, 4096)


def main() -> None:
    """Record, and write."""
    model, target = sys.argv[1], Path(sys.argv[2])
    vllm = importlib.import_module("vllm")
    found = {"version": vllm.__version__, "metrics": metrics(model), "answers": dict(answers())}
    target.write_text(_lines(found), encoding="utf-8")
    print(f"{target}: {len(found['metrics'])} metrics, {len(found['answers'])} answers")


def _lines(found: dict[str, Any]) -> str:
    """JSON with a metric or an answer a line, so that what changes between versions is seen."""
    metrics = ",\n".join("  " + json.dumps(each) for each in found["metrics"])
    rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(each)}" for name, each in found["answers"].items())
    version = json.dumps(found["version"])
    return f'{{\n "version": {version},\n "metrics": [\n{metrics}\n ],\n "answers": {{\n{rows}\n }}\n}}\n'


def answers() -> Iterator[tuple[str, dict[str, Any]]]:
    """Fields of each answer in their order, with what stands there where nothing else does."""
    for name, (module, kind) in _ANSWERS.items():
        fields = getattr(importlib.import_module(module), kind).model_fields
        yield name, {key: _default(field) for key, field in fields.items() if not getattr(field, "exclude_if", None)}


def _default(field: Any) -> Any:
    value = field.default
    return value if value is None or isinstance(value, str | int | float | bool | list) else None


def metrics(model: str) -> list[dict[str, Any]]:
    """Every family, and with which settings it is there."""
    rows: dict[str, dict[str, Any]] = {}
    for when, options in _VARIANTS.items():
        short, long = (_families(model, length, options) for length in _LENGTHS)
        for name, row in short.items():
            if row.get("buckets") != long[name].get("buckets"):
                row["buckets"] = _rule(row["buckets"], long[name]["buckets"])
            rows.setdefault(name, {"name": name, **row, "when": when})
    return list(rows.values())


def _rule(short: list[float], long: list[float]) -> str:
    """The name of a rule by which buckets follow from the longest request."""
    for buckets, length in zip((short, long), _LENGTHS, strict=True):
        expected = [each * 10**power for power in range(9) for each in (1, 2, 5)]
        if buckets != [float(each) for each in expected if each <= length]:
            raise SystemExit(f"buckets {buckets} of {length} tokens follow another rule than 1, 2, 5, 10, 20 ...")
    return "1-2-5"


def _families(model: str, max_model_len: int, options: dict[str, Any]) -> dict[str, dict[str, Any]]:
    import prometheus_client
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.metrics.loggers import PrometheusStatLogger

    engine = EngineArgs(model=model, max_model_len=max_model_len, block_size=32, **options).create_engine_config()
    PrometheusStatLogger(engine, [0]).log_engine_initialized()
    found: dict[str, dict[str, Any]] = {}
    registry = prometheus_client.REGISTRY
    collectors: list[Any] = list(registry._collector_to_names)
    for collector in collectors:
        name = getattr(collector, "_name", "")
        if name.startswith("vllm:"):
            found[name] = _row(name, collector)
    return found


def _row(name: str, collector: Any) -> dict[str, Any]:
    """A family's facts, out of the library's own record of it."""
    labels, kind = list(collector._labelnames), collector._type
    children = list(collector._metrics) if labels else []
    row: dict[str, Any] = {"kind": kind, "labels": labels}
    values = {
        label: sorted({child[i] for child in children})
        for i, label in enumerate(labels)
        if label not in ("model_name", "engine") and name != "vllm:cache_config_info"
    }
    if values := {label: each for label, each in values.items() if each}:
        row["values"] = values
    if kind == "histogram":
        bounds = getattr(collector, "_upper_bounds", None) or collector._kwargs["buckets"]
        row["buckets"] = [float(each) for each in bounds if each != float("inf")]
    return row


if __name__ == "__main__":
    main()
