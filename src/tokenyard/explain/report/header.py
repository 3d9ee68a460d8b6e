"""The one-line summary of a run: each token from the field that the trace format names for it."""

from __future__ import annotations

import msgspec

from tokenyard.trace.format.deployment import Deployment, deployment_of
from tokenyard.trace.format.schema import TraceStart
from tokenyard.trace.format.step_facts import CLASSIFIER_BLOCK_SIZE, StepFacts
from tokenyard.trace.read.partial import Partial

__all__ = ["DEFAULT_BYTES_PER_BLOCK", "Header", "header_of", "infer_gpu", "kv_bytes"]

DEFAULT_BYTES_PER_BLOCK = 16 * 32 * 8 * 128 * 2 * 2
"""Bytes of a KV block where a trace does not say: 16 tokens x 32 layers x 8 KV heads x 128 dimensions x key and value x
2 bytes (Llama-3.1-8B)."""

_GPU_BY_BLOCKS = (
    (8_000, "5090"),
    (15_000, "A100-40GB"),
    (35_000, "H100/A100-80GB"),
    (60_000, "H200-141GB"),
)


class Header(Deployment, frozen=True, kw_only=True):
    """What ran, where and how long. None where the trace does not tell."""

    policy: str
    gpu: str
    gpu_inferred: bool
    """The GPU was guessed from the number of blocks."""
    model: str | None
    host: str | None
    kv_blocks: int | None
    kv_bytes: int | None
    dram_blocks: int | None
    dram_bytes: int | None
    jobs: int
    """Distinct job ids."""
    first_step: int | None
    last_step: int | None
    steps: int
    seconds: float | None
    """From the first snapshot to the last."""
    max_running: int | None
    """Most requests running at once."""
    request_records: int | None
    """Records in the requests file, if it was read."""
    source: str | None
    partial: Partial | None = None
    """How the trace shows that the run went on after it; None if it does not."""


def infer_gpu(total_blocks: int | None) -> str:
    """The GPU that usually has so many blocks, or ``unknown``."""
    if total_blocks is not None:
        for limit, name in _GPU_BY_BLOCKS:
            if total_blocks < limit:
                return name
    return "unknown"


def kv_bytes(blocks: int | None, start: TraceStart | None) -> int | None:
    """Bytes of so many blocks."""
    if blocks is None:
        return None
    per_block = start.bytes_per_block if start is not None else None
    if not per_block:
        block_size = start.block_size if start is not None else None
        per_block = DEFAULT_BYTES_PER_BLOCK * (block_size or CLASSIFIER_BLOCK_SIZE) // CLASSIFIER_BLOCK_SIZE
    return blocks * per_block


def header_of(
    start: TraceStart | None,
    first: StepFacts | None,
    last: StepFacts | None,
    *,
    steps: int,
    jobs: int,
    max_running: float | None,
    request_records: int,
    source: str | None,
    partial: Partial | None,
) -> Header:
    """The header of a run from its first and last step and what was counted between them."""
    blocks = first.total_blocks if first is not None else None
    dram = first.cpu_total_blocks if first is not None else None
    gpu = start.gpu if start is not None else None
    seconds = None
    if first is not None and last is not None and first.ts is not None and last.ts is not None:
        seconds = last.ts - first.ts
    return Header(
        **msgspec.structs.asdict(deployment_of(start.config if start is not None else None)),
        policy=(first.policy if first is not None else None) or "unknown",
        gpu=gpu or infer_gpu(blocks),
        gpu_inferred=gpu is None,
        model=start.model if start is not None else None,
        host=start.host if start is not None else None,
        kv_blocks=blocks,
        kv_bytes=kv_bytes(blocks, start),
        dram_blocks=dram,
        dram_bytes=kv_bytes(dram, start),
        jobs=jobs,
        first_step=first.step if first is not None else None,
        last_step=last.step if last is not None else None,
        steps=steps,
        seconds=seconds,
        max_running=None if max_running is None else int(max_running),
        request_records=request_records or None,
        source=source,
        partial=partial,
    )
