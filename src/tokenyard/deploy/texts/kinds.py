"""The kinds of text that say how vLLM is started. Each is recognised by its content, and read by one function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from tokenyard.deploy.start_facts import HeaderNote, Said
from tokenyard.deploy.texts import charts, commands, operators
from tokenyard.deploy.texts.data import YAMLError, at, yaml_documents
from tokenyard.deploy.texts.manifests import (
    containers_started,
    gpu_named,
    gpu_of_slurm_command,
    machines_of_slurm,
    scaled,
    scalers_of,
    unlisted,
    with_config_maps,
)
from tokenyard.deploy.texts.startup_log import is_startup_log, log_started
from tokenyard.deploy.vllm_serve.shell import MOST_CHARACTERS
from tokenyard.errors import ConfigError
from tokenyard.redaction import hidden_beginning

_LINE = "vllm serve"
_STARTS_WITHIN = "a `vllm serve` stands in it, and not as a command that can be read"
HOW = 'paste the whole line, for example "vllm serve MODEL --max-num-seqs 64"'
_MODEL = "model"
_BY_CONFIG = "a file of flags, as `vllm serve --config` takes it, is given by --config"
MOST_OF_A_LOG = 1 << 22
"""Characters of a log that are looked through: a start is at its beginning."""
_MANIFEST = frozenset(("apiVersion", "kind", "services"))
_AROUND = HeaderNote("manifest", "a script in it", "image, replicas, variables and GPU around the script are not read")
_MANIFEST_STARTS = ("[", "{")
_VISIBLE = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")


class _Kind(msgspec.Struct, frozen=True):
    """A kind of text, or of YAML document."""

    name: str
    is_one: Callable[[Any], bool]
    read: Callable[[Any], list[commands.ContainerCommand]]


def _has(**wanted: str | type) -> Callable[[Any], bool]:
    """Whether a document has a text, or something of a type, under each name (``spec__url``: within ``spec``)."""

    def has(document: Any) -> bool:
        found = ((at(document, *name.split("__")), each) for name, each in wanted.items())
        return all(isinstance(value, each) if isinstance(each, type) else value == each for value, each in found)

    return has


_TEXTS = (
    _Kind("start-up log", is_startup_log, log_started),
    _Kind("systemd unit", commands.is_unit, commands.unit_started),
)
_DOCUMENTS = (
    _Kind("inspection", operators.is_inspection, operators.inspected_started),
    _Kind("KubeAI Model", _has(kind="Model", spec__url=str), operators.model_resource_started),
    _Kind("Ray Serve configuration", operators.is_ray_serve, operators.engines_of_ray),
    _Kind("LLMInferenceService", _has(kind="LLMInferenceService", spec__model__uri=str), operators.llm_service_started),
    _Kind("llm-d values", _has(modelArtifacts__uri=str, decode=Mapping), operators.model_service_started),
    _Kind("production-stack values", _has(servingEngineSpec=Mapping), charts.engines_of_values),
    _Kind("SkyPilot task", charts.is_task, charts.task_started),
    _Kind("InferenceService", _has(kind="InferenceService"), charts.predictors_started),
    _Kind("containers", lambda document: isinstance(document, dict | list), containers_started),
)
"""The first kind that fits reads a document."""


def started_by(text: str, source: str = "serve") -> commands.ContainerCommand:
    """What ``text`` says of how vLLM is started, whichever kind of text it is.

    Raises ConfigError naming ``source`` for a text that holds no start of vLLM, more than one, or more than is read.
    """
    started = _started_by(text, source)
    if started.version is None:
        started = replace(started, version=commands.version_installed(text[:MOST_OF_A_LOG]))
    for name in _VISIBLE:
        devices = started.environment.get(name, "")
        if devices.startswith("MIG-"):
            started = replace(started, gpu=Said("MIG", f"{name} in the text: a slice of a GPU"))
    return replace(_on_slurm(started, text), gpus=started.gpus or commands.gpus_visible(started.environment))


def _on_slurm(started: commands.ContainerCommand, text: str) -> commands.ContainerCommand:
    """The commands with the GPU and the machines that a Slurm script requests, where nothing else says them."""
    text = text[:MOST_OF_A_LOG]
    kind, wanted, nodes = machines_of_slurm(text) if "#SBATCH" in text else (None, None, None)
    where = "of the #SBATCH lines"
    if kind is None and (asked := gpu_of_slurm_command(text)) is not None:
        kind, where = asked, "of Slurm's command"
    # What a machine has to have may be anything; what --gres or --gpus names is a GPU.
    named = kind or wanted
    known = None if named is None else gpu_named(named) or kind
    gpu = None if known is None else Said(known, f"{named} {where}")
    return replace(started, gpu=started.gpu or gpu, nodes=started.nodes or nodes)


def _started_by(text: str, source: str) -> commands.ContainerCommand:
    for kind in _TEXTS:
        if kind.is_one(text[:MOST_OF_A_LOG]):
            return _only(
                kind.read(text[:MOST_OF_A_LOG]), text, source, f"the {kind.name} starts no vLLM that can be read"
            )
    documents, problem = _documents(text)
    documents = [operators.values_of_release(each) for each in unlisted(with_config_maps(documents))]
    scalers = scalers_of(documents)
    found: list[commands.ContainerCommand] = []
    for document in documents:
        kind_of = next((each for each in _DOCUMENTS if each.is_one(document)), None)
        found += [] if kind_of is None else (scaled(each, document, scalers) for each in kind_of.read(document))
    if found:
        return _only(found, text, source, "")
    if problem is not None and (len(text) > MOST_CHARACTERS or "alias" in problem):
        raise ConfigError(source, hidden_beginning(text), problem)
    started = commands.script_started(text, source)
    if started is None:
        is_config = any(isinstance(each, dict) and _MODEL in each for each in documents)
        how = _BY_CONFIG if is_config else HOW
        none = _STARTS_WITHIN if _LINE in text else "holds no `vllm serve`"
        raise ConfigError(source, hidden_beginning(text.strip()), f"{none}: {how}")
    if any(isinstance(each, dict) and not _MANIFEST.isdisjoint(each) for each in documents):
        started = replace(started, notes=(*started.notes, _AROUND))
    return started


def _documents(text: str) -> tuple[list[Any], str | None]:
    """YAML (or JSON) documents of ``text`` that are mappings or lists; what is wrong where there is none."""
    bare = text.strip()
    if "\n" not in bare and not bare.startswith(_MANIFEST_STARTS):
        return [], None
    try:
        return [each for each in yaml_documents(text) if isinstance(each, list | dict)], None
    except YAMLError as error:
        return [], str(error)


def _only(found: list[commands.ContainerCommand], text: str, source: str, none: str) -> commands.ContainerCommand:
    if not found:
        raise ConfigError(source, hidden_beginning(text.strip()), f"{none}: {HOW}")
    if len(found) > 1:
        fix = f"{len(found)} containers start vLLM: paste the one that is meant"
        raise ConfigError(source, hidden_beginning(text.strip()), fix)
    return found[0]
