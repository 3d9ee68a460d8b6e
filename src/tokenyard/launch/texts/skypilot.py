"""Tasks of SkyPilot: ``run``, with ``envs``, and the machine that ``resources`` asks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from tokenyard.launch.texts.command import script_started
from tokenyard.launch.texts.containers import environment_of
from tokenyard.launch.texts.gpu_labels import gpu_named
from tokenyard.launch.texts.started import Said, Started

__all__ = ["is_task", "task_started"]

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


def task_started(task: Mapping[str, Any]) -> list[Started]:
    """What a task starts, if that is vLLM. Raises ConfigError."""
    asked = list(_accelerators(task.get("resources")))
    counts = {count for _name, count in asked}
    nodes = task.get("num_nodes")
    environment = {**environment_of(task.get("envs")), "SKYPILOT_NUM_NODES": str(nodes or 1), "SKYPILOT_NODE_RANK": "0"}
    if len(counts) == 1:
        environment[_GPUS_PER_NODE] = counts.pop()
    found = script_started(task["run"], "serve", environment)
    if found is None:
        return []
    names = dict.fromkeys(_BY_NAME.get(name) or gpu_named(name) or name for name, _count in asked)
    gpu = Said(" or ".join(names), "accelerators of the task") if names else None
    return [replace(found, gpu=found.gpu or gpu, replicas=_replicas(task.get("service")))]


def _accelerators(resources: Any) -> Iterator[tuple[str, str]]:
    """Names and numbers of ``H100:8``, ``{H100: 8}``, a list of either, or ``any_of``."""
    if not isinstance(resources, Mapping):
        return
    for one in (resources, *_list(resources.get("any_of")), *_list(resources.get("ordered"))):
        asked = one.get("accelerators") if isinstance(one, Mapping) else None
        for each in asked if isinstance(asked, list) else [asked]:
            if isinstance(each, Mapping):
                for name, count in each.items():
                    text = str(name) if count is None else f"{name}:{count}"
                    yield _parts(text)
            elif isinstance(each, str):
                yield _parts(each)


def _parts(text: str) -> tuple[str, str]:
    name, _, count = text.partition(":")
    return name.strip(), count.strip() or "1"


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _replicas(service: Any) -> Said | None:
    if not isinstance(service, Mapping):
        return None
    policy = service.get("replica_policy")
    policy = policy if isinstance(policy, Mapping) else {}
    least = service.get("replicas", policy.get("min_replicas"))
    most = policy.get("max_replicas", least)
    if not all(isinstance(each, int) and not isinstance(each, bool) and each >= 1 for each in (least, most)):
        return None
    return Said(str(least) if least == most else f"{least}..{most}", "replicas of the service")
