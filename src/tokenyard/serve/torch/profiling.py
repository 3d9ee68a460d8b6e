"""How much memory the KV cache gets: what the engine may use, less the weights and the peak of a step, measured."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tokenyard.core.kv.allocation import BlockDeltas
from tokenyard.core.params import SamplingParams
from tokenyard.core.sched.scheduler_output import NewRequest, ScheduledDrafts, SchedulerOutput
from tokenyard.serve.torch.attention import MOST_PLACES, HeldBlocks, StepRows
from tokenyard.serve.torch.checkpoint import require_torch
from tokenyard.serve.torch.runner import ModelRunner

# ---------------------------------------------------------------------------------------------------------------------
# The largest steps that a scheduler can make; whatever else a step needs is bounded where it is computed.
#
#     longest    all tokens in one row, at the end of the greatest length: most KV, masks and scores; a scored prompt
#     widest     as many rows as may run, with their drafts: most logits, draws and log-probabilities
#
# Attention of the widest step is that of prompts from position 0 on, and of rows whose KV fills one gather.


class StepLimits(msgspec.Struct, frozen=True):
    """What bounds a step."""

    num_tokens: int
    """``max_num_batched_tokens``."""
    max_num_seqs: int
    max_model_len: int
    num_drafts: int
    """Drafts of one request."""


def longest_step(limits: StepLimits) -> StepRows:
    """One row; further ones if it cannot have all tokens, as one of its own stays before them."""
    most = max(limits.max_model_len - 1, 1)
    left = [min(most, limits.num_tokens - done) for done in range(0, limits.num_tokens, most)]
    counts = np.array(left[: limits.max_num_seqs], np.int64)
    return StepRows(limits.max_model_len - counts, counts)


def widest_step(limits: StepLimits) -> StepRows:
    """Return a step whose rows have the same number of tokens each."""
    num_rows = max(1, min(limits.max_num_seqs, limits.num_tokens // (1 + limits.num_drafts)))
    counts = np.full(num_rows, limits.num_tokens // num_rows, np.int64)
    counts[-1] += limits.num_tokens % num_rows
    counts = np.minimum(counts, max(limits.max_model_len - 1, 1))
    length = MOST_PLACES // -(-MOST_PLACES // limits.max_model_len)
    starts = np.zeros(num_rows, np.int64)
    starts[: MOST_PLACES // length] = length
    return StepRows(np.maximum(starts - counts, 0), counts)


def run_largest_steps(runner: ModelRunner, limits: StepLimits, num_groups: int, adapter: str | None) -> None:
    """Compute them, up to their tokens and drafts. Their KV is that of one block, which all rows have everywhere."""
    longest, widest = longest_step(limits), widest_step(limits)
    for rows, params, num_drafts in (
        (longest, SamplingParams(prompt_logprobs=1), 0),
        (widest, SamplingParams(top_p=0.5, logprobs=1), min(limits.num_drafts, int(widest.counts.min()) - 1)),
    ):
        plan = _plan(rows, params, num_drafts, adapter)
        shape = (len(rows.counts), limits.max_model_len + limits.num_drafts + 1)
        table = np.broadcast_to(np.int32(1), shape)
        with require_torch().inference_mode():
            runner.forward(plan, HeldBlocks([table] * num_groups, np.full(shape[0], limits.max_model_len)))
            runner.sample(plan, None)


def _plan(rows: StepRows, params: SamplingParams, num_drafts: int, adapter: str | None) -> SchedulerOutput:
    """A step of new requests that sample behind it. The last of several does without the adapter that all others have:
    tokens that are picked out need more than all of them.
    """
    num_rows, none = len(rows.counts), np.zeros(0, np.int64)
    known = rows.starts + rows.counts - num_drafts
    names = [adapter if i < num_rows - 1 or num_rows == 1 else None for i in range(num_rows)]
    drafts = ScheduledDrafts(np.zeros((num_rows, num_drafts), np.int64), np.full(num_rows, num_drafts))
    return SchedulerOutput.of_columns(
        step=0,
        req_ids=tuple(f"{i} of {num_rows}" for i in range(num_rows)),
        slots=np.arange(num_rows),
        num_new_tokens=rows.counts,
        num_computed=rows.starts,
        num_known=known,
        num_prompt=known,
        drafts=drafts if num_drafts else None,
        num_running=0,
        total_num_scheduled_tokens=int(rows.counts.sum()),
        new_blocks=BlockDeltas(none, (), ()),
        new_requests={
            i: NewRequest(np.zeros(known[i], np.int32), params, None, names[i], None, (), None, 0)
            for i in range(num_rows)
        },
    )


# ---------------------------------------------------------------------------------------------------------------------
# What is left after them.

GPU_SHARE = 0.9
"""Share of a GPU's memory that is used, unless ``gpu_memory_utilization`` says otherwise; vLLM's default."""
CPU_SHARE = 0.4
"""Share of the machine's memory, which others use too."""
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
_MAX_RSS_UNIT = 1 if sys.platform == "darwin" else 1024
"""Bytes of ``ru_maxrss``."""


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
    """Bytes of memory of the machine, or of the container that this process lives in."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    text = _CGROUP_LIMIT.read_text().strip() if _CGROUP_LIMIT.is_file() else "max"
    return min(machine, int(text)) if text.isdigit() else machine
