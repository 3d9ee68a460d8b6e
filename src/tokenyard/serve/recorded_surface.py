"""What vLLM's server looks like from outside, version by version, as ``lab/record_vllm_surface.py`` found it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

_ROUND = tuple(each * 10**power for power in range(9) for each in (1, 2, 5))
"""Bounds that follow from the longest request: those up to it."""


class MetricFamily(msgspec.Struct, frozen=True, kw_only=True):
    """A family of metrics."""

    name: str
    kind: str
    """gauge, counter or histogram."""
    labels: tuple[str, ...]
    when: str
    """Settings with which it is there: ``always``, ``speculation``, ``lora``."""
    values: Mapping[str, tuple[str, ...]] = {}
    """Label -> its values from the start, where they are fixed."""
    buckets: tuple[float, ...] | str = ()
    """Bounds of a histogram; ``1-2-5``: those of round numbers up to the longest request."""

    def bounds(self, max_model_len: int) -> tuple[float, ...]:
        """The upper bounds, without infinity."""
        if isinstance(self.buckets, str):
            return tuple(float(each) for each in _ROUND if each <= max_model_len)
        return self.buckets


class Surface(msgspec.Struct, frozen=True, kw_only=True):
    """What a version shows."""

    version: str
    """Version of the vLLM that was recorded."""
    metrics: Sequence[MetricFamily]
    answers: Mapping[str, Mapping[str, Any]]
    """Kind of an answer -> its fields in order, with what stands there where nothing else does."""


@cache
def surface_of(version: str) -> Surface:
    """The surface of a version such as ``0.33``, or of the next one that was recorded, else of the newest."""
    folder = files("tokenyard.serve") / "recorded"
    known = sorted(
        (each.name.removesuffix(".json") for each in folder.iterdir() if each.name.endswith(".json")), key=_key
    )
    chosen = next((each for each in known if _key(each) >= _key(version)), known[-1])
    return msgspec.json.decode((folder / f"{chosen}.json").read_bytes(), type=Surface)


def _key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])
