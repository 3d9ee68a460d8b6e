"""What operators and platforms start: KubeAI's models, Ray Serve, llm-d's chart, releases of charts, inspections."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from tokenyard.deploy.start_facts import HeaderNote, Said
from tokenyard.deploy.texts import manifests
from tokenyard.deploy.texts.commands import ContainerCommand, device_of_image, version_of_image
from tokenyard.deploy.texts.data import YAMLError, at, items_at, yaml_documents
from tokenyard.deploy.texts.manifests import range_of
from tokenyard.deploy.vllm_serve.flags import flag_words
from tokenyard.errors import ConfigError

_HUB = "hf://"


# ---------------------------------------------------------------------------------------------------------------------
# KubeAI's Model: where the weights are, the engine's words, and a profile of resources that names the GPU.

_PROFILE = re.compile(r"nvidia-gpu-([a-z0-9-]{1,60}?)(?::([0-9]{1,3}))?")


def model_resource_started(document: Mapping[str, Any]) -> list[ContainerCommand]:
    """What it starts; nothing for another engine than vLLM."""
    spec = document["spec"]
    if str(spec.get("engine", "VLLM")) != "VLLM":
        return []
    profile = _PROFILE.fullmatch(str(spec.get("resourceProfile") or ""))
    gpu = (
        None if profile is None else Said(manifests.gpu_named(profile[1]) or profile[1], "resourceProfile of the Model")
    )
    gpus = None if profile is None or profile[2] is None else Said(profile[2], "resourceProfile of the Model")
    fixed = spec.get("replicas")
    image = str(spec.get("image") or "")
    note = HeaderNote("vLLM", "KubeAI's own", "no image in the Model: --vllm-version says which")
    return [
        ContainerCommand(
            words=[spec["url"].removeprefix(_HUB), *manifests.shell_words(spec.get("args"))],
            environment=manifests.environment_of(spec.get("env")),
            version=version_of_image(image),
            gpu=device_of_image(image) or gpu,
            gpus=gpus,
            replicas=range_of(spec.get("minReplicas", fixed), spec.get("maxReplicas", fixed), "replicas of the Model"),
            notes=() if image else (note,),
        )
    ]


# ---------------------------------------------------------------------------------------------------------------------
# Ray Serve's LLM configurations: `llm_configs` of an application, in a file for `serve run` or within a RayService.

_RAY_OWN = ("distributed_executor_backend",)
_RAY_NAMES = {"A100": "a100-40gb", "A100-40G": "a100-40gb", "A100-80G": "a100-80gb"}
"""What Ray calls GPUs, where our own reading of the name is another."""


def is_ray_serve(document: Any) -> bool:
    """Whether a document holds such configurations."""
    return isinstance(at(document, "spec", "serveConfigV2"), str) or any(True for _ in _llm_configs(document))


def engines_of_ray(document: Mapping[str, Any]) -> list[ContainerCommand]:
    """What each configuration starts. Raises ConfigError for a text within that is no YAML."""
    text = at(document, "spec", "serveConfigV2")
    inner = [document] if not isinstance(text, str) else _documents(text)
    return [_of_ray(each) for one in inner for each in _llm_configs(one)]


def _documents(text: str) -> list[Any]:
    try:
        return list(yaml_documents(text))
    except YAMLError as error:
        raise ConfigError("serve", "serveConfigV2", str(error)) from None


def _llm_configs(document: Any) -> Iterator[Mapping[str, Any]]:
    has_several = isinstance(at(document, "applications"), list)
    for each in items_at(document, "applications") if has_several else [document]:
        configs = items_at(each, "args", "llm_configs")
        yield from (config for config in configs if isinstance(at(config, "model_loading_config"), Mapping))


def _of_ray(config: Mapping[str, Any]) -> ContainerCommand:
    loading, kwargs = config["model_loading_config"], config.get("engine_kwargs")
    source = loading.get("model_source")
    source = at(source, "bucket_uri") if isinstance(source, Mapping) else source
    words = [str(source or loading.get("model_id") or "")]
    for name, value in kwargs.items() if isinstance(kwargs, Mapping) else ():
        if name not in _RAY_OWN:
            words += flag_words(f"--{str(name).replace('_', '-')}", value)
    kind = config.get("accelerator_type")
    gpu = _RAY_NAMES.get(str(kind)) or manifests.gpu_named(str(kind)) or str(kind)
    scaling = at(config, "deployment_config", "autoscaling_config")
    count = at(config, "deployment_config", "num_replicas")
    least, most = at(scaling, "min_replicas") or count, at(scaling, "max_replicas") or count
    return ContainerCommand(
        words=[*words, "--distributed-executor-backend", "ray"],
        environment=manifests.environment_of(at(config, "runtime_env", "env_vars")),
        gpu=None if kind is None else Said(gpu, "accelerator_type of the configuration"),
        replicas=range_of(least, most, "deployment_config of the configuration"),
        notes=(HeaderNote("vLLM", "Ray's own", "Ray Serve brings one; --vllm-version says which"),),
    )


# ---------------------------------------------------------------------------------------------------------------------
# Values of llm-d's model service: its chart says the model and how many GPUs, a container the rest.


def model_service_started(document: Mapping[str, Any]) -> list[ContainerCommand]:
    """What its roles start: one for `decode`, one for `prefill` where that is created."""
    return [each for role in ("decode", "prefill") for each in _of_role(document, role)]


def _of_role(document: Mapping[str, Any], role: str) -> Iterator[ContainerCommand]:
    spec = document.get(role)
    if not isinstance(spec, Mapping) or spec.get("create") is False or manifests.count_of(spec.get("replicas")) == "0":
        return
    uri = str(document["modelArtifacts"]["uri"])
    model = str(document["modelArtifacts"].get("name") or uri.removeprefix(_HUB))
    tensor, data = (manifests.count_of(at(spec, "parallelism", name)) for name in ("tensor", "data"))
    local = manifests.count_of(at(spec, "parallelism", "dataLocal"))
    said = [
        *(("--tensor-parallel-size", tensor) if tensor else ()),
        *(("--data-parallel-size", data) if data else ()),
        *(("--data-parallel-size-local", local) if data and local else ()),
    ]
    key, kinds = (at(spec, "acceleratorTypes", name) for name in ("labelKey", "labelValues"))
    gpu = manifests.gpu_of_labels(
        manifests.labels_of_terms([{"matchExpressions": [{"key": key, "operator": "In", "values": kinds}]}])
    )
    for container in (each for each in items_at(spec, "containers") if isinstance(each, Mapping)):
        is_served = container.get("modelCommand") == "vllmServe"
        words = ["vllm", "serve", model, *manifests.shell_words(container.get("args")), *said]
        plain = {**container, "command": words, "args": []} if is_served else container
        for each in manifests.containers_started({"replicas": spec.get("replicas"), "containers": [plain]}):
            yield replace(each, gpu=each.gpu or gpu)


# ---------------------------------------------------------------------------------------------------------------------
# KServe's LLMInferenceService: a model, how it is spread, and what its main container adds to KServe's own start.

_MORE_WORDS = "VLLM_ADDITIONAL_ARGS"


def llm_service_started(document: Mapping[str, Any]) -> list[ContainerCommand]:
    """What it starts: one for decode or both, one for ``prefill`` where that is apart."""
    spec = document["spec"]
    return [each for role in (spec, spec.get("prefill")) if isinstance(role, Mapping) for each in _of_llm(spec, role)]


def _of_llm(spec: Mapping[str, Any], role: Mapping[str, Any]) -> Iterator[ContainerCommand]:
    pod = role.get("template")
    main = dict(next((each for each in items_at(pod, "containers") if at(each, "name") == "main"), {}))
    environment = manifests.environment_of(main.get("env"))
    uri, name = str(spec["model"]["uri"]), spec["model"].get("name")
    is_named = isinstance(name, str) and name and not uri.startswith(_HUB)
    model = str(name) if is_named else uri.removeprefix(_HUB)
    where = (HeaderNote("model", name, f"its files are in {uri}: taken by its name"),) if is_named else ()
    words = ["vllm", "serve", model, *manifests.shell_words(main.get("args"))]
    for kind in ("tensor", "pipeline", "data"):
        size = manifests.count_of(at(role, "parallelism", kind))
        words += [f"--{kind}-parallel-size", size] if size else []
    local = manifests.count_of(at(role, "parallelism", "dataLocal"))
    words += (
        ["--data-parallel-size-local", local] if local and manifests.count_of(at(role, "parallelism", "data")) else []
    )
    words += ["--enable-expert-parallel"] if at(role, "parallelism", "expert") is True else []
    words += manifests.shell_words(environment.pop(_MORE_WORDS, None))
    plain = {**main, "command": words, "args": [], "env": None, "environment": environment}
    around = {**pod, "containers": [plain]} if isinstance(pod, Mapping) else {"containers": [plain]}
    note = HeaderNote("vLLM", "KServe's own", "no image in the service: --vllm-version says which")
    least, most = (at(role, "scaling", name) for name in ("minReplicas", "maxReplicas"))
    scaled = range_of(least, most, "scaling of the service")
    for each in manifests.containers_started({"replicas": role.get("replicas"), "template": around}):
        notes = (*each.notes, *where) if main.get("image") else (*each.notes, *where, note)
        yield replace(each, replicas=scaled or each.replicas, notes=notes)


# ---------------------------------------------------------------------------------------------------------------------
# Releases of charts: their values are documents of their own.


def values_of_release(document: Any) -> Any:
    """The values that a HelmRelease of Flux or an Application of Argo CD gives its chart; another document as it is."""
    kind = at(document, "kind")
    if kind == "HelmRelease":
        return at(document, "spec", "values") or document
    if kind != "Application":
        return document
    helm = at(document, "spec", "source", "helm")
    text = at(helm, "values")
    written = next(iter(_documents(text)), None) if isinstance(text, str) else None
    return at(helm, "valuesObject") or written or document


# ---------------------------------------------------------------------------------------------------------------------
# What `docker inspect` says of a container that runs.


def is_inspection(document: Any) -> bool:
    """Whether a document is one."""
    first = document[0] if isinstance(document, list) and document else document
    return isinstance(at(first, "Config"), Mapping) and isinstance(at(first, "Args"), list)


def inspected_started(document: Any) -> list[ContainerCommand]:
    """What each container in it runs."""
    found: list[ContainerCommand] = []
    for each in document if isinstance(document, list) else [document]:
        config = at(each, "Config")
        if isinstance(config, Mapping):
            plain = {
                "image": str(config.get("Image") or ""),
                "command": [str(each.get("Path") or ""), *manifests.shell_words(each.get("Args"))],
                "environment": config.get("Env"),
            }
            found += manifests.containers_started(plain)
    return found
