"""Manifests that start vLLM: the containers of Kubernetes, the services of Compose, or a list of words.

    containers: [{command: [...], args: [...], env: [...]}]      Kubernetes, at any depth
    services: {name: {command: ..., environment: ...}}           Compose
    args: [...], or the bare list, in YAML or JSON                what somebody copied out of either

What stands there takes the place of an image's command, or follows its entry point (``vllm serve``).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tokenyard.errors import ConfigError

__all__ = ["Started", "started_by"]

_WORDS = ("entrypoint", "command", "args")
_SHELLS = ("sh", "bash", "zsh", "ash")


class Started(NamedTuple):
    """What a container runs."""

    words: list[str]
    """Words, as a shell would split them; empty if ``script`` says it."""
    script: str | None
    """What a shell is given to run."""
    environment: dict[str, str]


def started_by(text: str) -> list[Started]:
    """What the containers in ``text`` run, those that have nothing to do with vLLM aside; none if it is no manifest."""
    found = [_started(each) for document in _documents(text) for each in _containers(document)]
    return [each for each in found if each is not None]


def _documents(text: str) -> list[Any]:
    """The YAML (or JSON) documents of ``text`` that are mappings or lists; none if it is no YAML."""
    if "\n" not in text.strip() and text.strip()[:1] not in ("[", "{"):
        return []
    import yaml  # noqa: PLC0415 - takes time that a plain line need not spend

    try:
        return [each for each in yaml.safe_load_all(text) if isinstance(each, list | dict)]
    except (yaml.YAMLError, RecursionError):
        return []


def _containers(value: Any) -> Iterator[Mapping[str, Any]]:
    """Mappings that say what to run, at any depth."""
    if isinstance(value, list):
        if value and all(_is_word(each) for each in value):
            yield {"args": value}
            return
        for each in value:
            yield from _containers(each)
    elif isinstance(value, Mapping):
        if any(isinstance(value.get(name), list | str) for name in _WORDS):
            yield value
            return
        for each in value.values():
            if isinstance(each, Mapping) or (isinstance(each, list) and any(isinstance(one, Mapping) for one in each)):
                yield from _containers(each)


def _is_word(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _started(container: Mapping[str, Any]) -> Started | None:
    """Of one container; None if it is not vLLM's."""
    words = [word for name in _WORDS for word in _words(container.get(name))]
    environment = _environment(container.get("env") or container.get("environment"))
    if words and words[0].rsplit("/", 1)[-1] in _SHELLS:
        script = next((word for word in reversed(words) if "vllm" in word), None)
        return None if script is None else Started([], script, environment)
    is_vllm = "vllm" in str(container.get("image", "")) or any("vllm" in word for word in words)
    says_nothing = "image" not in container and any(word.startswith("--") for word in words)
    return Started(words, None, environment) if is_vllm or says_nothing else None


def _words(value: Any) -> list[str]:
    if isinstance(value, str):
        try:
            return shlex.split(value)
        except ValueError as error:
            raise ConfigError("serve", value, f"is not a valid shell command line: {str(error).lower()}") from None
    return [str(each).strip() for each in value if _is_word(each)] if isinstance(value, list) else []


def _environment(value: Any) -> dict[str, str]:
    """Kubernetes' list of names and values, Compose's mapping, or its list of assignments."""
    if isinstance(value, Mapping):
        return {str(name): str(each) for name, each in value.items()}
    found = {}
    for each in value if isinstance(value, list) else ():
        if isinstance(each, Mapping) and "value" in each:
            found[str(each.get("name"))] = str(each["value"])
        elif isinstance(each, str) and "=" in each:
            name, _, said = each.partition("=")
            found[name] = said
    return found
