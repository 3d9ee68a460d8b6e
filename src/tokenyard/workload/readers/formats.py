"""The file formats by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from tokenyard.workload.readers.lines import ReadOptions
from tokenyard.workload.readers.plain import read_plain
from tokenyard.workload.readers.published import read_azure, read_lmcache, read_mooncake, read_servegen, read_weka
from tokenyard.workload.record import WorkloadRequest

__all__ = ["FORMATS"]

Reader = Callable[[Path, ReadOptions], Iterator[WorkloadRequest]]

FORMATS: dict[str, Reader] = {
    "azure": read_azure,
    "lmcache": read_lmcache,
    "mooncake": read_mooncake,
    "plain": read_plain,
    "servegen": read_servegen,
    "weka": read_weka,
}
"""By name, as ``--format`` takes it."""
