"""The file formats by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from tokenyard.sim.workload.readers.azure import read_azure
from tokenyard.sim.workload.readers.lines import ReadOptions
from tokenyard.sim.workload.readers.lmcache import read_lmcache
from tokenyard.sim.workload.readers.mooncake import read_mooncake
from tokenyard.sim.workload.readers.plain import read_plain
from tokenyard.sim.workload.readers.servegen import read_servegen
from tokenyard.sim.workload.readers.weka import read_weka
from tokenyard.sim.workload.record import WorkloadRequest

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
