"""Helm values of vLLM's production-stack: ``servingEngineSpec.modelSpec``, as its chart makes words of them.

The chart's template (``helm/templates/deployment-vllm-multi.yaml``, 2026) turns prefix caching off wherever
``vllmConfig`` does not ask for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tokenyard.launch.texts.containers import environment_of, is_word
from tokenyard.launch.texts.gpu_labels import gpu_of_labels, labels_of_pod, labels_of_terms
from tokenyard.launch.texts.images import version_of_image
from tokenyard.launch.texts.started import Found, Said, Started

__all__ = ["engines_of_values", "is_values"]

_VALUES = {
    "maxModelLen": "--max-model-len",
    "dtype": "--dtype",
    "tensorParallelSize": "--tensor-parallel-size",
    "maxNumSeqs": "--max-num-seqs",
    "gpuMemoryUtilization": "--gpu-memory-utilization",
    "maxLoras": "--max-loras",
}


def is_values(document: Any) -> bool:
    """Whether a document holds values of the chart."""
    return isinstance(document, Mapping) and isinstance(document.get("servingEngineSpec"), Mapping)


def engines_of_values(document: Mapping[str, Any]) -> list[Started]:
    """What each entry of ``modelSpec`` starts."""
    specs = document["servingEngineSpec"].get("modelSpec")
    return [_started(spec) for spec in specs if isinstance(spec, Mapping)] if isinstance(specs, list) else []


def _started(spec: Mapping[str, Any]) -> Started:
    image = f"{spec.get('repository', 'vllm/vllm-openai')}:{spec.get('tag', 'latest')}"
    replicas = spec.get("replicaCount")
    has_replicas = isinstance(replicas, int) and not isinstance(replicas, bool)
    labels = labels_of_pod(spec) + labels_of_terms(spec.get("nodeSelectorTerms"))
    return Started(
        words=[str(spec.get("modelURL", "")), *_words(spec)],
        environment=environment_of(spec.get("env")),
        version=version_of_image(image),
        gpu=gpu_of_labels(labels),
        replicas=Said(str(replicas), "replicaCount of the values") if has_replicas else None,
        notes=tuple(_notes(spec)),
    )


def _words(spec: Mapping[str, Any]) -> Iterator[str]:
    if spec.get("enableLoRA"):
        yield "--enable-lora"
    config = spec.get("vllmConfig")
    if isinstance(config, Mapping) and config:
        if "enableChunkedPrefill" in config:
            yield "--enable-chunked-prefill" if config["enableChunkedPrefill"] else "--no-enable-chunked-prefill"
        yield "--enable-prefix-caching" if config.get("enablePrefixCaching") else "--no-enable-prefix-caching"
        for name, flag in _VALUES.items():
            if is_word(config.get(name)):
                yield from (flag, str(config[name]))
        extra = config.get("extraArgs")
        yield from (str(each) for each in extra if is_word(each)) if isinstance(extra, list) else ()
    cache = spec.get("lmcacheConfig")
    if isinstance(cache, Mapping) and cache.get("enabled"):
        connector = {"kv_connector": "LMCacheConnectorV1", "kv_role": cache.get("kvRole") or "kv_both"}
        yield from ("--kv-transfer-config", json.dumps(connector))


def _notes(spec: Mapping[str, Any]) -> Iterator[Found]:
    config = spec.get("vllmConfig")
    if isinstance(config, Mapping) and config and "enablePrefixCaching" not in config:
        yield Found(
            "prefix caching", "off", "the chart turns it off where vllmConfig does not ask for enablePrefixCaching"
        )
    if isinstance(spec.get("raySpec"), Mapping):
        yield Found("raySpec", "Ray", "the chart starts it over several machines; that is not read")
