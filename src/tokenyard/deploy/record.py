"""What the user gave for a run, as its trace keeps it: the flags that are not as by default, and those that were given.

A trace's other settings are settled: they do not record what would be another number on another GPU.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, get_type_hints

import msgspec

from tokenyard.deploy.settings import DeploymentSettings, LaunchSettings
from tokenyard.deploy.vllm_serve.given import GivenFlags

ASKED = "asked"
"""The section of a trace's configuration."""
_GROUPS = ("hardware", "scheduler", "parallel", "adapters", "speculation")
_PASTED = "vllm serve"


def asked_flags(flags: DeploymentSettings) -> dict[str, list[str]]:
    """The section: ``GROUP.NAME=VALUE``, with values as JSON; and the names of all settings that were given."""
    said = [
        f"{group}.{name}={msgspec.json.encode(value).decode()}"
        for group in _GROUPS
        for name, value in unusual(getattr(flags, group)).items()
    ]
    launch = flags.launch
    said.append(f"launch.vllm_version={msgspec.json.encode(launch.vllm_version).decode()}")
    if launch.ignore_unmodelled:
        said.append("launch.ignore_unmodelled=true")
    if launch.serve is not None or launch.config is not None:
        said.append(f"launch.serve={msgspec.json.encode(_PASTED).decode()}")
    return {"flags": said, "named": sorted(launch.asked.named)}


def read_asked_flags(config: Mapping[str, Any]) -> DeploymentSettings | None:
    """The flags of the run whose trace has this configuration; None where it does not keep them, or not as we do."""
    section = config.get(ASKED)
    try:
        found = msgspec.convert(section, dict[str, list[str]])
        groups: dict[str, dict[str, Any]] = {}
        for said in found["flags"]:
            name, _, value = said.partition("=")
            group, _, field = name.partition(".")
            groups.setdefault(group, {})[field] = msgspec.json.decode(value)
        kinds = get_type_hints(DeploymentSettings)
        parts = {name: filled(kinds[name], groups.get(name, {})) for name in _GROUPS}
        launch = filled(LaunchSettings, groups.get("launch", {}))
        named = frozenset(found["named"])
    except (msgspec.MsgspecError, KeyError, TypeError):
        return None
    return DeploymentSettings(**parts, launch=dataclasses.replace(launch, asked=GivenFlags(named=named)))


def unusual(group: Any) -> dict[str, Any]:
    """The fields of a group of flags that are not as by default."""
    usual = type(group)()
    values = {each.name: getattr(group, each.name) for each in dataclasses.fields(group)}
    return {name: value for name, value in values.items() if value != getattr(usual, name)}


def filled(kind: Any, values: Mapping[str, Any]) -> Any:
    """A group of flags with these values. Raises KeyError or msgspec.ValidationError for what it cannot hold."""
    types = get_type_hints(kind)
    return kind(**{name: msgspec.convert(value, types[name], strict=False) for name, value in values.items()})
