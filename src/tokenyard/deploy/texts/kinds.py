"""The kinds of text that say how vLLM is started. Each is recognised by its content, and read by one function."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from tokenyard.deploy.start_facts import HeaderNote, Said
from tokenyard.deploy.texts import charts, commands, operators, programs
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
from tokenyard.deploy.texts.unread import unread_in
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
_IS_MANIFEST = re.compile(r"^(?:apiVersion|kind|services|servingEngineSpec):", re.MULTILINE)
_PLACE = re.compile(r"\{\{-?([^{}\n]{0,200}?)-?\}\}")
_CONTROL = re.compile(r"^[ \t]*\{\{-?[^{}\n]{0,200}\}\}[ \t]*$", re.MULTILINE)
"""Lines of a template that decide what stands below them."""
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
    _Kind("log of a runner", programs.is_runner_log, programs.runner_started),
    _Kind("text", programs.is_fenced, programs.fenced_started),
    _Kind("Python program", programs.is_program, programs.program_started),
)
_DOCUMENTS = (
    _Kind("inspection", operators.is_inspection, operators.inspected_started),
    _Kind("KubeAI Model", _has(kind="Model", spec__url=str), operators.model_resource_started),
    _Kind("Ray Serve configuration", operators.is_ray_serve, operators.engines_of_ray),
    _Kind("LLMInferenceService", _has(kind="LLMInferenceService", spec__model__uri=str), operators.llm_service_started),
    _Kind("llm-d values", _has(modelArtifacts__uri=str, decode=Mapping), operators.model_service_started),
    _Kind("production-stack values", _has(servingEngineSpec=Mapping), charts.engines_of_values),
    _Kind("InferenceService", _has(kind="InferenceService"), charts.predictors_started),
    _Kind("containers", lambda document: isinstance(document, dict | list), containers_started),
)
"""The first kind that fits reads a document."""


def started_by(text: str, source: str = "serve", *, gpu: str | None = None) -> commands.ContainerCommand:
    """What ``text`` says of how vLLM is started, whichever kind of text it is; ``gpu`` chooses among those it offers.

    Raises ConfigError naming ``source`` for a text that holds no start of vLLM, more than one, or more than is read.
    """
    started = _started_by(text, source, gpu)
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


def _started_by(text: str, source: str, gpu: str | None) -> commands.ContainerCommand:
    for kind in _TEXTS:
        if kind.is_one(text[:MOST_OF_A_LOG]):
            return _only(
                kind.read(text[:MOST_OF_A_LOG]), text, source, f"the {kind.name} starts no vLLM that can be read"
            )
    documents, problem, notes = _documents(text)
    found = _of_documents(documents, gpu)
    if found:
        started = _only(found, text, source, "")
        unread = unread_in(documents, lambda: _of_documents(documents, gpu))
        return replace(started, passed_over=(*started.passed_over, *notes, *unread))
    if problem is not None and _IS_MANIFEST.search(text):
        raise ConfigError(source, hidden_beginning(text), f"{problem}: a manifest has to be YAML to be read")
    if problem is not None and (len(text) > MOST_CHARACTERS or "alias" in problem):
        raise ConfigError(source, hidden_beginning(text), problem)
    script = commands.script_started(text, source)
    if script is None:
        is_config = any(isinstance(each, dict) and _MODEL in each for each in documents)
        how = _BY_CONFIG if is_config else HOW
        none = _STARTS_WITHIN if _LINE in text else "holds no `vllm serve`"
        raise ConfigError(source, hidden_beginning(text.strip()), f"{none}: {how}")
    if any(isinstance(each, dict) and not _MANIFEST.isdisjoint(each) for each in documents):
        script = replace(script, notes=(*script.notes, _AROUND))
    return script


def _of_documents(documents: list[Any], gpu: str | None) -> list[commands.ContainerCommand]:
    """What the documents start, each as the first kind that fits reads it."""
    whole = [operators.values_of_release(each) for each in unlisted(with_config_maps(documents))]
    scalers = scalers_of(whole)
    found: list[commands.ContainerCommand] = []
    for document in whole:
        if charts.is_task(document):
            found += charts.task_started(document, gpu)
            continue
        kind_of = next((each for each in _DOCUMENTS if each.is_one(document)), None)
        found += [] if kind_of is None else (scaled(each, document, scalers) for each in kind_of.read(document))
    return found


def _documents(text: str) -> tuple[list[Any], str | None, tuple[HeaderNote, ...]]:
    """YAML (or JSON) documents of ``text`` that are mappings or lists; what is wrong where there is none.

    Places that a template leaves to fill in, ``{{ .Values.model }}``, become variables that nothing sets.
    """
    bare = text.strip()
    if "\n" not in bare and not bare.startswith(_MANIFEST_STARTS):
        return [], None, ()
    places = dict.fromkeys(each[0] for each in _PLACE.finditer(text[:MOST_OF_A_LOG])) if "{{" in text else {}
    filled = _PLACE.sub(_as_variable, _CONTROL.sub("", text)) if places else text
    notes = (HeaderNote("template", ", ".join(places)[:200], "left to be filled in: not read"),) if places else ()
    try:
        return [each for each in yaml_documents(filled) if isinstance(each, list | dict)], None, notes
    except YAMLError as error:
        return [], str(error), ()


def _as_variable(place: re.Match[str]) -> str:
    """``{{ .Values.model }}`` as a variable of a shell: ``${Values_model}``."""
    name = re.sub(r"\W+", "_", place[1].strip()).strip("_")
    return f"${{{name[:60] or 'TEMPLATE'}}}"


def _only(found: list[commands.ContainerCommand], text: str, source: str, none: str) -> commands.ContainerCommand:
    if not found:
        raise ConfigError(source, hidden_beginning(text.strip()), f"{none}: {HOW}")
    if len(found) > 1:
        fix = f"{len(found)} containers start vLLM: paste the one that is meant"
        fix += "; prefill and decode apart are replayed by tokenyard split"
        raise ConfigError(source, hidden_beginning(text.strip()), fix)
    return found[0]
