"""The settings that a ``trace_start`` record tells, flat: ``scheduler.max_num_seqs`` -> 128."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tokenyard.trace.format.deployment import SECTION
from tokenyard.trace.format.schema import TraceStart

__all__ = ["settings_of"]

_OF_THE_RUN = ("policy", "host", "model", "gpu", "block_size", "tokenyard_version", "every_n")


def settings_of(start: TraceStart) -> dict[str, Any]:
    """Name -> value: the fields about the run, then every setting of its configuration.

    A setting is named by its sections with dots between them; those of the deployment stand alone.
    """
    return {name: getattr(start, name) for name in _OF_THE_RUN} | dict(_flat(start.config or {}))


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from _flat(value, prefix + ("" if name == SECTION else f"{name}."))
        else:
            yield prefix + name, value
