"""Vectors of prompts: what pooling requests get in place of tokens, gathered chunk by chunk.

LAST    hidden state of the prompt's last token, after the model's last norm
CLS     of its first token
MEAN    the mean over all of its tokens
"""

from __future__ import annotations

from typing import Any

from tokenyard.engine.torch.attention.block_batch import StepRows
from tokenyard.engine.torch.request_rows import RequestRows, Sampling
from tokenyard.params import PoolingParams, PoolingType
from tokenyard.sched.steps.scheduler_output import SchedulerOutput

__all__ = ["Pooler"]


class Pooler:
    """The rows of one step that are pooled."""

    def __init__(self, state: RequestRows, plan: SchedulerOutput, rows: StepRows) -> None:
        self._plan, self._rows = plan, rows
        self._asking: list[tuple[int, Sampling, PoolingParams]] = []
        for row, request_id in enumerate(plan.req_ids if state.num_pooled else ()):
            sampling = state.sampling(request_id)
            if sampling.pooling is not None:
                self._asking.append((row, sampling, sampling.pooling))

    @property
    def rows(self) -> list[int]:
        """Those rows: no token is sampled for them."""
        return [row for row, _, _ in self._asking]

    def of(self, hidden: Any) -> dict[int, Any]:
        """Row -> its vector, where this step completes its prompt; ``hidden`` has shape ``[tokens, size]``."""
        ends, complete = self._rows.counts.cumsum(), {}
        for row, sampling, params in self._asking:
            start, count = int(self._rows.starts[row]), int(self._rows.counts[row])
            states = hidden[int(ends[row]) - count : int(ends[row])]
            sampling.pooled = _gathered(params.pooling_type, start, states, sampling.pooled)
            length = int(self._plan.num_prompt[row])
            if start + count >= length:
                vector = sampling.pooled / length if params.pooling_type == PoolingType.MEAN else sampling.pooled
                vector = vector / vector.norm().clamp_min(1e-12) if params.normalize else vector
                complete[row], sampling.pooled = vector.cpu().numpy(), None
        return complete


def _gathered(kind: str, start: int, states: Any, before: Any) -> Any:
    """What is known of the vector after a chunk that begins at ``start``: at 0 it begins anew, as after preemption."""
    states = states.float() if states.dtype.itemsize < 4 else states
    if kind == PoolingType.MEAN:
        return states.sum(0) if start == 0 else before + states.sum(0)
    if kind == PoolingType.CLS:
        return states[0] if start == 0 else before
    return states[-1]
