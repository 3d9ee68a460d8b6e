"""Values of charts, InferenceServices and tasks that start vLLM."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from tokenyard.deploy.start_facts import SEVERAL_GPUS, HeaderNote, Nodes, Said
from tokenyard.deploy.texts import manifests
from tokenyard.deploy.texts.commands import ContainerCommand, device_of_image, script_started, version_of_image
from tokenyard.deploy.texts.data import KNOWN, at, items_at
from tokenyard.deploy.texts.manifests import range_of
from tokenyard.errors import ConfigError

# ---------------------------------------------------------------------------------------------------------------------
# KServe's InferenceService: the Hugging Face runtime, which takes vLLM's flags beside its own, or a container.

_OWN: frozenset[str] = frozenset(KNOWN["kserve"])
"""Flags of the runtime itself."""


def predictors_started(document: Mapping[str, Any]) -> list[ContainerCommand]:
    """What its predictor starts."""
    predictor = at(document, "spec", "predictor")
    if not isinstance(predictor, Mapping):
        return []
    model = predictor.get("model") or predictor.get("huggingface")
    found = [_of_runtime(model)] if isinstance(model, Mapping) else manifests.containers_started(predictor)
    gpu = manifests.gpu_of_resources(model.get("resources")) if isinstance(model, Mapping) else None
    gpu = gpu or manifests.gpu_of_labels(manifests.labels_of_pod(predictor))
    where = "minReplicas and maxReplicas of the predictor"
    replicas = range_of(predictor.get("minReplicas"), predictor.get("maxReplicas"), where)
    return [replace(each, gpu=each.gpu or gpu, replicas=replicas or each.replicas) for each in found]


def _of_runtime(model: Mapping[str, Any]) -> ContainerCommand:
    words: list[str] = []
    source = str(model.get("storageUri") or "")
    name = source.removeprefix("hf://") if source.startswith("hf://") else source
    note = HeaderNote("vLLM", "the runtime's own", "the Hugging Face runtime brings one; --vllm-version says which")
    given = [
        part
        for word in manifests.shell_words(model.get("command")) + manifests.shell_words(model.get("args"))
        for part in _word_parts(word)
    ]
    at = 0
    while at < len(given):
        flag = given[at].replace("-", "_").replace("__", "--", 1) if given[at].startswith("--") else given[at]
        has_value = at + 1 < len(given) and not given[at + 1].startswith("--")
        if flag == "--model_id" and has_value:
            name = given[at + 1]
        elif flag not in _OWN:
            words.append(given[at])
            at += 1
            continue
        at += 1 + has_value
    version = version_of_image(str(model.get("image") or ""))
    environment = manifests.environment_of(model.get("env"))
    return ContainerCommand(
        words=["--model", name, *words], environment=environment, version=version, notes=() if version else (note,)
    )


def _word_parts(word: str) -> list[str]:
    """``--flag=value`` as two words."""
    name, equals, value = word.partition("=")
    return [name, value] if equals and name.startswith("--") else [word]


# ---------------------------------------------------------------------------------------------------------------------
# Helm values of vLLM's production-stack: ``servingEngineSpec.modelSpec``, as its chart makes words of them.
#
# The chart's template (``helm/templates/deployment-vllm-multi.yaml``, 2026) turns prefix caching off wherever
# ``vllmConfig`` does not ask for it.

_VALUES: Mapping[str, str] = KNOWN["production_stack"]


def engines_of_values(document: Mapping[str, Any]) -> list[ContainerCommand]:
    """What each entry of ``modelSpec`` starts."""
    specs = items_at(document, "servingEngineSpec", "modelSpec")
    return [_started(spec) for spec in specs if isinstance(spec, Mapping)]


def _started(spec: Mapping[str, Any]) -> ContainerCommand:
    image = f"{spec.get('repository', 'vllm/vllm-openai')}:{spec.get('tag', 'latest')}"
    labels = manifests.labels_of_pod(spec) + manifests.labels_of_terms(spec.get("nodeSelectorTerms"))
    return ContainerCommand(
        words=[str(spec.get("modelURL", "")), *_words_of_spec(spec)],
        environment=manifests.environment_of(spec.get("env")),
        version=version_of_image(image),
        gpu=device_of_image(image)
        or manifests.gpu_of_resources({"limits": {str(spec.get("requestGPUType")): 1}})
        or manifests.gpu_of_labels(labels),
        replicas=_replicas_of_values(spec),
        notes=tuple(_notes(spec)),
    )


def _replicas_of_values(spec: Mapping[str, Any]) -> Said | None:
    if at(spec, "keda", "enabled"):
        least, most = at(spec, "keda", "minReplicaCount"), at(spec, "keda", "maxReplicaCount")
        if (found := range_of(least, most, "keda of the values")) is not None:
            return found
    count = manifests.count_of(spec.get("replicaCount"))
    return None if count is None else Said(count, "replicaCount of the values")


def _words_of_spec(spec: Mapping[str, Any]) -> Iterator[str]:
    if spec.get("enableLoRA"):
        yield "--enable-lora"
    config = spec.get("vllmConfig")
    if isinstance(config, Mapping) and config:
        if "enableChunkedPrefill" in config:
            yield "--enable-chunked-prefill" if config["enableChunkedPrefill"] else "--no-enable-chunked-prefill"
        yield "--enable-prefix-caching" if config.get("enablePrefixCaching") else "--no-enable-prefix-caching"
        for name, flag in _VALUES.items():
            if manifests.is_word(config.get(name)):
                yield from (flag, str(config[name]))
        yield from (str(each) for each in items_at(config, "extraArgs") if manifests.is_word(each))
    if at(spec, "lmcacheConfig", "enabled"):
        role = at(spec, "lmcacheConfig", "kvRole") or "kv_both"
        connector = {"kv_connector": "LMCacheConnectorV1", "kv_role": role}
        yield from ("--kv-transfer-config", json.dumps(connector))


def _notes(spec: Mapping[str, Any]) -> Iterator[HeaderNote]:
    config = spec.get("vllmConfig")
    if isinstance(config, Mapping) and config and "enablePrefixCaching" not in config:
        yield HeaderNote(
            "prefix caching", "off", "the chart turns it off where vllmConfig does not ask for enablePrefixCaching"
        )
    if isinstance(spec.get("raySpec"), Mapping):
        yield HeaderNote("raySpec", "Ray", "the chart starts it over several machines; that is not read")


# ---------------------------------------------------------------------------------------------------------------------
# Tasks of SkyPilot: ``run``, with ``envs``, and the machine that ``resources`` asks for.

_GPUS_PER_NODE = "SKYPILOT_NUM_GPUS_PER_NODE"
_BY_NAME = {"A100": "a100-40gb"}
"""What SkyPilot's catalogue means, where our own reading of the name is another."""
_OF_A_TASK = ("resources", "setup", "envs", "num_nodes", "service", "workdir")


