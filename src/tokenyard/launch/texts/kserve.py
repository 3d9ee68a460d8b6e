"""KServe's InferenceService: the Hugging Face runtime, which takes vLLM's flags beside its own, or a container."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tokenyard.launch.texts.containers import containers_started, environment_of, words_of
from tokenyard.launch.texts.gpu_labels import gpu_of_labels, labels_of_pod
from tokenyard.launch.texts.images import version_of_image
from tokenyard.launch.texts.started import Found, Said, Started

__all__ = ["is_inference_service", "predictors_started"]

_OWN = frozenset(
    (
        "--backend", "--disable_lower_case", "--disable_special_tokens", "--enable_docs_url", "--grpc_port",
        "--http_port", "--max_asyncio_workers", "--model_dir", "--model_name", "--model_revision",
        "--predictor_host", "--predictor_protocol", "--return_probabilities", "--task", "--tensor_input_names",
        "--tokenizer_revision", "--workers",
    )
)  # fmt: skip
"""Flags of the runtime itself."""


def is_inference_service(document: Any) -> bool:
    """Whether a document is one."""
    return isinstance(document, Mapping) and document.get("kind") == "InferenceService"


def predictors_started(document: Mapping[str, Any]) -> list[Started]:
    """What its predictor starts."""
    spec = document.get("spec")
    predictor = spec.get("predictor") if isinstance(spec, Mapping) else None
    if not isinstance(predictor, Mapping):
        return []
    model = predictor.get("model") or predictor.get("huggingface")
    found = [_of_runtime(model)] if isinstance(model, Mapping) else containers_started(predictor)
    gpu, replicas = gpu_of_labels(labels_of_pod(predictor)), _replicas(predictor)
    return [replace(each, gpu=each.gpu or gpu, replicas=replicas or each.replicas) for each in found]


def _of_runtime(model: Mapping[str, Any]) -> Started:
    words: list[str] = []
    source = str(model.get("storageUri") or "")
    name = source.removeprefix("hf://") if source.startswith("hf://") else source
    note = Found("vLLM", "the runtime's own", "the Hugging Face runtime brings one; --vllm-version says which")
    given = [part for word in words_of(model.get("command")) + words_of(model.get("args")) for part in _parts(word)]
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
    environment = environment_of(model.get("env"))
    return Started(
        words=["--model", name, *words], environment=environment, version=version, notes=() if version else (note,)
    )


def _parts(word: str) -> list[str]:
    """``--flag=value`` as two words."""
    name, equals, value = word.partition("=")
    return [name, value] if equals and name.startswith("--") else [word]


def _replicas(predictor: Mapping[str, Any]) -> Said | None:
    least, most = predictor.get("minReplicas", 1), predictor.get("maxReplicas", 0)
    if not all(isinstance(each, int) and not isinstance(each, bool) for each in (least, most)):
        return None
    if "minReplicas" not in predictor and "maxReplicas" not in predictor:
        return None
    least, most = max(1, least), max(1, least, most)
    return Said(str(least) if most == least else f"{least}..{most}", "minReplicas and maxReplicas of the predictor")
