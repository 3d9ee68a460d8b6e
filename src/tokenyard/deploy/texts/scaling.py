"""Documents of Kubernetes that scale another one: a HorizontalPodAutoscaler, KEDA's ScaledObject."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tokenyard.deploy.start_facts import HeaderNote, Said
from tokenyard.deploy.texts.commands import ContainerCommand
from tokenyard.deploy.texts.data import at
from tokenyard.deploy.texts.manifests import count_of

_SCALERS = {
    "HorizontalPodAutoscaler": ("minReplicas", "maxReplicas", 1),
    "ScaledObject": ("minReplicaCount", "maxReplicaCount", 100),
}
"""Kinds, their fields, and the most that counts where they name none."""

_EACH_NODE = HeaderNote(
    "DaemonSet", "one on each node", "how many nodes there are is not said: --replicas gives their number"
)


def unlisted(documents: Sequence[Any]) -> list[Any]:
    """``documents``, with those that a ``List`` holds in its place."""
    found: list[Any] = []
    for each in documents:
        items = at(each, "items") if at(each, "kind") == "List" else None
        found += items if isinstance(items, list) else [each]
    return found


def scalers_of(documents: Sequence[Any]) -> list[Mapping[str, Any]]:
    """The ``documents`` that scale another one."""
    return [each for each in documents if at(each, "kind") in _SCALERS and isinstance(at(each, "spec"), Mapping)]


def scaled(started: ContainerCommand, document: Any, scalers: Sequence[Mapping[str, Any]]) -> ContainerCommand:
    """What ``document`` starts, with the replicas that one of the ``scalers`` gives it; those of others are named."""
    name = _name(at(document, "metadata"))
    if at(document, "kind") == "DaemonSet":
        started = replace(started, notes=(*started.notes, _EACH_NODE))
    for scaler in scalers:
        spec, kind = scaler["spec"], scaler["kind"]
        target = _name(spec.get("scaleTargetRef"))
        if target != name:
            note = HeaderNote(kind, target, "scales something else, and is not read")
            started = replace(started, notes=(*started.notes, note))
            continue
        least, most, otherwise = _SCALERS[kind]
        was = "" if started.replicas is None else f", not {started.replicas.value}, {started.replicas.where}"
        replicas = range_of(spec.get(least), spec.get(most, otherwise), f"{least} and {most} of the {kind}{was}")
        started = replace(started, replicas=replicas or started.replicas)
    return started


def range_of(least: Any, most: Any, where: str) -> Said | None:
    """``1..3``, at least one, said ``where``; None where neither is a number."""
    low, high = count_of(least), count_of(most)
    if low is None and high is None:
        return None
    first = max(1, int(low or 1))
    last = max(first, int(high or 0))
    return Said(str(first) if first == last else f"{first}..{last}", where)


def _name(reference: Any) -> str | None:
    name = at(reference, "name")
    return None if name is None else str(name)
