"""How much memory the KV cache gets: what the engine may use, less the weights and the peak of a step, measured."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tokenyard.engine.torch.attention.block_batch import StepRows
from tokenyard.engine.torch.attention.kv_tensors import KVTensors
from tokenyard.engine.torch.checkpoint import require_torch
from tokenyard.engine.torch.model import PagedModel

__all__ = ["CPU_SHARE", "GPU_SHARE", "left_for_blocks", "run_dummy_step"]

GPU_SHARE = 0.9
"""Of a GPU's memory, unless ``gpu_memory_utilization`` says otherwise; vLLM's default."""
CPU_SHARE = 0.4
"""Of the machine's memory, which others use too."""
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
_MAX_RSS_UNIT = 1 if sys.platform == "darwin" else 1024
"""Bytes of ``ru_maxrss``."""


def run_dummy_step(model: PagedModel, tensors: KVTensors, num_tokens: int, max_num_seqs: int, max_len: int) -> None:
    """Compute a step as large as they come, with logits for as many requests as may run; its KV is one block's."""
    rows = min(max_num_seqs, num_tokens)
    counts = np.full(rows, num_tokens // rows, np.int64)
    counts[: num_tokens % rows] += 1
    step = StepRows(np.zeros(rows, np.int64), np.minimum(counts, max_len))
    tables = [np.ones((rows, int(step.counts.max())), np.int32)] * (1 + max(layer.group for layer in tensors.layers))
    ids, first = np.zeros(int(step.counts.sum()), np.int64), np.zeros(rows, np.int64)
    model.logits(ids, step, tables, step.counts.cumsum() - 1, adapters=first)


def left_for_blocks(device: str, share: float) -> int:
    """Bytes that are left of ``share`` of the memory, after what this process has needed at most so far."""
    if device.startswith("cuda"):
        return _left_of_gpu(require_torch(), device, share)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MAX_RSS_UNIT
    return int(_machine_bytes() * share) - used


def _left_of_gpu(torch: Any, device: str, share: float) -> int:
    torch.cuda.synchronize(device)
    free, total = torch.cuda.mem_get_info(device)
    others = total - free - torch.cuda.memory_reserved(device)
    peak: int = torch.cuda.max_memory_reserved(device)
    return int(total * share - others) - peak


def _machine_bytes() -> int:
    """Of the machine, or of the container that this process lives in."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    text = _CGROUP_LIMIT.read_text().strip() if _CGROUP_LIMIT.is_file() else "max"
    return min(machine, int(text)) if text.isdigit() else machine
