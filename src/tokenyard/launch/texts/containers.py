"""Containers of Kubernetes and of Compose that start vLLM.

    containers: [{command: [...], args: [...], env: [...]}]      Kubernetes, at any depth
    services: {name: {command: ..., environment: ...}}           Compose
    args: [...], or the bare list, in YAML or JSON                what somebody copied out of either

What stands there takes the place of an image's command, or follows its entry point (``vllm serve``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tokenyard.errors import ConfigError
from tokenyard.launch.shell import MOST_CHARACTERS, ShellError, commands
from tokenyard.launch.texts.command import Expander, script_started, words_started
from tokenyard.launch.texts.compose import interpolated, is_compose
from tokenyard.launch.texts.gpu_labels import gpu_of_labels, labels_of_pod
from tokenyard.launch.texts.images import version_of_image
from tokenyard.launch.texts.started import Found, Said, Started
from tokenyard.redaction import hidden_beginning

__all__ = ["containers_started", "environment_of", "is_word", "words_of"]

_WORDS = ("entrypoint", "command", "args")
_REPLICAS = {"replicas": "replicas of the manifest", "replicaCount": "replicaCount of the values"}
_SHELLS = ("sh", "bash", "zsh", "ash", "dash")
_REFERENCE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]{0,200})\)")
_NUMBER = re.compile(r"[0-9]{1,9}")
_DEEPEST = 60
"""Levels of a manifest that are looked into."""


@dataclass(frozen=True, slots=True)
class _Around:
    """What stands around a container."""

    replicas: Said | None = None
    pod: Mapping[str, Any] | None = None
    is_compose: bool = False


def containers_started(document: Any) -> list[Started]:
    """What the containers in a document start, those that have nothing to do with vLLM aside. Raises ConfigError."""
    around = _Around(is_compose=is_compose(document))
    found = (_started_in(container, around) for container, around in _containers(document, around, _DEEPEST))
    return [each for each in found if each is not None]


def _containers(value: Any, around: _Around, levels: int) -> Iterator[tuple[Mapping[str, Any], _Around]]:
    """Mappings that say what to run, at any depth, with what stands around them."""
    if levels == 0:
        return
    if isinstance(value, list):
        if value and all(is_word(each) for each in value):
            yield {"args": value}, around
            return
        for each in value:
            yield from _containers(each, around, levels - 1)
    elif isinstance(value, Mapping):
        if any(isinstance(value.get(name), list | str) for name in _WORDS) or isinstance(value.get("image"), str):
            yield value, around
            return
        around = _with_replicas(around, value)
        if isinstance(value.get("containers"), list) or isinstance(value.get("nodeSelector"), Mapping):
            around = replace(around, pod=value)
        for each in value.values():
            if isinstance(each, Mapping) or (isinstance(each, list) and any(isinstance(one, Mapping) for one in each)):
                yield from _containers(each, around, levels - 1)


def _with_replicas(around: _Around, value: Any) -> _Around:
    for name, where in _REPLICAS.items() if isinstance(value, Mapping) else ():
        count = _count(value.get(name))
        if count is not None:
            return replace(around, replicas=Said(count, where))
    return around


def _scaled(around: _Around, container: Mapping[str, Any]) -> _Around:
    """With the replicas of a service of Compose; ``scale`` is the older name."""
    if "deploy" in container:
        return _with_replicas(around, container["deploy"])
    count = _count(container.get("scale"))
    return around if count is None else replace(around, replicas=Said(count, "scale of the service"))


def _count(value: Any) -> str | None:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if is_number or (isinstance(value, str) and _NUMBER.fullmatch(value)) else None


def is_word(value: Any) -> bool:
    """Whether a value of YAML is one word of a command line."""
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _started_in(container: Mapping[str, Any], around: _Around | None = None) -> Started | None:
    """What one container starts; None if it is not vLLM's. Raises ConfigError."""
    around = around or _Around()
    notes: tuple[Found, ...] = ()
    if around.is_compose:
        container, notes = interpolated(container)
    around = _scaled(around, container)
    environment = environment_of(container.get("env") or container.get("environment"))
    image = _image(container)
    words = _resolved([word for name in _WORDS for word in words_of(container.get(name))], environment)
    found = _run(words, environment, image, says_nothing="image" not in container)
    if found is None:
        return None
    gpu = None if around.pod is None else gpu_of_labels(labels_of_pod(around.pod))
    return replace(
        found,
        version=found.version or version_of_image(image),
        gpu=found.gpu or gpu,
        replicas=around.replicas,
        notes=(*found.notes, *notes, *_notes(container)),
    )


def _image(container: Mapping[str, Any]) -> str:
    """The image; values of a chart write name and tag apart."""
    image, name, tag = (container.get(key) for key in ("image", "repository", "tag"))
    if isinstance(image, str):
        return image
    return "" if not isinstance(name, str) else f"{name}:{tag}" if is_word(tag) else name


def _run(words: list[str], environment: dict[str, str], image: str, *, says_nothing: bool) -> Started | None:
    if words and words[0].rsplit("/", 1)[-1] in _SHELLS:
        script = next((word for word in reversed(words) if "vllm" in word), None)
        return None if script is None else script_started(script, "serve", environment)
    if not words and "vllm" not in image:
        return None
    found = words_started(words, "serve", environment)
    if found is not None and (not words[0].startswith("--") or "vllm" in image or says_nothing):
        return found
    is_vllm = "vllm" in image or any("vllm" in word for word in words)
    says_nothing = says_nothing and any(word.startswith("--") for word in words)
    return Started(words=words, environment=environment) if words and (is_vllm or says_nothing) else None


def _resolved(words: list[str], environment: Mapping[str, str]) -> list[str]:
    """With the variables that Kubernetes writes out, ``$(NAME)``, as far as they are set here."""
    size = 0
    resolved: list[str] = []
    for word in words:
        parts = _REFERENCE.split(word)
        parts[1::2] = [environment.get(name, f"$({name})") for name in parts[1::2]]
        size += sum(map(len, parts))
        if size > MOST_CHARACTERS:
            fix = f"stands for more than {MOST_CHARACTERS:,} characters, its variables written out"
            raise ConfigError("serve", hidden_beginning(word), fix)
        resolved.append("".join(parts))
    return resolved


def words_of(value: Any) -> list[str]:
    """The words of ``command`` or ``args``: a list, or a text that is split as a shell does. Raises ConfigError."""
    if isinstance(value, str):
        try:
            expander = Expander()
            return [word for command in commands(value) for word in expander.words(command)]
        except ShellError as error:
            raise ConfigError("serve", hidden_beginning(value), str(error)) from None
    return [str(each).strip() for each in value if is_word(each)] if isinstance(value, list) else []


def environment_of(value: Any) -> dict[str, str]:
    """Kubernetes' list of names and values, Compose's mapping, or its list of assignments."""
    if isinstance(value, Mapping):
        return {str(name): str(each) for name, each in value.items() if is_word(each) or isinstance(each, bool)}
    found = {}
    for each in value if isinstance(value, list) else ():
        if isinstance(each, Mapping) and is_word(each.get("value")):
            found[str(each.get("name"))] = str(each["value"])
        elif isinstance(each, str) and "=" in each:
            name, _, said = each.partition("=")
            found[name] = said
    return found


def _notes(container: Mapping[str, Any]) -> Iterator[Found]:
    for name in ("envFrom", "env_file"):
        if container.get(name):
            yield Found(name, "variables", "they are set elsewhere, and are not read")
