"""What leaves the scheduler: KV that is kept elsewhere, and the trace."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tokenyard.cli.support.flags.hints import optional
from tokenyard.cli.support.settings import Switch

__all__ = ["MAX_IDS_PER_STEP", "TraceFlags", "TransferFlags"]

MAX_IDS_PER_STEP = 64
"""Bound of a replay's trace: request ids per list and step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferFlags:
    """KV offloading and connectors."""

    kv_offloading_size: Annotated[float | None, optional("GIB", "no offloading")] = None
    """CPU memory for KV blocks that leave the GPU, in GiB over all GPUs."""
    kv_offloading_backend: str = "native"
    """Implementation of the offloading; only native is supported."""
    kv_transfer_config: Annotated[str | None, optional("JSON", "no connector")] = None
    """A KV connector (OffloadingConnector, SharedStorageConnector) and its settings; docs/connectors.md lists them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFlags:
    """The trace."""

    trace: Annotated[Path | None, optional("DIR", "SCHED_TRACE_PATH, else no trace")] = None
    """Write the trace into this directory."""
    record_requests: Switch = False
    """Also write one record per queued request and step; `report` then shows what the smallest waiting one needed."""
    max_ids_per_step: int = MAX_IDS_PER_STEP
    """Most request ids per list and step (0 = all): the trace's size then grows with steps, not with the queue."""