def is_task(document: Any) -> bool:
    """Whether a document is a task."""
    return (
        isinstance(document, Mapping)
        and isinstance(document.get("run"), str)
        and any(name in document for name in _OF_A_TASK)
    )


def task_started(task: Mapping[str, Any], gpu: str | None = None) -> list[ContainerCommand]:
    """What a task starts, if that is vLLM; ``gpu`` chooses among its machines. Raises ConfigError."""
    kinds = [(_BY_NAME.get(name) or manifests.gpu_named(name) or name, count) for name, count in _accelerators(task)]
    asked = [each for each in kinds if gpu is not None and each[0] == (manifests.gpu_named(gpu) or gpu)] or kinds
    counts = {count for _name, count in asked}
    names = dict.fromkeys(name for name, _count in kinds)
    if len(counts) > 1 and _GPUS_PER_NODE in task["run"]:
        kinds_named = SEVERAL_GPUS.join(f"{name}:{count}" for name, count in asked)
        raise ConfigError(
            "gpu", kinds_named, "accelerators of the task: these are several kinds: --gpu says which it is"
        )
    nodes = _number(task.get("num_nodes")) or 1
    environment = {
        **manifests.environment_of(task.get("envs")),
        "SKYPILOT_NUM_NODES": str(nodes),
        "SKYPILOT_NODE_RANK": "0",
    }
    if len(counts) == 1:
        environment[_GPUS_PER_NODE] = counts.pop()
    found = script_started(task["run"], "serve", environment)
    if found is None:
        return []
    device = Said(SEVERAL_GPUS.join(names), "accelerators of the task") if names else None
    machines = Nodes(nodes, _number(environment.get(_GPUS_PER_NODE)), "num_nodes of the task") if nodes > 1 else None
    replicas = _skypilot_replicas(task.get("service"))
    return [replace(found, gpu=found.gpu or device, replicas=replicas, nodes=machines)]


def _number(value: Any) -> int | None:
    text = manifests.count_of(value)
    return None if text is None else int(text)


def _accelerators(task: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Names and numbers of ``H100:8``, ``{H100: 8}``, a list of either, or ``any_of``."""
    resources = task.get("resources")
    for one in (resources, *items_at(resources, "any_of"), *items_at(resources, "ordered")):
        asked = at(one, "accelerators")
        for each in asked if isinstance(asked, list) else [asked]:
            if isinstance(each, Mapping):
                for name, count in each.items():
                    text = str(name) if count is None else f"{name}:{count}"
                    yield _skypilot_parts(text)
            elif isinstance(each, str):
                yield _skypilot_parts(each)


def _skypilot_parts(text: str) -> tuple[str, str]:
    name, _, count = text.partition(":")
    return name.strip(), count.strip() or "1"


def _skypilot_replicas(service: Any) -> Said | None:
    if not isinstance(service, Mapping):
        return None
    least = service.get("replicas", at(service, "replica_policy", "min_replicas"))
    return range_of(least, at(service, "replica_policy", "max_replicas") or least, "replicas of the service")
